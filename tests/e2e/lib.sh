# SPDX-License-Identifier: Apache-2.0
# What the end-to-end scripts share. Sourced with the program and a scratch directory as $1 and $2:
#   . "$(dirname "$0")/lib.sh"
# Then the working directory is the scratch directory, with text.txt in it; all processes started here end with the script.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repository=$(cd "$here/../.." && pwd)
atoll=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
rm -rf "$2"
mkdir -p "$2"
cd "$2"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive NO_COLOR=1
processes=""
settings="" # of every process, --section.key value ...

# A child of this script. The number of a process that has ended may be that of a process of another test by now.
is_child() { grep -qs "^PPid:[[:space:]]*$$\$" "/proc/$1/status"; }
cleanup() {
    for p in $processes; do
        ! is_child "$p" || kill -9 "$p" 2>/dev/null || :
    done
}
trap cleanup EXIT
trap 'exit 1' INT TERM

fail() { # fail WORDS...: says what was wrong, and the ends of all logs
    echo "FAILED: $*"
    for log in *.out; do
        [ -s "$log" ] && echo "--- $log" && tail -n 12 "$log"
    done
    exit 1
}

again() { # again WORDS...: the script from its beginning, since a busy machine let pass what it waited for; WORDS say what
    attempt=${E2E_ATTEMPT:-1}
    [ "$attempt" -lt 8 ] || fail "in each of 8 attempts: $*"
    echo "attempt $attempt: $*; again from the beginning"
    cleanup
    E2E_ATTEMPT=$((attempt + 1)) exec "$here/$(basename "$0")" "$atoll" "$PWD"
}

# mpirun is there, and the program is built with MPI.
has_mpi() { command -v mpirun >/dev/null && ! "$atoll" --version | grep -q "no MPI"; }

