#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The ranks of one machine, one for each GPU, where there is neither mpirun nor Slurm nor torchrun:
#   deploy/ranks.sh 8 atoll train --config run.yaml --site.name a
# On several machines the same on each, with NODES, NODE (0, 1, ..) and, machine 0's, MASTER_ADDR and MASTER_PORT.
# Ctrl-C, SIGTERM and SIGUSR1 make all ranks finish their step, store and leave with 75. When a rank is lost the others follow.
set -u
case ${1:-} in
"" | *[!0-9]*) sed -n '3,6s/^# *//p' "$0" >&2; exit 4 ;;
esac
count=$1
shift
node=${NODE:-0}
export WORLD_SIZE=$((count * ${NODES:-1})) MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-$((10000 + $$ % 20000))}
ranks=() killer=""
set -m # each rank a process group: a terminal's Ctrl-C reaches them once, by the trap
for ((i = 0; i < count; i++)); do
    RANK=$((node * count + i)) LOCAL_RANK=$i "$@" </dev/null &
    ranks+=($!)
done
tell() { kill -"$1" "${ranks[@]}" 2>/dev/null; }
trap 'tell USR1' INT TERM HUP USR1 # a rank takes SIGTERM for the loss of another

# Looking, not `wait -n`: of ranks that end at one moment bash 5.2 forgets some.
code=0
while [ "${#ranks[@]}" -gt 0 ]; do
    sleep 0.2
    for i in "${!ranks[@]}"; do
        if kill -0 "${ranks[i]}" 2>/dev/null; then continue; fi
        wait "${ranks[i]}"
        got=$?
        unset "ranks[i]"
        if [ "$got" -eq 0 ] || [ "$code" -ne 0 ]; then continue; fi
        code=$got
        if [ "$got" -ne 75 ] && [ "${#ranks[@]}" -gt 0 ]; then
            echo "ranks.sh: rank $((node * count + i)) ended with exit code $got; the others follow" >&2
            tell TERM
            { sleep 10 && tell KILL; } >/dev/null 2>&1 &
            killer=$!
            disown
        fi
    done
done
[ -z "$killer" ] || kill -- "-$killer" 2>/dev/null
exit "$code"
