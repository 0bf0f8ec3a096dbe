#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Everything on a fresh Debian 12 or 13: installs what is missing, builds, runs all tests. The last lines are ctest's summary.
#   deploy/run-tests.sh [ARGUMENT...]       arguments go to ctest: -R kill runs the tests whose names have "kill" in them
# The build folder is build/, or $ATOLL_BUILD. A warning of the compiler ends the build; with ATOLL_WERROR=OFF it does not.
# Longer campaigns (seeds, kills, fuzzing): deploy/reliability.sh.
set -eu
for argument in "$@"; do
    case $argument in -h | --help)
        sed -n '3,6s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    esac
done
cd "$(dirname "$0")/.."
build=${ATOLL_BUILD:-build}
deploy/install.sh python3 clang-format zsh fish
ATOLL_WERROR=${ATOLL_WERROR:-ON} deploy/build.sh
# One test more at a time than there are cores: several wait for timers and for each other's processes, not for a core.
ctest --test-dir "$build" -j "$(($(nproc) + 1))" --output-on-failure --no-tests=error "$@" </dev/null
