# Sites of several GPUs over NCCL; read by gpu.sh, whose $build, $gpu, $net, $bench, $gpus, verdict() it uses. Needs no launcher.
calls=$build/tests/nccl_calls # of tests/nccl, away from the stand-ins that lie beside it there
cp "$build/tests/nccl/calls" "$calls" 2>/dev/null
port=$((12000 + $$ % 15000))

# on_ranks CASE N: `nccl_calls CASE` in N processes, rank R on GPU R, or all on the only one; what they say is in $ranks_said
on_ranks() {
    port=$((port + 1)) processes="" status=0
    ranks_said=$build/ranks.txt
    : >"$ranks_said"
    for r in $(seq 0 $(($2 - 1))); do
        timeout 150 "$calls" "$1" "$r" "$2" $port 60 >>"$ranks_said" 2>&1 &
        processes="$processes $!"
    done
    for p in $processes; do wait "$p" || status=$?; done
    cat "$ranks_said"
    return $status
}

# Each step's share of the sums of gradients that the backward hides: what is waited for with buckets, beside without.
overlap() {
    for mb in 0 25; do
        rm -rf "$build/overlap"
        deploy/ranks.sh "$gpus" "$build/bin/atoll" train --device.kind cuda --data.train "$1" --run.dir "$build/overlap" \
            --train.steps 30 --train.warmup 0 --model.layers 12 --model.heads 12 --model.width 768 --model.context 1024 \
            --train.sequence 1024 --train.batch_tokens $((32768 * gpus)) --train.bucket_mb $mb --log.progress none >"$build/overlap.txt" 2>&1 ||
            { tail -n 5 "$build/overlap.txt"; return 1; }
        sed -n 's/.*"step_ms":\([0-9.]*\).*"exposed_ms":\([0-9.]*\).*/\2 \1/p' "$build/overlap/metrics.jsonl" | tail -n 20 | sort -n |
            awk -v mb=$mb '{e[NR] = $1; s += $2} END {printf "bucket_mb=%s exposed_ms=%.2f step_ms=%.2f\n", mb, e[int((NR + 1) / 2)], s / NR}'
    done | tee "$build/overlap.csv"
    awk -F'[= ]' '{e[NR] = $4} END {printf "hidden behind the backward: %.0f %%\n", 100 * (1 - e[2] / e[1])}' "$build/overlap.csv"
}

if [ "$gpu" != yes ] || [ ! -e "$build/bin/libatoll_nccl.so" ]; then
    verdict "ranks over NCCL" 77 "no GPU, or no NCCL"
else
    on_ranks sums 1
    verdict "NCCL, one rank" $?
    if [ "$gpus" -ge 2 ]; then
        on_ranks sums "$gpus"
        verdict "NCCL, $gpus ranks" $?
        ATOLL_TEST_DEVICE=cuda ATOLL_TEST_GPUS=$gpus tests/inner/coll/test_ranks.sh "$build/tests/ranks" "$build/tests/ranks.dir" 0 torchrun
        verdict "ranks train as one" $?
        ATOLL_E2E_GPUS=$gpus tests/e2e/gpu_ranks.sh "$build/bin/atoll" "$build/tests/gpu_ranks.dir"
        verdict "$gpus GPUs in one site: losses, a killed rank, rejoining" $?
    else
        # NCCL takes two ranks on one GPU from 2.30.3 on, as an experiment.
        export NCCL_MULTI_RANK_GPU_ENABLE=1
        on_ranks sums 2
        status=$?
        grep -q "Duplicate GPU\|invalid usage" "$ranks_said" && status=77
        verdict "NCCL, two ranks on one GPU" $status "this NCCL takes one rank for each GPU"
        unset NCCL_MULTI_RANK_GPU_ENABLE
        verdict "several GPUs in one site: losses, a killed rank, rejoining, bandwidth, overlap" 77 "ONE GPU HERE: run this on a machine with two or more"
    fi
    if [ "$bench" = yes ] && [ "$gpus" -ge 2 ]; then
        deploy/ranks.sh "$gpus" "$build/tests/bench_ranks"
        verdict bench_ranks $?
        for i in $(seq 40); do cat LICENSE docs/*.md; done >"$build/text.txt"
        "$build/bin/atoll" data --out "$build/text" --sequence 1024 --force "$build/text.txt" >"$build/text.log" 2>&1
        overlap "$build/text/train-0-*.bin"
        verdict "overlap of sums and backward" $?
    fi
fi
