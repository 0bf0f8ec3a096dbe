#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: evaluation in a run. It would change a bit of the training, score another model than the outer one of its
# round, come twice or not at all after a kill -9, or not be counted as its own cause of lost time.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }

settings="--outer.fragments 2 --outer.overlap_steps 2 --train.seq_len 32 --train.steps 40"
configure a,b
undisturbed
same_state a b
without=$(final a)
mkdir without
mv a b aggregator without/

# The same run; site a evaluates. A hostile prompt: it goes through JSON, HTML and a terminal.
python3 "$here/choices.py" write
printf 'eval:\n  tasks: [arc=arc.jsonl, query=query.jsonl]\n  every_rounds: 2\n  prompt_tokens: 100\n  questions: 2\n  prompts:\n    - "The "\n    - "\\"</script><img src=x onerror=alert(1)>"\n' >eval.yaml
cp run.yaml plain.yaml
cat eval.yaml >>run.yaml
sed 's/tasks:.*/tasks: []/; s/every_rounds: 2/every_rounds: 0/; s/prompts:/prompts: []/; /^    - /d' eval.yaml >off.yaml
serve
train a
a=$pid
cat plain.yaml off.yaml >run_b.yaml
train b --config run_b.yaml
b=$pid
sites_end 0 a b
serve_ends
same_state a b
[ "$(final a)" = "$without" ] || fail "evaluation changes the training: $(final a) / $without"
grep -q '"kind":"task"' b/metrics.jsonl && fail "site b evaluates"
of() { grep "\"kind\":\"$1\"" "$2/metrics.jsonl" | grep "$3" | sed 's/.*"round":\([0-9]*\).*/\1/' | tr '\n' ' '; }
for what in '"of":"arc"' '"of":"query"' '"number":0' '"number":1'; do
    kind=task
    case $what in *number*) kind=probe ;; esac
    [ "$(of $kind a "$what")" = "1 3 4 " ] || fail "rounds with $what: $(of $kind a "$what")"
done

# What it scored and wrote is what atoll eval and atoll sample make of the last outer parameters.
last() { grep "\"kind\":\"$1\"" "$2/metrics.jsonl" | grep -F "$3" | tail -n 1; }
"$atoll" eval --config run.yaml $settings --from aggregator --data.eval "" --format json >eval.jsonl 2>eval.out || fail "atoll eval"
for name in arc query; do
    numbers() { grep -o '"questions.*"chance":[0-9.]*'; }
    there=$(grep "\"$name\"" eval.jsonl | numbers)
    [ -n "$there" ] && [ "$(last task a "\"of\":\"$name\"" | numbers)" = "$there" ] || fail "$name in the run: $(last task a "\"$name\"") / $there"
done
"$atoll" sample --config run.yaml $settings --from aggregator --prompt "The " --tokens 100 --seed 7 >sample.out 2>&1 || fail "atoll sample"
python3 - a/metrics.jsonl sample.out <<'END' || fail "a probe is not what atoll sample writes"
import json, sys
row = [r for r in map(json.loads, open(sys.argv[1], encoding="utf-8")) if r["kind"] == "probe" and r["number"] == 0][-1]
wanted = open(sys.argv[2], "rb").read()[:-1].decode("utf-8", "replace")
clean = lambda t: "".join("?" if c == "\ufffd" or ord(c) < 32 and c not in "\t\n" or 127 <= ord(c) < 160 else c for c in t)
assert clean(row["prompt"] + row["text"]) == clean(wanted), (row, wanted)
END

