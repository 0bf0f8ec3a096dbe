#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The emulator finds what is planted: each kernel of planted.cu with a bug must end in the emulator's message, or in a trap.
#   planted.sh PROGRAM
set -eu
program=$1
want=$(cat <<'END'
no_barrier race:
no_barrier_before_reuse race:
no_syncwarp race:
waits_for_too_few a cp.async is still writing
waits_without_barrier race:
loads_into_what_is_read race:
leaves_a_copy leaves while a cp.async
past_the_end beyond the end
past_shared beyond the dynamic shared
not_aligned trap
blocks_share race:
lanes_part is not there to meet
shifts_too_far trap
host_memory neither device nor shared
freed_memory neither device nor shared
no_blocks no blocks
shared_not_asked_for more shared memory than was asked for
END
)
failed=0
names=$("$program")
for name in $names; do
    expect=$(echo "$want" | sed -n "s/^$name //p")
    said=$("$program" "$name" 2>&1) && status=0 || status=$?
    case "$expect" in
    '') echo "planted.sh: no expectation for $name"; failed=1 ;;
    trap) [ $status -eq 132 ] || { echo "$name: exit $status, no trap: $said"; failed=1; } ;;
    *) case "$said" in *"$expect"*) ;; *) echo "$name: '$said' instead of '$expect'"; failed=1 ;; esac ;;
    esac
done
[ $failed -eq 0 ] && [ "$(echo "$names" | wc -l)" -eq "$(echo "$want" | wc -l)" ] && echo "all found"
