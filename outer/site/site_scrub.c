/* SPDX-License-Identifier: Apache-2.0 */
/* The scrub of a site's directory (outer/store/scrub.h): which files it reads, and how each is made
 * again. What the process holds in memory is written again at once; the manifest and the aggregate
 * of an earlier round come from the aggregator, by the digests that follow them here; an earlier
 * state is made from the one before by the thread that carries out a round, because it needs the
 * device.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"

enum { ASKED_MS = 100 }; /* how often the scrub's thread looks whether it is done */
enum site_repair { SITE_REPAIR_NONE, SITE_REPAIR_WANTED, SITE_REPAIR_DONE };
struct site_scrub {
    struct scrub *scrub;    /* NULL: it does not run */
    struct site_slot calls; /* of the scrub's thread; without buffers */
    /* A repair that another thread does; guarded by the site's mutex. */
    enum site_repair state;
    unsigned fragment;
    uint64_t round;
    enum err e;
    char why[SCRUB_TEXT_MAX];
};

static struct site *scrubbed_site(void *self)
{
    struct site *s = self;
    site_lock(s);
    return s;
}

/* ---- states ---- */

/* With the lock held, which is released while another thread works. */
static enum err repair_wait(struct site *s, unsigned fragment, uint64_t round)
{
    struct site_scrub *r = s->own.scrub;
    r->state = SITE_REPAIR_WANTED;
    r->fragment = fragment;
    r->round = round;
    while (r->state != SITE_REPAIR_DONE) {
        site_unlock(s);
        bool closing = scrub_wait(r->scrub, ASKED_MS);
        site_lock(s);
        if (closing)
            return ERR_STOPPED;
    }
    r->state = SITE_REPAIR_NONE;
    return r->e == ERR_OK ? ERR_OK : err_set(r->e, "%s", r->why);
}

void site_scrub_serve(struct site *s)
{
    struct site_scrub *r = s->own.scrub;
    if (!r || r->state != SITE_REPAIR_WANTED)
        return;
    r->e = outer_state_kept(s->replica, r->fragment, r->round)
               ? outer_state_repair(s->replica, r->fragment, r->round)
               : ERR_OK; /* dropped since: no round needs it */
    if (r->e == ERR_INPUT)
        r->e = err_add(ERR_CORRUPT, "not repaired: ");
    snprintf(r->why, sizeof r->why, "%s", r->e == ERR_OK ? "" : err_message());
    r->state = SITE_REPAIR_DONE;
    err_clear();
}

/* Not in force: a round that is about to be committed, or none of this replica. */
static bool round_ahead(const struct site *s, const struct scrub_file *f)
{
    return f->number[0] >= s->replica->fragments->count || !site_holds(s, (unsigned)f->number[0]) ||
           f->number[1] > s->replica->state[f->number[0]].round;
}

static enum err state_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    unsigned fragment = (unsigned)f->number[0];
    if (round_ahead(s, f) || !s->env->ops->exists(s->env, f->path))
        return site_unlocked(s, ERR_INPUT);
    if (f->number[1] == s->replica->state[fragment].round)
        return site_unlocked(s, outer_state_repair(s->replica, fragment, f->number[1]));
    return site_unlocked(s, repair_wait(s, fragment, f->number[1]));
}

static enum err current_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    return site_unlocked(s, round_ahead(s, f)
                                ? ERR_INPUT
                                : outer_state_repair_current(s->replica, (unsigned)f->number[0]));
}

/* ---- manifests and aggregates of earlier rounds ---- */

static enum err manifest_mend_locked(struct site *s, const struct scrub_file *f)
{
    struct manifest m;
    unsigned fragment = (unsigned)f->number[0];
    TRY(site_manifest_ask(&s->own.scrub->calls, fragment, f->number[1] - 1, &m));
    if (!s->env->ops->exists(s->env, f->path)) /* pruned meanwhile */
        return ERR_INPUT;
    return outer_state_manifest_put(s->replica, &m);
}

static enum err manifest_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    bool idle = round_ahead(s, f) || !f->number[1];
    return site_unlocked(s, idle ? ERR_INPUT : manifest_mend_locked(s, f));
}

static enum err aggregate_fetch(struct site *s, const struct manifest *m, uint8_t *to)
{
    struct wire_fetch ask = {.head = site_head(&s->own.scrub->calls, m->fragment),
                             .what = WIRE_AGGREGATE,
                             .fragment = m->fragment,
                             .round = m->round};
    struct wire_answer a = {.outcome = ROUND_NONE};
    site_unlock(s);
    enum err e = s->own.link->ops->fetch(s->own.link, &ask, to, m->aggregate_bytes, &a);
    struct digest got = e == ERR_OK && a.outcome == ROUND_NONE ? digest_of(to, m->aggregate_bytes)
                                                               : (struct digest){0};
    site_lock(s);
    TRY(e);
    if (a.outcome != ROUND_NONE)
        return err_set(ERR_LINK, "the aggregator answers %s to the fetch of it",
                       round_outcome_name(a.outcome));
    return digest_equal(&got, &m->aggregate)
               ? ERR_OK
               : err_set(ERR_PROTO, "the aggregator's bytes are not those of the manifest");
}

