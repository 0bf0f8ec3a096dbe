/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the outer state: states, manifests, aggregates, CURRENT; which of them are kept. */
#include "outer/store/outer_state_own.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- state files ---- */

struct state_head { /* of a state file; its sections: shared parts, own parts */
    uint32_t fragment;
    uint8_t optimizer_arrays; /* in addition to theta */
    uint8_t residual_ratio;
    bool residual, discarded; /* own parts that there are */
    uint64_t round, elements;
    struct digest manifest;
};

static void state_head_fields(struct record_cursor *c, void *self)
{
    struct state_head *h = self;
    record_u32(c, &h->fragment);
    record_u8(c, &h->optimizer_arrays);
    record_u8(c, &h->residual_ratio);
    record_bool(c, &h->residual);
    record_bool(c, &h->discarded);
    record_u64(c, &h->round);
    record_u64(c, &h->elements);
    record_digest(c, &h->manifest);
}

static struct state_head state_head_of(const struct outer_state_fragment *s, unsigned fragment,
                                       size_t elements)
{
    uint8_t slabs = 0;
    while (slabs < OUTER_SLABS && s->slab[slabs])
        slabs++;
    return (struct state_head){.fragment = fragment,
                               .optimizer_arrays = slabs,
                               .residual_ratio = s->residual_ratio,
                               .residual = s->residual != NULL,
                               .discarded = s->discarded != NULL,
                               .round = s->round,
                               .elements = elements,
                               .manifest = s->manifest};
}

void outer_state_path(char out[PATH_BYTES], unsigned fragment, uint64_t round, const char *file)
{
    snprintf(out, PATH_BYTES, "frag/%u/%" PRIu64 "/%s", fragment, round, file);
}

enum err outer_state_damaged(const struct outer_state *m, const char *path)
{
    return err_set(ERR_CORRUPT, "%s/%s: damaged; %s", m->env->root, path,
                   m->o.residuals
                       ? "move the site's run directory away, start again: it rejoins by snapshot"
                       : "stop, keep files, see which site is ahead before restoring; see runbook");
}

struct sections { /* of a state file: those of the shared parts, then those of the replica's own */
    struct record_section *list; /* [count]; the shared ones have the digests of the state */
    size_t shared, count;
};

static enum err state_sections_of(struct sections *x, const struct outer_state *m,
                                  unsigned fragment, const struct outer_state_fragment *s,
                                  struct arena *a)
{
    struct file_part shared[SHARED_MAX], own[OWN_MAX];
    struct state_cut cut = outer_state_cut(m, fragment);
    size_t n = outer_state_shared_parts(s, cut.elements, shared),
           k = outer_state_own_parts(s, cut.elements, own);
    x->shared = state_section_count(&cut, n);
    x->count = x->shared + state_section_count(&cut, k);
    TRY_ALLOC(x->list = arena_array(a, x->count, sizeof *x->list));
    TRY(state_sections(x->list, &cut, shared, n, a));
    TRY(state_sections(x->list + x->shared, &cut, own, k, a));
    for (size_t i = 0; i < x->shared; i++)
        x->list[i].digest = s->leaf ? s->leaf[i] : s->digest;
    return ERR_OK;
}

static enum err state_write_to(const struct outer_state *m, struct env *w, const char *path,
                               const struct outer_state_fragment *s, unsigned fragment)
{
    struct arena scratch = arena_make(0);
    struct state_head head = state_head_of(s, fragment, outer_state_elements(m, fragment));
    struct record_form form = {"state", state_head_fields, &head};
    struct sections x;
    enum err e = state_sections_of(&x, m, fragment, s, &scratch);
    if (e == ERR_OK) {
        record_sum(x.list, x.count, m->dev->threads);
        e = store_write(w, path, &form, x.list, x.count);
    }
    arena_free(&scratch);
    return e;
}

enum err outer_state_write(struct outer_state *m, unsigned fragment,
                           const struct outer_state_fragment *s)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, s->round, "state");
    return state_write_to(m, m->env, path, s, fragment);
}

enum err outer_state_keep(struct outer_state *m, unsigned fragment, struct env *w, const char *path)
{
    struct outer_state_fragment shared = m->state[fragment];
    if (m->o.residuals) /* a site's own residual is of no use to a replay */
        shared.residual = NULL, shared.discarded = NULL;
    return state_write_to(m, w, path, &shared, fragment);
}

