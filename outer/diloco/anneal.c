/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/anneal.h"

/* (1 + cos(pi x)) / 2 = (1 - sin(pi (x - 1/2))) / 2, by sin's series to 1e-15. */
static double half_cosine(double x)
{
    const double t = 3.14159265358979323846 * (x - 0.5), square = t * t;
    double sine = 0, term = t;
    for (int k = 1; k <= 21; k += 2) {
        sine += term;
        term *= -square / (double)((k + 1) * (k + 2));
    }
    return (1 - sine) / 2;
}

double anneal_share(const struct anneal *a, double progress)
{
    if (a->kind == ANNEAL_LINEAR)
        return 1 - (1 - a->end) * progress;
    if (a->kind == ANNEAL_COSINE)
        return a->end + (1 - a->end) * half_cosine(progress);
    return 1;
}

float anneal_rate(const struct anneal *a, float lr, const struct schedule *s, unsigned fragment,
                  uint64_t round)
{
    if (a->kind == ANNEAL_CONSTANT)
        return lr;
    int64_t step = schedule_step(s, fragment, round);
    return (float)((double)lr * anneal_share(a, (double)step / (double)schedule_end_of(s, step)));
}

/* Settings are at most 1e9 rounds of 1e6 steps: whole numbers below 2^53, so that a share has one
 * rounding. */
float anneal_momentum(const struct anneal *a, float mu, const struct schedule *s, unsigned fragment,
                      uint64_t round)
{
    double m = (double)mu, start = (double)a->momentum_start, end = (double)a->momentum_end;
    if (round < a->warmup)
        m = start + (m - start) * ((double)round / (double)a->warmup);
    if (a->cooldown) {
        int64_t step = schedule_step(s, fragment, round), left = schedule_end_of(s, step) - step,
                over = (int64_t)a->cooldown * schedule_length(s, fragment, round);
        if (left < over)
            m = end + (m - end) * ((double)left / (double)over);
    }
    return (float)m;
}

enum err anneal_check(const struct anneal *a, const struct schedule *s)
{
    uint64_t rounds = schedule_rounds(s, 0);
    if (a->warmup + a->cooldown > rounds)
        return err_set(ERR_CONFIG,
                       "outer.momentum_warmup = %llu and outer.momentum_cooldown = %llu are %llu "
                       "rounds, and the run has %llu with train.steps = %lld; lower them, or raise "
                       "train.steps",
                       (unsigned long long)a->warmup, (unsigned long long)a->cooldown,
                       (unsigned long long)(a->warmup + a->cooldown), (unsigned long long)rounds,
                       (long long)s->steps);
    return ERR_OK;
}

bool anneal_restarts(const struct anneal *a, const struct schedule *s, unsigned fragment,
                     uint64_t round)
{
    if (!round)
        return false;
    if (a->kind != ANNEAL_CONSTANT && schedule_last(s, fragment, round - 1))
        return true;
    return a->restart && round % a->restart == 0;
}
