/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/accumulator.h"
#include <math.h>
#include "kernels/base/rng.h"
#include "kernels/scalar/narrow.h"

/* P(|x| > t) of a standard normal. */
static double beyond(double t)
{
    return erfc(t / sqrt(2));
}

/* Terms that lose bits before the sum has `r` bits more than a product: the paper's alpha. */
static double losing(int bits, int product, int r)
{
    double sum = 0;
    for (int j = 1; j <= r; j++)
        sum += ldexp(1, j) * (ldexp(1, j) - 1) * (ldexp(1, j + 1) - 1);
    return ldexp(1, bits - 3 * product) / 3 * sum;
}

struct mean { /* of numbers of terms that count, weighted by probabilities */
    double sum, weight;
};

static void mean_add(struct mean *m, double terms, double weight)
{
    if (terms <= 0)
        return;
    m->sum += terms * weight;
    m->weight += weight;
}

/* Theorem 1: the sum is full at term i; or it loses r bits of its terms; or it loses none. */
static double retention(int bits, int product, double n)
{
    struct mean m = {0, 0};
    double full = ldexp(1, bits), none = losing(bits, product, product);
    for (double i = 2; i < n; i++)
        mean_add(&m, i - none, beyond(full / sqrt(i)) * (1 - beyond(full / sqrt(i - 1))));
    for (int r = 2; r <= product; r++) {
        double edge = ldexp(1, bits - product + r);
        mean_add(&m, n - losing(bits, product, r - 1),
                 edge * beyond(edge / 2 / sqrt(n)) * (1 - beyond(edge / sqrt(n))));
    }
    mean_add(&m, n, 1 - beyond(ldexp(1, bits - product + 1) / sqrt(n)));
    return m.weight > 0 ? m.sum / (n * m.weight) : 0;
}

static int least_of(int a, double b)
{
    return a < b ? a : (int)ceil(b);
}

double accumulator_retention(const struct accumulator *a)
{
    int product = least_of(a->product, a->bits);
    if (!a->chunk || a->n <= a->chunk)
        return retention(a->bits, product, (double)a->n);
    double inner = (double)a->chunk, outer = (double)a->n / inner;
    return retention(a->bits, product, inner) *
           retention(a->bits, least_of(a->bits, product + log2(inner)), outer);
}

double accumulator_lost(const struct accumulator *a)
{
    return (double)a->n * (1 - accumulator_retention(a));
}

int accumulator_least(struct accumulator a)
{
    for (a.bits = 1; a.bits < ACCUMULATOR_BITS_MAX; a.bits++)
        if (accumulator_lost(&a) < ACCUMULATOR_LOST_MAX)
            break;
    return a.bits;
}

double accumulator_error(const struct accumulator *a, bool wide)
{
    enum { DRAWS = 2000, TERMS = 4 << 20 };
    const struct narrow form = {NARROW_F32_EXPONENT, a->bits},
                        product = {NARROW_F32_EXPONENT, least_of(a->product, a->bits)},
                        f32 = {NARROW_F32_EXPONENT, NARROW_F32_MANTISSA};
    const struct narrow outer = wide ? f32 : form;
    size_t draws = TERMS / a->n < DRAWS ? TERMS / a->n + 1 : DRAWS;
    double wrong = 0, all = 0;
    for (size_t d = 0; d < draws; d++) {
        double exact = 0;
        float sum = 0, part = 0;
        for (size_t i = 0; i < a->n; i++) {
            uint64_t at = d * a->n + i;
            float x =
                narrow_round(rng_normal(1, RNG_SIM, at) * rng_normal(2, RNG_SIM, at), product);
            part = narrow_round(part + x, form);
            exact += (double)x;
            if (a->chunk && ((i + 1) % a->chunk == 0 || i + 1 == a->n)) {
                sum = narrow_round(sum + part, outer);
                part = 0;
            }
        }
        double off = (double)(a->chunk ? sum : part) - exact;
        wrong += off * off, all += exact * exact;
    }
    return log2(sqrt(wrong / all));
}
