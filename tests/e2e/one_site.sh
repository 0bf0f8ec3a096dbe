#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A site that is its own aggregator takes the outer steps of the run in which the aggregator is another process, bit for bit, and
# a kill at any moment changes nothing. One fragment, and two with overlapped rounds and Muon inside.
. "$(dirname "$0")/lib.sh"

own() { # in the background, $pid; it needs no certificate
    "$atoll" train --config run.yaml --site.aggregator self --tls.dir nowhere --run.dir "$1" --data.train 'data/train-0-*.bin' \
        --log.progress none $settings >>"$1.out" 2>&1 &
    pid=$!
    processes="$processes $pid"
}

for what in blocking overlapped; do
    rm -rf a own killed aggregator data ./*.out
    steps=150 every=6 checkpoint_every=13 codec=f32
    settings="--outer.momentum 0.9"
    [ $what = blocking ] || settings="--outer.fragments 2 --outer.overlap_steps 2 --train.optimizer muon --outer.codec int8"
    configure a
    serve
    train a
    ends 0 "$pid" "site a"
    serve_ends
    wanted=$(final a)
    own own
    ends 0 "$pid" "the site that is its own aggregator"
    [ -n "$wanted" ] && [ "$(final own)" = "$wanted" ] || fail "$what: own aggregator $(final own), another process $wanted"
    own killed
    for n in 2 7 12 18; do
        until_rounds killed $n
        sleep "0.0$n"
        kill -9 "$pid" && wait "$pid" 2>/dev/null || :
        own killed
    done
    ends 0 "$pid" "the site that was killed"
    [ "$(final killed)" = "$wanted" ] || fail "$what: killed four times $(final killed), undisturbed $wanted"
    starts=$(grep -c '"kind":"start"' killed/metrics.jsonl)
    [ "$starts" -ge 3 ] || fail "only $starts starts are on record: nothing was killed on the way"
    echo "$what: $starts starts, same digests: $wanted"
done

"$atoll" train --config run.yaml --site.aggregator self --outer.sites a,b --site.name a --dry-run >refused.out 2>&1 && fail "two sites, each its own aggregator"
grep -q "site.aggregator = self is for a run of one site" refused.out || fail "no word about two sites"

# Without its aggregator it would train on without rounds, silently another run.
"$atoll" train --config run.yaml --site.aggregator= --run.dir own --data.train 'data/train-0-*.bin' $settings >alone.out 2>&1 && fail "a site continued without rounds"
grep -q "own has rounds of a site, and site.aggregator is empty" alone.out || fail "no word about the missing aggregator"

# And rounds do not begin again over the steps of a run that had none.
"$atoll" train --config run.yaml --site.aggregator= --run.dir alone --data.train 'data/train-0-*.bin' $settings >alone.out 2>&1 || fail "a site alone"
own alone
ends 4 "$pid" "rounds over steps without rounds"
grep -q "alone/inner has step 150 of a run without rounds" alone.out || fail "no word about the steps without rounds"
