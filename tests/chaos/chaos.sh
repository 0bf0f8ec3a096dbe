#!/bin/sh
# Real processes: an aggregator and eight sites in strict mode. A process is killed (SIGKILL) or stopped for a while (SIGSTOP) at
# random, comes back with the same command, and again; in the end every site's parameters, momentum and residual have the SHA-256
# of the run that nobody disturbed.
#   tests/chaos/chaos.sh ATOLL SCRATCH [--kills N] [--seed S]     200 kills by night, 10,000 for a release; the suite has few
# Prints kills, stops, restart-to-commit (from the restart of a killed process to the next committed round) at 50 and 99 %, and the
# slopes of memory and descriptors of the one site that is never killed.
. "$(dirname "$0")/../e2e/lib.sh"
shift 2
kills=6 seed=1
while [ $# -gt 0 ]; do
    case $1 in
    --kills) kills=$2 ;;
    --seed) seed=$2 ;;
    *) fail "chaos.sh: $1 is no option" ;;
    esac
    shift 2
done

names="a b c d e f g h" # h is stopped, never killed
part_of() { echo "$1" | tr a-h 0-7; }
random() { # random BELOW: sets $drawn
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}
ms_now() { date +%s%3N; }
committed() { lines '"kind":"round"' aggregator/metrics.jsonl; }
until_committed() { until_lines "$1" '"kind":"round"' aggregator/metrics.jsonl; }
pid_of() { eval "echo \$pid_$1"; }
start() { # start WHO
    if [ "$1" = serve ]; then
        serve
        eval "pid_serve=$serve_pid"
    else
        train "$1"
        eval "pid_$1=$pid"
    fi
}
all_end() {
    for s in $names; do ends 0 "$(pid_of "$s")" "site $s"; done
    serve_ends
}
sample() { # memory (KiB) and descriptors of site h at this round
    p=$(pid_of h)
    rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$p/status" 2>/dev/null || :)
    fds=$(ls "/proc/$p/fd" 2>/dev/null | wc -l)
    [ -z "$rss" ] || echo "$(committed) $rss $fds" >>samples
}

every=4 codec=int8 checkpoint_every=13 fragments=2
rounds=$((8 * kills + 20)) # of both fragments
steps=$((every * rounds / 2))
configure a,b,c,d,e,f,g,h
start serve
for s in $names; do start "$s"; done
all_end
for s in $names; do final "$s" >"wanted.$s"; done
[ -s wanted.a ] || fail "the undisturbed run has no digests"

rm -rf a b c d e f g h aggregator ./*.out
start serve
for s in $names; do start "$s"; done
until_committed 1
killed=0 stopped=0
: >recovered
while [ $killed -lt "$kills" ]; do
    random 200
    sleep "0.$(printf %03d "$drawn")"
    random 8
    who=$(echo serve a b c d e f g | cut -d' ' -f$((drawn + 1)))
    random 4
    if [ "$drawn" -eq 0 ]; then
        random 8
        who=$(echo "$names" | cut -d' ' -f$((drawn + 1)))
        p=$(pid_of "$who")
        kill -STOP "$p" 2>/dev/null || :
        random 9
        sleep "0.$((drawn + 1))"
        kill -CONT "$p" 2>/dev/null || :
        stopped=$((stopped + 1))
        continue
    fi
    before=$(committed)
    [ "$before" -lt "$rounds" ] || break
    p=$(pid_of "$who")
    kill -9 "$p" 2>/dev/null || fail "$who is gone after $killed kills"
    wait "$p" 2>/dev/null || :
    killed=$((killed + 1))
    began=$(ms_now)
    start "$who"
    until_committed $((before + 1))
    echo $(($(ms_now) - began)) >>recovered
    sample
done
all_end
for s in $names; do
    [ "$(final "$s")" = "$(cat "wanted.$s")" ] || fail "site $s ended at $(final "$s"), undisturbed $(cat "wanted.$s")"
done
[ "$killed" -eq "$kills" ] || fail "the run ended after $killed of $kills kills"
percentile() { sort -n recovered | awk -v p="$1" '{ x[NR] = $1 } END { i = int((NR * p + 99) / 100); if (i < 1) i = 1; print x[i] }'; }
slope() { # slope COLUMN: a round, by least squares, without the first quarter
    awk -v c="$1" '{ x[NR] = $1; y[NR] = $c }
        END { for (i = int(NR / 4) + 1; i <= NR; i++) { n++; sx += x[i]; sy += y[i]; xx += x[i] * x[i]; xy += x[i] * y[i] }
            d = n * xx - sx * sx; printf "%.2f", (d > 0) ? (n * xy - sx * sy) / d : 0 }' samples
}
echo "8 sites, $rounds rounds: $killed kills, $stopped stops, same digests; restart to commit p50 $(percentile 50) ms, p99" \
    "$(percentile 99) ms; site h: $(slope 2) KiB and $(slope 3) descriptors a round"
if [ "$kills" -ge 100 ]; then
    awk -v fds="$(slope 3)" 'BEGIN { exit !(fds < 0.05) }' || fail "descriptors grow: $(slope 3) a round"
fi
