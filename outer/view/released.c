/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/released.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "outer/site/site.h"
#include "kernels/base/file.h"
#include "outer/masks/seal_site.h"
#include "outer/store/env_files.h"
#include "outer/store/outer_state.h"
#include "outer/view/spent.h"

enum { PATH_BYTES = 96 };
static const char seals_path[] = "id/maskseals";

struct reader { /* of one directory */
    struct released *r;
    struct env *env;
    struct arena *a;
    seal_verify *verify;
    size_t room, why_room;
};

static enum err why_add(struct reader *v, const char *text)
{
    const char **why = arena_grow(v->a, v->r->why, v->r->failed, &v->why_room, sizeof *why);
    TRY_ALLOC(why);
    v->r->why = why;
    v->r->why[v->r->failed++] = text;
    return text ? ERR_OK : err_set(ERR_MEMORY, "no memory");
}

/* ---- one round ---- */

/* The manifest of the round, where it is still here: it names the same bytes. */
static enum err manifest_check(struct reader *v, struct released_round *t)
{
    struct outer_state m = {.env = v->env};
    struct manifest made;
    enum err e = outer_state_manifest(&m, t->fragment, t->round, &made);
    if (e == ERR_INPUT) {
        err_clear();
        return ERR_OK;
    }
    if (e != ERR_OK)
        return why_add(v, arena_printf(v->a, "fragment %u round %" PRIu64 ": %s", t->fragment,
                                       t->round, err_message()));
    const struct manifest_entry *own = manifest_site(&made, v->r->index);
    if (manifest_aborted(&made)) {
        v->r->aborted++;
        return ERR_OK;
    }
    t->manifest = own && own->included && digest_equal(&own->payload, &t->payload) &&
                  own->payload_bytes == t->payload_bytes && manifest_included(&made) == t->summed;
    return t->manifest ? ERR_OK
                       : why_add(v, arena_printf(v->a,
                                                 "fragment %u round %" PRIu64
                                                 ": the manifest names other bytes or other sites "
                                                 "than the seal",
                                                 t->fragment, t->round));
}

static enum err round_take(struct reader *v, const struct seal_kept *k, const struct record *file,
                           const char *path)
{
    struct seal seal;
    struct seal_chain before = {0};
    struct digest payload;
    const char *why;
    char named[PATH_BYTES];
    struct released *r = v->r;
    snprintf(named, sizeof named, "seals/%u/%" PRIu64, k->fragment, k->round);
    if (strcmp(named, path) != 0 || (r->count && k->site != r->index))
        return why_add(
            v, arena_printf(v->a, "%s: the record of another round or of another site", path));
    if (!r->count) {
        snprintf(r->run, sizeof r->run, "%s", k->run);
        r->index = k->site;
        r->own = k->own;
    }
    if (!seal_kept_holds(k, file, v->verify, &seal, &payload, &why))
        return why_add(
            v, arena_printf(v->a, "fragment %u round %" PRIu64 ": %s", k->fragment, k->round, why));
    struct released_round *rounds = arena_grow(v->a, r->round, r->count, &v->room, sizeof *rounds);
    TRY_ALLOC(rounds);
    r->round = rounds;
    struct released_round *t = &r->round[r->count++];
    bool numbered = seal_kept_chain(file, &before);
    *t = (struct released_round){.fragment = k->fragment,
                                 .round = k->round,
                                 .unix_ms = k->unix_ms,
                                 .payload_bytes = k->payload_bytes,
                                 .charged = k->charged,
                                 .summed = set_count(&seal.s),
                                 .announced = set_count(&seal.of.u),
                                 .seal = digest_of(file->sections[SEAL_KEPT_SEAL].data,
                                                   file->sections[SEAL_KEPT_SEAL].size_bytes),
                                 .payload = payload,
                                 .sealed = seal.s,
                                 .numbered = numbered,
                                 .before = before,
                                 .aggregator = k->aggregator};
    r->bytes += k->payload_bytes;
    return manifest_check(v, t);
}

static enum err round_read(struct reader *v, unsigned fragment, const char *name)
{
    struct arena scratch = arena_make(0);
    struct seal_kept k = {.run = ""};
    struct record_form form = {"kept", seal_kept_fields, &k};
    struct record file;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "seals/%u/%.32s", fragment, name);
    enum err e = store_read(v->env, path, &form, SEAL_KEPT_BYTES_MAX, &file, &scratch);
    if (e == ERR_OK)
        e = round_take(v, &k, &file, path);
    else if (e == ERR_CORRUPT || e == ERR_MISMATCH)
        e = why_add(v, arena_printf(v->a, "%s: %s", path, err_message()));
    arena_free(&scratch);
    return e;
}

/* ---- records ---- */

