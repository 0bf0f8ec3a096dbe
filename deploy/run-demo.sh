#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole way on a fresh Debian 12 or 13: installs what is missing, builds, prepares real English text, trains at two sites.
#   deploy/run-demo.sh [--text FILE] [options of `atoll demo`, such as --dir DIR or --steps N]
#   deploy/run-demo.sh --private [--dir DIR] [options of deploy/demo-private.sh, such as --epsilon E]: three sites that must not share
#   deploy/run-demo.sh --model bert [--dir DIR] [options of deploy/demo-bert.sh, such as --steps N]: an encoder, ten minutes
# Default text: the dictionary of Debian's package dict-gcide. Ends by itself; results in run-demo/ (or --dir).
set -eu
start=$(date +%s)
here=$(pwd)
repository=$(cd "$(dirname "$0")/.." && pwd)
text=""
directory=""
model=gpt
count=$#
while [ "$count" -gt 0 ]; do # the others stay, in order
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
    --text=*) text=${argument#--text=} ;;
    --dir=*) directory=${argument#--dir=} ;;
    --model=*) model=${argument#--model=} ;;
    --private) model=private ;;
    --text | --dir | --model)
        if [ "$count" -eq 0 ]; then
            echo "run-demo: $argument needs a value" >&2
            exit 4
        fi
        case $argument in --text) text=$1 ;; --dir) directory=$1 ;; *) model=$1 ;; esac
        shift
        count=$((count - 1))
        ;;
    -h | --help)
        sed -n '3,7s/^# *//p' "$0"
        exit 0
        ;;
    *) set -- "$@" "$argument" ;;
    esac
done
case $model in
gpt | bert | private) ;;
*)
    echo "run-demo: --model $model: gpt or bert" >&2
    exit 4
    ;;
esac
case $text in "" | /*) ;; *) text=$here/$text ;; esac
if [ -n "$text" ] && [ ! -r "$text" ]; then
    echo "run-demo: cannot read the text $text; give a plain text file" >&2
    exit 4
fi

cd "$repository"
build=${ATOLL_BUILD:-build}
mkdir -p "$build/text"
if [ "$model" != gpt ]; then
    deploy/install.sh
    tasks=$build/text/tasks
    [ -s "$tasks/glosses.test.tsv" ] || deploy/prepare-tasks.sh --glosses "$tasks"
    deploy/build.sh atoll
    build=$(cd "$build" && pwd)
    cd "$here"
    exec "$repository/deploy/demo-$model.sh" "$build/bin/atoll" "$build/text/tasks" "${directory:-run-demo-$model}" "$@"
fi
if [ -n "$text" ]; then
    deploy/install.sh
    deploy/prepare-text.sh --text "$text" "$build/text/own.txt"
    text=$build/text/own.txt
else
    deploy/install.sh dict-gcide
    text=$build/text/gcide.txt
    [ -s "$text" ] || deploy/prepare-text.sh "$text"
fi
deploy/build.sh atoll
program=$(cd "$build" && pwd)/bin/atoll
cd "$here"
case $text in /*) ;; *) text=$repository/$text ;; esac
"$program" demo --text "$text" --dir "${directory:-run-demo}" "$@" </dev/null
echo "Total   $(($(date +%s) - start)) s" >&2
