#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a person cannot look at a run, close a round that stands, or keep a site out; or a caller without an
# operator's certificate can; or a site sees another's counters (docs/protocol.md 3.13).
. "$(dirname "$0")/lib.sh"

every=10
configure a,b,c
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
serve
listening
sites_start a b c
until_rounds a 1
kill -STOP "$b"
until_status "missing=b$"
grep -q "mode=strict sites=3 quorum=3" operator.out || fail "the status does not say the mode"
code=0
operator abort --certificate a || code=$?
[ "$code" = 2 ] || fail "a site's certificate aborts a round: exit code $code"
grep -q "this call needs an operator" operator.out || fail "the refusal does not say what is needed"
"$atoll" cert issue --role observer --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role observer"
[ ! -e tls/observer.identity.pem ] || fail "an observer has an identity key, and signs nothing"
operator metrics --certificate observer || fail "operator metrics"
for site in a b c; do
    grep -q "^site=$site state=bound heard_s=[0-9]* rounds=[1-9][0-9]*/[0-9]* included=1.000 payload_up=[1-9]" operator.out ||
        fail "no counters of site $site for an observer"
done
grep -q "^site=a .* refused.denied=1$" operator.out || fail "the refusal of site a's abort is not counted"
operator metrics --certificate a || fail "operator metrics --certificate a"
[ "$(sed 's/ .*//' operator.out)" = "site=a" ] || fail "site a sees more than itself"
code=0
operator metrics b --certificate a || code=$?
[ "$code" = 2 ] || fail "site a sees the counters of site b: exit code $code"
code=0
operator status --certificate observer || code=$?
[ "$code" = 2 ] || fail "an observer's certificate does more than read the metrics: exit code $code"
operator abort || fail "operator abort"
until_lines 1 "ev=operator act=abort" serve.out
until_lines 1 "ev=round_aborted" a.out
operator quarantine b || fail "operator quarantine"
until_lines 1 "ev=quarantine site=b" serve.out
kill -CONT "$b"
ends 2 "$b" "site b in quarantine"
grep -q "operator readmit b" b.out || fail "site b does not say what to do"
operator status || fail "operator status"
grep -q "site=b state=quarantine" operator.out || fail "the status does not say that b is in quarantine"
operator readmit b || fail "operator readmit"
train b
b=$pid
sites_end 0 a b c
serve_ends
[ "$(lines "ev=round_aborted" a.out)" = 1 ] || fail "another number of aborted rounds than one"
same_state a b c

# A new round whose state is an earlier one; all sites continue from there.
rm -rf a b c aggregator ./*.out
settings="--serve.keep_states 9"
steps=400 # the round that is brought back is not the last one
configure a,b
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
serve
listening
sites_start a b
until_rounds a 2
none_here() { operator status && grep -q " in=0 " operator.out; }
while :; do # no contribution of the round in flight is here
    kill -STOP "$a" "$b"
    sleep 0.1
    none_here && sleep 0.3 && none_here && break # nor on the way
    kill -CONT "$a" "$b"
    sleep 0.03
done
code=0
operator rollback --to 1 || code=$?
[ "$code" = 3 ] && grep -q "no contribution to round [0-9]* is here yet; --wait S calls again" operator.out ||
    fail "a rollback without a contribution: exit code $code"
"$atoll" operator rollback --to 1 --wait 60 --aggregator "127.0.0.1:$port" --aggregator-name localhost >wait.out 2>&1 &
waits=$!
processes="$processes $waits"
sleep 0.3
kill -0 "$waits" || fail "the rollback does not wait for a contribution"
kill -CONT "$a"
ends 0 "$waits" "operator rollback --wait"
until_lines 1 "ev=rolled_back" a.out
until_status "in=1 missing=b$"
operator rollback --to 7777 && fail "a state that there never was"
kill -CONT "$b"
until_lines 1 "ev=rolled_back" a.out
until_lines 1 "ev=rolled_back" b.out
sites_end 0 a b
serve_ends
first=$(sed -n 's/.*ev=commit fragment=0 round=0 .*state=\([0-9a-f]*\).*/\1/p' serve.out)
again=$(sed -n 's/.*ev=commit fragment=0 round=.* sites=0\/2 .*state=\([0-9a-f]*\).*/\1/p' serve.out)
[ -n "$first" ] && [ "$first" = "$again" ] || fail "state after the rollback: $again, wanted $first"
same_state a b
