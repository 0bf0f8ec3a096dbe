#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The meters on small made-up sources.

What breaks if this fails: a meter that finds nothing, so that structs, features and circles grow again and no test says so."""
import os
import shutil
import subprocess
import tempfile
import unittest

import circles
import includes
import members
import reach
import sources
import structure
import units


def product(**files):
    """members.Product of sources: name_c="text" is the file outer/name.c."""
    return members.Product([sources.Source("outer/" + ".".join(name.rsplit("_", 1)), text) for name, text in files.items()])


def struct(read, name):
    return next(s for s in read.structs() if s.name == name)


def written(read, name):
    """member: the files that write it, without the folder"""
    return {member: sorted(f.split("/")[1] for f in files) for member, files in struct(read, name).writers.items()}


WIDE = "struct wide {\n" + "".join(f"    int m{i};\n" for i in range(16)) + "};\n"


class Members(unittest.TestCase):
    def test_sixteen_members_and_two_writers_are_found(self):
        one = product(wide_h=WIDE, a_c="void a(struct wide *w)\n{\n    w->m0 = 1;\n}\n")
        two = product(wide_h=WIDE, a_c="void a(struct wide *w)\n{\n    w->m0 = 1;\n}\n",
                      b_c="void b(struct wide *w)\n{\n    w->m1++;\n}\n")
        self.assertEqual(members.offenders(one, 15, 30), {})
        self.assertEqual(members.offenders(two, 15, 30), {"wide": 16})
        self.assertEqual(members.offenders(two, 16, 30), {})
        self.assertEqual(members.offenders(one, 15, 15), {"wide": 16})

    def test_members_of_every_kind_count(self):
        read = product(s_h="""
#define ROWS(X) X(one) X(two, "a,b") \\
    X(three)
