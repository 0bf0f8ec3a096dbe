#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: deploy/run-demo.sh --private. The same script, with fewer steps and labels that are made here.
. "$(dirname "$0")/lib.sh"

mkdir tasks
for part in train test; do
    awk -v part=$part 'BEGIN {
        split("round commit aggregator site state", word)
        split("text token shard batch label", own)
        split("network link frame certificate port", other)
        for (i = part == "test" ? 7000 : 0; i < (part == "test" ? 7600 : 2400); i++) {
            line = ""
            for (k = 0; k < 8; k++) {
                n = (i * 7 + k * k * 3 + int(i / 5)) % 5 + 1
                line = line " " (k % 2 ? word[n] : i % 3 == 0 ? own[n] : i % 3 == 1 ? other[n] : word[6 - n])
            }
            print (i % 3 == 0 ? "data" : i % 3 == 1 ? "link" : "rounds") "\t" substr(line, 2) " " i
        }
    }' >tasks/glosses.$part.tsv
done
"$repository/deploy/demo-private.sh" "$atoll" tasks demo --steps 10 --labels 2100 --tune-steps 6 >demo.out 2>&1 ||
    fail "demo-private.sh: $(tail -n 5 demo.out)"
for said in "secure aggregation and (epsilon, delta) = (3, 1e-5) in each: held-out loss" "the same without privacy:" \
    "one site alone, with the same privacy:" "The sum of all sites is revealed each round" "PLD            epsilon 2.9" \
    "canaries     1000" "epsilon is at least" "in a sum over 3 to 3 sites" "within its cap" "MB up" "demo/privacy.html"; do
    grep -qF -- "$said" demo.out || fail "\"$said\" is not said: $(cat demo.out)"
done
grep -q "What it does not prove" demo/privacy.html || fail "the page does not say what it does not prove"
