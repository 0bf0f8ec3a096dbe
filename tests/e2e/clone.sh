#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A copy of the aggregator's directory is started next to the original. Sites that have met the newer process prove it to the older
# one, which halts for good; the run continues at the newer one, and ends with the SHA-256 of the undisturbed run. Then a
# copy from before the last rounds is served: it halts too. At last a site whose identity key was stolen gets another.
. "$(dirname "$0")/lib.sh"

steps=120 every=4 codec=int4 fragments=2
configure a,b
undisturbed
wanted_a=$(final a) wanted_b=$(final b)
rm -rf a b aggregator ./*.out

copy_port=$((port + 1))
serve_copy() { # serve_copy DIRECTORY: a second aggregator
    "$atoll" serve --config run.yaml --serve.dir "$1" --serve.listen "127.0.0.1:$copy_port" >>copy.out 2>&1 &
    copy_pid=$!
    processes="$processes $copy_pid"
}
stopped() { # stopped PROCESS: Ctrl-C, and it ends as asked
    kill -INT "$1" 2>/dev/null && ends 75 "$1" "a process that was asked to stop"
}

serve
train a
a=$pid
train b
b=$pid
until_rounds b 6
stopped "$a"
stopped "$b"
kill -STOP "$serve_pid" # a copy of one moment, as a snapshot of the disk is
cp -r aggregator copy
kill -CONT "$serve_pid"
serve_copy copy
until_lines 1 "ev=listening" copy.out
# site b is led to the copy, and back: it has seen the copy's term, and shows what the copy has signed
train b --site.aggregator "127.0.0.1:$copy_port"
until_lines 2 "ev=bound" b.out
kill -9 "$pid" && wait "$pid" 2>/dev/null || :
train a
a=$pid
train b
b=$pid
ends 4 "$serve_pid" "the original, which is the older one"
grep -q "another process of this aggregator has begun a later term" serve.out || fail "the original does not say why it halts"
# it is not served again, at any start
code=0
"$atoll" serve --config run.yaml >again.out 2>&1 || code=$?
[ "$code" -eq 4 ] && grep -q "a site has proved that this directory is old" again.out || fail "the older directory is served again: $code"
[ "$(rounds b)" -lt $((steps / every * fragments)) ] || fail "the run was over before the original halted"
kill -9 "$b" "$a"
wait "$a" "$b" 2>/dev/null || :
# all continue with the copy, which is undisputed
train a --site.aggregator "127.0.0.1:$copy_port"
a=$pid
train b --site.aggregator "127.0.0.1:$copy_port"
b=$pid
until_rounds b 20
kill -STOP "$a" # both sites are in every round: no more rounds until it continues, however fast the machine
kill -STOP "$copy_pid"
cp -r copy backup
kill -CONT "$copy_pid"
bound=$(grep -c "ev=bound" b.out)
kill -9 "$copy_pid" && wait "$copy_pid" 2>/dev/null || :
for start in 1 2 3; do # terms that the backup does not know
    serve_copy copy
    until_lines $((start + 1)) "ev=listening" copy.out
    until_lines $((bound + start)) "ev=bound" b.out
    [ $start -eq 3 ] || { kill -9 "$copy_pid" && wait "$copy_pid" 2>/dev/null || :; }
done
kill -CONT "$a"
until_rounds b 24
kill -STOP "$a"
# the backup in the place of the newest directory
kill -9 "$copy_pid" && wait "$copy_pid" 2>/dev/null || :
mv copy newest && mv backup copy
serve_copy copy
ends 4 "$copy_pid" "the backup"
[ -e copy/stale ] || fail "the backup is not marked"
# and the newest again: the sites, which have kept asking, continue
mv copy old && mv newest copy
kill -CONT "$a"
serve_copy copy
ends 0 "$a" "site a"
ends 0 "$b" "site b"
ends 0 "$copy_pid" "the aggregator"
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"

# Identity keys. Another one for a name that has one is refused, until the first one's certificate is revoked.
rm -rf a b aggregator ./*.out
mkdir tls-b && cp tls/ca.pem tls/b.* tls-b/
serve
train a
a=$pid
train b --tls.dir tls-b
b=$pid
until_rounds b 4
stopped "$b"
rm tls-b/b.identity.key
code=0
"$atoll" train --config run.yaml --site.name b --run.dir b --data.train "data/train-1-*.bin" --tls.dir tls-b >none.out 2>&1 || code=$?
[ "$code" -eq 4 ] && grep -q "b.identity.key: cannot open.*atoll cert renew" none.out || fail "without an identity key: $code, $(cat none.out)"
cp tls/b.identity.pem stolen.pem
rm tls/b.identity.pem
"$atoll" cert renew tls/b.pem --dir tls --out tls-b >renew.out 2>&1 || fail "atoll cert renew makes no identity key"
cp tls-b/b.identity.pem second.pem
train b --tls.dir tls-b
ends 2 "$pid" "site b with another identity key"
grep -q "another identity key than this site's first one" b.out || fail "site b is not told why"
"$atoll" cert revoke stolen.pem --dir tls >revoke.out 2>&1 || fail "atoll cert revoke of an identity"
until_lines 1 "ev=revoked_read count=1" serve.out
train b --tls.dir tls-b
b=$pid
ends 0 "$a" "site a"
ends 0 "$b" "site b with its new identity key"
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a) after a change of key, undisturbed $wanted_a"
"$atoll" cert show second.pem | grep -q "may be.*identity (signs" || fail "atoll cert show does not say what an identity is"
[ "$(stat -c %a tls-b/b.identity.key)" = 600 ] || fail "an identity key that others can read"
echo "older aggregators halted: 2, same digests: $wanted_a"
