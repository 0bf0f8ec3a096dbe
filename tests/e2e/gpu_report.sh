#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/gpu.sh on a machine without a GPU, and with a pretended one whose programs pass, fail, skip and hang. If this fails, the
# ten minutes on a lent GPU are lost: a stage hangs or is missing in the report, or a killed run leaves programs on the GPU.
. "$(dirname "$0")/lib.sh"
root=$repository

# Without a GPU every stage is skipped by name, and the folder is complete.
mkdir -p none/bin
ln -s "$atoll" none/bin/atoll
ATOLL_BUILD=$PWD/none "$root/tests/gpu.sh" --built --out report >none.out 2>&1 || fail "without a GPU: exit code $?"
tail -n 1 none.out | grep -qE '^0 passed, 0 failed, [0-9]+ skipped$' || fail "without a GPU the last line is $(tail -n 1 none.out)"
for name in device test_cuda_fp8 "train 124m x 64 adamw" "PyTorch 124m x 64 cudnn" ops counters "memcheck ops" "racecheck outer" \
    "two_sites on the GPU" "shards on two ranks" "shards on one rank" "ranks over NCCL" "train 1b x 16 adamw" "60 steps against PyTorch"; do
    grep -q "^SKIPPED  $name: no GPU" none.out || fail "without a GPU, $name: $(grep -F "$name" none.out)"
done
cmp -s report/summary.txt none.out || grep -q '^SKIPPED' report/summary.txt || fail "no summary"
tar tzf report/report.tar.gz | grep -qx said/doctor.txt || fail "the archive is without what doctor printed"
[ ! -e report/said ] || fail "the loose files stay next to the archive"

# A pretended GPU: programs of each kind.
mkdir -p card/bin card/tests path
program() { # FILE: a script from standard input
    { echo '#!/bin/bash'; cat; } >"$1"
    chmod +x "$1"
}
echo 'echo "GPU 0: pretended"' | program path/nvidia-smi
echo 'echo "network no"' | program card/bin/atoll
echo 'echo fine' | program card/tests/test_cuda_fp8
echo 'echo "the third value differs"; exit 1' | program card/tests/test_cuda_golden
echo 'echo "SKIPPED: this GPU has no such unit"; exit 77' | program card/tests/test_cuda_ops
echo 'sleep 1000 & echo $! >"$CHILD"; wait' | program card/tests/test_cuda_model
for t in exact step outer optim muon encoder; do echo 'echo fine' | program card/tests/test_cuda_$t; done
for t in test_ops test_linear test_attention; do echo 'echo fine' | program card/tests/$t; done
echo 'shift 4; echo row >>"$2"' | program card/tests/bench_cuda_train
export CHILD="$PWD/child"
gone() { # waits until the child of the hanging test has ended
    tries=0
    while kill -0 "$(cat child)" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "$1: a program of the test still runs"
        sleep 0.1
    done
}
on_card() { PATH=$PWD/path:$PATH ATOLL_BUILD=$PWD/card ATOLL_GPU_AT_ONCE=1 "$root/tests/gpu.sh" --built --out report "$@"; }

# Verdicts, with a model test that ends.
mv card/tests/test_cuda_model hangs
echo 'echo fine' | program card/tests/test_cuda_model
code=0
on_card --stages speed,tests >card.out 2>&1 || code=$?
[ $code = 1 ] || fail "a failed test ends with exit code $code"
for line in "PASSED   test_cuda_fp8" "FAILED   test_cuda_golden (exit 1)" "SKIPPED  test_cuda_ops: no GPU" "PASSED   test_cuda_model" \
    "PASSED   train 124m x 64 adamw" "NOT RUN  device (--stages speed,tests)"; do
    grep -qF "$line" card.out || fail "\"$line\" is missing: $(cat card.out)"
done
grep -q 'the third value differs' card.out || fail "the failed test's words are missing"
tail -n 1 card.out | grep -qE '^12 passed, 1 failed, 1 skipped$' || fail "last line: $(tail -n 1 card.out)"
grep -qx row report/results.csv || fail "no row of the bench in report/results.csv"

# Shards: NCCL refuses two ranks on the only GPU, which is a skip; what one rank says is a failure.
echo 'case $1 in doctor) echo "network yes" ;; train) echo "ncclInvalidUsage: Duplicate GPU" >&2; exit 1 ;; esac' | program card/bin/atoll
: >card/bin/libatoll_nccl.so
code=0
on_card --stages shards >shards.out 2>&1 || code=$?
[ $code = 1 ] || fail "a rank that fails ends with exit code $code"
for line in "SKIPPED  shards on two ranks: this NCCL takes one rank for each GPU" "FAILED   shards on one rank (exit 1)"; do
    grep -qF "$line" shards.out || fail "\"$line\" is missing: $(cat shards.out)"
done
echo 'echo "network no"' | program card/bin/atoll

# The budget ends a program that hangs, which is no failure, and nothing starts after it.
mv hangs card/tests/test_cuda_model
echo 'echo fine' | program card/tests/test_cuda_golden
on_card --stages tests,models --budget 8 >budget.out 2>&1 || fail "the budget's end is a failure"
for line in "NOT RUN  test_cuda_model" "NOT RUN  train 124m x 64 lamb"; do
    grep -qF "$line" budget.out || fail "\"$line\" is missing: $(cat budget.out)"
done
[ ! -e child ] || gone "the budget"

# Killed: no process is left, and the report is there.
rm -f child report/report.tar.gz
on_card --stages tests >killed.out 2>&1 &
pid=$!
tries=0
until [ -s child ]; do
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || fail "the hanging test did not start"
    sleep 0.1
done
pkill -TERM -P $pid 2>/dev/null || kill -TERM $pid
wait $pid 2>/dev/null || :
gone "killed"
[ -s report/report.tar.gz ] || fail "killed: no report"

refused() { # refused WORDS ARGUMENT...
    words=$1 code=0
    shift
    "$root/tests/gpu.sh" "$@" >refused.out 2>&1 || code=$?
    [ $code = 4 ] && grep -qF -- "$words" refused.out || fail "$*: exit code $code, $(cat refused.out)"
}
refused "none of device" --stages test
refused "whole seconds" --budget ten
refused "no such file" --pack nothing.tar.gz
refused "needs a value" --out
ATOLL_BUILD=$PWD/path refused "bin/atoll is not there" --built
ATOLL_BUILD=$PWD/card refused "not an archive of deploy/pack-gpu.sh" --pack card.out
echo "stages, verdicts, budget and ends of tests/gpu.sh"
