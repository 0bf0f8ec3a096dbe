#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A chain site -> relay -> proxy -> aggregator, and a site that reaches the aggregator directly. Both ends verify each other's
# certificates through it; a relay that is killed costs a reconnection; what is not TLS for the aggregator's name, comes from another
# network or is too much is refused, and the log says why. If this fails, compute nodes without internet cannot take part, or the
# relay is an open proxy.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: python3 is not installed"; exit 77; }
steps=160 every=4
configure a,b

next_port() { # a free port, in $at
    at=$((${at:-$((10000 + ($$ + 9000) % 20000))} + 1))
    while grep -qis ":$(printf %04x $at) [0-9a-f]*:[0-9a-f]* 0a" /proc/net/tcp /proc/net/tcp6; do at=$((at + 1)); done
}
relay() { # relay LOG ARGUMENTS...: on port $at; the process number is in $relay_pid
    log=$1
    before=$(lines ev=listening "$log.out")
    shift
    "$atoll" relay --listen "127.0.0.1:$at" "$@" >>"$log.out" 2>&1 &
    relay_pid=$!
    processes="$processes $relay_pid"
    until_lines $((before + 1)) ev=listening "$log.out"
}

next_port
python3 "$here/proxy.py" "$at" >proxy.out 2>&1 &
processes="$processes $!"
until_lines 1 ready proxy.out
through=http://127.0.0.1:$at
next_port
hub=$at
relay relay --to "127.0.0.1:$port" --name localhost --proxy "$through" --allow 127.0.0.0/8
serve
listening
train a --site.aggregator "127.0.0.1:$hub"
a=$pid
train b
b=$pid
until_rounds a 8
kill -9 "$relay_pid"
sleep 0.3
relay relay --to "127.0.0.1:$port" --name localhost --proxy "$through" --allow 127.0.0.0/8
ends 0 "$a" "site a"
ends 0 "$b" "site b"
serve_ends
same_state a b
[ "$(rounds a)" -eq 40 ] || fail "site a has $(rounds a) rounds of 40"
[ "$(lines "tunnel 127.0.0.1:$port" proxy.out)" -ge 3 ] || fail "the relay did not dial through the proxy"
cat a/log.txt* | grep -q "ev=reconnect" || fail "site a did not reconnect"
until_lines 2 "ev=forwarded source=127.0.0.1" relay.out
kill "$relay_pid"
ends 0 "$relay_pid" "the relay"
grep -q "ev=relay connections=0 ended=" relay.out || fail "the relay's counters are not in its log"

# The bits are those of an undisturbed run without relay.
wanted=$(final a)
rm -rf a b aggregator
undisturbed
[ "$(final a)" = "$wanted" ] || fail "the run over the relay has other bits"

# What is refused. The relay reads the first message itself: no byte of these reaches the aggregator.
rm -rf a b aggregator
serve
until_lines 3 "ev=listening" serve.out
next_port
relay strict --to "127.0.0.1:$port" --name other.example,localhost --connections 12 --source-connections 8
probe() {
    got=0
    "$atoll" doctor --aggregator "127.0.0.1:$at" --tls tls --certificate a "$@" >probe.out 2>&1 || got=$?
}
probe --aggregator-name localhost
[ "$got" -eq 0 ] || fail "the relay does not let its own site through"
probe --aggregator-name third.example
[ "$got" -eq 2 ] || fail "another name ended with $got, wanted 2"
until_lines 1 'why="it asks for a server of another name" name=third.example' strict.out
probe --aggregator-name other.example # the relay lets it pass, the certificate does not
[ "$got" -eq 2 ] || fail "a name that is not the aggregator's ended with $got, wanted 2"
grep -q "does not verify" probe.out || fail "the site does not see whose certificate it is"
python3 - "$at" "$port" <<'END' || fail "what the relay forwards"
import socket, ssl, sys, time
relay, aggregator = int(sys.argv[1]), int(sys.argv[2])

def closed(data, wait=5):
    s = socket.create_connection(("127.0.0.1", relay))
    s.settimeout(wait)
    s.sendall(data)
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False

