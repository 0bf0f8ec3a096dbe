#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: outer.replan works in the simulator alone. A real run, whose link becomes slower in mid-run, does not
# get longer rounds, or the run that is given the recorded amendments from the start ends with other bits (docs/protocol.md 3.17).
. "$(dirname "$0")/lib.sh"

# How many steps this machine makes in 0.4 s, with both sites at work.
steps=60 every=20 checkpoint_every=60
configure a,b
sed -i 's/batch_tokens: 128/batch_tokens: 512/' run.yaml
undisturbed
step_ms=$(sed -n 's/.*"kind":"round".*"round":1,.*"compute_ms":\([0-9.]*\).*/\1/p' a/metrics.jsonl)
every=$(awk -v ms="$step_ms" 'BEGIN { n = int(400 / (ms / 20)); print (n < 8 ? 8 : n > 200 ? 200 : n) }')
steps=$((18 * every))
rm -rf a b aggregator ./*.out
sed -i "s/^  steps: .*/  steps: $steps/; s/^  sync_every: .*/  sync_every: $every/" run.yaml
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"

# About six rounds, then rounds that wait as long as a third of their steps or longer.
cat >net.yaml <<END
wan:
  sites: [a, b, aggregator]
  ports: [7443]
link:
  rate_mbit: 200
  later_s: 3
  later_rate_mbit: 4
  delay_ms: 2
END
bounded "$atoll" wan --topology net.yaml --mode relay -- sh -c 'case {site} in
    aggregator) exec "$0" serve --config run.yaml --serve.listen {address}:7443 --outer.replan true >>serve.out 2>&1 ;;
    *) part=0; [ {site} = a ] || part=1
       exec "$0" train --config run.yaml --site.name {site} --run.dir {site} --log.progress none --outer.replan true \
           --data.train "data/train-$part-*.bin" --site.aggregator {address:aggregator}:7443 >>{site}.out 2>&1 ;;
    esac' "$atoll" >wan.out 2>&1 || fail "atoll wan"
same_state a b
wanted_a=$(final a) wanted_b=$(final b)

# Who made them, why, and that both sites have trained by them.
sed -n 's/.*ev=amendment number=\([0-9]*\) setting="*\([a-z._]*\)=\([0-9]*\)"* from_round=\([0-9]*\) by=atoll:\/\/e2e\/aggregator left=[0-9]*$/\1 \2 \3 \4/p' \
    serve.out >amendments
[ -s amendments ] || fail "no amendment was made"
read -r number key value from <amendments
[ "$number $key" = "1 outer.sync_every" ] && [ "$value" -gt "$every" ] && [ "$from" -ge 4 ] ||
    fail "the first amendment is no longer round of a running run: $(cat amendments)"
grep -q "ev=replan every=$value before=$every from_round=$from share=0\.[0-9]* trained_s=.* waited_s=" serve.out || fail "it is not said why"
for s in a b; do
    grep -q "\"round\":$from,.*\"trained\":$value," $s/metrics.jsonl || fail "site $s: round $from does not have $value steps"
    grep -q "\"round\":$((from - 1)),.*\"trained\":$every," $s/metrics.jsonl || fail "site $s: the round before does not have $every steps"
done

"$atoll" report aggregator --out report.html >report.out 2>&1 || fail "atoll report"
grep -Eq "amendment 1: outer.sync_every=$value from round $from on \(outer.replan: training had [0-9.]* % of the time, [0-9.]* s, and waited" \
    report.html || fail "the report does not say why"

# The same run over loopback, which is given them before the first step.
cp serve.out replanned.txt
rm -rf a b aggregator serve.out a.out b.out
serve
listening
while read -r number key value from; do
    operator set "$key" "$value" --at-round "$from" || fail "operator set $key $value --at-round $from"
done <amendments
sites_start a b
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "with the recorded amendments site a ended at $(final a), before at $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "with the recorded amendments site b ended at $(final b), before at $wanted_b"
echo "every $every; $(tr '\n' ';' <amendments) same digests: $wanted_a"
