#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Quorum mode, three sites: two continue without the third; it comes late and takes a snapshot; it is killed, stays away,
# and catches up. In the end all three and the aggregator hold the same outer state.
. "$(dirname "$0")/lib.sh"
steps=400 every=8 mode=quorum straggler_timeout_s=0.3 history_rounds=3
configure a,b,c
serve
train a
a=$pid
train b
b=$pid
until_rounds a 6
train c
c=$pid
until_rounds c 3
kill -9 "$c"
wait "$c" 2>/dev/null || :
until_rounds a $(($(rounds a) + 3))
train c
ends_quorum "$a" "site a"
ends_quorum "$b" "site b"
ends_quorum "$pid" "site c"
ends_quorum "$serve_pid" "the aggregator"
fa=$(final a) fb=$(final b) fc=$(final c)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] && [ "${fa% *}" = "${fc% *}" ] || fail "sites differ: $fa / $fb / $fc"
grep -q 'ev=moved' c.out || fail "site c never had to move forward"

# The aggregator is away: where outer.max_local_steps_offline allows it the sites train on for a while, say so, and continue together.
rm -rf a b c aggregator ./*.out
steps=240 max_local_steps_offline=5
configure a,b,c
serve
train a
a=$pid
train b
b=$pid
train c
c=$pid
until_rounds a 5
# A site whose contribution is under way waits for its commit; only one that trains while the aggregator goes trains on.
# Which of them does is chance, so the aggregator goes away until one did.
trained_on() { cat a.out b.out c.out | grep -cF "ev=train_on" || :; }
before=$(trained_on)
while [ "$(trained_on)" -eq "$before" ]; do
    [ "$(rounds a)" -lt 24 ] || fail "no site trained on while the aggregator was away"
    kill -9 "$serve_pid"
    wait "$serve_pid" 2>/dev/null || :
    tries=0
    while [ "$(trained_on)" -eq "$before" ] && [ $tries -lt 200 ]; do
        sleep 0.04
        tries=$((tries + 1))
    done
    serve
    [ "$(trained_on)" -gt "$before" ] || until_rounds a $(($(rounds a) + 2))
done
ends_quorum "$a" "site a"
ends_quorum "$b" "site b"
ends_quorum "$c" "site c"
ends_quorum "$serve_pid" "the aggregator"
fa=$(final a) fb=$(final b) fc=$(final c)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] && [ "${fa% *}" = "${fc% *}" ] || fail "sites differ: $fa / $fb / $fc"