/* The setting that differed when an intact state file was made; NULL: none. */
static const char *made_with(const struct state_head *made, const struct state_head *ours)
{
    return made->elements != ours->elements ? "another model, outer.fragments or outer.partition"
           : made->optimizer_arrays != ours->optimizer_arrays ? "another outer.optimizer"
           : made->residual != ours->residual
               ? "another outer.downlink_compression_from or outer.sites, or by a site"
           : made->discarded != ours->discarded
               ? "another outer.residual_reset or outer.error_feedback_decay"
               : NULL;
}

/* Do the first sections of the file have the sizes of these? */
static bool sizes_fit(const struct record *r, const struct record_section *list, size_t count)
{
    bool fit = count <= r->section_count;
    for (size_t i = 0; fit && i < count; i++)
        fit =
            r->sections[i].size_bytes == outer_state_parts_bytes(list[i].parts, list[i].part_count);
    return fit;
}

static bool sections_fit(const struct record *r, const struct sections *x)
{
    return r->section_count == x->count && sizes_fit(r, x->list, x->count);
}

/* Fills the parts of s. */
static enum err state_file_take(struct outer_state *m, const char *path,
                                const struct state_head *head, const struct record *r,
                                struct outer_state_fragment *s, struct arena *a)
{
    struct sections x;
    struct state_head ours =
        state_head_of(s, head->fragment, outer_state_elements(m, head->fragment));
    const char *other = made_with(head, &ours);
    TRY(state_sections_of(&x, m, head->fragment, s, a));
    if (!other && !sections_fit(r, &x))
        other = "another outer.state_digest";
    if (other)
        return err_set(ERR_MISMATCH,
                       "%s/%s: made with %s (its parts are others); use the settings it was made "
                       "with, or another directory",
                       m->env->root, path, other);
    if (!record_take_all(r, 0, x.list, x.count, m->dev->threads))
        return outer_state_damaged(m, path);
    s->round = head->round;
    s->squares = SQUARES_UNKNOWN;
    s->residual_ratio = head->residual_ratio;
    s->manifest = head->manifest;
    s->digest = state_digest_said(m->o.digest, r->sections, x.shared);
    for (size_t i = 0; s->leaf && i < x.shared; i++)
        s->leaf[i] = r->sections[i].digest;
    return ERR_OK;
}

/* The record of a state file, in memory of `a`. */
static enum err state_record(struct outer_state *m, unsigned fragment, const char *path,
                             struct state_head *head, struct record *r, struct arena *a)
{
    enum {
        MOST = (2 + OUTER_SLABS) * sizeof(float) + sizeof(double) + 1
    }; /* bytes an element, of any settings */
    struct record_form form = {"state", state_head_fields, head};
    return store_read(m->env, path, &form, outer_state_elements(m, fragment) * MOST, r, a);
}

enum err outer_state_read(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct outer_state_fragment *s)
{
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct state_head head = {0};
    struct record r;
    staging_forget(&m->staging, s->theta);
    outer_state_path(path, fragment, round, "state");
    enum err e = state_record(m, fragment, path, &head, &r, &scratch);
    if (e == ERR_CORRUPT || (e == ERR_OK && (head.fragment != fragment || head.round != round)))
        e = outer_state_damaged(m, path);
    if (e == ERR_OK)
        e = state_file_take(m, path, &head, &r, s, &scratch);
    arena_free(&scratch);
    return e;
}

enum err outer_state_own_read(struct outer_state *m, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct state_head head = {0};
    struct sections x;
    struct record r;
    if (!m->next.residual)
        return ERR_OK;
    outer_state_path(path, fragment, round, "state");
    enum err e = state_record(m, fragment, path, &head, &r, &scratch);
    if (e == ERR_OK)
        e = state_sections_of(&x, m, fragment, &m->next, &scratch);
    if (e == ERR_OK &&
        (head.round != round ||
         !record_take_all(&r, x.shared, x.list + x.shared, x.count - x.shared, m->dev->threads)))
        e = err_set(ERR_CORRUPT, "its residual is damaged, and is not a function of the rounds");
    arena_free(&scratch);
    return e;
}

