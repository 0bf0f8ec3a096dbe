#!/bin/sh
# The simulated run beside the real one: two sites and an aggregator on this machine, the link paced to a rate, against atoll sim with
# that rate, the step time that the real run had, and what atoll probe measured of the rest. Prints seconds on the link (send and
# fetch), of a whole exchange (the other site's lateness, the disk and the processor too) and of the run, and the ratios: within 5 %
# on an idle machine; on a busy one only the link's.
#
#   tests/bench/sim_real.sh ATOLL SCRATCH [MBIT [CODEC [OVERLAP]]]
mbit=${3:-20}
codec=${4:-int8}
overlap=${5:-0}
. "$(dirname "$0")/../e2e/lib.sh"

steps=60 every=12 configure a,b
settings="--model.width 160 --model.heads 4 --outer.codec $codec --outer.overlap_steps $overlap --site.rate_up $mbit --site.rate_down $mbit"
"$atoll" probe --config run.yaml --listen >listen.out 2>&1 &
probe_pid=$!
processes="$processes $probe_pid"
until_lines 1 "listening on" listen.out
"$atoll" probe --config run.yaml --site.name a --step --data.train "data/train-0-*.bin" --most-mib 4 $settings --write link.yaml \
    >probe.out 2>&1 || fail "atoll probe"
kill $probe_pid
ends 0 $probe_pid "atoll probe"
serve
listening
train a
a_pid=$pid
train b
ends 0 $a_pid a
ends 0 $pid b

# What a site measured: all steps, all that training stood still for; the mean step goes into the simulation.
python3 - "$mbit" a/metrics.jsonl >real.out <<'END'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[2])]
steps = [r["step_ms"] for r in rows if r["kind"] == "step"]
rounds = [r for r in rows if r["kind"] == "round"]
link = [(r["send_ms"] or 0) + (r["fetch_ms"] or 0) for r in rounds]
waits = [sum(r[k] or 0 for k in ("encode_ms", "store_ms", "send_ms", "wait_ms", "fetch_ms", "apply_ms")) for r in rounds]
print(sum(steps) / len(steps) / 1e3, sum(waits) / len(waits) / 1e3, sum(link) / len(link) / 1e3, (sum(steps) + sum(r["exposed_ms"] or 0 for r in rounds)) / 1e3)
END
read -r step_s exchange_s link_s total_s <real.out
"$atoll" sim --config run.yaml --probe link.yaml $settings --plan.step_s "$step_s" --plan.up_mbit "$mbit" --plan.down_mbit "$mbit" \
    >sim.out 2>&1 || fail "atoll sim"
sed -n 's/^time .*(\([0-9.]*\) s).* takes \([0-9.]*\) s.*/\1 \2/p' sim.out | {
    read -r sim_total_s sim_exchange_s
    echo "codec=$codec overlap=$overlap mbit=$mbit step_s=$step_s"
    echo "exchange_s on_the_link=$link_s real=$exchange_s simulated=$sim_exchange_s"
    echo "run_s real=$total_s simulated=$sim_total_s"
    awk "BEGIN { printf \"ratio link=%.3f exchange=%.3f run=%.3f\n\", $sim_exchange_s / $link_s, $sim_exchange_s / $exchange_s, $sim_total_s / $total_s }"
}
