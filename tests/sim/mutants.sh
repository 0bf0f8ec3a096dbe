#!/bin/sh
# Every deliberate bug of outer/protocol/mutant.h must be found by the simulator within this many seeds, and none where there is
# none. mutants.sh PROGRAM [SEEDS]
set -u
program=$1
seeds=${2:-2500}
failed=0
"$program" --count 20
case $? in
0) ;;
77) exit 77 ;;
*) echo "fails without a mutant"; exit 1 ;;
esac
for name in $("$program" --list); do
    if found=$("$program" --mutant "$name" --count "$seeds" 2>&1); then
        echo "$name: not found within $seeds seeds"
        failed=1
    else
        echo "$name: $(echo "$found" | grep -vE '^(seeds=|==)' | head -n 1)"
    fi
done
exit $failed
