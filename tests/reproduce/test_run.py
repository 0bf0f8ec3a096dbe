#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What breaks if this fails: a row is misread, a wrong row is accepted, an expression means something else than it says, or the page
shows other numbers than the CSV. Needs PyYAML; says so and ends with 77 without it."""
import argparse
import array
import collections
import contextlib
import importlib
import io
import math
import os
import pathlib
import queue
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.dom.minidom
from unittest import mock

try:
    import yaml  # noqa: F401
except ImportError:
    print("SKIPPED: PyYAML is missing")
    sys.exit(77)

import broken
import curves
import floor
import fresh
import page
import run
import search
from data import REPOSITORY, Data
from expression import FUNCTIONS, Bad, Expression, Missing, Run, Sample, Undecided
from job import Job, crossing, first_names, under_first_names
from row import HERE, Row, Workloads, mutants, rows
from verdict import MISS, UNDECIDED, UNMEASURED, VOID, YES, judge

NUMBERS = {("a", "eval.loss.last"): [2.0, 4.0], ("b", "eval.loss.last"): [1.0, 1.0], ("c", "value.x"): [7.0], ("reference", "value.difference"): [1e-7],
           ("a", "round.up.sum"): [64.0, 64.0]}
ROW = """title: T
minutes: 1
claim:
  - {what: loss, value: equal, ours: loss(a) / loss(b)}
runs:
  a: {train.lr: 0.1}
  b: {train.optimizer: adamw}
formula: {wire: 8 * 8}
seeds: [1, 2]
accept:
  - loss(a) <= 3
  - {test: bytes(a) == wire, miss: because}
