#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: GPU ranks that hold shards of the parameters or of the outer state train another model than ranks that
# hold all of it; or what the GPU encodes is not what the host's cores encode. Ranks as in gpu_ranks.sh. Without GPUs the modules
# next to the program are stand-ins (tests/nccl); on a machine with GPUs:
#   ATOLL_E2E_GPUS=N tests/e2e/gpu_shards.sh build/bin/atoll scratch      N ranks, on as many GPUs, or all on the only one
# Exit code 77: NCCL refuses ranks that share a GPU.
ATOLL_E2E_DEVICE=cuda
. "$(dirname "$0")/lib.sh"
ranks=${ATOLL_E2E_GPUS:-2}
steps=24 every=8 fragments=4
configure a,b
sed -i "s/batch_tokens: 128/batch_tokens: $((64 * ranks))/" run.yaml

# site NAME ARGUMENTS...: `ranks` ranks in the background; their processes in $site, rank R's output in NAME.R.out
site() {
    name=$1 site="" gate=$((gate + 1)) # at another port than the site before
    shift
    for r in $(seq 0 $((ranks - 1))); do
        WORLD_SIZE=$ranks RANK=$r LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$gate "$atoll" train --config run.yaml --log.progress none \
            --site.name a --data.train 'data/train-0-*.bin' "$@" >>"$name.$r.out" 2>&1 &
        site="$site $!"
    done
    processes="$processes $site"
}
gate=$((port + 300))
all_end() { # all_end WHO
    for p in $site; do
        code=0
        wait "$p" || code=$?
        [ $code -eq 0 ] && continue
        if [ "$ranks" -gt 1 ] && grep -q "Duplicate GPU\|invalid usage" ./*.out; then
            echo "SKIPPED: this NCCL takes one rank for each GPU"
            exit 77
        fi
        fail "$1 ended with exit code $code"
    done
}
# ended_at RUN: digests of its end, as many as it has
ended_at() { sed -n 's/.*"kind":"final",[^,]*,[^,]*,\(.*\)}$/\1/p' "$1/metrics.jsonl" | tail -n 1; }
losses() { sed -n 's/.*"kind":"step".*"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
# alike RUN REFERENCE WHAT: the same digests. Real GPUs promise no bits of the training itself: else the same losses, within 0.5 %.
alike() {
    [ -n "$(ended_at "$2")" ] || fail "$2 has no digests"
    if [ "$(ended_at "$1")" = "$(ended_at "$2")" ]; then
        echo "$3: the same SHA-256"
        return
    fi
    [ -n "${ATOLL_E2E_GPUS:-}" ] || fail "$3: ended at $(ended_at "$1"), wanted $(ended_at "$2")"
    losses "$1" >got
    losses "$2" >wanted
    awk 'NR == FNR {a[$1] = $2; next} {n += $1 in a; d = a[$1] / $2 - 1; if (d < 0) d = -d; if (d > most) most = d}
        END {printf "losses of %d steps differ by %.2g at most: ", n, most; exit !(n > 0 && most <= 5e-3)}' got wanted || fail "$3: other losses"
    echo "$3: other bits"
}

# Parameters in shards, one site alone.
for stage in 0 1 2 3; do
    site stage$stage --site.aggregator= --run.dir stage$stage --train.zero_stage $stage
    all_end "stage $stage"
    # The order in which more than two values are added is the algorithm's.
    first=stage$([ "$ranks" -gt 2 ] && [ $stage -gt 0 ] && echo 1 || echo 0)
    alike stage$stage "$first" "train.zero_stage $stage, $ranks ranks"
done

if "$atoll" --version | grep -q "no network"; then
    echo "NOT TESTED: this build has no network, so no outer state"
    exit 0
fi
# The outer state in shards, next to a site of one rank whose outer steps are on the host's cores: they end at the same state, bit for
# bit, at any bits of the training. Encoded on the GPU, and on the cores; hashed as one, and in leaves.
sites() { # sites RUN ARGUMENTS OF SITE A...
    run=$1
    shift
    rm -rf a b aggregator "$run"
    serve
    train b --train.batch_tokens $((64 * ranks)) --outer.device cpu
    b=$pid
    # shellcheck disable=SC2086
    site a --run.dir a $settings "$@"
    all_end "$run"
    ends 0 "$b" "site b"
    serve_ends
    same_state a b
    mv a "$run"
}
for settings in "--outer.codec int4" "--outer.codec int4 --outer.overlap_steps 2 --outer.state_digest leaves"; do
    sites lead --site.outer_state lead
    sites sharded --site.outer_state sharded --train.zero_stage 3
    alike sharded lead "site.outer_state sharded, stage 3, $settings"
    sites cores --site.outer_state sharded --outer.device cpu
    alike cores lead "site.outer_state sharded, outer.device cpu"
done
