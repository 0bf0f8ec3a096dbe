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

bool anneal_restarts(const struct anneal *a, const struct schedule *s, unsigned fragment,
                     uint64_t round)
{
    if (!round)
        return false;
    if (a->kind != ANNEAL_CONSTANT && schedule_last(s, fragment, round - 1))
        return true;
    return a->restart && round % a->restart == 0;
}