"""


def measures(run, name):
    if (run.name, name) not in NUMBERS:
        raise Missing(name)
    return Sample(NUMBERS[run.name, name])


class Expressions(unittest.TestCase):
    def of(self, text):
        return Expression(text, {"a": 1, "b": 1, "c": 1, "reference": 1}).evaluate(measures)

    def test_arithmetic_is_by_seed(self):
        self.assertEqual(self.of("loss(a) / loss(b) + value(c, 'x') * 2").values, [16.0, 18.0])
        self.assertEqual(self.of("least(loss(a)) ** 2").values, [4.0])
        self.assertAlmostEqual(self.of("sd(loss(a))").mean, 2 ** .5)
        self.assertAlmostEqual(self.of("sem(loss(a))").mean, 1.0)

    def test_runs_with_other_seeds_are_paired_by_those_in_common(self):
        found = {"a": Sample([2.0, 4.0, 6.0], [1, 2, 3]), "b": Sample([8.0], [2]), "c": Sample([3.0], [4]), "d": None}
        of = lambda text: Expression(text, dict.fromkeys(found, 1)).evaluate(lambda run, name: found[run.name])  # noqa: E731
        self.assertEqual(of("loss(b) / loss(a)").values, [2.0])
        self.assertEqual(of("2 * loss(a)").values, [4.0, 8.0, 12.0])
        found["d"] = Sample([30.0, 10.0], [3, 1])  # made in another order
        self.assertEqual(of("loss(d) - loss(a)").values, [24.0, 8.0])
        self.assertEqual(of("loss(a) - loss(d)").values, [-8.0, -24.0])
        with self.assertRaises(Missing):
            of("loss(b) / loss(c)")

    def test_comparisons_are_of_means(self):
        self.assertTrue(self.of("2.9 < loss(a) <= 3"))
        self.assertFalse(self.of("loss(a) < 3"))
        self.assertTrue(self.of("reference < 1e-6 and not loss(a) < loss(b)"))

    def test_only_named_functions(self):
        for text in ("__import__('os')", "loss.x", "loss(a).values", "[1]", "lambda: 1", "a if 1 else b", "f'{a}'", "loss(a, b, c)",
                     "loss(d)", "loss(1)", "bytes(a, b)", "d + 1", "speed(a)", "loss(run=a)", "True", "1 +", "1 in a"):
            with self.assertRaises(Bad, msg=text):
                self.of(text)

    def test_wrong_arguments(self):
        for text in ("bytes(a, 'sideways')", "metric(a, 'step', 'loss', 'typical')", "1 / (loss(b) - loss(b))"):
            with self.assertRaises(Bad, msg=text):
                self.of(text)

    def test_clock_counts_rounds_that_end_between_steps(self):
        records = {"step": [{"step": 1, "step_ms": 1000.0}, {"step": 2, "step_ms": 2000.0}, {"step": 11, "step_ms": 4000.0}],
                   "round": [{"step": 10, "exposed_ms": 500.0}, {"step": 11, "exposed_ms": 250.0}]}
        self.assertEqual(Job.clock(None, records), {0: 0.0, 1: 1.0, 2: 3.0, 10: 3.5, 11: 7.75})

    def test_crossing(self):
        records = {"eval": [{"step": 0, "loss": 4.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]}
        clock = {0: 0.0, 1: 10.0, 2: 30.0}
        self.assertEqual(crossing(records, clock, 3.0, True), 5.0)
        self.assertEqual(crossing(records, clock, 0.5, True), float("inf"))
        self.assertEqual(crossing(records, clock, 20.0, False), 1.5)

    def test_the_readme_lists_every_function(self):
        text = (HERE / "README.md").read_text(encoding="utf-8")
        for name, function in FUNCTIONS.items():
            self.assertIn(f"| `{name}(", text)
            self.assertIn(function.__doc__, text)


def bowl(bottom):
    """The loss at a rate, lowest at `bottom`, a little more with each seed."""
    return lambda rate, seed: (math.log(rate / bottom)) ** 2 + 1 + seed / 100


class Searches(unittest.TestCase):
    GRID, SEEDS = [0.01, 0.02, 0.04], [1, 2, 3]

    def found(self, loss, losses=None, searching=None):
        """The losses of all points that are wanted, and their order."""
        losses, order = dict(losses or {}), []
        while points := search.wanted(self.GRID, self.SEEDS, losses, searching):
            order.append(points[0])
            losses[points[0]] = loss(*points[0])
        return losses, order

    def test_a_best_rate_in_the_grid_needs_three_rates(self):
        losses, order = self.found(bowl(0.021))
        self.assertEqual(order, [(r, s) for s in self.SEEDS for r in self.GRID])
        self.assertEqual(search.best(self.SEEDS, losses), (0.02, [losses[0.02, s] for s in self.SEEDS]))

    def test_an_edge_extends_the_grid(self):
        for bottom, rate in ((0.0024, 0.0025), (0.17, 0.16)):
            losses, order = self.found(bowl(bottom))
            self.assertEqual(search.best(self.SEEDS, losses)[0], rate)
            self.assertTrue(all((rate * f, s) in losses for f in (0.5, 1, 2) for s in self.SEEDS))
            self.assertEqual(len(order), 3 + 3 + 2 * 3)  # the grid, three rates more, and of the other seeds what lies around the best

    def test_another_seed_may_move_the_best_rate(self):
        losses, _ = self.found(lambda rate, seed: bowl(0.02 if seed == 1 else 0.08)(rate, seed))
        rate = search.best(self.SEEDS, losses)[0]
        self.assertEqual(rate, 0.04)
        self.assertTrue(all((r, s) in losses for r in (0.02, 0.04, 0.08) for s in self.SEEDS))

    def test_one_seed_searches_and_the_others_run_its_best_rate(self):
        for bottom, rate, more in ((0.021, 0.02, 0), (0.17, 0.16, 3)):
            whole, order = self.found(bowl(bottom), searching=1)
            self.assertEqual(sorted(order[-2:]), [(rate, 2), (rate, 3)])
            self.assertEqual([s for _, s in order[:-2]], [1] * (3 + more))
            self.assertEqual(search.best(self.SEEDS, whole, 1), (rate, [whole[rate, s] for s in self.SEEDS]))
            for lost in order[-4 if more else 0:]:  # of the longer search: the best rate and the one above it
                with self.assertRaises(Missing):
                    search.best(self.SEEDS, {p: v for p, v in whole.items() if p != lost}, 1)
            with self.assertRaises(Missing):
                search.best(self.SEEDS, whole)  # all seeds search

    def test_a_search_goes_on_where_it_ended(self):
        whole, order = self.found(bowl(0.05))
        for done in range(len(order)):
            again, more = self.found(bowl(0.05), {p: whole[p] for p in order[:done]})
            self.assertEqual((again, more), (whole, order[done:]))

    def test_no_best_rate_at_an_edge_or_without_all_seeds(self):
        whole, order = self.found(bowl(0.021))
        for lost in order:
            with self.assertRaises(Missing):
                search.best(self.SEEDS, {p: v for p, v in whole.items() if p != lost})
        for lost in self.GRID:
            with self.assertRaises(Missing):
                search.best(self.SEEDS, {p: v for p, v in whole.items() if p[0] != lost})
        for bottom in (0.001, 0.01, 0.04, 0.4):
            with self.assertRaises(Missing):
                search.best(self.SEEDS, {(r, s): bowl(bottom)(r, s) for s in self.SEEDS for r in self.GRID})

    def test_a_loss_that_only_falls_ends(self):
        with self.assertRaises(Bad):
            self.found(lambda rate, seed: -rate)


BY_SEED = {"a": [1.00, 1.02, 1.04], "b": [1.10, 1.12, 1.14], "c": [1.01, 1.01, 1.05], "d": [1.2, 1.3, 1.4], "bad": [9.0, 1.0, 9.0]}


class Verdicts(unittest.TestCase):
    """Two standard errors, paired by seed."""

    def word(self, text, seeds=3, floors=None, **exact):
        def measured(run_, name):
            if name == "value.x":
                return Sample([2.0])
            return Sample(BY_SEED[run_.name][:seeds])
        formulas = {"best": Expression("best_of(d, a, b)", BY_SEED), "edge": Expression("best_of(a, b, d)", BY_SEED)}
        return judge(Expression(text, BY_SEED, formulas), measured, floors, **exact)

    def test_a_bound_holds_by_two_standard_errors(self):
        for text, want in (("loss(a) <= loss(b)", YES), ("loss(b) <= loss(a)", MISS), ("loss(b) >= loss(a)", YES), ("loss(a) > loss(b)", MISS),
                           ("loss(a) <= 1.05", YES), ("loss(a) <= 1.03", UNDECIDED), ("loss(a) <= 1.01", UNDECIDED), ("loss(a) <= 0.99", MISS),
                           ("loss(a) <= loss(c)", UNDECIDED),            # apart by less than their pairs vary
                           ("loss(b) - loss(a) <= 0.1", YES),            # pairs that do not vary at all
                           ("1 <= loss(a) <= 1.05", UNDECIDED), ("loss(a) <= 1.05 and loss(b) <= loss(a)", MISS),
                           ("loss(a) <= 1.05 and loss(a) <= 1.03", UNDECIDED), ("loss(a) <= 1.03 or loss(a) <= 1.05", YES),
                           ("not loss(b) <= loss(a)", YES), ("not loss(a) <= 1.03", UNDECIDED),
                           ("abs(loss(a) - 1.02) <= 0.03", YES), ("abs(loss(a) - 1.02) <= 0.02", UNDECIDED), ("abs(loss(d) - 1) <= 0.1", MISS)):
            self.assertEqual(self.word(text).word, want, text)

    def test_means_and_errors_that_a_row_writes_itself_count_once(self):
        self.assertEqual(self.word("mean(loss(a)) + 2 * sem(loss(a)) <= 1.05").word, YES)
        self.assertEqual(self.word("mean(loss(a)) + 2 * sem(loss(a)) <= 1.03").word, UNDECIDED)
        self.assertEqual(self.word("mean(loss(a)) <= 1.03").word, UNDECIDED)
        self.assertEqual(self.word("mean(loss(a)) + 2 * sem(loss(b)) <= 1.05").word, UNDECIDED)  # another error: left as it stands

    def test_what_never_happens_misses(self):
        never = Expression('time_to(a, loss(b)) <= time(b)', {"a": {}, "b": {}})
        for values, word in (([math.inf, 1.0, 1.0], MISS), ([math.inf] * 3, MISS), ([0.5, 0.5, 0.4], YES)):
            found = {"loss": [1.0] * 3, "time": [2.0] * 3}
            self.assertEqual(judge(never, lambda run, name: Sample(values if name.startswith("time_to") else
                                                                   found["time" if name == "time" else "loss"])).word, word)
        self.assertEqual(Sample([math.inf, 1.0]).text(), "inf, n 2")

    def test_fewer_than_three_seeds_decide_nothing(self):
        for text in ("loss(a) <= loss(b)", "loss(b) <= loss(a)", "mean(loss(a)) <= 2", "loss(b) - loss(a) <= 0.5"):
            for seeds in (1, 2):
                self.assertEqual(self.word(text, seeds), (UNDECIDED, f"{seeds} seed{'s' * (seeds > 1)} of 3"), text)
        self.assertEqual(self.word("loss(a) <= loss(b)", 1, exact=True).word, YES)
        self.assertEqual(self.word("value(a, 'x') == 2", 1).word, YES)  # no seed changes it
        self.assertEqual(self.word("metric(a, 'eval', 'loss') <= 9", 1).word, UNDECIDED)

    def test_the_best_of_a_grid_is_inside_it_and_both_sides_have_as_many_rates(self):
        self.assertEqual(self.word("best <= 1.05").word, YES)
        edge = self.word("edge <= 9")
        self.assertEqual(edge.word, UNDECIDED)
        self.assertIn("is a, at an edge", edge.why)
        self.assertIn("searched alike: 3 and 4 rates", self.word("best <= best_of(d, b, a, d)").why)
        self.assertIn("c ran at one rate against", self.word("best <= loss(c)").why)
        self.assertEqual(self.word("best <= loss(d)").word, YES)  # a rate of the grid itself

    def test_a_loss_above_the_floor_voids(self):
        def floors(name, part):
            return 0.5 if part else {"d": 1.2}.get(name, 1.25)
        self.assertEqual(self.word("loss(a) <= 1.05", floors=floors).word, YES)
        void = self.word("loss(a) <= loss(d)", floors=floors)
        self.assertEqual(void.word, VOID)
        self.assertIn("loss d: 1.3 is not below 1.2, the unigram entropy", void.why)
        self.assertEqual(self.word("loss(bad) >= loss(a)", floors=floors).word, VOID)
        self.assertEqual(self.word("best <= 2", floors=floors).word, YES)  # what is not the best need not have learned
        self.assertEqual(self.word("score(a, 'accuracy', 's') >= 0.9", floors=floors).word, YES)
        self.assertEqual(self.word("score(a, 'accuracy', 's') >= 0.9", floors=lambda *_: 1.02).word, VOID)


class Floors(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_the_entropy_of_a_shard(self):
        ids = [0] * 50 + [1] * 25 + [2] * 25
        want = 1.5 * math.log(2)
        for magic, version, kind in ((20240520, 1, "H"), (20240801, 7, "I")):
            head = struct.pack("<3i", magic, version, 100) + bytes(1024 - 12)
            (self.path / "eval-0.bin").write_bytes(head + array.array(kind, ids).tobytes())
            self.assertAlmostEqual(floor.of_eval(f"{self.path}/eval-*.bin")["text"], want)
        (self.path / "eval-0.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QB", 1, 8))
        (self.path / "eval-0.bin").write_bytes(array.array("H", ids).tobytes())
        self.assertAlmostEqual(floor.of_eval(f"{self.path}/eval-*.bin")["text"], want)
        with self.assertRaises(Bad):
            floor.of_eval(f"{self.path}/none-*.bin")

    def test_the_share_of_the_largest_class(self):
        (self.path / "train-0.labels").write_bytes(b"ATLABELS" + struct.pack("<Q5i", 5, 0, 1, 1, 1, 0))
        (self.path / "train-0.bin").touch()
        self.assertEqual(floor.of_eval(f"s={self.path}/train-*.bin"), {"s": 0.6})

    def test_another_text_is_refused(self):
        path = self.path / "floors.csv"
        floor.keep(path, {("bytes", 1, "text"): 3.0})
        floor.keep(path, {("bytes", 1, "text"): 3.0, ("bytes", 2, "text"): 3.1})
        self.assertEqual(path.read_text().splitlines(), ["data,of,set,floor", "bytes,1,text,3", "bytes,2,text,3.1"])
        with self.assertRaises(Bad):
            floor.keep(path, {("bytes", 1, "text"): 2.9})

    def test_every_text_of_the_repository_s_rows_has_a_floor(self):
        for path in rows().values():
            row = Row(path, Workloads())
            floors = floor.Floors(row, HERE / "floors.csv")
            for name, run_ in row.runs.items():
                where = floor.place(row.settings(name, False))
                self.assertTrue("program" in run_ or any(key[:2] == where for key in floors.found), f"{path}: {name}: --floors")


class Fresh(unittest.TestCase):
    def test_a_digest_is_of_contents_alone(self):
        self.assertEqual(fresh.digest_of([b"a", b"b"]), fresh.digest_of([b"b", b"a"]))
        self.assertNotEqual(fresh.digest_of([b"a", b"b"]), fresh.digest_of([b"a", b"c"]))
        self.assertNotEqual(fresh.digest_of([b"ab"]), fresh.digest_of([b"a", b"b"]))

    def test_a_change_makes_a_row_stale(self):
        with tempfile.TemporaryDirectory() as folder:
            row, path = mock.Mock(files=["method.c"], path="t.yaml"), pathlib.Path(folder) / "fresh.csv"
            row.name = "t"
            with mock.patch.object(fresh, "REPOSITORY", pathlib.Path(folder)):
                with self.assertRaises(Bad):
                    fresh.here(row)
                (pathlib.Path(folder) / "method.c").write_text("one")
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), fresh.UNKNOWN)
                fresh.keep(path, "s1", row, "c1")
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), fresh.CURRENT)
                (pathlib.Path(folder) / "method.c").write_text("two")
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), fresh.STALE)
                (pathlib.Path(folder) / "method.c").rename(pathlib.Path(folder) / "moved.c")
                (pathlib.Path(folder) / "moved.c").write_text("one")
                row.files = ["moved.c"]
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), fresh.CURRENT)
                fresh.keep(path, "s1", row, "c1")
                self.assertEqual(len(path.read_text().splitlines()), 2)  # once

    def test_a_file_from_before_confirmations_is_read_and_continued(self):
        with tempfile.TemporaryDirectory() as folder:
            row, path = mock.Mock(files=["method.c"], path="t.yaml"), pathlib.Path(folder) / "fresh.csv"
            row.name = "t"
            (pathlib.Path(folder) / "method.c").write_text("one")
            with mock.patch.object(fresh, "REPOSITORY", pathlib.Path(folder)):
                path.write_text(f"session,row,commit,digest\ns1,t,c1,{fresh.here(row)}\n")
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), fresh.CURRENT)
                fresh.keep(path, "s1", row, "c2", confirmed="2026-11-30")
                self.assertEqual(fresh.told(row, "s1", ["c1"], fresh.read(path)), "confirmed 2026-11-30")

    def test_a_confirmed_row_is_so_until_the_next_change(self):
        with tempfile.TemporaryDirectory() as folder:
            row, path = mock.Mock(files=["method.c"], path="t.yaml"), pathlib.Path(folder) / "fresh.csv"
            row.name = "t"

            def told(text):
                (pathlib.Path(folder) / "method.c").write_text(text)
                return fresh.told(row, "s1", ["c1"], fresh.read(path))
            with mock.patch.object(fresh, "REPOSITORY", pathlib.Path(folder)):
                told("one")
                fresh.keep(path, "s1", row, "c1")
                self.assertEqual(told("two"), fresh.STALE)
                fresh.keep(path, "s1", row, "c2", confirmed="2026-11-30")
                self.assertEqual(told("two"), "confirmed 2026-11-30")
                self.assertEqual(told("one"), fresh.STALE)
                self.assertEqual(told("three"), fresh.STALE)
                fresh.keep(path, "s1", row, "c3")  # further points of a search, which nothing has confirmed
                self.assertEqual(told("three"), fresh.STALE)
                fresh.keep(path, "s1", row, "c3", confirmed="2026-12-01")
                self.assertEqual(told("three"), "confirmed 2026-12-01")

    def test_points_without_a_digest_leave_a_row_without_one(self):
        with tempfile.TemporaryDirectory() as folder:
            row, path = mock.Mock(files=["method.c"], path="t.yaml"), pathlib.Path(folder) / "fresh.csv"
            row.name = "t"
            (pathlib.Path(folder) / "method.c").write_text("one")
            with mock.patch.object(fresh, "REPOSITORY", pathlib.Path(folder)):
                fresh.keep(path, "s1", row, "c2")
                self.assertEqual(fresh.told(row, "s1", ["c1", "c2"], fresh.read(path)), fresh.UNKNOWN)
                self.assertEqual(fresh.told(row, "s1", ["c2"], fresh.read(path)), fresh.CURRENT)
                fresh.keep(path, "s1", row, "c3", confirmed="2026-11-30")
                self.assertEqual(fresh.told(row, "s1", ["c1", "c2"], fresh.read(path)), "confirmed 2026-11-30")


SEARCHED = """title: T
minutes: 1
runs:
  a: {search: [0.01, 0.02, 0.04]}
  b: {search: [0.01, 0.02, 0.04], train.optimizer: adamw}