#define ALL(X) ROWS(X) X(four)
struct inner { int a, b; };
struct s {
    const char *names[3], **more; /* two; not a third */
    unsigned flag : 1, other : 2;
    void (*close)(struct s *self, int x);
    struct { int x, y; } waiting[2];
    union {
        uint64_t word;
        struct inner in;
    };
    enum { RED, GREEN } colour;
    struct inner *pointer, array[4];
    struct inner value;
#define X(...) FIELD(__VA_ARGS__)
    ALL(X)
#undef X
    _Static_assert(sizeof(int) == 4, "a; b");
    struct named { int z; } * list;
    _Atomic(int) counter;
    __attribute__((aligned(64))) char line[64];
};
""")
        # names more flag other close x y word in colour pointer array value, four rows, list counter line
        self.assertEqual(read.members(struct(read, "s")), 13 + 4 + 3)

    def test_a_member_that_is_a_struct_counts_as_one_while_one_file_writes_it(self):
        header = "struct part { int a, b, c; };\nstruct s { struct part part; int x; };\nvoid part_step(struct part *p);\n" \
                 "int part_sum(const struct part *p);\n"
        reads = "int b(struct s *s)\n{\n    return part_sum(&s->part) + s->part.a;\n}\n"
        hands = "void b(struct s *s)\n{\n    part_step(&s->part);\n}\n"
        writes = "void b(struct s *s)\n{\n    s->part.b = 2;\n}\n"
        keeps = "void b(struct s *s)\n{\n    struct part *p = &s->part;\n    p->c = 1;\n}\n"
        first = "void a(struct s *s)\n{\n    s->part.a = 1;\n}\n"
        for second, count in ((reads, 2), (hands, 2), (writes, 4), (keeps, 4)):
            read = product(s_h=header, a_c=first, b_c=second)
            self.assertEqual(read.members(struct(read, "s")), count, second)

    def test_an_array_of_structs_counts_as_one(self):
        header = "struct part { int a, b, c; };\nstruct s { struct part part[4]; int x; };\n"
        read = product(s_h=header, a_c="void a(struct s *s)\n{\n    s->part[1].a = 1;\n}\n",
                       b_c="void b(struct s *s)\n{\n    s->part[2].b = 1;\n}\n")
        self.assertEqual(read.members(struct(read, "s")), 2)

    def test_writes(self):
        header = "struct inner { int deep; int list[2]; };\n" \
                 "struct s { int a, b, c, d, e; int *p; int list[4]; struct inner in; struct inner ins[2]; struct s *next; };\n" \
                 "struct s *s_of(int x);\nvoid reads(int x, const int *p);\nvoid writes(int *p);\nextern struct s s_all[3];\n"
        for statement, expected in (
            ("s->a = 1;", "a"),
            ("s->a += s->b;", "a"),
            ("s->a == s->b ? s->c : s->d;", ""),
            ("--s->a;", "a"),
            ("s->a--;", "a"),
            ("if (s->a <= 1) x = s->b;", ""),
            ("writes(&s->a);", "a"),
            ("reads(1, &s->a);", ""),
            ("x = y & s->a;", ""),
            ("x = (int)y & s->a;", ""),
            ("x = f(y) & s->a;", ""),
            ("unknown((const void *)&s->a);", "a"),
            ("const int *q = &s->a;", ""),
            ("int *q = &s->a;", "a"),
            ("memcpy(&s->a, &s->b, 4);", "a"),
            ("s->p[1] = 1;", ""),
            ("*s->p = 1;", ""),
            ("*(short *)s->p = 1;", ""),
            ("if (x) s->a = 1;", "a"),
            ("for (int i = 0; i < x; i++) s->a = 1;", "a"),
            ("while (x) f(&s->a);", "a"),
            ("other = (void *)(uintptr_t)&s->a;", "a"),
            ("unknown(s)->a = 1;", ""),
            ("s->list[1] = 1;", "list"),
            ("s->in.deep = 1;", "in"),
            ("s->ins[1].list[0]++;", "ins"),
            ("s->next->a = 1;", "a"),
            ("(*s).a = 1;", "a"),
            ("((struct s *)other)->a = 1;", "a"),
            ("s_of(1)->a = 1;", "a"),
            ("s_all[2].a = 1;", "a"),
            ("struct s t = {.a = 1}; t.b = 2;", "b"),
            ("*s = (struct s){.a = 1};", ""),
            ("other->a = 1;", ""),
            ('log("s->a = 1"); /* s->b = 1 */ // s->c = 1', ""),
            ("for (struct s *u = s; u; u = u->next) { u->d = 1; }", "d"),
            ("{ struct unknown *s; s->a = 1; }", ""),
        ):
            read = product(s_h=header, a_c="static void f(struct s *s, void *other, int x)\n{\n    " + statement + "\n}\n")
            self.assertEqual(" ".join(sorted(written(read, "s"))), expected, statement)

    def test_a_write_of_an_inner_struct_is_one_of_both(self):
        read = product(s_h="struct inner { int deep; };\nstruct s { struct inner in; };\n",
                       a_c="void f(struct s *s)\n{\n    s->in.deep = 1;\n}\n")
        self.assertEqual(written(read, "s"), {"in": ["a.c"]})
        self.assertEqual(written(read, "inner"), {"deep": ["a.c"]})

    def test_two_structs_of_one_name_are_two(self):
        read = product(a_c=WIDE + "void a(struct wide *w)\n{\n    w->m0 = 1;\n}\n",
                       b_c="struct wide { int m0; };\nvoid b(struct wide *w)\n{\n    w->m0 = 1;\n}\n")
        self.assertEqual(members.offenders(read, 15, 15), {"wide (a.c)": 16})

    def test_a_function_is_found_after_what_is_not_understood(self):
        read = product(wide_h=WIDE, a_c="""
