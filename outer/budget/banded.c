/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/banded.h"
#include <math.h>
#include "kernels/base/arena.h"

/* Columns do not overlap, so squares add; a column's norm falls towards the end, so the first
 * columns that the separation allows are the worst. */
double banded_sensitivity(int64_t bands, int64_t n, int64_t participations, int64_t separation)
{
    ASSERT(separation >= bands);
    double whole = banded_squared(bands), sum = 0;
    for (int64_t k = 0, column = 0; k < participations && column < n; k++, column += separation)
        sum += n - column >= bands ? whole : banded_squared(n - column);
    return sqrt(sum);
}

/* Row t of A C^-1 holds g_0..g_t, the coefficients of 1 / ((1-x) c(x)), so the mean square over the
 * rows is sum_t (n - t) g_t^2 / n. */
enum err banded_error(double *rms, int64_t bands, int64_t n)
{
    struct arena a = arena_make(0);
    double *c = arena_array(&a, (size_t)bands, sizeof *c);
    double *g = c ? arena_array(&a, (size_t)n, sizeof *g) : NULL;
    double sum = 0;
    for (int64_t t = 0; g && t < n; t++) {
        if (t == 0)
            banded_coefficients(c, bands);
        double value = 1; /* 1 / (1-x) */
        for (int64_t j = 1; j < bands && j <= t; j++)
            value -= c[j] * g[t - j];
        g[t] = value;
        sum += (double)(n - t) * value * value;
    }
    *rms = sqrt(sum / (double)n);
    arena_free(&a);
    return g ? ERR_OK : ERR_MEMORY;
}

struct sampled_steps banded_cyclic(int64_t bands, double q, double noise, int64_t n)
{
    double rate = (double)bands * q;
    ASSERT(rate < 1 + 1e-9);
    return (struct sampled_steps){fmin(1, rate), noise, (n + bands - 1) / bands};
}
