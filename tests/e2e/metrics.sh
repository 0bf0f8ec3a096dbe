#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a user's script that reads metrics.jsonl. Every field that a run writes is in docs/metrics.md, every
# kind of record there is written, and each of its fields that is said to be always there is; the aggregator's rounds are the sites'.
. "$(dirname "$0")/lib.sh"

configure a,b
printf 'plan:\n  step_s: 0.01\n  up_mbit: 100\n  down_mbit: 100\n' >link.yaml
echo '{"query":"a","choices":["b","c"],"gold":0}' >task.jsonl
settings="--eval.tasks x=task.jsonl --eval.prompts a --eval.every_rounds 2 --site.probe link.yaml --train.eval_every 8"
serve
train a
a=$pid
until_lines 1 '"text":"waiting for b"' a/metrics.jsonl
kill -USR2 "$serve_pid" "$a" # status: they continue
until_lines 1 'ev=status text="site a of run e2e: step 8 of 40, loss ' a/log.txt
grep -q 'ev=status .*waiting for b.*, 0 of 5 rounds committed, 1 in flight; aggregator reachable; certificate valid for 8[0-9] days"' \
    a/log.txt || fail "the status of a site: $(grep ev=status a/log.txt)"
until_lines 3 'ev=status text=' aggregator/log.txt
grep -q 'text="aggregator of run e2e: 0 of 5 rounds committed, 1 of 2 sites connected, certificate' aggregator/log.txt &&
    grep -q 'text="site b: not heard from yet, step 0 of 40"' aggregator/log.txt || fail "the status of the aggregator"
for name in "operator" "site --name c"; do # c is added, so that there is a record of it
    "$atoll" cert issue --role $name --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role $name"
done
"$atoll" operator roster add c --aggregator "127.0.0.1:$port" --aggregator-name localhost >operator.out 2>&1 || fail "operator roster add"
operator set outer.lr 0.5 || fail "operator set" # and one of an amendment
kill -INT "$serve_pid"
ends 75 "$serve_pid" "the aggregator after Ctrl-C"
kill -INT "$a"
ends 75 "$a" "site a after Ctrl-C"
train c --data.train "data/train-1-*.bin"
c=$pid
undisturbed
ends 0 "$c" "site c"

# A mixture of sources and a command after a checkpoint, for their records.
"$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir mixed --data.train "data/train-0-*.bin" --data.weights 1 \
    --train.steps 2 --train.warmup_steps 0 --run.after_checkpoint true >mixed.out 2>&1 || fail "a mixture"

# A short run with privacy, for its records.
settings="--train.steps 8 --outer.weights equal --privacy.secure sum --privacy.two_sites true --privacy.unit sequence --privacy.noise_multiplier 1 --privacy.epsilon_max 1000 --privacy.delta 1e-6"
serve --serve.dir private_aggregator
train a --run.dir private_a
a=$pid
train b --run.dir private_b
ends 0 "$pid" "site b with privacy"
ends 0 "$a" "site a with privacy"
serve_ends

# WHO KIND FIELD WHEN, as the page says; "all" for every record
awk '/^## / { who = $2 == "1." ? "site" : "aggregator" }
    /^### / { kind = $2 }
    /^\| `/ { split($0, column, " *[|] *")
        n = split(column[2], field, ", *")
        for (i = 1; i <= n; i++) { gsub("`", "", field[i])
            print (who ? who : "all"), (who ? kind : "all"), field[i], column[3] } }' "$repository/docs/metrics.md" >documented
[ "$(wc -l <documented)" -gt 100 ] || fail "docs/metrics.md: its tables are not as this test reads them"

# One line for each record: WHO KIND fields. A quote within a string has a backslash before it, so no string looks like a field.
for s in a b mixed private_a aggregator private_aggregator; do
    who=${s#private_}
    [ "$who" = aggregator ] || who=site
    sed "s/\\\\\"//g" $s/metrics.jsonl | awk -v who=$who '{ match($0, /"kind":"[a-z]*"/); kind = substr($0, RSTART + 8, RLENGTH - 9); out = ""
        while (match($0, /[{,]"[a-z_]*":/)) { out = out " " substr($0, RSTART + 2, RLENGTH - 4); $0 = substr($0, RSTART + RLENGTH - 1) }
        print who, kind out }'
done >written
awk 'NR == FNR { known[$1, $2, $3] = 1; if ($4 == "always") always[$1 " " $2] = always[$1 " " $2] " " $3; kinds[$1 " " $2] = 1; next }
    { name = $1 " " $2; seen[name] = 1; delete has
      for (i = 3; i <= NF; i++) { has[$i] = 1
          if (!known[$1, $2, $i] && !known["all", "all", $i]) wrong[name ": " $i " is written and not documented"] = 1 }
      n = split(always[name] " " always["all all"], want, " ")
      for (i = 1; i <= n; i++) if (!has[want[i]]) wrong[name ": " want[i] " is documented and not there"] = 1 }
    END { for (k in kinds) if (!seen[k] && k != "all all") wrong[k ": no such record was written"] = 1
        for (w in wrong) { print w; bad = 1 }; exit bad }' documented written >wrong || fail "docs/metrics.md: $(cat wrong)"

# The aggregator counts rounds, bytes and states as the sites do.
state=$(sed -n 's/.*"kind":"final".*"outer":"\([0-9a-f]*\)".*/\1/p' aggregator/metrics.jsonl | tail -n 1)
[ -n "$state" ] && grep -q "\"outer\":\"$state\"" a/metrics.jsonl || fail "another outer state than the sites'"
field() { sed -n "s/.*\"kind\":\"$1\".*\"$2\":\([0-9]*\).*/\1/p" "$3/metrics.jsonl"; }
[ "$(field round round aggregator)" = "$(grep '"replayed":0' b/metrics.jsonl | sed -n 's/.*"round":\([0-9]*\).*/\1/p')" ] ||
    fail "the rounds have other numbers at the aggregator"
up=$(field round up b | awk '{ n += $1 } END { print n }')
[ "$(grep '"kind":"site".*"site":"b"' aggregator/metrics.jsonl | tail -n 1 | sed 's/.*"up_total":\([0-9]*\).*/\1/')" = "$up" ] || fail "bytes of b: not $up"
for n in 0 1 2 3 4; do
    grep -q "ev=commit fragment=0 round=$n " aggregator/log.txt && grep -q "ev=adopted site=b fragment=0 round=$n " aggregator/log.txt ||
        fail "commit and adopt of round $n"
done

# Each directory knows its configuration, and scripts read the answer.
"$atoll" eval --run.dir a --format json >eval.out 2>&1 || fail "eval without --config"
grep -Eq '^{"model":"a/inner, step 40","step":40,"tokens":[0-9]+,"loss":[0-9.]+,"perplexity":[0-9.]+,"bits_per_byte":[0-9.]+}$' eval.out ||
    fail "eval --format json: $(cat eval.out)"
"$atoll" eval --from aggregator >eval.out 2>&1 || fail "eval of the aggregator's directory without --config"
"$atoll" report aggregator --out report.html >report.out 2>&1 || fail "a report of the aggregator alone"
grep -q '"name":"b","state":.*"role":"seen"' report.html || fail "the aggregator's report has no site b"
"$atoll" report aggregator b --out report.html >report.out 2>&1 || fail "a report of some directories"
