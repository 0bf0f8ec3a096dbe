#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The live page from outside: what watch.sh asks of it. Everything that was served lies in served/ afterwards."""
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def get(url, headers=None, method="GET"):
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        body = answer.read()
    pathlib.Path("served").mkdir(exist_ok=True)
    with open("served/" + re.sub(r"\W", "_", url), "ab") as f:
        f.write(body)
    return answer, body.decode()


def refused(url, **how):
    try:
        get(url, **how)
    except urllib.error.HTTPError as e:
        return e.code
    return 200


def sample(text, name, site):
    found = re.search(rf'^{name}\{{run="e2e",site="{site}"\}} (\S+)$', text, re.MULTILINE)
    assert found, f"{name} of {site} is missing"
    return float(found.group(1))


def waiting(serve, site):
    status = json.loads(get(serve + "status.json")[1])
    sites = {s["name"]: s for s in status["sites"]}
    assert sites["b"]["waited_for"] and not sites["b"]["trains"], sites["b"]
    assert not sites["a"]["waited_for"], sites["a"]
    metrics = get(serve + "metrics")[1]
    assert sample(metrics, "atoll_blocking_others", "b") == 1
    assert 80 * 86400 < sample(metrics, "atoll_certificate_remaining_seconds", "aggregator") <= 90 * 86400
    (own,) = json.loads(get(site + "status.json")[1])["sites"]
    assert own["name"] == "a" and own["state"].startswith("waiting for b"), own
    assert get(serve + "readyz")[1] == "ready\n" and get(serve + "healthz")[1] == "ok\n"


def steps(path):
    return pathlib.Path(path).read_text().count('"kind":"step"')


def hostile(url):
    """Browsers that never read, never ask to the end, and ask too much; all at once."""
    at = urllib.parse.urlsplit(url)
    held = []
    for i in range(40):
        s = socket.create_connection((at.hostname, at.port), timeout=5)
        if i % 3 == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            s.sendall(f"GET /status.json HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n".encode())  # and reads nothing
        elif i % 3 == 1:
            s.sendall(b"GET /status.json HTTP/1.1\r\nHo")  # and no more
        else:
            try:
                s.sendall(b"GET / HTTP/1.1\r\nHost: " + b"x" * 200000)
            except OSError:
                pass
        held.append(s)
    return held


def running(serve, site, record):
    answer, page = get(site)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy, policy
    for text in (page, get(site + "page.js")[1], get(site + "page.css")[1]):
        found = set(re.findall(r"https?://[^\s'\"`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not found, f"the page needs {found}"
    assert "<caption>" in page and 'aria-live="polite"' in page
    port = urllib.parse.urlsplit(site).port
    assert refused(site, headers={"Host": f"evil.example:{port}"}) == 403  # another site's name that leads here
    assert refused(site, method="POST") == 405
    assert refused(site + "../../etc/passwd") == 404 and refused(site + "nothing") == 404
    status = json.loads(get(site + "status.json")[1])
    (own,) = status["sites"]
    spent = own["spent_s"]
    assert abs(sum(v for k, v in spent.items() if k != "all") - spent["all"]) < 0.02 * spent["all"] + 0.01, spent
    metrics = get(site + "metrics")[1]
    assert sample(metrics, "atoll_step", "a") >= own["step"] and 'cause="compute"' in metrics
    for name in ("accuracy", "accuracy_norm", "chance"):
        value = float(re.search(rf'^atoll_eval_{name}\{{run="e2e",site="a",task="arc"\}} (\S+)$', metrics, re.MULTILINE).group(1))
        task = [r for r in rows("a", "metrics.jsonl") if r["kind"] == "task" and r["of"] == "arc"]
        assert any(abs(value - r[name]) < 1e-8 for r in task), (name, value, task)
    assert own["probes"][1]["prompt"] == "<img src=x onerror=alert(1)>", own["probes"]
    assert "atoll_eval_accuracy" not in get(serve + "metrics")[1] and not any(s.get("probes") for s in json.loads(get(serve + "status.json")[1])["sites"])
    before, held = steps(record), hostile(site) + hostile(serve)
    until = time.time() + 60
    while steps(record) < before + 40 and time.time() < until:
        time.sleep(0.05)
    assert steps(record) >= before + 40, "no steps while hostile browsers hold connections"
    for s in held:
        s.close()
    until = time.time() + 60
    while True:  # and the page is there again
        try:
            get(serve + "status.json")
            break
        except OSError:
            assert time.time() < until, "no page after the hostile browsers"
            time.sleep(0.5)


def listeners(count, pid):
    """What a process listens at: sockets of this machine's loopback alone."""
    own = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(fd))
        except OSError:
            pass
    loopback = {"0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"}
    at = []
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            field = line.split()
            if field[3] == "0A" and f"socket:[{field[9]}]" in own:
                at.append(field[1].split(":")[0])
    assert len(at) == int(count) and set(at) <= loopback, (pid, at)


def png_size(path):
    data = pathlib.Path(path).read_bytes()
    return struct.unpack(">II", data[16:24])


def look(url):
    for name, size, more in (("desktop", "1280,2400", []), ("phone", "480,4600", []),
                             ("dark", "1280,2400", ["--blink-settings=preferredColorScheme=0"])):
        subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
                        "--virtual-time-budget=5000", f"--screenshot=page-{name}.png", *more, url], check=True, timeout=100,
                       capture_output=True)
        assert png_size(f"page-{name}.png") == tuple(int(n) for n in size.split(","))
    made = subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=480,900",
                           "--virtual-time-budget=5000", "--dump-dom", url], check=True, timeout=100, capture_output=True, text=True).stdout
    text = re.sub(r"<[^>]+>", " ", made)
    assert "<img" not in made and "&lt;img src=x onerror=alert(1)&gt;" in made, "the text of a probe becomes markup"
    for words in ("arc: accuracy by round", "chance", "after round", "Atoll run", "time left", "goodput", "payload up", "Training loss by site", "Gain"):
        assert words in text, f"the browser shows no {words!r}"
    assert made.count("<svg") >= 5 and "NaN" not in text and "undefined" not in text and "null" not in text, text[:2000]
    assert made.count('role="img"') == made.count("<svg") and "aria-label" in made


