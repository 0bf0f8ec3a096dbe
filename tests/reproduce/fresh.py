# SPDX-License-Identifier: Apache-2.0
"""Is a row's measurement of today's code? fresh.csv has, for each session of results.csv, a digest of the contents of the files that the
row lists (`files`), not their paths; a row is stale once the digest of these files is another one, until a few of its runs are repeated
and have the recorded numbers (confirm.py)."""
import csv
import glob
import hashlib
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import records
from data import REPOSITORY
from expression import Bad

COLUMNS = ("session", "row", "commit", "digest", "confirmed")  # the last one: the day, or nothing: measured with it
CURRENT, CONFIRMED, STALE, UNKNOWN = "current", "confirmed", "**stale**", "no digest"


def digest_of(contents):
    """Of some files' contents, in no order."""
    return hashlib.sha256("".join(sorted(hashlib.sha256(c).hexdigest() for c in contents)).encode()).hexdigest()[:16]


def here(row):
    """Of the row's files as they are now."""
    paths = []
    for pattern in row.files:
        found = sorted(glob.glob(str(REPOSITORY / pattern)))
        if not found:
            raise Bad(f"{row.path}: files: {pattern} is not there")
        paths += found
    return digest_of([pathlib.Path(p).read_bytes() for p in dict.fromkeys(paths)])


def at(row, commit):
    """The same of a commit of the history; None: it is not there, or has not all of these files."""
    git = ["git", "-C", str(REPOSITORY)]
    listed = subprocess.run([*git, "ls-tree", "-r", "--name-only", commit], capture_output=True, text=True, check=False)
    if listed.returncode:
        return None
    contents = {}
    for pattern in row.files:
        names = [n for n in listed.stdout.splitlines() if pathlib.PurePath(n).match(pattern)]
        if not names:
            return None
        for name in names:
            contents[name] = subprocess.run([*git, "show", f"{commit}:{name}"], capture_output=True, check=True).stdout
    return digest_of(contents.values())


def same_files(row, commit, now):
    """Had a program of this commit the files of the row that are here, at the commit `now`?"""
    return commit == now or (not commit.endswith("-dirty") and at(row, commit) == here(row))


def read(path):
    """{(session, row): [(commit, digest, the day of its confirmation, or "")]}"""
    found = {}
    if os.path.exists(path):
        with open(path, newline="", encoding="utf-8") as f:
            for session, row, commit, digest, *day in list(csv.reader(f))[1:]:  # a row elsewhere may have a file from before confirmations
                found.setdefault((session, row), []).append((commit, digest, day[0] if day else ""))
    return found


def keep(path, session, row, commit, digest=None, confirmed=""):
    """Remembers what the row was measured with, or confirmed."""
    digest = digest or here(row)
    if row.files and (commit, digest, confirmed) not in read(path).get((session, row.name), ()):
        records.append(path, COLUMNS, [[session, row.name, commit, digest, confirmed]])


def told(row, session, commits, known):
    """commits: of the programs that measured the session."""
    lines = known.get((session, row.name), [])
    if not row.files or not lines:
        return UNKNOWN
    last = max((i for i, (_, _, day) in enumerate(lines) if day), default=None)
    if last is None and not {commit for commit, _, _ in lines} >= set(commits):
        return UNKNOWN
    if {digest for _, digest, _ in lines[last or 0:]} != {here(row)}:  # a confirmation is of all that was measured before it
        return STALE
    return CURRENT if last is None else f"{CONFIRMED} {lines[last][2]}"


def backfill(path, row, session, commits):
    """For a session with commits that have no digest, from the history: all of them there, and none with changes."""
    missing = set(commits) - {commit for commit, _, _ in read(path).get((session, row.name), ())}
    found = {c: None if c.endswith("-dirty") else at(row, c) for c in sorted(missing)}
    if all(found.values()):
        for commit, digest in found.items():
            keep(path, session, row, commit, digest)
