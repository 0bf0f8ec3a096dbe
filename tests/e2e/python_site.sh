#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package without any other package: tests/python/plain.py is site b of a run, and site c of another one whose model Atoll does
# not have. Sites end in one outer state, also after kill -9; what is wrong raises an error with the program's exit code.
. "$(dirname "$0")/lib.sh"
python3 -c 'import ctypes' 2>/dev/null || { echo "SKIPPED: no python3 with ctypes"; exit 77; }
PYTHONPATH=$repository/outer/python ATOLL_LIBRARY=$(cd "$(dirname "$atoll")/../lib" && pwd)/libatoll.so
export PYTHONPATH ATOLL_LIBRARY PYTHONDONTWRITEBYTECODE=1
steps=24 every=6 codec=int4
configure a,b
plain=$repository/tests/python/plain.py
python_site() { # python_site SITE WORDS...: in the background; the process number is in $pid
    who=$1
    shift
    python3 "$plain" run.yaml "$who.checkpoint" 6 site.name="$who" run.dir="$who" "$@" >>"$who.out" 2>&1 &
    pid=$!
    processes="$processes $pid"
}
outer_of() { sed -n 's/^step [0-9]*, outer state \([0-9a-f]*\),.*/\1/p' "$1.out" | tail -n 1; }

refused() { # refused WORDS SETTING...: atoll.Error with these words, and exit code 4
    words=$1
    shift
    python3 - "$@" >refused.out 2>&1 <<'END' || fail "no atoll.Error: $*"
import sys
import atoll
try:
    atoll.tensors("run.yaml", dict(word.split("=", 1) for word in sys.argv[1:]))
except atoll.Error as error:
    print(error)
    sys.exit(error.code != 4)
sys.exit("nothing was raised")
END
    grep -q "$words" refused.out || fail "the error says \"$(cat refused.out)\" and not \"$words\""
}
refused "unknown key outer.evry; the nearest is outer.sync_every" outer.evry=3
printf '{"tensors": [{"name": "x", "shape": [2, 0]}]}' >bad.json
refused "bad.json: tensor 0: shape: a number is below 1" model.tensors=bad.json
printf '{"tensors": [{"name": "x", "shape": [2]}, {"name": "x", "shape": [2]}]}' >bad.json
refused "bad.json: tensor 1: another tensor has this name" model.tensors=bad.json
printf '{"tensors": [{"name": "x", "shape": [2], "init": "normal"}]}' >bad.json
refused "bad.json: tensor 0: std: from 0 to 1000, with init normal and truncated alone" model.tensors=bad.json
printf '{"tensors": [{"name": "x", "shape": [2], "kind": 3}]}' >bad.json
refused "bad.json: tensor 0: a field is none of name, shape, init, std and layer" model.tensors=bad.json
printf '{"tensors": []}' >bad.json
refused 'bad.json: one field is wanted, "tensors", a list of tensors' model.tensors=bad.json
refused "nowhere.json" model.tensors=nowhere.json

