#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a strict run cannot take in a site that it did not begin with, or lose one for good; or an
# operator's change of the roster is lost with the aggregator's process, or makes replicas differ (docs/protocol.md 3.6).
. "$(dirname "$0")/lib.sh"

refused() { # refused WORDS ACT...: the aggregator says so, exit code 4
    words=$1
    shift
    code=0
    operator "$@" || code=$?
    [ "$code" -eq 4 ] && grep -qF -- "$words" operator.out || fail "exit code $code without \"$words\" from $*: $(cat operator.out)"
}

begin() { # a strict run of a and b; c has data and a certificate
    configure a,b,c
    sed -i 's/^  sites: .*/  sites: [a, b]/' run.yaml
    "$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
}

# The act is an input: added in the same round, c makes the same contributions, with any process killed. Round 0 waits for b.
added() { # added WHO...: c is added in round 0; then WHO are killed, one after the other
    kills=0
    serve
    listening
    train a
    a=$pid
    until_lines 1 "ev=site_bound site=a" serve.out
    operator roster add c || fail "operator roster add: $(cat operator.out)"
    train c
    c=$pid
    train b
    b=$pid
    for who in "$@"; do
        until_rounds c $((kills * 3 + 1))
        kills=$((kills + 1))
        case $who in
        serve) killed "$serve_pid" && serve ;;
        c) killed "$c" && train c && c=$pid ;;
        esac
    done
    ends 0 "$a" "site a"
    ends 0 "$b" "site b"
    ends 0 "$c" "site c"
    serve_ends
    grep -q "ev=roster .*added=2 name=c sites=3" a.out || fail "site a does not say that c was added"
}
steps=32 every=4 fragments=2 codec=int4 checkpoint_every=5
begin
added
wanted="$(final a) $(final b) $(final c)"
[ "$(echo "$wanted" | wc -w)" = 9 ] || fail "not all sites said their digests: $wanted"
rm -rf a b c aggregator ./*.out
added serve c serve
[ "$(final a) $(final b) $(final c)" = "$wanted" ] || fail "killed: $(final a) $(final b) $(final c), undisturbed $wanted"
rm -rf a b c aggregator ./*.out

# What an operator does takes its time; meanwhile the run stands, since it is strict and one site is stopped.
steps=120 checkpoint_every=13
begin
serve
listening
train a
a=$pid
train b
b=$pid
until_rounds a 2
kill -STOP "$b"

# A site that no operator has added, and what an operator cannot do.
train c
ends 2 "$pid" "site c, which is in no roster"
grep -q "operator roster add c" c.out || fail "site c is not told what to do: $(tail -n 3 c.out)"
rm -rf c
refused "a site's name has" roster add "c.d"
refused "is in the roster already" roster add b
refused "is not in the roster" roster remove z
code=0
operator roster add c --certificate a || code=$?
[ "$code" -eq 2 ] || fail "a site's certificate changes the roster: exit code $code"

# c joins; the aggregator is killed right after the act, which it has answered.
operator roster add c || fail "operator roster add: $(cat operator.out)"
killed "$serve_pid"
serve
until_lines 2 "ev=listening" serve.out
operator roster list || fail "operator roster list"
grep -q "version=2 sites=3 quorum=3" operator.out || fail "the change is lost with the process: $(cat operator.out)"
refused "one change at a time" roster remove b
kill -CONT "$b"
train c
c=$pid
until_lines 2 "ev=roster version=2" a.out # both fragments
kill -STOP "$b"
await "the change is not final" 'operator roster list && grep -q "state=final" operator.out'

# b leaves; the rounds in flight are still its own.
operator roster remove b || fail "operator roster remove: $(cat operator.out)"
killed "$serve_pid"
serve
until_lines 3 "ev=listening" serve.out
kill -CONT "$b"
ends 2 "$b" "site b, which is removed"
grep -q "excluded.*removed from the roster by an operator" b.out || fail "site b does not say why: $(tail -n 3 b.out)"
until_lines 2 "ev=roster version=3" c.out
kill -STOP "$a"
operator roster list || fail "operator roster list"
grep -q "version=3 sites=2 quorum=2" operator.out || fail "the roster is not a and c: $(cat operator.out)"

# The journal is lost, then the whole directory.
killed "$serve_pid"
rm aggregator/journal
serve
until_lines 4 "ev=listening" serve.out
grep -q "ev=roster_found version=3 sites=2" serve.out || fail "the roster of a lost journal is not found"
killed "$serve_pid"
killed "$a"
killed "$c"
"$atoll" report aggregator a --out report.html >report.out 2>&1 || fail "atoll report"
grep -q "roster version 2: site c added" report.html || fail "the report does not say that c was added"
grep -q "roster version 3: site b removed" report.html || fail "the report does not say that b was removed"
rm -rf aggregator
code=0
"$atoll" serve --config run.yaml --rebuild a,b >refused.out 2>&1 || code=$?
[ "$code" -eq 4 ] && grep -q "1 directories of 2 sites" refused.out || fail "a removed site counts for a majority: $(cat refused.out)"
rm -rf aggregator
serve --rebuild a,c
until_lines 5 "ev=listening" serve.out
operator roster list || fail "operator roster list"
grep -q "version=3 sites=2 quorum=2" operator.out || fail "a rebuild lost the roster: $(cat operator.out)"
train a
a=$pid
train c
c=$pid
ends 0 "$a" "site a"
ends 0 "$c" "site c"
serve_ends
fa=$(final a) fc=$(final c)
[ -n "$fa" ] && [ "${fa% *}" = "${fc% *}" ] || fail "sites differ: $fa / $fc"
grep -q "site=c rounds=" serve.out || fail "the aggregator does not say what c's share is"
echo "joined, left, aggregator killed right after each act, lost and rebuilt; with and without kills: $wanted"
