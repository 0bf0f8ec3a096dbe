#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What stopped or spoiled real runs in hospitals (docs/runbook.md 9): each is said by `atoll doctor --config` before a run, or named when it
# happens. A run that dropped a site and called itself a success, certificates that had expired, a VPN that dropped, a stale lock, a
# read-only directory, a GPU that vanished, a site without metrics; and a wrong clock, a full disk, missing text, a name that the run
# does not know. If this fails, an operator learns of it too late, or not at all.
. "$(dirname "$0")/lib.sh"

# check CODE ARGUMENTS...: doctor's lines into check.out
check() {
    wanted=$1
    shift
    got=0
    "$atoll" doctor --config run.yaml "$@" >check.out 2>&1 || got=$?
    [ "$got" -eq "$wanted" ] || fail "doctor $* ended with $got, wanted $wanted"
}
says() { # says VERDICT WHAT WORDS: a line of check.out
    grep -E "^$1 +$2 " check.out | grep -qF -- "$3" || fail "wanted: $1 $2 ... $3"
}

steps=60 every=5 mode=quorum straggler_timeout_s=1
configure a,b,c
a_data='--data.train data/train-0-*.bin --train.eval_every 20 --run.dir a'

# A certificate of ten seconds, which is expired later.
cp -r tls short
"$atoll" cert request a --dir short >>cert.out 2>&1
"$atoll" cert sign - --dir short --days "$(awk 'BEGIN { print 10 / 86400 }')" <short/a.request >answer.pem 2>>cert.out
"$atoll" cert install a --dir short --answer answer.pem >>cert.out 2>&1
expires=$(($(date +%s) + 11))

# Nothing is wrong: exit code 0, and the aggregator's machine (a clock that NTP does not set is worth a warning).
serve
listening
check 0 --site a $a_data
cp check.out good.out
says OK certificate "atoll://e2e/site/a is valid for"
says OK identity "is certified"
says OK aggregator "answers as atoll://e2e/aggregator/aggregator"
says OK roster "has site a"
says OK clock "0.0"
says OK rate "Mbit/s up"
says OK sites "mode quorum: 2 of 3 sites are enough for a round; a run whose last round misses a site ends with exit code 6"
[ ! -e a ] || fail "the check made a directory"

# planned VALUE...: what was measured of the link
planned() {
    echo "plan:" >link.yaml
    printf '  %s\n' "$@" >>link.yaml
}

# The line against the plan, and a contribution that takes longer than the steps between two rounds.
planned "up_mbit: 1e6" "step_s: 1e-9"
check 8 --site a $a_data --site.probe link.yaml
says WARN rate "slower than the plan"
says WARN rate "longer than the steps between two rounds"

# A run that outlives the authority and the aggregator's certificate; a model that this machine has no memory for.
planned "step_s: 1e6"
check 8 --site a $a_data --train.steps 400 --site.probe link.yaml
says WARN authority "the run takes longer: atoll cert roll"
says WARN aggregator "the run takes longer: tell who runs it"
check 4 --site a $a_data --model.d_model 32768 --model.layers 96 --model.heads 32
says FAIL memory "end other programs"
# The way there: a proxy that is not there.
check 4 --site a $a_data --site.proxy http://127.0.0.1:9
says FAIL aggregator "127.0.0.1:9"

# A name that the run does not know: its certificate is of the authority, and the aggregator says no.
"$atoll" cert issue --role site --name d --dir tls >>cert.out 2>&1
check 4 --site d $a_data
says FAIL roster "atoll operator roster add d"
check 4 --site a $a_data --run.name another
says FAIL certificate "issue one"

# A site that an operator has put in quarantine.
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1
operator quarantine b || fail "atoll operator quarantine"
check 4 --site b $a_data
says FAIL roster "an operator takes it in again"
operator readmit b || fail "atoll operator readmit"

# Certificates: one of two days for a run of three, an expired one, the key of another one.
"$atoll" cert issue --role site --name a --dir tls --days 2 >>cert.out 2>&1
planned "step_s: 4320"
check 8 --site a $a_data --site.probe link.yaml
says WARN certificate "is valid for 2.0 more days, the run takes longer"
until [ "$(date +%s)" -ge "$expires" ]; do sleep 0.2; done
cp short/a.pem short/a.key tls/
check 4 --site a $a_data
says FAIL certificate "expired"
"$atoll" cert issue --role site --name a --dir tls >>cert.out 2>&1
cp tls/b.identity.key kept
cp tls/a.identity.key tls/b.identity.key
check 4 --site b $a_data
says FAIL identity "tls/b.identity"
mv kept tls/b.identity.key

