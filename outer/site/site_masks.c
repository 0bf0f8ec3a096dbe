/* SPDX-License-Identifier: Apache-2.0 */
/* Secure aggregation at a site (docs/privacy-methods.md, "Secure aggregation"): pair keys with the
 * other sites (site_masks_setup.c), the mask of each contribution (site_masks_round.c), the one
 * seal of a round that this site signs, and what it reveals for it (site_masks_seal.c). The
 * decisions are pure (outer/masks/seal_site.h); here they are stored before the aggregator hears of
 * them.
 *
 *   id/maskkeys   pair keys (keys.h)
 *   id/maskseals  the decisions of each round (seal_site.h)
 *   id/peers      identity keys of the other sites, as seen first
 *   seals/F/t     seal and signatures of a round for which this site revealed its mask: kept for
 *                 ever, so that a person can prove later what left the site (atoll privacy verify)
 *
 * All are files of mode 0600. All of it with the site's mutex locked. */
#include "outer/site/site_masks_own.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"

enum {
    REFUSED_MS = 2000, /* until a refused request is repeated */
    PENDING_MS = 50    /* least time between two calls that both say pending */
};
static const char keys_path[] = "id/maskkeys", seals_path[] = "id/maskseals",
                  peers_path[] = "id/peers";

/* ---- files ---- */

struct peers {
    struct site_masks *m;
    uint32_t count;
};

static void peers_fields(struct record_cursor *c, void *self)
{
    struct peers *p = self;
    record_u32(c, &p->count);
    if (p->count > p->m->room)
        p->count = 0; /* what follows is then more than the record has fields */
    for (uint32_t i = 0; i < p->count; i++) {
        struct peer *to = &p->m->peer[i];
        const char *name = to->name;
        uint8_t pinned = to->pinned;
        struct digest key;
        memcpy(key.bytes, to->key.bytes, sizeof key.bytes);
        record_u8(c, &pinned);
        record_text(c, &name, WIRE_NAME_MAX - 1);
        record_digest(c, &key);
        if (!record_reading(c))
            continue;
        to->pinned = pinned;
        snprintf(to->name, sizeof to->name, "%s", name ? name : "");
        memcpy(to->key.bytes, key.bytes, sizeof key.bytes);
    }
}

enum err site_masks_peers_write(struct site *s)
{
    struct peers p = {s->masks, s->masks->room};
    struct record_form form = {"peers", peers_fields, &p};
    return store_write(s->env, peers_path, &form, NULL, 0);
}

static enum err peers_read(struct site *s)
{
    struct arena scratch = arena_make(0);
    struct peers p = {.m = s->masks};
    struct record_form form = {"peers", peers_fields, &p};
    struct record r;
    enum err e = store_read(s->env, peers_path, &form, 0, &r, &scratch);
    arena_free(&scratch);
    if (e != ERR_INPUT)
        return e;
    if (store_begun(s->env))
        log_event(
            LOG_WARN, "peers_lost",
            "file=%s/%s why=\"missing: cannot check that the other sites have the identity "
            "keys of before\" do=\"put it back from a copy: without it this site refuses seals\"",
            s->env->root, peers_path);
    err_clear();
    return ERR_OK;
}

enum err site_peer_keys(struct site_peer_key **out, size_t *count, const char *directory,
                        struct arena *a)
{
    struct site_masks m = {.room = ROUND_SITES_MAX};
    struct peers p = {.m = &m};
    const struct record_form form = {"peers", peers_fields, &p};
    struct record r;
    uint8_t *data;
    size_t n;
    char *path;
    *count = 0;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, peers_path));
    TRY_ALLOC(m.peer = arena_array(a, m.room, sizeof *m.peer));
    TRY_ALLOC(*out = arena_array(a, m.room, sizeof **out));
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(path, RECORD_HEAD_MAX, a, &data, &n));
    TRY(record_open(&r, &form, path, data, n, a));
    for (uint32_t i = 0; i < p.count; i++)
        if (m.peer[i].pinned) {
            struct site_peer_key *to = &(*out)[(*count)++];
            snprintf(to->name, sizeof to->name, "%s", m.peer[i].name);
            to->key = m.peer[i].key;
        }
    return ERR_OK;
}

typedef enum err parts_of(struct site_masks *m, struct file_part **parts, size_t *count,
                          struct arena *a);

static enum err keys_of(struct site_masks *m, struct file_part **parts, size_t *count,
                        struct arena *a)
{
    return keys_parts(m->keys, parts, count, a);
}

static enum err seals_of(struct site_masks *m, struct file_part **parts, size_t *count,
                         struct arena *a)
{
    return seal_site_parts(m->seals, parts, count, a);
}

static enum err secret_write(struct site *s, const char *path, parts_of *of)
{
    struct arena scratch = arena_make(0);
    struct file_part *parts;
    size_t count;
    enum err e = of(s->masks, &parts, &count, &scratch);
    if (e == ERR_OK)
        e = s->env->ops->write(s->env, path, parts, count);
    arena_free(&scratch);
    return e;
}

