#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The thinnest whole way: certificates, shards, an aggregator, two sites. All members must end with the same outer state; the
# report, eval, sample must work on what they leave. Once more with four fragments.
. "$(dirname "$0")/lib.sh"

run() { # run FRAGMENTS CODEC
    rm -rf a b aggregator data tls ./*.out
    fragments=$1 codec=$2
    configure a,b
    serve
    train a
    a=$pid
    train b
    ends 0 "$a" "site a"
    ends 0 "$pid" "site b"
    serve_ends
    fa=$(final a) fb=$(final b)
    [ -n "$fa" ] || fail "site a said no final digests"
    [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
    outer=$(sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' a/metrics.jsonl | tail -n 1)
    grep -q "ev=final.*$outer" serve.out || fail "the aggregator ended with another outer state than $outer"
    # what was predicted is what was counted, to the byte
    awk -F'"up":|"up_predicted":|"down":|"down_predicted":' '/"kind":"round"/ {
        split($2, u, ","); split($3, p, ","); split($4, d, ","); split($5, q, ",")
        if (u[1] != p[1] || d[1] != q[1]) { print "predicted and counted differ: " $0; bad = 1 } } END { exit bad }' \
        a/metrics.jsonl || fail "bytes"
    # and every layer of it adds up to what the kernel's sockets carried, at each end
    "$atoll" ledger a b aggregator >ledger.out 2>&1 || fail "atoll ledger"
    ! grep -q "!" ledger.out || fail "the ledger flags a difference: $(grep "!" ledger.out)"
    "$atoll" ledger --csv --by layer a b aggregator | awk -F, 'NR > 1 && ($7 != $8 || $14 != $15 || !$7 || !$14) { bad = 1 }
        END { exit bad || NR != 4 }' || fail "the ledger's payload is not what was predicted"
}

run 1 int8
"$atoll" report a b --out report.html >report.out 2>&1 || fail "atoll report"
grep -q '"name":"b","state":"done"' report.html || fail "the report misses site b"
"$atoll" eval --config run.yaml --run.dir a >eval.out 2>&1 || fail "atoll eval"
"$atoll" eval --config run.yaml --from aggregator >eval-aggregator.out 2>&1 || fail "atoll eval of the aggregator's state"
[ "$(grep loss eval.out)" = "$(grep loss eval-aggregator.out)" ] || fail "site a and the aggregator hold different models"
refused() { # refused CODE WORDS COMMAND...
    wanted=$1 words=$2 code=0
    shift 2
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" = "$wanted" ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
refused 4 "model.heads: 4 here, 2 there" "$atoll" eval --config run.yaml --from aggregator --model.heads 4
refused 4 "another outer.optimizer" "$atoll" export --config run.yaml --from aggregator --outer.optimizer sgd --out x
refused 4 "outer.partition: balanced here" "$atoll" eval --config run.yaml --from aggregator --outer.partition balanced
"$atoll" eval --config run.yaml --from aggregator --outer.lr 0.3 --outer.codec bf16 --outer.sync_every 4 >other.out 2>&1 ||
    fail "atoll eval minds how the state was trained"
[ "$(grep loss eval.out)" = "$(grep loss other.out)" ] || fail "the settings of the training change what is evaluated"
again="$atoll train --config run.yaml --site.name a --data.train data/train-0-*.bin --log.progress none"
refused 4 "/a/frag/0/.*another outer.optimizer" $again --run.dir a --outer.optimizer sgd
refused 4 "/a/frag/0/.*another outer.residual_reset" $again --run.dir a --outer.residual_reset 2
cp -r a hurt && : >hurt/frag/0/CURRENT
$again --run.dir hurt >hurt.out 2>&1 || fail "a damaged CURRENT is not found again"
cmp a/frag/0/CURRENT hurt/frag/0/CURRENT || fail "another CURRENT than before the damage"
: >hurt/frag/0/CURRENT && rm hurt/frag/0/*/MANIFEST
refused 1 "/hurt/frag/0/[0-9]*/MANIFEST: damaged; move .* away" $again --run.dir hurt
"$atoll" sample --config run.yaml --run.dir a --tokens 20 >sample.out 2>&1 || fail "atoll sample"
run 4 int4
run 2 bf16
run 1 fixed
run 1 f32
