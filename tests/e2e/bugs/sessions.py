# SPDX-License-Identifier: Apache-2.0
"""Event files of TensorBoard: a step that is there twice needs a record (SessionLog START) that a session began.
python3 sessions.py FILE..."""
import pathlib
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from watch import fields  # noqa: E402, the reader of protobuf messages

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
