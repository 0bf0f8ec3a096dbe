/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/reference.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RATIO_EMPTY = 0, RATIO_ZERO = 128 }; /* log2 of the squared ratio, + 128 */
enum { VALUES_MAX = 4096 };                 /* of the simulator's largest fragment */
static const double CANCELLED = 1e-3;
static char text[256];

static const char *wrong(const char *what, double got, double expected)
{
    snprintf(text, sizeof text, "%s is %.9g, and must be %.9g", what, got, expected);
    return text;
}

/* ---- weights ---- */

/* The simulator's sites: every third one has half the share of the others. */
static double weight_of(const struct sim_judged *c, unsigned site)
{
    return site % 3 == 2 && !c->o->equal ? 0.5 : 1;
}

static const char *check_weights(const struct sim_judged *c)
{
    const struct manifest *m = c->manifest;
    unsigned took_part = 0, majority = c->member_count / 2 + 1;
    if (m->site_count != c->member_count)
        return wrong("the number of sites", m->site_count, c->member_count);
    for (unsigned i = 0; i < m->site_count; i++) {
        unsigned site = c->members[i];
        bool liar = c->o->lies && i + 1 == m->site_count;
        double weight = m->sites[i].included ? (double)m->sites[i].weight : 0;
        took_part += m->sites[i].included;
        if (m->sites[i].site != site)
            return wrong("a site of the roster", m->sites[i].site, site);
        if (m->sites[i].included && weight != (liar ? 1 : weight_of(c, site)))
            return wrong("a site's weight", weight, weight_of(c, site));
        if (m->sites[i].included != (c->sent[i] != NULL))
            return "a site counts without a contribution, or has one that does not";
    }
    if (took_part < (c->o->strict ? c->member_count : majority))
        return wrong("the number of sites that took part", took_part, majority);
    return NULL;
}

/* ---- codec (docs/protocol.md 3.8) ---- */

/* Largest of the included sites, and the aggregator's own. */
static int largest_ratio(const struct manifest *m)
{
    int most = m->residual_ratio;
    for (unsigned i = 0; i < m->site_count; i++)
        if (m->sites[i].included && m->sites[i].residual_ratio > most)
            most = m->sites[i].residual_ratio;
    return most;
}

static bool resets(const struct sim_judged *c, int ratio)
{
    double reset = (double)c->o->residual_reset;
    return reset > 0 && ratio != RATIO_EMPTY && ratio >= floor(log2(reset * reset)) + RATIO_ZERO;
}

static enum codec_kind codec_of(const struct sim_judged *c)
{
    bool first = c->round < 1; /* outer.full_precision_rounds of the simulator */
    bool last = c->round + 1 == c->rounds;
    int ratio = c->before ? largest_ratio(c->before) : 0;
    bool whole = first || (last && ratio < RATIO_ZERO + 2) || resets(c, ratio);
    bool keeps = c->codec == CODEC_F32 || c->codec == CODEC_BF16 || c->codec == CODEC_FIXED;
    return !whole || keeps ? c->codec : c->o->full_fixed ? CODEC_FIXED : CODEC_BF16;
}

/* ---- the mean, and the step ---- */

static double weight_sum(const struct manifest *m)
{
    double weight = 0;
    for (unsigned i = 0; i < m->site_count; i++)
        weight += m->sites[i].included ? (double)m->sites[i].weight : 0;
    return weight;
}

static double factor_of(const struct sim_judged *c, unsigned site)
{
    return c->manifest->scaled ? (double)c->manifest->sites[site].factor : 1;
}

static double average_of(const struct sim_judged *c, size_t k)
{
    const struct manifest *m = c->manifest;
    double sum = 0;
    for (unsigned i = 0; i < m->site_count; i++)
        if (m->sites[i].included)
            sum += factor_of(c, i) * (double)c->sent[i][k];
    return sum / weight_sum(m);
}

struct span { /* a tensor, and the gap after it: a lying site has values there */
    size_t first, end;
};

static double length_of(const struct span *r, const float *f32, const double *f64)
{
    double squares = 0;
    for (size_t k = r->first; k < r->end; k++) {
        double x = f64 ? f64[k] : (double)f32[k];
        squares += x * x;
    }
    return sqrt(squares);
}

/* Decoupled DiLoCo (2604.21428): of one tensor the mean of the lengths, in the direction of the
 * weighted mean of the directions. False: the directions cancel, and rounding decides. */
static bool radial_of(const struct sim_judged *c, const struct span *r, double *mean)
{
    const struct manifest *m = c->manifest;
    double lengths = 0, weight = weight_sum(m);
    for (size_t k = r->first; k < r->end; k++)
        mean[k] = 0;
    for (unsigned i = 0; i < m->site_count; i++) {
        double length = m->sites[i].included ? length_of(r, c->sent[i], NULL) : 0;
        lengths += length;
        for (size_t k = r->first; length > 0 && k < r->end; k++)
            mean[k] += (double)m->sites[i].weight * (double)c->sent[i][k] / length;
    }
    double direction = length_of(r, NULL, mean);
    if (lengths > 0 && direction < CANCELLED * weight)
        return false;
    for (size_t k = r->first; lengths > 0 && k < r->end; k++)
        mean[k] *= lengths / weight / direction;
    return true;
}

