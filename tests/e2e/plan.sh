#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
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
refused train --config run.yaml --site.name a --run.dir wrong --data.train "data/train-0-*.bin"
grep -q "the other end is atoll probe --listen" bad.out || fail "who takes the probe for an aggregator is not told"
kill $probe_pid
ends 0 $probe_pid "atoll probe --listen"
for key in step_s up_mbit down_mbit rtt_ms encode_ns apply_ns accept_ns commit_ns sum_ns; do
    awk -v key="$key:" '$1 == key && $2 > 0 { found = 1 } END { exit !found }' link.yaml || fail "atoll probe measured no $key"
done

# Steps of a model this small are over before a file is on the disk.
steps_of="--plan.step_s 0.5"

# plan_here ARGUMENT...: the plan for the link that was measured
plan_here() {
    "$atoll" plan --config run.yaml --probe link.yaml $steps_of --utilisation 20 "$@"
}

# A plan, whose configuration is one that the program takes.
plan_here --write best.yaml >plan.out 2>&1 || fail "atoll plan"
grep -q "as configured" plan.out || fail "atoll plan says nothing about the settings in force"
"$atoll" train --config best.yaml --dry-run >dry.out 2>&1 || fail "atoll plan wrote a configuration that is refused"

# The optimizer's recipe for a decoder; an encoder has LAMB as published.
grep -q "trust_layers: hidden" best.yaml || fail "atoll plan does not propose LAMB for the layers' matrices alone"
grep -q "hidden" dry.out || fail "the dry run of a plan does not have its trust_layers"
plan_here --model.causal false --data.objective mlm --write - >mlm.yaml 2>&1
grep -q "trust_layers" mlm.yaml && fail "atoll plan proposes for an encoder what costs it 4 %"
grep -q "sync_every:" mlm.yaml || fail "no plan for an encoder: $(cat mlm.yaml)"

# The outer momentum grows where rounds are many (docs/choosing.md 2).
plan_here --train.steps 30000 --write many.yaml >/dev/null 2>&1 ||
    fail "a plan of 30,000 steps"
grep -q "momentum_start: 0.3 " many.yaml && grep -q "momentum_warmup: [1-9]" many.yaml || fail "no momentum that grows: $(cat many.yaml)"
grep -q "lr: 1\$" many.yaml && grep -A 1 "lr_schedule: linear" many.yaml | grep -q "min_lr_ratio: 0.4" || fail "no outer rate that falls: $(cat many.yaml)"
"$atoll" train --config many.yaml --train.steps 30000 --dry-run >dry.out 2>&1 || fail "a plan of 30,000 steps is refused: $(cat dry.out)"
"$atoll" train --config many.yaml --train.steps 30000 --outer.sites a,b --site.name a --site.aggregator 127.0.0.1:1 --tls.dir tls \
    --data.train "data/train-0-*.bin" --dry-run >dry.out 2>&1 || fail "a site of a plan of 30,000 steps: $(cat dry.out)"
grep -q "Outer learning rate" dry.out && ! grep -q "WARNING" dry.out || fail "a run warns of the plan's recipe: $(cat dry.out)"
grep -q "momentum_warmup" best.yaml && fail "40 steps: a momentum that grows"
plan_here --outer.momentum_warmup 2 --write - >fewer.yaml 2>&1
grep -q "momentum_warmup: 0" fewer.yaml || fail "the configured momentum that grows stays, and the plan is for another: $(cat fewer.yaml)"
plan_here --train.steps 500 --outer.lr_schedule linear --outer.min_lr_ratio 0.1 --write - >fewer.yaml 2>&1
grep -A 1 "lr_schedule: constant" fewer.yaml | grep -q "min_lr_ratio: 0.4" || fail "the configured fall of the rate stays: $(cat fewer.yaml)"

