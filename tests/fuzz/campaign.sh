#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every fuzz target with libFuzzer, one after another, under AddressSanitizer and UBSan (clang):
#   tests/fuzz/campaign.sh [SECONDS [TARGET...]]      60 s a target; findings and what is new lie in build-fuzz/found/TARGET
# Prints executions and findings of each target; ends with 1 where there is a finding, with 4 where a target cannot be built. Inputs
# that reach something new are worth a place in tests/fuzz/corpus/TARGET.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
targets=${*:-$(sed -n 's/^ *atoll_fuzz(\([a-z_]*\) .*/\1/p' tests/fuzz/CMakeLists.txt)}
cmake -B build-fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DFUZZ=ON -DSAN=address,undefined,fuzzer-no-link >/dev/null || exit 4
for t in $targets; do
    cmake --build build-fuzz --target "fuzz_$t" >build-fuzz/build.log || { cat build-fuzz/build.log; exit 4; }
done
failed=0
for t in $targets; do
    mkdir -p "build-fuzz/found/$t"
    code=0
    "build-fuzz/tests/fuzz_$t" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="build-fuzz/found/$t/" \
        "build-fuzz/found/$t" "tests/fuzz/corpus/$t" >"build-fuzz/found/$t.log" 2>&1 || code=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build-fuzz/found/$t.log")
    if [ $code -eq 0 ]; then
        echo "$t: ${runs:-0} executions, no finding"
    else
        echo "$t: a finding (exit code $code): build-fuzz/found/$t.log"
        failed=1
    fi
done
exit $failed
