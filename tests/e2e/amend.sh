#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a setting that an operator amends in mid-run is not in force at the same round everywhere, or is
# forgotten by a process that is killed, or a second run with the same amendments ends with other bits (docs/protocol.md 3.17).
# The outer momentum warms up and cools down meanwhile: it is one function of a round, before and after amendments, kills, a rebuild.
#   tests/e2e/amend.sh ATOLL SCRATCH               the blocking exchange
#   tests/e2e/amend.sh ATOLL SCRATCH --overlap     with overlap, of two fragments; no rebuild
. "$(dirname "$0")/lib.sh"

set_to() { # set_to KEY VALUE [ARGUMENTS]: must be taken
    operator set "$@" || fail "operator set $*"
}
set_all_later() { # after the one of outer.sync_every, from round $from on
    set_to outer.lr 0.4 --at-round $((from + 1))
    set_to train.lr 0.02 --at-round $((from + 1))
    set_to train.steps 110 --at-round $((from + 2))
    set_to outer.codec f32 --at-round $((from + 2))
    set_to data.weights 1,3 --at-round $((from + 2))
    [ $overlap = 0 ] || set_to outer.overlap_steps 5 --at-round $((from + 2))
}
refused() { # refused WORDS KEY VALUE [ARGUMENTS]: must not be, and the answer has these words
    words=$1
    shift
    operator set "$@" && fail "operator set $* is taken"
    grep -qF -- "$words" operator.out || fail "operator set $*: the refusal does not say: $words"
}
again() { # again SITE...: killed and started again
    for who in "$@"; do
        eval "old=\$$who"
        kill -9 "$old" 2>/dev/null && wait "$old" 2>/dev/null || :
        sites_start "$who"
    done
}
serve_again() {
    kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
    serve
    until_lines "$1" "ev=listening" serve.out
}

steps=${steps:-96} every=8 checkpoint_every=13
settings="--run.archive on --data.train data/train-0-*.bin,data/train-1-*.bin --data.weights 3,1"
overlap=0
[ "${3:-}" != --overlap ] || overlap=2 fragments=2
settings="$settings --outer.overlap_steps $overlap --outer.momentum_warmup 4 --outer.momentum_start 0.5"
settings="$settings --outer.momentum_cooldown 3 --outer.momentum_end 0.25"
configure a,b
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
serve
listening
sites_start a b
until_rounds a 2
kill -STOP "$b" # no round is committed meanwhile
refused "changes the shape" model.layers 6
refused "roster add" outer.sites a,b,c
refused "each process's own" log.level debug
refused "unknown key outer.lrr; the nearest is outer.lr" outer.lrr 0.5
refused "allowed is a whole number from 1" outer.sync_every 0
refused "too near" outer.sync_every 12 --at-round 1
refused "the run has" outer.sync_every 12 --at-round 9999
refused "before the border" train.steps 10
refused "has 3 items and data.train 2" data.weights 1,1,1
set_to outer.sync_every 12
from=$(sed -n 's/.* from round \([0-9]*\) on.*/\1/p' operator.out)
set_to outer.sync_every 12
grep -q "amendment 1: outer.sync_every=12 from round $from on" operator.out || fail "asked twice, it is another amendment"
serve_again 2
set_all_later
[ $overlap != 0 ] || refused "blocking exchange" outer.overlap_steps 5
refused "each restart and each aggregator reads it" outer.mode quorum
operator set --list || fail "operator set --list"
for line in "number=1 from_round=$from state=pending .* outer.sync_every=12" "number=2 .* outer.lr=0.4" "number=3 .* train.lr=0.02" \
    "number=4 .* train.steps=110" "number=5 .* outer.codec=f32" "number=6 .* data.weights=1,3"; do
    grep -q "^$line\$" operator.out || fail "the list does not say: $line"
done
again a b
until_rounds a $((from + 1))
again a
until_lines $((from + 1)) "ev=commit" serve.out
serve_again 3
again b
sites_end 0 a b
serve_ends
same_state a b
grep -q '"step":110,' a/metrics.jsonl || fail "site a did not train to step 110"
grep -q '"outer_lr":0.4[0,]' aggregator/metrics.jsonl || fail "the record of no round has the amended outer rate"
momenta=$(sed -n 's/.*"fragment":0,"round":\([0-9]*\),.*"outer_momentum":\([0-9.]*\),.*/\1 \2/p' aggregator/metrics.jsonl)
echo "$momenta" | awk '$1 < 4 { warm++; off = $2 - 0.5 - 0.1 * $1; wrong += off < -1e-6 || off > 1e-6 } { last = $2 }
    END { exit !(warm > 1 && !wrong && last == 0.25) }' || fail "the outer momentum of the rounds on record: $momenta"
for s in a b; do
    grep -q "ev=amendment number=1 setting=.*outer.sync_every=12" $s.out || fail "site $s does not say that a setting was amended"
