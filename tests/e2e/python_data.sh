#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the ids of rows that Python hands over (atoll.data) are not those of `atoll data`, a row without a
# text is lost without a word, an error does not say which row it is, rows of people stay on a disk; or a reader of metrics.jsonl
# (atoll.metrics) counts a step twice. No package is needed here; tests/python/check_data.py has what needs one.
. "$(dirname "$0")/lib.sh"
python3 -c 'import ctypes' 2>/dev/null || { echo "SKIPPED: no python3 with ctypes"; exit 77; }
PYTHONPATH=$repository/outer/python ATOLL_LIBRARY=$(cd "$(dirname "$atoll")/../lib" && pwd)/libatoll.so ATOLL_PROGRAM=$atoll
export PYTHONPATH ATOLL_LIBRARY ATOLL_PROGRAM PYTHONDONTWRITEBYTECODE=1
tokenizer=$repository/tests/golden/published/bert

# The same texts for both: rows.jsonl for atoll.data, and what `atoll data` reads by itself. Three rows have no text.
cat >prepare.py <<'END'
import csv, json, sys
texts = [p for p in open(sys.argv[1], encoding="utf-8").read().split("\n\n") if p.strip()][:900]
texts[5] = 'a "quoted" \\ text,\twith\r\nlines\n\nand \u00e9 \u2028 \U0001f600'
rows = [{"n": i, "body": t, "kind": ("x", 7)[i % 2], "whose": f"p{i // 5}" if i % 3 else i} for i, t in enumerate(texts)]
chats = [{"chat": [{"role": "user", "content": t[:50], "name": None}, {"role": "assistant", "content": t[50:]}]} for t in texts]
out = lambda name: open(name, "w", encoding="utf-8", newline="")
with out("rows.jsonl") as f:
    for row in [*rows[:3], {**rows[0], "body": None}, *rows[3:9], {**rows[0], "body": ""}, {**rows[0], "body": " \n"}, *rows[9:]]:
        f.write(json.dumps(row) + "\n\n")
with out("plain.jsonl") as f:
    f.writelines(json.dumps({"text": r["body"], "patient": r["whose"]}) + "\n" for r in rows)
with out("chats.jsonl") as f:
    f.writelines(json.dumps(c) + "\n" for c in chats)
with out("plain_chats.jsonl") as f:
    f.writelines(json.dumps({"text": f"user:\n{t[:50]}\nassistant:\n{t[50:]}"}) + "\n" for t in texts)
with out("plain.csv") as f:
    csv.writer(f).writerows([["text", "label", "owner"], *([r["body"], r["kind"], r["whose"]] for r in rows)])
with out("plain_unowned.csv") as f:
    csv.writer(f).writerows([["text", "label"], *([r["body"], r["kind"]] for r in rows)])
END
python3 prepare.py text.txt

same() { # same WANTED: the files of rows/ are those of that directory, byte for byte, and nothing else is left
    [ "$(ls rows)" = "$(ls "$1")" ] || fail "rows and $1 have other files: $(ls rows "$1")"
    for file in "$1"/*; do
        [ "${file##*/}" = FORMAT ] || cmp "$file" "rows/${file##*/}" || fail "${file##*/} differs from the one of atoll data"
    done
    left=$(ls -A | grep -c '^\.\|^tmp') || :
    [ "$left" = 0 ] || fail "files are left: $(ls -A)"
    rm -rf rows "$1"
}
module() { python3 -m atoll.data --out rows "$@" >module.out 2>&1 || fail "python -m atoll.data $*"; }
plain() { "$atoll" data --out wanted "$@" >plain.out 2>&1 || fail "atoll data $*"; }

module --text body --sites 2 rows.jsonl
grep -q "^903 rows; left out: 1 with a null text, 2 with a blank one$" module.out || fail "the rows without a text are not said"
grep -q "train, site 1" module.out || fail "what atoll data says is not shown"
plain --sites 2 --field text plain.jsonl
same wanted
gzip -k rows.jsonl
module rows.jsonl.gz --text=body -- --tokenizer "$tokenizer" --sites=2
plain --tokenizer "$tokenizer" --sites 2 --field text plain.jsonl
same wanted
module --tokenizer "$tokenizer" --documents --owner whose --text body rows.jsonl
plain --tokenizer "$tokenizer" --documents --owner-field patient --field text plain.jsonl
same wanted
module --tokenizer "$tokenizer" --label kind --owner whose --text body rows.jsonl
plain --tokenizer "$tokenizer" --labels plain.csv
same wanted
module --tokenizer "$tokenizer" --label kind --text body rows.jsonl
plain --tokenizer "$tokenizer" --labels plain_unowned.csv
same wanted
module --messages chat chats.jsonl --seq-len 64
plain --field text plain_chats.jsonl --seq-len 64
same wanted

