# SPDX-License-Identifier: Apache-2.0
"""The expressions of a row: numbers, names of runs and formulas, + - * / **, comparisons, and, or, not, and the functions of
FUNCTIONS. Nothing else is accepted, and nothing is handed to Python's eval.

A value is a Sample: one number for each seed. Arithmetic goes seed by seed, so that loss(a) / loss(b) is a ratio of pairs of runs
on the same data. A comparison compares means.
"""
import ast
import inspect
import math
import operator
import statistics


class Bad(Exception):
    """Something that the person who writes a row or starts it must correct."""


class Missing(Exception):
    """A measure that no finished run has."""


class Undecided(Exception):
    """Measured, and yet nothing can be said."""


class Run:
    def __init__(self, name):
        self.name = name


class Sample:
    """values: a number for each of seeds, or one that no seed changes (seeds: None)."""

    def __init__(self, values, seeds=None):
        self.values = [float(v) for v in values]
        self.seeds = list(seeds) if seeds else None

    def of(self, seeds):
        """The values of these seeds, in their order."""
        if self.seeds is None:
            return self
        by_seed = dict(zip(self.seeds, self.values))
        return Sample([by_seed[s] for s in seeds], seeds)

    @property
    def mean(self):
        return statistics.fmean(self.values)

    def text(self):
        digits = f"{self.mean:.5g}"
        if len(self.values) < 2 or len(set(self.values)) == 1:
            return digits
        if not all(map(math.isfinite, self.values)):  # time_to() of a loss that a run never had
            return f"{digits}, n {len(self.values)}"
        return f"{digits} +- {statistics.stdev(self.values):.2g}, n {len(self.values)}"