enum err outer_state_load_theta(struct outer_state *m, unsigned fragment, uint64_t round,
                                float *theta)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t elements = outer_state_elements(m, fragment);
    if (round != s->round) { /* into `next`, which is free between rounds */
        struct outer_state_fragment kept = *outer_state_next(m, fragment);
        TRY(outer_state_read(m, fragment, round, &kept));
        s = &m->next;
    }
    const float *here = staging_kept(&m->staging, STAGING_THETA, s->theta);
    m->dev->ops->copy(m->dev, theta, here ? here : s->theta, elements * sizeof *theta);
    return dev_sync(m->dev);
}

bool outer_state_kept(struct outer_state *m, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, round, "state");
    return m->env->ops->exists(m->env, path);
}

enum err outer_state_file_open(struct outer_state_file *f, const struct outer_state *m,
                               unsigned fragment, const char *path, const void *data,
                               size_t size_bytes, struct arena *a)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct state_head head = {0};
    struct record_form form = {"state", state_head_fields, &head};
    struct sections x;
    struct record r;
    int threads = m->dev->threads;
    TRY(record_open(&r, &form, path, data, size_bytes, a));
    TRY(state_sections_of(&x, m, fragment, s, a));
    if (head.fragment != fragment || head.elements != outer_state_elements(m, fragment) ||
        !sizes_fit(&r, x.list, x.shared))
        return err_set(ERR_CORRUPT, "%s: another fragment's, or made with other settings", path);
    size_t n = x.shared, own = r.section_count - n;
    *f = (struct outer_state_file){.round = head.round,
                                   .manifest = head.manifest,
                                   .digest = state_digest_said(m->o.digest, r.sections, n),
                                   .intact = record_intact_all(&r, 0, n, threads),
                                   .shared = r.sections[0].data,
                                   .shared_bytes = outer_state_snapshot_bytes(m, fragment),
                                   .leaf = r.sections,
                                   .own_intact = record_intact_all(&r, n, own, threads),
                                   .residual_ratio = head.residual_ratio};
    if (s->residual && !m->o.residuals && sections_fit(&r, &x) && f->own_intact)
        f->own = r.sections[n].data;
    return ERR_OK;
}

void outer_state_file_take(struct outer_state *m, unsigned fragment,
                           const struct outer_state_file *f)
{
    struct outer_state_fragment *s = &m->state[fragment];
    struct file_part parts[PARTS_MAX];
    size_t elements = outer_state_elements(m, fragment),
           n = outer_state_shared_parts(s, elements, parts);
    ASSERT(f->intact && f->shared_bytes == outer_state_parts_bytes(parts, n));
    outer_state_parts_fill(parts, n, f->shared);
    outer_state_parts_fill(parts, outer_state_own_parts(s, elements, parts), f->own);
    staging_forget(&m->staging, s->theta);
    s->round = f->round;
    s->manifest = f->manifest;
    s->digest = f->digest;
    for (size_t i = 0; s->leaf && i < outer_state_leaves(&m->o, fragment); i++)
        s->leaf[i] = f->leaf[i].digest;
    s->residual_ratio = f->residual_ratio;
    s->squares = SQUARES_UNKNOWN;
}

/* ---- manifests and aggregates ---- */

static const struct record_form manifest_form = {.kind = "manifest"};

enum err outer_state_manifest_write(struct outer_state *m, const struct manifest *manifest)
{
    char path[PATH_BYTES];
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct file_part part = {bytes, manifest_encode(manifest, bytes)};
    struct record_section section = {.parts = &part, .part_count = 1};
    outer_state_path(path, manifest->fragment, manifest->round + 1, "MANIFEST");
    return store_write(m->env, path, &manifest_form, &section, 1);
}

enum err outer_state_manifest(struct outer_state *m, unsigned fragment, uint64_t round,
                              struct manifest *out)
{
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct record r;
    outer_state_path(path, fragment, round + 1, "MANIFEST");
    enum err e = store_read(m->env, path, &manifest_form, MANIFEST_BYTES_MAX, &r, &scratch);
    if (e == ERR_CORRUPT ||
        (e == ERR_OK && !(record_intact(&r, 0) &&
                          manifest_decode(out, r.sections[0].data, r.sections[0].size_bytes) &&
                          out->round == round && out->fragment == fragment)))
        e = outer_state_damaged(m, path);
    arena_free(&scratch);
    return e;
}

