#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What breaks if this fails: a figure is misread, a campaign starts again instead of continuing, a failure is lost, or the page says that
a goal is reached which is not."""
import contextlib
import fcntl
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import campaigns
import page
import run
from campaigns import ADD, LAST, Campaign, Figure, Unusable

SIM = ('seeds=20 failed=0 calls=9 crashes=154 stopped=2 restarts=154 commits=268 postponed=0 moved=3 residual_resets=0 damaged=5 aborted=0 '
       'clipped=2 lies_refused=1 compressed=0 residuals_lost=0 snapshots=4 excluded=1 books=99 longest_gap_s=412 hours_simulated=8766 seconds=1.5\n')
POINTS = 'points=46080 tried=900 masked=450 struck=800 failed=0 snapshots=3 "kill"=200 "power loss"=100 "EIO once"=7 seconds=15.0\n'
CHAOS = ("8 sites, 420 rounds: 50 kills, 12 stops, same digests; restart to commit p50 431 ms, p99 2210 ms; site h: 0.25 KiB and -0.00 "
         "descriptors a round; 3 links cut, 1 frozen, 2 slowed; 4 disks filled; aggregator rebuilt 1 times\n")


class Readings(unittest.TestCase):
    def test_simulator(self):
        figures = campaigns.schedules("FAILED test_sim --seed 3: a=1 b=2\n" + SIM)
        self.assertEqual((figures["schedules"], figures["violations"], figures["simulated_years"], figures["seconds"]), (20, 0, 1, 1.5))
        self.assertEqual(campaigns.points(POINTS), {"points": 46080, "tried": 900, "masked": 450, "violations": 0, "seconds": 15})
        found = campaigns.mutants("ACK_EARLY: FAILED test_sim --seed 2: lost\nDIR_SYNC: not found within 9 seeds\nOLD: FAILED x --seed 8: y\n")
        self.assertEqual(found, {"mutants": 3, "found": 2, "missed.DIR_SYNC": 1})

        self.assertEqual(campaigns.traces("x86_64: 4 builds, 300 seeds, 1 trace(s): ab\n"), {"builds": 4, "seeds": 300, "traces": 1})
        self.assertEqual(campaigns.coverage("a:1: line: x\n9 lines, 1 not reached, 4 branches, 2 not reached, 3 excepted\n"),
                         {"lines": 9, "lines_missed": 1, "branches": 4, "branches_missed": 2, "excepted": 3})
        self.assertEqual(campaigns.states("mode=strict states=9 waiting=1 crashes_max=2\n120000 states, 0 violations\n"),
                         {"states": 120000, "violations": 0})

    def test_stalls(self):
        text = "".join(f"state of 2048 MiB, commit 9000 ms: longest {n} {ms} ms of 7\n" for n, ms in (("hello", 12), ("poll", 9), ("report", 8)))
        self.assertEqual(campaigns.stalls(text)["longest_hello_ms"], 12)
        self.assertEqual(campaigns.stalls(text)["state_mib"], 2048)

    def test_processes(self):
        figures = campaigns.chaos(CHAOS)
        self.assertEqual((figures["kills"], figures["stops"], figures["restart_to_commit_p99_ms"], figures["rebuilt"]), (50, 12, 2210, 1))
        self.assertEqual((figures["cuts"], figures["slowed"], figures["disks_filled"], figures["rss_kib_a_round"]), (3, 2, 4, 0.25))

    def test_others(self):
        self.assertEqual(campaigns.fuzz("yaml: 12 executions, no finding\nshard: a finding (exit code 77): x\n"), {"executions.yaml": 12, "findings": 1})
        self.assertEqual(campaigns.suite("1/2 Test #1: a ***Skipped 0.1 sec\n\n100% tests passed, 0 tests failed out of 2\n\n"
                                         "Total Test time (real) =  10.50 sec\n"), {"tests": 2, "failed": 0, "skipped": 1, "seconds": 10.5})
        text = (page.records.REPOSITORY / "docs/refusals.md").read_text(encoding="utf-8")
        self.assertGreaterEqual(campaigns.refusals(text)["names"], 97)

    def test_nothing_is_guessed(self):
        for read in (campaigns.schedules, campaigns.points, campaigns.mutants, campaigns.chaos, campaigns.fuzz, campaigns.refusals,
                     campaigns.suite, campaigns.soak, campaigns.stalls, campaigns.states, campaigns.traces, campaigns.coverage):
            with self.assertRaises(Unusable, msg=read.__name__):
                read("Segmentation fault\n")


class Sessions(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.results = self.root / "results.csv"
        self.place = campaigns.Place(page.records.REPOSITORY, self.root, self.root)
        figures = [Figure("done", ADD, "done"), Figure("ms", LAST, "time", "ms"), Figure("by.", ADD, "executions")]

        def command(place, amount, done):
            return ["sh", "-c", f"echo {int(done)}+{amount}; [ {int(done)} -lt 8 ] || exit 1"]

        def read(text):
            done, amount = text.split("+")
            return {"done": float(amount), "ms": float(done), "by.a": 5}
        self.campaign = Campaign("c", "Title", "things", 10, 100, figures, command, read, session=4, progress="done")

    def tearDown(self):
        self.folder.cleanup()

    def go(self, amount):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return run.campaign_run(self.campaign, self.place, amount, self.results), out.getvalue()

    def test_goes_on(self):
        self.assertTrue(self.go(6)[0])
        of = page.Recorded(self.results, self.campaign)
        self.assertEqual([s["figures"]["done"] for s in of.sessions], [4, 2])
        self.assertEqual((of.value("done"), of.value("ms"), of.value("by.a"), of.value("failed")), (6, 4, 10, 0))
        self.assertTrue(self.go(2)[0])
        clean, out = self.go(4)
        self.assertFalse(clean)
        self.assertIn("c: FAILED: sh -c", out)
        of = page.Recorded(self.results, self.campaign)
        self.assertEqual((of.value("done"), of.value("failed"), of.done()), (4, 1, 0))
        self.assertIn("**1 of 4 sessions found something**, the last one at commit", "\n".join(page.campaign_part(of, 1)))
        self.assertTrue(self.go(8)[0])  # what failed is repeated
        of = page.Recorded(self.results, self.campaign)
        self.assertEqual((of.value("done"), of.value("failed"), of.done(), len(of.counted())), (8, 0, 8, 2))
        self.assertIn("2 since then, which are counted here", "\n".join(page.campaign_part(of, 1)))

    def test_one_at_a_time(self):
        with open(self.root / "c.lock", "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with self.assertRaises(Unusable):
                self.go(1)
        self.assertTrue(self.go(1)[0])

    def test_a_crash_is_no_figure(self):
        self.campaign.command = lambda place, amount, done: ["sh", "-c", "echo 0+4; kill -SEGV $$"]
        with self.assertRaises(Unusable):
            self.go(4)
        self.assertFalse(self.results.exists())


class Page(unittest.TestCase):
    def goal(self, figures, *tests):
        campaign = Campaign("c", "T", "things", 1, 1, [Figure("x", ADD, "xs"), Figure("all", LAST, "alls"), Figure("e.", ADD, "runs")], None, None)
        of = page.Recorded("/nonexistent", campaign)
        of.sessions = [{"figures": figures}] if figures else []
        return page.Goal("G", "text", *tests).reached({"c": of})

    def test_verdicts(self):
        self.assertEqual(self.goal(None, ("c", "x", ">=", 5)), ("c: not run", "not run"))
        self.assertEqual(self.goal({"x": 4}, ("c", "x", ">=", 5)), ("4 xs", "not yet"))
        self.assertEqual(self.goal({"x": 5}, ("c", "x", ">=", 5)), ("5 xs", "yes"))
        self.assertEqual(self.goal({"x": 1, "failed": 0}, ("c", "x", "=", 0), ("c", "failed", "=", 0))[1], "**no**")
        self.assertEqual(self.goal({"x": 4, "all": 5}, ("c", "x", ">=", "all"))[1], "not yet")
        self.assertEqual(self.goal({"x": 1}, ("c", "all", ">=", 5), ("c", "x", "=", 0))[1], "**no**")
        cell, verdict = self.goal({"e.a": 9, "e.b": 3000}, ("c", "e.", ">=", 10))
        self.assertEqual((cell, verdict), ("9 runs of a, the least of 2 targets", "not yet"))

    def test_each_campaign_and_goal(self):
        with tempfile.TemporaryDirectory() as folder:
            text = page.page(campaigns.CAMPAIGNS, pathlib.Path(folder) / "none.csv")
        self.assertEqual(text.count("Not run yet."), len(campaigns.CAMPAIGNS))
        self.assertNotIn("| yes |", text)
        for goal in page.GOALS:
            for test in goal.tests:
                self.assertIsNotNone(campaigns.by_name()[test[0]].figure(test[1]) or test[1] == "failed", test)

    def test_check_page_sees_a_difference(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "PAGE", pathlib.Path(folder) / "page.md"), \
                contextlib.redirect_stdout(io.StringIO()):
            none = pathlib.Path(folder) / "none.csv"
            run.update_page(False, none)
            self.assertEqual(run.update_page(True, none), 0)
            run.PAGE.write_text(run.PAGE.read_text(encoding="utf-8").replace("R4", "R5"), encoding="utf-8")
            self.assertEqual(run.update_page(True, none), 1)


if __name__ == "__main__":
    unittest.main()
