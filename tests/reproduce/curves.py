# SPDX-License-Identifier: Apache-2.0
"""What a row outside of this repository leaves next to it: every evaluation of every run (NAME-losses.csv), the mean and the standard
deviation over seeds (printed), and the curves with bands (NAME.svg)."""
import collections
import csv
import statistics

from verdict import LEAST_SEEDS

COLUMNS = ("run", "seed", "step", "tokens", "seconds", "loss")
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 20, 180, 45


def points(job):
    """(step, tokens, seconds, loss) of each evaluation of a finished training run."""
    records = job.records()
    clock = job.clock(records)
    tokens = {r["step"]: r["tokens"] for r in records["step"]}
    return [(r["step"], tokens.get(r["step"], 0), round(clock.get(r["step"], 0.0), 3), r["loss"]) for r in records["eval"]]


def collected(jobs):
    """{run: {step: [(tokens, seconds, loss) of each seed]}}, and the lines of the CSV."""
    found, lines = {}, []
    for name, group in jobs.items():
        for seed, job in group.items():
            if job.program:
                continue
            for step, tokens, seconds, loss in points(job):
                lines.append([name, seed, step, tokens, seconds, loss])
                found.setdefault(name, collections.defaultdict(list))[step].append((tokens, seconds, loss))
    return found, lines


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def table(found):
    lines = ["| run | eval loss, mean +- sd | n | seconds |", "|---|---|---|---|"]
    for name, steps in found.items():
        last = steps[max(steps)]
        losses, few = [p[2] for p in last], " (fewer than three seeds decide nothing)" if len(last) < LEAST_SEEDS else ""
        lines.append(f"| {name} | {statistics.fmean(losses):.5g} +- {spread(losses):.2g} | {len(losses)}{few} | "
                     f"{statistics.fmean(p[1] for p in last):.1f} |")
    return lines


def ticks(low, high, most=6):
    """Round numbers between two."""
    step = 10 ** len(str(int(high - low))) if high - low >= 1 else 1.0
    while (high - low) / step < most / 2:
        step /= 2 if str(step)[0] == "1" else 2.5 if str(step)[0] == "5" else 2
    first = int(low / step) + (low > int(low / step) * step)
    return [step * i for i in range(first, int(high / step + 1e-9) + 1)]


def svg(title, found):
    """Lines of the mean by tokens, with a band of one standard deviation on each side. Evaluations before the first step are left out:
    they would take most of the axis."""
    curves = {name: [(statistics.fmean(p[0] for p in at), statistics.fmean(p[2] for p in at), spread([p[2] for p in at]))
                     for step, at in sorted(steps.items()) if step > 0] for name, steps in found.items()}
    curves = {name: c for name, c in curves.items() if c}
    if not curves:
        return None
    every = [p for c in curves.values() for p in c]
    x0, x1 = 0.0, max(p[0] for p in every) or 1.0
    y0, y1 = min(p[1] - p[2] for p in every), max(p[1] + p[2] for p in every)
    y0, y1 = y0 - 0.03 * (y1 - y0 or 1), y1 + 0.03 * (y1 - y0 or 1)

    def at(x, y):
        return f"{LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT):.1f},{TOP + (y1 - y) / (y1 - y0) * (HEIGHT - TOP - BOTTOM):.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<title>{escaped(title)}</title>', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for y in ticks(y0, y1):
        px, py = at(x0, y).split(",")
        out.append(f'<path d="M{px},{py} H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 6}" y="{float(py) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x in ticks(x0, x1):
        px = at(x, y0).split(",")[0]
        out.append(f'<text x="{px}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens of a site</text>'
               f'<text x="14" y="{HEIGHT / 2}" transform="rotate(-90 14 {HEIGHT / 2})" text-anchor="middle">eval loss, nats</text>')
    for i, (name, c) in enumerate(curves.items()):
        colour, y = COLOURS[i % len(COLOURS)], TOP + 14 + 18 * i
        band = [at(x, m + s) for x, m, s in c] + [at(x, m - s) for x, m, s in reversed(c)]
        out.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity="0.2"/>'
                   f'<polyline points="{" ".join(at(x, m) for x, m, _ in c)}" fill="none" stroke="{colour}" stroke-width="2"/>'
                   f'<path d="M{WIDTH - RIGHT + 12},{y - 4} h20" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{WIDTH - RIGHT + 38}" y="{y}">{escaped(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def escaped(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;")


def leave(row, jobs, drawn=None):
    """Writes the files, and returns what is printed. drawn: the runs of table and curves; None: all."""
    found, lines = collected(jobs)
    if not found:
        return []
    found = {name: steps for name, steps in found.items() if drawn is None or name in drawn}
    folder = row.path.parent
    with open(folder / f"{row.name}-losses.csv", "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(lines)
    picture = svg(row.title, found)
    if picture:
        (folder / f"{row.name}.svg").write_text(picture, encoding="utf-8")
    return [*table(found), "", f"every loss: {folder / row.name}-losses.csv" + (f"; curves: {folder / row.name}.svg" if picture else "")]
