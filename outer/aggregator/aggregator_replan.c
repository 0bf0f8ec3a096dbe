/* outer.replan: the aggregator amends outer.every by itself when training no longer has its share
 * of the time (outer/diloco/replan.h). The sites say with their contributions how long they trained
 * and waited; how long the contribution of fragment 0 took, it measures. It decides when a round is
 * sealed and its manifest not made yet: that one carries the amendment. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"

/* Amendments that are left to operators. */
enum { REPLAN_LEAVES = AMENDMENTS_MAX / 4 };

/* Of the slowest site, which the others wait for. False: not known. */
static bool sites_measured(const struct aggregator *a, uint64_t round, struct replan_round *r)
{
    r->waited_s = r->exchange_s = INFINITY;
    for (unsigned i = 0; i < a->o.site_count; i++) {
        const struct aggregator_site *s = &a->site[i];
        if (!set_has(&a->fragment[0].seal_set, i))
            continue;
        if (s->paced != round || !(s->pace.trained_s > 0))
            return false;
        r->trained_s = fmax(r->trained_s, s->pace.trained_s);
        r->waited_s = fmin(r->waited_s, s->pace.waited_s);
        r->exchange_s = fmin(r->exchange_s, s->pace.exchange_s);
        r->upload_s = fmax(r->upload_s, (double)s->paced_ms / 1e3);
    }
    return isfinite(r->waited_s);
}

/* Of the round that is sealed now and of the one before. False: one of them was in full precision,
 * or nothing hid it. */
static bool round_measured(struct aggregator *a, uint64_t round, struct replan_round *r)
{
    struct aggregator_replan *p = &a->replan;
    const struct schedule *s = &a->replica->schedule;
    const struct amendments *list = &a->amendments;
    bool before = p->round == round && !p->full_precision;
    p->round = round + 1;
    p->full_precision = round < s->full_precision_rounds ||
                        outer_state_codec(a->replica, 0) != schedule_codec(s, 0, round, 0);
    if (!before || p->full_precision || schedule_last(s, 0, round) ||
        schedule_last(s, 0, round - 1) || !sites_measured(a, round, r))
        return false;
    bool pending = list->count && list->list[list->count - 1].round > round;
    r->steps = pending ? 0 : schedule_step(s, 0, round) - schedule_step(s, 0, round - 1);
    r->fragments = s->fragments;
    return true;
}

static enum err every_amend(struct aggregator *a, const struct replan_round *r,
                            const struct replan_plan *plan)
{
    struct amendment one = {.round = 0};
    char author[AGGREGATOR_TEXT_MAX], quoted[2 * AGGREGATOR_TEXT_MAX];
    snprintf(author, sizeof author, "atoll://%s/aggregator", a->o.run);
    one.by = digest_of(author, strlen(author));
    snprintf(one.text, sizeof one.text, "outer.every=%" PRId64, plan->every);
    enum err e = aggregator_amend_may(a, &one);
    if (one.round >= schedule_rounds(&a->replica->schedule, 0)) { /* the run ends before */
        err_clear();
        return ERR_OK;
    }
    if (e == ERR_CONFIG || e == ERR_PROTO) {
        log_event(LOG_WARN, "replan", "setting=%s why=%s", one.text,
                  log_quote(quoted, sizeof quoted, err_message()));
        err_clear();
        return ERR_OK;
    }
    TRY(e);
    log_event(LOG_WARN, "replan",
              "every=%" PRId64 " before=%" PRId64 " from_round=%" PRIu64
              " share=%.4f trained_s=%.3f waited_s=%.3f planned_waited_s=%.3f",
              plan->every, r->every, one.round, plan->share, r->trained_s, r->waited_s,
              plan->waited_s);
    TRY(aggregator_amend_make(a, author, &one));
    struct aggregator_replanned told = {.number = a->amendments.count,
                                        .share = plan->share,
                                        .trained_s = r->trained_s,
                                        .waited_s = r->waited_s};
    if (a->o.replanned)
        a->o.replanned(a->o.self, &told);
    return ERR_OK;
}

enum err aggregator_replan(struct aggregator *a, unsigned fragment)
{
    struct aggregator_replan *p = &a->replan;
    struct replan_round r = {.upload_s = 0};
    struct settings s;
    struct outer_settings o;
    uint64_t round = a->replica->state[0].round;
    if (!a->o.replan || !a->o.settings || a->o.count > 1 || fragment || p->round == round + 1 ||
        a->amendments.count + REPLAN_LEAVES >= AMENDMENTS_MAX)
        return ERR_OK;
    if (!round_measured(a, round, &r)) {
        p->plan = (struct replan){0};
        return ERR_OK;
    }
    struct arena scratch = arena_make(0);
    enum err e = amend_settings(&s, &o, a->o.settings, &a->amendments, round, &scratch);
    arena_free(&scratch);
    TRY(e);
    r.every = o.outer_every;
    r.least = a->o.settings->o->outer_every;
    struct replan_plan plan = replan_step(&p->plan, &r);
    if (plan.longest && !p->longest)
        log_event(LOG_WARN, "replan",
                  "every=%" PRId64 " share=%.4f waited_s=%.3f why=\"training has less than %.0f %% "
                  "of the time and rounds may not be longer; atoll plan names a smaller codec\"",
                  r.every, plan.share, r.waited_s, 100 * REPLAN_SHARE);
    p->longest = plan.longest;
    return plan.every == r.every ? ERR_OK : every_amend(a, &r, &plan);
}
