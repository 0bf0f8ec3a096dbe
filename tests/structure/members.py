#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Members of each struct of the product, and the files that write them.

  members.py [--shrink]   compares with structure.csv
  members.py NAME...      shows structs: their members, and which file writes which

What breaks if this fails: a struct became so wide that no reader can say which file changes which member. A struct that more than one file writes
has at most 15 members, another one at most 30 (structure.csv).

A file writes a member when it assigns to it, counts it up or down, or takes its address, through -> or . of an expression of that
struct. Members of unnamed structs and unions inside count. A member that is a named struct counts as one while at most one file
writes into it: by the member's name, or having taken its address; otherwise its members count. An array counts as one. A list
(X-macro) counts its rows.
"""
import re
import sys

import sources
import structure

KEYWORDS = set("return case else goto sizeof if while for do switch break continue default struct union enum const "
               "static".split())
QUALIFIERS = set("const volatile static extern inline restrict register _Thread_local _Noreturn __restrict__ __restrict "
                 "__inline__ __device__ __global__ __host__ __forceinline__ __constant__ __shared__".split())
BUILTIN = set("void char short int long float double signed unsigned bool _Bool _Complex __int128".split())
ATTRIBUTES, TYPES_OF = {"_Alignas", "__attribute__", "__launch_bounds__"}, {"__typeof__", "typeof", "_Atomic"}
ASSIGNS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
NO_PRIMARY = {".", "->", "struct", "union", "enum"}  # a name after one of these is no expression
NAME = re.compile(r"[A-Za-z_]\w*")
LIST = re.compile(r"[A-Z][A-Z0-9_]*")


# Functions of the C library that only read through a parameter of any type: indices.
READS = {"memcpy": {1}, "memmove": {1}, "memcmp": {0, 1}, "atomic_load": {0}, "atomic_load_explicit": {0}}


class Type:
    """of: a Struct, or the name of one, or None; stars: `*`; dims: `[]`; result: what a function pointer returns; reads: of a
    function, the parameters that are pointers to const, as indices."""

    def __init__(self, of=None, stars=0, dims=0, result=None):
        self.of, self.stars, self.dims, self.result = of, stars, dims, result
        self.reads = set()


class Struct:
    def __init__(self, kind, name, path):
        self.kind, self.name, self.path = kind, name, path
        self.fields = []  # (name, Type); name None: a list, and its macro
        self.writers = {}  # member: files
        self.inside = {}  # member: files that write a member of it
        self.taken = {}  # member: files that take its address

    def files(self):
        return {f for files in self.writers.values() for f in files}


class File:
    """The structs, functions and variables that a file defines."""

    def __init__(self, source):
        self.source, self.path = source, source.path
        self.t = source.tokens + [";"] * 8  # so that looking ahead needs no check
        self.structs, self.functions, self.globals, self.bodies = {}, {}, {}, []
        self.external, self.defined = set(), set()  # functions and variables: defined for other files; all functions defined
        self.declare()

    def close(self, i):
        """Index of what closes the bracket at i."""
        return self.source.closes.get(i, len(self.t) - 8)

    def after(self, i, ends):
        """Index of the first of `ends` outside brackets, from i on."""
        while i < len(self.t) - 1 and self.t[i] not in ends and self.t[i] not in sources.CLOSES:
            i = self.close(i) + 1 if self.t[i] in sources.OPENS else i + 1
        return i

    def base(self, i):
        """The type before declarators: (of, index after it)."""
        of, seen = None, False
        while True:
            word = self.t[i]
            if word in ("struct", "union"):
                of, i = self.struct(i)
                seen = True
            elif word == "enum":
                i += 2 if NAME.fullmatch(self.t[i + 1]) else 1
                i = self.close(i) + 1 if self.t[i] == "{" else i
                seen = True
            elif word in ATTRIBUTES | TYPES_OF and self.t[i + 1] == "(":
                seen = seen or word in TYPES_OF
                i = self.close(i + 1) + 1
            elif word in QUALIFIERS or word in ("_Atomic", "typedef"):
                i += 1
            elif LIST.fullmatch(word) and not seen and NAME.fullmatch(self.t[i + 1]) and re.match(r"[\w*]", self.t[i + 2]):
                i += 1  # a macro for qualifiers: MACRO type name, not TYPE name(
            elif word in BUILTIN or (NAME.fullmatch(word) and not seen):
                seen, i = True, i + 1
            else:
                return of, i

    def struct(self, i):
        kind, name, i = self.t[i], None, i + 1
        while self.t[i] == "__attribute__":
            i = self.close(i + 1) + 1
        if NAME.fullmatch(self.t[i]):
            name, i = self.t[i], i + 1
        if self.t[i] != "{":
            return name, i
        new, end, i = Struct(kind, name, self.path), self.close(i), i + 1
        if name:
            self.structs[name] = new
        while i < end:
            i = self.field(new, i)
        return new, end + 1

    def field(self, new, i):
        if self.t[i] == "_Static_assert":
            return self.after(i, ";") + 1
        if LIST.fullmatch(self.t[i]) and self.t[i + 1] == "(":
            new.fields.append((None, self.t[i]))
            i = self.close(i + 1) + 1
            return i + 1 if self.t[i] == ";" else i
        of, i = self.base(i)
        while True:
            name, type, i = self.declarator(i, of)
            new.fields.append((name, type))
            i = self.after(i, ",;")
            if self.t[i] != ",":
                return i + 1
            i += 1

    def declarator(self, i, of):
        """(name, its type, index after it)."""
        stars, dims, name = 0, 0, ""
        while self.t[i] == "*" or self.t[i] in QUALIFIERS:
            stars, i = stars + (self.t[i] == "*"), i + 1
        if self.t[i] == "(" and self.t[i + 1] == "*":  # (*name)(..), (*name[N])(..), (*name)[N]
            end = self.close(i)
            inner = [w for w in self.t[i:end] if NAME.fullmatch(w) and w not in QUALIFIERS]
            name, i = inner[0] if inner else "", end + 1
            if self.t[i] == "(":
                return name, Type(result=Type(of, stars)), self.close(i) + 1
            stars += 1
        elif NAME.fullmatch(self.t[i]):
            name, i = self.t[i], i + 1
        while self.t[i] == "[":
            dims, i = dims + 1, self.close(i) + 1
        return name, Type(of, stars, dims), i

    def constants(self, i):
        """Indices of those parameters in the brackets at i that are pointers to const."""
        found, end, index, i = set(), self.close(i), 0, i + 1
        while i < end:
            stop = self.after(i, ",")
            parameter = self.t[i:stop]
            if "const" in parameter and ("*" not in parameter or parameter.index("const") < parameter.index("*")):
                found.add(index)
            i, index = stop + 1, index + 1
        return found

    def declare(self):
        """All at the top level; bodies: (begin, end, parameters' begin)."""
        t, i, end = self.t, 0, len(self.source.tokens)
        while i < end:
            if t[i] in (";", "}", ",", ")") or (t[i] == "extern" and t[i + 1] == '""'):
                i += 3 if t[i] == "extern" and t[i + 2] == "{" else 2 if t[i] == "extern" else 1
                continue
            if t[i] == "template":
                while t[i] != ">" and i < end:
                    i = self.close(i) + 1 if t[i] in sources.OPENS else i + 1
                i += 1
                continue
            if LIST.fullmatch(t[i]) and t[i + 1] == "(":  # a list, or a macro that makes a definition
                i = self.close(i + 1) + 1
                continue
            start = i
            of, i = self.base(i)
            if t[i] in (";", "{"):
                i = self.close(i) + 1 if t[i] == "{" else i + 1
                continue
            name, type, i = self.declarator(i, of)
            if LIST.fullmatch(name) and t[i] == "(" and t[self.close(i) + 1] == "(":  # PREFIX(name)(parameters)
                i = self.close(i) + 1
            if name and t[i] == "(":
                self.functions[name] = type
                type.reads = self.constants(i)
                parameters, i = i, self.close(i) + 1
                i = self.after(i, ";{,")
                if t[i] == "{":
                    body = i
                    self.defined.add(name)
                    if "static" not in t[start:parameters]:
                        self.external.add(name)
                    i = next((k for k in range(i, end) if k in self.source.ends), end - 1)
                    self.bodies.append((body, i, parameters))
                i += 1
            else:
                if name:
                    self.globals[name] = type
                if name and not {"static", "extern", "typedef"} & set(t[start:i]):
                    self.external.add(name)
                while t[i] != ";" and i < end:
                    i = self.after(i, ",;{")
                    if t[i] == "{":  # an initialiser, or the body of a function that is not understood
                        i, body = self.close(i) + 1, t[i - 1] != "="
                        if body:
                            break
                    elif t[i] == ",":
                        name, type, i = self.declarator(i + 1, of)
                        if name:
                            self.globals[name] = type
                    elif t[i] != ";":
                        break
            i = max(i, start + 1)


class Product:
    def __init__(self, read):
        self.files = [File(s) for s in read]
        self.by_name, self.functions, self.globals, self.macros = {}, {}, {}, {}
        self.by_path, self.closures = {f.path: f for f in self.files}, {}
        self.lost = []  # (file, expression): writes whose struct is not known; nearly all are of libraries
        for f in self.files:
            for name, s in f.structs.items():
                self.by_name.setdefault(name, []).append(s)
            self.functions.update(f.functions)
            for name, parameters, body in f.source.defines:
                self.macros.setdefault(name, (parameters, body))
        for f in self.files:
            if f.path.endswith((".h", ".cuh")):
                self.globals.update(f.globals)
        for f in self.files:
            for body in f.bodies:
                Body(self, f, *body).scan()

    def struct(self, of, path):
        """The struct of this name that a file sees: its own, else that of a header."""
        if not isinstance(of, str):
            return of
        found = self.by_name.get(of, [])
        seen = self.seen(path) if len(found) > 1 else ()
        return min(found, key=lambda s: (s.path != path, s.path not in seen), default=None)

    def seen(self, path):
        """The files that a file includes, directly or not."""
        if path not in self.closures:
            todo, found = [path], set()
            while todo:
                includes = [i for f in todo if f in self.by_path for i in self.by_path[f].source.includes if i not in found]
                found.update(includes)
                todo = includes
            self.closures[path] = found
        return self.closures[path]

    def label(self, s):
        """As structure.csv names it: file names only where two structs have one name, so that a move changes nothing."""
        alone = len(self.by_name[s.name]) == 1
        return s.name if alone else f"{s.name} ({s.path.rsplit('/', 1)[1]})"

    def listed(self, macro, seen=()):
        """Number of rows of a list."""
        parameters, body = self.macros.get(macro, (None, ""))
        if not parameters or macro in seen:
            return 1
        row = parameters.split(",")[0].strip()
        count = len(re.findall(rf"\b{row}\s*\(", body))
        for inner in re.findall(rf"\b([A-Z][A-Z0-9_]*)\s*\(\s*{row}\s*[,)]", body):
            count += self.listed(inner, (*seen, macro))
        return count

    def inside(self, s, name, inner):
        """Files that write the struct `inner` as this member of s: by its name, or having taken its address."""
        return s.inside.get(name, set()) | (s.taken.get(name, set()) & inner.files())

    def members(self, s, outer=()):
        count = 0
        for name, type in s.fields:
            if name is None:
                count += self.listed(type)
            else:
                count += self.count(s, name, type, self.struct(type.of, s.path), outer)
        return count

    def count(self, s, name, type, inner, outer=()):
        """What a member counts. inner: its struct, or None."""
        if not inner or type.stars or inner in outer or (type.dims and inner.name):
            return 1
        if not inner.name or len(self.inside(s, name, inner)) > 1:
            return self.members(inner, (*outer, s))
        return 1

    def structs(self):
        return [s for found in self.by_name.values() for s in found if s.kind == "struct"]


class Body:
    """Finds the writes of one function."""

    def __init__(self, product, file, begin, end, parameters):
        self.product, self.file, self.t = product, file, file.t
        self.begin, self.end = begin, end
        self.scopes = [{}]
        i, stop = parameters + 1, file.close(parameters)
        while i < stop:
            of, i = file.base(i)
            name, type, i = file.declarator(i, of)
            self.scopes[0][name] = type
            i = file.after(i, ",") + 1

    def lookup(self, name):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return self.file.globals.get(name) or self.product.globals.get(name)

    def returns(self, name):
        return self.file.functions.get(name) or self.product.functions.get(name)

    def scan(self):
        t = self.t
        for i in range(self.begin, self.end):
            word, before = t[i], t[i - 1]
            if word == "{":
                self.scopes.append({})
            elif word == "}" and len(self.scopes) > 1:
                self.scopes.pop()
            elif word in ("struct", "union"):
                self.declaration(i)
            elif word == "(" or (NAME.fullmatch(word) and word not in KEYWORDS and before not in NO_PRIMARY):
                self.write(i)

    def declaration(self, i):
        k = i - 1
        while self.t[k] in QUALIFIERS:
            k -= 1
        if not (self.t[k] in ("{", "}", ";", ":", ")") or (self.t[k] == "(" and self.t[k - 1] == "for")):
            return
        of, i = self.file.base(i)
        while True:
            name, type, i = self.file.declarator(i, of)
            if name:
                self.scopes[-1][name] = type
            i = self.file.after(i, ",;")
            if self.t[i] != ",":
                return
            i += 1

    def cast(self, i):
        """The type that the brackets at i name, if they hold nothing else."""
        k = i + 1
        while self.t[k] in QUALIFIERS:
            k += 1
        if self.t[k] not in ("struct", "union"):
            return None
        of, k = self.file.base(k)
        name, type, k = self.file.declarator(k, of)
        return type if not name and self.t[k] == ")" else None

    def primary(self, i):
        """(type or None, index after it) of a name, a call's name, or brackets."""
        t = self.t
        if t[i] != "(":
            if t[i + 1] == "(":
                type = self.lookup(t[i])
                return (type.result if type and type.result else self.returns(t[i])), self.file.close(i + 1) + 1
            return self.lookup(t[i]), i + 1
        end = self.file.close(i)
        type = self.cast(i)
        if type:  # (struct x *)p, or (struct x){..}
            return type, self.file.close(end + 1) + 1 if t[end + 1] == "{" else self.chain(end + 1)[2]
        k, stars = i + 1, 0
        while t[k] in ("*", "&"):
            stars, k = stars + (1 if t[k] == "*" else -1), k + 1
        choice = self.file.after(k, "?")
        k = choice + 1 if choice < end else k
        type = self.chain(k)[0] if NAME.fullmatch(t[k]) or t[k] == "(" else None
        if type:
            type = Type(type.of, max(type.stars + type.dims - stars, 0), 0, type.result)
        return type, end + 1

    def chain(self, i):
        """(type, the members that hold it, index after it) of a primary and its . -> [] ()."""
        t, owners = self.t, []
        type, i = self.primary(i)
        known = type is not None
        while True:
            if t[i] in (".", "->"):
                s = self.product.struct(type.of, self.file.path) if type else None
                if t[i] == "->" and type and not type.dims:
                    owners = []
                if not s:
                    self.missed = known or t[i + 1]
                    type = None
                else:
                    owners = [*owners, (s, t[i + 1])]
                    type = self.member(s, t[i + 1], owners)
                    known = type is not None
                i += 2
            elif t[i] == "[":
                if type and not type.dims:
                    owners = []
                if type:
                    type = Type(type.of, type.stars - (not type.dims), max(type.dims - 1, 0), type.result)
                i = self.file.close(i) + 1
            elif t[i] == "(":
                type, owners, i = type.result if type else None, [], self.file.close(i) + 1
            else:
                return type, owners, i

    def member(self, s, name, owners):
        for field, type in s.fields:
            if field == name and name is not None:
                return type
        for field, type in s.fields:  # in an unnamed struct or union
            inner = type.of if field == "" and isinstance(type.of, Struct) else None
            if inner:
                found = self.member(inner, name, owners)
                if found:
                    return found
        return None

    def cast_ends(self, i):
        """Whether the bracket at i closes a cast; None: it closes the condition of a statement."""
        depth, k = 1, i
        while depth and k > self.begin:
            k -= 1
            depth += (self.t[k] == ")") - (self.t[k] == "(")
        inside = self.t[k + 1 : i]
        if not inside or self.t[k - 1] in ("if", "while", "for", "switch"):
            return None if inside else False
        types = BUILTIN | QUALIFIERS | {"struct", "union", "enum"}
        return inside[-1] == "*" or inside[0] in types or (len(inside) == 1 and inside[0].endswith("_t"))

    def operand(self, i):
        """Whether the token at i ends an operand, so that a & after it is no address."""
        t = self.t
        if t[i] == ")":
            return self.cast_ends(i) is False
        return t[i] == "]" or t[i] == '""' or (re.match(r"\w", t[i]) and t[i] not in KEYWORDS)

    def reads(self, i):
        """Whether an address, whose & is after the token at i, goes to a pointer to const: a parameter, or a variable that is
        declared there."""
        t, depth, index = self.t, 0, 0
        if t[i] == "=":
            k = i
            while k > self.begin and t[k] not in (";", "{", "}", "("):
                k -= 1
            return "const" in t[k:i]
        while i > self.begin and t[i] not in (";", "{", "}"):
            depth += (t[i] in sources.CLOSES) - (t[i] in sources.OPENS)
            if depth < 0:
                called = self.returns(t[i - 1])
                return index in (called.reads if called else READS.get(t[i - 1], ()))
            index += t[i] == "," and not depth
            i -= 1
        return False

    def write(self, i):
        t = self.t
        called = t[i - 1] == "]" or (NAME.fullmatch(t[i - 1]) and t[i - 1] not in KEYWORDS)
        if t[i] == "(" and (called or t[self.file.close(i) + 1] not in (".", "->", "[")):
            return
        self.missed = False
        type, owners, end = self.chain(i)
        through = t[i - 1] == "*" or (t[i - 1] == ")" and self.cast_ends(i - 1))  # *s->p = 1, *(int *)s->p = 1
        written = (t[end] in ASSIGNS and not through) or t[end] in ("++", "--") or t[i - 1] in ("++", "--")
        address = t[i - 1] == "&" and not self.operand(i - 2) and not self.reads(i - 2)
        written = written or address
        if written and self.missed:
            self.product.lost.append((self.file.path, " ".join(t[max(i - 1, 0) : end + 1])))
        if written:
            for depth, (s, name) in enumerate(owners, 1):
                s.writers.setdefault(name, set()).add(self.file.path)
                inside = s.taken if address and depth == len(owners) else s.inside
                inside.setdefault(name, set()).add(self.file.path)


def offenders(product, several, one):
    """Members of each struct above its limit."""
    found = {}
    for s in product.structs():
        count = product.members(s)
        if count > (several if len(s.files()) > 1 else one):
            found[product.label(s)] = count
    return found


def show(product, s):
    print(f"struct {product.label(s)} ({s.path}): {product.members(s)} members, {len(s.files())} files write it")
    for name, type in s.fields:
        inner = product.struct(type.of, s.path) if name is not None else None
        count = product.listed(type) if name is None else product.count(s, name, type, inner)
        files = sorted(f.rsplit("/", 1)[1] for f in s.writers.get(name, ()))
        print(f"{count:6} {name or type}: {' '.join(files)}")


def main():
    options = structure.arguments(__doc__, names={"nargs": "*", "metavar": "NAME", "help": "struct to show"})
    product = Product(sources.read(options.root))
    for s in product.structs():
        if s.name in options.names:
            show(product, s)
    if options.names:
        return 0
    rows = structure.rows_read()
    several, one = (structure.limit_of(rows, "members", name) for name in ("several files write it", "one file writes it"))
    found = offenders(product, several, one)
    summary = f"{len(product.structs())} structs, {len(found)} above their limit, {len(product.lost)} writes of libraries' types"
    return structure.verdict(lambda rows: structure.compare(rows, "members", found), summary, options.shrink)


if __name__ == "__main__":
    sys.exit(main())
