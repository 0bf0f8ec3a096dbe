#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sites that reach the aggregator through a proxy only: HTTP CONNECT and SOCKS5, with a user and a password. TLS stays end to end, the
# ledger still finds the sockets, no password is written anywhere, a proxy that dies costs a reconnection, and each way in which a
# proxy refuses has its sentence. If this fails, a site with a proxy cannot take part, or its operator does not learn why.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: python3 is not installed"; exit 77; }

# proxy NAME ARGUMENTS...: in the background, on port $at; the process number is in $proxy_pid
ready=0
at=$((10000 + ($$ + 7000) % 20000))
proxy() {
    name=$1
    shift
    at=$((at + 1))
    while grep -qis ":$(printf %04x $at) [0-9a-f]*:[0-9a-f]* 0a" /proc/net/tcp /proc/net/tcp6; do at=$((at + 1)); done
    again "$name" "$at" "$@"
}
again() { # the same one at its port once more
    name=$1 at_port=$2
    shift 2
    python3 "$here/proxy.py" "$@" "$at_port" >>"$name.out" 2>&1 &
    proxy_pid=$!
    processes="$processes $proxy_pid"
    ready=$((ready + 1))
    until_lines $ready ready "$name.out"
    ready=0
}

steps=240 every=4 codec=int8
configure a,b
echo "anna:Opensesame-77" >credentials
chmod 600 credentials

proxy http --user anna:Opensesame-77 --cut 100000 # a tunnel is cut in a contribution
http=$at http_pid=$proxy_pid
proxy socks --socks --user "bert:Seven%Seals"
socks=$at
serve
listening
train a --site.proxy "http://127.0.0.1:$http/" --site.proxy_credentials credentials
a=$pid
train b --site.proxy "socks5://bert:Seven%25Seals@127.0.0.1:$socks"
b=$pid
until_rounds a 10
# Before a run: what doctor looks at goes the same way.
got=0
"$atoll" doctor --config run.yaml --site b --run.dir other --data.train 'data/train-1-*.bin' --train.eval_every 20 \
    --site.proxy "socks5://bert:Seven%25Seals@127.0.0.1:$socks" >doctor.out 2>&1 || got=$?
[ "$got" -eq 8 ] || fail "doctor through a proxy ended with $got, wanted 8 (site b runs already)"
grep -q "^OK *aggregator .* through socks5://127.0.0.1:$socks answers as atoll://e2e/aggregator" doctor.out || fail "doctor's way"
grep -q "^OK *rate .*Mbit/s up" doctor.out || fail "no rate through the proxy"
# Another process finds the socket between gRPC and the forwarder, and is refused.
python3 - <<'END' || fail "another process may use site a's way to the proxy"
import re, socket
names = re.findall(r"@(atoll-[0-9a-f]{32})$", open("/proc/net/unix").read(), re.M)
assert names, "no socket"
for name in set(names):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect("\0" + name)
    try:
        assert s.recv(1) == b"", name
    except ConnectionResetError:
        pass