assert closed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
assert closed(b"CONNECT localhost:22 HTTP/1.1\r\n\r\n")
assert closed(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
assert closed(b"\x16\x03\x01\xff\xff")

def hello(name, protocols, version):
    c = ssl.create_default_context()
    c.check_hostname = False
    c.verify_mode = ssl.CERT_NONE
    if protocols:
        c.set_alpn_protocols(protocols)
    c.minimum_version = c.maximum_version = version
    try:
        with c.wrap_socket(socket.create_connection(("127.0.0.1", relay)), server_hostname=name) as s:
            return s.version()
    except (ssl.SSLError, OSError):
        return None

V = ssl.TLSVersion
assert hello("localhost", ["h2"], V.TLSv1_3) == "TLSv1.3"
assert hello("LocalHost", ["http/1.1", "h2"], V.TLSv1_3) == "TLSv1.3"
assert hello("localhost", ["http/1.1"], V.TLSv1_3) is None
assert hello("localhost", None, V.TLSv1_3) is None
assert hello("localhost", ["h2"], V.TLSv1_2) is None
assert hello("elsewhere", ["h2"], V.TLSv1_3) is None
assert hello(None, ["h2"], V.TLSv1_3) is None

# A line of each connection that was forwarded would fill a disk: one address has a few in 30 s.
begin = time.monotonic()
for _ in range(40):
    assert hello("localhost", ["h2"], V.TLSv1_3) == "TLSv1.3"
time.sleep(0.5)
lines = open("strict.out").read().count("ev=forwarded")
assert lines <= 3 * (2 + (time.monotonic() - begin) // 30), f"{lines} lines of 40 connections"

# Nor does what is refused.
for _ in range(40):
    assert closed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
time.sleep(0.5)
lines = open("strict.out").read().count('why="it does not begin as TLS"')
assert lines <= 3 * (2 + (time.monotonic() - begin) // 30), f"{lines} lines of 40 refused connections"

# A hello in single bytes passes; one source has 8 connections, the next one is closed.
held = [socket.create_connection(("127.0.0.1", relay)) for _ in range(8)]
for s in held:
    s.sendall(b"\x16")
time.sleep(0.3)
assert closed(b"\x16")
for s in held:
    s.close()
END
until_lines 1 "as many as --source-connections allows" strict.out
until_lines 1 "ev=handshake_failed peer=ipv4:127.0.0.1:" serve.out # whose, and not only that one has failed
grep -q 'why="it does not begin as TLS"' strict.out || fail "not TLS"
grep -q 'why="it is no TLS 1.3 with HTTP/2" name=localhost' strict.out || fail "no HTTP/2"
kill "$relay_pid"
ends 0 "$relay_pid" "the relay"
next_port
relay walled --to "127.0.0.1:$port" --name localhost --allow 10.0.0.0/8,192.0.2.7,fd00::/8
probe --aggregator-name localhost
[ "$got" -eq 2 ] || fail "an address that is not allowed ended with $got, wanted 2"
until_lines 1 'why="this address is not in --allow"' walled.out
kill "$relay_pid"
ends 0 "$relay_pid" "the relay"

# What its operator is told before it listens.
wrong() {
    words=$1
    shift
    got=0
    "$atoll" relay "$@" >wrong.out 2>&1 || got=$?
    [ "$got" -eq 4 ] || fail "relay $* ended with $got, wanted 4"
    grep -qF -- "$words" wrong.out || fail "wanted: $words"
}
wrong "--name is missing" --listen 127.0.0.1:0 --to 10.0.0.1:7443
wrong "no network" --listen 127.0.0.1:0 --to h.example:7443 --allow 10.0.0.0/33
wrong "no address: host:port" --listen 127.0.0.1 --to h.example:7443
wrong "no address: host:port" --listen 127.0.0.1:0 --to h.example
wrong "write [::1]:7443" --listen ::1:7443 --to h.example:7443
wrong "write [fd00::1]:7443" --listen 127.0.0.1:0 --to fd00::1:7443
wrong "Address already in use" --listen "127.0.0.1:$port" --to h.example:7443
