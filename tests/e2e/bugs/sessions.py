"""Event files of TensorBoard: a step that is there twice needs a record (SessionLog START) that a session began.
python3 sessions.py FILE..."""
import struct
import sys


def varint(b, i):
    r = s = 0
    while True:
        c = b[i]
        i += 1
        r |= (c & 127) << s
        s += 7
        if c < 128:
            return r, i


def fields(b):
    i = 0
    while i < len(b):
        k, i = varint(b, i)
        if k & 7 == 0:
            v, i = varint(b, i)
        else:
            n = 8 if k & 7 == 1 else 4 if k & 7 == 5 else None
            if n is None:
                n, i = varint(b, i)
            v = b[i:i + n]
            i += n
        yield k >> 3, v


seen, twice, sessions = set(), 0, 0
for name in sorted(sys.argv[1:]):
    b, i = open(name, "rb").read(), 0
    while len(b) - i >= 16 and len(b) - i >= 16 + struct.unpack("<Q", b[i:i + 8])[0]:
        n = struct.unpack("<Q", b[i:i + 8])[0]
        event = list(fields(b[i + 12:i + 12 + n]))
        i += 16 + n
        step = next((v for k, v in event if k == 2), 0)
        sessions += any(k == 7 for k, v in event)
        for k, v in event:
            if k == 5 and b"step/loss" in v:
                twice += step in seen
                seen.add(step)
print(twice, "steps twice,", sessions, "session records")
sys.exit(1 if twice and not sessions else 0)