static int by_place(const void *x, const void *y)
{
    const struct released_round *a = x, *b = y;
    if (a->fragment != b->fragment)
        return a->fragment < b->fragment ? -1 : 1;
    return a->round < b->round ? -1 : a->round > b->round;
}

static enum err fragments_read(struct reader *v)
{
    for (unsigned f = 0; f < KEYS_FRAGMENTS_MAX; f++) {
        char path[PATH_BYTES], **names;
        size_t count;
        snprintf(path, sizeof path, "seals/%u", f);
        if (!v->env->ops->exists(v->env, path))
            continue;
        TRY(v->env->ops->list(v->env, path, v->a, &names, &count));
        for (size_t i = 0; i < count; i++)
            TRY(round_read(v, f, names[i]));
    }
    if (v->r->count)
        qsort(v->r->round, v->r->count, sizeof *v->r->round, by_place);
    return ERR_OK;
}

/* ---- records that are missing ---- */

/* where: in words, "before round 3". */
static enum err missing_add(struct reader *v, unsigned fragment, uint64_t count, const char *where)
{
    return why_add(v, arena_printf(v->a,
                                   "fragment %u: %" PRIu64 " record%s missing %s: records are "
                                   "numbered and chained, and seals/%u has no more",
                                   fragment, count, count == 1 ? " is" : "s are", where, fragment));
}

/* Between what was counted and the record: after it. */
static enum err follows_check(struct reader *v, const struct released_round *t,
                              const struct seal_chain *at, uint64_t round_before)
{
    char where[PATH_BYTES];
    if (at->number)
        snprintf(where, sizeof where, "between round %" PRIu64 " and round %" PRIu64, round_before,
                 t->round);
    else
        snprintf(where, sizeof where, "before round %" PRIu64, t->round);
    if (t->before.number > at->number)
        return missing_add(v, t->fragment, t->before.number - at->number, where);
    if (t->before.number == at->number && digest_equal(&t->before.chain, &at->chain))
        return ERR_OK;
    return why_add(v, arena_printf(v->a,
                                   "fragment %u round %" PRIu64
                                   ": the record follows other records than those of seals/%u",
                                   t->fragment, t->round, t->fragment));
}

/* The records of one fragment in their order, first[0..n). kept: what id/maskseals says of them. */
static enum err chain_check(struct reader *v, unsigned fragment, const struct released_round *first,
                            size_t n, const struct seal_chain *kept)
{
    struct seal_chain at = {0};
    char where[PATH_BYTES] = "from first to last";
    for (size_t i = 0; i < n; i++) {
        const struct released_round *t = &first[i];
        if (t->numbered) {
            TRY(follows_check(v, t, &at, i ? first[i - 1].round : 0));
            at = seal_chain_next(&t->before, fragment, t->round, &t->seal);
            continue;
        }
        v->r->former++;
        if (at.number != i)
            TRY(why_add(v, arena_printf(v->a,
                                        "fragment %u round %" PRIu64
                                        ": a record without a number, after one that has a number",
                                        fragment, t->round)));
        at.number++;
    }
    if (n)
        snprintf(where, sizeof where, "after round %" PRIu64, first[n - 1].round);
    if (!kept)
        return ERR_OK;
    if (kept->number > at.number)
        return missing_add(v, fragment, kept->number - at.number, where);
    bool killed = kept->number + 1 == at.number; /* between the record and id/maskseals */
    bool former = !kept->number && n && !first[n - 1].numbered;
    if (killed || former || (kept->number == at.number && digest_equal(&kept->chain, &at.chain)))
        return ERR_OK;
    return why_add(v, arena_printf(v->a,
                                   "fragment %u: id/maskseals counts %" PRIu64
                                   " records, and seals/%u has %" PRIu64
                                   " or others: one of the two is an older copy",
                                   fragment, kept->number, fragment, at.number));
}

/* *count: fragments of which id/maskseals counts the records. */
static enum err kept_read(struct reader *v, struct seal_chain kept[KEYS_FRAGMENTS_MAX],
                          unsigned *count)
{
    enum { MOST = 64 << 20 };
    struct arena scratch = arena_make(0);
    uint8_t *data = NULL;
    size_t n = 0;
    *count = 0;
    enum err e = v->env->ops->exists(v->env, seals_path) ? ERR_OK : err_set(ERR_INPUT, "missing");
    if (e == ERR_OK)
        e = v->env->ops->read(v->env, seals_path, MOST, &scratch, &data, &n);
    if (e == ERR_OK) {
        e = seal_site_kept_read(kept, count, seals_path, data, n);
        cipher_wipe(data, n);
    }
    arena_free(&scratch);
    if (e != ERR_INPUT && e != ERR_CORRUPT && e != ERR_MISMATCH)
        return e;
    return why_add(v, arena_printf(v->a,
                                   "id/maskseals: %s: how many records this site has made is not "
                                   "known, so a missing one at the end would not be noticed",
                                   err_message()));
}

