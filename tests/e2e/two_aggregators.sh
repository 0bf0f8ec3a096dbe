#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two aggregators share four fragments; one of them is killed and started again in the middle. The sites end with the very bytes
# that they end with under one aggregator. A site that confuses the two is told so.
. "$(dirname "$0")/lib.sh"

fragments=4 codec=int4 steps=48
configure a,b

serve_one() { # serve_one INDEX: its process number is in $serve_pid
    "$atoll" serve --config run.yaml $settings --serve.index "$1" --serve.dir "aggregator-$1" \
        --serve.listen "127.0.0.1:$((port + 1 + $1))" >>"serve-$1.out" 2>&1 &
    serve_pid=$!
    processes="$processes $serve_pid"
}

# one aggregator: what the end must be
serve
train a
a=$pid
train b
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
whole=$(final a)
[ -n "$whole" ] || fail "site a said no final digests"
rm -rf a b

settings="--outer.aggregators 2 --site.aggregator 127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))"
serve_one 0
first=$serve_pid
serve_one 1
train a
a=$pid
train b
b=$pid
until_rounds a 6
kill -9 "$serve_pid"
wait "$serve_pid" || :
serve_one 1
ends 0 "$a" "site a"
ends 0 "$b" "site b"
ends 0 "$first" "aggregator 0"
ends 0 "$serve_pid" "aggregator 1"
[ "$(lines "ev=listening" serve-1.out)" = 2 ] || fail "aggregator 1 was not started again"
[ "$(final a)" = "$whole" ] || fail "two aggregators end with $(final a), one with $whole"
[ "$(final b | cut -d' ' -f1,2)" = "$(echo "$whole" | cut -d' ' -f1,2)" ] || fail "the sites differ"
grep -q "ev=final.*fragment=2" serve-0.out || fail "aggregator 0 did not keep fragment 2"
grep -q "ev=final.*fragment=3" serve-1.out || fail "aggregator 1 did not keep fragment 3"
! grep -q "ev=final.*fragment=3" serve-0.out || fail "aggregator 0 kept fragment 3"

# each holds its share of the model alone
for from in "aggregator-0 1, 3" "aggregator-1 0, 2"; do
    code=0
    "$atoll" eval --config run.yaml $settings --from "${from%% *}" >share.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q "${from%% *} .*no rounds of fragments ${from#* };.*site's run directory" share.out ||
        fail "atoll eval took a share of the model: exit code $code"
done
code=0
"$atoll" eval --config run.yaml --from aggregator-0 >share.out 2>&1 || code=$?
[ "$code" = 4 ] && grep -q "outer.aggregators: 1 here, 2 there" share.out || fail "a share of the model, exit code $code"
"$atoll" eval --config run.yaml $settings --from a >eval.out 2>&1 || fail "atoll eval of a site's directory"

# the ledgers of all, one of them with a killed process; and twice the same one
"$atoll" ledger a b aggregator-0 aggregator-1 >ledger.out 2>&1 || fail "atoll ledger of two aggregators"
grep -q "^aggregator 0 of run" ledger.out && grep -q "^aggregator 1 of run" ledger.out || fail "the aggregators are not told apart"
cp -r aggregator-0 aggregator-copy
code=0
"$atoll" ledger aggregator-0 aggregator-copy >twice.out 2>&1 || code=$?
[ "$code" = 4 ] && grep -q "both of aggregator 0" twice.out || fail "one aggregator twice: exit code $code"
cat aggregator-0/ledger.jsonl aggregator-0/ledger.jsonl >aggregator-copy/ledger.jsonl
code=0
"$atoll" ledger aggregator-copy >twice.out 2>&1 || code=$?
[ "$code" = 1 ] && grep -q "rows are there twice" twice.out || fail "a ledger's lines twice: exit code $code"

# a list that names the first one twice
rm -rf a aggregator-0
serve_one 0
until_lines 2 "ev=listening" serve-0.out
settings="--outer.aggregators 2 --site.aggregator 127.0.0.1:$((port + 1)),127.0.0.1:$((port + 1))"
train a
ends 4 "$pid" "a site with a wrong list"
grep -q "this is aggregator 0" a.out || fail "the site was not told which aggregator it reached: $(tail -n 3 a.out)"
kill "$serve_pid"
wait "$serve_pid" || :

# a directory of the other's
code=0
"$atoll" serve --config run.yaml $settings --serve.index 0 --serve.dir aggregator-1 --serve.listen 127.0.0.1:$((port + 1)) \
    >wrong.out 2>&1 || code=$?
[ "$code" = 4 ] && grep -q "its own directory" wrong.out || fail "an aggregator took the directory of another: exit code $code, $(cat wrong.out)"
