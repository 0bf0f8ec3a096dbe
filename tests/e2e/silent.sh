#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: sites that offer a contribution and then send nothing keep the others out. Two of five sites stop in
# the middle of their contributions, on an aggregator that receives two at a time: a slot is given to the next site once its holder has
# sent nothing for the deadline, the aggregator names both sites, and the other three continue as a quorum.
. "$(dirname "$0")/lib.sh"
steps=16
mode=quorum
straggler_timeout_s=12 # the first ev=waiting comes after 10 s
configure a,b,c,d,e
serve --serve.receive_mib 76 # two streams at a time
until_lines 1 "ev=listening" serve.out
for site in d e; do
    train $site --site.rate_up 0.01
    eval "$site=$pid"
done
until_lines 2 "ev=site_bound" serve.out
# A part of each contribution is there: its stream is open. Then the process is frozen, and its connection stays.
for site in d e; do
    await "no contribution of site $site is under way" 'ls aggregator/spool/0/0/$site.*.part >/dev/null 2>&1'
done
kill -STOP "$d" "$e"
running=""
for site in a b c; do
    train $site
    running="$running $pid"
done
for p in $running; do ends 6 "$p" "a site of the quorum"; done # without the last work of two sites
grep -q 'without 2 of 5 sites (d, e): what they trained' a.out || fail "site a does not say whose work is missing"
for site in d e; do
    grep -q "ev=waiting .*missing=$site owes=contribution bound=1 heard=[0-9]*s_ago .*the others wait for site $site" serve.out || fail "the aggregator does not say that it waits for $site"
done
grep -q "ev=receive_slot site=[de] .*held=1 of=2 waiting=[1-3] .*sends nothing; its slot goes to the next site" serve.out ||
    fail "no silent site loses its slot"
[ "$(lines "sites=3/5" serve.out)" -eq 2 ] || fail "the quorum of three did not continue"
fa=$(final a) fb=$(final b) fc=$(final c)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] && [ "${fa% *}" = "${fc% *}" ] || fail "sites differ: $fa / $fb / $fc"
echo "two silent sites of five: $(grep -o 'ev=receive_slot.*waiting=[0-9]*' serve.out | tr '\n' ';')"
