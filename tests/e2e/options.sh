#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What every command has alike. What breaks if this fails: a script that reads --format json gets other figures than a person, a file
# called - appears, an option that was renamed is taken for something else, Ctrl-C looks like a failure, or -q is loud.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
alike() { # alike PART WORDS...
    checked=$1
    shift
    python3 "$here/options.py" "$checked" "$atoll" "$@" >"$checked.out" 2>&1 || fail "the part $checked of options.py"
}

steps=1000000 configure a,b # it continues until it is stopped
for role in operator observer; do
    "$atoll" cert issue --role $role --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role $role"
done
settings="--run.archive on"
serve
listening
sites_start a b
until_rounds a 2
until_rounds b 2
kill -STOP "$b" # the run stands: no training next to what is asked
alike asks --aggregator "127.0.0.1:$port" --aggregator-name localhost --tls tls

# Ctrl-C: one line of the command, the last one, without a trailer.
one_line() { # one_line FILE COMMAND
    [ "$(grep -c "^atoll $2: " "$1")" = 1 ] || fail "Ctrl-C prints another number of lines than one: $(tail -n 4 "$1")"
    tail -n 1 "$1" | grep -q "^atoll $2: .* (exit code: 75)$" || fail "the last line after Ctrl-C: $(tail -n 1 "$1")"
    ! grep -q "what it means" "$1" || fail "a trailer after Ctrl-C"
}
kill -INT "$a"
ends 75 "$a" "site a"
one_line a.out train
kill -INT "$serve_pid"
ends 75 "$serve_pid" "the aggregator"
one_line serve.out serve
kill -CONT "$b"
kill -INT "$b"
ends 75 "$b" "site b"
one_line b.out train
alike rest
alike machine

# A trailer stands where it adds to the sentence: not after a wrong word or file, but after a lost link.
code=0
"$atoll" ledger --formt json a >wrong.out 2>&1 || code=$?
[ "$code" = 4 ] && [ "$(wc -l <wrong.out)" = 1 ] || fail "a wrong option: exit code $code, $(cat wrong.out)"
code=0
"$atoll" status nosuch >wrong.out 2>&1 || code=$?
[ "$code" = 4 ] && [ "$(wc -l <wrong.out)" = 1 ] || fail "a directory that is not there: exit code $code, $(cat wrong.out)"
code=0
"$atoll" doctor --aggregator "127.0.0.1:$port" --aggregator-name localhost --certificate a >wrong.out 2>&1 || code=$?
[ "$code" = 2 ] && grep -q "what to do: restart when the network is back" wrong.out || fail "a lost link: exit code $code, $(cat wrong.out)"

# -V, -q, -v.
"$atoll" -V >short.out && "$atoll" --version | cmp -s - short.out || fail "atoll -V is not atoll --version"
alone="train --config run.yaml --site.aggregator= --data.train data/train-0-0000.bin --train.steps 20"
"$atoll" $alone --run.dir quiet -q >quiet.out 2>&1 || fail "atoll train -q"
"$atoll" $alone --run.dir usual >usual.out 2>&1 || fail "atoll train"
[ "$(grep -c "level=info" quiet.out)" = 0 ] && [ "$(grep -c "level=info" usual.out)" -gt 0 ] || fail "-q is not quiet"
"$atoll" $alone --run.dir loud -v --dry-run | grep -q "level: debug" || fail "-v is not --log.level debug"

steps=24 every=8 configure a,b
alike plans
alike measured
alike inputs
alike errors
"$atoll" $alone --run.dir alone --privacy.unit sequence --privacy.noise_multiplier 1 --privacy.delta 1e-5 >alone.out 2>&1 || fail "a private run"
alike privacy

# - is standard input: the shards of a pipe are those of the file.
"$atoll" data --out piped --sites 2 --seq-len 32 - <text.txt >piped.out 2>&1 || fail "atoll data -"
cmp -s piped/train-0-0000.bin data/train-0-0000.bin || fail "atoll data - makes other shards"
[ ! -e - ] || fail "a file called -"
echo "text and JSON say the same, - is a stream, Ctrl-C is one line"
