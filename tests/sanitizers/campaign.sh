#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
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
    # The link alone, site and aggregator alone, commits during calls; then all of it as processes.
    programs="test_wire test_tls test_link test_link_ledger test_link_bulk test_link_hostile test_link_tls test_signed test_slow_disk
        test_aggregator test_site test_inflight test_eager test_refusals"
    scripts="two_sites overlap operator silent"
    CC=clang cmake -B build-tsan -G Ninja -DSAN=thread -DMPI=OFF >/dev/null || exit 4
    # shellcheck disable=SC2086 # lists of words
    set -- -R "^($(echo $programs $scripts | tr ' ' '|'))\$" "$@"
    targets="atoll $programs"
    ;;
asan)
    cmake -B build-asan -G Ninja -DSAN=address,undefined >/dev/null || exit 4
    targets=all
    ;;
*)
    sed -n '3,6s/^# \{0,1\}//p' "$0"
    exit 4
    ;;
esac
# shellcheck disable=SC2086
cmake --build "build-$kind" --target $targets >"build-$kind/build.log" || { tail -n 40 "build-$kind/build.log"; exit 4; }
ctest --test-dir "build-$kind" -j1 --output-on-failure --no-tests=error "$@" </dev/null