# The function: any iterable of dicts, once through. Chats with a template of the caller's are rendered by it.
python3 - "$tokenizer" >function.out 2>&1 <<'END' || fail "atoll.data.shards"
import json, os, sys
from atoll.data import shards
rows = (json.loads(line) for line in open("rows.jsonl") if line.strip())
made = shards(rows, "rows", text="body", sites=2, tokenizer=sys.argv[1], split_sentences=True, force=False)
assert (made.rows, made.null, made.blank) == (903, 1, 2), made
assert "train, site 1" in made.report, made.report
nan = shards(({"text": t} for t in [float("nan"), *["a text of some words. " * 90] * 60]), "nan/x")
assert (nan.rows, nan.null) == (61, 1), nan
upper = lambda messages: "|".join(m["content"].upper() + m.get("name", "") for m in messages) # a null is no key
shards(map(json.loads, open("chats.jsonl")), "chat_rows", messages="chat", template=upper)
with open("upper.jsonl", "w") as f:
    for line in open("chats.jsonl"):
        f.write(json.dumps({"text": "|".join(m["content"].upper() for m in json.loads(line)["chat"])}) + "\n")
END
plain --sites 2 --tokenizer "$tokenizer" --split-sentences --field text plain.jsonl
same wanted
mv chat_rows rows
plain --field text upper.jsonl
same wanted

refused() { # refused WORDS ARGUMENTS...: exit code 4 with these words, and nothing is left
    words=$1
    shift
    code=0
    python3 -m atoll.data --out rows "$@" >refused.out 2>&1 || code=$?
    [ $code = 4 ] && grep -qF -- "$words" refused.out || fail "exit code $code and no \"$words\": $*"
    [ ! -e rows ] && [ "$(ls -A | grep -c '^\.\|^tmp')" = 0 ] || fail "files are left after: $words: $(ls -A)"
}
refused 'rows.jsonl, line 1: no column "text"; the columns are n, body, kind, whose' rows.jsonl
refused 'rows.jsonl, line 1, column "n": of type int; a text is expected' --text n rows.jsonl
refused 'chats.jsonl, line 1, column "chat": of type list; a text or a whole number is expected' --messages chat --owner chat \
    --documents --tokenizer "$tokenizer" chats.jsonl
refused 'column "body": a text; a list of messages is expected' --messages body rows.jsonl
printf '{"text": "a"}\n{"text": "\\ud800"}\n' >half.jsonl
refused 'half.jsonl, line 2, column "text": '"'\\ud800'"' is half of a character' half.jsonl
printf '{"text": "a"}\n["a"]\n' >bad.jsonl
refused 'bad.jsonl, line 2 is of type list; a dict of columns is expected' bad.jsonl
printf '{"text": "a"}\n{"text": \n' >bad.jsonl
refused 'bad.jsonl, line 2: not JSON: ' bad.jsonl
printf '{"text": "a"}\n{"text": "\377"}\n' >bad.jsonl
refused 'bad.jsonl, line 2: byte 11 is not UTF-8' bad.jsonl
printf '{"text": ""}\n{"text": null}\n' >bad.jsonl
refused 'no row has a text: 2 rows; left out: 1 with a null text, 1 with a blank one' bad.jsonl
printf '{"chat": [{"role": "user", "content": "a"}, {"from": "gpt", "value": "a"}]}\n' >bad.jsonl
refused 'bad.jsonl, line 1, column "chat", message 1: no role that is a text; it has from, value' --messages chat bad.jsonl
printf '{"chat": [{"role": "user", "content": [1]}]}\n' >bad.jsonl
refused 'the template fails: the content of message 0 is of type list' --messages chat bad.jsonl
printf '{"text": "a\\u0000", "label": "x"}\n' >bad.jsonl
refused 'bad.jsonl, line 1, column "text": a zero byte' --label label --tokenizer "$tokenizer" bad.jsonl
printf '{"text": "a", "label": 0.5}\n' >bad.jsonl
refused 'column "label": of type float; a text or a whole number' --label label --tokenizer "$tokenizer" bad.jsonl
refused "nix.jsonl: [Errno 2] No such file" nix.jsonl
refused "text.txt: its name ends in none of .parquet" text.txt
refused "leave out --split" --split train rows.jsonl
refused "unknown option --stes; the nearest is --sites" --stes 2 --text body rows.jsonl
refused "--sites needs a value" rows.jsonl --sites
refused "--field is not for rows" --field body rows.jsonl
refused "plain.csv: after -- stand options" rows.jsonl -- --sites 2 plain.csv
refused "labels need a tokenizer" --label kind --text body rows.jsonl
refused "owners need --documents or --split-sentences" --owner whose --text body rows.jsonl
refused "--tokenizer nix: no such file" --tokenizer nix --text body rows.jsonl
refused "a template is for messages" --template "$tokenizer" rows.jsonl
refused "required: SOURCE" --text body
refused "the text is too short" bad.jsonl # of atoll data itself
[ "$(grep -c "atoll" refused.out)" = 1 ] || fail "an error of atoll data is said twice: $(cat refused.out)"
mkdir rows && touch rows/train-0-0000.bin
code=0
python3 -m atoll.data --out rows --text body rows.jsonl >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "shards are already there" refused.out || fail "shards are replaced"
module --text body --force rows.jsonl
code=0
ATOLL_PROGRAM=$PWD/nix python3 -m atoll.data --out x --text body rows.jsonl >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "the program atoll is not there" refused.out || fail "no program: exit code $code"

