#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site of a run, written from docs/formats.md, docs/protocol.md and proto/atoll.proto alone. It has no model and no data: its local
parameters are a fixed function of the outer ones, since what it tests is the exchange. Strict and quorum mode, without overlap.

    client.py --aggregator HOST:PORT --server-name NAME --tls DIR --settings RUN.CFG --site NAME --dir DIR
        [--share X]                 weight of the site
        [--noise N] [--step X]      local parameters: another N, others; X: how far they move
        [--chunk BYTES] [--pause S] of what it sends: size of a chunk, seconds before each
        [--die F:R:POINT]           kills itself (SIGKILL) in round R of fragment F: stored, sending, adopting
        [--check F:R]               repeats the mean and the outer step of that round with exact fractions
"""
import argparse
import os
import random
import signal
import sys

import numpy as np

import atoll_pb2 as pb
import formats
import reference
import wire
from formats import F32, need
from store import Store, blob
from wire import Refused, say

# What a site cannot follow by itself with only 7 and 8 of docs/formats.md: refused at the start.
ONLY = {"outer.aggregators": "1", "outer.merge": "mean", "outer.overlap_steps": "0", "outer.eager": "false", "outer.draw": "1",
        "outer.every_s": "0", "outer.slices": "[]", "outer.grow": "[]", "outer.first_every": "0", "outer.second_every": "0",
        "outer.lr_schedule": "constant", "outer.momentum_restart": "0", "outer.weights": "tokens", "train.stages": "[]",
        "outer.before_update": "false", "outer.residual_reset": "0"}


class Fragment:
    """4: the state of a fragment, and what the site keeps in addition."""

    def __init__(self, fields):
        self.round, self.ratio = int(fields["round"]), int(fields["ratio"])
        self.manifest, self.proof = fields["manifest"].tobytes(), fields["proof"].tobytes()
        self.theta, self.momentum, self.codes, self.residual = (fields[k] for k in ("theta", "momentum", "codes", "residual"))

    def fields(self):
        return dict(round=self.round, ratio=self.ratio, manifest=blob(self.manifest), proof=blob(self.proof), theta=self.theta,
                    momentum=self.momentum, codes=self.codes, residual=self.residual)

    def parts(self):
        return self.theta, self.momentum, self.codes

    @staticmethod
    def of_snapshot(data, slabs, round_, made):
        """slabs: how many the optimizer keeps; they are one array here. made: the manifest; None for state 0."""
        each = 4 * (1 + slabs) * 256 + 1
        need(len(data) % each == 0, "a snapshot of another size than a state's")
        blocks = len(data) // each
        values = np.frombuffer(data, F32, blocks * 256 * (1 + slabs))
        theta, rest = values[:blocks * 256], values[blocks * 256:]
        return Fragment(dict(round=round_, ratio=made.ratio() if made else 0, manifest=blob(made.digest if made else b""),
                             proof=blob(made.proof if made else b""), theta=theta, momentum=rest,
                             codes=np.frombuffer(data, np.uint8, blocks, len(data) - blocks), residual=np.zeros(len(theta), F32)))


class Site:
    def __init__(self, a):
        self.a = a
        with open(a.settings, encoding="utf-8") as f:
            self.text = "".join(line for line in f if not line.startswith("train.steps.former="))
        self.s = formats.settings(self.text)
        for key, value in ONLY.items():
            need(self.s.get(key, value) == value, f"{key}: {self.s.get(key)}; this client knows {value} only")
        self.config = formats.settings_digest(self.text)
        self.roster = formats.names(self.s["outer.sites"])
        self.index = self.roster.index(a.site)
        self.count = int(self.s["outer.fragments"])
        self.store = Store(a.dir)
        known = self.store.get("amendments")
        self.amendments = formats.amendments_of(formats.Reader(known["part"].tobytes())) if known else []
        before = self.store.get("incarnation")
        incarnation = int(before["number"]) + 1 if before else 1
        self.store.put("incarnation", number=incarnation)
        self.link = wire.Aggregator(a.aggregator, a.server_name, a.tls, a.site, self.s["run.name"].encode())
        self.link.head.CopyFrom(pb.Head(run=self.s["run.name"].encode(), site=a.site.encode(), config=self.config,
                                        incarnation=incarnation, instance=random.getrandbits(63)))
        self.link.greet = self.hello
        seen, self.term, self.instance = self.store.get("announcement"), 0, 0
        if seen is not None:
            self.term, self.instance = int(seen["term"]), int(seen["instance"])
            self.link.identity.announcement = seen["data"].tobytes()
        found = [self.store.get(f"fragment-{f}") for f in range(self.count)]
        self.state = [Fragment(x) for x in found] if all(found) else None
        self.ends = []
        say("start", site=a.site, incarnation=incarnation, state=self.state is not None)

    def digest(self, s):
        return formats.state_digest(self.s, *s.parts())

    # ---- 10, 1: hello ----

    def hello(self):
        identity = self.link.identity
        request = pb.HelloRequest(major=1, minor=0, config_text=self.text.encode(), has_state=self.state is not None,
                                  identity=identity.certificate, announcement=identity.announcement)
        for s in self.state or []:
            request.fragments.add(round=s.round, state=self.digest(s), manifest=s.manifest, proof=s.proof)
        kind, answer = self.link.small("hello", request)
        if kind not in ("current", "behind", "join"):
            raise Refused(f"hello: {kind}: {answer.text.decode()}")
        identity.heard(answer, 0)
        need(answer.term > self.term or (answer.term, answer.instance) == (self.term, self.instance),
             "a term that this site has left, or another instance of it")
        self.term, self.instance = answer.term, answer.instance
        self.store.put("announcement", data=blob(identity.announcement), term=np.uint64(self.term), instance=np.uint64(self.instance))
        self.link.head.term, self.link.head.roster_version = answer.term, answer.roster_version
        need(len(answer.fragments) == self.count, "other fragments than the settings'")
        self.ends, self.there = list(answer.ends), answer.fragments
        say("hello", answer=kind, term=answer.term)
        if kind == "join":
            self.join()
            self.hello()

    def join(self):
        state = []
        for f, there in enumerate(self.there):
            made, wanted = None, there.state
            if there.round:
                made = self.manifest(f, there.round - 1)
                need(made is not None and made.digest == there.manifest, "another manifest than hello's")
                self.amend(1, made, 0)  # also those that are in force already
                wanted = made.state_after
            kind, data = self.link.fetch(wire.SNAPSHOT, f, there.round, 1 << 16)
            if kind == "gone":  # it has continued: the hello after this one says where to
                return
            slabs = formats.SLABS.get(self.s["outer.optimizer"], 0)
            state.append(Fragment.of_snapshot(data, slabs, there.round, made))
            need(self.digest(state[-1]) == wanted, "a snapshot that is not the state of its digest")
        for f, s in enumerate(state):
            self.store.put(f"fragment-{f}", **s.fields())
        self.state = state

    # ---- amendments (docs/protocol.md 3.17) ----

    def stretches(self):
        return formats.stretches(self.s, self.amendments, self.ends)

    def ended_by(self, f, round_):
        """The step that ends the round."""
        return [step for step, p, r in formats.rounds(self.stretches(), self.ends) if (p, r) == (f, round_)][0]

    def in_force(self, f, round_):
        return formats.in_force(self.stretches(), self.ended_by(f, round_))

    def mu(self, f, round_):
        s, step = self.in_force(f, round_), self.ended_by(f, round_)
        return formats.momentum_of_round(s, round_, step, min([e for e in self.ends if e >= step], default=int(s["train.steps"])))

    def lr(self, f, round_):
        return F32(float(self.in_force(f, round_)["outer.lr"]))

    def amend(self, f, m, round_):
        """S6, then durable. round_: the first one of the fragment after the manifest's."""
        known, both = self.amendments, min(len(self.amendments), len(m.amendments))
        need(m.amendments[:both] == known[:both], "S6: other amendments than the known ones")
        new = m.amendments[both:]
        need(f or all(at >= round_ for _, at, _ in new), "S6: an amendment of a round that is over")
        if new:
            self.store.put("amendments", part=blob(m.amended))
            self.amendments = m.amendments
            for text, at, _ in new:
                say("amendment", setting=text, from_round=at)

    # ---- S1 to S5 ----

    def local(self, f, s):
        """In place of training: every parameter moves towards zero, by half of --step on average."""
        noise = np.random.Generator(np.random.Philox(key=[self.a.noise, f << 32 | s.round])).random(len(s.theta), F32)
        return s.theta * (F32(1) - F32(self.a.step) * noise)

    def make(self, f, step, steps, codec):
        s = self.state[f]
        weight = F32(self.a.share * steps / int(self.in_force(f, s.round)["outer.every"]))
        decay = F32(float(self.s["outer.error_feedback_decay"]))
        residual = s.residual if decay == 1 else decay * s.residual
        z = weight * (s.theta - self.local(f, s)) + residual
        payload, left = formats.encode(codec, z, s.codes, residual)
        whole = formats.decode(codec, payload, len(z), s.codes) + left
        need((whole == z).all() or codec == "sign", "I3: sent and kept are not z")
        ratio = formats.ratio_byte(formats.squares_all(left), formats.squares_all(z - residual))
        tokens = int(step * int(self.s["train.batch_tokens"]) * self.a.share)
        self.store.put(f"outbox-{f}", round=s.round, payload=blob(payload), residual=left, weight=weight, ratio=ratio, tokens=tokens,
                       codec=codec)
        say("stored", fragment=f, round=s.round, codec=codec, bytes=len(payload), payload=formats.sha256(payload).hex())
        self.point(f, s.round, "stored")

    def offer(self, f, box):
        s, payload = self.state[f], box["payload"].tobytes()
        return pb.Offer(fragment=f, round=s.round, codec=formats.CODECS.index(str(box["codec"])), payload_bytes=len(payload),
                        payload=formats.sha256(payload), parent=s.manifest, grid=formats.sha256(s.codes.tobytes()),
                        weight=float(box["weight"]), data_cursor=int(box["tokens"]), residual_ratio=int(box["ratio"]))

    def send(self, f, box):
        s, payload = self.state[f], box["payload"].tobytes()
        offer = self.offer(f, box)
        if self.there[f].round == s.round and self.there[f].accepted == offer.payload:
            say("accepted_before", fragment=f, round=s.round)
            return
        kind = self.link.contribute(offer, payload, (self.a.chunk, self.a.pause), lambda _: self.point(f, s.round, "sending"))
        say("sent", fragment=f, round=s.round, answer=kind)

    # ---- S6 to S9 ----

    def manifest(self, f, round_):
        """None: no longer kept."""
        while True:
            kind, answer = self.link.small("poll", pb.PollRequest(fragment=f, round=round_, hold_ms=2000))
            if kind == "commit":
                m = formats.Manifest(answer.manifest)
                self.link.identity.check(m)
                need(m.term < self.term or (m.term, m.instance) == (self.term, self.instance), "S6: a manifest of another term")
                return m
            if kind == "gone":
                return None
            if kind != "pending":
                raise Refused(f"poll: {kind}: {answer.answer.text.decode()}")

    def check(self, f, m, codec, box):
        s = self.state[f]
        included, strict = len(m.included()), self.s["outer.mode"] == "strict"
        need(m.run == self.s["run.name"] and m.config == self.config and (m.fragment, m.round) == (f, s.round), "S6: of something else")
        need(m.parent == (s.manifest or formats.ZERO), "S6: another parent")
        need(m.state_before == self.digest(s) and m.grid == formats.sha256(s.codes.tobytes()), "S6: from another state")
        need([e["site"] for e in m.entries] == list(range(len(self.roster))), "S6: other sites than the roster's")
        least = len(self.roster) if strict else len(self.roster) // 2 + 1
        need(included >= least or included == 0, "S6: too few sites")
        need(formats.CODECS[m.codec] == codec, "S6: another codec than the round's")
        own = m.entries[self.index]
        if not own["included"]:
            return False
        need(box is not None, "S6: something is included that this site did not store")
        sent = self.offer(f, box)
        need((own["payload"], own["payload_bytes"], own["data_cursor"], own["residual_ratio"]) ==
             (sent.payload, sent.payload_bytes, sent.data_cursor, sent.residual_ratio) and F32(own["weight"]) == box["weight"],
             "S6: this site's entry is not what was sent")
        return True

    def step(self, f, m, codec):
        """S7: theta', momentum', codes."""
        s = self.state[f]
        half = m.aggregate_bytes // 2
        kind, first = self.link.fetch(wire.AGGREGATE, f, m.round, 4096, size=half)
        kind_too, rest = self.link.fetch(wire.AGGREGATE, f, m.round, 4096, offset=half)
        need((kind, kind_too) == ("none", "none"), "the aggregate is gone")
        data = first + rest
        need(len(data) == m.aggregate_bytes and formats.sha256(data) == m.aggregate, "S6: not the manifest's aggregate")
        weights = [e["weight"] for e in m.included()]
        factors = [f for f, e in zip(m.factors, m.entries) if e["included"]] if m.factors else None
        mean, codes = formats.mean_of(codec, data, len(s.theta), s.codes, weights, factors)
        lr, mu = self.lr(f, s.round), self.mu(f, s.round)
        theta, momentum = formats.outer_step(self.s, s.theta, s.momentum, mean, lr, mu)
        if self.a.check and (f, m.round) in self.a.check:
            self.check_slowly(f, codec, data, (weights, factors), mean, theta, momentum)
        return theta, s.momentum if momentum is None else momentum, codes

    def check_slowly(self, f, codec, data, shares, mean, theta, momentum):
        """A sample of the blocks: fractions are slow."""
        (weights, factors), s, some = shares, self.state[f], slice(None, None, 8)
        sample = lambda x: x.reshape(-1, formats.BLOCK)[some].ravel()
        if codec in formats.CLIP or codec == "fixed":
            read = formats.signs_of if codec == "sign" else formats.sums_of
            sums = read(codec, data, len(s.theta), len(weights))[1]
            exact = reference.mean_of_integers(sums[some], s.codes[some], formats.CLIP.get(codec), weights)
        else:
            values = [formats.decode(codec, p, len(s.theta), s.codes) for p in formats.payloads_of(data, len(weights))]
            exact = reference.mean_of_values([sample(v) for v in values], weights, factors)
        need(reference.same(exact, sample(mean)), "the mean is not the one of exact fractions")
        if self.s["outer.optimizer"] == "nesterov":
            slow = reference.nesterov(sample(s.theta), sample(s.momentum), exact, self.lr(f, s.round), self.mu(f, s.round))
            need(reference.same(slow[0], sample(theta)) and reference.same(slow[1], sample(momentum)),
                 "the outer step is not the one of exact fractions")
        say("exact", fragment=f, round=s.round, codec=codec, values=len(exact))

    def adopt(self, f, m, codec, box):
        s = self.state[f]
        included = self.check(f, m, codec, box)
        fields = s.fields()
        if m.rolled_to is not None:
            raise Refused("a rollback is not in this client")
        if m.included():
            fields["theta"], fields["momentum"], fields["codes"] = self.step(f, m, codec)
        if box is not None:
            left = box["residual"]
            fields["residual"] = left if included else left + formats.decode(codec, box["payload"].tobytes(), len(left), s.codes)
        fields.update(round=s.round + 1, manifest=blob(m.digest), proof=blob(m.proof), ratio=m.ratio())
        new = Fragment(fields)
        need(self.digest(new) == m.state_after, f"S7: state {new.round} of fragment {f} is not the manifest's")
        self.amend(f, m, s.round + 1)
        self.point(f, s.round, "adopting")
        self.store.put(f"fragment-{f}", **fields)  # == commit point ==
        self.state[f] = new
        self.store.drop(f"outbox-{f}")
        say("adopted", fragment=f, round=m.round, codec=codec, included=int(included), momentum=self.mu(f, m.round),
            factor=m.factors[self.index] if m.factors else 1, payload=m.entries[self.index]["payload"].hex(),
            state=self.digest(new).hex())

    def report(self, f, step):
        s = self.state[f]
        kind, answer = self.link.small("report", pb.ReportRequest(fragment=f, round=s.round, state=self.digest(s), step=step,
                                                                  tokens=int(step * int(self.s["train.batch_tokens"]) * self.a.share)))
        if kind not in ("current", "behind"):
            raise Refused(f"report: {kind}: {answer.text.decode()}")

    # ---- the run ----

    def closed(self, f):
        """A round that is over without this site's contribution: by an operator's act, and the work goes into the residual."""
        m = self.manifest(f, self.state[f].round)
        return m is not None and not m.included()

    def round(self, f, step, steps, last):
        s = self.state[f]
        codec = formats.codec_of_round(self.in_force(f, s.round), s.round, last, s.ratio)
        box = self.store.get(f"outbox-{f}")
        if box is not None and int(box["round"]) != s.round:
            box = None
        if box is None and (self.there[f].round <= s.round or self.closed(f)):
            self.make(f, step, steps, codec)
            box = self.store.get(f"outbox-{f}")
        if box is not None:
            self.send(f, box)
        m = self.manifest(f, s.round)
        need(m is not None, "this site is older than all that is kept")
        self.adopt(f, m, codec, box)
        self.report(f, step)

    def run(self):
        self.hello()
        before, at = [0] * self.count, (0, 0)
        while True:  # an amendment changes what lies ahead
            found = self.stretches()
            steps = int(found[-1][1]["train.steps"])
            ahead = [x for x in formats.rounds(found, self.ends) if x[:2] > at]
            if not ahead:
                break
            step, f, r = ahead[0]
            if self.state[f].round == r:
                self.round(f, step, step - before[f], step == steps or step in self.ends)
            before[f], at = step, (step, f)
        for f in range(self.count):
            self.report(f, steps)
        try:
            self.link.calls["leave"](pb.LeaveRequest(head=self.link.head, text=b"the end"), timeout=5)
        except wire.grpc.RpcError:
            pass  # the aggregator ends when all have reported
        say("final", rounds=sum(s.round for s in self.state), outer=formats.outer_digest(self.s, [s.parts() for s in self.state]).hex())

    def point(self, f, round_, name):
        if self.a.die == f"{f}:{round_}:{name}":
            say("dies", fragment=f, round=round_, point=name)
            os.kill(os.getpid(), signal.SIGKILL)


def arguments():
    p = argparse.ArgumentParser()
    for name in ("aggregator", "server-name", "tls", "settings", "site", "dir"):
        p.add_argument(f"--{name}", required=True)
    p.add_argument("--share", type=float, default=1.0)
    p.add_argument("--noise", type=int, default=1)
    p.add_argument("--step", type=float, default=0.06)
    p.add_argument("--chunk", type=int, default=1 << 20)
    p.add_argument("--pause", type=float, default=0.0)
    p.add_argument("--die", default="")
    p.add_argument("--check", action="append", type=lambda x: tuple(map(int, x.split(":"))))
    return p.parse_args()


if __name__ == "__main__":
    try:
        Site(arguments()).run()
    except (Refused, formats.Malformed) as e:
        say("error", why=f'"{e}"')
        sys.exit(1)