done
cat a.out b.out | grep -q "ev=resync" && fail "a site had another state than the aggregator"
"$atoll" status a b aggregator >status.out || fail "atoll status"
[ "$(grep -c "step 110/110 .* \([0-9]*\)/\1 rounds" status.out)" -eq 2 ] && grep -q "^aggregator done, \([0-9]*\) of \1 rounds" status.out ||
    fail "the length of the amended run: $(cat status.out)"
"$atoll" status aggregator >status.out || fail "atoll status"
[ "$(grep -c "step 110/110 .* \([0-9]*\)/\1 rounds" status.out)" -eq 2 ] || fail "the length of the amended run: $(cat status.out)"
wanted_a=$(final a) wanted_b=$(final b)
# 4 samples a step: 3 to 1 up to the border, 1 to 3 after it.
border=$((8 * from + 12 * 2)) # round 0 to from - 1 have 8 steps
for s in a b; do
    counts=$(sed -n "s/.*\"kind\":\"source\".*\"step\":110,.*\"examples\":\([0-9]*\).*/\1/p" $s/metrics.jsonl | tail -n 2 | paste -sd ' ')
    [ "$counts" = "$((3 * border + 110 - border)) $((border + 3 * (110 - border)))" ] || fail "site $s: $counts samples of each source"
done
replayed() { # from the archive: the settings of each round follow from the manifests
    "$atoll" replay "$@" >replay.out 2>&1 || fail "atoll replay $*: $(cat replay.out)"
    grep -q "outer state at the end: $(sed -n 's/.*ev=final outer_state=//p' serve.out)" replay.out ||
        fail "atoll replay $* ends with another state: $(cat replay.out)"
}
replayed aggregator
replayed a b

amended_from_start() {
    rm -rf a b aggregator ./*.out
    serve
    listening
    set_to outer.sync_every 12 --at-round "$from"
    set_all_later
}

# The same amendments from the start, and no process is killed.
amended_from_start
sites_start a b
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "the second run of site a ended at $(final a), the first at $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "the second run of site b ended at $(final b), the first at $wanted_b"
replayed aggregator

if [ $overlap != 0 ]; then
    echo "amended from round $from on, with overlap, same digests: $wanted_a"
    exit 0
fi

# As many amendments as a run can have (the straggler timeout changes no bit of a strict run), and the aggregator's directory is
# lost, and rebuilt from the sites': it has the amendments that their manifests carry.
amended_from_start
number=6
while [ $number -lt 64 ]; do
    number=$((number + 1))
    set_to outer.straggler_timeout_s $number
    few="; a run has 64 amendments at most, $((64 - number)) are left"
    case $number in
    55) ! grep -q "are left" operator.out || fail "a warning of few amendments too early: $(cat operator.out)" ;;
    56 | 64) grep -q "^amendment $number: .*$few" operator.out || fail "no warning of few amendments: $(cat operator.out)" ;;
    esac
done
refused "64 amendments were made, no more are possible. End the run" outer.straggler_timeout_s 65
set_to outer.straggler_timeout_s 64 # asked twice, it is no further one
operator set --list && grep -q "^amendments=64 left=0 " operator.out || fail "operator set --list: $(cat operator.out)"
[ "$(sed -n 's/^number=\([0-9]*\) .* by=[0-9a-f]* [a-z_.]*=[0-9a-z.,]*$/\1/p' operator.out | paste -sd ' ')" = "$(seq 64 -1 1 | paste -sd ' ')" ] ||
    fail "the list has not each of 64 amendments: $(cat operator.out)"
sites_start a b
until_rounds b 2
for p in $serve_pid $a $b; do kill -9 "$p" && wait "$p" 2>/dev/null || :; done
rm -rf aggregator serve.out
serve --rebuild a,b
listening
sites_start a b
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "after the loss of the aggregator site a ended at $(final a), before at $wanted_a"

# What a configuration is warned of at a start, an amendment is warned of. Site b has no mixture: it keeps its weights, and its report
# says so.
rm -rf a b aggregator ./*.out
settings="" steps=24 every=4
configure a,b
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
serve
listening
set_to outer.codec topk --at-round 3
grep -q "^WARNING: outer.momentum = 0.9 with a codec whose residual acts as a momentum" operator.out || fail "no warning: $(cat operator.out)"
grep -q "ev=amendment number=1 why=.*acts as a momentum" serve.out || fail "the aggregator's log does not warn"
set_to data.weights 1,3 --at-round 3
grep -q "^WARNING: .* a site whose mixture has not 2 sources keeps its weights" operator.out || fail "no warning: $(cat operator.out)"
train a --data.train "data/train-0-*.bin,data/train-1-*.bin" --data.weights 3,1
a=$pid
sites_start b
sites_end 0 a b
serve_ends
same_state a b
words="amendment 2 has 2 weights, and this site's mixture 0 sources"
grep -q "ev=mixture setting=.*$words" b.out || fail "site b does not say that it keeps its weights"
! grep -q "$words" a.out || fail "site a says that it keeps its weights"
"$atoll" report a b --out report.html >report.out 2>&1 || fail "atoll report"
grep -q "amendment 2 has 2 weights" report.html || fail "the report does not say that site b keeps its weights"
echo "amended from round $from on, same digests: $wanted_a"