static enum err chains_check(struct reader *v)
{
    struct seal_chain kept[KEYS_FRAGMENTS_MAX];
    unsigned counted;
    size_t first = 0;
    TRY(kept_read(v, kept, &counted));
    for (unsigned f = 0; f < KEYS_FRAGMENTS_MAX; f++) {
        size_t n = 0;
        while (first + n < v->r->count && v->r->round[first + n].fragment == f)
            n++;
        TRY(chain_check(v, f, v->r->round + first, n, f < counted ? &kept[f] : NULL));
        first += n;
    }
    return ERR_OK;
}

/* ---- rounds without a record ---- */

static struct released_round *record_find(struct released *r, unsigned fragment, uint64_t round)
{
    const struct released_round key = {.fragment = fragment, .round = round};
    return r->count ? bsearch(&key, r->round, r->count, sizeof key, by_place) : NULL;
}

/* What the manifests that are still here say of this site. */
static enum err span_read(struct reader *v, unsigned fragment)
{
    enum { ROUNDS_MOST = 1 << 26 };
    struct outer_state m = {.env = v->env};
    struct released_span *span = &v->r->span[fragment];
    struct manifest made;
    enum err e = outer_state_manifest_newest(&m, fragment, &made);
    if (e == ERR_INPUT) { /* no round was committed */
        err_clear();
        return ERR_OK;
    }
    if (e == ERR_CORRUPT || (e == ERR_OK && made.round >= ROUNDS_MOST))
        return why_add(v, arena_printf(v->a, "fragment %u: the newest manifest: %s", fragment,
                                       e ? err_message() : "its round is not credible"));
    TRY(e);
    uint64_t rounds = made.round + 1;
    TRY_ALLOC(span->said = arena_alloc(v->a, rounds));
    memset(span->said, RELEASED_UNSAID, rounds);
    span->rounds = rounds;
    for (uint64_t t = 0; t < rounds; t++) {
        e = outer_state_manifest(&m, fragment, t, &made);
        if (e != ERR_OK) { /* not kept; or damaged, and says nothing */
            err_clear();
            continue;
        }
        const struct manifest_entry *own = manifest_site(&made, v->r->index);
        span->said[t] = own && own->included ? RELEASED_IN : RELEASED_OUT;
    }
    return ERR_OK;
}

static enum err spans_read(struct reader *v)
{
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "frag/%u", f);
        if (v->env->ops->exists(v->env, path))
            TRY(span_read(v, f));
    }
    return ERR_OK;
}

/* A run of rounds that nothing here explains. */
static enum err hole_add(struct reader *v, unsigned fragment, uint64_t first, uint64_t last)
{
    return why_add(v, arena_printf(v->a,
                                   "fragment %u round %" PRIu64 " to %" PRIu64
                                   ": no record, and no manifest here says that this site was not "
                                   "in it; give the run.dir of the other sites, too",
                                   fragment, first, last));
}

static enum err span_finish(struct reader *v, unsigned fragment)
{
    struct released *r = v->r;
    const struct released_span *span = &r->span[fragment];
    uint64_t hole = UINT64_MAX;
    bool begun = false;
    for (uint64_t t = 0; t < span->rounds; t++) {
        bool has = record_find(r, fragment, t) != NULL, unsaid = span->said[t] == RELEASED_UNSAID;
        begun |= has;
        if (!has && span->said[t] == RELEASED_IN)
            TRY(why_add(v, arena_printf(v->a,
                                        "fragment %u round %" PRIu64
                                        ": the manifest has this site, and seals/%u/%" PRIu64
                                        " is not here",
                                        fragment, t, fragment, t)));
        r->unknown += !has && unsaid && !begun;
        if (!has && unsaid && begun && hole == UINT64_MAX)
            hole = t;
        if (hole != UINT64_MAX && (has || !unsaid)) {
            TRY(hole_add(v, fragment, hole, t - 1));
            hole = UINT64_MAX;
        }
    }
    return hole == UINT64_MAX ? ERR_OK : hole_add(v, fragment, hole, span->rounds - 1);
}

enum err released_finish(struct released *r, struct arena *arena)
{
    struct reader v = {.r = r, .a = arena, .why_room = r->failed};
    for (unsigned f = 0; f < ROUND_FRAGMENTS_MAX; f++)
        TRY(span_finish(&v, f));
    return ERR_OK;
}

/* ---- a directory ---- */