def paired(function):
    def apply(*samples):
        seeds = common([s.seeds for s in samples if s.seeds])
        samples = [s.of(seeds) for s in samples]
        count = max(len(s.values) for s in samples)
        if any(len(s.values) not in (1, count) for s in samples):
            raise Bad("two runs with different numbers of seeds are combined")
        columns = [s.values * (count // len(s.values)) for s in samples]
        return Sample((guarded(function, *row) for row in zip(*columns)), seeds)
    return apply


def common(lists):
    """The seeds that are in all lists."""
    found = [s for s in lists[0] if all(s in others for others in lists)] if lists else None
    if found == []:
        raise Missing("two runs have no seed in common")
    return found


def guarded(function, *numbers):
    try:
        return function(*numbers)
    except (ArithmeticError, ValueError) as wrong:
        raise Bad(f"{function.__name__}{numbers}: {wrong}") from None


OPERATORS = {ast.Add: paired(operator.add), ast.Sub: paired(operator.sub), ast.Mult: paired(operator.mul),
             ast.Div: paired(operator.truediv), ast.Pow: paired(operator.pow)}
COMPARISONS = {ast.Lt: (operator.lt, "<"), ast.LtE: (operator.le, "<="), ast.Gt: (operator.gt, ">"), ast.GtE: (operator.ge, ">="),
               ast.Eq: (operator.eq, "=="), ast.NotEq: (operator.ne, "!=")}


# ---- functions: the first parameter is where measures come from; Run, str or Sample the others ----
def loss(measures, run: Run):
    """eval loss of the last evaluation, nats"""
    return measures(run, "eval.loss.last")


def best(measures, run: Run):
    """loss of a run with `search` at its best rate: the lowest mean over seeds, with a higher one at a rate on each side"""
    return measures(run, "best")


def best_of(measures, *runs: Run):
    """loss of the one of these runs, which differ in one rising number, with the lowest mean over seeds; at an edge: undecided"""
    losses = [measures(r, "eval.loss.last") for r in runs]
    i = min(range(len(runs)), key=lambda k: losses[k].mean)
    if i in (0, len(runs) - 1):
        raise Undecided(f"the best of {', '.join(r.name for r in runs)} is {runs[i].name}, at an edge of what was run")
    return losses[i]


def rate(measures, run: Run):
    """best rate of a run with `search`"""
    return measures(run, "rate")


def time(measures, run: Run):
    """seconds of training: all steps and what rounds held up, without evaluations"""
    return measures(run, "time")


def processor(measures, run: Run):
    """seconds of processor time of all its processes, evaluations too: what other programs on the machine change less than time"""
    return measures(run, "processor_s")


def tokens(measures, run: Run):
    """tokens that one site trained on"""
    return measures(run, "tokens")


def parameters(measures, run: Run):
    """parameters of the model"""
    return measures(run, "start.parameters.last")


def bytes_(measures, run: Run, which: str = "up"):
    """bytes of one site in all rounds: up, down (payload), wire_up, wire_down (sockets)"""
    if which not in ("up", "down", "wire_up", "wire_down"):
        raise Bad(f'bytes(): "{which}" is none of up, down, wire_up, wire_down')
    return measures(run, f"round.{which}.sum")


def metric(measures, run: Run, kind: str, field: str, how: str = "last"):
    """a field of the records of a kind in metrics.jsonl; how: last, first, mean, median, sum, min, max, count"""
    if how not in REDUCTIONS:
        raise Bad(f'metric(): "{how}" is none of {", ".join(REDUCTIONS)}')
    return measures(run, f"{kind}.{field}.{how}")


def score(measures, run: Run, field: str, which: str = "all"):
    """a field of `atoll eval` after the run, such as "accuracy", of an eval set of its data"""
    return measures(run, f"score.{field}.{which}")


def value(measures, run: Run, name: str):
    """a number that a run with `program` printed"""
    return measures(run, f"value.{name}")


def time_to(measures, run: Run, level: Sample):
    """seconds of training until an evaluation has this loss or less, between two evaluations by a line; inf: never"""
    return measures(run, f"time_to.{level.mean:.10g}")


def loss_at(measures, run: Run, seconds: Sample):
    """eval loss after this number of seconds of training, by a line between two evaluations"""
    return measures(run, f"loss_at.{seconds.mean:.10g}")


def mean(_, x: Sample):
    """mean over seeds"""
    return Sample([x.mean])


def sd(_, x: Sample):
    """standard deviation over seeds"""
    return Sample([statistics.stdev(x.values) if len(x.values) > 1 else 0.0])


def sem(_, x: Sample):
    """standard error of the mean over seeds"""
    return Sample([statistics.stdev(x.values) / math.sqrt(len(x.values)) if len(x.values) > 1 else 0.0])


def least(_, x: Sample):
    """smallest over seeds"""
    return Sample([min(x.values)])


def most(_, x: Sample):
    """largest over seeds"""
    return Sample([max(x.values)])


def abs_(_, x: Sample):
    """absolute value"""
    return paired(abs)(x)


def log(_, x: Sample):
    """natural logarithm"""
    return paired(math.log)(x)


def sqrt(_, x: Sample):
    """square root"""
    return paired(math.sqrt)(x)


def lower(_, x: Sample, y: Sample):
    """the smaller of two values, seed by seed"""
    return paired(min)(x, y)


def higher(_, x: Sample, y: Sample):
    """the larger of two values, seed by seed"""
    return paired(max)(x, y)


REDUCTIONS = {"last": lambda x: x[-1], "first": lambda x: x[0], "mean": statistics.fmean, "median": statistics.median, "sum": sum,
              "min": min, "max": max, "count": len}
FUNCTIONS = {f.__name__.rstrip("_"): f for f in (loss, best, best_of, rate, time, processor, tokens, parameters, bytes_, metric, score, value, time_to, loss_at, mean, sd,
                                                 sem, least, most, abs_, log, sqrt, lower, higher)}


def parameters_of(name, node):
    """After `measures`, one for each argument of a call; of any number (*runs) two and more."""
    found = list(inspect.signature(FUNCTIONS[name]).parameters.values())[1:]
    last = found[-1]
    return found[:-1] + [last] * max(2, len(node.args)) if last.kind is last.VAR_POSITIONAL else found


class Expression:
    """Checked when it is made: Bad names what is wrong. names: runs, formulas and `reference`, if the row has one."""

    def __init__(self, text, runs, formulas=None):
        self.text, self.runs, self.formulas = str(text), runs, formulas or {}
        try:
            self.tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as wrong:
            raise Bad(f"`{self.text}`: {wrong.msg}") from None
        self.check(self.tree)

    def fail(self, why):
        raise Bad(f"`{self.text}`: {why}")

    def check(self, node):
        if isinstance(node, ast.Call):
            self.check_call(node)
        elif isinstance(node, ast.Name):
            if node.id not in self.runs and node.id not in self.formulas:
                self.fail(f"there is no run or formula {node.id}; runs: {', '.join(self.runs) or 'none'}")
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float, str)):
                self.fail(f"{node.value!r} is neither a number nor a text")
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            self.check(node.left)
            self.check(node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            self.check(node.operand)
        elif isinstance(node, ast.Compare) and all(type(o) in COMPARISONS for o in node.ops):
            for part in [node.left, *node.comparators]:
                self.check(part)
        elif isinstance(node, ast.BoolOp):
            for part in node.values:
                self.check(part)
        else:
            self.fail(f"{type(node).__name__} is not part of these expressions")

    def check_call(self, node):
        name = node.func.id if isinstance(node.func, ast.Name) else "?"
        if name not in FUNCTIONS:
            self.fail(f"there is no function {name}; functions: {', '.join(FUNCTIONS)}")
        if node.keywords:
            self.fail(f"{name}() takes no named arguments")
        expected = parameters_of(name, node)
        needed = sum(p.default is p.empty for p in expected)
        if not needed <= len(node.args) <= len(expected):
            self.fail(f"{name}() takes {needed} to {len(expected)} arguments: {', '.join(p.name for p in expected)}")
        for argument, parameter in zip(node.args, expected):
            if parameter.annotation is Run:
                if not isinstance(argument, ast.Name) or argument.id not in self.runs:
                    self.fail(f"{name}(): {ast.unparse(argument)} is no run; runs: {', '.join(self.runs) or 'none'}")
            elif parameter.annotation is str:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    self.fail(f"{name}(): {parameter.name} is a text in quotes")
            else:
                self.check(argument)

    def programs(self):
        """Runs that stand as a name: what the reference printed, also in formulas."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id in self.formulas:
                found |= self.formulas[node.id].programs()
            elif isinstance(node, ast.Name) and node.id in self.runs:
                found.add(node.id)
        return found

    def evaluate(self, measures):
        """measures(Run, name) -> Sample. A Sample, or True or False."""
        return self.of(self.tree, measures)

    def of(self, node, measures):
        if isinstance(node, ast.Call):
            function = FUNCTIONS[node.func.id]
            kinds = parameters_of(node.func.id, node)
            return function(measures, *[Run(a.id) if k.annotation is Run else a.value if k.annotation is str else self.of(a, measures)
                                        for a, k in zip(node.args, kinds)])
        if isinstance(node, ast.Name):
            if node.id in self.formulas:
                return self.formulas[node.id].evaluate(measures)
            return measures(Run(node.id), "value.difference")
        if isinstance(node, ast.Constant):
            return Sample([node.value])
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](self.of(node.left, measures), self.of(node.right, measures))
        if isinstance(node, ast.UnaryOp):
            inside = self.of(node.operand, measures)
            return not inside if isinstance(node.op, ast.Not) else paired(operator.neg)(inside)
        if isinstance(node, ast.Compare):
            sides = [self.of(part, measures) for part in [node.left, *node.comparators]]
            return all(COMPARISONS[type(o)][0](a.mean, b.mean) for o, a, b in zip(node.ops, sides, sides[1:]))
        parts = [self.of(part, measures) for part in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)

    def measured(self, measures):
        """The comparison with its numbers: `2.41 +- 0.01, n 3 <= 2.43`."""
        if isinstance(self.tree, ast.Compare):
            sides = [self.of(part, measures).text() for part in [self.tree.left, *self.tree.comparators]]
            words = [sides[0]]
            for o, side in zip(self.tree.ops, sides[1:]):
                words += [COMPARISONS[type(o)][1], side]
            return " ".join(words)
        result = self.evaluate(measures)
        return result.text() if isinstance(result, Sample) else "yes" if result else "no"
