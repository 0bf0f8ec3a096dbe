# SPDX-License-Identifier: Apache-2.0
"""What the CSV files of measured results share: which commit and machine, and lines that are added whole or not at all."""
import csv
import errno
import fcntl
import io
import os
import pathlib
import platform
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def commit(*made):
    """Of the working tree; `made`: files that the measuring itself writes, which do not count as changes."""
    git = ["git", "-C", str(REPOSITORY)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{m}" for m in made)],
                             capture_output=True, text=True, check=False).stdout
    return (head or "unknown") + ("-dirty" if changed else "")


def machine():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            model = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.machine()
    return f"{os.cpu_count()} x {model}".replace(",", " ")


def append(path, columns, rows):
    """All rows or, where there is no room, none."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    with open(path, "ab", buffering=0) as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # of another command that ends at the same moment
        before = f.seek(0, os.SEEK_END)
        whole = (text.getvalue() if before else ",".join(columns) + "\n" + text.getvalue()).encode()
        try:
            if f.write(whole) != len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        except OSError:
            f.truncate(before)
            raise