seeds: [1, 2, 3]
accept: [mean(best(a) / best(b)) + 2 * sem(best(a) / best(b)) <= 2]
"""


class FakeJob(Job):
    """A point that costs nothing."""
    ran, dies = [], None

    def key(self):
        return f"{self.settings['train.lr'] * 1e6 + self.settings.get('train.steps', 0):012.0f}"

    def dry_run(self):
        pass

    def done(self):
        return None

    def run(self):
        if len(FakeJob.ran) == FakeJob.dies:
            raise KeyboardInterrupt
        FakeJob.ran.append((self.name, self.seed))
        return {"seconds": 6.0, "processor_s": 3.0, "commit": "c1"}

    def measure(self, name):
        return bowl(0.021 if self.name[0] == "a" else 0.05)(self.settings["train.lr"], self.seed)


class Rows(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "t.yaml"

    def tearDown(self):
        self.folder.cleanup()

    def row(self, text):
        self.path.write_text(text, encoding="utf-8")
        return Row(self.path, Workloads())

    def test_refused_settings_of_a_point_name_its_run(self):
        row = self.row(SEARCHED)
        runner = argparse.Namespace(root=pathlib.Path(self.folder.name), atoll="atoll", build=None)
        job = Job(runner, row, "a@0.02", 1, False)
        answer = subprocess.CompletedProcess([], 4, "", "atoll train: train.lr is wrong\n")
        with mock.patch.object(Job, "words", lambda self: ([], ["x"])), mock.patch("subprocess.run", return_value=answer):
            with self.assertRaisesRegex(Bad, "run a@0.02: atoll train: train.lr is wrong"):
                job.dry_run()

    def test_the_loss_of_a_mean_is_of_the_aggregators_states_or_of_a_lone_sites_checkpoints(self):
        row = self.row(ROW.replace("b: {", "b: {mean: 4, train.checkpoint_keep: 4, "))
        job = Job(argparse.Namespace(root=pathlib.Path(self.folder.name), atoll="atoll", build=None), row, "b", 1, False)
        job.folder.mkdir(parents=True)

        def answers(words, stdout, **_):
            asked.append([str(w) for w in words])
            stdout.write(b'{"loss": 1.5}\n')
            return subprocess.CompletedProcess(words, 0)
        for sites, kept in ((2, "aggregator"), (1, "a")):
            job.sites, asked = sites, []
            with mock.patch("subprocess.run", answers):
                self.assertEqual(job.loss_of_mean(), 1.5)
            self.assertEqual(asked, [["atoll", "eval", "--from", str(job.folder / kept), "--mean", "4", "--format", "json"]])

    def refused(self, old, new, line, words):
        self.assertIn(old, ROW)
        with self.assertRaises(Bad) as caught:
            self.row(ROW.replace(old, new))
        self.assertIn(f"t.yaml:{line}: ", str(caught.exception))
        self.assertIn(words, str(caught.exception))

    def test_wrong_rows_name_file_and_line(self):
        self.refused("seeds:", "seed:", 9, "a row has no key seed")
        self.refused("train.lr: 0.1", "lr: 0.1", 6, "run a: lr is neither a setting of atoll")
        self.refused("b: {", "b: {from: c, ", 7, "from: c is no run above it")
        self.refused("b: {", "b: {mean: 1, ", 7, "mean: 1 is how many states of a training run, two or more")
        self.refused("b: {", "b: {mean: 4, ", 7, "mean: 4 needs train.checkpoint_keep: 4")
        self.refused("b: {", "b: {mean: 4, sites: 2, train.checkpoint_keep: 4, ", 7, "mean: 4 needs serve.keep_states: 4")
        self.refused("b: {", "b: {model: g9, ", 7, "no model g9 in workloads.yaml")
        self.refused("- loss(a) <= 3", "- loss(z) <= 3", 11, "loss(): z is no run; runs: a, b")
        self.refused("- loss(a) <= 3", "- losses(a) <= 3", 11, "no function losses")
        self.refused("bytes(a) == wire", "bytes(a) == wires", 12, "no run or formula wires")
        self.refused("ours: loss", "our: loss", 4, "a claim has no key our")
        self.refused("title: T", "title: T\ntitle: T", 2, "twice")
        self.refused("seeds: [1, 2]", "quick: {accept: [3]}", 9, "no acceptance 3")
        self.refused("seeds: [1, 2]", "seeds: [1, 2", 10, "expected")
        self.refused("seeds: [1, 2]", "reference: none.py", 9, "reference/none.py is not there")
        self.refused("minutes: 1\n", "", 1, "a row needs minutes")
        self.refused("minutes: 1", "minutes: soon", 2, "soon is no number above 0")
        self.refused("seeds: [1, 2]", "seeds: 1", 9, "no list of whole numbers")
        self.refused("seeds: [1, 2]", "quick: {tokens: -5}", 9, "-5 is no number above 0")
        self.refused("seeds: [1, 2]", "quick: {tokens: many}", 9, "many is no number above 0")
        self.refused("a: {", "a: {ranks: two, ", 6, "two is no number above 0")

    def test_lists_are_lists(self):
        accept = ROW[ROW.index("accept:"):]
        self.refused(accept, "accept: loss(a) <= 3\n", 10, "accept is a list of expressions")
        self.refused(accept, "accept: []\n", 10, "accept is empty")
        self.refused(accept, "accept:\n", 10, "accept is empty")
        self.refused("test: bytes(a) == wire, ", "", 12, "an acceptance needs test")
        self.refused("seeds: [1, 2]", "quick: {accept: 1}", 9, "accept is a list of numbers of acceptances")
        self.refused("seeds: [1, 2]", "quick: {runs: a}", 9, "runs is a list of names of runs")
        self.refused("seeds: [1, 2]", "needs: numpy", 9, "needs is a list of packages")
        self.refused("seeds: [1, 2]", "build: bench", 9, "build is a list of targets")
        self.refused("{what: loss, value: equal, ours: loss(a) / loss(b)}", "loss", 3, "claim is a list of mappings")
        self.refused("what: loss, ", "", 4, "a claim needs what")
        self.refused("seeds: [1, 2]", "? [a]\n: 1", 9, "a key is a word")
        self.refused("seeds: [1, 2]", "seeds: &x [*x]", 9, "an alias (*) of what it stands in")

    def test_settings(self):
        row = self.row(ROW.replace("seeds: [1, 2]", "seeds: [1, 2]\nbase: {model: g0, train.lr: 3e-3, tokens: 3e6}\n"
                                   "quick: {tokens: 2e4, base: {model: g1}, runs: [b]}"))
        self.assertEqual(row.settings("a", False)["train.lr"], 0.1)
        self.assertEqual((row.settings("b", False)["train.lr"], row.settings("b", False)["model.d_model"]), (0.003, 64))
        self.assertEqual((row.settings("b", True)["tokens"], row.settings("b", True)["model.d_model"]), (2e4, 128))
        self.assertEqual((row.chosen(False), row.chosen(True)), ((["a", "b"], [1, 2]), (["b"], [1])))

    def test_a_miss_stays_with_its_reason(self):
        row = self.row(ROW.replace("8 * 8", "8 * 9"))
        judged = page.judged(row, measures)
        self.assertEqual([j.verdict.word for j in judged], [UNDECIDED, MISS])
        self.assertIn("**miss**: because", "\n".join(page.tables(row, measures, "")))

    def test_page_is_the_csv(self):
        row, path = self.row(ROW), pathlib.Path(self.folder.name) / "r.csv"
        self.assertIn("Not run yet", page.page([row], path))
        asked = {(r, s, m): v for (r, m), found in NUMBERS.items() for s, v in enumerate(found, 1)}
        page.append(path, "2026-01-01T00:00:00", "old", "c0", "t", {}, 5)
        page.append(path, "2026-01-02T00:00:00", "box", "c1", "t", asked, 2.04)
        text = page.page([row], path)
        self.assertIn("| loss: equal | 3 +- 1.4, n 2 |  | 1 of 2, 1 undecided | c1, box, 2.0 min, 2026-01-02 |", text)
        self.assertIn("| `bytes(a) == wire` | 64 == 64 | yes |", text)
        self.assertIn("| [t](#t) | loss: equal | 3 +- 1.4, n 2 | undecided | 1 of 2, 1 undecided | nothing | 2026-01-02, no digest |", text)
        path.write_text(path.read_text().replace("a,2,eval.loss.last,4.0", "a,2,eval.loss.last,6.0"))
        self.assertIn("| `loss(a) <= 3` | 4 +- 2.8, n 2 <= 3 | **undecided**: 2 seeds of 3 |", page.page([row], path))

    def test_a_page_may_lag_in_its_marks_alone(self):
        line = "| [t](#t) | claim | 1.0 | accepted | 1 of 1 | nothing | 2026-01-02, current |\n"
        self.assertEqual(page.without_ages(line), page.without_ages(line.replace("current", "**stale**")))
        for other in (line.replace("1.0", "1.1"), line.replace("2026", "2027"), line.replace("current", "no digest")):
            self.assertNotEqual(page.without_ages(line), page.without_ages(other))

    def test_a_full_disk_leaves_the_csv_as_it_was(self):
        path = pathlib.Path(self.folder.name) / "r.csv"
        page.append(path, "2026-01-01T00:00:00", "box", "c0", "t", {}, 5)
        before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, limits[1]))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            with self.assertRaises(OSError):
                page.append(path, "2026-01-02T00:00:00", "box", "c1", "t", {("a", 1, "x"): 2.0}, 5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self.assertEqual(path.read_bytes(), before)

    def test_data_is_prepared_by_one(self):
        said = queue.Queue()
        first, second = (Data("", pathlib.Path(self.folder.name), {}, True, said.put) for _ in range(2))
        order = []

        def wait():
            with second.lock():
                order.append("second")
        with first.lock():
            other = threading.Thread(target=wait)
            other.start()
            self.assertIn("waits for another row", said.get(timeout=300))
            order.append("first")
        other.join()
        self.assertEqual(order, ["first", "second"])

    def main(self, *names, **rows_of):
        """run.main with rows of this folder; (exit code or Bad, what it printed to stderr)."""
        for name, text in rows_of.items():
            (pathlib.Path(self.folder.name) / f"{name}.yaml").write_text(text, encoding="utf-8")
        found = {n: pathlib.Path(self.folder.name) / f"{n}.yaml" for n in rows_of}
        arguments_of = ["run.py", *names, "--atoll", sys.executable, "--dir", self.folder.name + "/runs"]
        err = io.StringIO()
        with mock.patch.object(run, "rows", lambda: found), mock.patch.object(sys, "argv", arguments_of), \
                mock.patch.object(run, "RESULTS", pathlib.Path(self.folder.name) / "r.csv"), contextlib.redirect_stderr(err), \
                mock.patch.object(floor, "measured", lambda *_: {}), \
                contextlib.redirect_stdout(io.StringIO()):
            return run.main(), err.getvalue()

    def searched(self, text=SEARCHED, only=(), dies=None, status=0):
        """run.main over a searched row, which ends with status; the points that ran."""
        FakeJob.ran, FakeJob.dies = [], dies
        with mock.patch.object(run, "Job", FakeJob):
            self.assertEqual(self.main("s", *only, s=text)[0], status)
        return FakeJob.ran

    def test_a_killed_search_goes_on_from_the_csv(self):
        for dies in (0, 5, 11):
            (pathlib.Path(self.folder.name) / "r.csv").unlink(missing_ok=True)
            with self.assertRaises(KeyboardInterrupt):
                self.searched(dies=dies)
            before = list(FakeJob.ran)
            self.assertEqual(len(before), dies)
            ran = before + self.searched()
            self.assertEqual((len(ran), len(set(ran))), (9 + 10, 9 + 10))  # of b the best, 0.04, is at the edge
            self.assertEqual(self.searched(), [])
            lines = (pathlib.Path(self.folder.name) / "r.csv").read_text().splitlines()
            self.assertEqual(sum(",eval.loss.last," in line for line in lines), 19)
            self.assertEqual(len({line.split(",")[0] for line in lines[1:]}), 1)
            self.assertTrue(all(",c1,s," in line for line in lines[1:]))

    def test_equal_numbers_confirm_a_row(self):
        csv_path, fresh_path = (pathlib.Path(self.folder.name) / n for n in ("r.csv", "fresh.csv"))
        text = SEARCHED + "files: [tests/reproduce/fresh.py]\n"
        for flags, words in (((), "has no results yet"), (("--again", "--seeds", "1"), "leave --again and --seeds out")):
            with self.assertRaises(Bad) as caught:
                self.searched(text, only=("--confirm", *flags))
            self.assertIn(words, str(caught.exception))
        self.searched(text)
        before = csv_path.read_text()
        self.assertEqual(self.searched(text, only=("--confirm",)), [("a@0.02", 1), ("b@0.04", 1)])
        self.assertEqual(csv_path.read_text(), before)
        self.assertRegex(fresh_path.read_text().splitlines()[-1], r",s,.*,20\d\d-\d\d-\d\d$")
        kept = fresh_path.read_text()
        csv_path.write_text(before.replace("a@0.02,1,eval.loss.last,1", "a@0.02,1,eval.loss.last,2"))
        with mock.patch.object(run, "Job", FakeJob):
            self.assertEqual(self.main("s", "--confirm", s=text)[0], 1)
        self.assertEqual(fresh_path.read_text(), kept)
        with open(csv_path, "a", encoding="utf-8") as f:
            f.write(next(line for line in before.splitlines() if "a@0.02,1," in line).replace(",settings,", ",time,") + "\n")
        with self.assertRaises(Bad) as caught:
            self.searched(text, only=("--confirm",))
        self.assertIn("it has measured time", str(caught.exception))

    def test_runs_of_a_search_are_shared_out(self):
        self.assertEqual({name[0] for name, _ in self.searched(only=("--runs", "b"))}, {"b"})
        self.assertEqual({name[0] for name, _ in self.searched()}, {"a"})
        with self.assertRaises(Bad):
            self.searched(only=("--runs", "c"))

    def test_seeds_that_search_alone(self):
        text = SEARCHED.replace("seeds:", "searching: 1\nseeds:")
        ran = self.searched(text)
        self.assertEqual([p for p in ran if p[0][0] == "a"], [("a@0.01", 1), ("a@0.02", 1), ("a@0.04", 1), ("a@0.02", 2), ("a@0.02", 3)])
        self.assertEqual(self.searched(text), [])
        of_run = SEARCHED.replace("search: [0.01", "searching: 1, search: [0.01", 1)
        self.assertNotEqual(of_run, SEARCHED)
        self.assertEqual((self.row(of_run).searching_of("a"), self.row(of_run).searching_of("b")), (1, None))
        with self.assertRaises(Bad) as caught:
            self.row(of_run.replace("searching: 1", "searching: 4"))
        self.assertIn("run a: searching: 4: how many of the 3 seeds", str(caught.exception))
        for wrong in ("0", "4", "yes", "1.5"):
            with self.assertRaises(Bad) as caught:
                self.row(text.replace("searching: 1", f"searching: {wrong}"))
            self.assertIn("how many of the 3 seeds", str(caught.exception))
        with self.assertRaises(Bad):
            self.row(ROW.replace("seeds: [1, 2]", "seeds: [1, 2]\nsearching: 1"))

    def test_first_seeds_alone(self):
        self.assertEqual({seed for _, seed in self.searched(only=("--seeds", "1"))}, {1})
        self.assertNotIn(1, {seed for _, seed in self.searched()})
        for count, text in (("0", SEARCHED), ("-1", SEARCHED), ("1", ROW)):
            with self.assertRaises(Bad) as caught:
                self.searched(text, only=("--seeds", count))
            self.assertIn(f"--seeds {count}: one seed or more", str(caught.exception))

    def test_a_search_that_is_not_finished_says_what_it_has(self):
        text = SEARCHED + 'claim: [{what: a over b, value: "1", ours: best(a) / best(b)}]\n'
        row_path = pathlib.Path(self.folder.name) / "s.yaml"

        def told():
            row = Row(row_path, Workloads())
            found = page.Recorded(pathlib.Path(self.folder.name) / "r.csv", "s", row.seeds_of, row.searching_of)
            return page.judged(row, found)[0].verdict.word, page.told(row.claims[0][1], found)
        self.searched(text, only=("--seeds", "1"))
        self.assertEqual(told(), (UNDECIDED, f"{bowl(0.021)(0.02, 1) / bowl(0.05)(0.04, 1):.5g}, n 1"))
        self.searched(text, only=("--runs", "a"))  # b has one seed: the seeds that both have
        self.assertEqual(told(), (UNDECIDED, f"{bowl(0.021)(0.02, 1) / bowl(0.05)(0.04, 1):.5g}, n 1"))
        self.searched(text)
        word, text = told()
        self.assertEqual((word, text[-5:]), (YES, ", n 3"))

    def test_a_searched_run_may_have_fewer_seeds(self):  # then its comparison is undecided, with one pair
        ran = self.searched(SEARCHED.replace("a: {search: [0.01, 0.02, 0.04]}", "a: {search: [0.01, 0.02, 0.04], seeds: [2]}"), status=1)
        self.assertEqual({seed for name, seed in ran if name[0] == "a"}, {2})
        self.assertEqual({seed for name, seed in ran if name[0] == "b"}, {1, 2, 3})
        row = Row(pathlib.Path(self.folder.name) / "s.yaml", Workloads())
        found = page.Recorded(pathlib.Path(self.folder.name) / "r.csv", "s", row.seeds_of, row.searching_of)
        self.assertEqual([len(found(Run(n), "best").values) for n in "ab"], [1, 3])

    def test_a_search_elsewhere_leaves_every_loss_and_the_curves_of_the_best_rates(self):
        class KeptJob(FakeJob):
            def done(self):
                return {"seconds": 6.0} if (self.name, self.seed) in FakeJob.ran else None

            def records(self):
                evals = [{"step": 4, "loss": self.measure("")}]
                return collections.defaultdict(list, eval=evals, step=[{"step": 4, "tokens": 8, "step_ms": 1.0}])
        FakeJob.ran, FakeJob.dies = [], None
        with mock.patch.object(run, "Job", KeptJob):
            self.assertEqual(self.main("s", s=SEARCHED)[0], 0)
        folder = pathlib.Path(self.folder.name)
        losses = (folder / "s-losses.csv").read_text().splitlines()[1:]
        self.assertEqual(len(losses), len(FakeJob.ran))
        self.assertTrue({"a@0.01,1", "b@0.08,1"} <= {line.rsplit(",", 4)[0] for line in losses})
        picture = (folder / "s.svg").read_text()
        self.assertEqual([f">{name}<" in picture for name in ("a@0.02", "b@0.04", "a@0.01", "b@0.08")], [True, True, False, False])

    def test_a_renamed_key_keeps_recorded_runs(self):
        names = first_names()
        self.assertEqual((names["model.d_model"], names["privacy.clipping: per_example"]), ("model.width", "privacy.clipping: slow"))
        self.assertEqual(under_first_names(["--model.d_model", "64", "--privacy.clipping", "per_example", "--train.lr", "a: b"]),
                         ["--model.width", "64", "--privacy.clipping", "slow", "--train.lr", "a: b"])

    def test_a_finished_run_keeps_its_newest_rounds_and_checkpoint(self):
        folder = pathlib.Path(self.folder.name)
        for path in ("a/frag/0/9", "a/frag/0/10", "a/frag/11/3", "a/inner/00000200", "a/inner/00001000", "aggregator/frag/0/8", "aggregator/frag/0/10"):
            (folder / path).mkdir(parents=True)
            (folder / path / "state").write_text("x")
        (folder / "a/frag/0/CURRENT").write_text("10")
        Job.drop_history(mock.Mock(folder=folder))
        self.assertEqual(sorted(str(p.relative_to(folder)) for p in folder.glob("**/*") if p.is_file()),
                         ["a/frag/0/10/state", "a/frag/0/CURRENT", "a/frag/11/3/state", "a/inner/00001000/state", "aggregator/frag/0/10/state"])

    def test_processor_time_is_the_run_s(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "done.json").write_text('{"values": {}, "processor_s": 2.5}')
        self.assertEqual(Job.measure(mock.Mock(folder=folder), "processor_s"), 2.5)
        self.assertEqual(Expression("processor(a)", {"a": {}}).evaluate(lambda run, name: Sample([{"processor_s": 2.5}[name]])).mean, 2.5)

    def test_another_setting_is_searched(self):
        row = self.row(SEARCHED.replace("a: {", "a: {search_of: outer.lr, train.lr: 0.5, ", 1))
        self.assertEqual([row.settings(f"a@{rate}", False)[key] for rate in (0.01, 0.04) for key in ("outer.lr", "train.lr")],
                         [0.01, 0.5, 0.04, 0.5])

    def test_points_of_other_settings_are_refused(self):
        self.searched()
        with self.assertRaises(Bad) as caught:
            self.searched(SEARCHED.replace("runs:", "base: {train.steps: 7}\nruns:"))
        self.assertIn("not finished: a: a@0.01 in results.csv has other settings", str(caught.exception))
        self.assertEqual(FakeJob.ran, [])

    def test_wrong_searches_name_file_and_line(self):
        for old, new, line, words in (("a: {search: [0.01, 0.02, 0.04]}", "a: {search: [0.01, 0.02]}", 4, "no list of three or more rising rates"),
                                      ("a: {search: [0.01, 0.02, 0.04]}", "a: {search: [0.04, 0.02, 0.01]}", 4, "no list of three"),
                                      ("0.04]}", "0.04], train.lr: 0.1}", 4, "search is of train.lr"),
                                      ("0.04]}", "0.04], search_of: outer.lr, outer.lr: 1}", 4, "search is of outer.lr"),
                                      ("a: {search: [0.01, 0.02, 0.04]}", "a: {search_of: outer.lr}", 4, "search_of without search"),
                                      ("a: {search: [0.01, 0.02, 0.04]}", "a: {train.lr: 0.1}", 3, "a: without search, in a row whose")):
            with self.assertRaises(Bad) as caught:
                self.row(SEARCHED.replace(old, new, 1))
            self.assertIn(f"t.yaml:{line}: ", str(caught.exception))
            self.assertIn(words, str(caught.exception))

    def test_a_row_elsewhere_keeps_its_results_beside_it(self):
        self.row("title: T\nminutes: 1\nruns:\n  p: {program: [$python, $here/test_run.py, --program, good]}\naccept: [\"value(p, 'x') == 2\"]\n")
        arguments_of = ["run.py", str(self.path), "--atoll", sys.executable, "--dir", self.folder.name + "/runs"]
        with mock.patch.object(run, "RESULTS", run.RESULTS), mock.patch.object(sys, "argv", arguments_of), \
                contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(run.main(), 0)
        self.assertIn("t,p,,value.x,2.0", (pathlib.Path(self.folder.name) / "results.csv").read_text())
        self.assertIn("| 1 of 1 |", out.getvalue())
        with mock.patch.object(run, "RESULTS", run.RESULTS):
            for names in (["a/t.yaml", "b/u.yaml"], ["a/t.yaml", "lamb"], [str(HERE / "lamb.yaml")]):
                with self.assertRaises(Bad):
                    run.elsewhere(names)

    def test_a_row_has_its_own_text_and_models(self):
        text = pathlib.Path(self.folder.name) / "book.txt"
        own = "data: {mine: {text: book.txt}}\nmodels: {m: {data: mine, model.d_model: 48}}\nbase: {model: m}\n"
        text.write_text("one")
        row = self.row(ROW + own)
        first = row.workloads.data["mine"]
        self.assertEqual((first["text"], row.settings("a", False)["model.d_model"]), (str(text.resolve()), 48))
        text.write_text("another")
        self.assertNotEqual(self.row(ROW + own).workloads.data["mine"]["folder"], first["folder"])  # cut again
        self.assertNotEqual(row.place, row.name)

    def test_a_network_needs_sites_and_their_places(self):
        self.refused("  a: {", "  a: {wan: transatlantic, ", 6, "a network between sites, and the run has one site")
        row = self.row(ROW.replace("  a: {", "  a: {wan: here.yaml, sites: 2, "))
        job = self.runner().job(row, "a", 1, False)
        places = "wan:\n  sites: [a, b, aggregator]\n"
        with mock.patch("job.subprocess.run", lambda *_, **__: mock.Mock(stdout=places, returncode=0, stderr="")):
            self.assertEqual(job.topology(["a", "b"]), "here.yaml")
            with self.assertRaises(Bad) as caught:
                job.topology(["a", "b", "c"])
            self.assertIn("t.yaml:6: run a: wan here.yaml has no place c", str(caught.exception))
        with mock.patch("job.command"), mock.patch.object(job, "start_wan", lambda *_: "net"):
            job.sites = 2
            self.assertEqual(job.start_sites(["--run.name", "t"], ["A", "B"]), (None, ["net"]))
        with mock.patch.object(job, "topology", lambda _: "net"), mock.patch.object(job, "start", lambda words, log: words):
            job.folder.mkdir(parents=True)
            job.sites, job.ranks = 2, 1
            words = list(map(str, job.start_wan(["--x", "1 2"], ["A", "B"], ["a", "b"])))
        self.assertEqual(words[1:6], ["wan", "--topology", "net", "--logs", str(job.folder)])
        script = (job.folder / "places.sh").read_text()
        self.assertIn("aggregator) exec", script)
        self.assertIn("--x '1 2' --site.batch_scale 1 --site.name b --site.aggregator_name localhost --data.train B --site.aggregator \"$3:7443\" ;;", script)

    def test_curves_have_means_and_bands(self):
        def job(shift):
            found = mock.Mock(program=None, clock=lambda _: {0: 0.0, 10: 1.0, 20: 2.0})
            found.records = lambda: {"step": [{"step": s, "tokens": 100 * s} for s in (10, 20)],
                                     "eval": [{"step": s, "loss": l + shift} for s, l in ((0, 9.0), (10, 4.0), (20, 3.0))]}
            return found
        found, lines = curves.collected({"x": {s: job(s / 10) for s in (1, 2, 3)}, "p": {None: mock.Mock(program=["sh"])}})
        self.assertEqual((len(lines), lines[1]), (9, ["x", 1, 10, 1000, 1.0, 4.1]))
        self.assertEqual(curves.table(found)[2], "| x | 3.2 +- 0.1 | 3 | 2.0 |")
        drawn = xml.dom.minidom.parseString(curves.svg("a < b", found))
        band = [tuple(map(float, p.split(","))) for p in drawn.getElementsByTagName("polygon")[0].getAttribute("points").split()]
        line = [tuple(map(float, p.split(","))) for p in drawn.getElementsByTagName("polyline")[0].getAttribute("points").split()]
        self.assertEqual((len(line), len(band)), (2, 4))  # without the loss before the first step
        for i, (x, y) in enumerate(line):
            self.assertTrue(band[i][0] == band[-1 - i][0] == x and band[i][1] < y < band[-1 - i][1])
            self.assertAlmostEqual(y - band[i][1], band[-1 - i][1] - y, delta=0.11)
        self.assertIn("fewer than three", curves.table(curves.collected({"x": {1: job(0)}})[0])[2])
        self.assertIsNone(curves.svg("t", {}))
        for low, high in ((2.9, 3.4), (0, 40960), (3.2, 3.2004), (0, 7)):
            self.assertTrue(2 <= len(curves.ticks(low, high)) <= 14, (low, high, curves.ticks(low, high)))

    def test_a_process_ends_with_the_one_that_started_it(self):
        job = "import subprocess, sys; sys.path.insert(0, sys.argv[1]); from job import end_with_parent\n" \
              "p = subprocess.Popen(['sleep', '1000'], preexec_fn=end_with_parent); print(p.pid, flush=True); p.wait()"
        starter = subprocess.Popen([sys.executable, "-c", job, str(HERE)], stdout=subprocess.PIPE, text=True)
        sleeper = int(starter.stdout.readline())
        starter.kill()
        starter.wait()
        starter.stdout.close()
        while alive(sleeper):  # the limit is the test's
            time.sleep(0.01)

    def test_a_row_that_fails_does_not_end_the_others(self):
        good, bad = ("title: T\nminutes: 1\nruns:\n  p: {program: [$python, $here/test_run.py, --program, " + code + "]}\n"
                     "accept: [\"value(p, 'x') == 2\"]\n" for code in ("good", "bad"))
        code, err = self.main("broken", "fine", broken=bad, fine=good)
        self.assertEqual(code, 4)
        self.assertIn("broken, run p: exit code 3", err)
        self.assertIn("not finished: broken; correct what is said", err)
        self.assertIn("fine,p,,value.x,2.0", (pathlib.Path(self.folder.name) / "r.csv").read_text())

    def test_wrong_places_are_named(self):
        with self.assertRaises(Bad) as caught:
            self.runner(atoll="/nonexistent")
        self.assertIn("--atoll /nonexistent is no file", str(caught.exception))
        with self.assertRaises(Bad):
            self.runner(dir="")

    def test_every_row_of_the_repository_is_right(self):
        for path in rows().values():
            row = Row(path, Workloads())
            self.assertTrue(row.files, f"{path}: files: lists the files of the method")
            self.assertTrue(row.broken, f"{path}: broken: names the switch that takes the mechanism away, or none and why")
            fresh.here(row)

    def test_every_mutant_has_a_row_and_a_place(self):
        used = {Row(path, Workloads()).broken.get("mutant") for path in rows().values()}
        self.assertEqual(set(mutants()) - used, set())
        sources = [p.read_text(encoding="utf-8") for top in ("kernels", "inner", "outer") for p in (REPOSITORY / top).rglob("*.[ch]")]
        for name in mutants():
            self.assertTrue(any(f"WITHOUT({name})" in text for text in sources), name)

    MUTANT = """title: T
