/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/replan.h"
#include <math.h>

/* The largest number of steps of a round. */
static int64_t interval_longest(const struct replan_round *r)
{
    int64_t parts = r->fragments, most = REPLAN_TIMES * r->least;
    return (most > REPLAN_EVERY_MAX ? most : REPLAN_EVERY_MAX) / parts * parts;
}

/* Steps that leave training its share where a round waits so long. */
static int64_t every_for(const struct replan_round *r, double waited_s)
{
    double step_s = r->trained_s / (double)r->steps;
    double steps = ceil(waited_s / step_s * REPLAN_AIM / (1 - REPLAN_AIM));
    int64_t parts = r->fragments, most = interval_longest(r);
    if (!(steps < (double)most))
        return most;
    return steps > 1 ? ((int64_t)steps + parts - 1) / parts * parts : parts;
}

static double trained_share(const struct replan_round *r, double waited_s)
{
    return r->trained_s / (r->trained_s + waited_s);
}

/* What of the waiting is believed: of the exchange no more than what the one before took, on a link
 * as slow as two uploads say, and what it takes on a link as fast as the last one says. */
static double confirmed_s(const struct replan *p, const struct replan_round *r)
{
    double before_s = p->upload_s[1], upload_s = p->upload_s[0], now_s = r->upload_s;
    double slower = before_s > 0 ? fmax(1, fmin(upload_s, now_s) / before_s) : 1;
    double faster = upload_s > 0 ? fmin(1, now_s / upload_s) : 1;
    double exchange_s = fmin(r->exchange_s * faster, p->exchange_s * slower);
    return fmax(0, r->waited_s - r->fragments * fmax(0, r->exchange_s - exchange_s));
}

static int64_t interval_lengthen(struct replan *p, const struct replan_round *r, double waited_s)
{
    p->calm = 0;
    p->missed++;
    if (p->missed < REPLAN_MISSES && trained_share(r, waited_s) >= REPLAN_MISSED)
        return r->every;
    int64_t wanted = every_for(r, waited_s);
    wanted = wanted < REPLAN_TIMES * r->every ? wanted : REPLAN_TIMES * r->every;
    return wanted > r->every ? wanted : r->every;
}

/* The configured number, where it does; else half as many or fewer. */
static int64_t interval_shorten(struct replan *p, const struct replan_round *r)
{
    double least_s = r->trained_s / (double)r->steps * (double)r->least;
    p->missed = 0;
    p->calm_s = p->calm ? fmax(p->calm_s, r->waited_s) : r->waited_s;
    int64_t wanted = every_for(r, p->calm_s);
    if (least_s >= REPLAN_CALM * (least_s + p->calm_s) || wanted < r->least)
        wanted = r->least;
    if (wanted >= r->every || (wanted > r->least && 2 * wanted > r->every)) {
        p->calm = 0;
        return r->every;
    }
    p->calm++;
    return p->calm < REPLAN_ROUNDS ? r->every : wanted;
}

static void replan_round_keep(struct replan *p, const struct replan_round *r)
{
    p->known += p->known < 2;
    p->exchange_s = r->exchange_s;
    p->upload_s[1] = p->upload_s[0];
    p->upload_s[0] = r->upload_s;
}

struct replan_plan replan_step(struct replan *p, const struct replan_round *r)
{
    struct replan_plan plan = {.every = r->every, .share = 1};
    if (r->steps) {
        plan.share = trained_share(r, r->waited_s);
        plan.waited_s = p->known == 2 ? confirmed_s(p, r) : 0;
        bool missed = trained_share(r, plan.waited_s) < REPLAN_SHARE;
        plan.every = missed ? interval_lengthen(p, r, plan.waited_s) : interval_shorten(p, r);
        plan.longest = missed && r->every >= interval_longest(r);
    }
    if (!r->steps || plan.every != r->every)
        p->calm = p->missed = 0;
    replan_round_keep(p, r);
    return plan;
}
