#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A stolen key is withdrawn in a running run: site b gets a new key under its name without a restart, the old certificate is refused
# from then on, also after the list is lost and the aggregator restarted, and the run ends as it would have. Then a name is revoked.
. "$(dirname "$0")/lib.sh"

steps=100 every=4
configure a,b
undisturbed
wanted=$(final a)
rm -rf a b aggregator ./*.out

mkdir thief tls-b
cp tls/ca.pem tls/b.pem tls/b.key thief/
cp tls/ca.pem tls/b.pem tls/b.key tls/b.identity.* tls-b/ # what site b has; the authority's directory is the aggregator's
knocks() { # knocks: does the thief get an answer?
    "$atoll" doctor --aggregator "127.0.0.1:$port" --tls thief --certificate b >thief.out 2>&1
}
serve
listening
knocks || fail "the thief's certificate is not accepted before it is revoked"
train a
a=$pid
train b --tls.dir tls-b
b=$pid
until_rounds b 3
"$atoll" cert renew thief/b.pem --dir tls --out renewed >renew.out 2>&1 || fail "atoll cert renew"
for file in b.key b.pem b.identity.pem; do mv renewed/$file tls-b/$file; done
"$atoll" cert revoke thief/b.pem --dir tls >revoke.out 2>&1 || fail "atoll cert revoke FILE"
grep -q "^sha256:[0-9a-f]* (atoll://e2e/site/b)  is now in tls/revoked.txt" revoke.out || fail "revoke does not say what it did"
until_lines 1 "ev=revoked_read count=1" serve.out
! knocks || fail "the revoked certificate is accepted"
grep -q "this certificate is revoked" thief.out || fail "the thief is not told"
until_rounds b 8
# the list is lost, and the aggregator restarted: it stays in force
kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
mv tls/revoked.txt list
serve
until_lines 1 "ev=revoked_missing" serve.out
until_lines 2 "ev=listening" serve.out
! knocks || fail "the revoked certificate is accepted once the list is lost"
mv list tls/revoked.txt
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
[ "$(final a)" = "$wanted" ] || fail "the run ended at $(final a), undisturbed $wanted"
[ "$(lines "ev=start " b.out)" -eq 1 ] || fail "site b was restarted"

# All certificates issued for a name, by their record; and a name, all of whose certificates are refused.
"$atoll" cert revoke atoll://e2e/site/b --issued --dir tls >issued.out 2>&1 || fail "atoll cert revoke --issued"
[ "$(lines "sha256:" tls/revoked.txt)" -eq 4 ] || fail "not all certificates of b are on the list" # two of each key
"$atoll" cert list --dir tls | grep -q "b.pem.*revoked" || fail "atoll cert list does not say revoked"
"$atoll" cert issue --role site --name b --dir tls >reissue.out 2>&1 || fail "a name whose certificates are revoked gets no new one"
"$atoll" cert list --dir tls | grep "b.pem" | grep -q valid || fail "the new certificate of b is not valid"
"$atoll" cert revoke atoll://e2e/site/b --dir tls >name.out 2>&1 || fail "atoll cert revoke NAME"
! "$atoll" cert renew tls/b.pem --dir tls >again.out 2>&1 || fail "a revoked name gets a new certificate"
grep -q "remove that line" again.out || fail "the refusal does not say why"
for bad in "sha256:12" nothing.pem tls/ca.pem atoll://e2e/king/b; do
    ! "$atoll" cert revoke "$bad" --dir tls >bad.out 2>&1 || fail "atoll cert revoke $bad"
done
