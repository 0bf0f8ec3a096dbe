#!/bin/sh
# Everything on a fresh Debian 12: installs what is missing, builds, runs all tests. The last lines are ctest's summary.
#   deploy/run-tests.sh [arguments for ctest, such as -R kill]
set -eu
cd "$(dirname "$0")/.."
build=${ATOLL_BUILD:-build}
deploy/install.sh python3 clang-format
deploy/build.sh
ctest --test-dir "$build" -j2 --output-on-failure --no-tests=error "$@" </dev/null