def rows(directory, name):
    with open(f"{directory}/{name}", encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def compare(path, *directories):
    """The page compared with ledger.jsonl, the manifests and the record."""
    status = json.loads(pathlib.Path(path).read_text())
    sites = {s["name"]: s for s in status["sites"]}
    for d in directories:
        if d == "aggregator":
            committed = max(int(n) for n in os.listdir("aggregator/frag/0") if n.isdigit())
            assert status["aggregator"]["rounds"] == committed, (status["aggregator"]["rounds"], committed)
            continue
        s = sites[d]
        record = rows(d, "metrics.jsonl")
        adopted = {(r["fragment"], r["round"]) for r in record if r["kind"] == "round" and not r["replayed"]}
        flows = [r for r in rows(d, "ledger.jsonl") if r["kind"] == "flow" and (r.get("fragment"), r.get("round")) in adopted]
        for way in ("up", "down"):
            counted = sum(r[way] for r in flows)
            assert s[way + "_bytes"] == counted, (d, way, s[way + "_bytes"], counted)
        last = [r for r in record if r["kind"] == "step"][-1]
        assert s["step"] == last["step"] and abs(s["loss"] - last["loss"]) < 1e-12
        assert s["rounds"] == len(adopted) > 10
        assert s["rounds"] in (status["aggregator"]["rounds"], status["aggregator"]["rounds"] - 1)  # stopped while one was committed


def far(url, directory):
    """Fed over the link: what the aggregator's own records say of the rounds that the page has seen."""
    until = time.time() + 60
    while True:
        status = json.loads(get(url + "status.json")[1])
        sites = {s["name"]: s for s in status["sites"]}
        if len(sites) == 2 and all(s["rounds"] >= 3 for s in sites.values()):
            break
        assert time.time() < until, status["aggregator"]
        time.sleep(0.2)
    record = rows(directory, "metrics.jsonl")
    for name, s in sites.items():
        (r,) = [r for r in record if r["kind"] == "site" and r["site"] == name and r["round"] == s["rounds"] - 1]
        assert (s["step"], s["up_bytes"], s["down_bytes"]) == (r["step"], r["up_total"], r["down_total"]), (s, r)
        assert abs(s["loss"] - r["loss"]) < 1e-12
    committed = [r for r in record if r["kind"] == "round"][:int(status["aggregator"]["rounds"])]
    assert status["aggregator"]["up_bytes"] == sum(r["up"] for r in committed)
    assert get(url + "readyz")[1] == "ready\n"
    sample(get(url + "metrics")[1], "atoll_step", "b")


def gone(url):
    until = time.time() + 60
    while "unreachable" not in get(url + "status.json")[1]:
        assert time.time() < until
        time.sleep(0.2)
    assert refused(url + "readyz") == 503


def uncertified(url):
    """Until /readyz says that the certificate is not valid."""
    until = time.time() + 60
    while True:
        try:
            get(url + "readyz")
        except urllib.error.HTTPError as e:
            assert e.code == 503 and "certificate has expired" in e.read().decode(), e
            return
        assert time.time() < until
        time.sleep(0.2)


def begun(url):
    until = time.time() + 60
    while not json.loads(get(url + "status.json")[1]).get("aggregator"):
        assert time.time() < until
        time.sleep(0.1)


def done(url):
    status = json.loads(get(url + "status.json")[1])
    assert status["aggregator"]["state"] == "done" and status["aggregator"]["rounds"] == 8, status["aggregator"]
    assert [s["state"] for s in status["sites"]] == ["done", "done"] and all(s["rounds"] == 8 for s in status["sites"]), status["sites"]


def events(directory, record):
    """By TensorBoard's own reader: every step's loss, every round's rho, the eval loss."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    reader = EventAccumulator(directory, size_guidance={"scalars": 0})
    reader.Reload()
    made = [json.loads(line) for line in pathlib.Path(record).read_text().splitlines()]
    for tag, want in (("step/loss", [(r["step"], r["loss"]) for r in made if r["kind"] == "step"]),
                      ("round/rho", [(r["step"], r["rho"]) for r in made if r["kind"] == "round" and r["rho"] is not None]),
                      ("task_arc/accuracy", [(r["step"], r["accuracy"]) for r in made if r["kind"] == "task" and r["of"] == "arc"]),
                      ("eval_outer/loss", [(r["step"], r["loss"]) for r in made if r["kind"] == "eval" and r["of"] == "outer"])):
        got = [(e.step, e.value) for e in reader.Scalars(tag)]
        assert len(got) == len(want) > 2, (tag, len(got), len(want))
        for (gs, gv), (ws, wv) in zip(got, want):
            assert gs == ws and abs(gv - wv) <= 1e-6 * abs(wv) + 1e-30, (tag, gs, gv, ws, wv)


def varint(data, at):
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Number and value of each field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(key & 7) or varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def restarted(directory, record):
    """What TensorBoard shows of the files of a killed process and the next one: at a session start it drops what has its step or
    a later one (event_accumulator.py, _Purge)."""
    shown, sessions = {}, 0
    for path in sorted(pathlib.Path(directory).iterdir()):
        data, at = path.read_bytes(), 0
        while at + 12 < len(data) and at + 16 + struct.unpack_from("<Q", data, at)[0] <= len(data):
            (n,) = struct.unpack_from("<Q", data, at)
            event, at = dict(fields(data[at + 12:at + 12 + n])), at + 16 + n
            if 7 in event and dict(fields(event[7])) == {1: 1}:
                shown = {tag: [s for s in steps if s < event[2]] for tag, steps in shown.items()}
                sessions += 1
            elif 5 in event:
                tag = dict(fields(dict(fields(event[5]))[1]))[1].decode()
                shown.setdefault(tag, []).append(event[2])
    rows = [json.loads(line) for line in pathlib.Path(record).read_text().splitlines()]
    steps = sorted({r["step"] for r in rows if r["kind"] == "step"})
    rounds = sorted({r["step"] for r in rows if r["kind"] == "round"})
    again = len([r for r in rows if r["kind"] == "step"]) - len(steps)
    assert sessions == 2 and again > 0, (sessions, again)
    assert shown["step/loss"] == steps, sorted(set(steps) ^ set(shown["step/loss"]))
    assert shown["round/included"] == rounds, (shown["round/included"], rounds)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def frames(directory):
    """Every record whole, with the checksums of the format."""
    for path in pathlib.Path(directory).iterdir():
        data, at, count = path.read_bytes(), 0, 0
        while at < len(data) and count < 500:
            (n,) = struct.unpack_from("<Q", data, at)
            assert struct.unpack_from("<I", data, at + 8) == (masked(data[at:at + 8]),), (path, at)
            assert struct.unpack_from("<I", data, at + 12 + n) == (masked(data[at + 12:at + 12 + n]),), (path, at)
            at, count = at + 16 + n, count + 1
        assert count > 10


def notify():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(os.environ["NOTIFY_SOCKET"])
    print("listening", flush=True)
    while True:
        print(s.recv(4096).decode(), flush=True)


def show(url):
    print(get(url)[1], end="")


if __name__ == "__main__":
    acts = {"waiting": waiting, "running": running, "look": look, "compare": compare, "far": far, "events": events, "restarted": restarted, "frames": frames,
            "gone": gone, "listeners": listeners, "uncertified": uncertified, "begun": begun, "done": done, "notify": notify, "get": show}
    acts[sys.argv[1]](*sys.argv[2:])
