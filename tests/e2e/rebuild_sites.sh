#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: an aggregator whose disk is lost cannot be rebuilt from the running sites. Three times in a run its
# directory is wiped and it is started with --rebuild-from-sites, while the sites run on; once it is killed in the middle of that. The
# run ends with the SHA-256 (parameters, momentum, residuals) of the undisturbed run (docs/protocol.md 3.5).
. "$(dirname "$0")/lib.sh"

steps=120 every=4 codec=int4 fragments=2 checkpoint_every=13
configure a,b
undisturbed
wanted_a=$(final a) wanted_b=$(final b)
rm -rf a b aggregator ./*.out

serve
sites_start a b
for lost in 1 2 3; do
    until_rounds b $((lost * 9 - 6))
    killed "$serve_pid"
    rm -rf aggregator
    if [ $lost -eq 2 ]; then # one site alone is not more than half; and the attempt is lost too
        kill -STOP "$b"
        serve --rebuild-from-sites
        until_lines 2 "ev=rebuilding" serve.out
        until_lines 2 "ev=supplied site=a" serve.out
        killed "$serve_pid"
        kill -CONT "$b"
        [ ! -e aggregator/begun ] || fail "an aggregator began with the states of one site of two"
    fi
    serve --rebuild-from-sites
    until_lines $((lost + 1)) "ev=listening" serve.out
done
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"
[ "$(lines "ev=rebuilt" serve.out)" -ge 6 ] || fail "the aggregator does not say what it took"
[ ! -e aggregator/supply ] || fail "what the sites sent is left in the directory"
code=0
"$atoll" serve --config run.yaml --rebuild-from-sites >refused.out 2>&1 || code=$?
[ "$code" -eq 4 ] && grep -qF "aggregator has begun; a rebuild needs an empty serve.dir" refused.out ||
    fail "exit code $code from a rebuild of a directory that has begun: $(cat refused.out)"
"$atoll" ledger a b >ledger.out 2>&1 || fail "atoll ledger: $(cat ledger.out)"

# Right after the start there is little to send, perhaps nothing but what was heard of the aggregator.
rm -rf a b aggregator ./*.out
serve
sites_start a b
# a site without a state has none to send
await "no site begins" '[ -e a/begun ] && [ -e b/begun ]'
killed "$serve_pid"
rm -rf aggregator
serve --rebuild-from-sites
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "lost at the start: site a ended at $(final a), undisturbed $wanted_a"
echo "aggregator lost 3 times, rebuilt by the running sites, same digests: $wanted_a"