#if defined(ONE)
static int broken(int x)
{
    if (x) {
#else
static int broken(void)
{
    if (1) {
#endif
    }
}
MAKES_A_FUNCTION(name, 1, { return 0; })
template <int N, typename T> static __global__ void __launch_bounds__(N) kernel(T *x)
{
    x[0] = 1;
}
static TYPE of_a_library(int x)
{
    return x;
}
int odd(int x)(int y)
{
    return x;
}
static const int table[] = {1, 2}, *other = table;
INLINE int NAME(add)(struct wide *w, int x)
{
    w->m3 = x;
}
""")
        self.assertEqual(written(read, "wide"), {"m3": ["a.c"]})


class Reach(unittest.TestCase):
    FEATURE = {
        "outer/masks/mask.h": "#ifndef MASK_H\n#define MASK_H\n#define MASK_MAX 8\nenum mask_kind { MASK_ONE, MASK_TWO = 3 };\n"
                              "struct mask { int width; };\nvoid mask_apply(struct mask *m);\n"
                              "extern const int mask_table[4];\n#endif\n",
        "outer/aggregator/aggregator_masks.c": "static int helper(void)\n{\n    return 1;\n}\nint aggregator_mask(void)\n{\n"
                                               "    return helper();\n}\n",
    }

    def reach(self, feature, **files):
        read = [sources.Source(path, text) for path, text in {**self.FEATURE, **files}.items()]
        own, known = reach.reach([members.File(s) for s in read], feature)
        return len(own), known

    def of(self, text, path="outer/site/site.c"):
        return self.reach("masks", **{path: text})[1].get(path, [])

    def test_what_knows_a_feature(self):
        for text, what in (
            ('#include "outer/masks/mask.h"\n', "outer/masks/mask.h"),
            ("void f(void)\n{\n    mask_apply(0);\n}\n", "mask_apply"),
            ("int f(void)\n{\n    return aggregator_mask();\n}\n", "aggregator_mask"),
            ("struct s {\n    struct mask m;\n};\n", "struct mask"),
            ("#define ROOM MASK_MAX\n", "MASK_MAX"),
            ("enum mask_kind k;\n", "enum mask_kind"),
            ("int f(void)\n{\n    return MASK_TWO;\n}\n", "MASK_TWO"),
            ("int f(void)\n{\n    return mask_table[1];\n}\n", "mask_table"),
        ):
            self.assertEqual(self.of(text), [what])

    def test_what_does_not(self):
        for text in (
            "/* mask_apply */ // MASK_MAX\n",
            'void f(void)\n{\n    log("mask_apply");\n}\n',
            "int f(struct s *s)\n{\n    return s->mask_apply + s->in.mask_table;\n}\n",
            "int mask; /* no struct */\n",
            "int mask_applied(void);\n",
            "static int helper(void)\n{\n    return 2;\n}\n",
            "struct mask { int other; };\nstatic struct mask m;\n",
            "static void mask_apply(int x)\n{\n    mask_apply(x);\n}\n",
            "#ifndef MASK_H\n#endif\n",
        ):
            self.assertEqual(self.of(text), [], text)

    def test_a_file_that_moves_keeps_its_feature(self):
        for path in ("outer/site/site_masks_round.c", "outer/masks/any.c", "outer/masks/site_masks.c", "outer/masks/keys.h"):
            self.assertTrue(reach.belongs(path, "masks"), path)
        for path in ("outer/config/keys.h", "outer/sim/sim_masks.c", "outer/cmd/masks_parts.c", "inner/data/mask.c"):
            self.assertFalse(reach.belongs(path, "masks"), path)
        self.assertFalse(reach.belongs("outer/cmd/archive.c", "archive"))


class Circles(unittest.TestCase):
    def circles(self, **made):
        """name="defined; needed" is the object of x/name.c"""
        read = {f"x/{name}.c": tuple(set(part.split()) for part in text.split(";")) for name, text in made.items()}
        return [" ".join(os.path.basename(f) for f in c) for c in includes.circles(circles.needs(read))]

    def test_a_circle_of_files_is_found(self):
        self.assertEqual(self.circles(a="f; g", b="g; h", c="h;"), [])
        self.assertEqual(self.circles(a="f; g", b="g; h", c="h; f", d="k; f"), ["a.c b.c c.c"])
        self.assertEqual(self.circles(a="f; f", b="g; g strlen"), [])

    def test_a_circle_is_of_one_folder(self):
        self.assertEqual(circles.needs({"x/a.c": ({"f"}, {"g"}), "y/b.c": ({"g"}, {"f"})}), {})

    def test_symbols_are_read_from_object_files(self):
        if not shutil.which("nm") or not shutil.which("cc"):
            self.skipTest("nm or cc is not installed")
        with tempfile.TemporaryDirectory() as folder:
            text = "int needed(void); static int own(void) { return needed(); }\n" \
                   "int made(void) { return own(); } int variable = 1;"
            subprocess.run(["cc", "-c", "-x", "c", "-o", f"{folder}/a.o", "-"], input=text, text=True, check=True)
            (defined, needed), = circles.symbols([f"{folder}/a.o"]).values()
        self.assertEqual(defined, {"made", "variable"})
        self.assertIn("needed", needed)

    def compare(self, found, *rows):
        reason, built = "a reason of some words", {"a.c", "b.c", "c.c", "d.c"}
        listed = [{"meter": "circles", "what": what, "value": len(what.split()), "reason": reason} for what in rows]
        wrong, left = circles.compare(listed, [frozenset(c.split()) for c in found], built, built | {"e.c"})
        return len(wrong), [row["what"] for row in left]

    def test_rows(self):
        self.assertEqual(self.compare(["a.c b.c"], "a.c b.c"), (0, ["a.c b.c"]))
        self.assertEqual(self.compare(["a.c b.c"]), (1, []), "a new circle")
        self.assertEqual(self.compare(["a.c b.c c.c"], "a.c b.c"), (1, ["a.c b.c"]), "it grew")
        self.assertEqual(self.compare(["a.c b.c", "c.c d.c"], "a.c b.c"), (1, ["a.c b.c"]), "another one")
        self.assertEqual(self.compare(["a.c b.c"], "a.c b.c c.c"), (1, ["a.c b.c"]), "it must shrink")
        self.assertEqual(self.compare(["a.c b.c", "c.c d.c"], "a.c b.c c.c d.c"), (1, ["a.c b.c", "c.c d.c"]), "in two")
        self.assertEqual(self.compare([], "a.c b.c"), (1, []), "it is gone")
        self.assertEqual(self.compare([], "a.c e.c"), (0, ["a.c e.c"]), "this build has not got all its files")
        self.assertEqual(self.compare(["a.c b.c"], "a.c b.c f.c"), (1, ["a.c b.c"]), "a file is removed")


class Units(unittest.TestCase):
    def missing(self, header, **more):
        texts = {**{f"x/wide_{name}.c": "" for name in "abcde"}, "x/wide.h": header, **more}
        return {unit: sorted(files) for unit, (_, files) in units.missing(texts, 4).items()}

    def test_a_header_names_each_file_with_its_members(self):
        lines = " * wide_a.c: one, two\n * wide_b.c: none\n * wide_c.c: one\n * wide_d.c: one,\n *           two\n"
        text = "struct wide { int one, two; };\n/* Who writes what\n" + lines
        self.assertEqual(self.missing(text + " * wide_e.c: two */"), {"x/wide": []})
        self.assertEqual(self.missing(text + " */"), {"x/wide": ["wide_e.c"]})
        self.assertEqual(self.missing(text + " * wide_e.c: three */"), {"x/wide": ["wide_e.c"]}, "no member")
        self.assertEqual(self.missing(text + " * wide_e.c answers calls */\n/* ---- wide_e.c ---- */"), {"x/wide": ["wide_e.c"]})

    def test_one_header_names_all(self):
        one, two = ("struct s { int m; };\n/* " + "\n * ".join(f"wide_{name}.c: m" for name in names) + " */"
                    for names in ("abc", "de"))
        self.assertEqual(self.missing(one, **{"x/wide_own.h": two}), {"x/wide": ["wide_d.c", "wide_e.c"]})

    def test_a_small_unit_needs_none(self):
        self.assertEqual(units.missing({f"x/wide_{name}.c": "" for name in "abcd"}, 4), {})

    def test_a_unit_is_known_by_its_prefix(self):
        self.assertEqual(units.label("outer/site/site", ["outer/site/site", "x/other"]), "site")
        self.assertEqual(units.label("outer/link/grpc/link", ["outer/link/grpc/link", "outer/link/link"]), "grpc/link")


class Rows(unittest.TestCase):
    def compare(self, found, *rows):
        listed = [{"meter": "m", "what": what, "value": value, "reason": "a reason of some words"} for what, value in rows]
        wrong, left = structure.compare(listed, "m", found)
        return len(wrong), {row["what"]: row["value"] for row in left}

    def test_a_row_holds_its_value(self):
        self.assertEqual(self.compare({"a": 20}, ("a", 20)), (0, {"a": 20}))

    def test_what_grows_fails_and_is_not_written(self):
        self.assertEqual(self.compare({"a": 21}, ("a", 20)), (1, {"a": 20}))

    def test_what_has_no_row_fails_and_gets_none(self):
        self.assertEqual(self.compare({"a": 20}), (1, {}))

    def test_what_shrinks_fails_until_its_row_does(self):
        self.assertEqual(self.compare({"a": 19}, ("a", 20)), (1, {"a": 19}))
        self.assertEqual(self.compare({}, ("a", 20)), (1, {}))

    def test_a_limit_is_no_offender(self):
        self.assertEqual(self.compare({}, ("(limit)", 15)), (0, {"(limit)": 15}))

    def test_a_row_needs_a_reason(self):
        wrong, _ = structure.compare([{"meter": "m", "what": "a", "value": 1, "reason": ""}], "m", {"a": 1})
        self.assertEqual(len(wrong), 1)


if __name__ == "__main__":
    unittest.main()