run() { # run KILLS: `atoll train` and a Python site
    rm -rf a b aggregator ./*.checkpoint a.out b.out
    serve
    train a
    a=$pid
    kills=0
    while [ $kills -lt "$1" ]; do
        seen=$(lines "ev=round" b.out)
        python_site b
        await "site b makes no round" '[ "$(lines "ev=round" b.out)" -gt "$seen" ] || ! kill -0 $pid 2>/dev/null'
        killed "$pid"
        kills=$((kills + 1))
    done
    python_site b
    ends 0 "$pid" "site b"
    ends 0 "$a" "site a"
    serve_ends
    outer=$(sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' a/metrics.jsonl | tail -n 1)
    [ -n "$outer" ] && [ "$(outer_of b)" = "$outer" ] || fail "site a ends in $outer, site b in $(outer_of b)"
}
run 0
undisturbed=$outer
run 2
[ "$outer" = "$undisturbed" ] || fail "kill -9 of site b changes the outer state"

# A model that Atoll does not have: sites of libatoll alone, one tensor of a prime number of values and one of a single one.
cat >tensors.json <<'END'
{"tensors": [{"name": "experts.0.up", "shape": [3, 5, 7], "init": "normal", "std": 0.02, "layer": 0},
 {"name": "experts.1.up", "shape": [3, 5, 7], "init": "truncated", "std": 0.02, "layer": 1},
 {"name": "scale", "shape": [], "init": "one"}, {"name": "offset", "shape": [1009]}]}
END
settings="--model.tensors tensors.json"
rm -rf a b aggregator ./*.checkpoint a.out b.out
code=0
"$atoll" train --config run.yaml --site.name a --run.dir a $settings >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "model.tensors = tensors.json: Atoll does not have this model" refused.out ||
    fail "atoll train takes a model that it does not have: exit code $code, $(cat refused.out)"
two_python() { # two_python SETTING=VALUE...: sites a and b to the end
    rm -rf a b aggregator ./*.checkpoint a.out b.out
    serve
    python_site a model.tensors=tensors.json "$@"
    a=$pid
    python_site b model.tensors=tensors.json "$@"
    ends 0 "$pid" "site b"
    ends 0 "$a" "site a"
    serve_ends
    [ -n "$(outer_of a)" ] && [ "$(outer_of a)" = "$(outer_of b)" ] || fail "the sites differ: $(outer_of a), $(outer_of b)"
}
# The sites train differently. What each ends with is the merge, and what was merged is what they trained.
two_python
cmp a.checkpoint b.checkpoint || fail "after the last round the two trainers hold different values"
trained=$(outer_of a)
export PLAIN_STILL=1
two_python
unset PLAIN_STILL
[ "$(outer_of a)" != "$trained" ] || fail "sites that train nothing end in the same outer state"
settings="--model.tensors tensors.json --outer.fragments 2"
two_python outer.fragments=2

# Both sites in one process, a thread each, and a child that is forked while they are open.
rm -rf a b aggregator
serve
cat >both.py <<'END'
import array
import math
import os
import threading

import atoll

settings = {"model.tensors": "tensors.json", "outer.fragments": 2}
table = atoll.tensors("run.yaml", settings)
found = {}


def work(name):
    values = [array.array("f", bytes(4 * math.prod(t.shape))) for t in table]

    def read(number, first, count, out):
        out[:] = values[number][first:first + count]

    def write(number, first, count, new):
        values[number][first:first + count] = array.array("f", new)

    with atoll.Site("run.yaml", table, read, write, {**settings, "site.name": name, "run.dir": name}) as site:
        step = site.start()
        while step < site.steps:
            for x in values:
                x[step % len(x)] += 0.01 * len(name)
            step = site.made(step + 1)
            child = os.fork() if step == 12 else 1
            if not child:
                os._exit(0)
            if step == 12:
                os.waitpid(child, 0)
        found[name] = site.digest


threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert len(found["a"]) == 64 and found["a"] == found["b"], found
END
bounded python3 both.py >both.out 2>&1 || fail "two sites in one process: exit code $?"
serve_ends

# A wait ends by Ctrl-C, what is closed answers from memory, and a wrong call loses nothing.
rm -rf a b aggregator
cat >calls.py <<'END'
import os
import signal
import threading

import atoll

settings = {"model.tensors": "tensors.json", "site.name": "a", "run.dir": "a"}
table = atoll.tensors("run.yaml", settings)
lines = []
site = atoll.Site("run.yaml", table, lambda *_: None, lambda *_: None, settings, log=lambda level, line: lines.append((level, line)))
threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    site.start()
    raise SystemExit("a start without an aggregator has ended well")
except atoll.Stopped as stopped:
    assert stopped.code == 75, stopped
assert any(level == 3 and "aggregator unreachable" in line for level, line in lines), lines
site.close()
site.close()
assert len(site.digest) == 64 and (site.status.steps, site.steps) == (24, 24)
for call in (lambda: site.due(1), lambda: site.saving(1), lambda: site.start()):
    try:
        call()
        raise SystemExit("a closed site takes a call")
    except atoll.Error as error:
        assert str(error) == "this site is closed", error
END
bounded python3 calls.py >calls.out 2>&1 || fail "calls: exit code $?"

# The run starts from a trainer's own values: a safetensors file by the names of the table.
cat >values.py <<'END'
import array
import json
import math
import sys

import atoll

header, data = {}, b""
for t in atoll.tensors("run.yaml", {"model.tensors": "tensors.json"})[int(sys.argv[2]):]:
    values = array.array("f", [5 + i for i in range(math.prod(t.shape))]).tobytes()
    header[t.name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(values)]}
    data += values
words = json.dumps(header).encode()
words += b" " * (-len(words) % 8)
open(sys.argv[1], "wb").write(len(words).to_bytes(8, "little") + words + data)
END
python3 values.py values.safetensors 0 && python3 values.py less.safetensors 1 || fail "values.py"
settings="--model.tensors tensors.json --run.init_from less.safetensors"
code=0
"$atoll" serve --config run.yaml $settings >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "less.safetensors: tensor experts.0.up is missing" refused.out || fail "exit code $code: $(cat refused.out)"
settings="--model.tensors tensors.json --run.init_from values.safetensors"
export PLAIN_STILL=1 # what is not trained stays as it was given
two_python run.init_from=values.safetensors
unset PLAIN_STILL
tail -c +9 a.checkpoint >held
tail -c "$(wc -c <held)" values.safetensors | cmp - held || fail "a run from given values does not begin with them"
