#!/usr/bin/env python3
"""One plot of a report as a file of its own, for a page that shows pictures.
  report_svg.py REPORT.html TITLE FILE.svg      report_svg.py run-demo/report.html "Eval loss by step" docs/demo.svg
"""
import re
import sys

STYLE = """text{font:11.5px system-ui,sans-serif;fill:var(--soft)}.tag{font-size:12.5px;font-weight:600}
.grid{stroke:var(--rule)}.axis,.tickmark{stroke:var(--axis)}.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.raw{fill:none;stroke-width:.8;opacity:.28}.dot{stroke:var(--bg)}"""


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    report, title, to = sys.argv[1:]
    with open(report, encoding="utf-8") as f:
        page = f.read()
    plots = [p for p in re.findall(r"<svg .*?</svg>", page, re.S) if f"<title>{title}</title>" in p]
    if not plots:
        sys.exit(f"report_svg: {report} has no plot \"{title}\"; it has " + ", ".join(re.findall(r"<svg [^>]*><title>(.*?)</title>", page)))
    colors = re.search(r":root\s*\{(.*?)\}", page, re.S).group(1)
    svg = re.sub(r"<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", plots[0], count=1)
    width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()
    style = f"<style>:root{{{colors}}}\n{STYLE}</style><rect width=\"{width}\" height=\"{height}\" fill=\"var(--bg)\"/>"
    svg = svg.replace(f"<title>{title}</title>", f"<title>{title}</title>{style}", 1)
    with open(to, "w", encoding="utf-8") as f:
        f.write(svg + "\n")


if __name__ == "__main__":
    main()