# Killed while it writes rows: nothing is left, for the file has no name.
rm -rf x rows
python3 - >killed.out 2>&1 <<'END' &
import time
from atoll.data import shards
def rows():
    for number in range(50000):
        yield {"text": f"row {number}"}
    print("half", flush=True)
    time.sleep(600)
shards(rows(), "parent/x")
END
half=$!
processes="$processes $half"
until_lines 1 half killed.out
killed "$half"
[ -z "$(ls -A parent)" ] || fail "rows are left after kill -9: $(ls -A parent)"

# ---- metrics ----
"$atoll" data --out data --seq-len 32 --force text.txt >data.out 2>&1 || fail "atoll data"
cat >run.yaml <<END
run: {name: e2e, seed: 5, dir: a}
model: {layers: 1, heads: 2, d_model: 32, max_seq_len: 32}
data: {train: [data/train-0-0000.bin], eval: [data/eval-0000.bin]}
train: {steps: 20, seq_len: 32, batch_tokens: 256, warmup_steps: 0, eval_every: 5, eval_tokens: 512}
device: {dtype: f32, threads: 1}
END
for more in 20 30; do
    "$atoll" train --config run.yaml --train.steps $more >train.out 2>&1 || fail "training"
done
printf '{"v":1,"kind":"step","t":17' >>a/metrics.jsonl # torn
cat >made.jsonl <<'END'
{"v":1,"kind":"start","t":1}
{"v":1,"kind":"step","t":2,"step":1,"loss":5.5}
{"v":1,"kind":"step","t":3,"step":2,"loss":5.25}
{"v":1,"kind":"round","t":3,"step":2,"fragment":0,"round":0,"replayed":0,"send_ms":8}
{"v":1,"kind":"round","t":3,"step":2,"fragment":1,"round":0,"replayed":0,"send_ms":9}
{"v":1,"kind":"notice","t":3,"text":"x"}
{"v":1,"kind":"start","t":4}
{"v":1,"kind":"step","t":5,"step":2,"loss":null}
{"v":1,"kind":"round","t":5,"step":2,"fragment":0,"round":0,"replayed":1,"send_ms":0}
{"v":1,"kind":"round","t":6,"step":4,"fragment":0,"round":1,"replayed":1,"send_ms":0}
{"v":1,"kind":"notice","t":6,"text":"x"}
END
sed 5q made.jsonl | sed '4s/.*/{"kind":/' >damaged.jsonl
python3 >metrics.out 2>&1 <<'END' || fail "atoll.metrics"
import atoll.metrics
from atoll.metrics import records
run = list(records("a"))
steps = [r for r in run if r["kind"] == "step"]
assert [r["step"] for r in steps] == list(range(1, 31)), steps
assert [r["process"] for r in steps] == [0] * 20 + [1] * 10, steps
assert [r["step"] for r in records("a/metrics.jsonl", "eval")][-1] == 30
assert {"start", "step", "eval", "final"} <= {r["kind"] for r in run}
assert list(records("made.jsonl", "nix")) == []
assert [(r["step"], r["loss"], r["process"]) for r in records("made.jsonl", "step")] == [(1, 5.5, 0), (2, None, 1)]
assert [(r["fragment"], r["round"], r["send_ms"]) for r in records("made.jsonl", "round")] == [(0, 0, 8), (1, 0, 9), (0, 1, 0)]
assert len(list(records("made.jsonl", repeated=True))) == 11 and len(list(records("made.jsonl", "notice"))) == 2
try:
    list(records("damaged.jsonl"))
    raise SystemExit("damage is not seen")
except ValueError as error:
    assert "damaged.jsonl: line 4 is no record" in str(error), error
try:
    import pandas
except ImportError:
    try:
        atoll.metrics.frames("a")
        raise SystemExit("no ImportError")
    except ImportError as error:
        assert "pip install pandas" in str(error), error
END
echo "rows have the ids of atoll data; a step counts once"
