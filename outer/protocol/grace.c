/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/protocol/grace.h"

static const double NEWEST = 0.25; /* share of the newest measurement */

static void mean_smooth(double *mean, double value)
{
    *mean = *mean > 0 ? *mean + NEWEST * (value - *mean) : value;
}

void grace_contribution(struct grace *g, uint64_t now_ms, bool majority)
{
    double since = (double)(now_ms - g->first_ms);
    if (!g->began) {
        /* A round that training waited for took longer than its steps: a shorter one counts at
         * once. */
        if (g->timed && since < g->round_ms)
            g->round_ms = since;
        else if (g->timed)
            mean_smooth(&g->round_ms, since);
        g->first_ms = now_ms;
        g->began = g->timed = true;
    }
    if (majority && !g->majority) {
        g->majority = true;
        g->majority_ms = now_ms;
    }
}

void grace_contribution_lost(struct grace *g)
{
    g->majority = false;
}

void grace_sealed(struct grace *g, uint64_t now_ms)
{
    g->sealed = true;
    g->sealed_ms = now_ms;
}

void grace_committed(struct grace *g)
{
    g->began = g->majority = false;
    g->adopted = 0;
}

void grace_adopted(struct grace *g, uint64_t now_ms, unsigned majority)
{
    if (++g->adopted == majority && g->sealed) {
        mean_smooth(&g->exchange_ms, (double)(now_ms - g->sealed_ms));
        g->sealed = false;
    }
}

uint64_t grace_until(const struct grace *g, const struct grace_rule *rule)
{
    if (rule->gamma <= 0 || !g->majority || !(g->round_ms > 0))
        return UINT64_MAX;
    double slack =
        rule->overlap * g->round_ms - g->exchange_ms - (double)(g->majority_ms - g->first_ms);
    return g->majority_ms + (slack > 0 ? (uint64_t)(rule->gamma * slack) : 0);
}
