/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads may see of the aggregator, as it was after the last work(). */
#include <string.h>
#include <pthread.h>
#include "outer/aggregator/aggregator_state.h"

struct aggregator_shown {
    pthread_mutex_t mutex; /* guards all of it */
    struct aggregator_status status;
    struct { /* the parts of a site's missing_ms, read when a display asks */
        uint64_t first_ms;
        struct set missing;
    } waiting[ROUND_FRAGMENTS_MAX];
};

enum err aggregator_shown_open(struct aggregator_shown **out, struct arena *perm)
{
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    pthread_mutex_init(&(*out)->mutex, NULL);
    return ERR_OK;
}

void aggregator_shown_close(struct aggregator_shown *s)
{
    pthread_mutex_destroy(&s->mutex);
}

/* Since when some round waits for this site. */
static uint64_t missing_since(const struct aggregator_shown *s, unsigned site)
{
    uint64_t since = UINT64_MAX;
    for (unsigned i = 0; i < s->status.fragments; i++)
        if (set_has(&s->waiting[i].missing, site) && s->waiting[i].first_ms < since)
            since = s->waiting[i].first_ms;
    return since == UINT64_MAX ? 0 : since;
}

/* Only the sites that were heard of: after every call, so its cost must not grow with their number.
 */
static void show_sites(struct aggregator *a)
{
    struct set touched = aggregator_touched(a);
    struct aggregator_status *s = &a->part.shown->status;
    for (unsigned w = 0; w < SET_WORDS; w++)
        for (; touched.word[w]; touched.word[w] &= touched.word[w] - 1) {
            unsigned i = 64 * w + (unsigned)__builtin_ctzll(touched.word[w]);
            struct aggregator_site_status *to = &s->site[i];
            bool before = to->bound;
            a->site[i].status.bound = a->core.s[i].bound;
            a->site[i].status.quarantined = aggregator_quarantined(a, i);
            a->site[i].status.removed = !aggregator_serves_site(a, i);
            a->site[i].status.name = a->members.names[i];
            *to = a->site[i].status;
            s->bound += (unsigned)to->bound - (unsigned)before;
        }
}

void aggregator_show(struct aggregator *a)
{
    struct aggregator_shown *x = a->part.shown;
    struct aggregator_status *s = &x->status;
    pthread_mutex_lock(&x->mutex);
    const char *owes;
    s->sites = a->members.count;
    s->fragments = a->core.fragments;
    show_sites(a);
    for (unsigned i = 0; i < a->core.fragments; i++) {
        x->waiting[i].first_ms = a->fragment[i].first_ms;
        x->waiting[i].missing = aggregator_missing_of(a, i, &owes);
        s->round[i] = a->core.f[i].round;
        s->rounds[i] = aggregator_rounds(a, i);
    }
    s->term = a->start.term;
    s->payload_up = aggregator_spool_bytes(a);
    s->payload_down = aggregator_fetch_bytes(a);
    s->done = aggregator_all_done(a);
    s->failed = a->state.failed;
    memcpy(s->why, a->state.why, sizeof s->why);
    pthread_mutex_unlock(&x->mutex);
}

void aggregator_status(const struct aggregator *a, struct aggregator_status *out)
{
    struct aggregator_shown *x = a->part.shown;
    pthread_mutex_lock(&x->mutex);
    *out = x->status;
    for (unsigned i = 0; i < out->sites; i++)
        out->site[i].missing_ms = missing_since(x, i);
    pthread_mutex_unlock(&x->mutex);
}

bool aggregator_done(const struct aggregator *a)
{
    struct aggregator_shown *x = a->part.shown;
    pthread_mutex_lock(&x->mutex);
    bool done = x->status.done;
    pthread_mutex_unlock(&x->mutex);
    return done;
}

enum err aggregator_failed(const struct aggregator *a)
{
    struct aggregator_shown *x = a->part.shown;
    pthread_mutex_lock(&x->mutex);
    enum err e = x->status.failed;
    if (e != ERR_OK)
        err_set(e, "%s", x->status.why);
    pthread_mutex_unlock(&x->mutex);
    return e;
}
