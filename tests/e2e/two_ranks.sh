#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A site of two ranks over MPI, next to a site of one. All members must agree; a stop must end both ranks with 75.
# Before that, alone: with any signal that stops mpirun, rank 0 alone says after which step, and that the checkpoint holds that step.
. "$(dirname "$0")/lib.sh"
needs_mpi
configure a,b
# Open MPI drops memory of its own at MPI_Finalize, out of modules that are unloaded by then, so no suppression can name
# them; our own leaks show in the runs of one rank.
site_a() { # with further arguments
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" mpirun -n 2 sh -c "$to_file" rank a.out "$atoll" train --config run.yaml --site.name a --run.dir a --data.train 'data/train-0-*.bin' \
        --log.progress none $settings "$@" >>a.out 2>&1 &
    a=$!
    processes="$processes $a"
}
# stopped FILE DIR: one closing message, of a step that the checkpoint has
stopped() {
    [ "$(lines "exit code: 75" "$1")" -eq 1 ] || fail "the closing message is rank 0's alone"
    at=$(sed -n 's/^atoll train: stopped after step \([0-9]*\) of .*; saved in .*; start again with the same command (exit code: 75)$/\1/p' "$1")
    [ -n "$at" ] || fail "the closing message does not name the step"
    grep -q "ev=checkpoint step=$at dir=$2/inner" "$1" || fail "no checkpoint of step $at"
}
signals="INT TERM USR1"
if mpirun --version | grep -q "Open MPI) 5"; then
    echo "NOT TESTED: Ctrl-C and SIGTERM: mpirun of Open MPI 5 kills the ranks within half a second and drops what they print"
    signals=USR1
fi
for signal in $signals; do
    rm -rf alone
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" OMPI_MCA_odls_base_sigkill_timeout=4 \
        mpirun -n 2 sh -c "$to_file" rank "$signal.out" "$atoll" train --config run.yaml --site.aggregator= --site.name a --run.dir alone \
        --data.train 'data/train-0-*.bin' --train.steps 100000 --log.progress none >>"$signal.out" 2>&1 &
    p=$!
    processes="$processes $p"
    until_lines 3 '"kind":"step"' alone/metrics.jsonl
    kill -s "$signal" "$p"
    code=1 # mpirun's own, after a signal that it does not forward
    [ "$signal" != USR1 ] || code=75
    ends "$code" "$p" "mpirun after SIG$signal"
    stopped "$signal.out" alone
done
steps=200 every=8
configure a,b
awk 'BEGIN { for (i = 0; i < 101; i++) printf "{\"query\":\"Number %d\",\"choices\":[\"of\",\"and so %d\",\"the %d\"],\"gold\":%d}\n", i, i % 7, i % 5, i % 3 }' >task.jsonl
settings="--eval.every_rounds 5 --eval.tasks numbers=task.jsonl --eval.prompts The,And --eval.prompt_tokens 3"
serve
site_a
train b
b=$pid
until_rounds b 3
kill -STOP "$b" # without it site a cannot end before the signal arrives
kill -USR1 "$a" # mpirun forwards it and waits
ends 75 "$a" "the site of two ranks after SIGUSR1"
stopped a.out a
kill -CONT "$b"
site_a --train.zero_stage 3 # each pass is of both ranks, though they have other questions, and the lead alone writes probes
ends 0 "$a" "the site of two ranks"
ends 0 "$b" "site b"
serve_ends
fa=$(final a) fb=$(final b)
[ -n "$fa" ] && [ "${fa% *}" = "${fb% *}" ] || fail "sites differ: $fa / $fb"
grep -q '"ranks":2' a/metrics.jsonl || fail "site a did not have two ranks"
# The two ranks share the questions of a task; one rank of the other site has all, of the same outer parameters.
tasks() { grep '"kind":"task"' "$1/metrics.jsonl" | sed 's/.*"round":\([0-9]*\),.*"of":/\1 /' | sort -n; }
[ "$(tasks a)" = "$(tasks b)" ] && [ "$(tasks a | wc -l)" -eq 5 ] && tasks a | grep -q '"questions":101' || fail "tasks of two ranks and of one differ: $(tasks a) / $(tasks b)"
probes() { grep '"kind":"probe"' "$1/metrics.jsonl" | sed 's/.*"round":\([0-9]*\),.*"number":/\1 /' | sort; }
[ "$(probes a)" = "$(probes b)" ] && [ "$(probes a | wc -l)" -eq 10 ] || fail "probes of two ranks and of one differ: $(probes a) / $(probes b)"

# The ledger inside the site adds up what each step has on record; the other site has one rank.
"$atoll" ledger --by inside --csv a >inside.csv || fail "ledger --by inside"
counted=$(awk -F, 'NR > 1 { steps += $4; bytes += $8 } END { printf "%d %.0f", steps, bytes }' inside.csv)
recorded=$(sed -n 's/.*"kind":"step".*"step":\([0-9]*\),.*"inner_up":\([0-9.e+]*\).*/\1 \2/p' a/metrics.jsonl |
    awk '$1 > last { steps++; bytes += $2; last = $1 } END { printf "%d %.0f", steps, bytes }')
[ "$counted" = "$recorded" ] && [ "${counted% *}" -eq 200 ] || fail "inside the site: ledger $counted, on record $recorded"
code=0
"$atoll" ledger --by inside b >inside.out 2>&1 || code=$?
[ "$code" -eq 4 ] && grep -q "b/metrics.jsonl: no step of several ranks" inside.out || fail "ledger --by inside of one rank: $code"
