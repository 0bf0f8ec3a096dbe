#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Absence is never a beginning: with a process killed and one of its files gone, in mid-run, the same command continues where it was, and
# the run ends with the SHA-256 (parameters, momentum, residuals) of the undisturbed run.
. "$(dirname "$0")/lib.sh"

steps=120 every=4 codec=int4 fragments=2 checkpoint_every=13
configure a,b
undisturbed
wanted_a=$(final a) wanted_b=$(final b)
rm -rf a b aggregator ./*.out

serve
train a
a=$pid
train b
b=$pid
lost=0
for file in aggregator/frag/0/CURRENT aggregator/epoch a/frag/0/CURRENT aggregator/journal aggregator/run.cfg a/begun aggregator/begun a/frag/1/CURRENT; do
    until_rounds b $((lost * 5 + 3))
    lost=$((lost + 1))
    case $file in
    a/*) kill -9 "$a" && wait "$a" 2>/dev/null || : ;;
    *) kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || : ;;
    esac
    [ -e "$file" ] || fail "$file is not there to be lost"
    rm "$file"
    case $file in
    a/*) train a; a=$pid ;;
    *) serve ;;
    esac
done
# A contribution that was acknowledged is gone before its round: the aggregator continues and asks the site for it again.
until_rounds b $((lost * 5 + 3))
kill -9 "$b" && wait "$b" 2>/dev/null || :
await_stands a b
rm -r aggregator/spool/*/*
train b
b=$pid
until_lines 1 "ev=payload_lost" serve.out
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"
for event in current_found term_lost journal_lost run_cfg_lost; do
    [ "$(lines "ev=$event" serve.out)" -eq 1 ] || fail "the aggregator does not say $event, once"
done
[ "$(lines "ev=current_found" a.out)" -eq 2 ] || fail "site a does not say twice that CURRENT was found again"

# A lost run.cfg is compared with the rounds that are stored, not written from other settings.
rm aggregator/run.cfg
serve --train.lr 0.02
ends 4 "$serve_pid" "an aggregator with other settings and no run.cfg"
grep -q "run.cfg is missing, and the rounds there were made with other settings" serve.out || fail "the refusal does not name run.cfg"
[ ! -e aggregator/run.cfg ] || fail "run.cfg was written from other settings"

# What cannot be known again is left to a person, with the files' names: exit code 1.
rm aggregator/epoch aggregator/journal
serve
ends 1 "$serve_pid" "an aggregator without term and journal"
grep -q "aggregator/epoch and journal: both missing or damaged" serve.out || fail "the lost files are not named"
rm a/id/site
train a
ends 1 "$pid" "a site without its identity"
grep -q "a/id/site: missing, and this directory has begun" a.out || fail "the lost file is not named"
echo "$lost files lost, same digests: $wanted_a"
