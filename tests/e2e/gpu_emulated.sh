#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole program on a GPU that tests/cuda emulates (device.kind: cuda): an aggregator and two sites over TLS, int4, the outer
# arithmetic on the GPU during the training. kill -9 of a site and of the aggregator, and Ctrl-C: the same SHA-256 of parameters,
# momentum and residuals as without; the same with the arithmetic on the host's cores (outer.device: cpu). What crosses between
# host and GPU for the exchange is the budget of outer/diloco/staging.h. Then rounds during training, mixed, and eager starts.
# tests/gpu.sh runs two_sites, kill, stop_resume and overlap on a real one.
. "$(dirname "$0")/lib.sh"

module=$(dirname "$atoll")/../emulated/libatoll_cuda.so
[ -e "$module" ] || { echo "SKIPPED: no emulated GPU in this build"; exit 77; }
mkdir program
ln "$atoll" program/atoll 2>/dev/null || cp "$atoll" program/atoll
cp "$module" program/libatoll_cuda.so
atoll=$PWD/program/atoll
ATOLL_E2E_DEVICE=cuda
tiny="--model.layers 1 --model.heads 1 --model.d_model 16 --model.max_seq_len 16 --train.seq_len 16 --train.batch_tokens 32
      --train.eval_tokens 32"

again() { # again WHAT: the run that was started anew ends as the first
    [ "$(final a)" = "$wanted_a" ] || fail "$1: site a ended at $(final a), undisturbed $wanted_a"
    [ "$(final b)" = "$wanted_b" ] || fail "$1: site b ended at $(final b), undisturbed $wanted_b"
    starts=$(cat a/metrics.jsonl b/metrics.jsonl | grep -c '"kind":"start"')
    rm -rf a b aggregator ./*.out
}

first() { # an undisturbed run
    rm -rf a b aggregator data tls ./*.out
    configure a,b
    undisturbed
    wanted_a=$(final a) wanted_b=$(final b)
    [ "${wanted_a% *}" = "${wanted_b% *}" ] || fail "sites differ: $wanted_a / $wanted_b"
}

# bus FILE: what a process said at its end
bus() {
    sed -n 's/^emulated GPU: \([0-9]*\) bytes in, \([0-9]*\) bytes out$/\1 \2/p' "$1" | tail -n 1
}

steps=18 every=3 fragments=1 codec=int4 checkpoint_every=7 settings=$tiny
first
# Per parameter of the one fragment and round, less what a site alone moves: in 8 (residual, momentum), theta 4 in the first, and
# what is compressed; out 12, the gauge's samples 8 (all, of so small a fragment), and what is compressed. Whole rounds at both
# ends: 2 of 6 in bf16. Local parameters and theta on its way to them would be 4 each.
with=$(bus a.out)
"$atoll" train --config run.yaml --site.name a --run.dir alone --data.train "data/train-0-*.bin" --site.aggregator "" $settings \
    --log.progress none >alone.out 2>&1 || fail "a site alone"
state=$(ls a/frag/0/*/state | tail -n 1)
echo "$with $(bus alone.out) $(wc -c <"$state")" | awk '{
    n = ($5 - 160) / (12 + 1 / 256); rounds = 6
    into = ($1 - $3) / n / rounds; out = ($2 - $4) / n / rounds
    printf "%d values, bytes for each in a round: %.2f in, %.2f out\n", n, into, out
    exit into < 8.5 || into > 12 || out < 20 || out > 22.5 }' || fail "what crosses is not the budget"
# A GPU that leaves the bus: the site says so and what to look at, and continues where it was once the GPU is back.
code=0
FAKE_GPU_GONE=60 "$atoll" train --config run.yaml --site.name a --run.dir gone --data.train "data/train-0-*.bin" --site.aggregator "" \
    $settings --train.checkpoint_every 4 --log.progress none >gone.out 2>&1 || code=$?
[ $code -eq 1 ] && grep -q "CUDA: .*unknown error (999)" gone.out && grep -q "what to do: look at nvidia-smi" gone.out ||
    fail "a GPU that is gone ended with $code"
! grep -q '"kind":"final"' gone/metrics.jsonl && grep -q '"kind":"step"' gone/metrics.jsonl || fail "the GPU was not gone in the middle"
"$atoll" train --config run.yaml --site.name a --run.dir gone --data.train "data/train-0-*.bin" --site.aggregator "" $settings \
    --log.progress none >gone.out 2>&1 || fail "the GPU is back"
[ "$(final gone)" = "$(final alone)" ] || fail "a run whose GPU was gone for a while ends elsewhere"
rm -rf a b aggregator alone gone ./*.out
disturbed 2 a serve b
again "killed"
[ "$starts" -ge 4 ] || fail "only $starts starts are on record: nothing was killed on the way"
settings="$tiny --outer.device cpu"
undisturbed
again "outer.device: cpu"

tiny="$tiny --model.layers 2" steps=16 every=4 fragments=2 codec=int8
for how in "--outer.overlap_steps 2" "--outer.overlap_steps 4 --outer.eager true"; do
    settings="$tiny $how"
    first
    rm -rf a b aggregator ./*.out
    printf '{"query":"a","choices":["b","c d"],"gold":0}\n{"query":"of th","choices":["e","x","y"],"gold":0}\n' >task.jsonl
    settings="$settings --eval.every_rounds 2 --eval.tasks x=task.jsonl" # as it trains without
    disturbed 3 a int serve
    [ "$(lines '"kind":"task"' a/metrics.jsonl)" -eq 2 ] || fail "site a did not evaluate rounds 1 and 3"
    again "$how, $killed interruptions"
done

# Three sites with masks, compared with the same run without.
tiny="${tiny% --model.layers 2} --outer.weights equal --outer.full_precision fixed"
steps=16 every=4 fragments=1 codec=int4
rm -rf a b aggregator ./*.out
configure a,b,c
for secure in off sum; do
    settings="$tiny --privacy.secure $secure"
    serve
    sites_start a b c
    sites_end 0 a b c
    serve_ends
    same_state a b c
    [ $secure = sum ] || wanted_a=$(final a)
    [ "$(final a)" = "$wanted_a" ] || fail "masked on a GPU: site a ended at $(final a), without masks $wanted_a"
    [ $secure = off ] || [ -e a/seals/0/3 ] || fail "no round was sealed"
    rm -rf a b c aggregator ./*.out
done
echo "on an emulated GPU: same digests killed, stopped, with the arithmetic on the host, and during training"