# Text that is not there, text that is too short for the run, and a site whose record would be empty.
check 4 --site a --run.dir a --train.eval_every 20 --data.train 'data/gone-*.bin'
says FAIL data "data/gone-*.bin"
check 8 --site a $a_data --train.steps 1000000 --train.warmup_steps 5
says WARN data "is a part of the text missing?"
check 8 --site a --run.dir a --data.train 'data/train-0-*.bin'
says WARN held-out "this site's records will have no eval loss"

# A GPU that vanished.
got=0
CUDA_VISIBLE_DEVICES= "$atoll" doctor --config run.yaml --site a $a_data --device.kind cuda >check.out 2>&1 || got=$?
[ "$got" -eq 4 ] || fail "a GPU that is not there ended with $got, wanted 4"
says FAIL device "a GPU that was there before needs its driver"

# A directory that cannot be written, a disk that is too small: where this user may mount.
if unshare -rm true 2>/dev/null; then
    cat >mounts.sh <<'END'
set -e
mkdir -p fixed small turned
mount --bind fixed fixed && mount -o remount,ro,bind fixed
mount -t tmpfs -o size=1m,nr_inodes=500 none small
mount -t tmpfs -o size=64m none /dev/shm
"$@" --site a --run.dir shared/a --ranks 2 >shared.out 2>&1 || echo "rc $?" >>shared.out
"$@" --site a --run.dir fixed/a >fixed.out 2>&1 || echo "rc $?" >>fixed.out
"$@" --site a --run.dir small/a >small.out 2>&1 || echo "rc $?" >>small.out
program=$1
shift 2
"$program" train "$@" --site.name a --site.aggregator "" --run.dir turned/a --train.steps 1000000 --train.checkpoint_every 300 \
    --log.progress none >turned.out 2>&1 &
until grep -q ev=checkpoint turned.out; do sleep 0.05; done
mount -t tmpfs -o ro none turned/a/inner
code=0
wait $! || code=$?
echo "rc $code" >>turned.out
END
    unshare -rm sh mounts.sh "$atoll" doctor --config run.yaml --data.train 'data/train-0-*.bin' --train.eval_every 20 ||
        fail "mounts"
    grep -q "checkpoint.*turned/a/inner.*Read-only file system" turned.out && grep -q "^rc 1" turned.out || fail "a directory that turns read-only in a run"
    cp fixed.out check.out
    says FAIL writable "Read-only file system: mount it for writing"
    grep -q "^rc 4" fixed.out || fail "a read-only directory is no failure"
    cp small.out check.out
    says FAIL disk "make room, or give another directory"
    says WARN "file system" "it is memory"
    says FAIL inodes "remove small files"
    cp shared.out check.out
    says FAIL /dev/shm "--shm-size=1g"
else
    echo "not tried: this user may not mount: a read-only directory, a small disk"
fi

# A run of three sites, one of which is killed and stays away: the run ends, with 6 and its name, and is no success.
train a
a=$pid
train b
b=$pid
train c
c=$pid
until_rounds a 3
# Its directory is in use, and by whom; the aggregator has heard of it.
check 4 --site a $a_data
says FAIL lock "in use by process $a"
says WARN "other process" "the aggregator heard from a process of this site"
kill -9 "$c"
wait "$c" 2>/dev/null || :
ends 6 "$a" "site a of a run that lost site c"
ends 6 "$b" "site b of a run that lost site c"
grep -q "its last one is without 1 of 3 sites (c)" a.out || fail "site a does not name the site that is missing"
grep -q "ev=commit .*sites=2/3 .*without=c" serve.out || fail "the aggregator does not name the site that is missing"
kill "$serve_pid" # it would wait for site c
ends 75 "$serve_pid" "the aggregator of a run that lost site c"

# A site without metrics is named, and the aggregator's records tell of it nevertheless.
mkdir empty
code=0
"$atoll" status a empty >status.out 2>&1 || code=$?
[ $code -eq 4 ] && grep -q "empty/metrics.jsonl: there is no record" status.out || fail "status of a site without a record"
"$atoll" status aggregator >status.out 2>&1 || fail "status of the aggregator"
grep -q "^c .* [0-9]*/60 " status.out || fail "the aggregator's records have no site c: $(cat status.out)"

