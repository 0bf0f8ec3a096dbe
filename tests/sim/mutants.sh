#!/bin/sh
# Every deliberate bug of outer/protocol/mutant.h must be found, by the simulator or by a test of one module, and none where there
# is none. One line for each: by which program, and by which seed of how many.
#
#   mutants.sh DIR [SEEDS]           the suite; DIR has test_mutants and test_mutants_NAME
#   mutants.sh DIR SEEDS NAME...     these alone
#   NIGHT=1 mutants.sh DIR           ten thousand seeds for each, then a minute of points: the nightly command
#
# The last line sums up: how many, how many found, and by which program. Exit 1: one was not found.
set -u
programs=$1
seeds=${2:-10000}
night=${NIGHT:-0}
[ "$night" = 1 ] && [ $# -lt 2 ] && seeds=10000
[ $# -gt 2 ] && shift 2 && names=$* || names=$("$programs/test_mutants" --list)
all=0
found=0
finders=
modules="site replay majorities bounds supply"
"$programs/test_mutants" --count 20
case $? in
0) ;;
77) exit 77 ;;
*) echo "fails without a mutant"; exit 1 ;;
esac

# What one program says of a mutant: its first line that names a failure. 1: it found nothing.
ask() {
    said=$("$@" 2>&1) && return 1
    first=$(echo "$said" | grep -vE '^(seed=|seeds=|points=|mode=|==|  |\[ +OK|\[ +RUN|\[===)' | head -n 1)
    case $first in *'this must hold'*) first="$first ($(echo "$said" | grep '^seed=' | tail -n 1))" ;; esac
    echo "$first"
}

count() {
    echo "$finders" | tr ' ' '\n' | grep -cx "$1"
}

for name in $names; do
    all=$((all + 1))
    case $name in
    COUNTED_UNHEARD | MAJORITY_OF_LIVE) first=states ;; # at once there, after hundreds of seeds here
    # No run of the simulator has two aggregators of one epoch whose hello passes, nor an aggregator that signs another history: the
    # checks of hello come first. What comes behind them is asked by a bent link.
    POSTPONED_FORGOTTEN) first=steppers ;; # a site that is restarted in the steps in which it owes a round: rare in the simulator
    INSTANCE_BELIEVED | MANIFEST_UNCHAINED) first=test_spoiled_manifests module=site ;;
    AMENDED_REPLAY) first=test_amended module=replay ;; # the simulator's own replay of manifests is its oracle
    HALF_ADOPTED) first=test_half_is_no_majority module=site ;; # no aggregator of the simulator signs such a manifest
    HALF_SUPPLIED) first=test_ module=supply ;;
    HALF_*) first=test_ module=majorities ;;
    CLIP_RUNNING) first=test_ module=bounds ;;
    *) first=seeds ;;
    esac
    case $name in
    UNSYNCED_FORGOTTEN) focus="--full --focus eager --from 1900" ;; # an eager start, discarded right before a power loss
    HELLO_UNTOLD) focus="--full --from 1900" ;; # a site far behind, of five
    FINAL_* | WITHDRAWN_LOST) focus="--full --focus copies" ;;
    KEYS_OWED) focus="--focus masks --from 23200" ;; # a disk fails once, and another fragment goes on
    SEAL_* | KEYS_* | THRESHOLD_* | MASK_* | CLEAR_* | PAIR_* | SETUP_* | ADDED_UNPAIRED | JOINED_UNPAIRED | JOINED_AT_ONCE | STOPPED_* | SKIPPED_*) focus="--focus masks" ;;
    REMOVED_UNHEARD) focus="--focus roster --from 3000" ;; # removed and added between two calls of a slow site
    JOURNAL_PART) focus="--focus roster --from 49000" ;; # a crash in the start that makes a lost journal again
    REMOVED_KEPT | ROSTER_* | JOINED_BEFORE | MOVED_UNSAVED) focus="--focus roster" ;;
    AMENDED_*) focus="--focus amend" ;;
    *) focus= ;;
    esac
    if [ $first = states ] && why=$(ask "$programs/test_mutants_states" --mutant "$name"); then
        by=test_states
    elif [ $first = steppers ] && why=$(ask "$programs/test_mutants_stepper_states" --mutant "$name" --states 16000); then
        by=test_stepper_states
    elif [ "$first" = test_ ] && why=$(ask "$programs/test_mutants_$module" --mutant "$name"); then
        by=test_$module
    elif [ "${first#test_?}" != "$first" ] && why=$(ask "$programs/test_mutants_$module" "$first" --mutant "$name"); then
        by=test_$module
    elif why=$(ask "$programs/test_mutants" $focus --mutant "$name" --count "$seeds"); then
        by=test_sim
    elif [ "$night" = 1 ] && why=$(ask "$programs/test_mutants_points" --mutant "$name" --seconds 60); then
        by=test_points
    else
        echo "$name: not found within $seeds seeds"
        continue
    fi
    found=$((found + 1))
    finders="$finders $by"
    echo "$name: $by: $why"
done
line="$all mutants, $found found:"
for by in sim states stepper_states points $modules; do
    line="$line test_$by $(count "test_$by"),"
done
echo "${line%,}"
[ "$all" = "$found" ]
