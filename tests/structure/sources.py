# SPDX-License-Identifier: Apache-2.0
"""The sources of the product as the meters of this folder read them: listed by git, without comments, strings and directives, as
tokens. No compiler is needed; the code is formatted by clang-format, which the patterns count on."""
import os
import re
import shutil
import subprocess
import sys

FOLDERS = ("kernels", "inner", "outer", "proto")
SKIP = 77  # exit status of a test that cannot run here
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#((?:\\\n|[^\n])*)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include "([^"]+)"', re.MULTILINE)
DEFINE = re.compile(r"\s*define\s+(\w+)(?:\(([^)]*)\))?((?:\\\n|[^\n])*)")
END = "\x01"  # a } in column 0
OPENS, CLOSES = set("([{"), set(")]}")
TOKEN = re.compile(r'""|[A-Za-z_]\w*|\d(?:[eEpP][+-]|[\w.])*|->|\+\+|--|<<=|>>=|[-+*/%&|^=!<>]=|&&|\|\||<<|>>|\.\.\.|\S')


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(SKIP)


def listed(root, ending=(".c", ".h", ".cu", ".cuh")):
    """Files of the product with such an ending, relative to root. Without git: a skip."""
    if not shutil.which("git"):
        skip("git is not installed, and lists the files")
    names = subprocess.run(["git", "-C", root, "ls-files", *FOLDERS], capture_output=True, text=True).stdout.split()
    files = [f for f in names if f.endswith(ending) and os.path.isfile(os.path.join(root, f))]
    if not files:
        skip("this is no git checkout, so there is no list of sources")
    return files


def without_comments(text):
    """Comments become spaces and strings become "", on as many lines as before."""
    def blank(found):
        piece = found.group()
        return '""' if piece[0] == '"' else "0" if piece[0] == "'" else " " + "\n" * piece.count("\n")
    return COMMENT.sub(blank, text)


class Source:
    """One file. tokens: of the code; ends: indices of the tokens `}` in column 0, which close functions and structs;
    defines: (name, parameters or None, body)."""

    def __init__(self, path, text):
        self.path = path
        self.includes = INCLUDE.findall(text)
        self.plain = without_comments(text)
        self.defines = []
        for directive in DIRECTIVE.findall(self.plain):
            found = DEFINE.fullmatch(directive)
            if found:
                self.defines.append(found.groups())
        code = DIRECTIVE.sub(lambda d: "\n" * d.group().count("\n"), self.plain)
        self.tokens = TOKEN.findall(code.replace("\n}", "\n" + END))
        self.ends = {i for i, token in enumerate(self.tokens) if token == END}
        for i in self.ends:
            self.tokens[i] = "}"
        self.pair_brackets()

    def pair_brackets(self):
        """closes: of each opening bracket, what closes it. One that nothing closes (both branches of an #if are read) ends with
        the function."""
        self.closes, open_ = {}, []
        for i, token in enumerate(self.tokens):
            if i in self.ends:
                while open_:
                    self.closes[open_.pop()] = i
            elif token in OPENS:
                open_.append(i)
            elif token in CLOSES and open_:
                self.closes[open_.pop()] = i


def texts(root):
    """{file: its text}"""
    out = {}
    for f in listed(root):
        with open(os.path.join(root, f), encoding="utf-8", errors="replace") as source:
            out[f] = source.read()
    return out


def read(root):
    """Source of each file."""
    return [Source(f, text) for f, text in texts(root).items()]
