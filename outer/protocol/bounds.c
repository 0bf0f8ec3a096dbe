#include "outer/protocol/bounds.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

void bounds_add(struct bounds_history *h, const struct manifest *m)
{
    float norm[ROUND_SITES_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < m->site_count; i++)
        if (m->sites[i].included && m->sites[i].norm > 0)
            norm[n++] = m->sites[i].norm;
    if (!n)
        return;
    h->median[h->next] = lower_median(norm, n);
    h->next = (h->next + 1) % BOUNDS_ROUNDS;
    h->count += h->count < BOUNDS_ROUNDS;
}

float bounds_median(const struct bounds_history *h)
{
    float sorted[BOUNDS_ROUNDS];
    memcpy(sorted, h->median, sizeof sorted);
    return lower_median(sorted, h->count);
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
