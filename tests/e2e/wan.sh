#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run of two sites over emulated networks: packets through namespaces with loss and an outage, without privileges as with
# them, and the relay that stands in where namespaces are refused. The sites must end with the same outer state as over
# loopback: the network may cost time only.
. "$(dirname "$0")/lib.sh"

cat >net.yaml <<END
wan:
  sites: [a, b, aggregator]
  ports: [7443]
link:
  rate_mbit: 50
  delay_ms: 10
  jitter_ms: 1
  loss_percent: 1
  duplicate_percent: 1
  reorder_percent: 1
  reorder_ms: 3
a<>aggregator:
  outages: [0.3-0.4]
  outage_every_s: 0.7
END
steps=24 configure a,b

# over MODE: the run through `atoll wan`; digests must equal those in `wanted`
over() {
    rm -rf a b aggregator
    bounded "$atoll" wan --topology net.yaml --mode "$1" --record "$1.jsonl" -- sh -c 'case {site} in
        aggregator) exec "$0" serve --config run.yaml --serve.listen {address}:7443 ;;
        *) part=0; [ {site} = a ] || part=1
           exec "$0" train --config run.yaml --site.name {site} --run.dir {site} --log.progress none \
               --data.train "data/train-$part-*.bin" --site.aggregator {address:aggregator}:7443 ;;
        esac' "$atoll" >"$1.out" 2>&1 || fail "atoll wan --mode $1"
    [ "$(final a)" = "$(cat wanted)" ] || fail "mode $1: site a ended with $(final a), over loopback $(cat wanted)"
    fb=$(final b)
    [ "${fb% *}" = "$(sed 's/ [^ ]*$//' wanted)" ] || fail "mode $1: sites differ"
}

serve
train a
a=$pid
train b
ends 0 "$a" "site a"
ends 0 "$pid" "site b"
serve_ends
final a >wanted
[ -s wanted ] || fail "site a said no final digests"

over relay
grep -q "NOT emulated: loss" relay.out || fail "the relay does not say what it leaves out"
grep -Eq "^  b +aggregator +[1-9]" relay.out || fail "the relay counted nothing"
"$atoll" report a b --wan relay.jsonl --out report.html >report.out 2>&1 || fail "atoll report --wan"
packets=$(awk '$1 == "b" && $2 == "aggregator" { print $3 }' relay.out)
grep -q "\"relay\":true,.*\"from\":\"b\",\"to\":\"aggregator\",\"packets\":$packets," report.html ||
    fail "the report has other counters"

code=0
"$atoll" wan --topology net.yaml --mode packets -- true >probe.out 2>&1 || code=$?
if [ "$code" = 4 ] && grep -q UNSUPPORTED probe.out; then
    echo "SKIPPED: packets: $(head -n 1 probe.out)"
    exit 77
fi
[ "$code" = 0 ] || fail "exit code $code of the probe"
over packets
awk '$1 == "a" && $2 == "aggregator" { cut = $8 }
    $1 == "b" && $2 == "aggregator" { packets = $3; arrived = $5; lost = $7; twice = $9; late = $10 }
    END { exit !(cut > 0 && lost > 0 && twice > 0 && late > 0 && arrived == packets - lost + twice) }' packets.out ||
    fail "the counters do not close"

# Where namespaces are refused, auto says so and relays.
if unshare -Ur true 2>/dev/null; then
    unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_net_namespaces; "$0" wan --topology net.yaml -- echo "{site} {address:a}"' \
        "$atoll" >refused.out 2>&1 || fail "no fallback"
    grep -q "WARNING: a relay" refused.out || grep -q "a relay of TCP streams stands in" refused.out || fail "a silent fallback"
    grep -q "^b 127.77.2.1$" refused.out || fail "addresses of the relay"
fi
# Without root.
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
if [ "$(id -u)" = 0 ] && $nobody "$atoll" --version >/dev/null 2>&1 && ! $nobody unshare -Urn true 2>/dev/null; then
    echo "SKIPPED: packets without root: this machine refuses namespaces to users (a chroot, or a sysctl)"
elif [ "$(id -u)" = 0 ] && $nobody "$atoll" --version >/dev/null 2>&1; then
    code=0
    $nobody "$atoll" wan --topology transatlantic --mode packets -- sh -c 'id -u; cat /proc/net/dev' >nobody.out 2>&1 || code=$?
    if [ "$code" = 4 ] && grep -q "no TUN device (/dev/net/tun): Permission denied" nobody.out; then
        echo "SKIPPED: packets without root: /dev/net/tun is root's alone on this machine (elsewhere its mode is 0666)"
    else
        [ "$code" = 0 ] || fail "without root"
        [ "$(grep -c '^65534$' nobody.out)" = 3 ] && [ "$(grep -c wan0 nobody.out)" = 3 ] || fail "three places without root"
    fi
fi

"$atoll" wan --topology satellite --mode relay --logs logs/new --seconds 1 -- sh -c 'echo here; sleep 6000' >seconds.out 2>&1 ||
    fail "--seconds, --logs"
[ "$(cat logs/new/a.log)" = here ] || fail "the log of a place"
grep -q "^a: started, output in logs/new/a.log" seconds.out || fail "--logs says nothing while it runs"
"$atoll" wan --topology satellite --mode relay --logs logs/new --until a -- sh -c 'case {site} in a) exit 0;; *) sleep 6000;; esac' \
    >until.out 2>&1 || fail "--until"
grep -q "^a: ended after [0-9.]* s" until.out || fail "--logs does not say that a place has ended"

refused() { # refused WORDS ARGUMENTS...: exit code 4 and these words
    words=$1 code=0
    shift
    "$atoll" wan "$@" >refused.out 2>&1 || code=$?
    [ "$code" = 4 ] && grep -q -- "$words" refused.out || fail "exit code $code without \"$words\" from: $*"
}
refused "the nearest preset is satellite" --topology sattelite -- true
refused "nothing to run" --topology satellite
refused "has no place \"c\"" --topology satellite --mode relay -- echo '{address:c}'
refused "allowed is auto, packets, relay" --topology satellite --mode tcp -- true
refused "no such place" --topology satellite --until x -- true
sed "s/^wan:/wan:\n  congestion: nope/" net.yaml >nope.yaml
for mode in auto relay; do
    refused "this kernel offers .*$(cut -d' ' -f1 /proc/sys/net/ipv4/tcp_available_congestion_control)" --topology nope.yaml --mode $mode -- true
done
code=0
"$atoll" wan --topology satellite --mode relay -- sh -c 'exit 3' >exit.out 2>&1 || code=$?
[ "$code" = 1 ] && grep -q "[ab]: its command ended with exit code 3" exit.out || fail "a command's failure is lost"
code=0
"$atoll" wan --topology satellite --mode relay -- /nonexistent >exit.out 2>&1 || code=$?
[ "$code" = 1 ] && grep -q "cannot start /nonexistent" exit.out && ! grep -q "internal error" exit.out ||
    fail "a command that is not there: exit code $code"
