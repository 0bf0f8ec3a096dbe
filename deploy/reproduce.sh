#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Published methods, run again: claims of the paper, what is measured here, an independent reference.
#   deploy/reproduce.sh NAME ... | --all       runs rows of tests/reproduce, prints their tables, appends to its results.csv
#   deploy/reproduce.sh --quick [NAME ...|--all]   small runs without downloads, under a minute each; quality is not judged
#   deploy/reproduce.sh NAME --runs A,B        of a row whose rates are searched (tests/reproduce/README.md): these runs alone;
#              --seeds N                          and these first seeds
#   deploy/reproduce.sh --broken --quick NAME|--all   small runs with and without the mechanism of each method: its row must see that
#                                              it is gone; the results stand in tests/reproduce/broken.csv
#   deploy/reproduce.sh --confirm NAME         is a stale row's first seed still what results.csv has, to the last digit?
#   deploy/reproduce.sh PATH/NAME.yaml         a row of your own, its results next to it: docs/experiments.md
#   deploy/reproduce.sh --list                 rows and their minutes
#   deploy/reproduce.sh --page                 docs/reproductions.md, from the rows and results.csv
# Installs what is missing, builds, prepares text. A stopped run continues with the same command. --again runs finished runs, too;
# --atoll PROGRAM takes a program that is built already; --dir DIR is for text and runs (build/reproduce).
# Exit code 0: every acceptance holds; 1: not, and the failed ones are named.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
build=${ATOLL_BUILD:-$repository/build}
case $build in /*) ;; *) build=$repository/$build ;; esac
own=$build/reproduce/runner
only=no built=no
[ $# -gt 0 ] || set -- --help
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '3,16s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --list | --page | --check-page) only=yes ;;
    --atoll | --atoll=*) built=yes ;;
    esac
done

if [ "$only" = no ] && [ "$built" = no ]; then
    deploy=$repository/deploy
    "$deploy/install.sh" python3 python3-pip python3-venv python3-yaml
    ATOLL_BUILD=$build "$deploy/build.sh" atoll
    set -- --atoll "$build/bin/atoll" "$@"
fi

# A Python that reads YAML; a virtual environment where the system's does not.
python=""
for candidate in ${ATOLL_PYTHON:+"$ATOLL_PYTHON"} python3 "$own/bin/python"; do
    if "$candidate" -c 'import yaml' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    mkdir -p "$build/reproduce"
    if ! { python3 -m venv "$own" && "$own/bin/python" -m pip install -q --retries 1 --timeout 20 pyyaml; } >"$build/reproduce/runner.log" 2>&1; then
        echo "reproduce: SKIPPED, nothing was run: no Python with PyYAML, and none could be installed ($build/reproduce/runner.log)" >&2
        exit 77
    fi
    python=$own/bin/python
fi
exec "$python" "$repository/tests/reproduce/run.py" --dir "$build/reproduce" "$@"