# What belongs to one outer optimizer: the rate of adam, the interpolation of primal averaging.
plan_here --outer.optimizer adam --write - >adam.yaml 2>&1
grep -q "lr: 0  # the default of outer.optimizer: 0[.]" adam.yaml || fail "the outer rate of adam is said to be the table's: $(cat adam.yaml)"
grep -q "lr: 0  # of the table: " best.yaml || fail "where the outer rate comes from: $(cat best.yaml)"
plan_here --outer.optimizer primal --outer.interpolation 0.5 --write - >average.yaml 2>&1
grep -q "interpolation: 0.5\$" average.yaml || fail "the interpolation that was set is lost: $(cat average.yaml)"

grep -q "probe: link.yaml" best.yaml || fail "the configuration of a plan does not name its probe file"

# What was measured is no setting: in a configuration, and as an argument of a run.
{ cat run.yaml && cat link.yaml; } >mixed.yaml
refused plan --config mixed.yaml
grep -q "plan.step_s is no setting: .* site.probe" bad.out || fail "where measured values belong is not said"
refused train --config run.yaml --site.name a --plan.step_s 1
grep -q "plan.step_s is no setting" bad.out || fail "an argument of a measured value is taken by a run"
sed 's/  rtt_ms/  rtt/' link.yaml >misspelt.yaml
refused plan --config run.yaml --probe misspelt.yaml
grep -q "the nearest is plan.rtt_ms" bad.out || fail "an unknown key of a probe file"
"$atoll" plan --config run.yaml --site.probe link.yaml $steps_of --utilisation 20 >named.out 2>&1 || fail "atoll plan with site.probe"
sed '/^Configuration/,$d' plan.out >plan.table
sed '/^Configuration/,$d' named.out | cmp -s - plan.table || fail "site.probe and --probe differ"

# What is there stays: the configuration of a run is not replaced by a plan.
cp run.yaml before.yaml
refused plan --config run.yaml --probe link.yaml $steps_of --utilisation 20 --write run.yaml
grep -q "run.yaml exists" bad.out || fail "atoll plan does not say what is in the way"
refused probe --config run.yaml --step --write run.yaml
cmp -s run.yaml before.yaml || fail "the run's configuration was overwritten"
plan_here --write best.yaml --force >/dev/null 2>&1 ||
    fail "atoll plan --force"
"$atoll" probe --config run.yaml --site.aggregator "" --step --data.train "data/train-0-*.bin" --write step.yaml >probe.out 2>&1 ||
    fail "atoll probe --step alone"
grep -q "step_s: [0-9.]*[1-9]" step.yaml || fail "atoll probe --step wrote no step time"
! grep -q "mbit\|rtt" step.yaml || fail "atoll probe wrote a link that it did not measure"
refused probe --config run.yaml
grep -q "site.name is empty" bad.out || fail "atoll probe without site.name does not name it"

# Impossible links: the reason, the nearest that would do, nothing written.
rm -f none.yaml
refused plan --config run.yaml --plan.step_s 0.001 --plan.up_mbit 0.0001 --plan.down_mbit 0.0001 --write none.yaml
grep -q "the nearest possible: .* Mbit/s" bad.out || fail "the nearest possible link is not named"
[ ! -e none.yaml ] || fail "a configuration was written for an impossible link"
! grep -q -- "--utilisation" bad.out || fail "a utilisation is proposed that is refused"
refused plan --config run.yaml --plan.step_s 1 --plan.down_mbit 1
refused plan --config run.yaml --probe link.yaml --plan.loss_percent 50
refused plan --config run.yaml --sites 1025
refused plan --config run.yaml --plan.rtt_ms -1
refused plan --config run.yaml --utilisation 100
refused sim --config run.yaml --probe link.yaml nobody:step_s=1
refused sim --config run.yaml --probe link.yaml a:up_mbit=0
refused sim --config run.yaml --probe link.yaml a:up_mbit=fast
refused sim --config run.yaml --probe link.yaml a:loss_percent=11
grep -q "must be at most 10 %" bad.out || fail "how many packets may get lost is not said"

