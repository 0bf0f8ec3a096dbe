/* SPDX-License-Identifier: Apache-2.0 */
/* outer.replan: the aggregator amends outer.sync_every by itself when training no longer has its
 * share of the time (outer/diloco/replan.h). The sites say with their contributions how long they
 * trained and waited; how long the contribution of fragment 0 took, it measures. It decides when a
 * round is sealed and its manifest not made yet: that one carries the amendment. */
#include <inttypes.h>
#include <math.h>
#include "kernels/base/log.h"
#include "outer/organ/amend/amend_own.h"

/* Amendments that are left to operators. */
enum { REPLAN_LEAVES = AMENDMENTS_MAX / 4 };

/* Of the slowest site, which the others wait for. False: not known. */
static bool sites_measured(const struct amend_aggregator *x, uint64_t round, struct replan_round *r)
{
    r->waited_s = r->exchange_s = INFINITY;
    for (unsigned i = 0; i < x->a->members.count; i++) {
        const struct aggregator_pace *s = aggregator_spool_pace(x->a, i);
        if (!set_has(&x->a->fragment[0].seal_set, i))
            continue;
        if (s->round != round || !(s->pace.trained_s > 0))
            return false;
        r->trained_s = fmax(r->trained_s, s->pace.trained_s);
        r->waited_s = fmin(r->waited_s, s->pace.waited_s);
        r->exchange_s = fmin(r->exchange_s, s->pace.exchange_s);
        r->upload_s = fmax(r->upload_s, (double)s->ms / 1e3);
    }
    return isfinite(r->waited_s);
}

/* Of the round that is sealed now and of the one before. False: one of them was in full precision,
 * or nothing hid it. */
static bool round_measured(struct amend_aggregator *x, uint64_t round, struct replan_round *r)
{
    struct amend_replan *p = &x->replan;
    const struct schedule *s = &x->a->replica->schedule;
    const struct amendments *list = &x->list;
    bool before = p->round == round && !p->full_precision;
    p->round = round + 1;
    p->full_precision = round < s->full_precision_rounds ||
                        outer_state_codec(x->a->replica, 0) != schedule_codec(s, 0, round, 0);
    if (!before || p->full_precision || schedule_last(s, 0, round) ||
        schedule_last(s, 0, round - 1) || !sites_measured(x, round, r))
        return false;
    bool pending = list->count && list->list[list->count - 1].round > round;
    r->steps = pending ? 0 : schedule_step(s, 0, round) - schedule_step(s, 0, round - 1);
    r->fragments = s->fragments;
    return true;
}

enum err amend_replan_sealed(struct amend_aggregator *x, unsigned fragment, struct replan_round *r,
                             struct replan_plan *plan, bool *wanted)
{
    *wanted = false;
    struct amend_replan *p = &x->replan;
    *r = (struct replan_round){.upload_s = 0};
    struct settings s;
    struct outer_settings o;
    uint64_t round = x->a->replica->state[0].round;
    if (!x->settings || !x->settings->o->outer_replan || x->a->o->place.count > 1 || fragment ||
        p->round == round + 1 || x->list.count + REPLAN_LEAVES >= AMENDMENTS_MAX)
        return ERR_OK;
    if (!round_measured(x, round, r)) {
        p->plan = (struct replan){0};
        return ERR_OK;
    }
    struct arena scratch = arena_make(0);
    enum err e = amend_settings(&s, &o, x->settings, &x->list, round, &scratch);
    arena_free(&scratch);
    TRY(e);
    r->every = o.outer_sync_every;
    r->least = x->settings->o->outer_sync_every;
    *plan = replan_step(&p->plan, r);
    if (plan->longest && !p->longest)
        log_event(LOG_WARN, "replan",
                  "every=%" PRId64 " share=%.4f waited_s=%.3f why=\"training has less than %.0f %% "
                  "of the time and rounds may not be longer; atoll plan names a smaller codec\"",
                  r->every, plan->share, r->waited_s, 100 * REPLAN_SHARE);
    p->longest = plan->longest;
    *wanted = plan->every != r->every;
    return ERR_OK;
}
