/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan_private.h"
#include <math.h>
#include "outer/budget/gaussian.h"

double plan_private_signal(double expected, double noise, double values)
{
    return expected / (noise * sqrt(values));
}

double plan_private_unamplified(double q, int64_t steps, double epsilon, double delta)
{
    double times = ceil((double)steps / floor(1 / q));
    return sqrt(times) / gaussian_mu(epsilon, delta);
}

struct plan_site_level plan_site_level(int64_t rounds, double sites, double values, double epsilon,
                                       double delta)
{
    struct plan_site_level p = {.noise = sqrt((double)rounds) / gaussian_mu(epsilon, delta)};
    p.sites = p.noise * sqrt(values);
    p.ratio = p.sites / sites;
    return p;
}
