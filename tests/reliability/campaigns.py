# SPDX-License-Identifier: Apache-2.0
"""The campaigns: which program runs, how long for how much, and which figures its output gives.

A campaign runs in sessions; each session that ends adds its figures to results.csv, so a stopped campaign continues where its last
session ended. Figures of the kind ADD are summed over sessions, those of the kind LAST are of the newest one, MOST is the largest.
"""
import os
import re
import subprocess

ADD, LAST, MOST = "sum", "newest session", "largest"


class Unusable(Exception):
    """The output of a campaign's program misses what its figures are read from; or the program is missing."""


class Figure:
    """name: in results.csv; a name that ends with a dot stands for all that begin so, such as executions.journal."""

    def __init__(self, name, kind, text, unit=""):
        self.name, self.kind, self.text, self.unit = name, kind, text, unit


class Campaign:
    """amount: how much a run of the command does unless it is told; release: how much for a release; session: at most so much between
    two entries in results.csv; builds: targets; command(place, amount, done): words; done: the sum of `progress` so far."""

    def __init__(self, name, title, measure, amount, release, figures, command, read, builds=(), session=None, progress=None, fails=(1,)):
        self.name, self.title, self.measure, self.amount, self.release = name, title, measure, amount, release
        self.figures, self.command, self.read, self.builds = figures, command, read, builds
        self.session, self.progress, self.fails = session or amount, progress, fails

    def figure(self, name):
        return next((f for f in self.figures if f.name == name or f.name.endswith(".") and name.startswith(f.name)), None)


class Place:
    """Where programs are built and where they write."""

    def __init__(self, repository, build, scratch):
        self.repository, self.build, self.scratch = repository, build, scratch

    def test(self, name):
        return os.path.relpath(self.build / "tests" / name, self.repository)

    def atoll(self):
        return os.path.relpath(self.build / "bin/atoll", self.repository)


def pairs(text):
    """The last line of name=number pairs."""
    for line in reversed(text.splitlines()):
        found = re.findall(r'"?([\w ]+?)"?=(-?\d+(?:\.\d+)?)(?=\s|$)', line)
        if len(found) > 2:
            return {name.strip(): float(value) for name, value in found}
    raise Unusable("no line of name=number pairs")


def one(pattern, text):
    found = re.search(pattern, text)
    if not found:
        raise Unusable(f"no text that matches {pattern}")
    return found


def numbers(names, found):
    return dict(zip(names, map(float, found.groups())))


# ---- simulator ----

def schedules(text):
    p = pairs(text)
    return {"schedules": p["seeds"], "violations": p["failed"], "crashes": p["crashes"], "rounds": p["commits"],
            "simulated_years": p["hours_simulated"] / 8766, "longest_gap_s": p["longest_gap_s"], "seconds": p["seconds"]}


def masked(text):
    p = pairs(text)
    return {**schedules(text), "seals": p["sealed"], "unmasked": p["unmasked_compared"]}


def points(text):
    p = pairs(text)
    return {"points": p["points"], "tried": p["tried"], "masked": p["masked"], "violations": p["failed"], "seconds": p["seconds"]}


def states(text):
    found = one(r"(?m)^(\d+) states, (\d+) violations", text)
    return numbers(("states", "violations"), found)


def traces(text):
    return numbers(("builds", "seeds", "traces"), one(r"(\d+) builds, (\d+) seeds, (\d+) trace\(s\)", text))


def coverage(text):
    found = one(r"(\d+) lines, (\d+) not reached, (\d+) branches, (\d+) not reached, (\d+) excepted", text)
    return numbers(("lines", "lines_missed", "branches", "branches_missed", "excepted"), found)


MUTANT_PROGRAMS = ("states", "stepper_states", "points", "site", "replay", "majorities", "round", "bounds", "supply", "stepper", "outer_state",
                   "aggregator")


def mutants(text):
    """mutants.sh prints `NAME: test_sim: FAILED test_sim --seed S: ...`, or `NAME: not found within N seeds`."""
    found, missed = 0, []
    for line in text.splitlines():
        name = re.match(r"([A-Z0-9_]+): (.*)", line)
        if not name:
            continue
        if "not found within" in name[2]:
            missed.append(name[1])
        else:
            found += 1
    if not found:
        raise Unusable("no mutant is named")
    return {"mutants": found + len(missed), "found": found, **{f"missed.{name}": 1 for name in missed}}


