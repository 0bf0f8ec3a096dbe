#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every deliberate bug of outer/protocol/mutant.h must be found, by the simulator or by a test of one module, and none where there
# is none. One line for each: by which program, and by which seed of how many.
#
#   mutants.sh DIR [SEEDS]           the suite; DIR has test_mutants and test_mutants_NAME
#   mutants.sh DIR SEEDS NAME...     these alone; SEEDS 0: as many as the table says
#   NIGHT=1 mutants.sh DIR           ten thousand seeds for each, then a minute of points: the nightly command
#
# tests/sim/mutants.csv says for each which program finds it, with which arguments, and within how many seeds it is missed less than
# once in a million commits (mutant_rates.py makes it). The seeds begin where the commit says, so that another commit tries others:
# no person has picked them. Without git the version of CMakeLists.txt stands for the commit.
#
# The last line sums up: how many, how many found, and by which program. Exit 1: one was not found.
set -u
programs=$(cd "$1" && pwd) || exit 2
seeds=${2:-0}
night=${NIGHT:-0}
cd "$(dirname "$0")/../.." || exit 2 # some tests of modules read their files from there
table=tests/sim/mutants.csv
[ "$night" = 1 ] && [ $# -lt 2 ] && seeds=10000
[ $# -gt 2 ] && shift 2 && names=$* || names=$("$programs/test_mutants" --list)
commit=$(git rev-parse HEAD 2>/dev/null) || commit=$(grep '^project(' CMakeLists.txt)
all=0
found=0
finders=

# The first seed for a mutant: of the commit and its name.
begin() {
    printf '%s %s' "$commit" "$1" | cksum | cut -d ' ' -f 1
}

"$programs/test_mutants" --from "$(begin none)" --count 20
case $? in
0) ;;
77) exit 77 ;;
*) echo "fails without a mutant"; exit 1 ;;
esac

# What one program says of a mutant: its first line that names a failure. 1: it found nothing.
ask() {
    [ -x "$1" ] || { echo "mutants: $1 is not built" >&2; return 1; }
    said=$("$@" 2>&1) && return 1
    first=$(echo "$said" | grep -vE '^(seed=|seeds=|points=|mode=|course=|==|  |\[ +OK|\[ +RUN|\[===)' | head -n 1)
    case $first in *'this must hold'*) first="$first ($(echo "$said" | grep '^seed=' | tail -n 1))" ;; esac
    echo "$first"
}

# A module's test that fails without a mutant would find all of them. (The searches and points are tests of the suite themselves.)
checked=
passes() {
    case $1 in sim | *states | points) return 0 ;; esac
    case $checked in *"|$1 $2|"*) return 0 ;; esac
    checked="$checked|$1 $2|"
    "$programs/test_mutants_$1" $2 >/dev/null 2>&1 || { echo "test_mutants_$1 $2: fails without a mutant"; exit 1; }
}

for name in $names; do
    all=$((all + 1))
    row=$(grep "^$name," "$table") || { echo "$name: not found within 0 seeds (no row in $table: mutant_rates.py makes it)"; continue; }
    program=$(echo "$row" | cut -d , -f 2)
    arguments=$(echo "$row" | cut -d , -f 3 | tr + ,) # a focus is a list of words, joined with + there
    budget=$(echo "$row" | cut -d , -f 8)
    [ -n "$budget" ] || [ "$program" != sim ] || { echo "$name: not found within 0 seeds ($table has no budget)"; continue; }
    [ "$seeds" -gt 0 ] && budget=$seeds
    passes "$program" "$arguments"
    if [ "$program" = sim ]; then
        set -- "$programs/test_mutants" $arguments --mutant "$name" --from "$(begin "$name")" --count "$budget"
    else
        set -- "$programs/test_mutants_$program" $arguments --mutant "$name"
    fi
    if why=$(ask "$@"); then
        by=test_$program
    elif [ "$night" = 1 ] && why=$(ask "$programs/test_mutants_points" --mutant "$name" --seconds 60); then
        by=test_points
    else
        echo "$name: not found within $budget seeds"
        continue
    fi
    found=$((found + 1))
    finders="$finders $by"
    echo "$name: $by: $why"
done
line="$all mutants, $found found:"
for by in $(echo "$finders" | tr ' ' '\n' | sort -u); do
    line="$line $by $(echo "$finders" | tr ' ' '\n' | grep -cx "$by"),"
done
echo "${line%,}"
[ "$all" = "$found" ]
