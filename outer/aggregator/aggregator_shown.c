/* What other threads may see of the aggregator, as it was after the last work(). */
#include <string.h>
#include "outer/aggregator/aggregator_state.h"

/* Since when some round waits for this site. */
static uint64_t missing_since(const struct aggregator *a, unsigned site)
{
    uint64_t since = UINT64_MAX;
    for (unsigned i = 0; i < a->shown.status.fragments; i++)
        if (set_has(&a->shown.waiting[i].missing, site) && a->shown.waiting[i].first_ms < since)
            since = a->shown.waiting[i].first_ms;
    return since == UINT64_MAX ? 0 : since;
}

/* Only the sites that were heard of: after every call, so its cost must not grow with their number.
 */
static void show_sites(struct aggregator *a)
{
    for (unsigned w = 0; w < SET_WORDS; w++)
        for (; a->touched.word[w]; a->touched.word[w] &= a->touched.word[w] - 1) {
            unsigned i = 64 * w + (unsigned)__builtin_ctzll(a->touched.word[w]);
            struct aggregator_site_status *to = &a->shown.status.site[i];
            bool before = to->bound;
            a->site[i].status.bound = a->core.s[i].bound;
            a->site[i].status.quarantined = aggregator_quarantined(a, i);
            a->site[i].status.removed = !aggregator_serves_site(a, i);
            a->site[i].status.name = a->members.names[i];
            *to = a->site[i].status;
            a->shown.status.bound += (unsigned)to->bound - (unsigned)before;
        }
}

void aggregator_show(struct aggregator *a)
{
    pthread_mutex_lock(&a->mutex);
    struct aggregator_status *s = &a->shown.status;
    const char *owes;
    s->sites = a->members.count;
    s->fragments = a->core.fragments;
    show_sites(a);
    for (unsigned i = 0; i < a->core.fragments; i++) {
        a->shown.waiting[i].first_ms = a->fragment[i].first_ms;
        a->shown.waiting[i].missing = aggregator_missing_of(a, i, &owes);
        s->round[i] = a->core.f[i].round;
        s->rounds[i] = aggregator_rounds(a, i);
    }
    s->epoch = a->start.epoch;
    s->payload_up = a->payload_up;
    s->payload_down = a->payload_down;
    s->done = aggregator_all_done(a);
    s->failed = a->failed;
    memcpy(s->why, a->why, sizeof s->why);
    pthread_mutex_unlock(&a->mutex);
}

void aggregator_status(const struct aggregator *a, struct aggregator_status *out)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    *out = a->shown.status;
    for (unsigned i = 0; i < out->sites; i++)
        out->site[i].missing_ms = missing_since(a, i);
    pthread_mutex_unlock(mutex);
}

bool aggregator_done(const struct aggregator *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    bool done = a->shown.status.done;
    pthread_mutex_unlock(mutex);
    return done;
}

enum err aggregator_failed(const struct aggregator *a)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)(uintptr_t)&a->mutex;
    pthread_mutex_lock(mutex);
    enum err e = a->shown.status.failed;
    if (e != ERR_OK)
        err_set(e, "%s", a->shown.status.why);
    pthread_mutex_unlock(mutex);
    return e;
}
