#!/bin/sh
# Tests under a sanitizer, in a build folder of its own; any report fails its test.
#   tests/sanitizers/campaign.sh tsan [ctest's arguments]   ThreadSanitizer (clang): what runs in several threads, below
#   tests/sanitizers/campaign.sh asan [ctest's arguments]   AddressSanitizer with leaks, UndefinedBehaviorSanitizer: the whole suite
# Deadlines are four times those of an ordinary build. The last lines are ctest's summary. Exit code 8: a test failed; 4: no build.
set -eu
cd "$(dirname "$0")/../.."
kind=${1:-}
[ $# -eq 0 ] || shift
case $kind in
tsan)
    # The link alone, site and aggregator alone, commits beside calls, and all of it as processes.
    tests='^(test_(wire|tls|link|link_ledger|link_bulk|link_hostile|link_tls|signed|slow_disk|aggregator|site|inflight|eager|refusals)'
    tests=$tests'|two_sites|overlap|operator|silent)$'
    CC=clang cmake -B build-tsan -G Ninja -DSAN=thread -DMPI=OFF >/dev/null || exit 4
    set -- -R "$tests" "$@"
    ;;
asan)
    cmake -B build-asan -G Ninja -DSAN=address,undefined >/dev/null || exit 4
    ;;
*)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 4
    ;;
esac
cmake --build "build-$kind" >"build-$kind/build.log" || { tail -n 40 "build-$kind/build.log"; exit 4; }
ctest --test-dir "build-$kind" -j1 --output-on-failure --no-tests=error "$@" </dev/null
