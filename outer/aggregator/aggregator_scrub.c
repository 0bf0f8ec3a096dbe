/* SPDX-License-Identifier: Apache-2.0 */
/* The scrub of the aggregator's directory (outer/store/scrub.h): which files it reads, and how each
 * is repaired. The scrub's thread finds the damage and waits; the thread of work() repairs, so that
 * nothing else writes meanwhile: small files under the lock, states outside it, in the place of a
 * commit.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/aggregator/aggregator_scrub.h"

enum { ASKED_MS = 100 };           /* how often the scrub's thread looks whether it is done */
enum repair_kind {                 /* of a file that the scrub found damaged */
                   REPAIR_STATE,   /* outside, as a commit: frag/F/R/state */
                   REPAIR_CURRENT, /* outside: frag/F/CURRENT */
                   REPAIR_HISTORY, /* frag/F/R/MANIFEST and aggregate: no other copy here */
                   REPAIR_PAYLOAD, /* the site is asked for it again */
                   REPAIR_MEMORY   /* a small one, of which all is in memory */
};
enum repair_state { REPAIR_NONE, REPAIR_WANTED, REPAIR_TAKEN, REPAIR_DONE };
struct aggregator_scrub { /* the scrub's thread asks, the thread of work() does it */
    struct scrub *scrub;
    pthread_mutex_t mutex;   /* guards: */
    enum repair_state state; /* all else is the thread's whose turn it is */
    enum repair_kind kind;
    uint64_t fragment, round;
    char path[SCRUB_PATH_MAX];
    enum err e;
    char why[AGGREGATOR_TEXT_MAX];
};

/* ---- the scrub's thread ---- */

static bool repair_over(struct aggregator *a)
{
    pthread_mutex_lock(&a->part.scrub->mutex);
    bool over = a->part.scrub->state == REPAIR_DONE;
    if (over)
        a->part.scrub->state = REPAIR_NONE;
    pthread_mutex_unlock(&a->part.scrub->mutex);
    return over;
}

static enum err repair_ask(struct aggregator *a, enum repair_kind kind, const struct scrub_file *f)
{
    struct aggregator_scrub *r = a->part.scrub;
    pthread_mutex_lock(&a->part.scrub->mutex);
    ASSERT(r->state == REPAIR_NONE);
    r->kind = kind;
    r->fragment = f->number[0];
    r->round = f->number[1];
    snprintf(r->path, sizeof r->path, "%s", f->path);
    r->state = REPAIR_WANTED;
    pthread_mutex_unlock(&a->part.scrub->mutex);
    while (!repair_over(a))
        if (scrub_wait(r->scrub, ASKED_MS))
            return ERR_STOPPED;
    return r->e == ERR_OK ? ERR_OK : err_set(r->e, "%s", r->why);
}

#define REPAIR(name, kind)                                                                         \
    static enum err name(void *self, const struct scrub_file *f)                                   \
    {                                                                                              \
        return repair_ask(self, kind, f);                                                          \
    }
REPAIR(state_mend, REPAIR_STATE)
REPAIR(current_mend, REPAIR_CURRENT)
REPAIR(history_mend, REPAIR_HISTORY)
REPAIR(payload_mend, REPAIR_PAYLOAD)
REPAIR(memory_mend, REPAIR_MEMORY)
#undef REPAIR

static const struct scrub_row rows[] = {
    {AGGREGATOR_JOURNAL, SCRUB_JOURNAL, memory_mend, "keep this process running; see its disk"},
    {AGGREGATOR_TERM, SCRUB_RECORD, memory_mend, "keep this process running; see its disk"},
    {AGGREGATOR_IDENTITIES, SCRUB_RECORD, memory_mend, "keep this process running; see its disk"},
    {"begun", SCRUB_RECORD, memory_mend, "keep this process running; see its disk"},
    {"frag/#/CURRENT", SCRUB_RECORD, current_mend, "keep this process running; see its disk"},
    {"frag/#/#/state", SCRUB_RECORD, state_mend,
     "replace the disk; the next rounds write other states"},
    {"frag/#/#/MANIFEST", SCRUB_RECORD, history_mend,
     "copy the file of the same name from a site's run.dir"},
    {"frag/#/#/aggregate", SCRUB_AGGREGATE, history_mend,
     "copy the file of the same name from a site's run.dir"},
    {"spool/#/#/*", SCRUB_NAMED, payload_mend, "replace the disk"},
};

enum err aggregator_scrub_open(struct aggregator_scrub **out, struct aggregator *a,
                               struct arena *perm)
{
    const struct scrub_options o = {.rows = rows,
                                    .row_count = sizeof rows / sizeof *rows,
                                    .every_ms = a->o->files.scrub_every_ms,
                                    .bytes_per_s = a->o->files.scrub_bytes_per_s,
                                    .self = a};
    if (!o.every_ms)
        return ERR_OK;
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    pthread_mutex_init(&(*out)->mutex, NULL);
    return scrub_open(&(*out)->scrub, a->env, &o);
}

