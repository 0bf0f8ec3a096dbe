# SPDX-License-Identifier: Apache-2.0
"""What an acceptance is worth (README.md, "Verdicts"): yes, miss, undecided, void, or not measured.

A bound on measures that differ from seed to seed holds when the mean of the differences, paired by seed, lies two standard errors on its
right side, over three seeds or more. A loss or an accuracy that is compared must show learning, else the acceptance is void.
"""
import ast
import collections
import math
import statistics

from expression import COMPARISONS, Bad, Missing, Run, Sample, Undecided, paired

YES, MISS, UNDECIDED, VOID, UNMEASURED = "yes", "miss", "undecided", "void", "not measured"
Verdict = collections.namedtuple("Verdict", "word why")
LEAST_SEEDS, ERRORS = 3, 2
LOSSES = ("loss", "best", "best_of", "loss_at", "time_to")
SEEDED = (*LOSSES, "score", "time", "processor")  # measures that another seed changes
TINY = 1e-12  # of a bound: rounding of its arithmetic


def calls(expression):
    """All calls of an expression and of the formulas that it names."""
    for node in ast.walk(expression.tree):
        if isinstance(node, ast.Call):
            yield node
        elif isinstance(node, ast.Name) and node.id in expression.formulas:
            yield from calls(expression.formulas[node.id])


def seeded(call):
    kind = call.args[1] if call.func.id == "metric" else None
    return call.func.id in SEEDED or (isinstance(kind, ast.Constant) and kind.value == "eval")


def difference(a, b):
    return paired(lambda x, y: x - y)(a, b)


