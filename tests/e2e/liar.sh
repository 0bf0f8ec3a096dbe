#!/bin/sh
# What breaks if this fails: one authorised site can end, freeze or poison a run (docs/protocol.md 3.10). Site c is a program with
# a certificate of the run that sends well-formed rounds of 3.3e38, weights of FLT_MAX and NaN.
. "$(dirname "$0")/lib.sh"
liar=$(cd "$(dirname "$atoll")/.." && pwd)/tests/liar

lie() {
    "$liar" --config run.yaml --site.name c >liar.out 2>&1 &
    liar_pid=$!
    processes="$processes $liar_pid"
}

every=10
codec=bf16
mode=quorum
straggler_timeout_s=0.5
configure a,b,c
serve
listening
lie
until_lines 3 "answer=invalid" liar.out # before anybody else has said a word
train a
a=$pid
train b
b=$pid
ends 0 "$a" "site a"
ends 0 "$b" "site b"
ends 0 "$liar_pid" "the liar"
serve_ends
for what in values weight bits; do
    [ "$(lines "lie=$what" liar.out)" -gt 0 ] || fail "no lie about $what"
done
[ "$(grep -c "answer=receipt" liar.out)" = 0 ] || fail "a lie has a receipt"
grep -q "norm inf.*is beyond" liar.out || fail "the refusal does not name norm and bound"
grep -q "weight 3.40282e+38 is beyond" liar.out || fail "the refusal does not name weight and bound"
grep -qE 'ev=refused.*peer=(atoll://e2e/site/)?c answer=invalid' serve.out || fail "the aggregator does not say whom it refused"
grep -q 'ev=abort' serve.out && fail "a round was aborted"
grep -q "ev=eval .*loss=[0-9][0-9.]* .*of=outer" a.out || fail "site a ends without a finite loss"
fa=$(final a) fb=$(final b)
[ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"

# In strict mode the round cannot close without c: everybody waits, the aggregator says for whom, nobody halts.
rm -rf a b aggregator ./*.out
mode=strict
configure a,b,c
serve
listening
lie
train a
a=$pid
train b
b=$pid
until_lines 1 "ev=waiting" serve.out
grep -q "ev=waiting.*missing=c" serve.out || fail "the aggregator does not say that it waits for c"
grep -qE 'ev=refused.*peer=(atoll://e2e/site/)?c answer=invalid' serve.out || fail "the aggregator does not say whom it refused"
for p in "$a" "$b" "$serve_pid" "$liar_pid"; do
    kill -0 "$p" 2>/dev/null || fail "process $p halted"
done
