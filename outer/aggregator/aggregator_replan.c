/* outer.replan: the aggregator amends outer.every by itself when training no longer has its share
 * of the time (outer/diloco/replan.h). It measures what every round took, from commit to commit,
 * and knows the steps' time from the sites' reports. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/diloco/replan.h"

/* Seconds of a step of the slowest site; 0: a site of the round has not reported any. */
static double slowest_step_s(const struct aggregator *a, const struct manifest *m)
{
    double slowest = 0;
    for (uint32_t i = 0; i < m->site_count; i++) {
        const struct aggregator_site_status *s = &a->site[m->sites[i].site].status;
        if (!m->sites[i].included)
            continue;
        if (!(s->tokens_per_second > 0) || s->step < 1 || !s->tokens)
            return 0;
        double step_s = (double)s->tokens / (double)s->step / s->tokens_per_second;
        slowest = step_s > slowest ? step_s : slowest;
    }
    return slowest;
}

/* Of the round that was committed just now, which began with the download of the one before; false:
 * it says nothing of the next ones. */
static bool round_measured(struct aggregator *a, const struct manifest *m, struct replan_round *r)
{
    const struct schedule *s = &a->replica->schedule;
    const struct amendments *list = &a->amendments;
    uint64_t now_ms = aggregator_now(a), before_ms = a->replan_ms;
    a->replan_ms = now_ms;
    if (!before_ms || now_ms == before_ms || !m->round || m->round <= s->full_precision_rounds ||
        manifest_aborted(m) || schedule_last(s, 0, m->round) || schedule_last(s, 0, m->round - 1) ||
        (list->count && list->list[list->count - 1].round > m->round))
        return false;
    r->round_s = (double)(now_ms - before_ms) / 1e3;
    r->step_s = slowest_step_s(a, m);
    r->steps = schedule_step(s, 0, m->round) - schedule_step(s, 0, m->round - 1);
    r->fragments = s->fragments;
    return r->step_s > 0;
}

static enum err every_amend(struct aggregator *a, const struct replan_round *r, int64_t every)
{
    struct amendment one = {.round = 0};
    char author[AGGREGATOR_TEXT_MAX], quoted[2 * AGGREGATOR_TEXT_MAX];
    snprintf(author, sizeof author, "atoll://%s/aggregator", a->o.run);
    one.by = digest_of(author, strlen(author));
    snprintf(one.text, sizeof one.text, "outer.every=%" PRId64, every);
    enum err e = aggregator_amend_may(a, &one);
    if (e == ERR_CONFIG || e == ERR_PROTO) {
        log_event(LOG_WARN, "replan", "setting=%s why=%s", one.text,
                  log_quote(quoted, sizeof quoted, err_message()));
        err_clear();
        return ERR_OK;
    }
    TRY(e);
    log_event(LOG_WARN, "replan",
              "every=%" PRId64 " before=%" PRId64 " from_round=%" PRIu64
              " share=%.4f round_s=%.3f step_s=%.6f",
              every, r->every, one.round, replan_share(r), r->round_s, r->step_s);
    return aggregator_amend_make(a, author, &one);
}

enum err aggregator_replan(struct aggregator *a, const struct manifest *m)
{
    struct replan_round r;
    struct settings s;
    struct outer_settings o;
    struct arena scratch = arena_make(0);
    if (!a->o.replan || !a->o.settings || a->o.count > 1 || m->fragment != 0 ||
        !round_measured(a, m, &r))
        return ERR_OK;
    enum err e = amend_settings(&s, &o, a->o.settings, &a->amendments, m->round, &scratch);
    arena_free(&scratch);
    TRY(e);
    r.every = o.outer_every;
    r.least = a->o.settings->o->outer_every;
    int64_t every = replan_every(&r);
    a->replan_calm = every < r.every ? a->replan_calm + 1 : 0;
    if (every == r.every || (every < r.every && a->replan_calm < REPLAN_CALM))
        return ERR_OK;
    a->replan_calm = 0;
    return every_amend(a, &r, every);
}
