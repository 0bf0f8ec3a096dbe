#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this is wrong: a site whose rank was killed, stopped or never started hangs, or ends without a word about which; a
# stranger at rank 0's port holds a site up; an orderly end is taken for a loss. Arguments: the program `calls`, a scratch directory.
set -eu
calls=$1 dir=$2
rm -rf "$dir"
mkdir -p "$dir"
cd "$dir"
processes=""
# Only children of this script: the number of one that has ended may be that of a process of another test by now.
trap 'for p in $processes; do ! grep -qs "^PPid:[[:space:]]*$$\$" "/proc/$p/status" || kill -9 "$p" 2>/dev/null || :; done' EXIT
fail() {
    echo "FAILED: $*"
    tail -n 5 ./*.out
    exit 1
}
port=$((11000 + $$ % 20000))
new() { # a new case: another port, no old output
    port=$((port + 1))
    name=$1
    rm -f ./*.out
}
start() { # start CASE RANK SIZE [SECONDS]: in the background; its number is in $pid
    "$calls" "$1" "$2" "$3" $port ${4:-} >"$2.out" 2>&1 &
    pid=$!
    processes="$processes $pid"
}
all() { # all CASE SIZE [SECONDS]: numbers in $p0 $p1 $p2
    start "$1" 0 "$2" ${3:-}
    p0=$pid
    start "$1" 1 "$2" ${3:-}
    p1=$pid
    [ "$2" -lt 3 ] || start "$1" 2 "$2" ${3:-}
    p2=$pid
}
there() { # until these ranks are there
    for r in "$@"; do
        tries=0
        until grep -q "is there" "$r.out" 2>/dev/null; do
            sleep 0.02
            tries=$((tries + 1))
            [ $tries -lt 500 ] || fail "$name: rank $r does not come"
        done
    done
}
ends() { # ends CODE PROCESS
    code=0
    wait "$2" || code=$?
    [ $code = "$1" ] || fail "$name: exit code $code, not $1"
}
says() { grep -q "$2" "$1.out" || fail "$name: rank $1 does not say \"$2\""; }
within() { # within SECONDS: since the last `at`
    [ $(($(date +%s) - at)) -le "$1" ] || fail "$name: took $(($(date +%s) - at)) s"
}

new "all ranks leave in good order"
all closes 3
for p in $p0 $p1 $p2; do ends 0 "$p"; done
if grep -q rank_lost ./*.out; then fail "$name: a rank was missed"; fi

for victim in 2 0; do
    new "rank $victim is killed"
    all stays 3
    there 0 1 2
    at=$(date +%s)
    eval "kill -9 \$p$victim"
    ends 2 "$p1"
    [ $victim = 0 ] || ends 2 "$p0"
    [ $victim = 2 ] || ends 2 "$p2"
    within 2
    says 1 "rank $victim of 3 ended without a word"
    says 1 "continues from its last checkpoint"
done

new "a rank ends with an error"
all aborts 3
ends 4 "$p0"
ends 4 "$p1"
ends 4 "$p2"
says 0 "rank=2 ranks=3 why=\"its disk is full\""
says 1 "rank=2 ranks=3 why=\"its disk is full\""

new "a rank is stopped"
all stays 3 2
there 0 1 2
kill -STOP "$p1"
at=$(date +%s)
ends 2 "$p0"
ends 2 "$p2"
within 4
says 0 "rank 1 of 3 has been silent"
says 2 "rank 1 of 3 has been silent"
kill -CONT "$p1"
ends 2 "$p1"

new "a rank never comes"
start stays 0 3 1
p0=$pid
start stays 1 3 1
p1=$pid
ends 2 "$p0"
ends 2 "$p1"
says 0 "1 of 3 ranks did not come to 127.0.0.1:$port within 1 s: 2"
says 1 "rank 0 gave up waiting"

new "rank 0 never comes"
start stays 1 2 1
ends 2 "$pid"
says 1 "rank 1 of 2 did not find rank 0 at 127.0.0.1:$port within 1 s"

new "two processes are one rank"
start stays 0 3
p0=$pid
start stays 1 3
p1=$pid
start stays 1 3
p2=$pid
ends 4 "$p0"
says 0 "a second process is rank 1"
ends 2 "$p1"
ends 2 "$p2"

new "strangers at the port"
start closes 0 2
p0=$pid
start strangers 5 2
there 5
at=$(date +%s)
start echo 6 2
ends 0 "$pid"
start other 1 2 2
p1=$pid
sleep 0.3
start closes 1 2
ends 0 "$pid"
ends 0 "$p0"
within 2
ends 2 "$p1"

new "the whole job is stopped for a while"
all stays 3 1
there 0 1 2
kill -STOP "$p0" "$p1" "$p2"
sleep 2
kill -CONT "$p0"
kill -CONT "$p1" "$p2"
sleep 0.5
for p in $p0 $p1 $p2; do kill -0 "$p" 2>/dev/null || fail "$name: it ended"; done
kill -9 "$p1"
ends 2 "$p0"
ends 2 "$p2"
says 2 "rank 1 of 3 ended without a word"

# ---- NCCL ----
new "sums"
all sums 3
for p in $p0 $p1 $p2; do ends 0 "$p"; done

new "a rank does not come to a sum"
export FAKE_HOST_AHEAD=1
all late 2 1
ends 2 "$p0"
says 0 "rank 0 of 2: a step did not end within 1 s; another rank of this site is stopped"
ends 2 "$p1"

new "suspended in a sum"
all late 2 2
there 0 1
sleep 0.3
kill -STOP "$p0"
sleep 4 # rank 1 comes 5 s late, of which these do not count
kill -CONT "$p0"
ends 0 "$p0"
ends 0 "$p1"

new "a rank is gone, and the network tells"
export FAKE_NCCL_REPORTS=1
all leaves 2
ends 2 "$p0"
says 0 "remote process exited or there was a network error"
says 0 "rank 1 closed its connection"
ends 137 "$p1"
unset FAKE_NCCL_REPORTS FAKE_HOST_AHEAD

new "more ranks than GPUs"
export FAKE_GPUS=2
all opens 3
ends 4 "$p2"
kill -9 "$p0" "$p1"
says 2 "rank 2 is number 2 on its host, which shows 2 GPUs"

new "each rank sees one GPU, its own"
export FAKE_GPUS=1
CUDA_VISIBLE_DEVICES=4 start opens 0 2
p0=$pid
CUDA_VISIBLE_DEVICES=5 start opens 1 2
ends 0 "$pid"
ends 0 "$p0"
says 1 "rank 1 has GPU 0"

new "two ranks on one GPU"
CUDA_VISIBLE_DEVICES=4 start opens 0 2
p0=$pid
CUDA_VISIBLE_DEVICES=4 start opens 1 2
ends 2 "$pid"
ends 2 "$p0"
says 0 "Duplicate GPU detected"
