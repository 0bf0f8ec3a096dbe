#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What was tried to break a run, and how often: fault schedules, storage operations that fail, deliberate bugs, kills of real
# processes, fuzzing, refusals, the suite.
#   deploy/reliability.sh NAME ... | --all      runs campaigns (tests/reliability), adds their figures to results.csv there
#   deploy/reliability.sh --amount N NAME       N seeds, kills, hours or seconds; --release: the amounts for a release
#   deploy/reliability.sh --list                campaigns and amounts
#   deploy/reliability.sh --page                docs/reliability.md, rewritten from results.csv
# Installs what is missing and builds. A stopped campaign continues with the same command; --build DIR takes a build that is there.
# Exit code 0: nothing was found; 1: something was, and it is named.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
build=${ATOLL_BUILD:-$repository/build}
case $build in /*) ;; *) build=$repository/$build ;; esac
only=no
[ $# -gt 0 ] || set -- --help
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '3,10s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --list | --page | --check-page | --build | --build=*) only=yes ;;
    esac
done
if [ "$only" = no ]; then
    "$repository/deploy/install.sh" python3
    [ -e "$build/CMakeCache.txt" ] || ATOLL_BUILD=$build "$repository/deploy/build.sh" atoll
    set -- --build "$build" "$@"
fi
exec python3 "$repository/tests/reliability/run.py" "$@"
