# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # read by gpu.sh, whose $build, $gpu, $gpus, $said and functions it uses
# Sites of several GPUs over NCCL. Needs no launcher.
calls=$build/tests/nccl_calls # of tests/nccl, away from the stand-ins that lie next to it there
cp "$build/tests/nccl/calls" "$calls" 2>/dev/null
port=$((12000 + $$ % 15000))

# on_ranks NAME CASE N: `nccl_calls CASE` in N processes, rank R on GPU R, or all on the only one. They are one command for
# `run`, so that all of them end with it. NCCL's refusal of a GPU that two ranks share is a skip.
on_ranks() {
    port=$((port + 1))
    # shellcheck disable=SC2016 # expanded by the shell that runs it
    run "$1" 150 3 "this NCCL takes one rank for each GPU" bash -c '
        pids="" status=0
        for r in $(seq 0 $(($3 - 1))); do "$1" "$2" "$r" "$3" "$4" 60 >"$5.$r" 2>&1 & pids="$pids $!"; done
        for p in $pids; do wait "$p" || status=$?; done
        cat "$5".*
        [ $status = 0 ] || ! grep -q "Duplicate GPU\|invalid usage" "$5".* || status=77
        rm -f "$5".*
        exit $status' on_ranks "$calls" "$2" "$3" $port "$said/rank"
}

# Each step's share of the sums of gradients that the backward pass hides: the wait with buckets, compared with the wait without.
overlap() {
    for mb in 0 25; do
        rm -rf "$build/overlap"
        deploy/ranks.sh "$gpus" "$build/bin/atoll" train --device.kind cuda --data.train "$1" --run.dir "$build/overlap" \
            --train.steps 30 --train.warmup_steps 0 --model.layers 12 --model.heads 12 --model.d_model 768 --model.max_seq_len 1024 \
            --train.seq_len 1024 --train.batch_tokens $((32768 * gpus)) --train.bucket_mb $mb --log.progress none >"$build/overlap.txt" 2>&1 ||
            { tail -n 5 "$build/overlap.txt"; return 1; }
        sed -n 's/.*"step_ms":\([0-9.]*\).*"exposed_ms":\([0-9.]*\).*/\2 \1/p' "$build/overlap/metrics.jsonl" | tail -n 20 | sort -n |
            awk -v mb=$mb '{e[NR] = $1; s += $2} END {printf "bucket_mb=%s exposed_ms=%.2f step_ms=%.2f\n", mb, e[int((NR + 1) / 2)], s / NR}'
    done | tee "$build/overlap.csv"
    awk -F'[= ]' '{e[NR] = $4} END {printf "hidden by the backward pass: %.0f %%\n", 100 * (1 - e[2] / e[1])}' "$build/overlap.csv"
}

if [ "$gpu" != yes ] || [ ! -e "$build/bin/libatoll_nccl.so" ]; then
    skip "no GPU, or no NCCL" "ranks over NCCL"
else
    on_ranks "NCCL, one rank" sums 1
    if [ "$gpus" -ge 2 ]; then
        on_ranks "NCCL, $gpus ranks" sums "$gpus"
        run "ranks train as one" 240 3 '' env ATOLL_TEST_DEVICE=cuda ATOLL_TEST_GPUS="$gpus" tests/inner/coll/test_ranks.sh \
            "$build/tests/ranks" "$build/tests/ranks.dir" 0 torchrun
        run "$gpus GPUs in one site: losses, a killed rank, rejoining" 300 3 '' env ATOLL_E2E_GPUS="$gpus" tests/e2e/gpu_ranks.sh \
            "$build/bin/atoll" "$build/tests/gpu_ranks.dir"
        run bench_ranks 120 10 '' deploy/ranks.sh "$gpus" "$build/tests/bench_ranks"
        for _ in $(seq 120); do cat tests/golden/text/*.txt; done >"$build/text.txt"
        "$build/bin/atoll" data --out "$build/text" --seq-len 1024 --force "$build/text.txt" >"$said/text.txt" 2>&1
        if [ "$(left)" -gt 5 ]; then
            overlap "$build/text/train-0-*.bin" >"$said/overlap.txt" 2>&1
            ended "overlap of sums and backward" $? 3 ''
        else
            verdict "overlap of sums and backward" 78
        fi
    else
        # NCCL takes two ranks on one GPU from 2.30.3 on, as an experiment.
        export NCCL_MULTI_RANK_GPU_ENABLE=1
        on_ranks "NCCL, two ranks on one GPU" sums 2
        unset NCCL_MULTI_RANK_GPU_ENABLE
        skip "one GPU here: run this on a machine with two or more" "several GPUs in one site: losses, a killed rank, rejoining, overlap"
    fi
fi
