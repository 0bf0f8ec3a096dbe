#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rounds during training: two sites, kill -9 and Ctrl-C while rounds are in flight, and what is in the end has the same SHA-256
# (parameters, momentum, residuals) as the undisturbed run. Four fragments with tau 2 of 4 (two in flight), then the
# one-round delay, then the same with eager starts. In quorum mode, with applies that are late while the aggregator is away, all
# members end alike.
. "$(dirname "$0")/lib.sh"

compare() { # compare FRAGMENTS EVERY TAU STEPS [SETTINGS]
    rm -rf a b aggregator data tls ./*.out
    fragments=$1 every=$2 steps=$4 codec=int8 checkpoint_every=13
    settings="--outer.overlap_steps $3 ${5:-}"
    configure a,b
    undisturbed
    wanted_a=$(final a) wanted_b=$(final b)
    [ "${wanted_a% *}" = "${wanted_b% *}" ] || fail "sites differ: $wanted_a / $wanted_b"
    # all bytes of the run together are what was predicted; which round a byte is of is not known when two fly
    awk -F'"up":|"up_predicted":' '/"kind":"round"/ { split($2, u, ","); split($3, p, ","); up += u[1]; want += p[1] }
        END { if (up != want) { print "sent " up " bytes, predicted " want; exit 1 } }' a/metrics.jsonl || fail "bytes"
    rm -rf a b aggregator ./*.out
    disturbed 4 a int serve b serve int
    [ "$(final a)" = "$wanted_a" ] || fail "tau=$3: site a ended at $(final a), undisturbed $wanted_a"
    [ "$(final b)" = "$wanted_b" ] || fail "tau=$3: site b ended at $(final b), undisturbed $wanted_b"
    starts=$(cat a/metrics.jsonl b/metrics.jsonl | grep -c '"kind":"start"')
    [ "$starts" -ge 4 ] || fail "only $starts starts are on record: nothing was killed on the way"
    echo "P=$1 tau=$3 of $2${5:+, $5}: $killed interruptions, $starts starts of sites, same digests: $wanted_a"
}

quorum() {
    rm -rf a b c aggregator data tls ./*.out
    fragments=4 every=8 steps=56 codec=int4 checkpoint_every=13 mode=quorum straggler_timeout_s=0.5 max_local_steps_offline=3
    settings="--outer.overlap_steps 5"
    configure a,b,c
    serve
    train a
    a=$pid
    train b
    b=$pid
    train c
    c=$pid
    until_rounds b 3
    kill -9 "$a" 2>/dev/null && wait "$a" 2>/dev/null || :
    until_rounds b 9
    train a
    a=$pid
    until_rounds b 12
    kill -9 "$serve_pid" 2>/dev/null && wait "$serve_pid" 2>/dev/null || :
    sleep 1 # sites train on, more rounds fly than tau alone would have
    serve
    ends_quorum "$a" "site a"
    ends_quorum "$b" "site b"
    ends_quorum "$c" "site c"
    ends_quorum "$serve_pid" "the aggregator"
    state=$(final a) other=$(final c)
    [ -n "$state" ] && [ "${state% *}" = "${other% *}" ] || fail "quorum: sites differ: $state / $other"
    echo "quorum: three sites, one away, the aggregator away: same state: ${state%% *}"
}

# DreamDDP takes the step that hid the exchange from what the exchange brought: a site that averages with no other trains as if it
# were alone, but for the rounding of theta - (theta - local). Put in after its step, the same commit takes that step back.
kept() {
    rm -rf a aggregator data tls ./*.out
    fragments=1 every=4 steps=24 codec=f32 settings="--outer.optimizer average --outer.update_alpha 0 --outer.overlap_steps 1"
    configure a
    train a --site.aggregator ""
    ends 0 "$pid" "site a, alone"
    last_loss alone
    for before in true false; do
        rm -rf a aggregator
        serve --outer.before_update $before
        train a --outer.before_update $before
        ends 0 "$pid" "site a, before_update=$before"
        serve_ends
        last_loss $before
    done
    awk '{ of[$1] = $2 } END {
        kept = of["true"] - of["alone"]; lost = of["false"] - of["alone"]
        print "against a site alone: before the update", kept, "after it", lost
        exit !(kept * kept < 1e-8 && lost * lost > 1e-4) }' loss || fail "an update is lost, or none is"
}
last_loss() { # last_loss WORD: what a said of its last step
    sed -n 's/.*"kind":"step".*"step":'$steps',"loss":\([0-9.]*\).*/'"$1"' \1/p' a/metrics.jsonl >>loss
}

compare 4 4 2 40
compare 4 4 2 40 "--outer.before_update true"
compare 2 6 6 150
delayed=$wanted_a
compare 2 6 6 150 "--outer.eager true"
[ "$wanted_a" != "$delayed" ] || fail "eager starts change nothing"
kept
quorum
