#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A foreign site takes part in a run and computes the same states bit for bit (docs/formats.md): a Python program that was written from
# the documents (client.py) next to a real site and a real aggregator, in strict mode. It is killed before it sends, while it sends and
# before it adopts, and the aggregator once; what it sends after that must be its stored bytes. Needs packages from PyPI; without: skipped.
#   interop.sh ATOLL SCRATCH [--all]      --all: every codec
. "$(dirname "$0")/python.sh"

foreign() { # foreign OPTIONS...: the site b, in the background; the process number is in $pid
    "$python" "$repository/tests/interop/client.py" --aggregator "127.0.0.1:$port" --server-name localhost --tls tls \
        --settings aggregator/run.cfg --site b --dir b --share 0.75 "$@" >>b.out 2>&1 &
    pid=$!
    processes="$processes $pid"
}

value() { # value NAME WORDS: of the last line of b.out with these words
    grep -F "$2" b.out | tail -n 1 | sed -n "s/.*$1=\([^ ]*\).*/\1/p"
}

begin() { # an aggregator and site a, from nothing
    rm -rf a b aggregator ./*.out
    serve
    listening
    train a
    a=$pid
}

agree() { # all processes ended well, and all three hold the same outer state
    ends 0 "$a" "site a"
    ends 0 "$1" "the foreign site"
    serve_ends
    outer=$(sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' a/metrics.jsonl | tail -n 1)
    [ -n "$outer" ] || fail "site a said no final digest"
    grep -q "ev=final.*outer=$outer" b.out || fail "the foreign site ended with another outer state than $outer"
    grep -q "ev=final.*$outer" serve.out || fail "the aggregator ended with another outer state than $outer"
}

killed() { # killed PROCESS: by itself, SIGKILL
    code=0
    wait "$1" || code=$?
    [ "$code" -eq 137 ] || fail "the foreign site ended with exit code $code, wanted 137"
}

# Round 0 in bf16, then int8 on the shared grid, the default. Another --noise at each start: what is made a second time has other bytes.
fragments=2
configure a,b
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
begin
foreign --check 0:0 --die 0:1:stored
killed "$pid"
stored=$(value payload "ev=stored fragment=0 round=1")
foreign --noise 2 --check 1:1 --chunk 2048 --pause 0.02 --die 1:2:sending
killed "$pid"
[ "$(value payload "ev=adopted fragment=0 round=1")" = "$stored" ] || fail "the stored bytes of round 1 were not what was sent"
stored=$(value payload "ev=stored fragment=1 round=2")
foreign --noise 3 --die 0:3:adopting
killed "$pid"
[ "$(value payload "ev=adopted fragment=1 round=2")" = "$stored" ] || fail "the stored bytes of round 2 were not what was sent"
[ "$(value offset "ev=resume fragment=1 round=2")" -gt 0 ] || fail "bytes that were stored were sent again"
kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
serve
foreign --noise 4 --die 1:3:stored
killed "$pid"
grep -q "ev=hello answer=behind term=2" b.out || fail "the foreign site did not catch up with the round that it died in"
# the round of which only site a's part is there is closed with no site in it
await "atoll operator abort" '"$atoll" operator abort --fragment 1 --aggregator "127.0.0.1:$port" --aggregator-name localhost >operator.out 2>&1'
rm b/outbox-1 # as if it had not come to that round: it still makes its contribution, for the residual
foreign --noise 5
agree "$pid"
[ "$(grep -c "ev=stored fragment=1 round=3" b.out)" -eq 2 ] || fail "the steps of the aborted round are in no residual"
grep -q "ev=adopted fragment=1 round=3 codec=int8 included=0" b.out || fail "the foreign site did not adopt the aborted round"
[ "$(grep -c "ev=adopted.*codec=int8" b.out)" -ge 6 ] || fail "fewer int8 rounds than there are"
[ "$(grep -c "ev=exact" b.out)" -eq 2 ] || fail "the slow reference was not asked twice"

# Amendments (docs/protocol.md 3.17): learned from manifests, in force after their borders, kept over a kill, and known to a site that
# begins with a snapshot.
amend() { # amend KEY VALUE ROUND
    "$atoll" operator set "$1" "$2" --at-round "$3" --aggregator "127.0.0.1:$port" --aggregator-name localhost >operator.out 2>&1 ||
        fail "operator set $1 $2"
}
# The outer momentum warms up and cools down meanwhile.
steps=32 every=4
settings="--outer.momentum_warmup 3 --outer.momentum_start 0.3 --outer.momentum_cooldown 3 --outer.momentum_end 0.2"
configure a,b
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
begin
amend outer.lr 0.35 1
amend outer.sync_every 6 2
amend train.steps 41 3
amend outer.codec int4 3
foreign --die 0:1:adopting
killed "$pid"
foreign --noise 2 --check 1:2 --check 0:3 --chunk 2048 --pause 0.02 --die 1:3:sending
killed "$pid"
amend outer.sync_every 2 5
amend outer.sync_every 10 5
amend outer.lr 0.6 6
amend outer.codec e3m0 6
rm b/fragment-* b/outbox-* b/amendments* # its states are lost: a snapshot, and the manifests' list
foreign --noise 3
agree "$pid"
[ "$(grep -c "ev=amendment setting=outer.every=6 from_round=2" b.out)" -eq 2 ] || fail "the foreign site did not learn of an amendment"
[ "$(grep -c "ev=exact" b.out)" -eq 2 ] || fail "the slow reference was not asked twice"
for codec in int4 e3m0; do # at both fragments
    [ "$(grep -c "ev=adopted fragment=[01] .*codec=$codec included=1" b.out)" -ge 2 ] || fail "fewer than two rounds in the amended codec $codec"
done
grep -q '"kind":"final".*"step":41,\|"step":41,.*"kind":"final"' a/metrics.jsonl || fail "site a did not end at step 41"

for momentum in 0.3 0.5 0.899 0.2; do # the first round, the second, between, the last
    grep -q "ev=adopted fragment=0 .* momentum=$momentum" b.out || fail "no round has the outer momentum $momentum"
done

fragments=1 settings=""
# Every form of payload and aggregate: a round in full precision, then at least two of the codec's own.
codecs="sign csc fp8_e4m3 topk fixed" # int4 and e3m0: above
[ "${3:-}" != --all ] || codecs="$codecs int4 e3m0 int2 f32 fp8_e5m2 fp8_sr"
steps=16 every=4 fragments=1
configure a,b
for codec in $codecs; do
    settings="--outer.codec $codec"
    begin
    foreign --check 0:1
    agree "$pid"
    [ "$(grep -c "ev=adopted.*codec=$codec" b.out)" -ge 2 ] || fail "fewer than two rounds in $codec"
done

# Full-precision rounds that are summed.
settings="--outer.codec int8 --outer.full_precision fixed"
begin
foreign --check 0:0
agree "$pid"
grep -q "ev=adopted fragment=0 round=0 codec=fixed" b.out || fail "round 0 was not sent as fixed"

# An outer optimizer of two slabs, one of which does not begin at 0, and a state digest of several leaves.
settings="--outer.codec int8 --outer.optimizer adam --outer.beta2 0.9 --outer.state_digest leaves --model.d_model 64"
begin
foreign --check 0:1
agree "$pid"

# Factors (outer.clip): the foreign site is the louder one.
settings="--outer.codec fp8_e4m3 --outer.clip 1"
begin
foreign --check 0:1 --step 0.1
agree "$pid"
grep -q "ev=adopted .*factor=0.5" b.out || fail "no contribution was clipped"
echo "bf16 int8 $codecs: all replicas equal; 4 kills of the foreign site, 1 of the aggregator, 1 aborted round, factors, 8 amendments"
