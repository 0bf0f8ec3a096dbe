#include "tests/sim/reference.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { RATIO_EMPTY = 0, RATIO_ZERO = 128 }; /* log2 of the squared ratio, + 128 */
static char text[256];

static const char *wrong(const char *what, double got, double expected)
{
    snprintf(text, sizeof text, "%s is %.9g, and must be %.9g", what, got, expected);
    return text;
}

/* ---- weights ---- */

/* The simulator's sites: every third one has half the share of the others. */
static double weight_of(unsigned site)
{
    return site % 3 == 2 ? 0.5 : 1;
}

static const char *check_weights(const struct sim_judged *c)
{
    const struct manifest *m = c->manifest;
    if (m->site_count != c->o->sites)
        return wrong("the number of sites", m->site_count, c->o->sites);
    for (unsigned i = 0; i < m->site_count; i++) {
        bool liar = c->o->lies && i + 1 == m->site_count;
        double weight = m->sites[i].included ? (double)m->sites[i].weight : 0;
        if (m->sites[i].included && weight != (liar ? 1 : weight_of(i)))
            return wrong("a site's weight", weight, weight_of(i));
        if (m->sites[i].included != (c->sent[i] != NULL))
            return "a site counts without a contribution, or has one that does not";
    }
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
    return !whole || c->o->codec == CODEC_F32 ? c->o->codec : CODEC_BF16;
}

/* ---- the mean, and the step ---- */

static double mean_of(const struct sim_judged *c, size_t k)
{
    const struct manifest *m = c->manifest;
    double sum = 0, weight = 0;
    for (unsigned i = 0; i < m->site_count; i++) {
        if (!m->sites[i].included)
            continue;
        sum += (m->scaled ? (double)m->sites[i].factor : 1) * (double)c->sent[i][k];
        weight += (double)m->sites[i].weight;
    }
    return sum / weight;
}

/* EDiT, algorithm 1: the mean is no longer than the bound. */
static double shortened(const struct sim_judged *c)
{
    double squares = 0, most = (double)c->o->edit_norm;
    if (c->o->merge != MERGE_EDIT || !(most > 0))
        return 1;
    for (size_t k = 0; k < c->count; k++)
        squares += mean_of(c, k) * mean_of(c, k);
    return sqrt(squares) > most ? most / sqrt(squares) : 1;
}

static bool same(double got, double expected, double scale)
{
    return fabs(got - expected) <= 2e-6 * (1 + scale);
}

struct step { /* settings of one outer step */
    double lr, mu;
};

/* DiLoCo (2311.08105), delayed Nesterov (2401.09135): what becomes of one parameter. */
static const char *step_check(const struct sim_judged *c, const struct step *o, size_t k,
                              double mean)
{
    double theta = (double)c->theta[0][k], momentum = 0, gathered = 0, n = c->o->delay;
    bool first = c->round % c->o->delay == 0, last = c->round % c->o->delay == c->o->delay - 1;
    switch (c->o->optimizer) {
    case OUTER_OPT_SGD:
    case OUTER_OPT_AVERAGE:
        theta -= o->lr * mean;
        break;
    case OUTER_OPT_MOMENTUM:
        momentum = o->mu * (double)c->momentum[0][k] + mean;
        theta -= o->lr * (mean + o->mu * momentum);
        break;
    case OUTER_OPT_DELAYED:
        gathered = (first ? 0 : (double)c->gathered[0][k]) + mean / n;
        momentum = (double)c->momentum[0][k];
        theta -= o->lr * mean / n;
        if (last) {
            momentum = o->mu * momentum + gathered;
            theta -= o->lr * o->mu * momentum;
        }
        break;
    }
    double scale = fabs(mean) + fabs(momentum) + fabs(theta);
    if (!same((double)c->theta[1][k], theta, scale))
        return wrong("a parameter after the step", (double)c->theta[1][k], theta);
    if (c->momentum[1] && !same((double)c->momentum[1][k], momentum, scale))
        return wrong("a momentum after the step", (double)c->momentum[1][k], momentum);
    return NULL;
}

static bool reads_mean(const struct sim_judged *c)
{
    unsigned included = 0;
    for (unsigned i = 0; i < c->manifest->site_count; i++)
        included += c->manifest->sites[i].included;
    bool compressed =
        c->o->downlink_compression_from > 0 && included >= c->o->downlink_compression_from;
    return c->o->merge != MERGE_RADIAL && !compressed;
}

/* Rates that change from round to round, and restarts of the momentum, are schedule.c's and
 * anneal.c's, which have tests of their own. */
static bool reads_step(const struct sim_judged *c)
{
    return reads_mean(c) && c->o->anneal.kind == ANNEAL_CONSTANT && !c->o->anneal.restart;
}

const char *reference_judge(void *self, const struct sim_judged *c)
{
    struct reference *r = self;
    const struct step o = {(double)0.7f, (double)0.9f};
    const char *why = check_weights(c);
    enum codec_kind codec = codec_of(c);
    r->rounds++;
    if (why)
        return why;
    if (c->manifest->codec != (uint32_t)codec)
        return wrong("the codec", c->manifest->codec, codec);
    if (!reads_step(c))
        return NULL;
    double shorter = shortened(c);
    r->means++;
    for (size_t k = 0; k < c->count && !why; k++)
        why = step_check(c, &o, k, shorter * mean_of(c, k));
    r->steps++;
    return why;
}
