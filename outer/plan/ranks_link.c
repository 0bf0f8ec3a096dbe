/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/ranks_link.h"
#include <math.h>
#include "kernels/base/mutant.h"

double ranks_link_bytes(unsigned i)
{
    return RANKS_LINK_FIRST * ldexp(1, (int)i);
}

struct hops {
    double alpha, beta; /* seconds = alpha * alpha_s + beta * bytes * beta_s */
};

/* 2005.13247, table of the all-reduce algorithms; the tree is not pipelined. Gathers and sums to
 * owners take half of a ring. */
static struct hops hops_of(enum ranks_op op, enum plan_algorithm a, int ranks)
{
    double W = ranks, levels = ceil(log2(W)), share = (W - 1) / W;
    if (op != RANKS_ALL_REDUCE)
        return (struct hops){a == PLAN_ALGORITHM_RING ? W - 1 : levels, share};
    switch (a) {
    case PLAN_ALGORITHM_HALVING:
        return (struct hops){2 * levels, 2 * share};
    case PLAN_ALGORITHM_TREE:
        return (struct hops){2 * levels, 2 * levels};
    case PLAN_ALGORITHM_RING:
        break;
    }
    return (struct hops){2 * (W - 1), 2 * share};
}

double ranks_link_formula(enum ranks_op op, enum plan_algorithm a, int ranks, double bytes,
                          const struct ranks_fit *f)
{
    struct hops h = hops_of(op, a, ranks);
    return ranks < 2 ? 0 : h.alpha * f->alpha_s + h.beta * bytes * f->beta_s;
}

struct ranks_fit ranks_link_fit(enum ranks_op op, enum plan_algorithm a, int ranks,
                                const struct ranks_times *t)
{
    const struct hops h = hops_of(op, a, ranks);
    struct ranks_fit f = {0};
    double aa = 0, ab = 0, bb = 0, ay = 0, by = 0; /* weights 1 / seconds^2 */
    for (unsigned i = 0; i < t->count; i++) {
        double x = h.alpha / t->seconds[i], y = h.beta * ranks_link_bytes(i) / t->seconds[i];
        aa += x * x;
        ab += x * y;
        bb += y * y;
        ay += x;
        by += y;
    }
    double det = aa * bb - ab * ab;
    f.alpha_s = (ay * bb - by * ab) / det;
    f.beta_s = (by * aa - ay * ab) / det;
    bool whole = f.alpha_s >= 0 && !WITHOUT(LINK_ALPHA);
    if (!whole) /* no hop takes less than nothing */
        f = (struct ranks_fit){.beta_s = by / bb};
    else if (!(f.beta_s >= 0))
        f = (struct ranks_fit){.alpha_s = ay / aa};
    for (unsigned i = 0; i < t->count; i++) {
        double s = ranks_link_formula(op, a, ranks, ranks_link_bytes(i), &f);
        f.worst = fmax(f.worst, fabs(s / t->seconds[i] - 1));
    }
    return f;
}

/* By lines between the logarithms; beyond the ends the nearest ratio to the formula counts. */
static double ratio(const struct ranks_link *l, enum ranks_op op, double bytes)
{
    const struct ranks_times *t = &l->times[op];
    double at = log2(bytes / RANKS_LINK_FIRST), last = t->count - 1.0, by[2];
    at = at < 0 ? 0 : at > last ? last : at;
    unsigned i = (unsigned)at, next = i + 1 < t->count ? i + 1 : i;
    for (int k = 0; k < 2; k++) {
        unsigned n = k ? next : i;
        by[k] = log(t->seconds[n] / ranks_link_formula(op, l->algorithm, l->ranks,
                                                       ranks_link_bytes(n), &l->fit[op]));
    }
    return exp(by[0] + (at - i) * (by[1] - by[0]));
}

static double one_level(const struct ranks_link *l, enum ranks_op op, int ranks, double bytes)
{
    double s = ranks_link_formula(op, l->algorithm, ranks, bytes, &l->fit[op]);
    return l->ranks > 1 && l->times[op].count > 1 ? s * ratio(l, op, bytes) : s;
}

/* The ranks of a machine, then each with its likes in the other machines, which hold as many parts:
 * a rank has a link of its own to them, and a machine's share of the bytes crosses it. */
static double two_levels(const struct ranks_link *l, enum ranks_op op, int ranks, double bytes)
{
    const struct ranks_fit net = {.alpha_s = l->net_alpha_s, .beta_s = l->net_beta_s};
    int inside = l->machine_ranks, machines = (ranks + inside - 1) / inside;
    return one_level(l, op, inside, bytes) +
           ranks_link_formula(op, l->algorithm, machines, bytes / inside, &net);
}

double ranks_link_seconds(const struct ranks_link *l, enum ranks_op op, int ranks, double bytes)
{
    bool several = l->machine_ranks && ranks > l->machine_ranks && l->ranks <= l->machine_ranks;
    if (ranks < 2 || bytes <= 0)
        return 0;
    return several ? two_levels(l, op, ranks, bytes) : one_level(l, op, ranks, bytes);
}
