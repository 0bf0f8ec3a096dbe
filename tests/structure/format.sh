#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every C and CUDA source is formatted by the repository's .clang-format. Versions of clang-format differ in what they write, so
# this holds for version 14 (Debian 12's clang-format) and is skipped with another one.
#   tests/structure/format.sh          names the files that differ; to format them: tests/structure/format.sh --write
set -eu
cd "$(dirname "$0")/../.."
tool=""
for name in clang-format-14 clang-format; do
    case $("$name" --version 2>/dev/null) in
    *"version 14."*) tool=$name && break ;;
    esac
done
if [ -z "$tool" ]; then
    echo "SKIPPED: clang-format 14 is not installed"
    exit 77
fi
if ! files=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc' 2>/dev/null) || [ -z "$files" ]; then
    echo "SKIPPED: this is no git checkout, so there is no list of sources"
    exit 77
fi
if [ "${1:-}" = --write ]; then
    echo "$files" | xargs "$tool" -i
    exit 0
fi
differing=$(echo "$files" | xargs "$tool" --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*error.*/\1/p' | sort -u)
if [ -n "$differing" ]; then
    echo "$differing"
    echo "these files are not formatted: tests/structure/format.sh --write"
    exit 1
fi