# Moments are fragments of the schedule, not of the parameters.
plan_here --outer.moment1_every 16 >moment.out 2>&1 || fail "atoll plan"
[ "$(sed -n '/as configured/{n;p;}' moment.out | awk '{ print $3 }')" = 1 ] || fail "P counts what is no part of the parameters"

# Memory: a residual reset keeps the discarded residual, 8 bytes per parameter, as a decay below 1 does.
memory() { "$atoll" plan --sites 2 --train.steps 10000 --plan.step_s 1 --plan.up_mbit 1000 --plan.down_mbit 1000 \
    --model.layers 12 --model.d_model 768 --model.heads 12 --model.vocab_size 50304 "$@" | sed -n 's/.*bf16), \([0-9.]*\) GiB for the outer.*/\1/p'; }
none=$(memory) reset=$(memory --outer.residual_reset 4)
[ -n "$none" ] && [ "$none" != "$reset" ] || fail "the plan's memory, $none GiB, leaves the residual reset out"
[ "$reset" = "$(memory --outer.error_feedback_decay 0.95)" ] || fail "the plan's memory with a residual reset is $reset GiB"

# Ctrl-C: what it has so far.
"$atoll" sim --config run.yaml --probe link.yaml --train.steps 1000000000 >stopped.out 2>&1 &
sim_pid=$!
processes="$processes $sim_pid"
await "atoll sim does not answer Ctrl-C" 'catches_int $sim_pid'
sleep 1 # it has simulated some steps
kill -INT $sim_pid
ends 75 $sim_pid "atoll sim"
grep -q "^Stopped: of 1000000000 steps" stopped.out && grep -q "^Simulated in" stopped.out || fail "a stopped simulation says nothing"

# The simulated run sends what the real one does; one site alone is a run too.
"$atoll" sim --config run.yaml --probe link.yaml >sim.out 2>&1 || fail "atoll sim"
grep -q "at 2 of 2 sites" sim.out || fail "the simulated bytes are not the schedule's"
"$atoll" sim --sites 1 --config run.yaml --probe link.yaml >one.out 2>&1 || fail "atoll sim with one site"

# The ranks of one site: measured, planned, and what is missing or impossible is said. One rank has no collectives.
data="--data.train data/train-0-*.bin"
set -f
"$atoll" probe --ranks --config run.yaml --site.aggregator "" $data --write ranks.yaml >ranks.out 2>&1 || fail "atoll probe --ranks"
grep -q "one rank: no collectives" ranks.out || fail "a rank alone is not told what it cannot measure"
grep -q "^ *rates: \[gap/" ranks.yaml || fail "atoll probe --ranks measured no classes"
inside="plan --inside --config run.yaml --probe ranks.yaml"
"$atoll" $inside --ranks 1 >inside.out 2>&1 || fail "atoll plan --inside"
"$atoll" plan inside --config run.yaml --probe ranks.yaml --ranks 1 | cmp -s - inside.out || fail "atoll plan inside is not plan --inside"
for other in "times 8:5,64:0.9" "accumulator 9" "private --sites 2 --privacy.unit sequence --privacy.epsilon 8 --records 100000 --site-level --force"; do
    "$atoll" plan $other >named.out 2>&1 || fail "atoll plan $other"
    "$atoll" plan --$other 2>&1 | cmp -s - named.out || fail "atoll plan --$other is another one"