# Waiting is for a condition, never for a time: machines are busy, sanitizers slow. What never comes ends here after minutes of an
# idle machine, and says what it was.
await() { # await WORDS CONDITION: until this shell code succeeds; WORDS say what never came
    polls=0
    until eval "$2"; do
        sleep 0.03
        polls=$((polls + 1))
        [ $polls -lt 6000 ] || fail "$1"
    done
}
# Has this process its own answer to Ctrl-C? Before, it would simply end.
catches_int() { sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status" | grep -q '[2367abef]'; }
# mpirun starts more ranks than there are cores, root's too.
mpi_anywhere() {
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5; below: Open MPI 4
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
        OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
}
needs_mpi() { # ends the script where there is no MPI
    if ! has_mpi; then
        echo "SKIPPED: no mpirun here, or this build has no MPI"
        exit 77
    fi
    mpi_anywhere
}
# Of all processes of the script: Open MPI drops memory of its own at its end.
mpi_leaks() { export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"; }
# A command that would hang if something were wrong, and takes seconds otherwise.
bounded() { timeout 900 "$@"; }

# Eight hundred kilobytes of English, the same in every checkout.
golden_text=$repository/tests/golden/text
for i in 1 2 3 4; do cat "$golden_text"/*.txt; done >text.txt

# A port that is free now, and no other script's: processes that live at one time have different numbers. Below 32768, where
# no outgoing connection takes it while the aggregator is away.
free_port() {
    port=$((10000 + $$ % 20000))
    while grep -qis ":$(printf %04x $port) [0-9a-f]*:[0-9a-f]* 0a" /proc/net/tcp /proc/net/tcp6; do port=$((port + 1)); done
}

# configure SITES [section.key=value...]: run.yaml, shards, certificates of a tiny model
configure() {
    sites=$1
    shift
    free_port
    count=$(echo "$sites" | tr ',' ' ' | wc -w)
    cat >run.yaml <<END
run:
  name: e2e
  seed: 7
model:
  layers: 4
  heads: 2
  d_model: 32
  max_seq_len: 32
data:
  tokenizer: bytes
  eval: [data/eval-*.bin]
train:
  steps: ${steps:-40}
  batch_tokens: 128
  seq_len: 32
  lr: 0.01
  warmup_steps: 5
  eval_tokens: 2048
  checkpoint_every: ${checkpoint_every:-7}
device:
  kind: ${ATOLL_E2E_DEVICE:-cpu}
  dtype: f32
  threads: 1
outer:
  sites: [$sites]
  sync_every: ${every:-8}
  fragments: ${fragments:-1}
  codec: ${codec:-int8}
  mode: ${mode:-strict}
  straggler_timeout_s: ${straggler_timeout_s:-2}
  history_rounds: ${history_rounds:-8}
  max_local_steps_offline: ${max_local_steps_offline:-0}
site:
  aggregator: 127.0.0.1:$port
  aggregator_name: localhost
tls:
  dir: tls
serve:
  listen: 127.0.0.1:$port
  dir: aggregator
END
    "$atoll" data --out data --sites "$count" --seq-len 32 --force text.txt >data.out 2>&1 || fail "atoll data"
    rm -rf tls
    "$atoll" cert authority --run e2e --dir tls >cert.out 2>&1 || fail "atoll cert authority"
    "$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1 || fail "atoll cert issue"
    for s in $(echo "$sites" | tr ',' ' '); do
        "$atoll" cert issue --role site --name "$s" --dir tls >>cert.out 2>&1 || fail "atoll cert issue $s"
    done
}

# Position of a site in the roster: which part of the text is its own.
part_of() { echo "$1" | tr a-e 0-4; }

# An act of the operator, unless --certificate says otherwise; what the aggregator answers is in operator.out.
operator() { # operator ACT ARGUMENTS...
    "$atoll" operator "$@" --aggregator "127.0.0.1:$port" --aggregator-name localhost >operator.out 2>&1
}

# until_status PATTERN: of the round in flight, as the operator sees it
until_status() {
    status_wanted=$1
    await "the status never has $1" 'operator status && grep -qE "$status_wanted" operator.out'
}

# await_stands X Y: the aggregator has X's contribution to a round in which Y, killed or stopped, has no part: the round stands still.
stored() { ls "$1".* 2>/dev/null | grep -qv '[.]part$\|[.]have$\|[.]header$'; }
stands() {
    for spool in aggregator/spool/*/*; do
        if stored "$spool/$1" && ! stored "$spool/$2"; then return 0; fi
    done
    return 1
}
await_stands() {
    standing="stands $1 $2"
    await "no contribution of site $1 waits for site $2" '$standing && sleep 0.3 && $standing' # a round may just have been committed
}

# mpirun -n N sh -c "$to_file" rank FILE PROGRAM...: what ranks say goes to FILE without mpirun, which may drop the last lines of a rank
# that ends with an exit code (Open MPI 4).
to_file='out=$1; shift; exec "$@" >>"$out" 2>&1'

round_now() { # of the status; the number of rounds where all are committed
    operator status || :
    sed -n 's/^fragment=0 round=\([0-9]*\) .*/\1/p' operator.out | grep . || echo 0
}
# A site can be stopped in a round only while it trains for it.
stands_at() { # stands_at ROUND SITE: the run waits in it for this site, which is stopped
    eval "stopped=\$$2"
    until_rounds "$2" $(($1 - 1))
    kill -STOP "$stopped"
    standing_round=$1 standing_site=$2
    await "no round $1 waits for site $2" 'round_seen=$(round_now); [ "$round_seen" -gt $standing_round ] ||
        { [ "$round_seen" -lt $standing_round ] && kill -CONT $stopped && sleep 0.03 && kill -STOP $stopped && false; } ||
        { [ "$round_seen" -eq $standing_round ] && grep -q " missing=$standing_site$" operator.out; }'
    [ "$round_seen" -le "$1" ] || again "the run was past round $1 before site $2 was stopped"
}
new_run() { # the aggregator and site b, $b, of a run that begins; what they said before is gone
    rm -rf a b aggregator
    : >a.out
    : >b.out
    : >serve.out
    serve
    train b
    b=$pid
}
killed() { # killed PROCESS
    kill -9 "$1" && wait "$1" 2>/dev/null || :
}

# sealed_without X Y: of $count sites X has contributed to the round in flight, which is sealed, and X is stopped before it has signed.
# Y is stopped for a moment: it has not contributed when X is stopped.
sealed_without() {
    eval "owes=\$$1 late=\$$2"
    while :; do
        kill -STOP "$late"
        until_status "missing=$2$"
        grep -q " in=$((count - 1)) " operator.out && break
        kill -CONT "$late" # it had contributed already: another round
        sleep 0.03
    done
    kill -STOP "$owes"
    kill -CONT "$late"
    until_status " missing=$1$"
    sealed_round=$(sed -n 's/^fragment=0 round=\([0-9]*\) .*/\1/p' operator.out)
}

# serve, train: in the background; the process number is in $serve_pid, $pid. Further arguments go to the program.
serve() {
    "$atoll" serve --config run.yaml $settings "$@" >>serve.out 2>&1 &
    serve_pid=$!
    processes="$processes $serve_pid"
}
train() {
    site=$1
    shift
    "$atoll" train --config run.yaml --site.name "$site" --run.dir "$site" --data.train "data/train-$(part_of "$site")-*.bin" \
        --log.progress none $settings "$@" >>"$site.out" 2>&1 &
    pid=$!
    processes="$processes $pid"
}

# sites_start SITE...: trains them; the process number of site x is in $x
sites_start() {
    for started in "$@"; do
        train "$started"
        eval "$started=\$pid"
    done
}

# lines WORDS FILE: how many lines of it have these words
lines() {
    if [ -e "$2" ]; then grep -cF -- "$1" "$2" || :; else echo 0; fi
}

# until_lines N WORDS FILE: waits until it has that many of these lines
until_lines() {
    count_wanted=$1 line_wanted=$2 file_wanted=$3
    await "fewer than $1 lines with $2 in $3" '[ "$(lines "$line_wanted" "$file_wanted")" -ge "$count_wanted" ]'
}

# Waits until the aggregator listens.
listening() {
    until_lines 1 "ev=listening" serve.out
}

# ends CODE PROCESS WHO: it ends with that exit code
ends() {
    code=0
    wait "$2" || code=$?
    [ "$code" -eq "$1" ] || fail "$3 ended with exit code $code, wanted $1"
}

# stops_at_once PROCESS SITE: after Ctrl-C it ends with 75, or with 0 if the signal came during its last step, as on a busy machine
stops_at_once() {
    code=0
    wait "$1" || code=$?
    [ "$code" -eq 75 ] || { [ "$code" -eq 0 ] && tail -n 1 "$2.out" | grep -q "ev=final step=$steps "; } ||
        fail "site $2 after Ctrl-C ended with exit code $code, wanted 75"
}

# sites_end CODE SITE...: sites that sites_start() started
sites_end() {
    wanted_code=$1
    shift
    for ended in "$@"; do eval "ends $wanted_code \"\$$ended\" 'site $ended'"; done
}

# ends_quorum PROCESS WHO: 0, or 6 where the last round is without some site; which, a quorum's timing decides
ends_quorum() {
    code=0
    wait "$1" || code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 6 ] || fail "$2 ended with exit code $code, wanted 0 or 6"
}

