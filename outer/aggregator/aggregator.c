/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, the work between calls, closing. */
#include "outer/aggregator/aggregator.h"
#include <inttypes.h>
#include <math.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_identity.h"
#include "outer/aggregator/aggregator_masks.h"
#include "outer/aggregator/aggregator_scrub.h"
#include "outer/aggregator/aggregator_state.h"

uint64_t aggregator_final(const struct aggregator *a, unsigned fragment)
{
    return a->core.f[fragment].final;
}

/* Begins the commit of a sealed round that does not wait for space, one at a time. Returns when to
 * try again those that wait for space. */
static uint64_t commit_pending(struct aggregator *a, uint64_t now_ms)
{
    uint64_t wake_ms = UINT64_MAX;
    for (unsigned i = 0; i < a->core.fragments && a->state.failed == ERR_OK; i++) {
        struct aggregator_fragment *f = &a->fragment[i];
        bool ready = true;
        if (!f->sealed)
            continue;
        if (now_ms >= f->retry_ms && aggregator_commit_idle(a)) {
            enum err e = a->sums->ready(a, i, &ready);
            if (e == ERR_OK && ready)
                e = aggregator_organs_sealed(a, i);
            if (e != ERR_OK)
                aggregator_commit_later(a, i, e);
            else if (ready)
                aggregator_commit_begin(a, i);
        }
        if (ready && f->retry_ms < wake_ms)
            wake_ms = f->retry_ms;
    }
    return wake_ms;
}

static bool any_sealed(const struct aggregator *a, uint64_t now_ms)
{
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->fragment[i].sealed && now_ms >= a->fragment[i].retry_ms)
            return true;
    return false;
}

static uint64_t aggregator_work(void *self, bool *stop)
{
    struct aggregator *a = self;
    uint64_t wake_ms, now_ms;
    enum err e = aggregator_commit_next(a);
    if (e != ERR_OK)
        aggregator_halt(a, e);
    do { /* one seal a tick */
        struct round_event tick = {.kind = ROUND_TICK};
        struct round_update u;
        now_ms = aggregator_now(a);
        aggregator_step(a, &tick, &u);
    } while (a->state.failed == ERR_OK && !any_sealed(a, now_ms) && a->state.wake_ms <= now_ms);
    e = aggregator_organs_work(a);
    if (e != ERR_OK)
        aggregator_halt(a, e);
    aggregator_scrub_work(a);
    wake_ms = commit_pending(a, now_ms);
    uint64_t notice_ms = aggregator_notice(a, now_ms);
    aggregator_lines_flush(a, now_ms);
    wake_ms = a->state.wake_ms < wake_ms ? a->state.wake_ms : wake_ms;
    wake_ms = notice_ms < wake_ms ? notice_ms : wake_ms;
    aggregator_show(a);
    *stop = a->state.failed != ERR_OK;
    return wake_ms;
}

struct link_service aggregator_service(struct aggregator *a)
{
    return (struct link_service){
        .self = a,
        .known = aggregator_known,
        .revoked = aggregator_revoked,
        .hello = aggregator_hello,
        .offer = aggregator_offer,
        .chunk = aggregator_chunk,
        .store = aggregator_store,
        .stored = aggregator_stored,
        .finish = aggregator_finish,
        .verify = aggregator_verify,
        .verified = aggregator_verified,
        .poll = aggregator_poll,
        .fetch = aggregator_fetch,
        .fetched = aggregator_fetched,
        .report = aggregator_report,
        .leave = aggregator_leave,
        .mask = aggregator_mask,
        .operate = aggregator_operate,
        .work = aggregator_work,
        .commit = aggregator_commit_outside,
    };
}

/* Empty: what a directory says of them is read in aggregator_recover. */
static enum err aggregator_open_parts(struct aggregator *a, struct arena *perm)
{
    struct aggregator_parts *p = &a->part;
    TRY(aggregator_commit_open(&p->commit, perm));
    TRY(aggregator_spool_open(&p->spool, perm));
    TRY(aggregator_fetch_open(&p->fetches, perm));
    TRY(aggregator_quarantine_open(&p->quarantine, perm));
    TRY(aggregator_metrics_open(&p->metrics, perm));
    TRY(aggregator_notice_open(&p->notice, perm));
    TRY(a->signs->open(&p->signs, perm));
    return a->sums->open(&p->sums, perm);
}

enum err aggregator_open(struct aggregator **out, struct env *w, struct outer_state *m,
                         const struct aggregator_options *o, struct arena *perm)
{
    ASSERT(o->sites.count >= 1 && o->sites.count <= ROUND_SITES_MAX);
    ASSERT(m->fragments->count >= 1 && m->fragments->count <= ROUND_FRAGMENTS_MAX);
    *out = NULL;
    struct aggregator *a = arena_alloc(perm, sizeof *a);
    TRY_ALLOC(a);
    a->env = w;
    a->replica = m;
    struct aggregator_options *kept = arena_alloc(perm, sizeof *kept);
    TRY_ALLOC(kept);
    *kept = *o;
    a->o = kept;
    TRY(aggregator_core_open(a, perm));
    a->sums = o->masks.on ? &aggregator_sums_masked : &aggregator_sums_clear;
    a->signs = o->signer ? &aggregator_signs_identity : &aggregator_signs_nothing;
    TRY(aggregator_open_parts(a, perm));
    aggregator_members_begin(a);
    for (unsigned i = 0; i < o->sites.count; i++) {
        a->site[i].status.loss = a->site[i].status.tokens_per_second = NAN;
        aggregator_touch(a, i);
    }
    TRY(aggregator_recover(a, perm));
    if (a->state.failed != ERR_OK)
        return a->state.failed;
    if (o->files.revoked_path)
        TRY(revocation_open(&a->part.revocation, o->files.revoked_path, o->files.revoked_copy));
    TRY(aggregator_shown_open(&a->part.shown, perm));
    aggregator_show(a);
    log_event(LOG_INFO, "aggregator",
              "run=%s term=%" PRIu64 " mode=%s sites=%u fragments=%u quorum=%u", o->run,
              a->start.term, o->strict ? "strict" : "quorum", set_count(&a->members.roster.members),
              a->core.fragments, a->core.quorum);
    if (a->members.roster.version > 1)
        log_event(LOG_INFO, "roster", "version=%u sites=%u", a->members.roster.version,
                  set_count(&a->members.roster.members));
    *out = a;
    return aggregator_scrub_open(&a->part.scrub, a, perm);
}

void aggregator_close(struct aggregator *a)
{
    if (!a)
        return;
    aggregator_scrub_close(a->part.scrub);
    a->part.scrub = NULL;
    aggregator_spool_close(a);
    aggregator_fetch_close(a);
    aggregator_commit_close(a);
    a->sums->close(a);
    /* Without it the next start only asks for more bytes again. */
    if (a->state.failed == ERR_OK && aggregator_ended_write(a) != ERR_OK)
        err_clear();
    revocation_close(a->part.revocation);
    aggregator_shown_close(a->part.shown);
}
