# SPDX-License-Identifier: Apache-2.0
"""A site without any package: arrays of the standard library, a training that moves each value towards a function of its place and of
the site. With PLAIN_STILL=1 nothing is trained.

    plain.py CONFIG CHECKPOINT STEPS_BETWEEN_CHECKPOINTS [section.key=value ...]
"""
import array
import math
import os
import sys

import atoll


def main():
    config, path, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
    settings = dict(word.split("=", 1) for word in sys.argv[4:])
    table = atoll.tensors(config, settings)
    values = [array.array("f", bytes(4 * math.prod(t.shape))) for t in table]
    start = 0
    if os.path.exists(path):
        with open(path, "rb") as file:
            start = int.from_bytes(file.read(8), "little")
            for x in values:
                x[:] = array.array("f", file.read(4 * len(x)))

    def read(number, first, count, out):
        out[:] = values[number][first:first + count]

    def write(number, first, count, new):
        values[number][first:first + count] = array.array("f", new)

    own = ord(settings["site.name"][-1])

    def train(step):
        if os.environ.get("PLAIN_STILL"):
            return
        for number, x in enumerate(values):
            for i in range(step % 7, len(x), 7):
                x[i] += 0.1 * (0.02 * math.sin(i + number + own) - x[i])

    with atoll.Site(config, table, read, write, settings, log=lambda level, line: level > 1 and print(line)) as site:
        step = site.start(start)
        while step < site.steps:
            train(step)
            step = site.made(step + 1, loss=1 / (step + 1))
            if step % every == 0:
                site.saving(step)
                with open(path + ".new", "wb") as file:
                    file.write(step.to_bytes(8, "little") + b"".join(x.tobytes() for x in values))
                os.replace(path + ".new", path)
                site.saved(step)
        print(f"step {step}, outer state {site.digest}, {site.status}")


main()