# What a killed process leaves is no stale lock.
check 4 --site c --data.train 'data/train-2-*.bin' --run.dir c --train.eval_every 20
says OK lock "the file LOCK of an ended one is no lock"
says FAIL aggregator "Connection refused"

# The disk that was predicted holds what the run took, and is not ten times as much.
took=$(du -sk a | cut -f 1)
predicted=$(sed -n 's/^OK *disk.*(checkpoints \(.*\), outer.*/\1/p' good.out)
[ -n "$predicted" ] || fail "no prediction of the disk"
whole=$(sed -n 's/^OK *disk *the run takes \([0-9.]* [kMG]*B\) more.*/\1/p' good.out)
awk -v took="$took" -v said="$whole" 'BEGIN {
    split(said, w, " "); kib = w[1] * (w[2] == "GB" ? 1e6 : w[2] == "MB" ? 1e3 : 1) * 1000 / 1024
    if (kib < took || kib > 10 * took) { print "predicted " kib " KiB, the run took " took; exit 1 } }' || fail "the prediction of the disk"

# A VPN that drops: the way to the aggregator is gone for a while. The site says for how long and why, and continues.
rm -rf a b c aggregator
steps=40 every=5 mode=strict
configure a,b
at=$((port + 1))
while grep -qis ":$(printf %04x $at) [0-9a-f]*:[0-9a-f]* 0a" /proc/net/tcp /proc/net/tcp6; do at=$((at + 1)); done
tunnel() {
    "$atoll" relay --listen "127.0.0.1:$at" --to "127.0.0.1:$port" --name localhost >>vpn.out 2>&1 &
    vpn=$!
    processes="$processes $vpn"
}
tunnel
serve
until_lines 2 "ev=listening" serve.out
train a --site.aggregator "127.0.0.1:$at"
a=$pid
train b
b=$pid
until_rounds a $((1 + $(rounds a)))
kill -9 "$vpn"
wait "$vpn" 2>/dev/null || :
until_lines 1 "aggregator unreachable" a.out
check 4 --site b --data.train 'data/train-1-*.bin' --run.dir other --train.eval_every 20 --site.aggregator "127.0.0.1:$at"
says FAIL aggregator "Connection refused"
tunnel
ends 0 "$a" "site a after the VPN was back"
ends 0 "$b" "site b"
serve_ends
cat a/log.txt | grep "ev=reconnect" | grep -q why= || fail "the log does not say that and why the link was away"

# A clock that is wrong: the aggregator's, in a process that is told so.
cat >shift.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int e = real(clock, t);
    t->tv_sec += clock == CLOCK_REALTIME ? atol(getenv("SHIFT_S")) : 0;
    return e;
}
END
if cc -shared -fPIC -o shift.so shift.c -ldl 2>/dev/null && ! grep -q __asan_init "$atoll" && ! grep -q __tsan_init "$atoll"; then
    rm -rf aggregator
    SHIFT_S=300 LD_PRELOAD=$PWD/shift.so "$atoll" serve --config run.yaml >>serve.out 2>&1 &
    processes="$processes $!"
    until_lines 3 "ev=listening" serve.out
    check 4 --site a --data.train 'data/train-0-*.bin' --run.dir new --train.eval_every 20
    says FAIL clock "300.0"
    SHIFT_S=400000000 LD_PRELOAD=$PWD/shift.so check 4 --site a --data.train 'data/train-0-*.bin' --run.dir new # 12 years later
    says FAIL authority "tls/ca.pem expired"
    check 4 --site a --data.train 'data/train-0-*.bin' --run.dir new --train.eval_every 20
    grep -q "behind the aggregator's.*set both by NTP" check.out || fail "which clock is wrong"
    check 4 --serve --serve.listen 127.0.0.1:"$port" --serve.dir elsewhere
    says FAIL port "is an aggregator running already?"
    # And at the first look: the record, which /metrics has, and a warning.
    rm -rf a b
    train a
    a=$pid
    train b
    ends 0 "$pid" "site b with another clock than the aggregator's"
    ends 0 "$a" "site a with another clock than the aggregator's"
    grep -Eq '"kind":"health".*"clock_aggregator_s":-(300|299\.9)' a/metrics.jsonl || fail "no record of the clock"
    grep -Eq "ev=clock offset_s=-(300\.|299\.9).* text=\"this clock is 300 s behind the aggregator's" a/log.txt || fail "no warning of the clock"
else
    echo "not tried: no compiler, or a sanitizer: a clock that is wrong"
fi
