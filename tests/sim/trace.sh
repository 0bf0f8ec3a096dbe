#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The traces of seeds (test_trace.c) from builds with each compiler and optimisation level must be equal.
#   trace.sh SCRATCH [SEEDS]     builds gcc and clang, -O0 and -O3, each in a folder of SCRATCH
#   TRACE=HEX trace.sh ...       and equal to this one, of another machine (aarch64)
# One line for each build; the last one sums up: "x86_64: 4 builds, 2000 seeds, 1 trace(s): HEX". Exit 1: they differ; 77: a compiler
# is missing. -Wno-pass-failed: clang at -O3 says which loops it does not vectorise.
set -u
repository=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$1
seeds=${2:-2000}
traces=${TRACE:-}
builds=0
for compiler in gcc clang; do
    command -v $compiler >/dev/null || { echo "SKIPPED: $compiler is not installed"; exit 77; }
    for level in -O0 -O3; do
        build=$scratch/trace-$compiler$level
        mkdir -p "$build"
        { cmake -S "$repository" -B "$build" -G Ninja -DCMAKE_C_COMPILER=$compiler -DNET=OFF -DMPI=OFF -DCMAKE_BUILD_TYPE=Trace \
            "-DCMAKE_C_FLAGS_TRACE=$level -Wno-pass-failed" && cmake --build "$build" --target test_trace; } >"$build/build.log" 2>&1 ||
            { echo "$build: does not build; see build.log there"; tail -n 5 "$build/build.log"; exit 4; }
        said=$(cd "$repository" && OMP_WAIT_POLICY=passive "$build/tests/test_trace" --count "$seeds") ||
            { echo "$compiler $level: $said"; exit 1; }
        trace=$(echo "$said" | sed -n 's/^trace=//p')
        echo "$compiler $level: $(echo "$said" | head -n 1) trace=$trace"
        traces="$traces $trace"
        builds=$((builds + 1))
    done
done
different=$(echo "$traces" | tr ' ' '\n' | grep . | sort -u | wc -l)
echo "$(uname -m): $builds builds, $seeds seeds, $different trace(s): $trace"
[ "$different" = 1 ]
