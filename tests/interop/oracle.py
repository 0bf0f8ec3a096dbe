#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of answers of docs/protocol.md 3.2, asked of a running aggregator: offers with one fault and with every two faults at once,
and what comes after an offer. What must be answered is worked out from the table alone: the first row that applies.

    oracle.py --aggregator HOST:PORT --server-name NAME --tls DIR --settings RUN.CFG

The run: strict mode, sites a and b, one fragment, no other process. Certificates: also of a site z that is not in the roster, and of
an operator. This program is both sites.
"""
import argparse
import itertools
import random
import sys

import grpc
import numpy as np

import atoll_pb2 as pb
import formats
import signing
import wire
from formats import F32, sha256

READMIT = 3
OTHER = bytes(range(32))
wrong = []


def expect(what, wanted, answer):
    wanted = {wanted} if isinstance(wanted, str) else wanted
    if answer not in wanted:
        wrong.append(what)
        print(f"WRONG: {what}: answered {answer}, the table says {' or '.join(sorted(wanted))}", flush=True)


class Peer:
    """A process that holds a certificate; what it says of itself is in `head`."""

    def __init__(self, a, certificate, name):
        with open(a.settings, encoding="utf-8") as f:
            self.text = f.read()
        self.s = formats.settings(self.text)
        self.link = wire.Aggregator(a.aggregator, a.server_name, a.tls, certificate, self.s["run.name"].encode())
        self.head = pb.Head(run=self.s["run.name"].encode(), site=name.encode(), config=formats.settings_digest(self.text),
                            incarnation=5, instance=random.getrandbits(62), roster_version=1)

    def call(self, name, message):
        """-> outcome or "status NAME", answer."""
        try:
            answer = self.link.calls[name](message, timeout=20)
        except grpc.RpcError as e:
            return f"status {e.code().name}", None
        return wire.outcome(getattr(answer, "answer", answer)), answer

    def hello(self, state=None, **changes):
        request = pb.HelloRequest(head=self.head, major=1, config_text=self.text.encode(), has_state=state is not None)
        if self.link.identity:
            request.identity = self.link.identity.certificate
        if state is not None:
            request.fragments.add(**state)
        for field, value in changes.items():
            setattr(request, field, value)
        kind, answer = self.call("hello", request)
        if answer is not None and answer.term:
            self.head.term, self.head.roster_version = answer.term, answer.roster_version
        return kind, answer

    def contribute(self, *messages):
        """The answers to these messages, as outcomes; the last one may be a status."""
        found = []
        for m in messages:
            if m.HasField("offer") and not m.offer.signature:
                self.link.identity.sign(m.offer)
        try:
            stream = self.link.upload(iter(messages), timeout=20)
            for answer in stream:
                found.append(wire.outcome(answer))
        except grpc.RpcError as e:
            found.append(f"status {e.code().name}")
        return found


class Run:
    """Round 0 is committed, round 1 in flight; what a good offer of site b has."""

    def __init__(self, a):
        self.a, self.b, self.operator = Peer(a, "a", "a"), Peer(a, "b", "b"), Peer(a, "operator", "operator")
        self.strikes = 0
        kind, answer = self.a.hello()
        expect("hello without a state", "join", kind)
        self.there = answer.fragments[0]
        self.b.hello()
        for peer in (self.a, self.b):
            peer.link.head.CopyFrom(peer.head)
        self.snapshot = self.a.link.fetch(wire.SNAPSHOT, 0, 0, 1 << 20)[1]
        expect("the snapshot's digest", "True", str(sha256(self.snapshot) == self.there.state))
        self.count = len(self.snapshot) // (8 * 256 + 1) * 256
        self.theta = np.frombuffer(self.snapshot, F32, self.count)
        self.grid = np.zeros(self.count // 256, np.uint8)

    def payload(self, codec, scale):
        z = self.theta * F32(scale)
        return formats.encode(codec, z, self.grid, np.zeros_like(z))[0]

    def offer(self, peer, round_, codec, payload, parent):
        return pb.Offer(head=peer.head, fragment=0, round=round_, codec=formats.CODECS.index(codec), payload_bytes=len(payload),
                        payload=sha256(payload), parent=parent, grid=sha256(self.grid.tobytes()), weight=1.0, data_cursor=1)

    def begin(self):
        """Both send round 0."""
        for peer, scale in ((self.a, 0.01), (self.b, 0.02)):
            payload = self.payload("bf16", scale)
            expect("a good contribution", "receipt",
                   peer.contribute(pb.Upload(offer=self.offer(peer, 0, "bf16", payload, b"")), *chunks(payload))[-1])
        kind, answer = self.b.call("poll", pb.PollRequest(head=self.b.head, round=0, hold_ms=10000))
        expect("poll of a round that is complete", "commit", kind)
        self.manifest = formats.Manifest(answer.manifest)
        self.b.link.head.CopyFrom(self.b.head)
        data = self.b.link.fetch(wire.AGGREGATE, 0, 0, 1 << 20)[1]
        mean, codes = formats.mean_of("bf16", data, self.count, self.grid, [e["weight"] for e in self.manifest.entries])
        s = self.b.s
        theta, momentum = formats.outer_step({"outer.optimizer": "nesterov"}, self.theta, np.zeros_like(mean), mean, F32(float(s["outer.lr"])),
                                             F32(float(s["outer.momentum"])))
        self.grid = codes
        self.state = sha256(theta.tobytes(), momentum.tobytes(), codes.tobytes())
        expect("the state after round 0", "True", str(self.state == self.manifest.state_after))
        self.good = self.payload("int8", 0.01)
        self.now = dict(round=1, state=self.state, manifest=self.manifest.digest)

    def readmit(self):
        kind, _ = self.operate(pb.OperateRequest(act=READMIT, site=b"b"))
        expect("an operator readmits b", "current", kind)
        expect("a call before hello, after a quarantine", "rebind", self.ask(self.good_offer(), again=False))
        self.b.hello(self.now)
        self.strikes = 0

    def operate(self, message, peer=None):
        call = (peer or self.operator).link.operate
        try:
            answer = call(message, timeout=20)
        except grpc.RpcError as e:
            return f"status {e.code().name}", None
        return wire.outcome(answer), answer

    def good_offer(self):
        return self.offer(self.b, 1, "int8", self.good, self.manifest.digest)

    def ask(self, offer, peer=None, again=True):
        """The first answer to an offer. Three answers `invalid` are a quarantine (3.12): then b is readmitted and asks again."""
        answer = (peer or self.b).contribute(pb.Upload(offer=offer))[0]
        self.strikes += answer == "invalid"
        if again and answer == "excluded" and peer is None and self.strikes >= 3:
            self.readmit()
            return self.ask(offer)
        return answer


def chunks(payload, size=1 << 20):
    return [pb.Upload(offset=at, total=len(payload), crc32c=formats.crc32c(payload[at:at + size]), data=payload[at:at + size])
            for at in range(0, len(payload), size)]


# ---- row 1 to 10: faults of an offer ----


def faults(run):
    """(row of the table, and place in it, answer, what it changes, name, change)."""
    head = run.b.head

    def put(field, value):
        def change(offer):
            at = offer.head if hasattr(offer.head, field) else offer
            setattr(at, field, value)
        return change

    rows = [(1, "denied", "site", b"a"), (2.1, "mismatch", "run", b"other"), (2.1, "mismatch", "config", OTHER),
            (2.1, "mismatch", "aggregator", 1), (2.1, "mismatch", "roster_version", 2), (2.2, "invalid", "signature", b"x" * 64),
            (2.3, "invalid", "weight", 0.0), (2.3, "invalid", "weight", 1e6), (2.3, "invalid", "fragment", 9),
            (2.3, "invalid", "payload", b""), (2.3, "invalid", "round", 5), (2.4, "mismatch", "codec", 0), (2.4, "mismatch", "codec", 99),
            (3, "rebind", "term", head.term - 1), (3, "rebind", "term", head.term + 1),
            (4, "superseded", "incarnation", head.incarnation - 1), (4, "conflict", "instance", head.instance + 1),
            (4, "rebind", "incarnation", head.incarnation + 1), (5, "behind", "round", 0), (5, "conflict", "round", 2),
            (6, "conflict", "parent", OTHER), (6, "mismatch", "grid", OTHER), (9, "invalid", "payload_bytes", 0),
            (9, "invalid", "payload_bytes", 1 << 40)]
    return [(row, answer, field, f"{field}={value if isinstance(value, (int, float)) else value[:5]}", put(field, value))
            for row, answer, field, value in rows]


def answers(*rows):
    """Of the first row that applies; a row with two answers does not say which is first."""
    first = min(row for row, _ in rows)
    return {answer for row, answer in rows if row == first}


def ask_pairs(run):
    found = faults(run)
    asked = 0
    for pair in [(f,) for f in found] + list(itertools.combinations(found, 2)):
        fields = [field for _, _, field, _, _ in pair]
        if len(set(fields)) < len(fields):
            continue
        # The codec is compared in the round in flight; instances where the incarnation is the bound one; rosters in no older term.
        older = any(name == f"term={run.b.head.term - 1}" for _, _, _, name, _ in pair)
        rows = [(row, answer) for row, answer, field, _, _ in pair
                if not (field == "codec" and "round" in fields) and not (field == "instance" and "incarnation" in fields)
                and not (field == "roster_version" and older)]
        offer = run.good_offer()
        for _, _, _, _, change in pair:
            change(offer)
        expect("an offer with " + " and ".join(name for _, _, _, name, _ in pair), answers(*rows), run.ask(offer))
        asked += 1
    return asked


def ask_form(run):
    """Malformed messages never reach the service."""
    def offer(**fields):
        found = run.good_offer()
        for field, value in fields.items():
            setattr(found.head if hasattr(found.head, field) else found, field, value)
        return pb.Upload(offer=found)
    bad = {"a digest of 5 bytes": offer(payload=b"12345"), "a zero byte in the run's name": offer(run=b"e2\0e"),
           "a name that is not UTF-8": offer(site=b"\xff"), "a name of 64 bytes": offer(site=b"b" * 64), "fragment 64": offer(fragment=64),
           "a weight that is not a number": offer(weight=float("nan")), "a negative weight": offer(weight=-1.0),
           "a residual ratio of 255": offer(residual_ratio=255), "a chunk before the offer": chunks(run.good)[0],
           "a signature of 5 bytes": offer(signature=b"12345"), "an offer with data": pb.Upload(offer=run.good_offer(), data=b"x")}
    for name, message in bad.items():
        expect(name, "status INVALID_ARGUMENT", run.b.contribute(message)[-1])
    return len(bad)


# ---- row 7 to 12: what comes after the offer ----


def ask_payload(run):
    good, first = run.good, pb.Upload(offer=run.good_offer())
    other = run.payload("int8", 0.03)
    damaged = chunks(good)
    damaged[0].crc32c ^= 1
    late = chunks(good, 4096)
    expect("a good offer", "resume", run.ask(run.good_offer()))
    expect("row 10: other bytes of the same process", "conflict", run.ask(run.offer(run.b, 1, "int8", other, run.manifest.digest)))
    expect("a chunk with another CRC", "resume", run.b.contribute(first, *damaged)[-1])
    expect("a chunk that does not continue", "resume", run.b.contribute(first, *late[1:])[-1])
    expect("a stream that ends early", "resume", run.b.contribute(first, *late[:2])[-1])
    long = chunks(good)[0]
    long.total += 1
    expect("a chunk of another total", "invalid", run.b.contribute(first, long)[-1])
    # A new process of b: it may send other bytes, which its predecessor offered but did not store.
    run.b.head.incarnation += 1
    run.b.head.instance += 1
    run.b.hello(run.now)
    broken = bytearray(good)
    broken[-1] = 255  # an integer above 127
    offer = run.offer(run.b, 1, "int8", bytes(broken), run.manifest.digest)
    expect("row 12: bytes that do not decode", "invalid", run.b.contribute(pb.Upload(offer=offer), *chunks(bytes(broken)))[-1])
    run.b.head.incarnation += 1
    run.b.hello(run.now)
    offer = run.good_offer()
    expect("bytes of another digest", "resume", run.b.contribute(pb.Upload(offer=offer), *chunks(bytes(broken)))[-1])
    offer = run.good_offer()
    expect("row 12: the good bytes", "receipt", run.b.contribute(pb.Upload(offer=offer), *chunks(good))[-1])
    expect("row 7: the same again", "receipt", run.ask(run.good_offer()))
    expect("row 7: another digest", "conflict", run.ask(run.offer(run.b, 1, "int8", other, run.manifest.digest)))
    offer = run.good_offer()
    offer.parent = OTHER
    expect("row 6 before row 7", "conflict", run.ask(offer))
    return 13


# ---- the other calls ----


def ask_calls(run, a):
    b, head = run.b, run.b.head
    z = Peer(a, "z", "z")
    z.head.term = head.term
    expect("hello of a site that is not in the roster", "excluded", z.hello()[0])
    expect("an offer of a site that is not in the roster", "excluded", run.ask(run.offer(z, 1, "int8", run.good, OTHER), peer=z))
    expect("an operator's hello", "denied", Peer(a, "operator", "b").hello()[0])
    expect("a site that readmits", "denied", run.operate(pb.OperateRequest(act=READMIT, site=b"b"), peer=b)[0])
    expect("hello without an identity", "denied", b.hello(run.now, identity=b"")[0])
    expect("hello with the identity of another site", "denied", b.hello(run.now, identity=run.a.link.identity.certificate)[0])
    stolen = run.good_offer()
    run.a.link.identity.sign(stolen)
    expect("an offer that another site has signed", "invalid", run.ask(stolen))
    expect("another major version", "mismatch", b.hello(run.now, major=2)[0])
    expect("a text that is not its digest's", "invalid", b.hello(run.now, config_text=b"run.name=x\n")[0])
    other = b.text.replace("outer.every=8", "outer.every=4")
    head.config = formats.settings_digest(other)
    expect("other settings", "mismatch", b.hello(run.now, config_text=other.encode())[0])
    head.config = formats.settings_digest(b.text)
    expect("hello with our state", "current", b.hello(run.now)[0])
    expect("hello with the state before", "behind", b.hello(dict(round=0, state=run.there.state))[0])
    expect("hello with another initial state", "mismatch", b.hello(dict(round=0, state=OTHER))[0])
    expect("hello with another history", "conflict", b.hello(dict(run.now, manifest=OTHER))[0])
    expect("hello with another state of that manifest", "diverged", b.hello(dict(run.now, state=OTHER))[0])
    expect("hello with a later round", "conflict", b.hello(dict(run.now, round=2))[0])
    head.term += 1
    expect("hello with a later term that nothing proves", "conflict", b.hello(run.now)[0])
    head.term -= 1
    expect("hello without a state", "join", b.hello()[0])
    poll = lambda round_, **fields: b.call("poll", pb.PollRequest(head=head, round=round_, **fields))[0]
    expect("poll of a committed round", "commit", poll(0))
    expect("poll of the round in flight", "pending", poll(1))
    expect("poll of a later round", "conflict", poll(2))
    expect("poll of a fragment that is not there", "invalid", poll(0, fragment=9))
    report = lambda **fields: b.call("report", pb.ReportRequest(head=head, **fields))[0]
    expect("report of our state", "current", report(round=1, state=run.state))
    expect("report of the state before", "behind", report(round=0, state=run.there.state))
    expect("report of another state", "diverged", report(round=1, state=OTHER))
    expect("report of a later state", "conflict", report(round=2, state=run.state))
    expect("leave", "current", b.call("leave", pb.LeaveRequest(head=head))[0])
    expect("a call after leave", "rebind", poll(0))
    return 28


def ask_proofs(run, a):
    """What a site shows of a later term. A proof is one with the aggregator's signature; it ends the aggregator."""
    b, later = run.b, run.b.head.term + 1
    own = signing.Identity(a.tls, "aggregator", b.head.run)
    proof = own.announce(0, later, 7)
    expect("the announcement of a later term, damaged", "current", b.hello(run.now, announcement=proof[:-1] + b"x")[0])
    expect("the announcement of a later term, by a site", "current", b.hello(run.now, announcement=b.link.identity.announce(0, later, 7))[0])
    # It ends with exit code 4, which oracle.sh looks at; the answer may be lost with it.
    expect("the announcement of a later term", {"lost_state", "status UNAVAILABLE"}, b.hello(run.now, announcement=proof)[0])
    return 3


def main():
    p = argparse.ArgumentParser()
    for name in ("aggregator", "server-name", "tls", "settings"):
        p.add_argument(f"--{name}", required=True)
    a = p.parse_args()
    run = Run(a)
    run.begin()
    asked = ask_pairs(run) + ask_form(run) + ask_payload(run) + ask_calls(run, a) + ask_proofs(run, a)
    print(f"{asked} questions, {len(wrong)} answers that the documents do not have", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
