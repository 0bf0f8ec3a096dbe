#!/bin/sh
# N ranks of a command on this machine, one for each GPU, by torchrun's variables, where there is no torchrun, srun or mpirun:
#   tests/launch.sh N COMMAND ...
# Exit code: of the first rank, in their order, that did not end with 0.
n=$1 code=0 ranks=""
shift
port=${MASTER_PORT:-$((10000 + $$ % 20000))}
for r in $(seq 0 $((n - 1))); do
    WORLD_SIZE=$n RANK=$r LOCAL_RANK=$r MASTER_ADDR=${MASTER_ADDR:-localhost} MASTER_PORT=$port "$@" &
    ranks="$ranks $!"
done
for p in $ranks; do
    wait "$p" || { c=$?; [ $code != 0 ] || code=$c; }
done
exit $code