enum err site_masks_keys_store(struct site *s)
{
    s->masks->keys_unstored = true;
    TRY(secret_write(s, keys_path, keys_of));
    s->masks->keys_unstored = false;
    return ERR_OK;
}

static enum err seals_store(struct site *s)
{
    s->masks->seals_unstored = true;
    TRY(secret_write(s, seals_path, seals_of));
    s->masks->seals_unstored = false;
    return ERR_OK;
}

enum err site_masks_seals_stored(struct site *s, bool changed)
{
    return changed || s->masks->seals_unstored ? seals_store(s) : ERR_OK;
}

enum err site_masks_keys_stored(struct site *s)
{
    return s->masks->keys_unstored && !MUTANT(KEYS_OWED) ? site_masks_keys_store(s) : ERR_OK;
}

/* An older copy of the file would not do either: it does not know the newest keys and seals. */
static enum err secret_lost(const struct site *s, const char *path, const char *how)
{
    return err_set(ERR_CORRUPT,
                   "%s/%s: %s: %s; start the site with an empty directory, and let an operator "
                   "remove and add it (atoll operator roster)",
                   s->env->root, path, how,
                   path == keys_path ? "the other sites refuse a second key of this site"
                                     : "which seals this site has signed is not known any more");
}

/* *found: the file was there. */
static enum err secret_read(struct site *s, const char *path, bool *found)
{
    enum { MOST = 64 << 20 };
    struct site_masks *m = s->masks;
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t n = 0;
    *found = s->env->ops->exists(s->env, path);
    enum err e = *found ? s->env->ops->read(s->env, path, MOST, &scratch, &data, &n) : ERR_OK;
    if (e == ERR_OK && *found) {
        e = path == keys_path ? keys_read(m->keys, path, data, n)
                              : seal_site_read(m->seals, path, data, n);
        cipher_wipe(data, n);
    }
    arena_free(&scratch);
    return e == ERR_CORRUPT ? secret_lost(s, path, "damaged") : e;
}

/* Without the record of signed seals, a second seal could be signed; without the pair keys no
 * sum with this site loses its masks. Both files are there before the directory has begun
 * (store_begin). */
static enum err files_read(struct site *s)
{
    bool keys, seals;
    TRY(peers_read(s));
    TRY(secret_read(s, keys_path, &keys));
    TRY(secret_read(s, seals_path, &seals));
    if (keys && seals)
        return ERR_OK;
    if (keys || store_begun(s->env))
        return secret_lost(s, seals ? keys_path : seals_path,
                           "missing, and this directory has begun");
    if (!seals)
        TRY(seals_store(s));
    return site_masks_keys_store(s);
}

static enum err masks_make(struct site_masks *m, const struct keys_options *o)
{
    m->room = o->sites;
    TRY_ALLOC(m->peer = calloc(m->room, sizeof *m->peer));
    TRY_ALLOC(m->identity = calloc(m->room, sizeof *m->identity));
    TRY(seal_site_open(&m->seals, o->site, o->fragments));
    return keys_open(&m->keys, o);
}

enum err site_masks_open(struct site *s)
{
    struct keys_options o = {.run = s->o->run,
                             .site = s->own.index,
                             .sites = s->o->site_count + MANIFEST_ADDED_MAX,
                             .fragments = s->replica->fragments->count,
                             .config = s->own.config};
    if (!s->o->masks.on || s->masks)
        return ERR_OK;
    if (s->own.index >= ROUND_SITES_MAX)
        return err_set(ERR_INTERNAL, "masks before the first hello of an added site");
    o.sites = o.sites < ROUND_SITES_MAX ? o.sites : ROUND_SITES_MAX;
    TRY_ALLOC(s->masks = calloc(1, sizeof *s->masks));
    enum err e = masks_make(s->masks, &o);
    e = e == ERR_OK ? files_read(s) : e;
    e = e == ERR_OK ? site_masks_kept(s) : e;
    if (e != ERR_OK) /* the next call begins again */
        site_masks_close(s);
    return e;
}

void site_masks_close(struct site *s)
{
    struct site_masks *m = s->masks;
    if (!m)
        return;
    keys_close(m->keys);
    seal_site_close(m->seals);
    free(m->peer);
    free(m->identity);
    free(m);
    s->masks = NULL;
}

/* ---- calls ---- */

enum err site_masks_err(const char *what, enum seal_answer a)
{
    if (a == SEAL_no_memory)
        return err_set(ERR_MEMORY, "no memory for %s", what);
    return err_set(ERR_DISAGREE, "%s: %s: %s", what, seal_answer_name(a), seal_answer_text(a));
}

enum err site_masks_refused(struct site_slot *l, unsigned fragment, uint64_t round,
                            const char *step, enum seal_answer a)
{
    char quoted[256];
    const char *why = seal_answer_text(a);
    if (a == SEAL_no_memory)
        return err_set(ERR_MEMORY, "no memory to %s round %" PRIu64, step, round);
    log_event(LOG_ERROR, "seal_refused", "fragment=%u round=%" PRIu64 " step=%s answer=%s why=%s",
              fragment, round, step, seal_answer_name(a), log_quote(quoted, sizeof quoted, why));
    site_notice(l, "does not %s round %" PRIu64 ": %s", step, round, why);
    return site_sleep(l, REFUSED_MS);
}