/* The mean of a round; false: this file has none to compare with. */
static bool means_of(const struct sim_judged *c, double *mean)
{
    bool known = true;
    for (size_t k = 0; k < c->count; k++)
        mean[k] = c->passed ? (double)c->passed[k] : average_of(c, k);
    for (size_t i = 0; c->o->merge == MERGE_RADIAL && i < c->tensor_count; i++) {
        bool last = i + 1 == c->tensor_count;
        const struct span r = {c->tensors[i].first, last ? c->count : c->tensors[i + 1].first};
        known = (c->tensors[i].embedding || radial_of(c, &r, mean)) && known;
    }
    return known;
}

/* EDiT, algorithm 1: the mean is no longer than the bound. */
static double shortened(const struct sim_judged *c, const double *mean)
{
    double squares = 0, most = (double)c->o->edit_norm;
    if (c->o->merge != MERGE_EDIT || !(most > 0))
        return 1;
    for (size_t k = 0; k < c->count; k++)
        squares += mean[k] * mean[k];
    return sqrt(squares) > most ? most / sqrt(squares) : 1;
}

static bool same(double got, double expected, double scale)
{
    return fabs(got - expected) <= 2e-6 * (1 + scale);
}

/* outer.lr_schedule: the share of the rate at this round. */
static double share_of(const struct sim_judged *c)
{
    double end = c->o->anneal.end, pi = acos(-1);
    switch (c->o->anneal.kind) {
    case ANNEAL_CONSTANT:
        break;
    case ANNEAL_LINEAR:
        return 1 - (1 - end) * c->progress;
    case ANNEAL_COSINE:
        return end + (1 - end) * (1 + cos(pi * c->progress)) / 2;
    }
    return 1;
}

/* outer.momentum_warmup, outer.momentum_cooldown: the momentum at this round. */
static double momentum_of(const struct sim_judged *c)
{
    const struct anneal *a = &c->o->anneal;
    double warm = a->warmup ? fmin(1, (double)c->round / (double)a->warmup) : 1;
    double rounds_left = (double)c->left / (double)c->length;
    double cool = a->cooldown ? fmin(1, rounds_left / (double)a->cooldown) : 1;
    double m = (double)a->momentum_start * (1 - warm) + (double)0.9f * warm;
    return (double)a->momentum_end * (1 - cool) + m * cool;
}

/* outer.momentum_restart */
static bool restarts(const struct sim_judged *c)
{
    uint64_t every = c->o->anneal.restart;
    return c->round > 0 && every && c->round % every == 0;
}

struct step { /* settings of one outer step */
    double lr, mu;
};

/* DiLoCo (2311.08105), delayed Nesterov (2401.09135), FedAdam (2003.00295), primal averaging
 * (2512.17131): what becomes of one parameter. */
static const char *step_check(const struct sim_judged *c, const struct step *o, size_t k,
                              double mean)
{
    double theta = (double)c->theta[0][k], before = 0, momentum = 0, second = 0, n = c->o->delay;
    bool first = c->round % c->o->delay == 0, last = c->round % c->o->delay == c->o->delay - 1;
    if (c->momentum[0] && !restarts(c))
        before = (double)c->momentum[0][k];
    switch (c->o->optimizer) {
    case OUTER_OPT_SGD:
    case OUTER_OPT_AVERAGE:
        theta -= o->lr * mean;
        break;
    case OUTER_OPT_MOMENTUM:
        momentum = o->mu * before + mean;
        theta -= o->lr * (mean + o->mu * momentum);
        break;
    case OUTER_OPT_DELAYED:
        second = (first ? 0 : (double)c->second[0][k]) + mean / n;
        momentum = before;
        theta -= o->lr * mean / n;
        if (last) {
            momentum = o->mu * momentum + second;
            theta -= o->lr * o->mu * momentum;
        }
        break;
    case OUTER_OPT_ADAM:
        momentum = o->mu * before + (1 - o->mu) * mean;
        second = 0.99 * (double)c->second[0][k] + 0.01 * mean * mean;
        theta -= o->lr * momentum / (sqrt(second) + 1e-3);
        break;
    case OUTER_OPT_PRIMAL: {
        double iterate = theta + 0.9 * before - o->lr * mean, average = theta - 0.1 * before;
        average = o->mu * average + (1 - o->mu) * iterate;
        momentum = iterate - average;
        theta = c->left ? 0.9 * average + 0.1 * iterate : average;
        break;
    }
    }
    double scale = fabs(mean) + fabs(momentum) + fabs(theta);
    if (!same((double)c->theta[1][k], theta, scale))
        return wrong("a parameter after the step", (double)c->theta[1][k], theta);
    if (c->momentum[1] && !same((double)c->momentum[1][k], momentum, scale))
        return wrong("a momentum after the step", (double)c->momentum[1][k], momentum);
    if (c->second[1] && !same((double)c->second[1][k], second, scale))
        return wrong("the second slab after the step", (double)c->second[1][k], second);
    return NULL;
}

const char *reference_judge(void *self, const struct sim_judged *c)
{
    struct reference *r = self;
    const struct step o = {(double)c->lr * share_of(c), momentum_of(c)};
    double mean[VALUES_MAX];
    const char *why = check_weights(c);
    enum codec_kind codec = codec_of(c);
    r->rounds++;
    if (why)
        return why;
    if (c->manifest->codec != (uint32_t)codec)
        return wrong("the codec", c->manifest->codec, codec);
    if (c->count > VALUES_MAX || !means_of(c, mean))
        return NULL;
    double shorter = shortened(c, mean);
    for (size_t k = 0; k < c->count && !why; k++)
        why = step_check(c, &o, k, shorter * mean[k]);
    r->steps++;
    return why;
}