enum err outer_state_aggregate(struct outer_state *m, unsigned fragment, uint64_t round,
                               struct file_map *map)
{
    char path[PATH_BYTES];
    struct manifest manifest;
    TRY(outer_state_manifest(m, fragment, round, &manifest));
    outer_state_path(path, fragment, round + 1, "aggregate");
    if (!m->env->ops->exists(m->env, path))
        return err_set(ERR_INPUT, "%s: not kept", path);
    TRY(m->env->ops->map(m->env, path, map));
    struct digest d = digest_of(map->data, map->size_bytes);
    if (map->size_bytes == manifest.aggregate_bytes && digest_equal(&d, &manifest.aggregate))
        return ERR_OK;
    m->env->ops->unmap(m->env, map);
    return outer_state_damaged(m, path);
}

enum err outer_state_manifest_put(struct outer_state *m, const struct manifest *manifest)
{
    ASSERT(manifest->round < m->state[manifest->fragment].round);
    return outer_state_manifest_write(m, manifest);
}

enum err outer_state_aggregate_again(struct outer_state *m, const struct manifest *manifest,
                                     const uint8_t *aggregate)
{
    char path[PATH_BYTES];
    struct file_part part = {aggregate, manifest->aggregate_bytes};
    ASSERT(manifest->round < m->state[manifest->fragment].round);
    outer_state_path(path, manifest->fragment, manifest->round + 1, "aggregate");
    return m->env->ops->write(m->env, path, &part, 1);
}

enum err outer_state_aggregate_put(struct outer_state *m, unsigned fragment,
                                   const struct file_part *parts, size_t n, struct file_map *map)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, m->state[fragment].round + 1, "aggregate");
    TRY(m->env->ops->write(m->env, path, parts, n));
    return m->env->ops->map(m->env, path, map);
}

/* ---- CURRENT ---- */

static void current_state_fields(struct record_cursor *c, void *self)
{
    struct outer_state_current *current = self;
    record_u32(c, &current->fragment);
    record_u64(c, &current->round);
    record_digest(c, &current->manifest);
}

static void current_state_path(char out[PATH_BYTES], unsigned fragment)
{
    snprintf(out, PATH_BYTES, "frag/%u/CURRENT", fragment);
}

enum err outer_state_current_write(struct outer_state *m, unsigned fragment,
                                   const struct outer_state_fragment *s)
{
    char path[PATH_BYTES];
    struct outer_state_current current = {fragment, s->round, s->manifest};
    struct record_form form = {"current", current_state_fields, &current};
    current_state_path(path, fragment);
    return store_write(m->env, path, &form, NULL, 0);
}

enum err outer_state_current_read(struct outer_state *m, unsigned fragment,
                                  struct outer_state_current *out)
{
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct record_form form = {"current", current_state_fields, out};
    struct record r;
    current_state_path(path, fragment);
    enum err e = store_read(m->env, path, &form, 0, &r, &scratch);
    if (e == ERR_OK && out->fragment != fragment)
        e = outer_state_damaged(m, path);
    arena_free(&scratch);
    return e;
}

enum err outer_state_newest(struct outer_state *m, unsigned fragment, const char *file,
                            uint64_t before, uint64_t *round)
{
    struct arena scratch = arena_make(0);
    char path[PATH_BYTES], **names = NULL;
    size_t count = 0;
    bool found = false;
    snprintf(path, sizeof path, "frag/%u", fragment);
    enum err e = ERR_OK;
    if (m->env->ops->exists(m->env, path))
        e = m->env->ops->list(m->env, path, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        uint64_t at;
        char rest;
        if (sscanf(names[i], "%20" SCNu64 "%c", &at, &rest) != 1 || at >= before ||
            (found && at <= *round))
            continue;
        outer_state_path(path, fragment, at, file);
        if (!m->env->ops->exists(m->env, path))
            continue;
        *round = at;
        found = true;
    }
    arena_free(&scratch);
    return e != ERR_OK || found ? e : err_set(ERR_INPUT, "frag/%u: no %s kept", fragment, file);
}

/* Is the manifest that made this state intact, and the one before it, where that is kept, its
 * parent? */
static enum err manifest_chain_check(struct outer_state *m, unsigned fragment, uint64_t round,
                                     struct digest *manifest)
{
    struct manifest made, before;
    char path[PATH_BYTES];
    TRY(outer_state_manifest(m, fragment, round - 1, &made));
    *manifest = manifest_digest(&made);
    enum err e = round > 1 ? outer_state_manifest(m, fragment, round - 2, &before) : ERR_INPUT;
    if (e == ERR_INPUT || e == ERR_CORRUPT) /* after a snapshot; or no longer of use */
        return ERR_OK;
    TRY(e);
    struct digest parent = manifest_digest(&before);
    outer_state_path(path, fragment, round, "MANIFEST");
    return digest_equal(&parent, &made.parent) ? ERR_OK : outer_state_damaged(m, path);
}

