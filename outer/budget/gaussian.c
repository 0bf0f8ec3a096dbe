/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/gaussian.h"
#include <math.h>

static const double LOG_SQRT_2PI = 0.91893853320467274178;

/* Standard normal density. */
static double gaussian_density(double x)
{
    return exp(-x * x / 2 - LOG_SQRT_2PI);
}

/* K of the continued fraction Phi(-x)/phi(x) = 1 / (x + K), K = 1 / (x + 2 / (x + 3 / ...)). x >=
 * 3: 300 terms leave no error (Abramowitz, Stegun 26.2.14). */
static double mills_fraction(double x)
{
    double k = 0;
    for (int i = 300; i >= 1; i--)
        k = i / (x + k);
    return k;
}

double gaussian_mills(double x)
{
    if (x < 3)
        return erfc(x * M_SQRT1_2) / 2 / gaussian_density(x);
    return 1 / (x + mills_fraction(x));
}

double gaussian_log_tail(double x)
{
    if (x < 3)
        return log(erfc(x * M_SQRT1_2) / 2);
    return -x * x / 2 - LOG_SQRT_2PI - log(x + mills_fraction(x));
}

/* Minus the derivative of Mills' ratio, 1 - x m(x), without cancellation. */
static double mills_fall(double x)
{
    if (x < 3)
        return 1 - x * gaussian_mills(x);
    double k = mills_fraction(x);
    return k / (x + k);
}

/* Mills' ratio at a less the one at a + mu. Small mu: the integral of the fall, Gauss-Legendre with
 * 6 nodes, since the difference cancels. */
static double mills_difference(double a, double mu)
{
    static const double node[3] = {0.23861918608319690863, 0.66120938646626451366,
                                   0.93246951420315202781};
    static const double weight[3] = {0.46791393457269104739, 0.36076157304813860757,
                                     0.17132449237917034504};
    double sum = 0;
    if (mu > 0.25)
        return gaussian_mills(a) - gaussian_mills(a + mu);
    for (int i = 0; i < 3; i++)
        sum += weight[i] *
               (mills_fall(a + mu / 2 * (1 - node[i])) + mills_fall(a + mu / 2 * (1 + node[i])));
    return mu / 2 * sum;
}

/* exp(eps) phi(a + mu) = phi(a) with a = eps/mu - mu/2: no exponential of eps is needed. */
double gaussian_delta(double mu, double epsilon)
{
    double a = epsilon / mu - mu / 2;
    if (a >= 0 || mu <= 0.25)
        return gaussian_density(a) * mills_difference(a, mu);
    return erfc(a * M_SQRT1_2) / 2 - gaussian_density(a) * gaussian_mills(a + mu);
}

double gaussian_epsilon(double mu, double delta)
{
    double low = 0, high = mu;
    if (gaussian_delta(mu, 0) <= delta)
        return 0;
    while (gaussian_delta(mu, high) > delta)
        high *= 2;
    for (double middle; (middle = (low + high) / 2) > low && middle < high;) {
        if (gaussian_delta(mu, middle) > delta)
            low = middle;
        else
            high = middle;
    }
    return high;
}

double gaussian_mu(double epsilon, double delta)
{
    double low = 1, high = 1;
    while (gaussian_delta(low, epsilon) > delta)
        low /= 2;
    while (gaussian_delta(high, epsilon) <= delta)
        high *= 2;
    for (double middle; (middle = (low + high) / 2) > low && middle < high;) {
        if (gaussian_delta(middle, epsilon) > delta)
            high = middle;
        else
            low = middle;
    }
    return low;
}