# The aggregator ends by itself when all have reported their last round.
serve_ends() {
    ends 0 "$serve_pid" "the aggregator"
}

# final SITE: "parameters momentum residual" of its last word
final() {
    sed -n 's/.*"kind":"final".*"parameters":"\([0-9a-f]*\)","momentum":"\([0-9a-f-]*\)","residual":"\([0-9a-f-]*\)".*/\1 \2 \3/p' \
        "$1/metrics.jsonl" | tail -n 1
}

# same_state SITE...: they ended with the same parameters and momentum
same_state() {
    first=$(final "$1")
    for compared in "$@"; do
        its=$(final "$compared")
        [ -n "$first" ] && [ "${its% *}" = "${first% *}" ] || fail "sites differ: $1 $first / $compared $its"
    done
}

# rounds SITE: how many rounds are on record
rounds() {
    lines '"kind":"round"' "$1/metrics.jsonl"
}

# until_rounds SITE N: waits until that many are on record
until_rounds() {
    until_lines "$2" '"kind":"round"' "$1/metrics.jsonl"
}

train_a() { # sets $a, and $a_starts: starts on record before this one
    a_starts=$(lines "ev=start " a.out)
    train a
    a=$pid
}

# Two sites from start to end, undisturbed.
undisturbed() {
    serve
    sites_start a b
    sites_end 0 a b
    serve_ends
}

# disturbed ROUNDS WHO...: the same, but every ROUNDS rounds of b one process dies, at moments that differ from time to time, and
# comes back with the same command. a, b, serve: kill -9. int: Ctrl-C for site a, which stores and leaves with 75. Sets $killed. Fewer
# die where b, seen late by a busy machine, has ended.
disturbed() {
    apart=$1
    shift
    serve
    train_a
    train b
    b=$pid
    killed=0
    for who in "$@"; do
        until_rounds b $((killed * apart + 1))
        sleep "0.0$(((killed + 1) * 37 % 10))$(((killed + 1) * 53 % 10))"
        kill -0 "$b" 2>/dev/null || break
        killed=$((killed + 1))
        case $who in
        serve) kill -9 "$serve_pid" 2>/dev/null && wait "$serve_pid" 2>/dev/null || :; serve ;;
        a) kill -9 "$a" 2>/dev/null && wait "$a" 2>/dev/null || :; train_a ;;
        b) kill -9 "$b" 2>/dev/null && wait "$b" 2>/dev/null || :; train b; b=$pid ;;
        int) # without b, site a cannot end before the signal arrives, but for rounds that b has sent already
            kill -STOP "$b" 2>/dev/null || break
            until_lines $((a_starts + 1)) "ev=start " a.out # earlier it would end with 130
            kill -INT "$a" 2>/dev/null && stops_at_once "$a" a
            train_a
            kill -CONT "$b"
            ;;
        esac
    done
    sites_end 0 a b
    serve_ends
}