# ---- real processes ----

CHAOS = re.compile(r"8 sites, (\d+) rounds: (\d+) kills, (\d+) stops, same digests; restart to commit p50 (\d+) ms, p99 (\d+) ms")


def chaos(text):
    found = one(CHAOS, text)
    figures = numbers(("rounds", "kills", "stops", "restart_to_commit_p50_ms", "restart_to_commit_p99_ms"), found)
    figures["runs"] = 1
    for name, pattern in (("rss_kib_a_round", r"site h: (-?[\d.]+) KiB and"), ("descriptors_a_round", r"and (-?[\d.]+) descriptors a round"),
                          ("cuts", r"(\d+) links cut"), ("frozen", r"(\d+) frozen"), ("slowed", r"(\d+) slowed"), ("disks_filled", r"(\d+) disks filled"),
                          ("rebuilt", r"aggregator rebuilt (\d+)")):
        more = re.search(pattern, text)
        if more:
            figures[name] = float(more[1])
    return figures


def soak(text):
    found = one(r"soak of ([\d.]+) h: (\d+) kills, (\d+) rounds, longest wait for a round ([\d.]+) s; "
                r"per hour: site h (-?[\d.]+) KiB, (-?[\d.]+) descriptors; aggregator (-?[\d.]+) KiB, (-?[\d.]+) descriptors", text)
    return numbers(("hours", "kills", "rounds", "longest_wait_s", "site_kib_an_hour", "site_descriptors_an_hour",
                    "aggregator_kib_an_hour", "aggregator_descriptors_an_hour"), found)


# ---- parsers, refusals, suite ----

def fuzz(text):
    runs = {f"executions.{m[1]}": float(m[2]) for m in re.finditer(r"^(\w+): (\d+) executions, no finding", text, re.M)}
    findings = re.findall(r"^(\w+): a finding", text, re.M)
    if not runs and not findings:
        raise Unusable("no target is named")
    return {**runs, "findings": len(findings)}


def refusals(text):
    """The page that test_refusals holds equal to its table."""
    flat = " ".join(text.split())
    figures = numbers(("names", "over_the_link"), one(r"Of (\d+) names, the program does (\d+) over the real link", flat))
    figures["by_other_tests"] = float(one(r"(\d+) are done by other tests", flat)[1])
    missing = re.search(r"\*\*(\d+) (?:are|is) not built\*\*", flat)
    figures["not_built"] = float(missing[1]) if missing else 0
    return figures


def suite(text):
    failed, count = one(r"(\d+) tests failed out of (\d+)", text).groups()
    seconds = one(r"Total Test time \(real\) = +([\d.]+) sec", text)[1]
    skipped = len(re.findall(r"\*\*\*Skipped", text))
    return {"tests": float(count), "failed": float(failed), "skipped": skipped, "seconds": float(seconds)}


def tokenizers(text):
    """A line for each tokenizer: texts, ids, and how many texts have other ids than the reference's."""
    rows = re.findall(r"(?m)^[\w, ]+: (\d+) texts, [\d.]+ MB, (\d+) ids, (\d+) texts differ", text)
    if not rows:
        raise Unusable("no tokenizer is named")
    return {"tokenizers": len(rows), "ids": sum(float(r[1]) for r in rows), "differ": sum(float(r[2]) for r in rows)}


def rows(text):
    """`reproduce.sh --quick --all`: a line for each row and each of its acceptances."""
    done = len(re.findall(r"(?m)^[\w-]+: quick, \d+ runs", text))
    if not done:
        raise Unusable("no row is named")
    return {"rows": done, "held": len(re.findall("(?m)^yes  ", text)), "missed": len(re.findall("(?m)^MISS  ", text))}


def script(place, name, folder, *words):
    """`folder`: its own, which the script removes first."""
    return [f"tests/{name}", place.atoll(), os.path.relpath(place.scratch / folder, place.repository), *words]


def stalls(text):
    """Of test_slow_disk: a commit on a disk that is slowed until it takes seconds, and small calls meanwhile."""
    calls = re.findall(r"state of (\d+) MiB, commit (\d+) ms: longest (\w+) (\d+) ms of (\d+)", text)
    longest = {name: float(ms) for _, _, name, ms, _ in calls}
    if "hello" not in longest:
        raise Unusable("no hello is measured")
    return {"state_mib": float(calls[0][0]), "commit_ms": float(calls[0][1]), **{f"longest_{name}_ms": ms for name, ms in longest.items()}}


