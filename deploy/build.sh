#!/bin/sh
# Configures and builds into build/ (or $ATOLL_BUILD), quietly: the whole output is in BUILD/build.log.
#   deploy/build.sh [target...]
set -eu
cd "$(dirname "$0")/.."
build=${ATOLL_BUILD:-build}
mkdir -p "$build"
log=$build/build.log
echo "build    $build" >&2
if ! cmake -B "$build" -G Ninja </dev/null >"$log" 2>&1 || ! cmake --build "$build" ${1:+--target "$@"} </dev/null >>"$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "build: failed; the whole log is $log" >&2
    exit 1
fi