void aggregator_scrub_close(struct aggregator_scrub *r)
{
    if (!r)
        return;
    scrub_close(r->scrub);
    pthread_mutex_destroy(&r->mutex);
}

bool aggregator_scrub_counts(const struct aggregator *a, struct scrub_counts *out)
{
    struct aggregator_scrub *r = a->part.scrub;
    *out = (struct scrub_counts){0};
    if (!r)
        return false;
    scrub_counts(r->scrub, out);
    pthread_mutex_lock(&r->mutex);
    bool wanted = r->state == REPAIR_WANTED;
    pthread_mutex_unlock(&r->mutex);
    return wanted;
}

/* ---- the thread of work() ---- */

static void repair_result(struct aggregator *a, enum err e)
{
    a->part.scrub->e = e;
    snprintf(a->part.scrub->why, sizeof a->part.scrub->why, "%s", e == ERR_OK ? "" : err_message());
}

static void repair_end(struct aggregator *a)
{
    pthread_mutex_lock(&a->part.scrub->mutex);
    a->part.scrub->state = REPAIR_DONE;
    pthread_mutex_unlock(&a->part.scrub->mutex);
}

/* ERR_INPUT: the round is over, the contribution is not journalled yet, or a commit reads it now,
 * which verifies it too. */
static enum err repair_payload(struct aggregator *a)
{
    const struct aggregator_scrub *r = a->part.scrub;
    const struct round_fragment *f = &a->core.f[r->fragment];
    if (r->round + 1 == f->round && a->replica->o.compresses_downlink)
        return err_set(ERR_CORRUPT, "the round is over and its site keeps it no longer; it is "
                                    "needed only if a state turns out damaged, too");
    if (r->round != f->round || a->fragment[r->fragment].sealed)
        return ERR_INPUT;
    for (unsigned i = 0; i < a->members.count; i++) {
        char path[AGGREGATOR_PATH_MAX];
        aggregator_spool_path(a->members.names[i], (unsigned)r->fragment, f->round,
                              &f->entries[i].payload, path);
        if (!f->entries[i].accepted || strcmp(path, r->path) != 0)
            continue;
        log_event(LOG_WARN, "payload_lost",
                  "fragment=%" PRIu64 " round=%" PRIu64
                  " site=%s why=scrub action=\"asked for again\"",
                  r->fragment, r->round, a->members.names[i]);
        return aggregator_payload_again(a, (unsigned)r->fragment, i);
    }
    return ERR_INPUT;
}

static enum err repair_under_lock(struct aggregator *a)
{
    const struct aggregator_scrub *r = a->part.scrub;
    return r->kind == REPAIR_PAYLOAD  ? repair_payload(a)
           : r->kind == REPAIR_MEMORY ? aggregator_file_again(a, r->path)
                                      : err_set(ERR_CORRUPT, "there is no other copy here");
}

/* Of the fragment's files: not yet in force, or not kept any more. */
static bool repair_idle(const struct aggregator *a)
{
    const struct aggregator_scrub *r = a->part.scrub;
    bool of_fragment = r->kind == REPAIR_STATE || r->kind == REPAIR_CURRENT ||
                       r->kind == REPAIR_HISTORY || r->kind == REPAIR_PAYLOAD;
    if (!of_fragment)
        return false;
    return r->fragment >= a->core.fragments || r->round > a->core.f[r->fragment].round ||
           !a->env->ops->exists(a->env, r->path);
}

static void repair_outside(struct aggregator *a)
{
    const struct aggregator_scrub *r = a->part.scrub;
    unsigned fragment = (unsigned)r->fragment;
    enum err e = r->kind == REPAIR_CURRENT ? outer_state_repair_current(a->replica, fragment)
                                           : outer_state_repair(a->replica, fragment, r->round);
    if (e == ERR_INPUT) /* what it is made from is not kept */
        e = err_add(ERR_CORRUPT, "not repaired: ");
    repair_result(a, e);
}

void aggregator_scrub_work(struct aggregator *a)
{
    static const struct aggregator_beside outside = {repair_outside, repair_end};
    struct aggregator_scrub *r = a->part.scrub;
    if (!r || !aggregator_commit_idle(a) || a->state.failed != ERR_OK)
        return;
    pthread_mutex_lock(&a->part.scrub->mutex);
    bool wanted = r->state == REPAIR_WANTED;
    r->state = wanted ? REPAIR_TAKEN : r->state;
    pthread_mutex_unlock(&a->part.scrub->mutex);
    if (!wanted)
        return;
    bool idle = repair_idle(a);
    if (!idle && (r->kind == REPAIR_STATE || r->kind == REPAIR_CURRENT)) {
        aggregator_commit_beside(a, &outside);
        return;
    }
    repair_result(a, idle ? ERR_INPUT : repair_under_lock(a));
    repair_end(a);
}
