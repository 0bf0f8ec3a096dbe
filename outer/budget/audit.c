/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/audit.h"
#include <math.h>

/* log(n! / (k! (n-k)!)). */
static double log_choose(double n, double k)
{
    int sign;
    return lgamma_r(n + 1, &sign) - lgamma_r(k + 1, &sign) - lgamma_r(n - k + 1, &sign);
}

/* Right guesses of epsilon-DP randomised response: binomial(r, q), q = 1 / (1 + exp(-epsilon)).
 * Under (epsilon, delta)-DP the probability of v or more is at most P[binomial >= v] + 2 m delta
 * max_i P[v > binomial >= v - i] / i. */
double audit_p_value(const struct audit *a, double epsilon, double delta)
{
    const double r = (double)a->guesses, v = (double)a->correct;
    const double odds = exp(epsilon); /* q / (1 - q) */
    const double log_q = -log1p(1 / odds), log_not_q = log_q - epsilon;
    const double at_v = exp(log_choose(r, v) + v * log_q + (r - v) * log_not_q);
    double beta = 0, alpha = 0, sum = 0, mass = at_v;
    for (double k = v; k <= r; k++) {
        beta += mass;
        mass *= (r - k) / (k + 1) * odds;
    }
    mass = at_v;
    for (double i = 1; i <= v; i++) {
        mass *= (v - i + 1) / (r - v + i) / odds; /* P[binomial = v - i] */
        sum += mass;
        alpha = fmax(alpha, sum / i);
    }
    return fmin(1, beta + 2 * (double)a->canaries * delta * alpha);
}

double audit_epsilon(const struct audit *a, double delta, double confidence)
{
    double low = 0, high = 1;
    if (audit_p_value(a, 0, delta) >= 1 - confidence)
        return 0;
    while (audit_p_value(a, high, delta) < 1 - confidence)
        high *= 2;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (audit_p_value(a, middle, delta) < 1 - confidence)
            low = middle;
        else
            high = middle;
    }
    return low;
}
