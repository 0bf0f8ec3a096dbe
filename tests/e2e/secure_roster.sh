#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Secure aggregation in a strict run whose sites change: a site loses its directory and is removed and added again, a stolen identity key
# is replaced, a site leaves for good, and the aggregator's disk is lost while a round is sealed. What breaks if this fails: a mask stays
# in a sum, a key that was lost or stolen still counts, or the run stands. It ends with the SHA-256s (parameters, momentum, residuals) of
# the run without masks that had the same acts in the same rounds.
. "$(dirname "$0")/lib.sh"

steps=1600 every=100 codec=int4 checkpoint_every=10000 # a round is long enough to stop a site in it
configure a,b,c,d
count=3 # sites of the roster, but for d
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
mkdir thief
mv tls/c.* thief/
cp tls/ca.pem thief/
"$atoll" cert issue --role site --name c --dir tls >>cert.out 2>&1 || fail "atoll cert issue" # the new key of c

act() { # act WORDS...: an operator's, while round $now waits for b
    stands_at "$now" b
    operator "$@" || fail "operator $*: $(cat operator.out)"
    kill -CONT "$b"
}
start() { # start SITE ARGUMENTS...
    train "$@"
    eval "$1=\$pid"
}
# start_empty SITE: with a new directory. Each refusal is a pause in which a person sees that the former process has ended.
start_empty() {
    rm -rf "$1"
    told=$(lines "ev=bound" "$1.out")
    while [ "$(lines "ev=bound" "$1.out")" -eq "$told" ]; do
        start "$1"
        while kill -0 "$pid" 2>/dev/null && [ "$(lines "ev=bound" "$1.out")" -eq "$told" ]; do sleep 0.02; done
    done
    grep -q "this directory is new, and the process of site $1 before it may still be counted" "$1.out" ||
        fail "site $1 is not told to look for its former process"
}
acts() {
    serve
    sites_start a b d
    start c --tls.dir thief

    # d loses its directory, and is added again. Round 2 waits for it, and an operator aborts it.
    stands_at 2 d
    killed "$d"
    if [ "$1" = masked ]; then
        start_empty d
        ends 2 "$d" "site d, whose pair keys are lost"
        grep -q "key_second: .*remove and add it" d.out || fail "site d is not told what was lost, and what to do"
    fi
    operator roster remove d || fail "operator roster remove: $(cat operator.out)"
    operator abort || fail "operator abort: $(cat operator.out)"
    if [ "$1" = masked ]; then
        until_rounds b 5
        code=0
        operator roster remove a || code=$?
        [ "$code" -eq 4 ] && grep -q "without site a the run has 2 sites, and secure aggregation needs 3" operator.out ||
            fail "a roster that is too small: exit code $code, $(cat operator.out)"
    fi
    now=5
    act roster add d
    until_status "round=6 .* missing=d$" # with masks no site can contribute before d has stated its public key
    start_empty d

    # The identity key of c was stolen: c is removed, and added with another key.
    now=7
    act roster remove c
    ends 2 "$c" "site c, which is removed"
    "$atoll" cert revoke thief/c.identity.pem --dir tls >revoke.out 2>&1 || fail "atoll cert revoke: $(cat revoke.out)"
    until_lines "$2" "ev=revoked_read" serve.out
    now=9
    act roster add c
    start c --tls.dir thief
    ends 2 "$c" "site c with the stolen key"
    grep -q "identity certificate is revoked" c.out || fail "the stolen key is not refused by name: $(tail -n 2 c.out)"
    start c

    # d leaves for good. Then the aggregator's disk is lost; c alone has not signed the seal of the round, which an operator aborts.
    now=11
    act roster remove d
    ends 2 "$d" "site d, which is removed"
    stands_at 13 b
    if [ "$1" = masked ]; then
        sealed_without c b
        [ "$sealed_round" = 13 ] || again "round $sealed_round is sealed, wanted 13"
        killed "$serve_pid"
        rm -rf aggregator
        kill -CONT "$c"
        serve --rebuild-from-sites
        until_lines 1 "answer=seal_second" a.out
    fi
    operator abort || fail "operator abort: $(cat operator.out)"
    kill -CONT "$b"
    sites_end 0 a b c
    serve_ends
    same_state a b c
}

settings="--outer.weights equal --outer.full_precision fixed"
acts plain 1
wanted="$(final a) $(final b) $(final c)"
mkdir plain
mv a b c d aggregator ./*.out plain/
rm tls/revoked.txt

# Two sites of three that an operator would remove: T is below the number of sites.
settings="$settings --privacy.secure sum --privacy.threshold 3"
acts masked 1
[ "$(final a) $(final b) $(final c)" = "$wanted" ] || fail "masked: $(final a) $(final b) $(final c), without masks $wanted"
for s in a b; do
    grep -q "ev=peer_key peer=c renewed=1" $s.out || fail "site $s does not say that site c has another key"
    ! grep -q "ev=key_refused" $s.out || fail "an honest key is refused at site $s"
done

# In quorum mode the rounds continue without a site that was added and does not come; once it has, they have it.
rm -rf a b c d aggregator ./*.out
steps=500 every=10 mode=quorum straggler_timeout_s=100
configure a,b,c,d
sed -i 's/^  sites: .*/  sites: [a, b, c]/' run.yaml
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
settings="--outer.weights equal --outer.full_precision fixed --privacy.secure sum"
serve
sites_start a b c
until_rounds a 2
operator roster add d || fail "operator roster add: $(cat operator.out)"
until_rounds a $(($(rounds a) + 5))
grep -q "ev=waiting missing=d owes=\"public key\"" serve.out || fail "the aggregator does not say that d has not come"
code=0
operator roster remove a || code=$?
[ "$code" -eq 4 ] && grep -q "site d, which was added, has not the pair keys" operator.out || fail "too few would mask: $code, $(cat operator.out)"
start d
until_lines 3 "sites=4/4" serve.out
for s in a b c d; do eval "ends_quorum \"\$$s\" 'site $s'"; done
ends_quorum "$serve_pid" "the aggregator"
same_state a b c d
! grep -hE "ev=(seal|key)_refused|ev=abort" ./*.out || fail "a refusal in an honest run"

# A site that masks wrongly: with pair keys of another run of the same name. No round can be summed, and the aggregator halts.
steps=160 every=4 mode=strict
configure a,b,c
settings="--outer.weights equal --outer.full_precision fixed --privacy.secure sum"
for run in other this; do
    rm -rf a b c aggregator ./*.out
    serve
    sites_start a b c
    until_rounds c 1
    killed "$c"
    [ $run = this ] || { killed "$serve_pid" && killed "$a" && killed "$b" && mv c/id/maskkeys other; }
done
cp other c/id/maskkeys
start c
ends 1 "$serve_pid" "the aggregator, which can sum no round"
grep -q "32 rounds of fragment 0 in a row were aborted: .*remove and add one site after the other" serve.out ||
    fail "the aggregator does not say why it ends"
echo "a directory, a key, a site and the aggregator's disk lost, with the digests of the plain run: $(echo "$wanted" | cut -c 1-16)"
