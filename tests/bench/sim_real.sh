#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The simulated run compared with the real one: two sites and an aggregator on this machine, the link paced to a rate (site.rate_up,
# site.rate_down), against atoll sim with what atoll probe measured of this link and this machine, and the step time that the real
# run had. Prints the mean exchange, from its send to its commit, and the run, both in seconds at site a, and their ratios: within
# 5 % on an idle machine. utilisation.py does the same on an emulated network.
#
#   tests/bench/sim_real.sh ATOLL SCRATCH [MBIT [CODEC [OVERLAP]]]
mbit=${3:-20}
codec=${4:-int8}
overlap=${5:-0}
. "$(dirname "$0")/../e2e/lib.sh"

steps=60 every=12 configure a,b
settings="--model.d_model 160 --model.heads 4 --outer.codec $codec --outer.overlap_steps $overlap --site.rate_up $mbit --site.rate_down $mbit"
"$atoll" probe --config run.yaml --listen >listen.out 2>&1 &
probe_pid=$!
processes="$processes $probe_pid"
until_lines 1 "listening on" listen.out
# Both sites at once, as in the run.
"$atoll" probe --config run.yaml --site.name b --site.aggregator "" --step --data.train "data/train-1-*.bin" $settings >beside.out 2>&1 &
beside_pid=$!
processes="$processes $beside_pid"
"$atoll" probe --config run.yaml --site.name a --site.aggregator "" --step --data.train "data/train-0-*.bin" $settings --write step.yaml \
    >probe.out 2>&1 || fail "atoll probe --step"
ends 0 $beside_pid "the site next to atoll probe --step"
"$atoll" probe --config run.yaml --site.name a --most-mib 4 $settings --write link.yaml >probe.out 2>&1 || fail "atoll probe"
kill $probe_pid
ends 0 $probe_pid "atoll probe"
{ cat link.yaml && sed 1d step.yaml; } >both.yaml
serve
listening
train a
a_pid=$pid
train b
ends 0 $a_pid a
ends 0 $pid b

# What site a measured: steps, exchanges, all that training stood still for.
python3 - a/metrics.jsonl >real.out <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = [r["step_ms"] / 1e3 for r in rows if r["kind"] == "step"]
rounds = [r for r in rows if r["kind"] == "round"]
print(sum(steps) / len(steps), sum(r["flight_ms"] for r in rounds) / len(rounds) / 1e3, sum(steps) + sum(r["exposed_ms"] for r in rounds) / 1e3)
END
read -r step_s exchange_s total_s <real.out
"$atoll" sim --config run.yaml --probe both.yaml $settings --plan.step_s "$step_s" >sim.out 2>&1 || fail "atoll sim"
sed -n 's/^time .*(\([0-9.]*\) s).* takes \([0-9.]*\) s.*/\1 \2/p' sim.out | {
    read -r sim_total_s sim_exchange_s
    echo "codec=$codec overlap=$overlap mbit=$mbit step_s=$step_s"
    echo "exchange_s real=$exchange_s simulated=$sim_exchange_s"
    echo "run_s real=$total_s simulated=$sim_total_s"
    awk "BEGIN { printf \"ratio exchange=%.3f run=%.3f\n\", $sim_exchange_s / $exchange_s, $sim_total_s / $total_s }"
}
