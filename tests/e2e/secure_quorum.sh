#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Secure aggregation where sites come and go. What breaks if this fails: a site that is away stops a quorum run, its masks stay in the
# sum, a round that was sealed is sealed again otherwise, or work is lost with an aborted round.
. "$(dirname "$0")/lib.sh"

begin() { # begin SITES
    configure "$1"
    "$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
}
no_refusals() {
    for s in "$@"; do
        ! grep -hE "ev=(seal|key)_refused" "$s.out" || fail "a refusal in an honest run, at site $s"
    done
}
committed() { # committed ROUND PATTERN: its line in the aggregator's log
    grep -qE "ev=commit fragment=0 round=$1 .*$2" serve.out aggregator/log.txt
}

# ---- strict: an aborted round after the seal; the plain run with the same act ends with the same SHA-256s, residuals too ----
settings="--outer.weights equal --outer.full_precision fixed"
steps=200 every=20 count=3 codec=int4
begin a,b,c
act() { # sites a, b have contributed to a round, c has not: an operator aborts it, without masks the one that it was with them
    serve
    sites_start a b c
    if [ "$1" = plain ]; then
        stands_at "$sealed_round" c
        until_status "round=$sealed_round .* in=2 missing=c$"
    else
        until_rounds c 3
        sealed_without b c
        until_lines 1 "ev=waiting" serve.out
        grep -q "ev=waiting .*missing=b" serve.out || fail "the aggregator does not say that it waits for b"
    fi
    operator abort || fail "operator abort: $(cat operator.out)"
    kill -CONT "$c" "$b" 2>/dev/null || :
    sites_end 0 a b c
    serve_ends
    same_state a b c
    [ "$(lines "ev=round_aborted" a.out)" = 1 ] || fail "another number of aborted rounds than one"
}
plain=$settings
settings="$plain --privacy.secure sum"
act masked
masked="$(final a) $(final b) $(final c)"
no_refusals a b c
rm -rf a b c aggregator ./*.out
settings=$plain
act plain
[ "$(final a) $(final b) $(final c)" = "$masked" ] || fail "an aborted round: $masked, without masks $(final a) $(final b) $(final c)"
rm -rf a b c aggregator ./*.out
settings="$plain --privacy.secure sum"

# ---- quorum: three of four sites ----
steps=1000 every=40 mode=quorum straggler_timeout_s=0.7 count=4 history_rounds=40
begin a,b,c,d
serve
sites_start a b c d
until_rounds a 2

# Before the seal: the round is summed without d, whose pair masks the others reveal. It comes back.
killed "$d"
until_rounds a $(($(rounds a) + 3))
grep -hE "ev=commit .* sites=3/4" serve.out aggregator/log.txt >/dev/null || fail "no round is committed without d"
train d
d=$pid
until_rounds d $(($(rounds d) + 2))

# After the seal: the round waits for d, over all the aggregator goes through, and has d's part.
sealed_without d c
killed "$d"
for _ in 1 2 3 4; do
    killed "$serve_pid"
    serve
    sleep 0.2
done
until_status "round=$sealed_round .*in=[234] missing=d$" # without c, where it came too late
train d
d=$pid
until_rounds a $((sealed_round + 2))
committed "$sealed_round" "sites=[34]/4" || fail "the sealed round was not committed with d"

# Never: an operator aborts the round, and the run continues without d, which comes back later nevertheless.
sealed_without d c
killed "$d"
until_status "missing=d$"
operator abort || fail "operator abort: $(cat operator.out)"
for s in a b c; do until_lines 1 "ev=round_aborted" $s.out; done
committed "$sealed_round" "sites=0/4" || fail "the sealed round was not aborted"
until_rounds a $(($(rounds a) + 2))
train d
d=$pid
until_rounds d $(($(rounds d) + 2))
until_lines 1 "ev=round_aborted" d.out

# The aggregator alone, at any moment of a round.
for pause in 0.01 0.07 0.13; do
    until_rounds a $(($(rounds a) + 1))
    sleep $pause
    killed "$serve_pid"
    serve
done

for s in a b c d; do eval "ends_quorum \$$s 'site $s'"; done
ends_quorum "$serve_pid" "the aggregator"
same_state a b c d
no_refusals a b c d
[ "$(lines "ev=abort " aggregator/log.txt)" = 1 ] || fail "other rounds were aborted than the operator's"
! grep -q "ev=seal_lost" aggregator/log.txt || fail "a seal was lost"
echo "dropped out before and after the seal, aggregator killed in between, aborted: $(final a)"
