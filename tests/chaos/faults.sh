# SPDX-License-Identifier: Apache-2.0
# What chaos.sh does to its processes. Sourced after ../e2e/lib.sh; the caller sets names, seed, port, address, behind_relay (sites
# that dial the relay) and rounds.
line=fast # of the relay, between faults
stopped=0 cuts=0 frozen=0 slowed=0 disks_filled=0 mounted=""
directory=aggregator # of the aggregator; another one once it was lost

random() { # random BELOW: sets $drawn
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}
pick() { # pick WORD...: sets $picked to one of them
    random $#
    eval "picked=\${$((drawn + 1))}"
}
ms_now() { date +%s%3N; }
committed() { cat aggregator*/metrics.jsonl 2>/dev/null | grep -cF '"kind":"round"' || :; }
until_committed() { # until_committed N
    rounds_wanted=$1
    await "fewer than $1 committed rounds" '[ "$(committed)" -ge "$rounds_wanted" ]'
}
pid_of() { eval "echo \$pid_$1"; }

# ---- processes ----

start() { # start WHO [ARGUMENTS...]
    who_starts=$1
    shift
    if [ "$who_starts" = serve ]; then
        serve --serve.listen "$address" --serve.dir "$directory" "$@"
        pid_serve=$serve_pid
    else
        to=$address
        case " $behind_relay " in *" $who_starts "*) to=127.77.1.2:$port ;; esac
        train "$who_starts" --site.aggregator "$to" "$@"
        eval "pid_$who_starts=$pid"
    fi
}
gone() { # gone WHO: kills it and waits for its end
    p=$(pid_of "$1")
    kill -9 "$p" 2>/dev/null || fail "$1 is gone after $killed kills"
    wait "$p" 2>/dev/null || :
}
kill_one() { # kill_one WHO: and measures from its restart to the next committed round
    before=$(committed)
    gone "$1"
    killed=$((killed + 1))
    began_restart=$(ms_now)
    start "$1"
    until_committed $((before + 1))
    echo $(($(ms_now) - began_restart)) >>recovered
}
stop_one() {
    pick serve $names
    stopped_pid=$(pid_of "$picked")
    kill -STOP "$stopped_pid" 2>/dev/null || return 0 # has ended
    random 9
    sleep "0.$((drawn + 1))"
    kill -CONT "$stopped_pid" 2>/dev/null || :
    stopped=$((stopped + 1))
}

# ---- links: a relay of TCP streams between half of the sites and the aggregator ----

relay_listens() { # at 127.77.1.2, where sites reach the aggregator
    grep -q "02014D7F:$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp
}
relay_start() { # relay_start [fast|slow]
    case ${1:-$line} in
    fast) settings_of_line="rate_mbit: 1000, delay_ms: 0.1" ;;
    slow) settings_of_line="rate_mbit: 2, delay_ms: 80" ;;
    esac
    printf 'wan:\n  sites: [site, aggregator]\n  ports: [%s]\nlink: {%s}\n' "$port" "$settings_of_line" >net.yaml
    "$atoll" wan --topology net.yaml --mode relay -- sleep 1000000 >>relay.out 2>&1 &
    relay_pid=$!
    processes="$processes $relay_pid"
    await "the relay does not listen" relay_listens
}
relay_end() {
    kill -9 "$relay_pid" 2>/dev/null || :
    wait "$relay_pid" 2>/dev/null || :
    await "the relay does not end" '! relay_listens' # its process ends with it
}
link_fault() { # link_fault cut|frozen|slow
    random 9
    case $1 in
    cut)
        relay_end
        sleep "0.$((drawn + 1))"
        relay_start
        cuts=$((cuts + 1))
        ;;
    frozen)
        relay_process=$(cat "/proc/$relay_pid/task/$relay_pid/children")
        kill -STOP $relay_process
        sleep "0.$((drawn + 1))"
        kill -CONT $relay_process
        frozen=$((frozen + 1))
        ;;
    slow)
        relay_end
        relay_start slow
        before=$(committed)
        slowed=$((slowed + 1))
        [ "$before" -ge $((rounds - 4)) ] || until_committed $((before + 4))
        relay_end
        relay_start
        ;;
    esac
}