CAMPAIGNS = [
    Campaign("sim", "Fault schedules in the simulator", "seeds", 20000, 1000000,
             [Figure("schedules", ADD, "schedules"), Figure("violations", ADD, "violations of an invariant"),
              Figure("crashes", ADD, "crashes in them"), Figure("rounds", ADD, "committed rounds"),
              Figure("simulated_years", ADD, "simulated years"), Figure("longest_gap_s", MOST, "longest time between commits", "s, simulated"),
              Figure("seconds", ADD, "processor time", "s")],
             lambda place, amount, done: [place.test("test_sim"), "--from", str(int(done) + 1), "--count", str(amount)], schedules,
             builds=["test_sim"], session=10000, progress="schedules"),
    Campaign("large", "Fault schedules with up to 64 sites and 200 rounds", "seeds", 1000, 20000,
             [Figure("schedules", ADD, "schedules"), Figure("violations", ADD, "violations of an invariant"),
              Figure("crashes", ADD, "crashes in them"), Figure("rounds", ADD, "committed rounds"),
              Figure("simulated_years", ADD, "simulated years"), Figure("longest_gap_s", MOST, "longest time between commits", "s, simulated"),
              Figure("seconds", ADD, "processor time", "s")],
             lambda place, amount, done: [place.test("test_sim"), "--large", "--from", str(int(done) + 1), "--count", str(amount)], schedules,
             builds=["test_sim"], session=200, progress="schedules"),
    Campaign("masks", "Fault schedules of masked rounds", "seeds", 20000, 1000000,
             [Figure("schedules", ADD, "schedules"), Figure("violations", ADD, "violations of an invariant"),
              Figure("crashes", ADD, "crashes in them"), Figure("rounds", ADD, "committed rounds"),
              Figure("seals", ADD, "seals that sites were shown"), Figure("unmasked", ADD, "runs that ended as without masks"),
              Figure("simulated_years", ADD, "simulated years"), Figure("longest_gap_s", MOST, "longest time between commits", "s, simulated"),
              Figure("seconds", ADD, "processor time", "s")],
             lambda place, amount, done: [place.test("test_sim"), "--focus", "masks", "--from", str(int(done) + 1), "--count", str(amount)],
             masked, builds=["test_sim"], session=10000, progress="schedules"),
    Campaign("points", "Every storage operation fails in every way, with masks and without", "runs of all points", 1, 1,
             [Figure("points", LAST, "points (operation and fault)"), Figure("tried", LAST, "tried"),
              Figure("masked", LAST, "of them, in masked runs"), Figure("violations", LAST, "violations"), Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: [place.test("test_points"), "--all"], points, builds=["test_points"]),
    Campaign("pairs", "A process ends at a storage operation, and after its restart another one fails", "runs of all points", 1, 1,
             [Figure("points", LAST, "points (two operations and two faults)"), Figure("tried", LAST, "tried"),
              Figure("masked", LAST, "of them, in masked runs"), Figure("violations", LAST, "violations"), Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: [place.test("test_points"), "--pairs"], points, builds=["test_points"]),
    Campaign("memory", "Allocations of aggregator and site fail, one or all from it on", "runs of all points", 1, 1,
             [Figure("points", LAST, "allocations, each once and for ever"), Figure("tried", LAST, "tried"),
              Figure("masked", LAST, "of them, in masked runs"), Figure("violations", LAST, "violations"), Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: [place.test("test_memory"), "--all"], points, builds=["test_memory"]),
    Campaign("states", "Every order of events of the protocol core, breadth first", "states of each mode", 1000000, 10000000,
             [Figure("states", LAST, "states visited"), Figure("violations", LAST, "violations")],
             lambda place, amount, done: [place.test("test_states"), "--states", str(amount)], states, builds=["test_states"],
             session=10 ** 9),
    Campaign("steppers", "Every order of events of protocol core and trainers' steppers, breadth first", "states of each configuration", 100000,
             1000000, [Figure("states", LAST, "states visited"), Figure("violations", LAST, "violations")],
             lambda place, amount, done: [place.test("test_stepper_states"), "--states", str(amount)], states, builds=["test_stepper_states"],
             session=10 ** 9),
    Campaign("trace", "The same seeds from each compiler and optimisation level", "seeds", 1000, 10000,
             [Figure("builds", LAST, "builds"), Figure("seeds", LAST, "seeds, each twice"), Figure("traces", LAST, "different traces of all seeds")],
             lambda place, amount, done: ["tests/sim/trace.sh", os.path.relpath(place.scratch, place.repository), str(amount)], traces,
             session=10 ** 9),
    Campaign("coverage", "Lines and branches of protocol core, journal and codecs that tests reach", "seeds in addition to the unit tests", 300, 2000,
             [Figure("lines", LAST, "lines"), Figure("lines_missed", LAST, "lines not reached"), Figure("branches", LAST, "branches"),
              Figure("branches_missed", LAST, "branches not reached"), Figure("excepted", LAST, "branches excepted, with a reason")],
             lambda place, amount, done: ["tests/reliability/coverage.py", os.path.relpath(place.scratch / "coverage", place.repository), str(amount)],
             coverage, session=10 ** 9),
    Campaign("mutants", "Deliberate bugs of the protocol, found by tests", "seeds for each", 10000, 10000,
             [Figure("mutants", LAST, "bugs"), Figure("found", LAST, "found"), Figure("missed.", LAST, "not found")],
             lambda place, amount, done: ["tests/sim/mutants.sh", place.test(""), str(amount)], mutants,
             builds=["test_mutants", *(f"test_mutants_{name}" for name in MUTANT_PROGRAMS)], session=10 ** 9),
    Campaign("chaos", "Real processes killed and stopped, links cut and slowed, disks filled", "kills", 50, 10000,
             [Figure("runs", ADD, "runs that ended with the SHA-256 of the undisturbed one"), Figure("kills", ADD, "kills (SIGKILL)"),
              Figure("stops", ADD, "stops (SIGSTOP)"), Figure("rounds", ADD, "committed rounds"), Figure("cuts", ADD, "links cut"),
              Figure("frozen", ADD, "links frozen"), Figure("slowed", ADD, "links slowed"), Figure("disks_filled", ADD, "disks filled"),
              Figure("rebuilt", ADD, "aggregators rebuilt from the sites"),
              Figure("restart_to_commit_p50_ms", LAST, "restart to next commit, median", "ms"),
              Figure("restart_to_commit_p99_ms", LAST, "restart to next commit, 99 %", "ms"),
              Figure("rss_kib_a_round", LAST, "memory of the site that is never killed", "KiB a round"),
              Figure("descriptors_a_round", LAST, "its descriptors", "a round")],
             lambda place, amount, done: script(place, "chaos/chaos.sh", "chaos", "--kills", str(amount), "--seed", str(int(done) + 1)), chaos,
             builds=["atoll"], session=50, progress="kills"),
    Campaign("soak", "Real processes for hours, kills at a slow rate", "hours", 1, 24,
             [Figure("hours", ADD, "hours"), Figure("kills", ADD, "kills"), Figure("rounds", ADD, "committed rounds"),
              Figure("longest_wait_s", MOST, "longest wait for a round", "s"),
              Figure("site_kib_an_hour", LAST, "memory of a site", "KiB an hour"),
              Figure("site_descriptors_an_hour", LAST, "its descriptors", "an hour"),
              Figure("aggregator_kib_an_hour", LAST, "memory of the aggregator", "KiB an hour"),
              Figure("aggregator_descriptors_an_hour", LAST, "its descriptors", "an hour")],
             lambda place, amount, done: script(place, "chaos/chaos.sh", "soak", "--soak", f"{amount:g}"), soak, builds=["atoll"], session=10 ** 9),
    Campaign("hello", "Small calls while a large state is committed on a slow disk", "MiB of outer state", 256, 2048,
             [Figure("state_mib", LAST, "outer state", "MiB"), Figure("commit_ms", LAST, "the commit took", "ms"),
              Figure("longest_hello_ms", LAST, "longest stall of a hello", "ms"), Figure("longest_poll_ms", LAST, "of a poll", "ms"),
              Figure("longest_report_ms", LAST, "of a report", "ms")],
             lambda place, amount, done: ["env", f"STATE_MIB={amount}", place.test("test_slow_disk")], stalls, builds=["test_slow_disk"],
             session=10 ** 9),
    Campaign("fuzz", "Parsers of foreign bytes under libFuzzer", "seconds for each target", 60, 36000,
             [Figure("executions.", ADD, "executions"), Figure("findings", ADD, "findings")],
             lambda place, amount, done: ["tests/fuzz/campaign.sh", str(amount)], fuzz, session=10 ** 9),
    Campaign("tsan", "Site, link, aggregator and commits during calls under ThreadSanitizer", "run", 1, 1,
             [Figure("tests", LAST, "tests"), Figure("failed", LAST, "failed"), Figure("skipped", LAST, "skipped"),
              Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: ["tests/sanitizers/campaign.sh", "tsan"], suite, fails=(8,)),
    Campaign("asan", "The suite under AddressSanitizer (leaks too) and UndefinedBehaviorSanitizer", "run", 1, 1,
             [Figure("tests", LAST, "tests"), Figure("failed", LAST, "failed"), Figure("skipped", LAST, "skipped"),
              Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: ["tests/sanitizers/campaign.sh", "asan"], suite, fails=(8,)),
    Campaign("refusals", "What must be refused, over the real link", "run", 1, 1,
             [Figure("names", LAST, "names"), Figure("over_the_link", LAST, "done over the real link"),
              Figure("by_other_tests", LAST, "done by other tests"), Figure("not_built", LAST, "not built")],
             lambda place, amount, done: ["sh", "-c", f"GRPC_EXPERIMENTS= {place.test('test_refusals')} docs/refusals.md >&2 && cat docs/refusals.md"],
             refusals, builds=["test_refusals"]),
    Campaign("tokenizers", "Token ids compared with those of Hugging Face's tokenizers, every code point below U+30000", "MB of text", 1, 10,
             [Figure("tokenizers", LAST, "tokenizers"), Figure("ids", LAST, "ids"), Figure("differ", LAST, "texts whose ids differ")],
             lambda place, amount, done: ["tests/inner/data/tokenizer_oracle.sh", place.test("tokenize"),
                                          os.path.relpath(place.scratch / "tokenizers", place.repository), "--mb", str(amount)],
             tokenizers, builds=["tokenize"], session=10 ** 9),
    Campaign("rows", "Small runs of all rows of deploy/reproduce.sh; the suite has the cheap ones", "run", 1, 1,
             [Figure("rows", LAST, "rows"), Figure("held", LAST, "acceptances that hold for small runs"), Figure("missed", LAST, "that do not")],
             lambda place, amount, done: ["deploy/reproduce.sh", "--quick", "--all", "--atoll", place.atoll(),
                                          "--dir", os.path.relpath(place.scratch / "rows", place.repository)],
             rows, builds=["atoll"], session=10 ** 9),
    Campaign("suite", "The whole suite", "run", 1, 1,
             [Figure("tests", LAST, "tests"), Figure("failed", LAST, "failed"), Figure("skipped", LAST, "skipped"),
              Figure("seconds", LAST, "time", "s")],
             lambda place, amount, done: ["ctest", "--test-dir", os.path.relpath(place.build, place.repository), "-j", str(os.cpu_count() + 1)], suite,
             builds=["all"], fails=(8,)),
]


def by_name():
    return {c.name: c for c in CAMPAIGNS}


def run(campaign, place, amount, done, out):
    """One session: (figures, command). Its output goes to the screen and to the file `out`. The figure `failed` is 1 where the program
    found something; then other figures may be missing."""
    words = [str(w) for w in campaign.command(place, amount, done)]
    lines = []
    with open(out, "w", encoding="utf-8") as log, subprocess.Popen(words, cwd=place.repository, stdout=subprocess.PIPE, text=True,
                                                                   errors="replace") as process:
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                log.write(line)
                lines.append(line)
        except BaseException:
            process.terminate()
            raise
    failed = process.returncode in campaign.fails
    if process.returncode != 0 and not failed:
        raise Unusable(f"{campaign.name}: {'skipped' if process.returncode == 77 else f'exit code {process.returncode}'}: {out}")
    try:
        figures = campaign.read("".join(lines))
    except Unusable as wrong:
        if not failed:
            raise Unusable(f"{campaign.name}: {wrong}: {out}") from None
        figures = {}
    return {**figures, "failed": int(failed)}, " ".join(words)
