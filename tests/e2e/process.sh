#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The process on its machine: signals, limits of the shell, launchers of others, a full standard output. What breaks if this
# fails: a closed terminal or a limit ends a run without a word, and its work since the last checkpoint is lost.
. "$(dirname "$0")/lib.sh"
mpi=${3:-no}
steps=1000000 checkpoint_every=0
configure a
set -f # no file names for the pattern
train="train --config run.yaml --data.train data/train-0-*.bin --log.progress none"
alone="$train --site.aggregator="

# A hang-up stores the work, as SIGTERM does; under nohup it is ignored.
"$atoll" $alone --run.dir hangup >hangup.out 2>&1 &
p=$!
processes="$processes $p"
until_lines 5 '"kind":"step"' hangup/metrics.jsonl
kill -HUP $p
ends 75 $p "a site after SIGHUP"
[ -n "$(ls hangup/inner)" ] || fail "SIGHUP stored nothing"
# So it is with a library that takes SIGHUP when it is loaded, as UCX below Open MPI 5 does.
cat >takes.c <<'END'
#include <signal.h>
static void taken(int number) { (void)number; }
__attribute__((constructor)) static void take(void) { signal(SIGHUP, taken); }
END
cc -shared -fPIC -o takes.so takes.c
LD_PRELOAD="$PWD/takes.so" nohup "$atoll" $alone --run.dir nohup >nohup.out 2>&1 &
p=$!
processes="$processes $p"
until_lines 5 '"kind":"step"' nohup/metrics.jsonl
kill -HUP $p
until_lines $(($(lines '"kind":"step"' nohup/metrics.jsonl) + 50)) '"kind":"step"' nohup/metrics.jsonl
kill -TERM $p
ends 75 $p "a site under nohup, after SIGTERM"
serve
listening
kill -HUP "$serve_pid"
ends 75 "$serve_pid" "the aggregator after SIGHUP"

# A crash tells where, and ends by its signal.
crash() { # crash SIGNAL CODE
    "$atoll" $alone --run.dir "crash-$1" >"crash-$1.out" 2>&1 &
    p=$!
    processes="$processes $p"
    until_lines 5 '"kind":"step"' "crash-$1/metrics.jsonl"
    kill "-$1" $p
    ends "$2" $p "a site after SIG$1"
    grep -q "atoll crashed: SIG$1, atoll [0-9]" "crash-$1.out" && [ "$(lines "[0x" "crash-$1.out")" -ge 3 ] || fail "a crash tells nothing"
}
crash SEGV 139
crash ABRT 134

# A limit on the size of a file is an error with the file's name, not a signal.
code=0
(ulimit -f 16 && "$atoll" data --out limited text.txt) >limited.out 2>&1 || code=$?
[ $code = 1 ] && grep -q 'limited/.*ulimit -f' limited.out || fail "ulimit -f in atoll data: exit code $code"
code=0
(ulimit -f 64 && "$atoll" $alone --run.dir limit --train.steps 20) >limit.out 2>&1 || code=$?
[ $code = 1 ] && grep -q 'limit/.*ulimit -f' limit.out || fail "ulimit -f in atoll train: exit code $code"
code=0
"$atoll" wan --help-keys >/dev/full 2>full.out || code=$?
[ $code = 1 ] && grep -q 'standard output' full.out && ! grep -q restart full.out || fail "a full standard output: exit code $code"

# Closed standard files: none of the program's files gets their numbers, and with them its log and its output.
"$atoll" $alone --run.dir closed --train.steps 20 <&- >&- 2>&- || fail "closed standard files"
[ -e closed/LOCK ] && [ ! -s closed/LOCK ] || fail "the log is in LOCK: $(head -c 200 closed/LOCK)"
"$atoll" data --out closed-data text.txt <&- >&- 2>&- && fail "a closed standard output is not noticed"
"$atoll" data --out open-data text.txt >open.out
diff -r closed-data open-data >&2 || fail "the output is in a shard"

# A small stack: raised where that is allowed, else refused with the number that is needed.
(ulimit -S -s 256 && "$atoll" $alone --run.dir small --train.steps 20) >small.out 2>&1 || fail "a soft limit of 256 KiB of stack"
code=0
(ulimit -s 256 && "$atoll" $alone --run.dir tiny --train.steps 20) >tiny.out 2>&1 || code=$?
[ $code = 4 ] && grep -q 'ulimit -s 8192' tiny.out || fail "256 KiB of stack: exit code $code"

# What is left of another launcher.
code=0
SLURM_NTASKS=4 "$atoll" $alone --run.dir slurm >slurm.out 2>&1 || code=$?
[ $code = 4 ] && grep -q 'unset SLURM_NTASKS' slurm.out || fail "SLURM_NTASKS alone: exit code $code"
if [ "$mpi" = mpi ]; then
    code=0
    PMI_SIZE=2 "$atoll" $alone --run.dir pmi >pmi.out 2>&1 || code=$?
    [ $code = 4 ] && grep -q '2 launched, 1 in MPI' pmi.out || fail "two ranks of another MPI: exit code $code"
fi

# A killed process repeats steps: its event files drop them, and keep the rounds.
events="$train --site.aggregator self --tls.dir nowhere --run.dir events --train.steps 200 --train.checkpoint_every 20
    --run.tensorboard true"
"$atoll" $events >events.out 2>&1 &
p=$!
processes="$processes $p"
until_lines 47 '"kind":"step"' events/metrics.jsonl
killed $p
"$atoll" $events >>events.out 2>&1 || fail "the rest of the run"
python3 "$here/watch.py" restarted events/tensorboard events/metrics.jsonl || fail "TensorBoard goes back after a kill"
