#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this is wrong: modules on several ranks train another model than one rank does, delayed gradients depend on the number
# of ranks, a resumed run loses the gradients that were under way, a rank waits for ever for another one.
# Arguments: the program `ranks`, a scratch directory, whether this build has MPI (1 or 0).
set -eu
ranks=$1 dir=$2 mpi=$3
rm -rf "$dir"
mkdir -p "$dir"
fail() { echo "FAILED: $*"; exit 1; }
if [ "$mpi" = 0 ] || ! command -v mpirun >/dev/null; then
    echo "SKIPPED: no MPI in this build or no mpirun"
    exit 77
fi
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5; below: Open MPI 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # Open MPI's own

# run RANKS DIR HOW [--KEY VALUE..]; in $shape what is trained
shape="--model.layers 5 --model.d_ff 128"
run() {
    n=$1 to=$2 how=$3
    shift 3
    start="mpirun -n $n --bind-to none"
    [ "$n" != 1 ] || start="" # as MPI's only rank it was started in a third of a second and did the same
    $start "$ranks" train "$dir/$to" "$how" --train.micro_batch_tokens 0 --train.steps 8 --train.eval_every 3 $shape "$@" \
        >"$dir/$to.$n.txt" 2>"$dir/$to.$n.err" || { cat "$dir/$to.$n.err"; fail "$n ranks, $to"; }
    [ "$how" = nan ] || [ "$(grep -o '[0-9a-f]\{64\}' "$dir/$to.$n.txt" | sort -u | wc -l)" = 1 ] || fail "$to: the ranks' parameters differ"
}
same() { "$ranks" same "$dir/$1" "$dir/$2" || fail "$1 and $2 differ"; }

# Parts of a pass compute what the whole pass does, with the same bits; so do modules on several ranks.
i=0
while read -r words; do
    i=$((i + 1))
    run 1 "plain$i" whole $words
    run 1 "parts$i" whole --train.modules 3 $words
    run 2 "modules$i" whole --train.modules 3 $words
    same "parts$i" "plain$i"
    same "modules$i" "plain$i"
    run 1 "stale_one$i" whole --train.modules 5 --train.pipeline stale $words
    run 2 "stale$i" whole --train.modules 5 --train.pipeline stale $words
    same "stale$i" "stale_one$i"
    if "$ranks" same "$dir/stale$i" "$dir/plain$i" 2>/dev/null; then fail "$words: nothing was delayed"; fi
done <<'END'
--train.optimizer adamw --train.dropout 0.1 --train.max_grad_norm 0
--train.optimizer lamb --device.dtype bf16 --train.warmup_steps 2
--train.optimizer qhadam --model.norm_place post --model.embed_norm true --train.dropout 0.1 --train.max_grad_norm 0
--train.optimizer lans --train.max_grad_norm 0 --model.positions rope --model.norm rms --model.activation swiglu --model.bias false --model.tie_embeddings false
END
# With one module there is nothing to delay.
run 1 one whole --train.optimizer adamw --train.dropout 0.1 --train.max_grad_norm 0 --train.modules 1 --train.pipeline stale
same one plain1
# Four ranks; a stop while gradients are under way, and in the warm-up; another number of ranks continues.
stale="--train.modules 5 --train.pipeline stale --train.optimizer adamw"
for warmup in 0 3; do
    to=whole$warmup
    run 2 $to whole $stale --train.warmup_steps $warmup
    run 4 four$warmup whole $stale --train.warmup_steps $warmup
    same four$warmup $to
    run 2 stop$warmup stop $stale --train.warmup_steps $warmup
    cp -r "$dir/stop$warmup" "$dir/moved$warmup"
    run 2 stop$warmup whole $stale --train.warmup_steps $warmup
    same stop$warmup $to
    run 1 moved$warmup whole $stale --train.warmup_steps $warmup
    same moved$warmup $to
done
# A rank that finds a loss that is not finite stops the others at the same step.
run 2 nan nan $stale
[ "$(grep -c 'DIVERGED after step 3' "$dir/nan.2.txt")" = 2 ] || fail "one rank's divergence is not every rank's"
if mpirun -n 2 --bind-to none "$ranks" train "$dir/x" whole $shape --train.micro_batch_tokens 0 --train.modules 4 2>"$dir/x.err" >&2; then
    fail "four modules on two ranks"
fi
grep -q "use train.modules = 3, or 3 ranks" "$dir/x.err" || fail "no sentence about the number of ranks"
