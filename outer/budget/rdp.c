/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/rdp.h"
#include <math.h>

const double rdp_orders[RDP_ORDERS] = {
    2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,  22,  23,  24,
    25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44,  45,  46,  47,
    48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 80, 96, 128, 192, 256, 512};

struct log_sum { /* of positive terms given by their logarithms */
    double top, sum;
};

static void log_sum_add(struct log_sum *s, double term)
{
    if (term == -INFINITY)
        return;
    if (s->sum == 0 || term > s->top) {
        s->sum = s->sum * exp(s->sum == 0 ? 0 : s->top - term) + 1;
        s->top = term;
    } else {
        s->sum += exp(term - s->top);
    }
}

static double log_sum_end(const struct log_sum *s)
{
    return s->sum == 0 ? -INFINITY : s->top + log(s->sum);
}

/* log(exp(x) - 1), x > 0. */
static double log_expm1(double x)
{
    return x > 36 ? x : log(expm1(x));
}

/* log(1 + exp(x)). */
static double log1p_exp(double x)
{
    return x > 36 ? x : log1p(exp(x));
}

/* log(A - 1) of integer alpha. The binomial terms add up to 1, so 1 is taken off term by term:
 *     A - 1 = sum_{k>=2} C(alpha,k) (1-q)^(alpha-k) q^k (exp((k^2-k)/(2 s^2)) - 1). */
static double excess_integer(double q, double noise, double alpha)
{
    struct log_sum s = {0};
    double binomial = log(alpha); /* log C(alpha, 1) */
    for (double k = 2; k <= alpha; k++) {
        binomial += log((alpha - k + 1) / k);
        log_sum_add(&s, binomial + (alpha - k) * log1p(-q) + k * log(q) +
                            log_expm1((k * k - k) / (2 * noise * noise)));
    }
    return log_sum_end(&s);
}

/* log((1+u)^alpha - 1 - alpha u), u = q (exp(y) - 1) >= -q: never negative, as alpha > 1. */
static double log_bernoulli(double q, double y, double alpha)
{
    double u = y < 600 ? q * expm1(y) : INFINITY;
    double t = alpha * (y < 600 ? log1p(u) : log(q) + y);
    if (fabs(u) < 0.02 && alpha * fabs(u) < 0.5) {
        double sum = 0, term = alpha * u;
        for (int k = 2; k < 60; k++)
            sum += term *= u * (alpha - k + 1) / k;
        return sum > 0 ? log(sum) : -INFINITY;
    }
    if (t > 600) /* alpha u = alpha exp(t / alpha) to double precision */
        return t + log1p(-exp(log(alpha) + t / alpha - t));
    return log(expm1(t) - alpha * u);
}

/* log(A - 1) of any alpha: A - 1 = E[(1+u)^alpha - 1 - alpha u], x ~ N(0, noise^2), y = (2x-1)/(2
 * noise^2), since E[u] = 0. No term is negative, so nothing cancels. The integrand is analytic up
 * to |Im x| = pi noise^2, where 1 + u can be 0; the step makes the trapezoidal rule's error, about
 * exp(-2 pi Im x / step), vanish (Trefethen, Weideman 2014, theorem 5.1). */
static double excess_integral(double q, double noise, double alpha)
{
    const double variance = noise * noise;
    const double step =
        fmin(noise / 4, 2 * M_PI * M_PI * variance / (45 + M_PI * M_PI * variance / 2));
    const double end = alpha + 11 * noise;
    struct log_sum s = {0};
    for (double i = floor(-11 * noise / step); i * step <= end; i++) {
        double x = i * step;
        log_sum_add(&s, -x * x / (2 * variance) +
                            log_bernoulli(q, (2 * x - 1) / (2 * variance), alpha));
    }
    return log_sum_end(&s) + log(step / noise) - 0.91893853320467274178; /* log sqrt(2 pi) */
}

double rdp_step(double q, double noise, double alpha)
{
    if (q == 0)
        return 0;
    if (q == 1)
        return alpha / (2 * noise * noise);
    double excess =
        alpha == floor(alpha) ? excess_integer(q, noise, alpha) : excess_integral(q, noise, alpha);
    return log1p_exp(excess) / (alpha - 1);
}

void rdp_compose(double *out, const double *orders, size_t count, const struct sampled_steps *s,
                 size_t settings)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = 0;
        for (size_t k = 0; k < settings; k++)
            out[i] += (double)s[k].steps * rdp_step(s[k].q, s[k].noise, orders[i]);
    }
}

double rdp_epsilon(const double *orders, const double *rdp, size_t count, double delta,
                   double *order)
{
    double best = INFINITY;
    *order = 0;
    for (size_t i = 0; i < count; i++) {
        double alpha = orders[i];
        double e = rdp[i] + log1p(-1 / alpha) - (log(delta) + log(alpha)) / (alpha - 1);
        if (e < best) {
            best = e;
            *order = alpha;
        }
    }
    return fmax(0, best);
}