enum err outer_state_current_find(struct outer_state *m, unsigned fragment,
                                  struct outer_state_current *out)
{
    char path[PATH_BYTES];
    uint64_t state = 0, manifest = 0;
    enum err e = outer_state_newest(m, fragment, "state", UINT64_MAX, &state);
    current_state_path(path, fragment);
    if (e == ERR_INPUT)
        return outer_state_damaged(m, path);
    TRY(e);
    e = outer_state_newest(m, fragment, "MANIFEST", UINT64_MAX, &manifest);
    if (e != ERR_OK && e != ERR_INPUT)
        return e;
    *out = (struct outer_state_current){.fragment = fragment, .round = manifest};
    if (state > manifest) {
        outer_state_path(path, fragment, state, "MANIFEST");
        return outer_state_damaged(m, path);
    }
    return manifest ? manifest_chain_check(m, fragment, manifest, &out->manifest) : ERR_OK;
}

enum err outer_state_manifest_newest(struct outer_state *m, unsigned fragment, struct manifest *out)
{
    uint64_t state = 0;
    TRY(outer_state_newest(m, fragment, "MANIFEST", UINT64_MAX, &state));
    return outer_state_manifest(m, fragment, state - 1, out);
}

/* ---- begin, keep ---- */

bool outer_state_begun(struct outer_state *m)
{
    char path[PATH_BYTES];
    unsigned there = 0, held = 0;
    uint64_t round = 0;
    for (unsigned p = 0; p < m->fragments->count; p++) {
        if (!outer_state_holds(m, p))
            continue;
        held++;
        current_state_path(path, p);
        there += m->env->ops->exists(m->env, path);
        if (outer_state_newest(m, p, "state", UINT64_MAX, &round) == ERR_OK && round > 0)
            return true;
    }
    return (held && there == held) || store_begun(m->env);
}

enum err outer_state_begin(struct outer_state *m, const float *initial_slab)
{
    TRY(outer_state_place(m, initial_slab));
    for (unsigned p = 0; p < m->fragments->count; p++) {
        if (!outer_state_holds(m, p))
            continue;
        TRY(outer_state_write(m, p, &m->state[p]));
        TRY(outer_state_current_write(m, p, &m->state[p]));
    }
    return ERR_OK;
}

enum err outer_state_drop(struct outer_state *m, unsigned fragment, uint64_t round,
                          const char *file)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, round, file);
    if (!*file) /* the directory */
        path[strlen(path) - 1] = 0;
    return m->env->ops->remove(m->env, path);
}

enum err outer_state_prune_before(struct outer_state *m, unsigned fragment, uint64_t now,
                                  uint64_t oldest_state)
{
    uint64_t before = now;
    struct arena scratch = arena_make(0);
    char path[PATH_BYTES], **names;
    size_t count;
    enum err e = outer_state_newest(m, fragment, "state", now, &before);
    if (e != ERR_OK && e != ERR_INPUT)
        return e;
    snprintf(path, sizeof path, "frag/%u", fragment);
    e = m->env->ops->list(m->env, path, &scratch, &names, &count);
    for (size_t i = 0; e == ERR_OK && i < count; i++) {
        uint64_t round;
        char rest;
        if (sscanf(names[i], "%20" SCNu64 "%c", &round, &rest) != 1 || round > now)
            continue;
        bool state = round >= oldest_state || round >= before;
        bool rest_kept = round + m->o.keep > now;
        if (!state && !rest_kept)
            e = outer_state_drop(m, fragment, round, "");
        else if (!state)
            e = outer_state_drop(m, fragment, round, "state");
        else if (!rest_kept)
            e = outer_state_drop(m, fragment, round, "aggregate");
    }
    arena_free(&scratch);
    return e;
}

enum err outer_state_prune(struct outer_state *m, unsigned fragment, uint64_t oldest_round)
{
    ASSERT(m->o.residuals);
    if (oldest_round > m->pruned[fragment])
        m->pruned[fragment] = oldest_round;
    return outer_state_prune_before(m, fragment, m->state[fragment].round, m->pruned[fragment]);
}