done
refused plan accumulator
refused plan times
grep -q "^Knee: 1" inside.out || fail "atoll plan --inside names no knee"
"$atoll" $inside --ranks 1 --format json | grep -q '"ranks":1,.*"fits":true,' || fail "atoll plan --inside --format json"
refused $inside
grep -q "mpirun -n 2" bad.out || fail "what measures collectives is not said"
refused $inside --ranks 1 --search --plan.memory_gib 0.001
grep -q "no row fits" bad.out || fail "a memory that nothing fits is not named"
refused $inside --ranks 3
grep -q "not a multiple" bad.out || fail "an impossible number of ranks is not explained"
refused $inside --ranks 1 --plan.gpu h1000
grep -q "known are v100" bad.out || fail "an unknown GPU is not answered with those that are known"
refused plan --config run.yaml --ranks 2
refused probe --ranks --step --config run.yaml --force
"$atoll" plan --times 8:5.4688,64:0.8981,3472:0.1193 | grep -q "^Knee: 64" || fail "the knee of measured times"
refused plan --times 8:5,4:6
if has_mpi; then
    mpi_anywhere
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" mpirun -n 2 "$atoll" probe --ranks --config run.yaml \
        --site.aggregator "" $data --seconds 0 --widths 64 --write two.yaml >two.out 2>&1 || fail "atoll probe --ranks under mpirun"
    grep -q "^ *ranks: 2" two.yaml && grep -q "^ *all_reduce_s: \[" two.yaml || fail "two ranks measured no collectives"
    "$atoll" plan --inside --config run.yaml --probe two.yaml --ranks 1,2,4 --search >inside.out 2>&1 || fail "atoll plan --inside --search"
    [ "$(grep -c " yes$" inside.out)" -eq 3 ] || fail "a row for each number of ranks"
fi
set +f

# Training says what was predicted, and that a plan for another link no longer holds.
printf 'plan:\n  step_s: 5\n  up_mbit: 100\n  down_mbit: 100\n  rtt_ms: 10\n' >planned.yaml
settings="--site.probe planned.yaml --outer.sync_every 4"
serve
listening
train a
a_pid=$pid
train b
ends 0 $a_pid a
ends 0 $pid b
up=$(sed -n 's/.*predicts, \([0-9]*\) bytes up.*/\1/p' sim.out)
[ -n "$up" ] || fail "atoll sim names no bytes"
[ "$(lines ev=planned a/log.txt)" -ge 4 ] || fail "no prediction of the rounds"
[ "$(lines ev=plan_left a/log.txt)" -eq 1 ] || fail "a step 100 times as fast as planned goes unnoticed, or is told more than once"
grep -q "atoll probe, then atoll plan" a/log.txt || fail "what to do is not said"

# Days are the run's: a site that is twenty times slower sets the pace, and the run is not twenty times as long.
"$atoll" sim --outer.sites a,b --days 1 --plan.step_s 0.5 --plan.up_mbit 100 --plan.down_mbit 100 --plan.rtt_ms 50 \
    --outer.sync_every 500 b:step_s=10 >days.out 2>&1 || fail "atoll sim --days"
grep -q "^The first 1 days of the run" days.out || fail "atoll sim --days does not say how far it went"
seconds=$(sed -n 's/^time .*(\([0-9]*\)[.0-9]* s).*/\1/p' days.out)
[ "$seconds" -ge 86400 ] && [ "$seconds" -lt 100000 ] || fail "one day took $seconds s"

# A topology whose rates halve: outer.replan answers in the simulated run too.
printf 'wan:\n  sites: [a, b, aggregator]\nlink:\n  rate_mbit: 50\n  later_s: 175\n  later_rate_mbit: 25\n  delay_ms: 15\n' >halves.yaml
for replan in true false; do
    "$atoll" sim --outer.sites a,b --outer.sync_every 10 --train.steps 300 --plan.step_s 1 --plan.up_mbit 50 --plan.down_mbit 50 \
        --topology halves.yaml --outer.replan $replan >halves.$replan.out 2>&1 || fail "atoll sim over rates that halve"
done
grep -q "^amendment 1 of outer.replan: outer.sync_every=2[0-9] from round 19 on" halves.true.out || fail "outer.replan amends nothing in atoll sim"
grep -q "^amendment" halves.false.out && fail "an amendment without outer.replan"

echo "probe, plan, sim and train agree"
