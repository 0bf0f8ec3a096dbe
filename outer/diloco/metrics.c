/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/metrics.h"
#include <math.h>

/* An odd stride does not run in step with the rows of a matrix. */
static size_t stride_of(size_t elements)
{
    return elements <= METRICS_SAMPLE ? 1 : ((elements + METRICS_SAMPLE - 1) / METRICS_SAMPLE) | 1;
}

static size_t count_of(size_t elements)
{
    return (elements + stride_of(elements) - 1) / stride_of(elements);
}

size_t metrics_bytes(size_t elements)
{
    return 2 * count_of(elements) * sizeof(float);
}

enum err metrics_open(struct outer_metrics_state *g, size_t elements, struct arena *perm)
{
    *g = (struct outer_metrics_state){.stride = stride_of(elements), .count = count_of(elements)};
    TRY_ALLOC(g->own = arena_array(perm, g->count, sizeof *g->own));
    TRY_ALLOC(g->last = arena_array(perm, g->count, sizeof *g->last));
    return ERR_OK;
}

void metrics_own(struct outer_metrics_state *g, uint64_t round, const float *z,
                 const float *residual)
{
    for (size_t i = 0; i < g->count; i++)
        g->own[i] = z[i] - residual[i * g->stride];
    g->own_round = round + 1;
    g->own_residual_ratio = NAN;
}

void metrics_residual_ratio(struct outer_metrics_state *g, double residual_ratio)
{
    g->own_residual_ratio = residual_ratio;
}

/* Every stride-th value of each. */
static double samples_dot(const float *x, size_t x_stride, const float *y, size_t y_stride,
                          size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i * x_stride] * (double)y[i * y_stride];
    return sum;
}

static double samples_cosine(const struct outer_metrics_state *g, const float *mean, double mean2,
                             const float *sample)
{
    double length2 = mean2 * samples_dot(sample, 1, sample, 1, g->count);
    return length2 > 0 ? samples_dot(mean, 1, sample, 1, g->count) / sqrt(length2) : NAN;
}

void metrics_round(struct outer_metrics_state *g, uint64_t round, const float *mean,
                   const float *momentum, double mu)
{
    size_t n = g->count, s = g->stride;
    double mean2 = samples_dot(mean, 1, mean, 1, n);
    double along = momentum ? samples_dot(momentum, s, mean, 1, n) : 0;
    double buf2 = momentum ? samples_dot(momentum, s, momentum, s, n) : 0;
    double c = mean2 > 0 && (momentum || !isnan(mu)) ? along / mean2 : NAN;
    g->reading = (struct outer_metrics){.gain = 1 + mu + mu * mu * c,
                                        .aligned = c,
                                        .transverse = sqrt(fmax(0, buf2 / mean2 - c * c)),
                                        .rho = NAN,
                                        .agreement = NAN,
                                        .residual_ratio = NAN};
    if (isnan(c)) /* fmax takes the other one */
        g->reading.transverse = NAN;
    if (round && g->last_round == round) /* of the round before, + 1 */
        g->reading.rho = samples_cosine(g, mean, mean2, g->last);
    if (g->own_round == round + 1) {
        g->reading.agreement = samples_cosine(g, mean, mean2, g->own);
        g->reading.residual_ratio = g->own_residual_ratio;
    }
    for (size_t i = 0; i < n; i++)
        g->last[i] = mean[i];
    g->last_round = g->round = round + 1;
}

struct outer_metrics metrics_read(const struct outer_metrics_state *g, uint64_t round)
{
    static const struct outer_metrics nothing = {NAN, NAN, NAN, NAN, NAN, NAN};
    return g->round == round + 1 ? g->reading : nothing;
}
