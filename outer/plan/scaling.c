/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/scaling.h"
#include <math.h>
#include <stdbool.h>
#include "kernels/base/mutant.h"

void scaling_fill(struct scaling *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct scaling *r = &rows[i];
        const struct scaling *before = i ? r - 1 : r;
        r->speedup = rows[0].seconds / r->seconds;
        r->efficiency = r->speedup * rows[0].n / r->n;
        r->hours = r->n * r->seconds / 3600;
        r->marginal = i ? log(before->seconds / r->seconds) / log(r->n / before->n) : 1;
    }
}

size_t scaling_knee(const struct scaling *rows, size_t count)
{
    size_t knee = 0;
    for (size_t i = 1; i < count; i++) {
        double now = rows[i].n * rows[i].seconds * rows[i].seconds;
        double best = rows[knee].n * rows[knee].seconds * rows[knee].seconds;
        bool pays = rows[i].efficiency >= SCALING_EFFICIENCY || WITHOUT(KNEE_EFFICIENCY);
        if (pays && now < best)
            knee = i;
    }
    return knee;
}
