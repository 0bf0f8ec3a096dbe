#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The promise: kill -9 of a site and of the aggregator at any moment, any number of times, and what is in the end has the same
# SHA-256 (parameters, momentum, residuals) as the undisturbed run. One fragment and four, int8; then random parts and
# both moments of the inner optimizer, each with a period of its own, and an outer Adam; these rounds the aggregator encodes again.
. "$(dirname "$0")/lib.sh"

for what in "P=1" "P=4" "P=2 with moments"; do
    case $what in
    "P=1") fragments=1 settings="" ;;
    "P=4") fragments=4 settings="" ;;
    *) fragments=2 settings="--outer.partition random --outer.moment1_every 8 --outer.moment2_every 12 --outer.downlink_compression_from 2 --outer.optimizer adam" ;;
    esac
    rm -rf a b aggregator data tls ./*.out
    steps=$((180 / fragments + 30)) every=4 codec=int8 checkpoint_every=13
    configure a,b
    undisturbed
    wanted_a=$(final a) wanted_b=$(final b)
    rm -rf a b aggregator ./*.out
    disturbed 5 a serve b a serve b serve a
    [ "$(final a)" = "$wanted_a" ] || fail "$what: site a ended at $(final a), undisturbed $wanted_a"
    [ "$(final b)" = "$wanted_b" ] || fail "$what: site b ended at $(final b), undisturbed $wanted_b"
    # What was killed is booked: counted - sent again + lost with a process = predicted, else exit code 1; both ends expected the same.
    "$atoll" ledger a b aggregator >ledger.out 2>&1 || fail "P=$fragments: atoll ledger"
    grep -q "killed" ledger.out || fail "P=$fragments: the ledger knows of no kill"
    for s in a b; do
        there=$("$atoll" ledger --csv --by site aggregator | awk -F, -v s=$s '$4 == s { print $7 }')
        here=$("$atoll" ledger --csv $s | awk -F, 'NR > 1 { print $7 }')
        [ "$here" -gt 0 ] && [ "$there" -gt 0 ] || fail "P=$fragments: site $s: predicted $here bytes, at the aggregator $there"
    done
    starts=$(cat a/metrics.jsonl b/metrics.jsonl | grep -c '"kind":"start"')
    [ "$starts" -ge 4 ] || fail "only $starts starts are on record: nothing was killed on the way"
    echo "$what: $killed kills, $starts starts of sites, same digests: $wanted_a"
done
