# SPDX-License-Identifier: Apache-2.0
"""Calls of a site to one aggregator (docs/formats.md 2, 10). An answer that needs more than a value is returned as it came; `rebind` and
a link that is down are dealt with here."""
import os
import random
import threading
import time

import grpc

import atoll_pb2 as pb
import formats
import signing

OUTCOMES = ("none receipt resume behind late early rebind denied excluded invalid mismatch conflict superseded lost_state full current "
            "join diverged pending commit gone").split()
AGGREGATE, SNAPSHOT = 0, 1
CHUNK_MAX = 1 << 20
DOWN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class Refused(Exception):
    """An answer that ends this site's part in the run."""


def say(event, **values):
    print(f"ev={event}", *[f"{k}={v}" for k, v in values.items()], flush=True)


def outcome(answer):
    return OUTCOMES[answer.outcome] if answer.outcome < len(OUTCOMES) else f"number {answer.outcome}"


class Aggregator:
    def __init__(self, target, server_name, tls, site, run):
        with open(f"{tls}/ca.pem", "rb") as ca, open(f"{tls}/{site}.key", "rb") as key, open(f"{tls}/{site}.pem", "rb") as own:
            credentials = grpc.ssl_channel_credentials(ca.read(), key.read(), own.read())
        options = [("grpc.ssl_target_name_override", server_name), ("grpc.enable_http_proxy", 0)]
        control, bulk = (grpc.secure_channel(target, credentials, options + [("grpc.use_local_subchannel_pool", 1)]) for _ in "cb")
        unary = lambda name, answer: control.unary_unary(f"/atoll.Control/{name}", lambda m: m.SerializeToString(), answer.FromString)
        self.calls = {"hello": unary("Hello", pb.HelloAnswer), "poll": unary("Poll", pb.PollAnswer),
                      "report": unary("Report", pb.Answer), "leave": unary("Leave", pb.Answer)}
        self.operate = unary("Operate", pb.Answer)
        self.upload = bulk.stream_stream("/atoll.Bulk/Contribute", lambda m: m.SerializeToString(), pb.Answer.FromString)
        self.download = bulk.unary_stream("/atoll.Bulk/Fetch", lambda m: m.SerializeToString(), pb.Download.FromString)
        self.head = pb.Head()
        self.greet = None  # says hello: rebind
        self.identity = signing.Identity(tls, site, run) if os.path.exists(f"{tls}/{site}.identity.key") else None

    def again(self, call):
        """call() until it is answered by an aggregator that this process is bound to."""
        wait = 0.05
        while True:
            try:
                answer = call()
            except grpc.RpcError as e:
                if e.code() not in DOWN:
                    raise Refused(f"{e.code().name}: {e.details()}") from e
                time.sleep(wait * random.uniform(0.5, 1))
                wait = min(2 * wait, 2)
                continue
            kind = outcome(getattr(answer, "answer", answer))
            if kind == "rebind":
                self.greet()
            elif kind == "full":
                time.sleep(getattr(answer, "retry_ms", 0) / 1000 or 1)
            else:
                return kind, answer

    def small(self, name, message, timeout=10):
        def call():
            message.head.CopyFrom(self.head)
            return self.calls[name](message, timeout=timeout)
        return self.again(call)

    # ---- contributions ----

    def contribute(self, offer, payload, pace, on_stored):
        """Until `receipt`, `behind` or `late`. pace: bytes of a chunk, seconds between two. on_stored(offset): the aggregator said that so much
        is stored."""
        while True:
            kind, answer = self.again(lambda: self.transfer(offer, payload, pace, on_stored))
            if kind in ("receipt", "behind", "late"):
                return kind
            if kind != "resume":
                raise Refused(f"contribute: {kind}: {answer.text.decode()}")

    def transfer(self, offer, payload, pace, on_stored):
        """One offer and what the aggregator does not have; the last answer."""
        wanted = Mailbox()
        offer.head.CopyFrom(self.head)
        offer.transfer = random.getrandbits(63)
        self.identity.sign(offer)
        stream = self.upload(self.messages(offer, payload, pace, wanted), timeout=60)
        answer = None
        for answer in stream:
            kind = outcome(answer)
            if not wanted.filled and kind == "resume":
                say("resume", fragment=offer.fragment, round=offer.round, offset=answer.offset)
                wanted.put(self.missing(answer, len(payload)))
            elif kind == "none":
                on_stored(answer.offset)
            else:
                wanted.put([])
        return answer if answer is not None else pb.Answer(outcome=OUTCOMES.index("resume"))

    @staticmethod
    def missing(answer, total):
        """Ranges of bytes that are not stored: 10, 2."""
        size = max(-(-(-(-total // 256)) // CHUNK_MAX) * CHUNK_MAX, 1)
        ends = [(at, min(at + size, total)) for at in range(0, total, size)]
        if not answer.stored:
            return [(max(at, answer.offset), end) for at, end in ends if answer.offset < end]
        formats.need(len(answer.stored) == len(ends), "an answer about other blocks than the payload's")
        return [(at + stored, end) for (at, end), stored in zip(ends, answer.stored) if at + stored < end]

    @staticmethod
    def messages(offer, payload, pace, wanted):
        yield pb.Upload(offer=offer)
        chunk, pause = pace
        for at, end in wanted.get():
            for start in range(at, end, chunk):
                data = payload[start:min(start + chunk, end)]
                time.sleep(pause)
                yield pb.Upload(offset=start, total=len(payload), crc32c=formats.crc32c(data), data=data)

    # ---- downloads ----

    def fetch(self, what, fragment, round_, chunk, size=0, offset=0):
        """-> outcome, bytes. `gone`: no bytes."""
        def call():
            request = pb.FetchRequest(head=self.head, what=what, fragment=fragment, round=round_, chunk=chunk, offset=offset, size=size)
            stream, data = self.download(request, timeout=60), b""
            first = next(stream).answer
            for part in stream:
                formats.need(part.offset == offset + len(data), "a chunk that does not continue")
                formats.need(part.crc32c == formats.crc32c(part.data), "a chunk with another CRC")
                data += part.data
            self.fetched = data
            return first
        kind, answer = self.again(call)
        if kind not in ("none", "gone"):
            raise Refused(f"fetch: {kind}: {answer.text.decode()}")
        return kind, self.fetched if kind == "none" else b""


class Mailbox:
    """One value from the thread that reads answers to the thread that sends."""

    def __init__(self):
        self.filled, self.value, self.event = False, [], threading.Event()

    def put(self, value):
        if not self.filled:
            self.filled, self.value = True, value
            self.event.set()

    def get(self):
        return self.value if self.event.wait(60) else []
