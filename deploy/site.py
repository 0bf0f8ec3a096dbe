#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents as a website: copies them, in their folders, next to the files that they link, and runs Sphinx over the copy.

    site.py ROOT OUT          OUT/index.html
    site.py ROOT --check      the table of docs/README.md lists every document once; needs no Sphinx

The order of the site is that of the tables in docs/README.md, one part for each kind of reader.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
CONF = '''
project = "Atoll"
version = release = "{version}"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_title = "Atoll {version}"
html_show_copyright = html_show_sphinx = html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = []
suppress_warnings = ["misc.highlighting_failure", "myst.header", "toc.not_included"]
highlight_language = "none"
exclude_patterns = ["files"]
html_extra_path = ["files"]
'''


def listed(root):
    """[(reader, document)] of the tables in docs/README.md."""
    rows, found = [], re.compile(r"^\| \[[^\]]*\]\(([^)#]+\.md)\) \|(?: ([^|]*) \|)?", re.M)
    for part in (root / "docs/README.md").read_text(encoding="utf-8").split("\n\n"):
        start = part.startswith("| start ")
        rows += [("start" if start else (reader or "").split(",")[0].strip(), os.path.normpath("docs/" + name)) for name, reader in
                 found.findall(part)]
    return rows


def documents(root):
    return sorted(["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *(f"docs/{p.name}" for p in (root / "docs").glob("*.md"))])


def check(root):
    names = [name for _, name in listed(root)]
    wrong = [f"docs/README.md does not list {d}" for d in documents(root) if d not in [*names, "docs/README.md"]]
    wrong += [f"docs/README.md lists {n}, which is not there" for n in names if not (root / n).is_file()]
    wrong += [f"docs/README.md lists {n} {names.count(n)} times" for n in sorted(set(names)) if names.count(n) > 1]
    for line in wrong:
        print(line)
    print(f"{len(names)} documents listed, {len(wrong)} wrong")
    return 1 if wrong else 0


def copied(root, stage, name):
    """A document's text for the site: links to files that are no documents lead to copies of them in files/."""
    here = os.path.dirname(name)

    def link(m):
        target = os.path.normpath(os.path.join(here, m.group(2)))
        if target == "README.md":
            return m.group(1) + os.path.relpath("index.md", here or ".") + m.group(3)
        if re.match(r"\w+:", m.group(2)) or target.startswith("..") or target in pages:
            return m.group()
        source = root / target
        if not source.exists() or target.endswith(".svg"):
            return m.group()
        if source.is_dir():
            names = subprocess.run(["git", "-C", root, "ls-files", target], capture_output=True, text=True).stdout.split()
            for each in names:
                keep(each)
            target += "/index.html"
            rows = "".join(f'<li><a href="{os.path.relpath(n, os.path.dirname(target))}">{n}</a></li>' for n in names)
            (stage / "files" / target).parent.mkdir(parents=True, exist_ok=True)
            (stage / "files" / target).write_text(f"<meta charset=utf-8><title>{target}</title><ul>{rows}</ul>", encoding="utf-8")
        else:
            keep(target)
        up = os.path.relpath(target, here or ".")
        return f'{m.group(1).replace("[", "<a href=" + chr(34) + up + chr(34) + ">", 1)[:-2]}</a>'

    def keep(each):
        (stage / "files" / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / each, stage / "files" / each)

    pages = {"README.md", *documents(root)}
    lines, code = [], False
    for line in (root / name).read_text(encoding="utf-8").split("\n"):
        code ^= line.startswith("```")
        lines.append(line if code else LINK.sub(link, line))
    return "\n".join(lines)


def build(root, out):
    stage = out.parent / (out.name + "-source")
    shutil.rmtree(stage, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    (stage / "docs").mkdir(parents=True)
    (stage / "files").mkdir()
    version = re.search(r"^project\(atoll VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"), re.M).group(1)
    (stage / "conf.py").write_text(CONF.format(version=version), encoding="utf-8")
    for name in ["README.md", *documents(root)]:
        (stage / name).write_text(copied(root, stage, name), encoding="utf-8")
    for picture in (root / "docs").glob("*.svg"):
        shutil.copy(picture, stage / "docs")
    parts = {}
    for reader, name in listed(root):
        parts.setdefault(reader, []).append(name[:-3])
    trees = "".join(f"```{{toctree}}\n:caption: {reader[0].upper() + reader[1:]}\n:maxdepth: 1\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
                    for reader, names in parts.items())
    (stage / "index.md").write_text(f"```{{include}} README.md\n```\n\n```{{toctree}}\n:hidden:\n\ndocs/README\n```\n{trees}", encoding="utf-8")
    (stage / "README.md").rename(stage / "README.txt")
    index = (stage / "index.md").read_text(encoding="utf-8").replace("{include} README.md", "{include} README.txt")
    (stage / "index.md").write_text(index, encoding="utf-8")
    return subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", stage, out]).returncode


def main():
    root = Path(sys.argv[1]).resolve()
    if sys.argv[2] == "--check":
        return check(root)
    out = Path(sys.argv[2]).resolve()
    failed = check(root) or build(root, out)
    if not failed:
        print(out / "index.html")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
