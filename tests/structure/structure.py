# SPDX-License-Identifier: Apache-2.0
"""The list of what is above a limit of the structure, structure.csv, and its comparison with what a meter finds.

Columns: meter, what, value, reason. A row whose `what` is in brackets is a limit of that meter. Any other row is an offender of
today with its value. A row may only shrink: a value above it fails, and so does one below it, until the row has the lower value.
What is within its limit has no row. A row without a reason fails.
"""
import argparse
import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIST = HERE / "structure.csv"


def rows_read():
    with open(LIST, encoding="utf-8", newline="") as f:
        rows = [{**row, "value": int(row["value"])} for row in csv.DictReader(f)]
    for row in rows:
        if None in row or None in row.values():
            raise SystemExit(f"structure.csv: {row['meter']},{row['what']}: not four columns; quote a text that has a comma")
    return rows


def rows_write(rows):
    with open(LIST, "w", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, ("meter", "what", "value", "reason"), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def limit_of(rows, meter, name):
    return next(row["value"] for row in rows if row["meter"] == meter and row["what"] == f"({name})")


def compare(rows, meter, found):
    """(what fails, the rows as they may be now). found: the value of each offender."""
    wrong, left, listed = [], [], {row["what"]: row["value"] for row in rows if row["meter"] == meter}
    for what, value in sorted(found.items()):
        if what not in listed:
            wrong.append(f"{what}: {value} is above the limit, and structure.csv has no row of it: nothing gets a new row")
        elif value > listed[what]:
            wrong.append(f"{what}: {value}, and structure.csv allows {listed[what]}: it may only shrink")
    for row in rows:
        what = row["what"]
        if row["meter"] == meter and what[0] != "(":
            if what not in found:
                wrong.append(f"{what}: within the limit; remove its row of structure.csv (--shrink does it)")
                continue
            if found[what] < row["value"]:
                wrong.append(f"{what}: {found[what]}; its row of structure.csv, {row['value']}, must shrink (--shrink does it)")
                row = {**row, "value": found[what]}
            if len(row["reason"]) < 10:
                wrong.append(f"{what}: its row of structure.csv has no reason")
        left.append(row)
    return wrong, left


def arguments(text, **more):
    """root, shrink, and what a meter shows in place of the comparison."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=str(HERE.parent.parent), help="repository")
    parser.add_argument("--shrink", action="store_true", help="lowers rows of structure.csv, removes those within the limit")
    for name, option in more.items():
        parser.add_argument(name, **option)
    return parser.parse_args()


def verdict(compare, summary, shrink):
    """Exit status of a meter. compare: of rows, what fails, and the rows as they may be now."""
    rows = rows_read()
    wrong, left = compare(rows)
    if shrink and left != rows:
        rows_write(left)
        wrong, _ = compare(left)
    for line in wrong:
        print(line)
    print(f"{summary}, {len(wrong)} wrong")
    return 1 if wrong else 0
