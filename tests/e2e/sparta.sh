#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPARTA (outer.sync_fraction): each round exchanges another share of the parameters. All members end with the same outer state, also after
# kill -9; between rounds of the outer state only drawn values change; the bytes are those of the share.
. "$(dirname "$0")/lib.sh"
steps=80 every=4 codec=bf16 checkpoint_every=7
configure a,b
settings="--outer.optimizer average --outer.sync_fraction 0.1"
undisturbed
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "the sites differ: $fa / $fb"
outer=$(sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' a/metrics.jsonl | tail -n 1)
grep -q "ev=final.*$outer" serve.out || fail "the aggregator ended with another outer state than $outer"
field() { sed -n "s/.*\"kind\":\"round\".*\"$1\":\([0-9]*\).*/\1/p" a/metrics.jsonl | sed -n "$2"; }
share=$(field up 3p) whole=$(field up '$p')
[ $((share * 100)) -lt $((whole * 13)) ] && [ $((share * 100)) -gt $((whole * 9)) ] || fail "a tenth is $share bytes, all are $whole"
awk -F'"up":|"up_predicted":' '/"kind":"round"/ { split($2, u, ","); split($3, p, ","); if (u[1] > p[1]) { print; bad = 1 } } END { exit bad }' \
    a/metrics.jsonl || fail "more bytes than predicted"
[ "$(lines '"up":'"$share"',' a/metrics.jsonl)" -lt 20 ] || fail "the last round is no round of all values"
mkdir whole && mv a b aggregator whole/
rm -f ./*.out
disturbed 4 b a serve b
for s in a b; do
    [ "$(final $s)" = "$(final whole/$s)" ] || fail "site $s ends otherwise after kills: $(final $s) / $(final whole/$s)"
done

# With rounds in flight during training.
settings="$settings --outer.overlap_steps 2"
rm -rf a b aggregator ./*.out
undisturbed
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "overlapped, the sites differ: $fa / $fb"
mv whole blocking && mkdir whole && mv a b aggregator whole/
rm -f ./*.out
disturbed 5 a serve b
for s in a b; do
    [ "$(final $s)" = "$(final whole/$s)" ] || fail "overlapped, site $s ends otherwise after kills"
done
