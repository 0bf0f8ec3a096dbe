#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: silent connections keep the page and a scraper waiting, the page leaves the loopback, a scraper elsewhere
# reads more than numbers, or a mistyped directory is watched for ever.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
"$atoll" doctor 2>/dev/null | grep -q "^page yes" || { echo "SKIPPED: this build is without civetweb (libcivetweb-dev)"; exit 77; }

for command in watch status; do
    code=0
    timeout 20 "$atoll" $command nosuch >refused.out 2>&1 || code=$?
    [ $code = 4 ] && grep -q "nosuch/metrics.jsonl" refused.out || fail "atoll $command of a directory that is not there ends with $code"
done
code=0
mkdir site
printf '{"v":1,"kind":"run","t":1800000000,"run":"e2e","site":"a","role":"site"}\n' >site/metrics.jsonl
timeout 20 "$atoll" watch site --http 0.0.0.0:0 >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "no loopback address" refused.out || fail "the page at every address ends with $code"

"$atoll" watch site --http 127.0.0.1:0 --metrics 0.0.0.0:0 >watch.out 2>&1 &
processes="$processes $!"
until_lines 2 "http://" watch.out
python3 - $(sed 's#.*:\([0-9]*\)/.*#\1#' watch.out) <<'END' || fail "what the two addresses answer"
import http.client
import socket
import sys
import time

page, metrics = map(int, sys.argv[1:3])


def status(port, path, host=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    return c.getresponse().status


# The page, and nothing but numbers for all who reach the other address, by any name.
for path in "/", "/page.js", "/status.json", "/metrics", "/readyz", "/healthz":
    assert status(page, path) == 200, path
for path in "/metrics", "/readyz", "/healthz":
    assert status(metrics, path, "atoll-metrics.example:9464") == 200, path
for path in "/", "/page.js", "/page.css", "/status.json", "/metrics/", "//", "/../status.json":
    assert status(metrics, path) in (400, 404), path

# The Host of the page is this machine's loopback by name, in any case, and nothing that ends or begins like it.
for host in "LOCALHOST", f"LocalHost:{page}", "localhost", "127.0.0.2", f"[::1]:{page}":
    assert status(page, "/metrics", host) == 200, host
for host in ("evil.localhost", "notlocalhost", "localhost.evil.example", "127.0.0.1.evil.example", "localhost.", "x127.0.0.1",
             "128.0.0.1", "[::1].evil", "atoll.example", "127.0.0.1evil"):
    assert status(page, "/metrics", host) == 403, host

# Silent connections, and such that stop in the middle of a head, hold no worker for long.
for first in b"", b"GET /metrics HTTP/1.1\r\nHost: local":
    held = []
    for _ in range(225):
        held.append(socket.create_connection(("127.0.0.1", page), timeout=60))
        held[-1].sendall(first)
    for path in "/metrics", "/readyz", "/":
        began = time.monotonic()
        assert status(page, path) == 200, path
        took = time.monotonic() - began
        assert took < 25, f"{path} took {took:.1f} s with 225 silent connections"
        print(f"{path} {took:.1f} s")
    for s in held:
        s.close()
END

# A killed process looks dead at once, after any last record, and alive again as soon as it runs.
"$atoll" data --out data --seq-len 32 text.txt >data.out 2>&1 || fail "atoll data"
alone() {
    "$atoll" train --data.train "data/train-0-0000.bin" --train.steps 1000000 --train.warmup_steps 1 --train.batch_tokens 128 --device.kind cpu \
        --train.seq_len 32 --model.max_seq_len 32 --model.layers 1 --model.d_model 32 --model.heads 2 --log.progress none --run.dir alone >>alone.out 2>&1 &
    alone=$!
    processes="$processes $alone"
}
alone
until_lines 5 '"kind":"step"' alone/metrics.jsonl
"$atoll" status alone >status.out && ! grep -q "no process" status.out || fail "a site that trains: $(cat status.out)"
killed "$alone"
"$atoll" status alone >status.out && grep -q "no process" status.out || fail "a site that was killed looks alive: $(cat status.out)"
"$atoll" status alone --format json >status.json
grep -q '"trains": *true' status.json && fail "a killed site trains, says status.json"
before=$(lines '"kind":"step"' alone/metrics.jsonl)
alone
until_lines $((before + 5)) '"kind":"step"' alone/metrics.jsonl
"$atoll" status alone >status.out && ! grep -q "no process" status.out || fail "a site that runs again: $(cat status.out)"
killed "$alone"
echo "the page at the loopback, the numbers anywhere"