# Its time is its own cause, and all causes together are the time.
"$atoll" status a --format json >status.json || fail "atoll status"
python3 - a/metrics.jsonl status.json <<'END' || fail "the time of the evaluation"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
(a,) = json.load(open(sys.argv[2], encoding="utf-8"))["sites"]
ms = sum(r["ms"] for r in rows if r["kind"] in ("task", "probe"))
spent = a["spent_s"]
rounds = [r for r in rows if r["kind"] == "round"]  # it is no time of theirs
known = sum(r["compute_ms"] + r["gather_ms"] + r["exposed_ms"] + r["mix_ms"] for r in rounds[1:])
between = sum(r["ms"] for r in rows if r["kind"] in ("task", "probe") and rounds[0]["t"] <= r["t"] < rounds[-1]["t"])
assert known + between / 2 <= 1e3 * (rounds[-1]["t"] - rounds[0]["t"]), (known, between)
assert ms > 0 and abs(spent["evaluation"] - ms / 1e3) < 1e-6, (spent, ms)
assert abs(sum(v for k, v in spent.items() if k != "all") - spent["all"]) < 1e-3 + 0.02 * spent["all"], spent
assert [t["name"] for t in a["tasks"]] == ["arc", "query"] and a["tasks"][0]["round"] == 4 and len(a["tasks"][0]["by_round"]) == 3, a["tasks"]
assert a["probes"][1]["prompt"] == '"</script><img src=x onerror=alert(1)>', a["probes"]
END
"$atoll" status a >status.txt || fail "atoll status"
grep -q "arc after round 4: accuracy .* chance 26.7 %" status.txt || fail "atoll status has no task: $(cat status.txt)"

"$atoll" report a b --out report.html >report.out 2>&1 || fail "atoll report"
grep -q '"by_round":\[\[' report.html && grep -qF '\u003c/script>\u003cimg src=x' report.html || fail "the report has no evaluation"
grep -q "<img" report.html && fail "the text of a probe becomes markup in the report"

# A run that ended without an evaluation makes up for the last round.
"$atoll" train --config plain.yaml $settings --site.name a --run.dir without/a --data.train "data/train-0-*.bin" \
    --eval.tasks arc=arc.jsonl --eval.every_rounds 2 --log.progress none >again.out 2>&1 || fail "site a, started again at its end"
[ "$(of task without/a .)" = "4 " ] || fail "rounds evaluated at the end: $(of task without/a .)"

# Killed again and again: each round is on record once, and the bits are the same.
texts() { grep '"kind":"probe"' "$1/metrics.jsonl" | sed 's/.*"round":\([0-9]*\),.*"number"/\1 /' | sort; }
texts a >texts.once
rm -rf a b aggregator *.out
disturbed 2 a a b a
same_state a b
[ "$(final a)" = "$without" ] || fail "evaluation and kill -9 change the training"
# Sites differ between rounds, their outer parameters do not: the same texts, as in the run without a kill.
for s in a b; do
    texts $s >"$s.texts"
    cmp texts.once "$s.texts" || fail "site $s: other parameters than the outer ones of the round"
done
for s in a b; do
    for what in '"of":"arc"' '"of":"query"' '"number":0' '"number":1'; do
        kind=task
        case $what in *number*) kind=probe ;; esac
        [ "$(of $kind $s "$what")" = "1 3 4 " ] || fail "rounds of $s with $what after $killed kills: $(of $kind $s "$what")"
    done
done

# Repeated steps evaluate the outer parameters of their round, while the site holds later ones.
rm -rf a b aggregator *.out
serve
train a --train.checkpoint_every 1000
a=$pid
train b
b=$pid
until_rounds a 6
kill -9 "$a" "$b"
wait "$a" "$b" 2>/dev/null || :
sed -i '/"kind":"task"/d; /"kind":"probe"/d' a/metrics.jsonl
train a --train.checkpoint_every 1000
a=$pid
train b
b=$pid
sites_end 0 a b
serve_ends
texts a >a.texts
cmp texts.once a.texts || fail "repeated steps evaluate other parameters than those of their round"

refused() { # refused WORDS ARGUMENTS...
    words=$1
    shift
    "$atoll" train --config run.yaml $settings --site.name a --run.dir refused --data.train "data/train-0-*.bin" "$@" >refused.out 2>&1 && fail "not refused: $*"
    grep -q -- "$words" refused.out || fail "the refusal of $*"
}
refused "a site alone has no rounds" --site.aggregator "" --outer.sites "" --site.name ""
refused "a continuation could repeat a site's text" --privacy.secure sum --privacy.two_sites true --outer.weights equal
refused "there is nothing to evaluate" --eval.tasks "" --eval.prompts "" --eval.questions 0
refused "no.jsonl" --eval.tasks x=no.jsonl
echo "eval_run: ok"
