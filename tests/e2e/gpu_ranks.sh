#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a site of several GPUs trains another model than one of one GPU, hangs when a rank is killed, says
# nothing of it, or does not continue where it was. Each rank is a process that this script starts, with torchrun's variables, as
# torchrun and srun do. Without GPUs the modules next to the program are stand-ins (tests/nccl); on a machine with several:
#   ATOLL_E2E_GPUS=4 tests/e2e/gpu_ranks.sh build/bin/atoll scratch
ATOLL_E2E_DEVICE=cuda
. "$(dirname "$0")/lib.sh"
ranks=${ATOLL_E2E_GPUS:-3}
bound=${ATOLL_E2E_GPUS:+5e-3} # relative, of losses: products on tensor cores, attention's atomic sums
bound=${bound:-1e-3}
steps=240 every=8
common="--device.kind cuda --device.dtype f32 --device.threads 1 --model.layers 4 --model.heads 2 --model.d_model 32
    --model.max_seq_len 32 --train.seq_len 32 --train.batch_tokens $((64 * ranks)) --train.steps $steps --train.warmup_steps 5
    --train.lr 0.01 --train.eval_tokens 2048 --train.checkpoint_every 25 --log.progress none"
"$atoll" data --out data --sites 2 --seq-len 32 --force text.txt >data.out 2>&1 || fail "atoll data"

# site N NAME ARGUMENTS...: N ranks in the background; their processes in $site, rank R's output in NAME.R.out
site() {
    n=$1 name=$2
    shift 2
    free_port # 300 above it: the aggregator does not listen at its own yet
    site=""
    for r in $(seq 0 $((n - 1))); do
        WORLD_SIZE=$n RANK=$r LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 300)) "$atoll" train "$@" >>"$name.$r.out" 2>&1 &
        site="$site $!"
    done
    processes="$processes $site"
}
alone() { # alone N NAME ARGUMENTS...: a site without others
    n_alone=$1 name_alone=$2
    shift 2
    # shellcheck disable=SC2086
    site "$n_alone" "$name_alone" $common --run.dir "$name_alone" --data.train 'data/train-0-*.bin' --data.eval 'data/eval-*.bin' "$@"
}
all_end() { # all_end CODE WHO [PROCESS]: all of $site but this one
    for p in $site; do
        [ "$p" = "${3:-}" ] || ends "$1" "$p" "$2"
    done
}
member() { echo "$site" | awk -v r="$1" '{print $(r + 1)}'; } # member R: the process of rank R
# near A B BOUND: losses of the same steps, each step's last
near() {
    for f in "$1" "$2"; do
        sed -n 's/.*"kind":"step".*"step":\([0-9]*\),"loss":\([0-9.]*\),.*/\1 \2/p' "$f/metrics.jsonl" >"$f.losses"
    done
    awk -v bound="$3" 'NR == FNR {a[$1] = $2; next} {b[$1] = $2}
        END {for (s in a) {n++; if (!(s in b)) exit 1; d = a[s] / b[s] - 1; if (d < 0) d = -d; if (d > most) most = d}
             printf "%d steps, losses differ by %.2g at most\n", n, most; exit !(n > 0 && most <= bound)}' "$1.losses" "$2.losses" ||
        fail "the losses of $1 and $2 differ"
}
digest() { sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

alone 1 one
all_end 0 "one rank"
alone "$ranks" many
all_end 0 "$ranks ranks"
grep -q "\"ranks\":$ranks" many/metrics.jsonl || fail "there were not $ranks ranks"
near one many $bound
alone "$ranks" buckets --train.bucket_mb 0.02 --train.zero_stage 1
all_end 0 "$ranks ranks with shared-out moments"
near one buckets $bound
alone "$ranks" half --train.grad_reduce_dtype bf16
all_end 0 "$ranks ranks with sums in bf16"
near one half 0.05

# The last rank is killed, then the lead; the site that is started again ends as if nothing had been.
for victim in $((ranks - 1)) 0; do
    alone "$ranks" killed
    until_lines $((60 + $(lines '"kind":"step"' killed/metrics.jsonl))) '"kind":"step"' killed/metrics.jsonl
    killed=$(member "$victim")
    kill -9 "$killed"
    all_end 2 "the site that lost rank $victim" "$killed"
    for r in $(seq 0 $((ranks - 1))); do
        [ "$r" = "$victim" ] || grep -q "rank $victim of $ranks ended without a word.*continues from its last checkpoint" "killed.$r.out" ||
            fail "rank $r does not say that rank $victim is gone"
    done
done
alone "$ranks" killed
all_end 0 "the site that was killed twice"
near many killed $bound
# Real GPUs promise no bits.
if [ -z "${ATOLL_E2E_GPUS:-}" ] && [ "$(digest many)" != "$(digest killed)" ]; then fail "killed and whole run differ"; fi

# A rank that cannot continue ends the others with its own exit code and sentence.
alone "$ranks" full --data.train nowhere/*.bin
all_end 4 "a site without data"

if "$atoll" --version | grep -q "no network"; then
    echo "NOT TESTED: this build has no network, so no rejoining"
    exit 0
fi
# As a site of a run: the others wait for it, it rejoins.
steps=200
configure a,b
settings="--train.batch_tokens $((32 * ranks))"
serve
train b
b=$pid
site_a() {
    # shellcheck disable=SC2086
    site "$ranks" a --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' --log.progress none $settings "$@"
}
for victim in 0 $((ranks - 1)); do
    site_a --train.zero_stage $((victim > 0))
    until_rounds a $(($(rounds a) + 3))
    killed=$(member "$victim")
    kill -9 "$killed"
    all_end 2 "site a without rank $victim" "$killed"
done
site_a
all_end 0 "site a"
ends 0 "$b" "site b"
serve_ends
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