static enum err directory_read(struct reader *v)
{
    struct site_seen seen;
    if (!v->env->ops->exists(v->env, "seals") && !v->env->ops->exists(v->env, seals_path))
        return err_set(ERR_INPUT,
                       "%s: no seals here: not the run.dir of a site with privacy.secure = sum, or "
                       "one that has not sent a round yet",
                       v->r->dir);
    TRY(site_seen(v->env, 0, &seen));
    snprintf(v->r->site, sizeof v->r->site, "%.63s", seen.name);
    TRY(fragments_read(v));
    if (!v->r->count)
        TRY(why_add(v, "no record at all: seals is empty"));
    TRY(chains_check(v));
    return spans_read(v);
}

enum err released_read(struct released *r, const char *dir, seal_verify *verify, struct arena *a)
{
    struct reader v = {.r = r, .a = a, .verify = verify};
    *r = (struct released){.dir = dir};
    if (!file_exists(dir))
        return err_set(ERR_INPUT, "%s: there is no such directory", dir);
    TRY(env_posix_open(&v.env, dir));
    enum err e = directory_read(&v);
    env_posix_close(v.env);
    return e;
}

/* ---- two directories ---- */

/* What seals of another site say of rounds of which this one has no record. */
static enum err others_say(const struct released *other, struct released *r, struct arena *arena)
{
    struct reader v = {.r = r, .a = arena, .why_room = r->failed};
    for (size_t i = 0; r->count && i < other->count; i++) {
        const struct released_round *t = &other->round[i];
        struct released_span *span = &r->span[t->fragment];
        bool in = set_has(&t->sealed, r->index), within = t->round < span->rounds;
        if (record_find(r, t->fragment, t->round) ||
            (within && span->said[t->round] >= RELEASED_IN))
            continue;
        if (within)
            span->said[t->round] = in ? RELEASED_TOLD : RELEASED_OUT;
        if (in)
            TRY(why_add(&v,
                        arena_printf(arena,
                                     "fragment %u round %" PRIu64
                                     ": the seal that site %s has answered for has this site, "
                                     "and seals/%u/%" PRIu64 " is not here",
                                     t->fragment, t->round, other->site, t->fragment, t->round)));
    }
    return ERR_OK;
}

enum err released_compare(struct released *a, struct released *b, struct arena *arena)
{
    struct reader v = {.r = b, .a = arena, .why_room = b->failed};
    if (a->count && b->count && strcmp(a->run, b->run) != 0)
        return why_add(&v, arena_printf(arena, "%s is of run %s, %s of run %s", a->dir, a->run,
                                        b->dir, b->run));
    for (size_t i = 0; i < a->count; i++) {
        const struct released_round *t = record_find(b, a->round[i].fragment, a->round[i].round);
        if (t && !digest_equal(&a->round[i].seal, &t->seal))
            TRY(why_add(&v,
                        arena_printf(arena,
                                     "fragment %u round %" PRIu64
                                     ": site %s has answered for another seal than site %s",
                                     a->round[i].fragment, a->round[i].round, a->site, b->site)));
    }
    TRY(others_say(a, b, arena));
    return others_say(b, a, arena);
}

/* ---- sums and charges ---- */

void released_sum(struct released_sum *out, const struct released *r)
{
    struct released_sum s = {.first_ms = r->count ? UINT64_MAX : 0,
                             .least = r->count ? UINT32_MAX : 0};
    for (size_t i = 0; i < r->count; i++) {
        const struct released_round *t = &r->round[i];
        s.first_ms = t->unix_ms < s.first_ms ? t->unix_ms : s.first_ms;
        s.last_ms = t->unix_ms > s.last_ms ? t->unix_ms : s.last_ms;
        s.least = t->summed < s.least ? t->summed : s.least;
        s.most = t->summed > s.most ? t->summed : s.most;
        s.charged = t->charged > s.charged ? t->charged : s.charged;
        s.manifests += t->manifest;
    }
    *out = s;
}

enum err released_budget(struct released_budget *b, const struct released *r, struct arena *a)
{
    const struct spent_options o = {.delta = 0, .cap = 0};
    struct released_sum sum;
    struct spent s;
    released_sum(&sum, r);
    *b = (struct released_budget){.named = sum.charged};
    enum err e = spent_read(&s, r->dir, &o, a);
    b->none = e == ERR_INPUT && !b->named;
    b->unproved = !b->none && (e == ERR_INPUT || e == ERR_CORRUPT);
    if (b->none)
        err_clear();
    if (b->none || b->unproved)
        return ERR_OK;
    TRY(e);
    b->steps = s.budget.steps;
    b->delta = s.delta;
    b->cap = s.cap;
    b->unclaimed = s.unclaimed;
    b->epsilon = s.unclaimed ? 0 : s.account.epsilon[s.account.holds];
    b->charged = b->named <= (uint64_t)b->steps;
    b->within = s.unclaimed || s.cap == 0 || b->epsilon <= s.cap;
    return ERR_OK;
}
