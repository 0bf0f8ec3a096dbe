#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libatoll, as a foreign program uses it: deploy/examples/c, compiled against the public header alone as C99, is site b of a
# run whose site a is `atoll train`. Both end with the same outer state, also after kill -9; what the library shows is atoll_* alone.
. "$(dirname "$0")/lib.sh"
library=$(cd "$(dirname "$atoll")/../lib" && pwd)
example=$repository/deploy/examples/c

# What it shows to the linker, and what the header declares.
nm -D --defined-only "$library/libatoll.so" | sed -n 's/.* [TDBR] \([^@]*\).*/\1/p' | sort >shown
sed -n 's/^[a-z].*[ *]\(atoll_[a-z]*\)(.*/\1/p' "$repository/outer/library/atoll.h" | sort >declared
cmp -s shown declared || fail "libatoll shows other names than its header declares: $(diff shown declared)"
! nm -D --undefined-only "$library/libatoll.so" | grep -qE ' (exit|signal|sigaction|fork|printf|puts)@' ||
    fail "libatoll ends the process, handles its signals or prints"

# What compiled programs rely on: names and layouts may be added at the end, and nothing else may change.
cc -std=c99 -Wall -Werror -I"$repository/outer/library" "$repository/tests/golden/abi/layout.c" -o layout || fail "layout.c does not compile"
./layout >layout.txt
cmp -s layout.txt "$repository/tests/golden/abi/layout.txt" ||
    fail "the layout of atoll.h has changed: $(diff layout.txt "$repository/tests/golden/abi/layout.txt")"
sed 's/ .*//' "$repository/tests/golden/abi/layout.txt" | grep -q atoll_options.self || fail "layout.txt is not whole"
readelf -d "$library/libatoll.so" | grep -q 'soname.*libatoll.so.0' || fail "the soname is not libatoll.so.0"

cc -std=c99 -Wall -Wextra -Werror -O2 -I"$repository/outer/library" "$example/site.c" -o site -L"$library" -latoll -lm ||
    fail "the example does not compile"
export LD_LIBRARY_PATH="$library"
free_port
sed "s/7443/$port/" "$example/run.yaml" >run.yaml
"$atoll" data --out data --sites 2 --seq-len 64 text.txt >data.out 2>&1 || fail "atoll data"
"$atoll" cert authority --run example --dir tls >cert.out 2>&1 || fail "atoll cert authority"
"$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1 || fail "atoll cert issue"
for s in a b; do "$atoll" cert issue --role site --name $s --dir tls >>cert.out 2>&1 || fail "atoll cert issue $s"; done

site_b() { ./site run.yaml text.txt site.name=b run.dir=b "$@"; }
outer_of() { sed -n 's/.*"outer":"\([0-9a-f]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

# What is wrong is said before anything is sent or written.
refused() { # refused CODE WORDS SETTING...
    wanted=$1 words=$2 code=0
    shift 2
    site_b "$@" >refused.out 2>&1 || code=$?
    [ "$code" = "$wanted" ] && grep -q "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
    [ ! -e b ] || fail "a refused site has left its directory: $*"
}
refused 4 "tensor 0 of the trainer is wte.weight (256, 32), of the run wte.weight (256, 64)" model.d_model=64
refused 4 "tensor 26 of the trainer is norm.weight (32), of the run layers.2.norm1.weight" model.layers=3
refused 4 "the trainer has 28 tensors, the run 29 (missing: head.weight)" model.tie_embeddings=false
refused 4 "tensor 1 of the trainer is wpe.weight (64, 32), of the run layers.0.norm1.weight" model.positions=rope
refused 4 "outer.sync_interval_s: rounds by time" outer.sync_interval_s=3
refused 4 "site.aggregator is missing" site.aggregator=
refused 4 "unknown key outer.evry" outer.evry=3

# A wait ends when it is asked to: without an aggregator at the start, and without site a in a round.
for absent in aggregator site; do
    rm -rf a b aggregator site.checkpoint serve.out
    [ $absent = aggregator ] || serve
    site_pid=""
    ./site run.yaml text.txt site.name=b run.dir=b >b.out 2>&1 &
    site_pid=$!
    processes="$processes $site_pid"
    if [ $absent = aggregator ]; then until_lines 1 "ev=outer_device" b.out; else until_lines 1 "ev=bound" b.out; fi
    sleep 0.5
    kill -TERM $site_pid
    ends 75 $site_pid "a site that is stopped while it waits for the $absent"
    [ $absent = aggregator ] || killed "$serve_pid"
done

run() { # run KILLS: the outer state in which both sites end
    rm -rf a b aggregator site.checkpoint
    serve
    "$atoll" train --config run.yaml --site.name a --run.dir a --data.train "data/train-0-*.bin" >a.out 2>&1 &
    a=$!
    processes="$processes $a"
    kills=0
    while [ $kills -lt "$1" ]; do
        kills=$((kills + 1))
        seen=$(rounds_of b)
        ./site run.yaml text.txt site.name=b run.dir=b >"b$kills.out" 2>&1 &
        b=$!
        processes="$processes $b"
        await "site b makes no round" '[ "$(rounds_of b)" -gt "$seen" ] || ! kill -0 $b 2>/dev/null'
        killed $b
    done
    site_b >b.out 2>&1 || fail "site b ends with $?"
    ends 0 "$a" "site a"
    serve_ends
    outer=$(outer_of a)
    [ -n "$outer" ] && grep -q "step 60, .*outer state $outer" b.out || fail "site b ends with another outer state than $outer"
}
rounds_of() { # rounds committed at a site
    ls "$1/frag/0" 2>/dev/null | grep -E '^[0-9]+$' | sort -n | tail -n 1 | grep . || echo 0
}
run 0
undisturbed=$outer
"$atoll" ledger a b aggregator >ledger.out 2>&1 || fail "atoll ledger"
! grep -q "!" ledger.out || fail "the ledger flags a difference: $(grep "!" ledger.out)"
run 3
[ "$outer" = "$undisturbed" ] || fail "kill -9 of site b changes the outer state"

# What people read of it is that of any site.
"$atoll" status a b aggregator >status.out 2>&1 || fail "atoll status"
grep -q "^b  *| done | step 60/60 .* 6/6 rounds" status.out || fail "the status of site b: $(cat status.out)"
"$atoll" report a b --out report.html >report.out 2>&1 || fail "atoll report"
grep -q '"name":"b","state":"done"' report.html || fail "the report misses site b"
