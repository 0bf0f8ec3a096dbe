#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The authority is rolled in a running run: everyone trusts both, gets a certificate of the new one, and the old one goes. No process
# is restarted, and the run ends as it would have.
. "$(dirname "$0")/lib.sh"

steps=100 every=4
configure a,b
undisturbed
wanted=$(final a)
rm -rf a b aggregator ./*.out

for who in a b aggregator; do # each process has its own copies, as on its own machine
    mkdir tls-$who
    cp tls/ca.pem tls/$who.pem tls/$who.key tls/$who.identity.* tls-$who/
done
mkdir old && cp tls/ca.pem tls/b.pem tls/b.key old/
give() { # give FILE WHO: as an operator copies, by rename
    cp "tls/$1" "tls-$2/.$1" && mv "tls-$2/.$1" "tls-$2/$1"
}
serve --tls.dir tls-aggregator
train a --tls.dir tls-a
a=$pid
train b --tls.dir tls-b
b=$pid
until_rounds b 3
"$atoll" cert roll --dir tls >roll.out 2>&1 || fail "atoll cert roll"
[ "$(lines "BEGIN CERTIFICATE" tls/ca.pem)" -eq 2 ] || fail "ca.pem does not hold both authorities"
for who in a b aggregator; do give ca.pem $who; done
until_rounds b 6
for who in a aggregator b; do
    "$atoll" cert renew tls/$who.pem --dir tls >>renew.out 2>&1 || fail "atoll cert renew $who"
    give $who.key $who
    give $who.pem $who
    give $who.identity.pem $who
    until_rounds b $(($(rounds b) + 2))
done
kill -STOP "$b" # the run does not end while the aggregator is asked
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls-a --certificate a >new.out 2>&1 || fail "the new authority is not accepted"
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls-a --certificate a --aggregator-name localhost >new.out 2>&1 || fail "a name"
"$atoll" cert roll --finish --dir tls >finish.out 2>&1 || fail "atoll cert roll --finish"
[ "$(lines "BEGIN CERTIFICATE" tls/ca.pem)" -eq 1 ] || fail "ca.pem keeps the old authority"
for who in a b aggregator; do give ca.pem $who; done
cp tls/ca.pem old/ca.pem
code=0
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls old --certificate b >old.out 2>&1 || code=$?
[ $code -eq 2 ] || fail "a certificate of the old authority ends with $code, wanted 2"
kill -CONT "$b"
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
[ "$(final a)" = "$wanted" ] || fail "the run ended at $(final a), undisturbed $wanted"
[ "$(lines "ev=start " a.out)$(lines "ev=start " b.out)$(lines "ev=listening" serve.out)" = 111 ] || fail "a process was restarted"

# Any process starts with both authorities in ca.pem, in either order, and with its own certificate of the second.
"$atoll" cert roll --dir tls >roll2.out 2>&1 || fail "a second roll"
for who in a b aggregator; do give ca.pem $who; done # own certificates are of the second one
rm -rf a b aggregator
serve --tls.dir tls-aggregator --train.steps 8
train a --tls.dir tls-a --train.steps 8
a=$pid
train b --tls.dir tls-b --train.steps 8
ends 0 "$a" "site a with two authorities"
ends 0 "$pid" "site b with two authorities"
serve_ends
