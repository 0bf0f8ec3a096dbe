#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Multinomial naive Bayes on words and bigrams: the floor that a fine-tuned encoder has to beat.

    python3 tests/bench/naive_bayes.py TRAIN.tsv HELD_OUT.tsv [HELD_OUT.tsv ..] [--labels 2000,1000] [--add 1,0.5]

--add is what every count begins with: 1 is Laplace's rule, less suits many classes better. Rows are `label<TAB>text[<TAB>text_b]`. Prints the accuracy on every held-out file, once with all rows of the training file
and once for every number of labels in --labels (the first rows of the file). Standard library only.
"""
import argparse
import collections
import json
import math
import re

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?]")


def read_rows(path):
    with open(path, encoding="utf-8", newline="\n") as f:
        rows = [line.rstrip("\n").split("\t") for line in f]
    return [(row[0], row[1:]) for row in rows]


def features(texts):
    """Words and bigrams of each text; those of the second text of a pair are features of their own."""
    found = []
    for number, text in enumerate(texts):
        words = WORD.findall(text.lower())
        mark = f"{number}:" if number else ""
        found += [mark + w for w in words]
        found += [f"{mark}{a} {b}" for a, b in zip(words, words[1:])]
    return found


class NaiveBayes:
    def __init__(self, rows, add):
        self.add = add
        self.rows = collections.Counter(label for label, _ in rows)
        self.counts = {label: collections.Counter() for label in self.rows}
        for label, texts in rows:
            self.counts[label].update(features(texts))
        self.known = set().union(*self.counts.values())
        self.totals = {label: sum(c.values()) + add * len(self.known) for label, c in self.counts.items()}

    def classify(self, texts):
        found = [f for f in features(texts) if f in self.known]

        def score(label):
            count, total = self.counts[label], math.log(self.totals[label])
            return math.log(self.rows[label]) + sum(math.log(count[f] + self.add) - total for f in found)

        return max(sorted(self.rows), key=score)


def accuracy(model, rows):
    return sum(model.classify(texts) == label for label, texts in rows) / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("held_out", nargs="+")
    parser.add_argument("--labels", default="", help="numbers of labels, separated by commas")
    parser.add_argument("--add", default="1", help="what every count begins with; several, separated by commas")
    parser.add_argument("--json", action="store_true", help="also prints the best accuracy as a JSON object")
    o = parser.parse_args()
    best = 0.0
    rows = read_rows(o.train)
    for count in [len(rows)] + [int(n) for n in o.labels.split(",") if n]:
        for add in o.add.split(","):
            model = NaiveBayes(rows[:count], float(add))
            for path in o.held_out:
                held_out = read_rows(path)
                right = accuracy(model, held_out)
                best = max(best, right)
                print(f"{count:6d} labels of {o.train}, --add {add}: {100 * right:.1f} % "
                      f"of {len(held_out)} in {path}", flush=True)
    if o.json:
        print(json.dumps({"accuracy": best}))


if __name__ == "__main__":
    main()
