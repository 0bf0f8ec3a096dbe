#!/bin/sh
# The aggregator's disk is lost, three times in a run: its directory is made again from the sites', and the run ends with the
# SHA-256 (parameters, momentum, residuals) of the run that nobody disturbed.
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
echo "aggregator lost 3 times, same digests: $wanted_a"
