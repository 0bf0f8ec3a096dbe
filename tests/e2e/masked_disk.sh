#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A disk without room in masked rounds, for each file of secure aggregation: keys, decisions and evidence of a site, seal and record of
# the aggregator. The process says which file it could not write. A site ends with exit code 1, the aggregator waits. Once there is
# room, the run continues and ends with the SHA-256 of the undisturbed one.
. "$(dirname "$0")/lib.sh"
shim=$3
export FULL_FILES="$PWD/full.list" # tests/e2e/full_disk.c
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
none=": cannot [a-z]*: No space left on device"

run_start() {
    export LD_PRELOAD="$shim"
    serve
    sites_start b c
    train_a
    unset LD_PRELOAD
}
full() { echo "$1" >full.list; }
room() { rm full.list; }
# site_full FILE: site a finds no room for this file, says so, and is started again once there is
site_full() {
    [ ! -e a/metrics.jsonl ] || until_rounds a $(($(rounds a) + 1))
    full "$1"
    [ -n "$a" ] || LD_PRELOAD="$shim" train_a
    ends 1 "$a" "site a without room for $1"
    grep -q "$1.*$none" a.out || fail "site a does not say that it could not write $1"
    room
    mv a.out "a.$(echo "$1" | tr / -)"
    LD_PRELOAD="$shim" train_a
}
# Of the newest round in the spool: which sites have contributed
contributed() {
    newest=$(ls aggregator/spool/0 2>/dev/null | sort -n | tail -n 1)
    ls "aggregator/spool/0/$newest" 2>/dev/null | sed -n 's/^\([abc]\)\.[0-9a-f]\{64\}$/\1/p' | tr -d '\n'
}
# until_waits: sites a and b have contributed to the round $newest, and c has not. It is stopped; too late, where its round waits for
# what it signs: then once more.
at_rest() { # the same contributions, all that come without c, for a while
    here_now=$(contributed)
    if [ "$here_now" = "$here_before" ]; then seen=$((seen + 1)); else seen=0; fi
    here_before=$here_now
    [ $seen -ge 5 ] && { [ "$here_now" = ab ] || [ "$here_now" = abc ]; }
}
until_waits() {
    attempt=0
    while :; do
        until_rounds b $(($(rounds b) + 1))
        kill -STOP "$c"
        seen=0 here_before=""
        await "the round without c comes to no rest" at_rest
        [ "$here_now" != ab ] || break
        kill -CONT "$c"
        attempt=$((attempt + 1))
        [ $attempt -lt 12 ] || fail "sites a and b have contributed to no round that waits for c"
    done
    contributed >/dev/null
}

steps=1440 every=60
configure a,b,c
settings="--outer.weights equal --outer.full_precision fixed --privacy.secure sum"
run_start
sites_end 0 a b c
serve_ends
wanted=$(final a)
mkdir undisturbed
mv a b c aggregator ./*.out undisturbed/

full a/id/maskkeys # before there are any
run_start
ends 1 "$a" "site a without room for its first keys"
grep -q "a/id/maskkeys.*$none" a.out || fail "site a does not say that it could not write a/id/maskkeys"
room
LD_PRELOAD="$shim" train_a

site_full a/id/maskseals
site_full a/seals/0/

until_waits
full "spool/0/$newest/seal"
kill -CONT "$c"
until_lines 1 "ev=disk_full" serve.out
grep -q "ev=disk_full .*spool/0/$newest/seal.*$none" serve.out || fail "the aggregator does not say that it could not write the seal"
sleep 0.3
kill -0 "$serve_pid" 2>/dev/null || fail "the aggregator ended without room for a seal"
[ "$(lines "ev=commit fragment=0 round=$newest" serve.out)" -eq 0 ] || fail "a round was committed without a seal"
room

until_waits
full aggregator/journal
kill -CONT "$c"
until_lines 1 "aggregator/journal: cannot" serve.out
kill -0 "$serve_pid" 2>/dev/null || fail "the aggregator ended without room for a record"
room

sites_end 0 a b c
serve_ends
same_state a b c
[ "$(final a)" = "$wanted" ] || fail "the run differs from the undisturbed one: $(final a) / $wanted"
"$atoll" privacy verify a b c >verify.out 2>&1 || fail "atoll privacy verify: $(cat verify.out)"
echo "masked rounds without room end as undisturbed ones: $wanted"
