#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The aggregator's disk is lost, three times in a run: its directory is rebuilt from the sites', and the run ends with the
# SHA-256 (parameters, momentum, residuals) of the undisturbed run.
. "$(dirname "$0")/lib.sh"

steps=120 every=4 codec=int4 fragments=2 checkpoint_every=13
configure a,b
undisturbed
wanted_a=$(final a) wanted_b=$(final b)
rm -rf a b aggregator ./*.out

killed() { # killed PROCESS
    kill -9 "$1" && wait "$1" 2>/dev/null || :
}

refused() { # refused CODE WORDS DIRECTORIES
    code=0
    "$atoll" serve --config run.yaml --rebuild "$3" >refused.out 2>&1 || code=$?
    [ "$code" -eq "$1" ] && grep -qF -- "$2" refused.out || fail "exit code $code without \"$2\" from --rebuild $3: $(cat refused.out)"
}

serve
sites_start a b
for lost in 1 2 3; do
    until_rounds b $((lost * 9 - 6))
    killed "$serve_pid"
    rm -rf aggregator
    [ $lost -gt 1 ] || refused 4 "a process works in a" a,b # they still run
    killed "$a"
    killed "$b"
    if [ $lost -eq 1 ]; then
        refused 4 "1 directories of 2 sites; more than half" a
        cp -r a a.copy
        refused 4 "a and a.copy are both of site a" a,a.copy
        refused 4 "a is given twice" a,b,a
        refused 4 "there is no directory c" a,c
        refused 4 "data is not the run.dir of a site" a,data
    fi
    serve --rebuild a,b
    until_lines $((lost + 1)) "ev=listening" serve.out
    sites_start a b
done
sites_end 0 a b
serve_ends
[ "$(final a)" = "$wanted_a" ] || fail "site a ended at $(final a), undisturbed $wanted_a"
[ "$(final b)" = "$wanted_b" ] || fail "site b ended at $(final b), undisturbed $wanted_b"
[ "$(lines "ev=rebuilt" serve.out)" -ge 6 ] || fail "the aggregator does not say what it took"
refused 4 "aggregator has begun; a rebuild needs an empty serve.dir" a,b

# Two histories: site a's directory is of a run that another aggregator has led.
rm -rf a b aggregator ./*.out
serve
train b
b=$pid
train a --data.train "data/train-1-*.bin"
until_rounds b 8
killed "$serve_pid"
killed "$pid"
killed "$b"
rm -rf aggregator
refused 1 "two aggregators have served this run" a.copy,b
refused 1 "two aggregators have served this run" b,a.copy

# Directories of a run of the same name under another authority: their manifests are signed, and not by this run's aggregator.
rm -rf a b aggregator ./*.out
mv tls tls-first
"$atoll" cert authority --run e2e --dir tls >cert.out 2>&1
"$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1
for s in a b; do "$atoll" cert issue --role site --name $s --dir tls >>cert.out 2>&1; done
serve
train a
a=$pid
train b
b=$pid
until_rounds b 4
killed "$serve_pid"
killed "$a"
killed "$b"
rm -rf aggregator
mv tls tls-second && mv tls-first tls
refused 2 "is not signed by an aggregator of this run" a,b
rm -rf aggregator tls && mv tls-second tls
# and the aggregator's key was lost with its disk: the sites have kept its certificate
"$atoll" cert renew tls/aggregator.pem --dir tls --revoke >>cert.out 2>&1 || fail "atoll cert renew --revoke"
serve --rebuild a,b
until_lines 2 "ev=listening" serve.out
[ "$(lines "ev=rebuilt" serve.out)" -ge 2 ] || fail "nothing was rebuilt with a new identity key of the aggregator"
killed "$serve_pid"
echo "aggregator lost 3 times, same digests: $wanted_a"