static enum err aggregate_mend_locked(struct site *s, const struct scrub_file *f)
{
    struct arena scratch = arena_make(0);
    struct manifest m;
    unsigned fragment = (unsigned)f->number[0];
    TRY(outer_state_manifest(s->replica, fragment, f->number[1] - 1, &m));
    uint8_t *bytes = arena_alloc(&scratch, m.aggregate_bytes);
    enum err e = bytes ? aggregate_fetch(s, &m, bytes) : ERR_MEMORY;
    if (e == ERR_OK && !s->env->ops->exists(s->env, f->path)) /* pruned meanwhile */
        e = ERR_INPUT;
    if (e == ERR_OK)
        e = outer_state_aggregate_again(s->replica, &m, bytes);
    arena_free(&scratch);
    return e;
}

static enum err aggregate_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    bool idle = round_ahead(s, f) || !f->number[1];
    return site_unlocked(s, idle ? ERR_INPUT : aggregate_mend_locked(s, f));
}

/* ---- what the site alone has ---- */

static enum err outbox_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    enum err e = err_set(ERR_CORRUPT, "this process no longer holds the contribution");
    for (unsigned i = 0; i <= s->inflight.slots; i++) {
        struct site_slot *l = i < s->inflight.slots ? &s->inflight.slot[i] : s->own.main;
        if (l->box.valid && l->box.fragment == f->number[0] && l->box.round == f->number[1])
            e = site_outbox_repair(l);
        if (e == ERR_OK)
            break;
    }
    bool wanted = site_holds(s, (unsigned)f->number[0]) && s->env->ops->exists(s->env, f->path);
    return site_unlocked(s, wanted ? e : ERR_INPUT);
}

static enum err id_mend(void *self, const struct scrub_file *f)
{
    struct site *s = scrubbed_site(self);
    return site_unlocked(s, site_id_again(s, f->path));
}

static enum err begun_mend(void *self, const struct scrub_file *f)
{
    (void)f;
    struct site *s = scrubbed_site(self);
    return site_unlocked(s, store_begin_again(s->env));
}

static const struct scrub_row rows[] = {
    {"begun", SCRUB_RECORD, begun_mend, "keep this process running; see its disk"},
    {"id/site", SCRUB_RECORD, id_mend, "keep this process running; see its disk"},
    {"id/rank.*", SCRUB_RECORD, id_mend, "keep this process running; see its disk"},
    {"id/marks", SCRUB_RECORD, NULL, "the next checkpoint replaces it"},
    {"id/announced.*", SCRUB_RECORD, id_mend, "the next start of the aggregator replaces it"},
    {"frag/#/CURRENT", SCRUB_RECORD, current_mend, "keep this process running; see its disk"},
    {"frag/#/#/state", SCRUB_RECORD, state_mend,
     "keep this process running until the next rounds and checkpoint are stored"},
    {"frag/#/#/MANIFEST", SCRUB_RECORD, manifest_mend, "the next pass asks the aggregator again"},
    {"frag/#/#/aggregate", SCRUB_AGGREGATE, aggregate_mend,
     "the next pass asks the aggregator again"},
    {"outbox/#/#", SCRUB_RECORD, outbox_mend,
     "keep this process running until the round is committed"},
    {"eager/#/#", SCRUB_RECORD, NULL, "keep this process running until the next checkpoint"},
    {"inner/CURRENT", SCRUB_RECORD, NULL, "the next checkpoint replaces it"},
    {"inner/#/state", SCRUB_RECORD, NULL,
     "a restart takes another checkpoint; the next one replaces it"},
};

/* Where ranks hold fragments each: of their own fragments and id/rank.R.* the rank's, all else the
 * lead's. */
static bool file_wanted(void *self, const struct scrub_file *f)
{
    static const char *const of_fragments[] = {"frag/", "outbox/", "eager/"};
    const struct shards *x = &((const struct site *)self)->replica->o.shards;
    unsigned rank = 0;
    for (size_t i = 0; i < sizeof of_fragments / sizeof *of_fragments; i++)
        if (strncmp(f->path, of_fragments[i], strlen(of_fragments[i])) == 0)
            rank = shards_holder(x, (unsigned)f->number[0]);
    (void)sscanf(f->path, "id/rank.%u.", &rank);
    return x->rank == (rank < x->ranks ? rank : 0);
}

enum err site_scrub_open(struct site_scrub **out, struct site *s, struct arena *perm)
{
    if (!s->o->scrub_every_ms)
        return ERR_OK;
    TRY_ALLOC(*out = arena_alloc(perm, sizeof **out));
    (*out)->calls = (struct site_slot){.site = s};
    return ERR_OK;
}

enum err site_scrub_begin(struct site *s)
{
    const struct scrub_options o = {.rows = rows,
                                    .row_count = sizeof rows / sizeof *rows,
                                    .wanted = file_wanted,
                                    .every_ms = s->o->scrub_every_ms,
                                    .bytes_per_s = s->o->scrub_bytes_per_s,
                                    .self = s};
    return s->own.scrub && !s->own.scrub->scrub ? scrub_open(&s->own.scrub->scrub, s->env, &o)
                                                : ERR_OK;
}

void site_scrub_close(struct site *s)
{
    if (!s->own.scrub)
        return;
    scrub_close(s->own.scrub->scrub);
    s->own.scrub->scrub = NULL;
}

void site_scrub_counts(struct site *s, struct scrub_counts *out)
{
    scrub_counts(s->own.scrub ? s->own.scrub->scrub : NULL, out);
}
