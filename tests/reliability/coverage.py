#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines and branches of the protocol core, the journal and the codecs that no unit test and no run of the simulator reaches.

    coverage.py SCRATCH [SEEDS]     builds with gcc --coverage in SCRATCH, runs the tests, reads gcov
    coverage.py --read SCRATCH      reads what is there

Prints each line and branch that is not reached; those that need not be are counted, by reason (EXCEPTED). The last line sums up:
"3000 lines, 12 not reached, 4000 branches, 60 not reached, 210 excepted". Exit code 77: no gcc or gcov.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
MEASURED = ("outer/protocol/", "outer/codec/", "outer/store/journal.c")
TESTS = ("round", "bounds", "shares", "roles", "roster", "manifest", "journal", "codec", "merge", "downlink", "outer_state", "aggregator",
         "site", "inflight", "eager", "revocation", "signed")
SIMULATED = (("test_states", "--states", "20000"), ("test_stepper_states", "--states", "1000"), ("test_points", "--seconds", "60"),
             ("test_memory", "--seconds", "60"))
# (source line, branches only, reason)
EXCEPTED = (
    (re.compile(r"\bASSERT\("), True, "ASSERT: a bug ends the program"),
    (re.compile(r"\bTRY_ALLOC\("), True, "no memory: test_memory has its own copy of what allocates"),
    (re.compile(r"^#pragma omp|\bomp "), True, "OpenMP's own branches"),
)


def built(scratch, seeds):
    configure = ["cmake", "-S", REPOSITORY, "-B", scratch, "-G", "Ninja", "-DCMAKE_C_COMPILER=gcc", "-DNET=OFF", "-DMPI=OFF",
                 "-DCMAKE_BUILD_TYPE=Coverage", "-DCMAKE_C_FLAGS_COVERAGE=-O0 --coverage -fprofile-update=atomic"]
    names = [f"test_{name}" for name in TESTS]
    programs = [*[[name] for name in names], *SIMULATED, ["test_sim", "--from", "1", "--count", str(seeds)]]
    with open(scratch / "build.log", "wb") as log:
        for words in (configure, ["cmake", "--build", scratch, "--target", *dict.fromkeys(p[0] for p in programs)]):
            if subprocess.run(words, stdout=log, stderr=log, check=False).returncode:
                sys.exit(f"coverage: does not build: {log.name}")
    for old in scratch.rglob("*.gcda"):
        old.unlink()
    for words in programs:
        done = subprocess.run([scratch / "tests" / words[0], *words[1:]], cwd=REPOSITORY, capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        print(f"{' '.join(words)}: {done.stdout.splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]}", flush=True)
        if done.returncode not in (0, 77):
            sys.exit(f"coverage: {words[0]} fails")


def measured(scratch):
    """{path: {line: [count, [counts of branches]]}}: the sum over all objects made of a file."""
    found = {}
    for notes in (p for p in scratch.rglob("*.gcno") if re.search(r"outer_(protocol|codec)\.dir/|outer_store\.dir/journal", str(p))):
        words = ["gcov", "--json-format", "--branch-probabilities", "--stdout", notes]
        text = subprocess.run(words, cwd=scratch, capture_output=True, text=True, check=True).stdout
        for file in json.loads(text)["files"]:
            path = os.path.relpath(os.path.join(scratch, file["file"]), REPOSITORY)
            if not path.startswith(MEASURED):
                continue
            lines = found.setdefault(path, {})
            for line in file["lines"]:
                seen = lines.setdefault(line["line_number"], [0, {}])
                seen[0] += line["count"]
                for k, branch in enumerate(line["branches"]):
                    key = (notes.name, line.get("function_name"), k) if path.endswith(".h") else k
                    seen[1][key] = seen[1].get(key, 0) + branch["count"]
    return found


def reason(text, branch):
    return next((why for pattern, branches, why in EXCEPTED if pattern.search(text) and (branch or not branches)), None)


def report(found):
    lines = branches = lines_missed = branches_missed = 0
    excepted = {}
    for path, of in sorted(found.items()):
        source = (REPOSITORY / path).read_text(encoding="utf-8").splitlines()
        for number, (count, ways) in sorted(of.items()):
            text = source[number - 1].strip()
            lines += 1
            branches += len(ways)
            missed = sum(1 for taken in ways.values() if taken == 0)
            if not count:
                why = reason(text, False)
                lines_missed += not why
                print(f"{path}:{number}: {'excepted (' + why + ')' if why else 'line'}: {text}")
            elif missed and reason(text, True):
                excepted[reason(text, True)] = excepted.get(reason(text, True), 0) + missed
            elif missed:
                branches_missed += missed
                print(f"{path}:{number}: {missed} of {len(ways)} branches: {text}")
    for why, count in sorted(excepted.items()):
        print(f"excepted: {count} branches: {why}")
    print(f"{lines} lines, {lines_missed} not reached, {branches} branches, {branches_missed} not reached, {sum(excepted.values())} excepted")
    return 0


def main(words):
    if not shutil.which("gcc") or not shutil.which("gcov"):
        print("SKIPPED: gcc or gcov is not installed")
        return 77
    read = words[:1] == ["--read"]
    scratch = pathlib.Path(words[read]).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    if not read:
        built(scratch, int(words[1]) if len(words) > 1 else 300)
    return report(measured(scratch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