class Judge:
    """Of one expression."""

    def __init__(self, expression, measures, exact):
        self.expression, self.measures, self.exact = expression, measures, exact
        self.noisy = any(seeded(c) for c in calls(expression))
        self.counts = collections.Counter()

    def value(self, node):
        """A side of a comparison by seed: `mean(x)` and `mean(x) + 2 * sem(x)` are x, whose error is judged here."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and is_call(node.left, "mean"):
            x = ast.dump(node.left.args[0])
            errors = node.right
            if isinstance(errors, ast.BinOp) and isinstance(errors.op, ast.Mult) and isinstance(errors.left, ast.Constant) and \
                    errors.left.value == ERRORS and is_call(errors.right, "sem") and ast.dump(errors.right.args[0]) == x:
                node = node.left
        if is_call(node, "mean") and not self.exact:
            node = node.args[0]
        found = self.expression.of(node, self.measures)
        if not isinstance(found, Sample):
            raise Bad(f"`{self.expression.text}`: a comparison stands where a number is wanted")
        return found

    def of(self, node):
        if isinstance(node, ast.BoolOp):
            return joined([self.of(part) for part in node.values], isinstance(node.op, ast.And))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inside = self.of(node.operand)
            return Verdict({YES: MISS, MISS: YES}.get(inside.word, inside.word), inside.why)
        if isinstance(node, ast.Name) and node.id in self.expression.formulas:
            inner = self.expression.formulas[node.id]
            return Judge(inner, self.measures, self.exact).of(inner.tree)
        if not isinstance(node, ast.Compare):
            raise Bad(f"`{self.expression.text}` is a number, no comparison")
        sides = [node.left, *node.comparators]
        return joined([self.pair(o, a, b) for o, a, b in zip(node.ops, sides, sides[1:])], True)

    def pair(self, operator, left, right):
        if isinstance(operator, (ast.Lt, ast.LtE)) and is_call(left, "abs") and not self.exact:  # a bound on each side
            x, bound = self.value(left.args[0]), self.value(right)
            below = self.bound(operator, difference(x, bound))
            above = self.bound(operator, difference(paired(lambda v: -v)(x), bound))
            return joined([below, above], True)
        a, b = self.value(left), self.value(right)
        if self.exact or isinstance(operator, (ast.Eq, ast.NotEq)):
            return Verdict(YES if COMPARISONS[type(operator)][0](a.mean, b.mean) else MISS, "")
        return self.bound(operator, difference(b, a) if isinstance(operator, (ast.Gt, ast.GtE)) else difference(a, b))

    def bound(self, operator, over):
        """over: by how much each seed is above its bound."""
        n = len(over.values)
        strict = isinstance(operator, (ast.Lt, ast.Gt))
        spread = n > 1 and any(abs(v - over.mean) > TINY for v in over.values)
        if not self.noisy and not spread:
            return Verdict(YES if (over.mean < 0 if strict else over.mean <= 0) else MISS, "")
        if n < LEAST_SEEDS:
            return Verdict(UNDECIDED, f"{n} seed{'s' if n > 1 else ''} of {LEAST_SEEDS}")
        if math.isinf(over.mean):
            return Verdict(YES if over.mean < 0 else MISS, "never" if over.mean > 0 else "")
        error = statistics.stdev(over.values) / math.sqrt(n)
        if over.mean + ERRORS * error < (0 if strict else TINY):
            return Verdict(YES, "")
        if over.mean - ERRORS * error > 0:
            return Verdict(MISS, "")
        return Verdict(UNDECIDED, f"{abs(over.mean) / error if error else 0:.1f} standard errors from the bound")


def is_call(node, name):
    return isinstance(node, ast.Call) and node.func.id == name


def joined(verdicts, every):
    """Of `and` (every) or of `or`."""
    decides = MISS if every else YES
    for word in (decides, UNDECIDED):
        for v in verdicts:
            if v.word == word:
                return v
    return Verdict(YES if every else MISS, "")


# ---- the floor ----
def learned(expression, measures, floors):
    """None, or why a loss or an accuracy that is compared shows no learning. floors(run, set): of a loss (set None) or an accuracy;
    None: not known."""
    for call in calls(expression):
        name, runs = call.func.id, [a.id for a in call.args if isinstance(a, ast.Name) and a.id in expression.runs]
        if name in LOSSES:
            bound, what = floors(runs[0], None), "the unigram entropy of its held-out text"
            found = measures(Run(runs[0]), "best") if name == "best" else expression.of(call, measures) if name == "best_of" else \
                measures(Run(runs[0]), "eval.loss.last")
            if bound is not None and not found.mean < bound:
                return f"loss {'of ' if name == 'best_of' else ''}{', '.join(runs)}: {found.mean:.4g} is not below {bound:.4g}, {what}"
        elif name == "score" and call.args[1].value == "accuracy":
            part = call.args[2].value if len(call.args) > 2 else "all"
            bound, found = floors(runs[0], part), expression.of(call, measures)
            if bound is not None and not found.mean > bound:
                return f"accuracy of {runs[0]} on {part}: {found.mean:.4g} is not above {bound:.4g}, the share of its majority class"
    return None


# ---- searched alike ----
def unlike(expression):
    """None, or why the sides of a comparison were not searched alike."""
    grids, single = [], []
    for call in calls(expression):
        runs = [a.id for a in call.args if isinstance(a, ast.Name) and a.id in expression.runs]
        if call.func.id == "best_of":
            grids.append(runs)
        elif call.func.id in ("loss", "loss_at"):
            single += runs
    if not grids:
        return None
    if len({len(g) for g in grids}) > 1:
        return f"the sides were not searched alike: {' and '.join(str(n) for n in sorted({len(g) for g in grids}))} rates"
    outside = [r for r in single if not any(r in g for g in grids)]
    return f"{', '.join(dict.fromkeys(outside))} ran at one rate against sides that were searched" if outside else None


def judge(expression, measures, floors=None, exact=False):
    """A Verdict. exact: by the means alone, as a quick run of one seed is judged."""
    try:
        judge_ = Judge(expression, measures, exact)
        found = judge_.of(expression.tree)
        void = learned(expression, measures, floors) if floors else None
    except Missing as why:
        return Verdict(UNMEASURED, str(why))
    except Undecided as why:
        return Verdict(UNDECIDED, str(why))
    if void:
        return Verdict(VOID, void)
    apart = None if exact else unlike(expression)
    return Verdict(UNDECIDED, apart) if apart else found
