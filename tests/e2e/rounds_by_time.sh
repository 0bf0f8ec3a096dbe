#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rounds by time (outer.sync_interval_s): two sites of unequal speed make different numbers of steps in a round. All members end with the same
# outer state, each site's books close, a killed site comes back, and repeated steps give the same bits although the clock does not.
. "$(dirname "$0")/lib.sh"
steps=600 every=150 checkpoint_every=3
configure a,b
settings="--outer.sync_interval_s 0.25 --train.checkpoint_keep 60"
serve
train a
a=$pid
train b --site.batch_scale 8
b=$pid
until_rounds b 1
sleep 0.15
kill -9 "$b" # in the middle of a round
wait "$b" 2>/dev/null || :
train b --site.batch_scale 8
b=$pid
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "the sites differ: $fa / $fb"
outer=$(sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' a/metrics.jsonl | tail -n 1)
grep -q "ev=final.*$outer" serve.out || fail "the aggregator ended with another outer state than $outer"
[ "$(lines '"kind":"round"' a/metrics.jsonl)" -eq 4 ] || fail "600 steps of at most 150 are 4 rounds"

# books SITE SHARE: the steps of its rounds are what it trained on, and their weights
books() {
    awk -v share="$2" -v site="$1" '
        function number(key) { return match($0, "\"" key "\":[-+.e0-9]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
        /"kind":"round"/ { made[number("round")] = number("trained"); weight[number("round")] = number("weight") }
/"kind":"step"/ { tokens = number("tokens") }
        END {
            for (r = 0; r < 4; r++) {
                sum += made[r]
                gap = weight[r] - share * made[r] / 150
                if (made[r] < 1 || made[r] > 150 || gap > 1e-5 || gap < -1e-5) { print site, r, made[r], weight[r]; bad = 1 }
            }
            if (tokens != sum * share * 128) { print site ": " tokens " tokens, " sum " steps"; bad = 1 }
            print sum > site ".made"
            exit bad }' "$1/metrics.jsonl" || fail "the books of site $1"
}
books a 1
books b 8
[ "$(cat b.made)" -lt "$(cat a.made)" ] || fail "the slow site made $(cat b.made) steps, the fast one $(cat a.made)"
[ "$(cat b.made)" -lt 600 ] || fail "no round of the slow site ended by time"

# Repeated from an early checkpoint, all rounds on record: the same parameters and moments; the clock is not read.
cp -r b again
last=$(ls again/inner | grep '^[0-9]' | tail -n 1)
for c in $(ls again/inner | grep '^[0-9]' | tail -n +3); do rm -r "again/inner/$c"; done
rm again/inner/CURRENT again/log.txt
"$atoll" train --config run.yaml --site.name b --run.dir again --data.train "data/train-1-*.bin" --log.progress none $settings \
    --site.batch_scale 8 >>again.out 2>&1 || fail "the repeated steps"
grep -q "round_over.*recorded=1" again/log.txt || fail "no round ended where its record says"
! grep -q "recorded=0" again/log.txt || fail "the clock ended a round that is on record"
for f in b/inner/"$last"/*; do
    cmp "$f" "again/inner/$last/${f##*/}" || fail "the repeated steps end elsewhere: ${f##*/}"
done

refused() { # refused WORDS COMMAND...
    words=$1 code=0
    shift
    "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
dry="$atoll train --config run.yaml --site.name a --dry-run --outer.sync_interval_s 5"
refused "outer.sync_interval_s = 5 needs outer.overlap_steps = 0" $dry --outer.overlap_steps 3
refused "outer.sync_interval_s = 5 needs outer.mode = strict" $dry --outer.mode quorum
refused "outer.sync_interval_s = 5 needs outer.fragments = 1" $dry --outer.fragments 2
refused "outer.sync_interval_s = 5 needs outer.interval_schedule = " $dry --outer.interval_schedule "[2, 2, 600]"
refused "outer.sync_interval_s = 5 needs outer.moment1_every and moment2_every = 0" $dry --outer.moment1_every 300
refused "outer.sync_interval_s = 5 needs train.compress = none" $dry --train.compress onebit
refused "give --outer.sync_interval_s 0" "$atoll" plan --config run.yaml --outer.sync_interval_s 5

# A system without the clock: refused, with what to do.
cat >noclock.c <<'END'
#include <errno.h>
#include <time.h>
int clock_getres(clockid_t c, struct timespec *t)
{
    (void)t;
    errno = EINVAL;
    return c == CLOCK_MONOTONIC ? -1 : 0;
}
END
if cc -shared -fPIC -o noclock.so noclock.c 2>/dev/null && ldd "$atoll" 2>/dev/null | grep -q libc && ! ldd "$atoll" | grep -q san; then
    code=0
    LD_PRELOAD=$PWD/noclock.so "$atoll" train --config run.yaml --site.name a --run.dir clockless --data.train "data/train-0-*.bin" \
        --log.progress none $settings >clockless.out 2>&1 || code=$?
    [ "$code" -ne 0 ] && grep -q "needs a clock that is never set back.*outer.sync_interval_s = 0" clockless.out || fail "exit code $code without a clock"
fi
