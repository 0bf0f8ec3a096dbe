#!/usr/bin/env python3
"""What breaks if this fails: a row is misread, a wrong row is accepted, an expression means something else than it says, or the page
shows other numbers than the CSV. Needs PyYAML; says so and ends with 77 without it."""
import argparse
import contextlib
import io
import math
import pathlib
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

try:
    import yaml  # noqa: F401
except ImportError:
    print("SKIPPED: PyYAML is missing")
    sys.exit(77)

import page
import run
import search
from data import Data
from expression import FUNCTIONS, Bad, Expression, Missing, Sample
from job import Job, crossing
from row import HERE, Row, Workloads, rows

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

    def found(self, loss, losses=None):
        """The losses of all points that are wanted, and their order."""
        losses, order = dict(losses or {}), []
        while points := search.wanted(self.GRID, self.SEEDS, losses):
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
        self.assertEqual((row.settings("b", False)["train.lr"], row.settings("b", False)["model.width"]), (0.003, 64))
        self.assertEqual((row.settings("b", True)["tokens"], row.settings("b", True)["model.width"]), (2e4, 128))
        self.assertEqual((row.chosen(False), row.chosen(True)), ((["a", "b"], [1, 2]), (["b"], [1])))

    def test_a_miss_stays_with_its_reason(self):
        row = self.row(ROW.replace("8 * 8", "8 * 9"))
        judged = page.judged(row, measures)
        self.assertEqual([j[2] for j in judged], [True, False])
        self.assertIn("**miss**: because", "\n".join(page.tables(row, measures, "")))

    def test_page_is_the_csv(self):
        row, path = self.row(ROW), pathlib.Path(self.folder.name) / "r.csv"
        self.assertIn("Not run yet", page.page([row], path))
        asked = {(r, s, m): v for (r, m), found in NUMBERS.items() for s, v in enumerate(found, 1)}
        page.append(path, "2026-01-01T00:00:00", "old", "c0", "t", {}, 5)
        page.append(path, "2026-01-02T00:00:00", "box", "c1", "t", asked, 2.04)
        text = page.page([row], path)
        self.assertIn("| loss: equal | 3 +- 1.4, n 2 |  | 2 of 2 | c1, box, 2.0 min, 2026-01-02 |", text)
        self.assertIn("| `bytes(a) == wire` | 64 == 64 | yes |", text)
        path.write_text(path.read_text().replace("a,2,eval.loss.last,4.0", "a,2,eval.loss.last,6.0"))
        self.assertIn("| `loss(a) <= 3` | 4 +- 2.8, n 2 <= 3 | **miss** |", page.page([row], path))

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
                contextlib.redirect_stdout(io.StringIO()):
            return run.main(), err.getvalue()

    def searched(self, text=SEARCHED, only=(), dies=None):
        """run.main over a searched row; the points that ran."""
        FakeJob.ran, FakeJob.dies = [], dies
        with mock.patch.object(run, "Job", FakeJob):
            self.assertEqual(self.main("s", *only, s=text)[0], 0)
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

    def test_runs_of_a_search_are_shared_out(self):
        self.assertEqual({name[0] for name, _ in self.searched(only=("--runs", "b"))}, {"b"})
        self.assertEqual({name[0] for name, _ in self.searched()}, {"a"})
        with self.assertRaises(Bad):
            self.searched(only=("--runs", "c"))

    def test_first_seeds_alone(self):
        self.assertEqual({seed for _, seed in self.searched(only=("--seeds", "1"))}, {1})
        self.assertNotIn(1, {seed for _, seed in self.searched()})
        for count, text in (("0", SEARCHED), ("-1", SEARCHED), ("1", ROW)):
            with self.assertRaises(Bad) as caught:
                self.searched(text, only=("--seeds", count))
            self.assertIn(f"--seeds {count}: one seed or more", str(caught.exception))

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
            Row(path, Workloads())

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
    print({"good": '{"x": 2}', "other": '{"x": 3}', "chatty": "hello"}.get(code, ""))
    return 3 if code == "bad" else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        sys.exit(program(sys.argv[2]))
    unittest.main()