# ---- disks: a file system of limited size for the aggregator and for site g ----

disks_mount() {
    if [ -z "${CHAOS_MOUNTS:-}" ]; then
        echo "SKIPPED: disks filled: this needs root and mount namespaces"
        return 0
    fi
    for d in aggregator g; do
        mkdir -p $d
        if ! mount -t tmpfs -o size=192m,mode=0700 none $d 2>mount.out; then
            echo "SKIPPED: disks filled: no tmpfs here: $(cat mount.out)"
            return 0
        fi
        mounted="$mounted $d"
    done
}
# The disk is full for a while. The aggregator answers `full` and continues by itself; a site may end with exit code 1, and so may the
# aggregator. Then it is started again, once there is room.
disk_fault() {
    [ -n "$mounted" ] || return 0
    random 2
    full=$(echo $mounted | cut -d' ' -f$((drawn + 1)))
    [ "$full" != aggregator ] || [ "$directory" = aggregator ] || full=g # its directory is elsewhere by now
    who=$full
    [ "$full" != aggregator ] || who=serve
    head -c 1000000000 /dev/zero >"$full/filled" 2>/dev/null || :
    random 9
    sleep "1.$((drawn + 1))"
    rm -f "$full/filled"
    disks_filled=$((disks_filled + 1))
    before=$(committed) tries=0
    while [ "$(committed)" -lt $((before + 4)) ] && [ "$(committed)" -lt "$rounds" ]; do # two rounds of each fragment: no site is away
        if ! kill -0 "$(pid_of $who)" 2>/dev/null; then
            ends 1 "$(pid_of $who)" "$who on a full disk"
            start $who
        fi
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || fail "no round after the disk of $who was full"
    done
}

# ---- the aggregator's machine is lost ----

aggregator_lost() {
    for s in serve $names; do gone "$s"; done
    directory=aggregator.fresh
    mv aggregator/metrics.jsonl lost.jsonl
    rm -rf aggregator/*
    mv lost.jsonl aggregator/metrics.jsonl # of the lost one only what this script counts
    starts_before=$(lines "ev=listening" serve.out)
    start serve --rebuild a,b,c,d,e,f,g,h
    until_lines $((starts_before + 1)) "ev=listening" serve.out
    for s in $names; do start "$s"; done
    rebuilt=$((rebuilt + 1))
    : >samples.h # another process
    until_committed $(($(committed) + 1))
}

# ---- what is measured ----

sample() { # sample WHO...: rounds or seconds, memory (KiB), descriptors
    for sampled in "$@"; do
        p=$(pid_of "$sampled")
        rss=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$p/status" 2>/dev/null || :)
        fds=$(ls "/proc/$p/fd" 2>/dev/null | wc -l)
        if [ -n "$hours" ]; then at_x=$(date +%s); else at_x=$(committed); fi
        [ -z "$rss" ] || echo "$at_x $rss $fds" >>"samples.$sampled"
    done
}
percentile() { sort -n recovered | awk -v p="$1" '{ x[NR] = $1 } END { i = int((NR * p + 99) / 100); if (i < 1) i = 1; print x[i] }'; }
slope() { # slope WHO COLUMN TIMES: a round or second, times TIMES; least squares, without the first quarter
    awk -v c="$2" -v times="$3" '{ x[NR] = $1 - first; if (NR == 1) { first = $1; x[1] = 0 } y[NR] = $c }
        END { for (i = int(NR / 4) + 1; i <= NR; i++) { n++; sx += x[i]; sy += y[i]; xx += x[i] * x[i]; xy += x[i] * y[i] }
            d = n * xx - sx * sx; printf "%.2f", (d > 0) ? times * (n * xy - sx * sy) / d : 0 }' "samples.$1"
}
# flat WHO HOURS: over the whole it grows by less than 5 % and 2 MiB, and by fewer than four descriptors. Shorter than half an hour is
# not judged.
flat() {
    awk -v kib="$(slope "$1" 2 3600)" -v fds="$(slope "$1" 3 3600)" -v h="$2" -v now="$(tail -n 1 "samples.$1" | cut -d' ' -f2)" \
        'BEGIN { exit !(h < 0.5 || (fds * h < 4 && (kib * h < 2048 || kib * h < now / 20))) }'
}
