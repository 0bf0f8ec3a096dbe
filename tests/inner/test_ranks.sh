#!/bin/sh
# What breaks if this is wrong: two ranks train another model than one, a rank waits for ever for one that stopped or diverged.
# Arguments: the program `ranks`, a scratch directory, whether this build has MPI (1 or 0).
set -eu
ranks=$1 dir=$2 mpi=$3
rm -rf "$dir"
mkdir -p "$dir"
fail() { echo "FAILED: $*"; exit 1; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

"$ranks" train "$dir/one" > "$dir/one.txt"
grep -q "rank 0 of 1: OK after step 6" "$dir/one.txt" || fail "one rank"
# Launched by something that says two ranks but gives no MPI: refused with a sentence, not trained twice.
if WORLD_SIZE=2 RANK=0 "$ranks" train "$dir/refused" 2> "$dir/refused.txt"; then fail "torchrun was accepted"; fi
grep -q "CPU ranks need MPI" "$dir/refused.txt" || fail "no sentence about MPI"
if [ "$mpi" = 0 ]; then
    if OMPI_COMM_WORLD_SIZE=2 "$ranks" train "$dir/refused" 2> "$dir/refused.txt"; then fail "two ranks without MPI"; fi
    grep -q "has no MPI" "$dir/refused.txt" || fail "no sentence about this build"
fi
if [ "$mpi" = 0 ] || ! command -v mpirun > /dev/null; then
    echo "SKIPPED: no MPI in this build or no mpirun; several ranks were not tested"
    exit 77
fi

# Open MPI drops memory of its own at MPI_Finalize, out of modules that are unloaded by then, so no suppression can name
# them; our own leaks show in the runs of one rank.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
for how in whole stop nan; do
    mpirun -n 2 --bind-to none "$ranks" train "$dir/$how" "$how" > "$dir/$how.txt" || fail "mpirun, $how"
done
[ "$(grep -c 'OK after step 6' "$dir/whole.txt")" = 2 ] || fail "two ranks"
[ "$(grep -o '[0-9a-f]\{64\}' "$dir/whole.txt" | sort -u | wc -l)" = 1 ] || fail "the ranks' parameters differ"
[ "$(grep eval "$dir/one.txt")" = "$(grep eval "$dir/whole.txt")" ] || fail "held-out losses differ"
"$ranks" compare "$dir/one" "$dir/whole" || fail "one rank and two ranks differ"
[ "$(grep -c 'STOPPED after step 3' "$dir/stop.txt")" = 2 ] || fail "one rank's stop is not everybody's"
[ "$(grep -c 'DIVERGED after step 3' "$dir/nan.txt")" = 2 ] || fail "one rank's divergence is not everybody's"
# And goes on where it stopped, to the same bits.
mpirun -n 2 --bind-to none "$ranks" train "$dir/stop" > "$dir/again.txt"
[ "$(grep -o '[0-9a-f]\{64\}' "$dir/again.txt" | sort -u)" = "$(grep -o '[0-9a-f]\{64\}' "$dir/whole.txt" | sort -u)" ] ||
    fail "the resumed run is another run"
