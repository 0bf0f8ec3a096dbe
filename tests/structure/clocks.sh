#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No file of kernels/, inner/ or outer/ reads a clock, but kernels/base/clock.c: times come from there, or from the
# environment of the outer loop (outer/store/env.h). So the simulator's virtual time is the only time of a simulated run.
cd "$(git -C "$(dirname "$0")" rev-parse --show-toplevel 2>/dev/null)" || { echo "SKIPPED: this is no git checkout"; exit 77; }
calls='\b(clock_gettime|gettimeofday|timespec_get|pthread_condattr_setclock|pthread_cond_timedwait)\(|\btime\((NULL|0|&)|\bclock\(\)'
found=$(git grep -nE "$calls" -- kernels inner outer ':!kernels/base/clock.[ch]')
[ -z "$found" ] && exit 0
echo "$found"
echo "clocks: use kernels/base/clock.h, or now_ms of the environment"
exit 1