enum err site_masks_call(struct site_slot *l, struct masks_step *x, bool *done)
{
    struct site *s = l->site;
    bool again;
    *done = false;
    x->m.head = site_head(l, x->m.fragment);
    x->answer.answer = (struct wire_answer){.outcome = ROUND_NONE};
    x->answer.body_bytes = 0;
    site_unlock(s);
    enum err e = s->own.link->ops->mask(s->own.link, &x->m, &x->answer);
    site_lock(s);
    TRY(site_called(l, e, &again));
    if (again)
        return ERR_OK;
    enum round_outcome o = x->answer.answer.outcome;
    if (o == ROUND_NONE) {
        *done = true;
        return ERR_OK;
    }
    if (o == ROUND_BEHIND)
        return ERR_OK;
    if (o == ROUND_PENDING)
        return site_sleep(l, PENDING_MS);
    return site_react(l, &x->answer.answer);
}

enum err site_masks_step(struct masks_step **x, enum wire_mask_step step, unsigned fragment,
                         uint64_t round)
{
    *x = calloc(1, sizeof **x);
    TRY_ALLOC(*x);
    (*x)->m = (struct wire_mask){.step = step, .fragment = fragment, .round = round};
    return ERR_OK;
}

/* ---- the end of a round ---- */

enum err site_masks_abort(struct site *s, unsigned fragment, uint64_t round)
{
    if (!s->o->masks.on)
        return ERR_OK;
    TRY(site_masks_open(s));
    enum seal_answer a = seal_site_abort(s->masks->seals, fragment, round);
    if (a == SEAL_rounds_full || a == SEAL_round_old || a == SEAL_again)
        return site_masks_seals_stored(s, false);
    return a == SEAL_ok ? seals_store(s) : site_masks_err("an aborted round", a);
}

/* A failed write is tried again whenever a round becomes final. */
static void keys_wiped(struct site *s, enum err e)
{
    char quoted[512];
    if (e == ERR_OK)
        return;
    log_event(LOG_WARN, "keys_not_wiped", "dir=%s why=%s", s->env->root,
              log_quote(quoted, sizeof quoted, err_message()));
    err_clear();
}

/* Is it in a round that is not over? A pair that is newer than these rosters is for a round to
 * come. */
static bool pair_over(const struct site *s, unsigned site, const struct roster *r, unsigned count)
{
    bool in = false, own = false;
    uint32_t version = 0;
    for (unsigned f = 0; f < count; f++) {
        in = (in && !MUTANT(PAIR_DROPPED)) || set_has(&r[f].members, site);
        own = own || set_has(&r[f].members, s->own.index);
        version = r[f].version > version ? r[f].version : version;
    }
    return keys_has(s->masks->keys, site) && (!in || !own) &&
           keys_setup_of(s->masks->keys, site) <= version;
}

/* A pair with a site that was removed is wiped once no fragment has a round of both any more. */
static enum err pairs_wipe(struct site *s)
{
    struct site_masks *m = s->masks;
    unsigned count = s->replica->fragments->count;
    struct roster *r = m ? calloc(count, sizeof *r) : NULL;
    bool known = r != NULL, any = false;
    enum err e = ERR_OK;
    for (unsigned f = 0; f < count && known && e == ERR_OK; f++)
        e = site_members_now(s, f, &r[f], &known);
    for (unsigned i = 0; i < (e == ERR_OK && known ? m->room : 0); i++)
        if (pair_over(s, i, r, count)) {
            keys_forget(m->keys, i);
            any = true;
        }
    free(r);
    if (any)
        keys_wiped(s, site_masks_keys_store(s));
    return e;
}

enum err site_masks_adopted(struct site *s, const struct manifest *m)
{
    return m->roster_version > 1 ? pairs_wipe(s) : ERR_OK;
}

void site_masks_final(struct site *s, unsigned fragment, uint64_t rounds)
{
    struct site_masks *m = s->masks;
    if (!m)
        return;
    bool later = rounds > m->final[fragment];
    bool owed = (m->keys_unstored || m->seals_unstored);
    if (later) {
        m->final[fragment] = rounds;
        seal_site_final(m->seals, fragment, rounds - 1);
        if (!MUTANT(KEYS_KEPT))
            keys_final(m->keys, fragment, rounds - !MUTANT(KEYS_AHEAD));
    }
    enum err e = later || owed ? seals_store(s) : ERR_OK;
    if (later || owed) {
        m->keys_unstored = true;
        e = e == ERR_OK ? site_masks_keys_store(s) : e;
    }
    keys_wiped(s, e);
}

enum err site_masks_begin(struct site *s)
{
    if (!s->o->masks.on || s->own.index >= ROUND_SITES_MAX)
        return ERR_OK;
    TRY(site_masks_open(s));
    for (unsigned f = 0; f < s->replica->fragments->count; f++)
        site_masks_final(s, f, s->own.final[f]);
    return pairs_wipe(s);
}
