#!/bin/sh
# What breaks if this fails: a user measures a link, plans a run on it, simulates it and trains it, and one of the four says something
# else than the others, or takes a link that cannot be for one that is.
. "$(dirname "$0")/lib.sh"

steps=24 every=8 configure a,b

# refused COMMAND...: with the exit code of a wrong configuration
refused() {
    code=0
    "$atoll" "$@" >bad.out 2>&1 || code=$?
    [ $code -eq 4 ] || fail "exit code $code, not 4: atoll $*"
}

# The link of this machine, and its step time, through the real connection.
"$atoll" probe --config run.yaml --listen >listen.out 2>&1 &
probe_pid=$!
processes="$processes $probe_pid"
until_lines 1 "listening on" listen.out
"$atoll" probe --config run.yaml --site.name a --step --data.train "data/train-0-*.bin" --most-mib 4 --write link.yaml \
    >probe.out 2>&1 || fail "atoll probe"
kill $probe_pid
ends 0 $probe_pid "atoll probe --listen"
for key in step_s up_mbit down_mbit rtt_ms outer_ns; do
    awk -v key="$key:" '$1 == key && $2 > 0 { found = 1 } END { exit !found }' link.yaml || fail "atoll probe measured no $key"
done

# A plan, whose configuration is one that the program takes.
"$atoll" plan --config run.yaml --probe link.yaml --utilisation 20 --write best.yaml >plan.out 2>&1 || fail "atoll plan"
grep -q "as configured" plan.out || fail "atoll plan says nothing about the settings in force"
"$atoll" train --config best.yaml --dry-run >dry.out 2>&1 || fail "atoll plan wrote a configuration that is refused"

# Impossible links: the reason, the nearest that would do, nothing written.
rm -f none.yaml
refused plan --config run.yaml --plan.step_s 0.001 --plan.up_mbit 0.0001 --plan.down_mbit 0.0001 --write none.yaml
grep -q "the nearest possible: .* Mbit/s" bad.out || fail "the nearest possible link is not named"
[ ! -e none.yaml ] || fail "a configuration was written for an impossible link"
refused plan --config run.yaml --plan.step_s 1 --plan.down_mbit 1
refused plan --config run.yaml --sites 1025
refused plan --config run.yaml --plan.rtt_ms -1
refused plan --config run.yaml --utilisation 100
refused sim --config run.yaml --probe link.yaml nobody:step_s=1
refused sim --config run.yaml --probe link.yaml a:up_mbit=0
refused sim --config run.yaml --probe link.yaml a:up_mbit=fast

# The simulated run sends what the real one does; one site alone is a run too.
"$atoll" sim --config run.yaml --probe link.yaml >sim.out 2>&1 || fail "atoll sim"
grep -q "at 2 of 2 sites" sim.out || fail "the simulated bytes are not the schedule's"
"$atoll" sim --sites 1 --config run.yaml --probe link.yaml >one.out 2>&1 || fail "atoll sim with one site"

# Training says what was predicted, and that a plan for another link no longer holds.
settings="--plan.step_s 5 --plan.up_mbit 100 --plan.down_mbit 100 --plan.rtt_ms 10 --outer.every 4"
serve
listening
train a
a_pid=$pid
train b
ends 0 $a_pid a
ends 0 $pid b
up=$(sed -n 's/.*predicts, \([0-9]*\) bytes up.*/\1/p' sim.out)
[ -n "$up" ] || fail "atoll sim names no bytes"
[ "$(lines ev=planned a/log.txt)" -ge 4 ] || fail "no prediction beside the rounds"
[ "$(lines ev=plan_left a/log.txt)" -eq 1 ] || fail "a step 100 times as fast as planned goes unnoticed, or is told more than once"
grep -q "atoll probe, then atoll plan" a/log.txt || fail "what to do is not said"
echo "probe, plan, sim and train agree"