END
until_lines 1 "ev=proxy_stranger" a.out
kill -9 "$http_pid" # with all its tunnels
until_lines 1 "aggregator unreachable" a.out
sleep 0.5
ready=1
again http "$http" --user anna:Opensesame-77
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
same_state a b
[ "$(lines "tunnel 127.0.0.1:$port as anna" http.out)" -ge 2 ] || fail "site a did not come back through the proxy"
grep -q "^cut after" http.out || fail "no tunnel of site a was cut"
[ "$(lines "tunnel 127.0.0.1:$port as bert" socks.out)" -ge 2 ] || fail "site b did not use SOCKS5"
cat a/log.txt* a.out | grep -q "ev=reconnect" || fail "the reconnection is not in the log"
if grep -rqE "Opensesame|Seven%|YW5uYT" a b aggregator ./*.out; then fail "a password is in a log or a record"; fi
# The kernel's counters are those of the tunnels, and the dialogue with the proxy is booked: no layer differs from them.
for s in a b; do
    "$atoll" ledger $s >ledger-$s.out 2>&1 || fail "ledger of site $s"
done
cat ledger-b.out
grep -q '!' ledger-b.out && fail "what was counted on site b's tunnels is not what its sockets carried"
grep -q "kernel" ledger-a.out || fail "site a's sockets were not found"

# refused CODE WORDS ARGUMENTS...: doctor's call through this proxy ends so. train says the same; a site retries what may pass.
refused() {
    code=$1 words=$2
    shift 2
    got=0
    "$atoll" doctor --aggregator "$dialled" --aggregator-name localhost --tls tls --certificate a "$@" >refused.out 2>&1 || got=$?
    [ "$got" -eq "$code" ] || fail "exit code $got, wanted $code: $words"
    grep -qF "$words" refused.out || fail "wanted: $words"
    if grep -qE "Opensesame|Wrong-99|YW5uY" refused.out; then fail "a password is printed"; fi
}
rm -rf a b aggregator
serve
until_lines 2 "ev=listening" serve.out
dialled=127.0.0.1:$port
proxy answers --user anna:Opensesame-77
here_http=http://127.0.0.1:$at
refused 0 "aggregator yes" --proxy "$here_http" --proxy-credentials credentials
refused 2 "answers 407 (Proxy Authentication Required): it wants a user and a password" --proxy "$here_http"
refused 2 "it does not accept this user and password" --proxy "http://anna:Wrong-99@127.0.0.1:$at"
refused 4 "use one of them" --proxy "http://anna:Wrong-99@127.0.0.1:$at" --proxy-credentials credentials
chmod 644 credentials
refused 2 "others can read the password (mode 644): chmod 600 it" --proxy "$here_http" --proxy-credentials credentials
refused 4 "site.proxy is not http://" --proxy "https://127.0.0.1:$at"
refused 4 "site.proxy is not http://" --proxy "anna:Wrong-99@127.0.0.1:$at"
refused 2 "the name no.such.name.invalid is not found" --proxy http://no.such.name.invalid:3128
refused 2 "Connection refused" --proxy http://127.0.0.1:9
proxy forbids --answer 403
refused 2 "answers 403 (Not today.[31m) for 127.0.0.1:$port: let it allow CONNECT" --proxy "http://127.0.0.1:$at"
proxy gateway --answer 502
refused 2 "does not reach 127.0.0.1:$port: it answers 502" --proxy "http://127.0.0.1:$at"
proxy garbage --garbage
refused 2 "its answer is no HTTP" --proxy "http://127.0.0.1:$at"
refused 2 "its answer is no SOCKS5" --proxy "socks5://127.0.0.1:$at"
proxy rules --socks --answer 2
refused 2 "does not reach 127.0.0.1:$port: its rules do not allow it" --proxy "socks5://127.0.0.1:$at"
proxy login --socks --user "anna:Opensesame-77"
refused 2 "it wants a login" --proxy "socks5://127.0.0.1:$at"
refused 2 "does not accept this user and password" --proxy "socks5://anna:Wrong-99@127.0.0.1:$at"
proxy slow --delay 6 # slower than gRPC waits for a connection without a proxy
refused 0 "aggregator yes" --proxy "http://127.0.0.1:$at"
# A name that only the proxy knows how to reach: SOCKS5 sends it as it is, and the certificate's name is the target's.
proxy names --socks
dialled=localhost:$port
refused 0 "aggregator yes: localhost:$port" --proxy "socks5://127.0.0.1:$at"
grep -q "tunnel localhost:$port as -" names.out || fail "the name was not looked up by the proxy"
# A site that starts with a proxy that does not let it in ends at once, as its operator is there.
proxy forbid --answer 403
train a --site.proxy "http://127.0.0.1:$at"
ends 2 "$pid" "site a with a proxy that refuses"
grep -q "answers 403" a.out || fail "the site does not say why"
