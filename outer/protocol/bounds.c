/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/bounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/protocol/mutant.h"

float bounds_norm(double squares, size_t elements, float weight)
{
    return (float)(sqrt(squares / (double)elements) / (double)weight);
}

static int float_order(const void *a, const void *b)
{
    float x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Sorts them. */
static float lower_median(float *x, size_t n)
{
    qsort(x, n, sizeof *x, float_order);
    return n ? x[(n - 1) / 2] : 0;
}

float bounds_round_median(const struct manifest *m)
{
    float norm[ROUND_SITES_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included && m->sites[i].norm > 0)
            norm[n++] = m->sites[i].norm;
    return lower_median(norm, n);
}

void bounds_add(struct bounds_history *h, const struct manifest *m)
{
    h->median[h->next] = bounds_round_median(m);
    h->next = (h->next + 1) % (h->rounds ? h->rounds : BOUNDS_ROUNDS);
}

float bounds_median(const struct bounds_history *h)
{
    float sorted[BOUNDS_ROUNDS];
    size_t n = 0;
    for (size_t i = 0; i < BOUNDS_ROUNDS; i++)
        if (h->median[i] > 0)
            sorted[n++] = h->median[i];
    return lower_median(sorted, n);
}

float bounds_norm_max(const struct bounds_history *h, float limit, float theta_rms)
{
    float median = bounds_median(h);
    if (!(limit > 0))
        return INFINITY;
    if (!(median > 0))
        return limit * (theta_rms > 0 ? theta_rms : 1);
    return limit * median > theta_rms ? limit * median : theta_rms;
}

/* In double: the product of two f32 values does not overflow there. */
static float norm_clip_factor(double most, double norm)
{
    int exponent;
    if (norm <= most)
        return 1;
    (void)frexp(most / norm, &exponent); /* in [2^(exponent-1), 2^exponent) */
    return (float)ldexp(1, exponent - 1);
}

void bounds_clip(const struct bounds_history *h, float clip, struct manifest *m)
{
    double running = (double)bounds_median(h), now = (double)bounds_round_median(m);
    bool loud = now > running && !(MUTANT(CLIP_RUNNING) && running > 0);
    double most = (double)clip * (loud ? now : running);
    m->scaled = false;
    for (uint32_t i = 0; i < m->site_count; i++) {
        struct manifest_entry *e = &m->sites[i];
        e->factor = clip > 0 && e->included ? norm_clip_factor(most, (double)e->norm) : 1;
        m->scaled |= e->factor != 1;
    }
}
