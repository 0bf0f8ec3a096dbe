#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# site.outer_state = sharded: three ranks of site a hold fragments of the outer state each, next to a site of one rank. The result
# is that of the same ranks with all of it at the lead, bit for bit, blocking and overlapped, after a killed rank and a killed
# aggregator; the directory goes from three ranks to two, and to one that holds all, which supplies an aggregator that lost its own.
. "$(dirname "$0")/lib.sh"
needs_mpi
mpi_leaks
steps=32 every=8 fragments=4
configure a,b
sed -i "s/batch_tokens: 128/batch_tokens: 192/" run.yaml # a multiple of three sequences, and of two
# ranks N [--section.key value ...]: site a
ranks() {
    number=$1 a_starts=$(lines "ev=start " a.out)
    shift
    mpirun -n "$number" sh -c "$to_file" rank a.out "$atoll" train --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' \
        --log.progress none $settings "$@" >>a.out 2>&1 &
    a=$!
    processes="$processes $a"
}
ended() {
    ends 0 "$a" "site a"
    ends 0 "$b" "site b"
    serve_ends
    same_state a b
}
outer() { sed -n 's/.*"kind":"final".*"outer":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
payload() { sed -n 's/.*"kind":"round".*"fragment":\([0-9]*\),"round":\([0-9]*\),.*"up":\([0-9]*\),"up_predicted":\([0-9]*\),"down":\([0-9]*\),.*/\1 \2 \3 \4 \5/p' "$1/metrics.jsonl" | sort -n; }

refused() { # WORDS ARGUMENTS
    words=$1
    shift
    "$atoll" train --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' --dry-run \
        --site.outer_state sharded "$@" >refused.out 2>&1 && fail "taken: $*"
    grep -qF "site.outer_state = sharded with $words" refused.out || fail "$*: no word about $words"
}
refused "site.aggregator = self" --site.aggregator self --outer.sites a
refused "privacy.secure" --privacy.secure sum
refused "privacy.unit" --privacy.unit sequence --privacy.noise_multiplier 1
refused "run.archive" --run.archive on
# In turn; overlapped; and all after the same step, where the ranks exchange side by side.
together="--outer.partition slices --outer.slices embed@8,0-1@8,2@8,3-final@8"
for settings in "" "--outer.overlap_steps 2 --outer.state_digest leaves --train.zero_stage 3" "$together"; do
    new_run
    ranks 3
    ended
    whole=$(final a) whole_outer=$(outer a) whole_payload=$(payload a)
    [ -n "$settings" ] || plain=$whole

    new_run
    ranks 3 --site.outer_state sharded
    ended
    [ "$(final a)" = "$whole" ] || fail "sharded: $(final a), at the lead: $whole"
    [ "$(outer a)" = "$whole_outer" ] || fail "outer state: sharded $(outer a), at the lead: $whole_outer"
    [ "$(payload a)" = "$whole_payload" ] || fail "bytes of the rounds: sharded $(payload a), at the lead: $whole_payload"
    [ -e a/id/rank.1.site ] && [ -e a/id/rank.2.site ] || fail "the other ranks took no part"

    new_run
    ranks 3 --site.outer_state sharded
    until_rounds b 5
    of_a=$(pgrep -P "$a") # the ranks, in the order of their start
    killed "$(echo "$of_a" | tail -n 1)" # not the lead
    wait "$a" 2>/dev/null || :
    await "the ranks of site a do not end" '! ps -o stat= -p "$(echo $of_a | tr " " ,)" | grep -qv Z' # mpirun may end before them
    ranks 3 --site.outer_state sharded
    until_rounds b 10
    killed "$serve_pid"
    serve
    ended
    [ "$(final a)" = "$whole" ] || fail "after kills: $(final a), undisturbed: $whole"
    [ "$(outer a)" = "$whole_outer" ] || fail "outer state after kills: $(outer a), undisturbed: $whole_outer"
done

settings=""
new_run
stop() { # ROUNDS of b: site a is stopped
    until_rounds b "$1"
    kill -STOP "$b" # without it site a cannot end before the signal arrives
    until_lines $((a_starts + 1)) "ev=start " a.out # b's rounds may be of what a former site a sent; earlier the signal would kill it
    kill -USR1 "$a"
    ends 75 "$a" "site a after SIGUSR1"
    kill -CONT "$b"
}
ranks 3 --site.outer_state sharded
stop 4
ranks 2 --site.outer_state sharded
stop 8
ranks 1
ended

# The aggregator's directory is lost. No rank has all that a rebuild needs; the lead that takes up the directory has.
new_run
ranks 3 --site.outer_state sharded
until_rounds b 5
killed "$serve_pid"
rm -rf aggregator
serve --rebuild-from-sites
until_lines 1 "start this site with site.outer_state = lead until the aggregator is back" a.out
wait "$a" && fail "site a continues without its aggregator"
ranks 3
stop 9
ranks 3 --site.outer_state sharded
ended
[ "$(final a)" = "$plain" ] || fail "rebuilt by a site whose ranks hold fragments: $(final a), undisturbed: $plain"

# A quorum: site a comes when the rounds that it missed are kept no longer, loses the aggregator, and takes an
# amendment that the manifests of each rank's fragments bring.
mode=quorum history_rounds=2 max_local_steps_offline=8 straggler_timeout_s=0.2 steps=96
configure a,b,c
sed -i "s/batch_tokens: 128/batch_tokens: 192/" run.yaml
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
new_run
rm -rf c
train c
c=$pid
until_rounds b 13
ranks 2 --site.outer_state sharded
until_rounds a 5
operator set outer.codec int4 || fail "operator set outer.codec"
killed "$serve_pid"
until_lines 1 "aggregator unreachable" a.out
serve
ends_quorum "$a" "site a"
ended_a=$code
ends_quorum "$b" "site b"
[ "$ended_a" -eq "$code" ] || fail "site a ended with exit code $ended_a, site b, which saw the same last rounds, with $code"
ends_quorum "$c" "site c"
ends_quorum "$serve_pid" "the aggregator"
same_state a b c
grep -q "ev=amendment .*outer.codec=int4" a.out || fail "the amendment did not reach site a"
