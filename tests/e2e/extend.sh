#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: train.steps cannot grow between two starts; a kill -9 in the added part changes the result; a smaller
# train.steps, or one that is not the aggregator's, is accepted or refused without a word on what to do.
#   extend.sh ATOLL SCRATCH
. "$(dirname "$0")/lib.sh"
every=8
checkpoint_every=7

start() { # start STEPS: aggregator and both sites; process numbers in $serve_pid, $a, $b
    settings="$given --train.steps $1"
    serve
    train a
    a=$pid
    train b
    b=$pid
}
finish() { # finish STEPS
    start "$1"
    ends 0 "$a" "site a"
    ends 0 "$b" "site b"
    serve_ends
}
finals() { echo "$(final a) $(final b)"; }
fresh() { rm -rf a b aggregator && rm -f a.out b.out serve.out; }

# extended NAME FROM TO SETTINGS...: to FROM, on to TO undisturbed; the same with kill -9 in the second part. FROM is between two
# rounds of the period, so that the former last round is one that the period does not have.
extended() {
    name=$1 from=$2 to=$3
    shift 3
    given="$*"
    fresh
    finish "$from"
    first=$(finals)
    mkdir "keep.$name"
    cp -r a b aggregator "keep.$name/"
    finish "$to"
    plain=$(finals)
    [ ${#plain} -gt 128 ] && [ "$plain" != "$first" ] || fail "$name: nothing was trained from $from to $to"
    grep -q "ev=extended .*steps_before=$from steps=$to from_step=$from" a.out || fail "$name: site a does not say from which step the learning rate follows"
    grep -q "ev=extended .*steps_before=$from steps=$to" serve.out || fail "$name: the aggregator does not say that train.steps grew"

    fresh
    cp -r "keep.$name"/* .
    settings="$given --train.steps $to"
    serve
    train a
    a=$pid
    train b
    b=$pid
    until_lines 1 "ev=commit" serve.out
    kill -9 "$a"
    wait "$a" 2>/dev/null || :
    train a
    a=$pid
    until_lines 2 "ev=commit" serve.out
    kill -9 "$serve_pid"
    wait "$serve_pid" 2>/dev/null || :
    until_lines 1 "aggregator unreachable" b.out
    serve
    ends 0 "$a" "site a"
    ends 0 "$b" "site b"
    serve_ends
    grep -q 'site=b rank=0 level=info ev=reconnect peer=aggregator0 after_s=[0-9.]* why="aggregator unreachable: ' b.out ||
        fail "$name: site b does not say that its aggregator is back, after how long and why it was away"
    grep "ev=reconnect" serve.out | grep -qv 'ev=reconnect peer=atoll://e2e/site/[ab] after_s=[0-9.]* why="the aggregator has started anew' &&
        fail "$name: the aggregator does not say which site is back, after how long and why"
    grep "ev=reconnect" ./*.out | grep -qv "level=info" && fail "$name: an ordinary reconnect is no info"
    [ "$(finals)" = "$plain" ] || fail "$name: kill -9 in the second part: $(finals), undisturbed $plain"
    [ "$(final a | cut -d" " -f1)" = "$(final b | cut -d" " -f1)" ] || fail "$name: sites differ: $plain"
    echo "$name: $from to $to steps: ${plain%% *}"
}

configure a,b
# A first short try without a warm-up: it is a tenth of the steps there are, and no other setting once they grow.
sed -i.given '/^  warmup:/d' run.yaml
extended short 5 24 --outer.sync_every 4
"$atoll" export --from keep.short/a --out short.hf >export.out 2>&1 || fail "what a short run recorded is no configuration: $(cat export.out)"
mv run.yaml.given run.yaml
extended blocking 20 40
extended streaming 22 44 --outer.fragments 4 --outer.overlap_steps 2 --outer.codec int4
extended eager 20 44 --outer.overlap_steps 8 --outer.eager true

# Finished once more, after it was extended: no process needs another to see that.
given="--outer.overlap_steps 8 --outer.eager true"
settings="$given --train.steps 44"
before=$(final a)
train a
ends 0 "$pid" "site a, alone after the end"
[ "$(final a)" = "$before" ] || fail "started again after the end: $(final a), before $before"

# Refusals.
serve --train.steps 30 && ends 4 "$serve_pid" "the aggregator with fewer steps"
grep -q "train.steps: 30 here, 44 in .*may grow between two starts" serve.out || fail "the aggregator's refusal does not say what to do"
settings=$given
rm serve.out
serve --train.steps 60
listening # a site that is done and finds no aggregator ends as done
train b --train.steps 44
ends 4 "$pid" "a site with another train.steps than the aggregator's"
grep -q "train.steps: 44 here, 60 there; set the same value" b.out || fail "the site's refusal does not say what to do"
train b --train.steps 12
ends 4 "$pid" "a site with fewer steps than it has done"
grep -q "holds step 44, beyond train.steps = 12; set train.steps to at least 44" b.out || fail "no word on the steps that are done"
kill "$serve_pid"
