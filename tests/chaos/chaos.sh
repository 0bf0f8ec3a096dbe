#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real processes: an aggregator and eight sites in strict mode, four of them over a relay (`atoll wan`). At random a process is
# killed (SIGKILL) or stopped for a while (SIGSTOP), the relay's links are cut, frozen or slowed, a disk is filled and freed while the
# run continues; once the aggregator's directory is lost and rebuilt on another one from the sites' (`serve --rebuild`). What ended
# is started again with the same command. In the end every site's parameters, momentum and residual have the SHA-256 of the run that
# without faults.
#   tests/chaos/chaos.sh ATOLL SCRATCH [--kills N] [--seed S]     200 kills by night, 10,000 for a release; the suite has few
#   tests/chaos/chaos.sh ATOLL SCRATCH --soak HOURS               slow links, a fault a minute; fails where memory or descriptors grow
# Prints kills, stops, the other faults, restart-to-commit (from the restart of a killed process to the next committed round) at 50 and
# 99 %, and the slopes of memory and descriptors of site h, which is never killed. Disks need root: without it, that is said.
if [ -z "${CHAOS_MOUNTS:-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    exec env CHAOS_MOUNTS=own unshare -m -- "$0" "$@" # what is mounted here goes with this process
fi
. "$(dirname "$0")/../e2e/lib.sh"
. "$here/../chaos/faults.sh"
shift 2
kills=4 seed=1 hours=""
while [ $# -gt 0 ]; do
    case $1 in
    --kills) kills=$2 ;;
    --seed) seed=$2 ;;
    --soak) hours=$2 ;;
    *) fail "chaos.sh: $1 is no option" ;;
    esac
    shift 2
done

names="a b c d e f g h" # h is stopped, never killed
part_of() { echo "$1" | tr a-h 0-7; }
every=4 codec=int8 checkpoint_every=13 fragments=2

# prepare ROUNDS: of both fragments
prepare() {
    rounds=$1
    steps=$((every * rounds / 2))
    configure a,b,c,d,e,f,g,h
    address=127.77.0.2:$port # as the relay expects it
}
everyone() {
    start serve
    for s in $names; do start "$s"; done
}
all_end() {
    for s in $names; do ends 0 "$(pid_of "$s")" "site $s"; done
    serve_ends
}
same_digests() {
    for s in $names; do
        [ "$(final "$s")" = "$(cat "wanted.$s")" ] || fail "site $s ended at $(final "$s"), undisturbed $(cat "wanted.$s")"
    done
}
undisturbed_run() {
    behind_relay=""
    everyone
    all_end
    for s in $names; do final "$s" >"wanted.$s"; done
    [ -s wanted.a ] || fail "the undisturbed run has no digests"
    rm -rf a b c d e f g h aggregator ./?.out serve.out
}

soak() {
    line=slow
    prepare 40 # how fast is it over slow links?
    behind_relay=$names
    relay_start
    everyone
    began=$(ms_now)
    all_end
    relay_end
    each_ms=$((($(ms_now) - began) / rounds))
    rm -rf a b c d e f g h aggregator ./?.out serve.out
    prepare "$(awk -v h="$hours" -v ms="$each_ms" 'BEGIN { n = int(h * 3600000 / ms / 2) * 2; print n < 40 ? 40 : n }')"
    undisturbed_run
    behind_relay=$names
    relay_start
    everyone
    until_committed 1
    began=$(ms_now) last_ms=$(ms_now) last=$(committed) longest_ms=0 next_ms=$((began + 20000)) killed=0
    while [ "$(committed)" -lt "$rounds" ] && kill -0 "$(pid_of h)" 2>/dev/null; do
        sleep 1
        now=$(ms_now) at=$(committed)
        if [ "$at" -gt "$last" ]; then last=$at last_ms=$now; fi
        [ $((now - last_ms)) -le "$longest_ms" ] || longest_ms=$((now - last_ms))
        [ "$longest_ms" -lt 120000 ] || fail "no round for 120 s"
        sample h serve
        if [ "$now" -ge "$next_ms" ] && [ "$at" -lt $((rounds - 20)) ]; then
            next_ms=$((now + 60000))
            random 3
            case $drawn in
            0) stop_one ;;
            1) link_fault cut ;;
            2)
                pick a b c d e f g
                kill_one "$picked"
                ;;
            esac
        fi
    done
    all_end
    same_digests
    spent=$(awk -v ms=$(($(ms_now) - began)) 'BEGIN { printf "%.2f", ms / 3600000 }')
    echo "soak of $spent h: $killed kills, $rounds rounds, longest wait for a round $(awk -v ms="$longest_ms" 'BEGIN { printf "%.1f", ms / 1000 }') s;" \
        "per hour: site h $(slope h 2 3600) KiB, $(slope h 3 3600) descriptors; aggregator $(slope serve 2 3600) KiB, $(slope serve 3 3600) descriptors"
    for who in h serve; do
        flat "$who" "$spent" || fail "memory or descriptors of $who grow: $(slope "$who" 2 3600) KiB, $(slope "$who" 3 3600) an hour"
    done
}

if [ -n "$hours" ]; then
    soak
    exit 0
fi

prepare $((10 * kills + 40))
undisturbed_run
behind_relay="a b c d"
disks_mount
relay_start
everyone
until_committed 1
killed=0 rebuilt=0 event=0
: >recovered
while [ "$killed" -lt "$kills" ]; do
    before=$(committed)
    [ "$before" -lt "$rounds" ] || break
    random 200
    sleep "0.$(printf %03d "$drawn")"
    if [ "$rebuilt" -eq 0 ] && [ "$killed" -ge $((kills / 2)) ]; then
        aggregator_lost
        continue
    fi
    random 12
    [ $event -ge 6 ] || drawn=$event # each kind once
    event=$((event + 1))
    case $drawn in
    0 | 1) stop_one ;;
    2) link_fault cut ;;
    3) link_fault frozen ;;
    4) link_fault slow ;;
    5) disk_fault ;;
    *)
        pick serve a b c d e f g
        kill_one "$picked"
        sample h
        ;;
    esac
done
all_end
same_digests
[ "$killed" -eq "$kills" ] || fail "the run ended after $killed of $kills kills"
echo "8 sites, $rounds rounds: $killed kills, $stopped stops, same digests; restart to commit p50 $(percentile 50) ms, p99" \
    "$(percentile 99) ms; site h: $(slope h 2 1) KiB and $(slope h 3 1) descriptors a round; $cuts links cut, $frozen frozen, $slowed" \
    "slowed; $disks_filled disks filled; aggregator rebuilt $rebuilt times"
if [ "$kills" -ge 100 ]; then
    awk -v fds="$(slope h 3 1)" 'BEGIN { exit !(fds < 0.05) }' || fail "descriptors grow: $(slope h 3 1) a round"
fi
