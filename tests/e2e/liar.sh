#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: one authorised site can end, freeze or poison a run (docs/protocol.md 3.10, 3.12). Site c is a program
# with a certificate of the run that sends well-formed rounds of 3.3e38, weights of FLT_MAX and NaN, or rounds that are too loud.
. "$(dirname "$0")/lib.sh"
liar=$(cd "$(dirname "$atoll")/.." && pwd)/tests/liar

lie() {
    "$liar" --config run.yaml --site.name c $settings "$@" >liar.out 2>&1 &
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
until_lines 3 "answer=invalid" liar.out # before any other caller
until_lines 1 "hello answer=excluded" liar.out
grep -q "ev=quarantine site=c" serve.out || fail "the aggregator does not say that c is in quarantine"
kill -9 "$serve_pid"
wait "$serve_pid" 2>/dev/null || :
lines "ev=listening" serve.out >starts # quarantine survives a restart
serve
until_lines $(($(cat starts) + 1)) "ev=listening" serve.out
ends 0 "$liar_pid" "the liar"
cp liar.out lies.out
lie
until_lines 1 "hello answer=excluded" liar.out
ends 0 "$liar_pid" "the liar"
[ "$(lines "lie=" liar.out)" = 0 ] || fail "c may offer although it is in quarantine"
cp lies.out liar.out
sites_start a b
sites_end 6 a b
ends 6 "$serve_pid" "the aggregator"
# The end is not silent: a sentence, a table of rounds and tokens by site, in the log, on the terminal, in the record, in the report.
for out in a.out b.out serve.out; do
    grep -q 'its last one is without 1 of 3 sites (c): what they trained' $out || fail "$out does not say whose work is missing"
done
tokens=$(sed -n 's/.*ev=share site=a rounds=4 of=4 tokens=\([0-9]*\) rounds_pct=100.0 tokens_pct=50.0 ends=1.*/\1/p' serve.out)
[ "$tokens" = 5120 ] || fail "the share of site a: $(grep ev=share serve.out)"
grep -q 'level=warn .*ev=share site=c rounds=0 of=4 tokens=0 rounds_pct=0.0 tokens_pct=0.0 ends=0' serve.out ||
    fail "the share of site c: $(grep ev=share serve.out)"
grep -q '"kind":"final".*"short":"the run has all its rounds, and its last one is without 1 of 3 sites (c)' aggregator/metrics.jsonl ||
    fail "the aggregator's record does not say it"
"$atoll" report a b aggregator --out report.html >report.out 2>&1 || fail "atoll report"
grep -q '"name":"c","rounds":0,"tokens":0,"ends":false' report.html || fail "the report does not say it"
grep -q 'without 1 of 3 sites (c)' report.out || fail "atoll report does not say it on the terminal"
for what in values weight bits; do
    [ "$(lines "lie=$what" liar.out)" -gt 0 ] || fail "no lie about $what"
done
[ "$(grep -c "answer=receipt" liar.out)" = 0 ] || fail "a lie has a receipt"
grep -q "norm inf.*is beyond" liar.out || fail "the refusal does not name norm and bound"
grep -q "weight 3.40282e+38 is beyond" liar.out || fail "the refusal does not name weight and bound"
grep -qE 'ev=refused.*peer=(atoll://e2e/site/)?c answer=invalid' serve.out || fail "the aggregator does not say whom it refused"
grep -q 'ev=abort' serve.out && fail "a round was aborted"
grep -q "ev=eval .*loss=[0-9][0-9.]* .*of=outer" a.out || fail "site a ends without a finite loss"
same_state a b

# Too loud, but not refused: the aggregator scales it down, three times, and then it is in quarantine.
rm -rf a b aggregator ./*.out
settings="--outer.clip 2"
configure a,b,c
serve
listening
lie --loud
sites_start a b
until_lines 3 "ev=clipped" serve.out
until_lines 1 "ev=quarantine site=c" serve.out
[ "$(lines "ev=clipped" serve.out)" = 3 ] || fail "quarantine after another number of clipped rounds than three"
grep "ev=clipped" serve.out | grep -qv "site=c" && fail "an honest site is clipped"
sites_end 6 a b
ends 0 "$liar_pid" "the liar"
ends 6 "$serve_pid" "the aggregator"
grep -q "hello answer=excluded" liar.out || fail "the loud site is not answered excluded"
same_state a b
settings=""

# EDiT's penalty: the loud one weighs softmax(-norm), which is nothing; all sites end with the same parameters, and the loss is that
# of sites without a loud one.
rm -rf a b aggregator ./*.out
settings="--outer.merge edit"
configure a,b,c
serve
listening
lie --loud
sites_start a b
ends_quorum "$a" "site a"
ends_quorum "$b" "site b"
ends 0 "$liar_pid" "the liar"
ends_quorum "$serve_pid" "the aggregator"
grep -qE "ev=clipped .*site=c .*factor=(0$|[0-9.]+e-)" aggregator/log.txt || fail "the loud site is not weighed down"
same_state a b
settings=""

# In strict mode the round cannot close without c: all wait, the aggregator says for whom, no process halts.
rm -rf a b aggregator ./*.out
mode=strict
configure a,b,c
serve
listening
lie
sites_start a b
until_lines 1 "ev=waiting" serve.out
grep -q "ev=waiting.*missing=c" serve.out || fail "the aggregator does not say that it waits for c"
until_lines 1 "ev=quarantine site=c" serve.out
grep -qE 'ev=refused.*peer=(atoll://e2e/site/)?c answer=invalid' serve.out || fail "the aggregator does not say whom it refused"
ends 0 "$liar_pid" "the liar" # excluded
for p in "$a" "$b" "$serve_pid"; do
    kill -0 "$p" 2>/dev/null || fail "process $p halted"
done
