#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The connections that site.streams chooses, over an emulated long path whose socket buffers are small: one where BBR is there,
# several where the link may not ask for it, and a given number is kept. The log says which and why; no time is measured.
. "$(dirname "$0")/lib.sh"

over() { # over CONGESTION KIB MBIT NAME OPTIONS...: a run through namespaces; what it logs is in NAME.out
    cat >net.yaml <<END
wan:
  sites: [a, aggregator]
  congestion: $1
  tcp_buffer_kib: $2
link:
  rate_mbit: $3
  delay_ms: 25
END
    log=$4.out
    shift 4
    rm -rf a aggregator
    bounded "$atoll" wan --topology net.yaml --mode packets -- sh -c 'place=$1 atoll=$2
        shift 2
        case $place in
        aggregator) exec "$atoll" serve --config run.yaml --serve.listen {address}:7443 ;;
        *) exec "$atoll" train --config run.yaml --site.name a --run.dir a --log.progress none \
               --data.train "data/train-0-*.bin" --site.aggregator {address:aggregator}:7443 "$@" ;;
        esac' run {site} "$atoll" "$@" >"$log" 2>&1 || fail "the run over $1"
}
says() { # says NAME PATTERN: among the lines of the path
    grep "ev=path" "$1.out" | grep -Eq -- "$2" || fail "$1: no ev=path line has \"$2\""
}
never() {
    ! grep "ev=path" "$1.out" | grep -Eq -- "$2" || fail "$1: an ev=path line has \"$2\""
}

# Exchanges of 3.6 MB: many times what is in flight at once.
steps=8 every=2 codec=f32 configure a
sed -i -e 's/d_model: 32/d_model: 192/' -e 's/layers: 4/layers: 2/' run.yaml
code=0
"$atoll" wan --topology satellite --mode packets -- true >packets.out 2>&1 || code=$?
if [ "$code" = 4 ] && grep -q UNSUPPORTED packets.out; then
    echo "SKIPPED: the connections of a long path: $(head -n 1 packets.out)"
    exit 77
fi
[ "$code" = 0 ] || fail "exit code $code of the emulator"
offered=$(cat /proc/sys/net/ipv4/tcp_available_congestion_control)

# has NAME: the kernel offers it
has() {
    case " $offered " in *" $1 "*) return 0 ;; esac
    echo "SKIPPED: $1: this kernel offers $offered"
    return 1
}

skipped=0
if has bbr; then
    over bbr 16384 20 one
    for way in up down; do
        says one "direction=$way .*streams=1 .*not measured"
        says one "direction=$way .*streams=1 .*1 connection with bbr, paced at [0-9]* Mbit/s: it fills the path"
    done
    never one "streams=([2-9]|1[0-9]) "
    over bbr 16384 20 four --site.streams 4
    says four "direction=up .*streams=4 .*4 connections with bbr: site.streams gives the number"
    never four "direction=up .*streams=([1-35-9]|1[0-9]) "
else
    skipped=77
fi
if has cubic; then
    over cubic 128 200 several --site.congestion kernel
    for way in up down; do
        says several "direction=$way .*streams=([2-9]|1[0-6]) .*connections with cubic: the socket buffers limit each"
    done
    over cubic 16384 20 given --site.streams 2
    says given "direction=up .*2 connections with cubic: site.streams gives the number" # of the route, not of the system
else
    skipped=77
fi
exit $skipped
