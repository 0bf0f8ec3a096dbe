#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# More connections than the aggregator may have descriptors, none of which says anything, from the sites' own address: sites
# still join, the probe still gets its answer, the run ends. Then no process answers, and the probe says so.
. "$(dirname "$0")/lib.sh"

flood() { # flood COUNT: holds COUNT connections to the aggregator
    bash -c "ulimit -S -n \$(ulimit -H -n) 2>/dev/null
        for i in \$(seq $1); do { exec {fd}<>/dev/tcp/127.0.0.1/$port; } 2>/dev/null || :; done
        echo open; exec sleep 30000" >>flood.out 2>&1 &
    processes="$processes $!"
}

configure a,b
whole=$atoll
printf '#!/bin/sh\nulimit -n 256\nexec "%s" "$@"\n' "$whole" >few
chmod +x few
atoll=$PWD/few
serve
atoll=$whole
until_lines 1 "ev=listening" serve.out
flood 1100
until_lines 1 open flood.out
# The last of them still wait to be accepted: what comes with them may be dropped, and comes again.
await "doctor --aggregator as a site" '"$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls --certificate a >doctor.out 2>&1'
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls >doctor.out 2>&1 || fail "doctor --aggregator as the aggregator"
grep -q "aggregator yes: .*atoll://e2e/aggregator/aggregator" doctor.out || fail "the probe does not say who answers"
train a
a=$pid
flood 300
train b
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
code=0
"$atoll" doctor --aggregator "127.0.0.1:$port" --tls tls >doctor.out 2>&1 || code=$?
[ "$code" = 2 ] || fail "the probe of an aggregator that is away ends with $code"
