#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rule "more than half of the sites" is written once, in outer/protocol/majority.h: a second copy is where exactly half slips in.
cd "$(git -C "$(dirname "$0")" rev-parse --show-toplevel 2>/dev/null)" || { echo "SKIPPED: this is no git checkout"; exit 77; }
files='outer/protocol outer/site outer/aggregator outer/organ outer/masks outer/budget outer/store outer/run outer/cmd outer/config'
copies='/ 2u? \+ 1\b| [<>]=? [A-Za-z_>.()-]*(n|sites|site_count|count) / 2\b|\b2 \* [A-Za-z_>.-]+ [<>]=? [A-Za-z_>.-]*\b(n|sites|site_count)\b'
found=$(git grep -nE "$copies" -- $files ':!outer/protocol/majority.h')
found=$(echo "$found" | grep -vE 'rng_below\(.*ms / 2 \+ 1\)|outer/budget/fft.c') # half of a pause, of a transform
[ -z "$found" ] && exit 0
echo "$found"
echo "majorities: use majority_of and majority_has of outer/protocol/majority.h"
exit 1