minutes: 1
runs:
  p: {program: [$python, $here/test_run.py, --program, mutant]}
  q: {program: [$python, $here/test_run.py, --program, good]}
accept: ["value(p, 'x') == 2", "value(q, 'x') == 2", "value(p, 'x') >= 1", "value(p, 'x') == 9"]
broken: {mutant: BUCKET_CLIP, accept: [1]}
"""

    def broken(self, text):
        row, runner = self.row(text), self.runner()
        runner.progress.out = io.StringIO()
        runner.build = pathlib.Path(self.folder.name)  # its mutants are not built here: the programs are Python's
        return row, broken.check(runner, row)

    def test_broken_sees_a_mechanism_that_is_gone(self):
        row, found = self.broken(self.MUTANT)
        self.assertEqual([(r.result, r.intact, r.broken, r.switch) for r in found],
                         [(broken.SEEN, "2 == 2", "3 == 2", "mutant BUCKET_CLIP")])
        _, blind = self.broken(self.MUTANT.replace("accept: [1]}", "accept: [3, 4, 1]}"))
        self.assertEqual([r.result for r in blind],
                         ["not seen: yes with it, yes without", "not seen: miss with it, miss without", broken.SEEN])
        _, elsewhere = self.broken(self.MUTANT.replace("accept: [1]}", "runs: [q], accept: [2]}"))
        self.assertEqual(elsewhere[0].result, "not seen: yes with it, yes without")
        with self.assertRaises(Bad):
            self.broken(self.MUTANT.replace("accept: [1]}", "runs: [q], accept: [1]}"))
        path = pathlib.Path(self.folder.name) / "broken.csv"
        broken.write(path, found + [broken.Result("other", *[""] * 8)], ["t"])
        broken.write(path, found, ["t"])
        self.assertEqual([k[0] for k in broken.read(path)], ["other", "t"])
        self.assertEqual(broken.told(row, broken.read(path)), "mutant BUCKET_CLIP: seen")

    def test_rows_take_turns(self):
        state = pathlib.Path(self.folder.name) / "turn"
        self.assertEqual(broken.in_turn(["a", "b", "c"], state), ["a", "b", "c"])
        state.write_text("b")
        self.assertEqual(broken.in_turn(["a", "b", "c"], state), ["c", "a", "b"])
        state.write_text("gone")
        self.assertEqual(broken.in_turn(["a", "b", "c"], state), ["a", "b", "c"])

    def test_a_minute_of_rows(self):
        path, ran = pathlib.Path(self.folder.name) / "broken.csv", []
        results = {n: broken.Result(n, "s", "x", "1", "2", broken.SEEN, s, "c", "d") for n, s in (("a", "20"), ("b", "90"), ("c", "30"), ("d", "40"))}
        broken.write(path, results.values(), [])
        runner = mock.Mock(root=pathlib.Path(self.folder.name), broken=lambda row: ran.append(row.name) or [results[row.name]])
        every = {}
        for name in results:
            every[name] = mock.Mock(broken={"mutant": "x"})
            every[name].name = name
        for want in (["a", "c"], ["d", "a"], ["c"]):  # b takes longer than a minute alone
            ran.clear()
            with mock.patch("broken.time.time", lambda: sum(float(results[n].seconds) for n in ran)), contextlib.redirect_stdout(io.StringIO()):
                self.assertTrue(broken.run(runner, every, list(every), 60, path))
            self.assertEqual(ran, want)

    def test_a_key_is_a_switch(self):
        row = self.row(ROW.replace("seeds: [1, 2]", "seeds: [1, 2]\nbroken: {set: {train.lr: 0.5, train.optimizer: null}, runs: [b], accept: [1],\n"
                                   "         base: {model: g0, train.lr: 0.2}, tokens: 512}"))
        runner = self.runner()
        with_, without = (broken.BrokenJob(runner, row, "b", 1, on).settings for on in (False, True))
        changed = {k for k in {*with_, *without} if with_.get(k) != without.get(k)}
        self.assertEqual(changed, {"train.lr", "train.optimizer"})
        self.assertEqual((without["train.lr"], without["tokens"], without["model.d_model"]), (0.5, 512, 64))
        self.assertEqual(broken.BrokenJob(runner, row, "a", 1, True).settings["train.lr"], 0.1)  # its own wins, and no switch is on
        self.assertEqual(broken.needed(row), ["a"])

    def test_wrong_switches(self):
        for new, words in (("{accept: [1]}", "mutant or set"), ("{mutant: NONE_SUCH, accept: [1]}", "no mutant NONE_SUCH"),
                           ("{mutant: BUCKET_CLIP}", "accept lists"), ("{mutant: BUCKET_CLIP, accept: [9]}", "no acceptance 9"),
                           ("{set: {train.lr: 1}, accept: [1]}", "set needs runs"), ("{mutant: BUCKET_CLIP, accept: [1], runs: [z]}", "no run z"),
                           ("{set: {lr: 1}, runs: [a], accept: [1]}", "lr is neither")):
            self.refused("seeds: [1, 2]", f"broken: {new}", 9, words)

    def test_the_runs_of_a_grid_rise_in_one_number(self):
        grid = "runs:\n  x: {train.lr: 0.1}\n  y: {train.lr: 0.2}\n  z: {train.lr: 0.4}\n"
        text = ROW.replace("runs:\n", grid).replace("- loss(a) <= 3", "- best_of(x, y, z) <= 3")
        self.row(text)
        for old, new in (("0.4}", "0.4, train.beta1: 0.5}"), ("0.4}", "0.2}"), ("0.4}", "0.15}")):
            with self.assertRaises(Bad) as caught:
                self.row(text.replace(old, new))
            self.assertIn("runs that differ in one number, which rises", str(caught.exception))

    def runner(self, **options):
        defaults = {"dir": self.folder.name + "/runs", "atoll": sys.executable, "again": False, "quick": False, "runs": None, "seeds": None}
        return run.Runner(argparse.Namespace(**{**defaults, **options}))

    def run_program(self, code, **options):
        self.path.write_text("title: T\nminutes: 1\nruns:\n  p: {program: [$python, $here/test_run.py, " + f"--program, {code}" + ", $dir]}\n"
                             "accept: [\"value(p, 'x') == 2\"]\n", encoding="utf-8")
        runner = self.runner(**options)
        row = Row(self.path, runner.workloads)
        runner.progress.out = io.StringIO()
        return runner.run_all(row, [runner.job(row, "p", None, False)])

    def test_a_finished_run_is_not_run_again(self):
        first = self.run_program("good")
        self.assertEqual(first[0]["values"], {"x": 2.0})
        self.assertEqual(self.run_program("good"), first)
        self.assertNotEqual(self.run_program("good", again=True)[0]["seconds"], first[0]["seconds"])
        self.assertEqual(self.run_program("other")[0]["values"], {"x": 3.0})  # other settings: another run

    def test_two_at_once_are_refused(self):
        row = self.row(ROW)
        first, second = self.runner(), self.runner()
        first.lock(row)
        with self.assertRaises(Bad) as caught:
            second.lock(row)
        self.assertIn("t is being run in", str(caught.exception))
        first.locks[0].close()
        second.lock(row)
        for held in second.locks:
            held.close()

    def test_every_group_of_a_test_program_counts(self):
        sys.path.insert(0, str(HERE / "reference"))
        tests = importlib.import_module("tests")
        path = pathlib.Path(self.folder.name) / "program"
        path.write_text("#!/bin/sh\necho '[  PASSED  ] 9 test(s).'; echo '[  PASSED  ] 6 test(s).'; echo '[  FAILED  ] 2 test(s)'\n")
        path.chmod(0o755)
        self.assertEqual(tests.failed_tests(path, 15), 2)
        with self.assertRaises(SystemExit) as caught:
            tests.failed_tests(path, 16)
        self.assertIn("15 tests passed, 16 are expected", str(caught.exception))

    def test_a_program_that_fails_is_named(self):
        for code, words in (("bad", "exit code 3"), ("silent", "no JSON object of numbers: nothing"), ("chatty", "numbers: hello")):
            with self.assertRaises(Bad) as caught:
                self.run_program(code)
            self.assertIn("t, ", str(caught.exception))
            self.assertIn(words, str(caught.exception))


def alive(process):
    """Also a zombie whose parent has not waited yet has ended."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def program(code):
    """What the programs of the tests above do."""
    if code == "mutant":
        code = "other" if os.environ.get("ATOLL_MUTANT") else "good"
    print({"good": '{"x": 2}', "other": '{"x": 3}', "chatty": "hello"}.get(code, ""))
    return 3 if code == "bad" else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        sys.exit(program(sys.argv[2]))
    unittest.main()
