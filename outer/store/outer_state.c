/* The outer state in memory and on disk. The outer step is DiLoCo's (2311.08105, Algorithm 1, line
 * 14), on the mean that the aggregate decodes to.
 */
#include "outer/store/outer_state.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"

enum { SHARED_MAX = 4, OWN_MAX = 2, PARTS_MAX = SHARED_MAX + OWN_MAX };
enum { PATH_BYTES = 96 };
static const double SQUARES_UNKNOWN = -1;

static size_t outer_state_elements(const struct outer_state *m, unsigned fragment)
{
    ASSERT(fragment < m->fragments->count);
    return m->fragments->f[fragment].elements;
}

static size_t largest(const struct fragments *f)
{
    size_t most = 0;
    for (unsigned p = 0; p < f->count; p++)
        most = f->f[p].elements > most ? f->f[p].elements : most;
    return most;
}

/* The outer step of a fragment: moments are averaged, whatever the parameters get (DES-LOC). */
static const struct outer_opt *outer_state_configured(const struct outer_state_options *o,
                                                      unsigned fragment)
{
    static const struct outer_opt average = {.kind = OUTER_OPT_AVERAGE, .lr = 1, .delay = 1};
    return o->fragments->f[fragment].state == FRAGMENT_PARAMETERS ? &o->outer : &average;
}

static size_t state_bytes(const struct outer_state_options *o, const struct outer_opt *outer,
                          size_t elements)
{
    size_t each = outer_opt_bytes(outer) +
                  (o->residuals || o->compresses_downlink) * sizeof(float) +
                  o->discards * sizeof(double);
    return elements * each + elements / DEV_BLOCK;
}

void outer_state_aggregates(struct outer_state_options *o, unsigned sites)
{
    o->compresses_downlink = schedule_compresses_any(&o->schedule, sites);
    o->discards = o->compresses_downlink && o->schedule.residual_reset;
}

/* What the fragment's codec keeps, where this replica encodes. */
static size_t codec_state_bytes(const struct outer_state_options *o, unsigned fragment)
{
    const struct fragment *f = &o->fragments->f[fragment];
    const struct codec *c = codec_get(o->schedule.period[fragment].codec);
    return o->residuals || o->compresses_downlink ? c->state_bytes(&f->view, f->elements) : 0;
}

struct outer_memory outer_state_memory(const struct outer_state_options *o, bool here)
{
    size_t most = largest(o->fragments);
    struct outer_memory m = {.host = state_bytes(o, &o->outer, most)};
    for (unsigned p = 0; p < o->fragments->count; p++)
        m.host += state_bytes(o, outer_state_configured(o, p), o->fragments->f[p].elements) +
                  codec_state_bytes(o, p);
    if (here) /* the mean */
        m.host += most * sizeof(float);
    else
        m.device = staging_bytes(most, outer_opt_gathers(&o->outer));
    m.device += here ? 0 : codec_device_bytes(most);
    m.host += codec_host_bytes(most, here);
    return m;
}

static enum err outer_state_arrays_alloc(struct outer_state_fragment *s,
                                         const struct outer_state_options *o,
                                         const struct outer_opt *outer, size_t elements,
                                         struct arena *perm)
{
    TRY_ALLOC(s->theta = arena_array(perm, elements, sizeof *s->theta));
    TRY_ALLOC(s->codes = arena_alloc(perm, elements / DEV_BLOCK));
    if (outer_opt_momentum(outer))
        TRY_ALLOC(s->momentum = arena_array(perm, elements, sizeof *s->momentum));
    if (outer_opt_gathers(outer))
        TRY_ALLOC(s->gathered = arena_array(perm, elements, sizeof *s->gathered));
    if (o->residuals || o->compresses_downlink)
        TRY_ALLOC(s->residual = arena_array(perm, elements, sizeof *s->residual));
    if (o->discards)
        TRY_ALLOC(s->discarded = arena_array(perm, elements, sizeof *s->discarded));
    return ERR_OK;
}

static enum err codec_states_alloc(struct outer_state *m, struct arena *perm)
{
    for (unsigned p = 0; p < m->fragments->count; p++)
        if (codec_state_bytes(&m->o, p))
            TRY_ALLOC(m->state[p].codec_state = arena_alloc(perm, codec_state_bytes(&m->o, p)));
    return ERR_OK;
}

enum err outer_state_open(struct outer_state *m, struct env *w, struct dev *d,
                          const struct outer_state_options *o, struct arena *perm)
{
    ASSERT((o->residuals || o->compresses_downlink || !o->discards) &&
           !(o->residuals && o->compresses_downlink) &&
           o->schedule.fragments == o->fragments->count);
    *m = (struct outer_state){
        .env = w, .dev = d, .o = *o, .fragments = o->fragments, .schedule = o->schedule};
    m->o.keep = o->keep < OUTER_STATES_MIN ? OUTER_STATES_MIN : o->keep;
    size_t most = largest(o->fragments);
    TRY_ALLOC(m->state = arena_array(perm, o->fragments->count, sizeof *m->state));
    for (unsigned p = 0; p < o->fragments->count; p++) {
        TRY(outer_state_arrays_alloc(&m->state[p], o, outer_state_configured(o, p),
                                     o->fragments->f[p].elements, perm));
        m->state[p].squares = SQUARES_UNKNOWN;
    }
    TRY(codec_states_alloc(m, perm));
    TRY(outer_state_arrays_alloc(&m->buffers, o, &o->outer, most, perm));
    m->next = m->buffers;
    TRY(staging_open(&m->staging, d, most, outer_opt_gathers(&o->outer)));
    m->mean = m->staging.slot[STAGING_DELTA];
    TRY(stages_open(&m->stages, &o->stages, perm));
    if (d->host_memory)
        TRY_ALLOC(m->mean = arena_array(perm, most, sizeof *m->mean));
    return codec_open_for(&m->work, d, most);
}

void outer_state_close(struct outer_state *m)
{
    codec_close(m->work);
    staging_close(&m->staging);
    *m = (struct outer_state){0};
}

/* `next` takes the shape of a fragment's state: parts that the fragment has not are NULL. */
static struct outer_state_fragment *outer_state_next(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    staging_forget(&m->staging, m->buffers.theta); /* the caller changes it */
    m->next.squares = SQUARES_UNKNOWN;
    m->next.momentum = s->momentum ? m->buffers.momentum : NULL;
    m->next.gathered = s->gathered ? m->buffers.gathered : NULL;
    return &m->next;
}

/* ---- the state's parts, digests, file ---- */

/* theta, momentum, gathered, codes: what all replicas share. */
static size_t outer_state_shared_parts(const struct outer_state_fragment *s, size_t elements,
                                       struct file_part out[SHARED_MAX])
{
    size_t n = 0;
    out[n++] = (struct file_part){s->theta, elements * sizeof *s->theta};
    if (s->momentum)
        out[n++] = (struct file_part){s->momentum, elements * sizeof *s->momentum};
    if (s->gathered)
        out[n++] = (struct file_part){s->gathered, elements * sizeof *s->gathered};
    out[n++] = (struct file_part){s->codes, elements / DEV_BLOCK};
    return n;
}

/* residual, forgotten: a replica's own. */
static size_t outer_state_own_parts(const struct outer_state_fragment *s, size_t elements,
                                    struct file_part out[OWN_MAX])
{
    size_t n = 0;
    if (s->residual)
        out[n++] = (struct file_part){s->residual, elements * sizeof *s->residual};
    if (s->discarded)
        out[n++] = (struct file_part){s->discarded, elements * sizeof *s->discarded};
    return n;
}

static size_t outer_state_parts_bytes(const struct file_part *parts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].size_bytes;
    return bytes;
}

static void parts_add(struct digest_stream *s, const struct file_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        digest_add(s, parts[i].data, parts[i].size_bytes);
}

static struct digest outer_state_shared_digest(const struct outer_state_fragment *s,
                                               size_t elements)
{
    struct digest_stream d;
    struct file_part parts[SHARED_MAX];
    digest_open(&d);
    parts_add(&d, parts, outer_state_shared_parts(s, elements, parts));
    return digest_close(&d);
}

/* ---- files ---- */

struct state_head { /* of a state file; its sections: shared parts, own parts */
    uint32_t fragment;
    uint8_t optimizer_arrays; /* beside theta */
    uint8_t residual_ratio;
    bool residual, discarded; /* own parts that there are */
    uint64_t round, elements;
    struct digest manifest;
};

static void state_fields(struct record_cursor *c, void *self)
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

static struct state_head head_of(const struct outer_state_fragment *s, unsigned fragment,
                                 size_t elements)
{
    return (struct state_head){.fragment = fragment,
                               .optimizer_arrays =
                                   (uint8_t)((s->momentum != NULL) + (s->gathered != NULL)),
                               .residual_ratio = s->residual_ratio,
                               .residual = s->residual != NULL,
                               .discarded = s->discarded != NULL,
                               .round = s->round,
                               .elements = elements,
                               .manifest = s->manifest};
}

struct outer_state_current { /* frag/F/CURRENT */
    uint32_t fragment;
    uint64_t round;
    struct digest manifest;
};

static void current_fields(struct record_cursor *c, void *self)
{
    struct outer_state_current *current = self;
    record_u32(c, &current->fragment);
    record_u64(c, &current->round);
    record_digest(c, &current->manifest);
}

static void outer_state_path(char out[PATH_BYTES], unsigned fragment, uint64_t round,
                             const char *file)
{
    snprintf(out, PATH_BYTES, "frag/%u/%" PRIu64 "/%s", fragment, round, file);
}

static void current_path(char out[PATH_BYTES], unsigned fragment)
{
    snprintf(out, PATH_BYTES, "frag/%u/CURRENT", fragment);
}

/* Names the whole path; what to do is the runbook's, "Damaged file". */
static enum err outer_state_damaged(const struct outer_state *m, const char *path)
{
    return err_set(ERR_CORRUPT, "%s/%s: damaged; %s", m->env->root, path,
                   m->o.residuals
                       ? "move the site's run directory away, start again: it rejoins by snapshot"
                       : "stop, keep files, see which site is ahead before restoring; see runbook");
}

static enum err state_write_to(struct env *w, const char *path,
                               const struct outer_state_fragment *s, unsigned fragment,
                               size_t elements)
{
    struct file_part shared[SHARED_MAX], own[OWN_MAX];
    struct state_head head = head_of(s, fragment, elements);
    struct record_form form = {"state", state_fields, &head};
    struct record_section sections[] = {
        {shared, outer_state_shared_parts(s, elements, shared), s->digest},
        {.parts = own, .part_count = outer_state_own_parts(s, elements, own)}};
    return store_write(w, path, &form, sections, 2);
}

static enum err outer_state_write(struct outer_state *m, unsigned fragment,
                                  const struct outer_state_fragment *s)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, s->round, "state");
    return state_write_to(m->env, path, s, fragment, outer_state_elements(m, fragment));
}

enum err outer_state_keep(struct outer_state *m, unsigned fragment, struct env *w, const char *path)
{
    struct outer_state_fragment shared = m->state[fragment];
    if (m->o.residuals) /* a site's own residual is of no use to a replay */
        shared.residual = NULL, shared.discarded = NULL;
    return state_write_to(w, path, &shared, fragment, outer_state_elements(m, fragment));
}

/* What was set otherwise when an intact state file was made; NULL: nothing. */
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

/* Fills the parts of s. */
static enum err state_take(struct outer_state *m, const char *path, const struct state_head *head,
                           const struct record *r, struct outer_state_fragment *s)
{
    struct file_part shared[SHARED_MAX], own[OWN_MAX];
    struct state_head ours = head_of(s, head->fragment, outer_state_elements(m, head->fragment));
    const char *other = made_with(head, &ours);
    if (other)
        return err_set(ERR_MISMATCH,
                       "%s/%s: made with %s (its parts are others); use the settings it was made "
                       "with, or another directory",
                       m->env->root, path, other);
    if (!record_take(r, 0, shared, outer_state_shared_parts(s, head->elements, shared)) ||
        !record_take(r, 1, own, outer_state_own_parts(s, head->elements, own)))
        return outer_state_damaged(m, path);
    s->round = head->round;
    s->squares = SQUARES_UNKNOWN;
    s->residual_ratio = head->residual_ratio;
    s->manifest = head->manifest;
    s->digest = r->sections[0].digest;
    return ERR_OK;
}

/* Reads state `round` into s, whose pointers say which parts there are. ERR_INPUT: not kept. */
static enum err outer_state_read(struct outer_state *m, unsigned fragment, uint64_t round,
                                 struct outer_state_fragment *s)
{
    enum { MOST = 4 * sizeof(float) + sizeof(double) + 1 }; /* bytes an element, of any settings */
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct state_head head = {0};
    struct record_form form = {"state", state_fields, &head};
    struct record r;
    staging_forget(&m->staging, s->theta);
    outer_state_path(path, fragment, round, "state");
    enum err e =
        store_read(m->env, path, &form, outer_state_elements(m, fragment) * MOST, &r, &scratch);
    if (e == ERR_CORRUPT || (e == ERR_OK && (head.fragment != fragment || head.round != round)))
        e = outer_state_damaged(m, path);
    if (e == ERR_OK)
        e = state_take(m, path, &head, &r, s);
    arena_free(&scratch);
    return e;
}

/* ---- manifests and aggregates ---- */

static const struct record_form manifest_form = {.kind = "manifest"};

static enum err outer_state_manifest_write(struct outer_state *m, unsigned fragment,
                                           const struct manifest *manifest)
{
    char path[PATH_BYTES];
    uint8_t bytes[MANIFEST_BYTES_MAX];
    struct file_part part = {bytes, manifest_encode(manifest, bytes)};
    struct record_section section = {.parts = &part, .part_count = 1};
    outer_state_path(path, fragment, manifest->round + 1, "MANIFEST");
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

enum err outer_state_manifest_put(struct outer_state *m, unsigned fragment,
                                  const struct manifest *manifest)
{
    ASSERT(manifest->fragment == fragment && manifest->round < m->state[fragment].round);
    return outer_state_manifest_write(m, fragment, manifest);
}

enum err outer_state_aggregate_again(struct outer_state *m, unsigned fragment,
                                     const struct manifest *manifest, const uint8_t *aggregate)
{
    char path[PATH_BYTES];
    struct file_part part = {aggregate, manifest->aggregate_bytes};
    ASSERT(manifest->fragment == fragment && manifest->round < m->state[fragment].round);
    outer_state_path(path, fragment, manifest->round + 1, "aggregate");
    return m->env->ops->write(m->env, path, &part, 1);
}

enum err outer_state_history_put(struct outer_state *m, unsigned fragment,
                                 const struct manifest *manifest, const uint8_t *aggregate)
{
    if (aggregate)
        TRY(outer_state_aggregate_again(m, fragment, manifest, aggregate));
    return outer_state_manifest_put(m, fragment, manifest);
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

static enum err outer_state_current_write(struct outer_state *m, unsigned fragment,
                                          const struct outer_state_fragment *s)
{
    char path[PATH_BYTES];
    struct outer_state_current current = {fragment, s->round, s->manifest};
    struct record_form form = {"current", current_fields, &current};
    current_path(path, fragment);
    return store_write(m->env, path, &form, NULL, 0);
}

static enum err outer_state_current_read(struct outer_state *m, unsigned fragment,
                                         struct outer_state_current *out)
{
    char path[PATH_BYTES];
    struct arena scratch = arena_make(0);
    struct record_form form = {"current", current_fields, out};
    struct record r;
    current_path(path, fragment);
    enum err e = store_read(m->env, path, &form, 0, &r, &scratch);
    if (e == ERR_OK && out->fragment != fragment)
        e = outer_state_damaged(m, path);
    arena_free(&scratch);
    return e;
}

/* The newest round before `before` that has this file. ERR_INPUT: none. */
static enum err outer_state_newest(struct outer_state *m, unsigned fragment, const char *file,
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
static enum err chain_check(struct outer_state *m, unsigned fragment, uint64_t round,
                            struct digest *manifest)
{
    struct manifest made, before;
    char path[PATH_BYTES];
    TRY(outer_state_manifest(m, fragment, round - 1, &made));
    *manifest = manifest_digest(&made);
    enum err e = round > 1 ? outer_state_manifest(m, fragment, round - 2, &before) : ERR_INPUT;
    if (e == ERR_INPUT || e == ERR_CORRUPT) /* after a snapshot; or of no use to anybody */
        return ERR_OK;
    TRY(e);
    struct digest parent = manifest_digest(&before);
    outer_state_path(path, fragment, round, "MANIFEST");
    return digest_equal(&parent, &made.parent) ? ERR_OK : outer_state_damaged(m, path);
}

/* CURRENT is lost. What it named is the newest state, or the one before it if a crash kept the
 * newest from being committed: nothing was said of that one, so either may go on. Never an older
 * one: where the newest does not verify, a person decides. */
static enum err outer_state_current_find(struct outer_state *m, unsigned fragment,
                                         struct outer_state_current *out)
{
    char path[PATH_BYTES];
    uint64_t state = 0, manifest = 0;
    enum err e = outer_state_newest(m, fragment, "state", UINT64_MAX, &state);
    current_path(path, fragment);
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
    return manifest ? chain_check(m, fragment, manifest, &out->manifest) : ERR_OK;
}

enum err outer_state_manifest_newest(struct outer_state *m, unsigned fragment, struct manifest *out)
{
    uint64_t state = 0;
    TRY(outer_state_newest(m, fragment, "MANIFEST", UINT64_MAX, &state));
    return outer_state_manifest(m, fragment, state - 1, out);
}

/* ---- amendments ---- */

enum err outer_state_amend(struct outer_state *m, const struct amendments *list)
{
    struct schedule s = m->o.schedule;
    if (!amendments_agree(list, &m->amendments))
        return err_set(ERR_DISAGREE,
                       "the list of amendments does not begin with the one that is known here");
    if (list->count <= m->amendments.count)
        return ERR_OK;
    if (!m->o.amend)
        return err_set(ERR_UNSUPPORTED, "settings of this run were amended, and this process knows "
                                        "no settings");
    TRY(m->o.amend(m->o.amend_self, &s, list));
    m->schedule = s;
    m->amendments = *list;
    return ERR_OK;
}

enum err outer_state_ends(struct outer_state *m, const int64_t *ends, unsigned count)
{
    struct schedule s = m->o.schedule;
    ASSERT(count <= SCHEDULE_ENDS_MAX);
    s.end_count = count;
    memcpy(s.ends, ends, count * sizeof *ends);
    m->o.schedule = s;
    if (m->amendments.count)
        TRY(m->o.amend(m->o.amend_self, &s, &m->amendments));
    m->schedule = s;
    return ERR_OK;
}

enum err outer_state_amendments_find(struct outer_state *m)
{
    struct manifest manifest;
    for (unsigned p = 0; p < m->fragments->count; p++) {
        enum err e = outer_state_manifest_newest(m, p, &manifest);
        if (e == ERR_OK)
            e = outer_state_amend(m, &manifest.amendments);
        else if (e == ERR_INPUT || e == ERR_CORRUPT) /* none; the load says what it means */
            e = ERR_OK;
        TRY(e);
    }
    return ERR_OK;
}

/* ---- begin, load, keep ---- */

bool outer_state_begun(struct outer_state *m)
{
    char path[PATH_BYTES];
    unsigned there = 0;
    uint64_t round = 0;
    for (unsigned p = 0; p < m->fragments->count; p++) {
        current_path(path, p);
        there += m->env->ops->exists(m->env, path);
        if (outer_state_newest(m, p, "state", UINT64_MAX, &round) == ERR_OK && round > 0)
            return true;
    }
    return there == m->fragments->count || store_begun(m->env);
}

enum err outer_state_place(struct outer_state *m, const float *initial_slab)
{
    for (unsigned p = 0; p < m->fragments->count; p++) {
        struct outer_state_fragment *s = &m->state[p];
        const struct fragment *f = &m->fragments->f[p];
        ASSERT(s->round == 0);
        if (f->state == FRAGMENT_PARAMETERS) /* moments begin at zero, as their memory does */
            fragment_gather(m->dev, s->theta, initial_slab, f);
        staging_forget(&m->staging, s->theta);
        TRY(dev_sync(m->dev));
        s->manifest = (struct digest){0};
        s->squares = SQUARES_UNKNOWN;
        s->digest = outer_state_shared_digest(s, f->elements);
    }
    return ERR_OK;
}

enum err outer_state_begin(struct outer_state *m, const float *initial_slab)
{
    TRY(outer_state_place(m, initial_slab));
    for (unsigned p = 0; p < m->fragments->count; p++) {
        TRY(outer_state_write(m, p, &m->state[p]));
        TRY(outer_state_current_write(m, p, &m->state[p]));
    }
    return ERR_OK;
}

static enum err outer_state_drop(struct outer_state *m, unsigned fragment, uint64_t round,
                                 const char *file)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, round, file);
    if (!*file) /* the directory */
        path[strlen(path) - 1] = 0;
    return m->env->ops->remove(m->env, path);
}

void outer_state_give_up(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t n = outer_state_elements(m, fragment);
    for (size_t i = 0; m->next.discarded && i < n; i++)
        m->next.discarded[i] = s->discarded[i] + (double)s->residual[i];
    if (m->next.residual)
        memset(m->next.residual, 0, n * sizeof *m->next.residual);
}

/* The aggregator's residual of a state that is made again. What its own encoding of that round lost
 * is a function of the contributions, not of the aggregate: without them given up, said, and the
 * manifest's residual ratio says how much. */
static void remade_own(struct outer_state *m, unsigned fragment, const struct manifest *manifest)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t n = outer_state_elements(m, fragment);
    if (!m->o.compresses_downlink)
        return;
    bool again = schedule_compresses_downlink(&m->schedule, (enum codec_kind)manifest->codec,
                                              manifest_included(manifest));
    if (again && m->o.remake(m->o.remake_self, m, fragment, manifest) == ERR_OK)
        return;
    if (s->discarded)
        memcpy(m->next.discarded, s->discarded, n * sizeof *s->discarded);
    memcpy(m->next.residual, s->residual, n * sizeof *s->residual);
    if (!again)
        return;
    memset(m->next.residual, 0, n * sizeof *s->residual);
    m->residuals_lost++;
    char quoted[512];
    log_event(LOG_WARN, "residual_lost", "fragment=%u round=%" PRIu64 " residual_ratio=%u why=%s",
              fragment, manifest->round + 1, manifest->residual_ratio,
              log_quote(quoted, sizeof quoted, err_message()));
}

/* A committed round once more, from its manifest and aggregate: state and digest into `next`. */
static enum err step_again(struct outer_state *m, unsigned fragment, struct manifest *manifest)
{
    struct file_map aggregate;
    if (manifest_aborted(manifest) && !manifest->rolled_back)
        return outer_state_abort(m, fragment, manifest, false);
    TRY(outer_state_aggregate(m, fragment, manifest->round, &aggregate));
    enum err e =
        manifest->rolled_back
            ? outer_state_rolled_back(m, fragment, manifest, aggregate.data, aggregate.size_bytes)
            : outer_state_apply(m, fragment, manifest, false, aggregate.data, aggregate.size_bytes);
    m->env->ops->unmap(m->env, &aggregate);
    return e;
}

/* The aggregator's: from the state of the round before, and the aggregate. */
static enum err remake(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct manifest manifest;
    char path[PATH_BYTES];
    TRY(outer_state_manifest(m, fragment, round, &manifest));
    outer_state_path(path, fragment, round + 1, "MANIFEST");
    if (!digest_equal(&manifest.parent, &m->state[fragment].manifest)) /* of another history */
        return outer_state_damaged(m, path);
    if (!manifest.rolled_back)
        remade_own(m, fragment, &manifest);
    TRY(step_again(m, fragment, &manifest));
    if (manifest.rolled_back)
        outer_state_give_up(m, fragment);
    return outer_state_commit(m, fragment, &manifest, NULL, 0);
}

/* The state of this round does not verify. Only the aggregator can make it again in full: a site's
 * residual of that state is not a function of the aggregate; the site gets the rounds again from
 * the aggregator and its own outbox, or a snapshot where it had taken one. */
static enum err load_before(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct outer_state_fragment *s = &m->state[fragment];
    char path[PATH_BYTES];
    uint64_t before;
    enum err e = outer_state_newest(m, fragment, "state", round, &before);
    if (e == ERR_INPUT || (e == ERR_OK && !m->o.residuals && before + 1 != round)) {
        outer_state_path(path, fragment, round, "state");
        return outer_state_damaged(m, path);
    }
    TRY(e);
    log_event(LOG_WARN, "state_damaged",
              "fragment=%u round=%" PRIu64 " action=from_state before=%" PRIu64, fragment, round,
              before);
    e = outer_state_read(m, fragment, before, s);
    if (!m->o.residuals)
        return e == ERR_OK ? remake(m, fragment, before) : e;
    if (e == ERR_CORRUPT)
        e = load_before(m, fragment, before);
    return e == ERR_OK ? outer_state_drop(m, fragment, round, "state")
                       : e; /* it counts for nothing any more */
}

/* found: CURRENT was lost, and this is what it named. */
static enum err load_current(struct outer_state *m, unsigned fragment,
                             const struct outer_state_current *current, bool found)
{
    struct outer_state_fragment *s = &m->state[fragment];
    enum err e = outer_state_read(m, fragment, current->round, s);
    bool other = e == ERR_OK && !digest_equal(&s->manifest, &current->manifest);
    if (other && !found)
        return err_set(ERR_CORRUPT,
                       "%s/frag/%u/CURRENT and state %" PRIu64 " name different manifests",
                       m->env->root, fragment, current->round);
    if (e == ERR_CORRUPT || e == ERR_INPUT || other)
        return load_before(m, fragment, current->round);
    return e;
}

enum err outer_state_load_fragment(struct outer_state *m, unsigned fragment)
{
    struct outer_state_current current = {0};
    char quoted[512];
    enum err e = outer_state_current_read(m, fragment, &current);
    bool lost = e == ERR_INPUT || e == ERR_CORRUPT;
    if (!lost) {
        TRY(e);
        return load_current(m, fragment, &current, false);
    }
    log_event(LOG_WARN, "current_lost", "fragment=%u why=%s", fragment,
              log_quote(quoted, sizeof quoted, err_message()));
    TRY(outer_state_current_find(m, fragment, &current));
    TRY(load_current(m, fragment, &current, true));
    log_event(LOG_WARN, "current_found", "fragment=%u round=%" PRIu64, fragment,
              m->state[fragment].round);
    return outer_state_current_write(m, fragment, &m->state[fragment]);
}

enum err outer_state_load(struct outer_state *m)
{
    TRY(outer_state_amendments_find(m));
    for (unsigned p = 0; p < m->fragments->count; p++)
        TRY(outer_state_load_fragment(m, p));
    return ERR_OK;
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

/* Directories of rounds older than all that is kept go whole; in younger ones only the big state
 * may go. Two states stay whatever happens: the present one, and the one it came from. */
static enum err outer_state_prune_before(struct outer_state *m, unsigned fragment, uint64_t now,
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

/* ---- the outer step ---- */

enum codec_kind outer_state_codec(const struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    return schedule_codec(&m->schedule, fragment, s->round, s->residual_ratio);
}

struct digest outer_state_grid(const struct outer_state *m, unsigned fragment)
{
    return digest_of(m->state[fragment].codes, outer_state_elements(m, fragment) / DEV_BLOCK);
}

/* What the manifest says about its inputs, before anything is decoded. */
static enum err inputs_check(const struct outer_state *m, unsigned fragment,
                             const struct manifest *manifest, const struct digest *aggregate,
                             size_t aggregate_bytes)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct digest grid = outer_state_grid(m, fragment);
    if (manifest->aggregate_bytes != aggregate_bytes ||
        !digest_equal(&manifest->aggregate, aggregate))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64 ": the aggregate is not the manifest's",
                       fragment, s->round);
    if (!digest_equal(&manifest->state_before, &s->digest) || !digest_equal(&manifest->grid, &grid))
        return err_set(ERR_DISAGREE,
                       "fragment %u: our state %" PRIu64 " is not the one the round was made from",
                       fragment, s->round);
    return ERR_OK;
}

/* Sums of squares in f64 do not overflow: they are finite where every value is. Theta's is kept. */
static enum err finite_check(struct outer_state *m, unsigned fragment,
                             const struct outer_opt_state *next)
{
    const float *const parts[] = {next->theta, next->momentum, next->gathered};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double sum = 0;
        if (parts[i])
            TRY(codec_squares(m->work, &sum, parts[i], NULL, outer_state_elements(m, fragment)));
        if (!isfinite(sum))
            return err_set(ERR_DIVERGED,
                           "fragment %u round %" PRIu64
                           ": the outer step gives values that are not finite",
                           fragment, m->state[fragment].round);
        if (i == 0)
            m->next.squares = sum;
    }
    return ERR_OK;
}

/* Values that took no part in the round: theta and what is beside it are as before. */
static void hold(struct outer_state *m, unsigned fragment, const struct outer_opt_state *at)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    size_t n = stages_held(&m->stages, &m->schedule, fragment, s->round);
    const struct {
        float *to;
        const float *from;
    } arrays[] = {{at->theta, s->theta}, {at->momentum, s->momentum}, {at->gathered, s->gathered}};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) {
            const struct dev_range *held = &m->stages.ranges[i];
            if (arrays[k].to)
                m->dev->ops->copy(m->dev, arrays[k].to + held->offset,
                                  arrays[k].from + held->offset, held->count * sizeof(float));
        }
}

/* The layers that the next stage adds. Nothing has changed their momentum yet: it is 0. */
static void grow(const struct outer_state *m, unsigned fragment, float *theta, uint8_t *codes)
{
    size_t n = stages_growth(&m->stages, &m->schedule, fragment, m->state[fragment].round);
    for (size_t i = 0; i < n; i++) {
        const struct depth_copy *c = &m->stages.copies[i];
        m->dev->ops->copy(m->dev, theta + c->to, theta + c->from, c->count * sizeof *theta);
        memcpy(codes + c->to / DEV_BLOCK, codes + c->from / DEV_BLOCK,
               (c->count + DEV_BLOCK - 1) / DEV_BLOCK);
    }
}

struct outer_opt outer_state_optimizer(const struct outer_state *m, unsigned fragment,
                                       uint64_t round)
{
    struct outer_opt o = *outer_state_configured(&m->o, fragment);
    bool early = MUTANT(AMENDED_EARLY) && !m->o.residuals &&
                 round + 1 < schedule_rounds(&m->schedule, fragment);
    const struct schedule_change *changed = schedule_changed(&m->schedule, fragment, round + early);
    if (changed && m->fragments->f[fragment].state == FRAGMENT_PARAMETERS)
        o.lr = changed->lr;
    o.lr = anneal_rate(&o.anneal, o.lr, &m->schedule, fragment, round);
    if (outer_opt_momentum(&o))
        o.mu = anneal_momentum(&o.anneal, o.mu, &m->schedule, fragment, round);
    return o;
}

/* The outer step with m->mean, from the current state into `next`. */
static enum err advance(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    size_t n = outer_state_elements(m, fragment);
    struct staging *g = &m->staging;
    struct outer_opt_state at = {
        .theta = staging_take(g, STAGING_THETA, next->theta, s->theta, n),
        .momentum = staging_take(g, STAGING_BESIDE, next->momentum, s->momentum, n),
        .gathered = staging_take(g, STAGING_GATHERED, next->gathered, s->gathered, n)};
    struct outer_opt o = outer_state_optimizer(m, fragment, s->round);
    if (at.momentum && anneal_restarts(&o.anneal, &m->schedule, fragment, s->round))
        m->dev->ops->zero(m->dev, at.momentum, n * sizeof *at.momentum);
    outer_opt_step(m->dev, &o, &at, m->mean, s->round, n);
    hold(m, fragment, &at);
    grow(m, fragment, at.theta, next->codes);
    TRY(finite_check(m, fragment, &at));
    staging_out(g, next->theta, at.theta, n);
    staging_out(g, next->momentum, at.momentum, n);
    staging_out(g, next->gathered, at.gathered, n);
    staging_keep(g, STAGING_THETA, next->theta);
    return dev_sync(m->dev);
}

struct codec_call outer_state_call(const struct outer_state *m, unsigned fragment,
                                   const uint8_t *grid)
{
    const struct fragment *f = &m->fragments->f[fragment];
    return (struct codec_call){.work = m->work,
                               .grid = grid,
                               .count = f->elements,
                               .view = &f->view,
                               .state = m->state[fragment].codec_state};
}

enum err outer_state_decode(struct outer_state *m, unsigned fragment, enum codec_kind kind,
                            float *values, const struct codec_payload *payload, const uint8_t *grid)
{
    const struct codec *c = codec_get(kind);
    struct codec_call call = outer_state_call(m, fragment, grid);
    return c->decode(c, &call, values, payload->data, payload->size_bytes);
}

enum err outer_state_ahead(struct outer_state *m, unsigned fragment, float *theta)
{
    TRY(advance(m, fragment));
    memcpy(theta, m->next.theta, outer_state_elements(m, fragment) * sizeof *theta);
    return ERR_OK;
}

/* m->mean, and the codes that follow from an aggregate on the grid `codes`. */
static enum err mean_of(struct outer_state *m, unsigned fragment, const struct manifest *manifest,
                        const struct codec_payload *aggregate, uint8_t *next, const uint8_t *codes)
{
    const struct codec *c = codec_get(manifest->codec);
    if (!c || !manifest_included(manifest))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64 ": a manifest without codec or contributions",
                       fragment, manifest->round);
    struct codec_call call = outer_state_call(m, fragment, codes);
    if (!isfinite(manifest_weight(manifest)))
        return err_set(ERR_DIVERGED,
                       "fragment %u round %" PRIu64 ": the sum of weights is not finite", fragment,
                       manifest->round);
    enum merge_kind merge = outer_state_configured(&m->o, fragment)->merge;
    float weights[ROUND_SITES_MAX], factors[ROUND_SITES_MAX];
    struct merge_input in = {
        .aggregate = {aggregate->data, aggregate->size_bytes,
                      schedule_payloads(&m->schedule, c->kind, manifest_included(manifest)),
                      manifest_weight(manifest)},
        .weights = weights,
        .length_max = outer_state_configured(&m->o, fragment)->length_max};
    manifest_weights(manifest, weights);
    if (manifest_factors(manifest, factors))
        in.factors = factors;
    if (in.factors && in.aggregate.n != manifest_included(manifest))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64
                       ": factors for contributions of which only the sum is there",
                       fragment, manifest->round);
    if (merge_reads_each(merge) || in.factors) /* both are free until the step */
        in.values = staging_at(&m->staging, STAGING_BESIDE, m->next.theta);
    return merge_apply(merge, c, &call, m->mean, next, &in);
}

static enum err mean_again(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           struct arena *scratch)
{
    uint8_t *next;
    TRY_ALLOC(next = arena_alloc(scratch, outer_state_elements(m, fragment) / DEV_BLOCK));
    const struct codec_payload payload = {aggregate, manifest->aggregate_bytes};
    return mean_of(m, fragment, manifest, &payload, next, m->next.codes);
}

enum err outer_state_mean(struct outer_state *m, unsigned fragment, uint64_t round,
                          struct manifest *manifest)
{
    struct arena scratch = arena_make(0);
    struct outer_state_fragment before = *outer_state_next(m, fragment);
    struct file_map aggregate = {0};
    enum err e = outer_state_manifest(m, fragment, round, manifest);
    if (e == ERR_OK && manifest_aborted(manifest))
        e = err_set(ERR_INPUT, "fragment %u round %" PRIu64 " was aborted: it has no mean",
                    fragment, round);
    if (e == ERR_OK)
        e = outer_state_aggregate(m, fragment, round, &aggregate);
    if (e == ERR_OK)
        e = outer_state_read(m, fragment, round, &before);
    if (e == ERR_OK)
        e = mean_again(m, fragment, manifest, aggregate.data, &scratch);
    m->env->ops->unmap(m->env, &aggregate);
    arena_free(&scratch);
    return e;
}

static enum err step(struct outer_state *m, unsigned fragment, const struct manifest *manifest,
                     const uint8_t *aggregate, size_t aggregate_bytes)
{
    const struct codec_payload payload = {aggregate, aggregate_bytes};
    TRY(mean_of(m, fragment, manifest, &payload, outer_state_next(m, fragment)->codes,
                m->state[fragment].codes));
    return advance(m, fragment);
}

enum err outer_state_apply(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                           bool made, const uint8_t *aggregate, size_t aggregate_bytes)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct digest input = digest_of(aggregate, aggregate_bytes);
    ASSERT(manifest->fragment == fragment && manifest->round == s->round);
    ASSERT(digest_equal(&manifest->parent, &s->manifest));
    if (made) {
        manifest->state_before = s->digest;
        manifest->grid = outer_state_grid(m, fragment);
        manifest->aggregate = input;
        manifest->aggregate_bytes = aggregate_bytes;
    }
    TRY(inputs_check(m, fragment, manifest, &input, aggregate_bytes));
    TRY(step(m, fragment, manifest, aggregate, aggregate_bytes));
    m->next.round = s->round + 1;
    m->next.digest = outer_state_shared_digest(&m->next, outer_state_elements(m, fragment));
    if (made)
        manifest->state_after = m->next.digest;
    if (!digest_equal(&manifest->state_after, &m->next.digest))
        return err_set(ERR_DISAGREE, "fragment %u: our state %" PRIu64 " is not the manifest's",
                       fragment, m->next.round);
    return ERR_OK;
}

/* What the residuals of the round before hold waits on; after a residual reset it is gone, and
 * they hold this round's work alone. */
static uint8_t abort_residual_ratio(const struct outer_state *m,
                                    const struct outer_state_fragment *s)
{
    return schedule_resets_residual(&m->schedule, s->residual_ratio) ? 0 : s->residual_ratio;
}

enum err outer_state_abort(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                           bool made)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    struct file_part from[SHARED_MAX], to[SHARED_MAX];
    size_t elements = outer_state_elements(m, fragment),
           n = outer_state_shared_parts(s, elements, from);
    ASSERT(manifest->fragment == fragment && manifest->round == s->round);
    ASSERT(manifest_aborted(manifest) && digest_equal(&manifest->parent, &s->manifest));
    if (made) {
        manifest->state_before = s->digest;
        manifest->grid = outer_state_grid(m, fragment);
        manifest->residual_ratio = abort_residual_ratio(m, s);
    }
    if (!digest_equal(&manifest->state_before, &s->digest))
        return err_set(ERR_DISAGREE,
                       "fragment %u: our state %" PRIu64 " is not the one whose round was aborted",
                       fragment, s->round);
    outer_state_shared_parts(next, elements, to);
    for (size_t i = 0; i < n; i++)
        memcpy((void *)(uintptr_t)to[i].data, from[i].data, from[i].size_bytes);
    next->round = s->round + 1;
    grow(m, fragment, next->theta, next->codes);
    TRY(dev_sync(m->dev));
    next->digest = outer_state_shared_digest(next, elements);
    if (made)
        manifest->state_after = next->digest;
    if (!digest_equal(&manifest->state_after, &next->digest))
        return err_set(ERR_DISAGREE, "fragment %u: our state %" PRIu64 " is not the manifest's",
                       fragment, next->round);
    return ERR_OK;
}

bool outer_state_kept(struct outer_state *m, unsigned fragment, uint64_t round)
{
    char path[PATH_BYTES];
    outer_state_path(path, fragment, round, "state");
    return m->env->ops->exists(m->env, path);
}

enum err outer_state_roll_back(struct outer_state *m, unsigned fragment, struct manifest *manifest,
                               uint64_t to)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct outer_state_fragment *next = outer_state_next(m, fragment), kept = *next;
    struct file_part parts[SHARED_MAX];
    struct file_map map;
    size_t elements = outer_state_elements(m, fragment);
    ASSERT(to < s->round && manifest->round == s->round && manifest_aborted(manifest));
    TRY(outer_state_read(m, fragment, to, &kept));
    next->round = s->round + 1;
    next->digest = outer_state_shared_digest(next, elements);
    size_t n = outer_state_shared_parts(next, elements, parts);
    TRY(outer_state_aggregate_put(m, fragment, parts, n, &map));
    m->env->ops->unmap(m->env, &map);
    outer_state_give_up(m, fragment);
    manifest->rolled_back = true;
    manifest->rolled_to = to;
    manifest->state_before = s->digest;
    manifest->grid = outer_state_grid(m, fragment);
    manifest->state_after = manifest->aggregate = next->digest;
    manifest->aggregate_bytes = outer_state_parts_bytes(parts, n);
    return ERR_OK;
}

enum err outer_state_rolled_back(struct outer_state *m, unsigned fragment,
                                 const struct manifest *manifest, const uint8_t *aggregate,
                                 size_t aggregate_bytes)
{
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    struct file_part parts[SHARED_MAX];
    struct digest d = digest_of(aggregate, aggregate_bytes);
    size_t n = outer_state_shared_parts(next, outer_state_elements(m, fragment), parts);
    ASSERT(manifest->round == m->state[fragment].round && manifest->rolled_back);
    if (aggregate_bytes != outer_state_parts_bytes(parts, n) ||
        !digest_equal(&d, &manifest->state_after))
        return err_set(ERR_PROTO,
                       "fragment %u round %" PRIu64
                       ": these bytes are not the state rolled back to",
                       fragment, manifest->round);
    for (size_t i = 0; i < n; aggregate += parts[i++].size_bytes)
        memcpy((void *)(uintptr_t)parts[i].data, aggregate, parts[i].size_bytes);
    next->round = manifest->round + 1;
    next->digest = d;
    staging_forget(&m->staging, next->theta);
    return ERR_OK;
}

static enum err squares_find(struct outer_state *m, unsigned fragment,
                             struct outer_state_fragment *s)
{
    size_t n = outer_state_elements(m, fragment);
    if (s->squares >= 0)
        return ERR_OK;
    const float *theta = staging_in(&m->staging, STAGING_THETA, s->theta, n);
    staging_keep(&m->staging, STAGING_THETA, s->theta);
    return codec_squares(m->work, &s->squares, theta, NULL, n);
}

enum err outer_state_rms(struct outer_state *m, unsigned fragment, float *rms)
{
    struct outer_state_fragment *s = &m->state[fragment];
    TRY(squares_find(m, fragment, s));
    *rms = (float)sqrt(s->squares / (double)outer_state_elements(m, fragment));
    return ERR_OK;
}

/* All arrays of `next` but the codes, which are the last of the shared parts. */
static void arrays_copy(struct outer_state *m, unsigned fragment)
{
    struct outer_state_fragment *s = &m->state[fragment];
    struct file_part to[PARTS_MAX], from[PARTS_MAX];
    size_t n = outer_state_elements(m, fragment);
    size_t k = outer_state_shared_parts(s, n, to) - 1;
    outer_state_shared_parts(&m->next, n, from);
    outer_state_own_parts(&m->next, n, from + k);
    k += outer_state_own_parts(s, n, to + k);
    for (size_t i = 0; i < k; i++)
        memcpy((void *)(uintptr_t)to[i].data, from[i].data, from[i].size_bytes);
    staging_forget(&m->staging, s->theta);
    if (staging_kept(&m->staging, STAGING_THETA, m->next.theta))
        staging_keep(&m->staging, STAGING_THETA, s->theta);
}

/* `next`, complete, becomes durable. aggregate NULL: from a snapshot, there is none; or it lies
 * there already. */
static enum err next_store(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           size_t aggregate_bytes)
{
    char path[PATH_BYTES];
    m->next.manifest = manifest_digest(manifest);
    m->next.residual_ratio = manifest_residual_ratio(manifest);
    outer_state_path(path, fragment, m->next.round, "aggregate");
    if (aggregate)
        TRY(m->env->ops->write(m->env, path, &(struct file_part){aggregate, aggregate_bytes}, 1));
    else if (manifest_aborted(manifest) &&
             !manifest->rolled_back) /* a gathered one was written before the outer step */
        TRY(m->env->ops->remove(m->env, path));
    TRY(outer_state_manifest_write(m, fragment, manifest));
    if (MUTANT(CURRENT_FIRST))
        TRY(outer_state_current_write(m, fragment, &m->next));
    return outer_state_write(m, fragment, &m->next);
}

enum err outer_state_store(struct outer_state *m, unsigned fragment,
                           const struct manifest *manifest, const uint8_t *aggregate,
                           size_t aggregate_bytes)
{
    ASSERT(m->next.round == m->state[fragment].round + 1 && manifest->round + 1 == m->next.round);
    ASSERT(digest_equal(&manifest->state_after, &m->next.digest));
    if (!m->o.residuals) /* a site has no use for it */
        TRY(squares_find(m, fragment, &m->next));
    return next_store(m, fragment, manifest, aggregate, aggregate_bytes);
}

static enum err outer_state_next_pass(struct outer_state *m, unsigned fragment)
{
    TRY(m->env->ops->owned(m->env));
    TRY(outer_state_current_write(m, fragment, &m->next)); /* == COMMIT POINT == */
    arrays_copy(m, fragment);
    return ERR_OK;
}

/* After the commit point: what a full disk leaves goes with the next commit. */
static enum err next_prune(struct outer_state *m, unsigned fragment)
{
    uint64_t more = m->o.states > OUTER_STATES_MIN ? m->o.states - 1 : 0;
    uint64_t oldest = m->next.round > more ? m->next.round - more : 0;
    enum err e = outer_state_prune_before(m, fragment, m->next.round,
                                          m->o.residuals ? m->pruned[fragment] : oldest);
    return e == ERR_FULL || e == ERR_MEMORY ? ERR_OK : e;
}

enum err outer_state_pass(struct outer_state *m, unsigned fragment)
{
    TRY(outer_state_next_pass(m, fragment));
    return next_prune(m, fragment);
}

void outer_state_switch(struct outer_state *m, unsigned fragment)
{
    struct outer_state_fragment *s = &m->state[fragment];
    memcpy(s->codes, m->next.codes, outer_state_elements(m, fragment) / DEV_BLOCK);
    s->round = m->next.round;
    s->manifest = m->next.manifest;
    s->residual_ratio = m->next.residual_ratio;
    s->digest = m->next.digest;
    s->squares = m->next.squares;
}

static enum err next_commit(struct outer_state *m, unsigned fragment)
{
    TRY(outer_state_next_pass(m, fragment));
    outer_state_switch(m, fragment);
    return next_prune(m, fragment);
}

enum err outer_state_commit(struct outer_state *m, unsigned fragment,
                            const struct manifest *manifest, const uint8_t *aggregate,
                            size_t aggregate_bytes)
{
    TRY(outer_state_store(m, fragment, manifest, aggregate, aggregate_bytes));
    return next_commit(m, fragment);
}

/* ---- a file that was found damaged ---- */

static enum err repair_present(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct digest d = outer_state_shared_digest(s, outer_state_elements(m, fragment));
    if (!digest_equal(&d, &s->digest))
        return err_set(ERR_CORRUPT,
                       "fragment %u: state %" PRIu64
                       " has changed in memory too, in this process: faulty memory?",
                       fragment, s->round);
    return outer_state_write(m, fragment, s);
}

/* Residual and discarded residual of a file whose shared parts are damaged, into `next`. */
static enum err outer_state_own_read(struct outer_state *m, unsigned fragment, uint64_t round)
{
    enum { MOST = 4 * sizeof(float) + sizeof(double) + 1 };
    char path[PATH_BYTES];
    struct file_part own[OWN_MAX];
    struct arena scratch = arena_make(0);
    struct state_head head = {0};
    struct record_form form = {"state", state_fields, &head};
    struct record r;
    size_t elements = outer_state_elements(m, fragment),
           n = outer_state_own_parts(&m->next, elements, own);
    if (!n)
        return ERR_OK;
    outer_state_path(path, fragment, round, "state");
    enum err e = store_read(m->env, path, &form, elements * MOST, &r, &scratch);
    if (e == ERR_OK && (head.round != round || !record_take(&r, 1, own, n)))
        e = err_set(ERR_CORRUPT, "its residual is damaged, and is not a function of the rounds");
    arena_free(&scratch);
    return e;
}

static enum err repair_before(struct outer_state *m, unsigned fragment, uint64_t round)
{
    struct arena scratch = arena_make(0);
    struct outer_state copy = *m;
    struct manifest manifest;
    struct outer_state_fragment *s = NULL;
    enum err e = round ? outer_state_manifest(m, fragment, round - 1, &manifest)
                       : err_set(ERR_INPUT, "nothing comes before the initial state");
    if (e == ERR_OK && !(copy.state = arena_array(&scratch, m->fragments->count, sizeof *s)))
        e = ERR_MEMORY;
    if (e == ERR_OK) {
        s = &copy.state[fragment];
        e = outer_state_arrays_alloc(s, &m->o, outer_state_configured(&m->o, fragment),
                                     outer_state_elements(m, fragment), &scratch);
        s->codec_state = m->state[fragment].codec_state;
    }
    if (e == ERR_OK)
        e = outer_state_read(&copy, fragment, round - 1, s);
    if (e == ERR_OK && !digest_equal(&manifest.parent, &s->manifest))
        e = err_set(ERR_CORRUPT, "the manifest kept with it is of another history");
    if (e == ERR_OK)
        e = step_again(&copy, fragment, &manifest);
    if (e == ERR_OK)
        e = outer_state_own_read(&copy, fragment, round);
    if (e == ERR_OK) {
        copy.next.manifest = manifest_digest(&manifest);
        copy.next.residual_ratio = manifest_residual_ratio(&manifest);
        e = outer_state_write(m, fragment, &copy.next);
    }
    m->staging = copy.staging;
    m->next.squares = SQUARES_UNKNOWN;
    staging_forget(&m->staging, m->buffers.theta);
    if (s)
        staging_forget(&m->staging, s->theta);
    arena_free(&scratch);
    return e;
}

enum err outer_state_repair(struct outer_state *m, unsigned fragment, uint64_t round)
{
    return round == m->state[fragment].round ? repair_present(m, fragment)
                                             : repair_before(m, fragment, round);
}

enum err outer_state_repair_current(struct outer_state *m, unsigned fragment)
{
    return outer_state_current_write(m, fragment, &m->state[fragment]);
}

enum err outer_state_manifest_digest(struct outer_state *m, unsigned fragment, uint64_t round,
                                     struct digest *out)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct manifest after;
    if (round + 1 >= s->round) {
        *out = s->manifest;
        return round + 1 == s->round ? ERR_OK : err_set(ERR_INPUT, "not committed");
    }
    TRY(outer_state_manifest(m, fragment, round + 1, &after));
    *out = after.parent;
    return ERR_OK;
}

/* ---- in memory alone ---- */

void outer_state_follow(struct outer_state *m, unsigned fragment, const struct manifest *manifest)
{
    ASSERT(m->next.round == m->state[fragment].round + 1 && manifest->round + 1 == m->next.round);
    m->next.manifest = manifest_digest(manifest);
    m->next.residual_ratio = manifest_residual_ratio(manifest);
    arrays_copy(m, fragment);
    outer_state_switch(m, fragment);
}

enum err outer_state_file_open(struct outer_state_file *f, const struct outer_state *m,
                               unsigned fragment, const char *path, const void *data,
                               size_t size_bytes, struct arena *a)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    struct file_part parts[PARTS_MAX];
    struct state_head head = {0}, ours = head_of(s, fragment, outer_state_elements(m, fragment));
    struct record_form form = {"state", state_fields, &head};
    struct record r;
    TRY(record_open(&r, &form, path, data, size_bytes, a));
    size_t shared =
        outer_state_parts_bytes(parts, outer_state_shared_parts(s, ours.elements, parts));
    if (head.fragment != fragment || head.elements != ours.elements || r.section_count != 2 ||
        r.sections[0].size_bytes != shared)
        return err_set(ERR_CORRUPT, "%s: another fragment's, or made with other settings", path);
    *f = (struct outer_state_file){.round = head.round,
                                   .manifest = head.manifest,
                                   .digest = r.sections[0].digest,
                                   .intact = record_intact(&r, 0),
                                   .shared = r.sections[0].data,
                                   .shared_bytes = shared,
                                   .own_intact = record_intact(&r, 1),
                                   .residual_ratio = head.residual_ratio};
    size_t own = outer_state_parts_bytes(parts, outer_state_own_parts(s, ours.elements, parts));
    if (own && !m->o.residuals && r.sections[1].size_bytes == own && f->own_intact)
        f->own = r.sections[1].data;
    return ERR_OK;
}

void outer_state_file_take(struct outer_state *m, unsigned fragment,
                           const struct outer_state_file *f)
{
    struct outer_state_fragment *s = &m->state[fragment];
    struct file_part parts[PARTS_MAX];
    size_t elements = outer_state_elements(m, fragment),
           n = outer_state_shared_parts(s, elements, parts);
    const uint8_t *from = f->shared;
    ASSERT(f->intact && f->shared_bytes == outer_state_parts_bytes(parts, n));
    for (size_t i = 0; i < n; from += parts[i++].size_bytes)
        memcpy((void *)(uintptr_t)parts[i].data, from, parts[i].size_bytes);
    n = outer_state_own_parts(s, elements, parts);
    from = f->own;
    for (size_t i = 0; i < n; from += from ? parts[i].size_bytes : 0, i++)
        if (from)
            memcpy((void *)(uintptr_t)parts[i].data, from, parts[i].size_bytes);
        else
            memset((void *)(uintptr_t)parts[i].data, 0, parts[i].size_bytes);
    staging_forget(&m->staging, s->theta);
    s->round = f->round;
    s->manifest = f->manifest;
    s->digest = f->digest;
    s->residual_ratio = f->residual_ratio;
    s->squares = SQUARES_UNKNOWN;
}

/* ---- a round given up ---- */

enum err outer_state_step_back(struct outer_state *m, unsigned fragment)
{
    uint64_t round = m->state[fragment].round;
    struct outer_state_fragment *before = outer_state_next(m, fragment);
    struct manifest made;
    char path[PATH_BYTES];
    ASSERT(m->o.residuals && round > 0);
    TRY(outer_state_manifest(m, fragment, round - 1, &made));
    TRY(outer_state_read(m, fragment, round - 1, before));
    outer_state_path(path, fragment, round - 1, "state");
    if (!digest_equal(&before->manifest, &made.parent) ||
        !digest_equal(&before->digest, &made.state_before))
        return outer_state_damaged(m, path);
    TRY(outer_state_next_pass(m, fragment)); /* == COMMIT POINT == */
    outer_state_switch(m, fragment);
    enum err e =
        outer_state_drop(m, fragment, round, ""); /* what is left is replaced by the next commit */
    return e == ERR_FULL || e == ERR_MEMORY ? ERR_OK : e;
}

/* ---- snapshot, final digest ---- */

size_t outer_state_snapshot_bytes(const struct outer_state *m, unsigned fragment)
{
    struct file_part parts[SHARED_MAX];
    return outer_state_parts_bytes(
        parts,
        outer_state_shared_parts(&m->state[fragment], outer_state_elements(m, fragment), parts));
}

size_t outer_state_shared_bytes(const struct outer_state_options *o, unsigned fragment)
{
    struct outer_state_options shared = *o;
    shared.residuals = shared.compresses_downlink = shared.discards = false;
    return state_bytes(&shared, outer_state_configured(o, fragment),
                       o->fragments->f[fragment].elements);
}

size_t outer_state_state_bytes(const struct outer_state *m, unsigned fragment)
{
    struct file_part parts[OWN_MAX];
    size_t n = outer_state_own_parts(&m->state[fragment], outer_state_elements(m, fragment), parts);
    return outer_state_snapshot_bytes(m, fragment) + outer_state_parts_bytes(parts, n);
}

enum err outer_state_snapshot_write(const struct outer_state *m, unsigned fragment, uint8_t *out)
{
    struct file_part parts[SHARED_MAX];
    size_t n =
        outer_state_shared_parts(&m->state[fragment], outer_state_elements(m, fragment), parts);
    for (size_t i = 0; i < n; i++) {
        memcpy(out, parts[i].data, parts[i].size_bytes);
        out += parts[i].size_bytes;
    }
    return ERR_OK;
}

static void own_zero(struct outer_state *m, unsigned fragment)
{
    struct file_part parts[OWN_MAX];
    size_t n = outer_state_own_parts(&m->next, outer_state_elements(m, fragment), parts);
    for (size_t i = 0; i < n; i++)
        memset((void *)(uintptr_t)parts[i].data, 0, parts[i].size_bytes);
}

enum err outer_state_snapshot_adopt(struct outer_state *m, unsigned fragment,
                                    const struct manifest *manifest, const uint8_t *data,
                                    size_t size_bytes, bool own)
{
    struct outer_state_fragment *next = outer_state_next(m, fragment);
    struct file_part parts[SHARED_MAX];
    struct digest d = digest_of(data, size_bytes);
    size_t n = outer_state_shared_parts(next, outer_state_elements(m, fragment), parts);
    if (size_bytes != outer_state_parts_bytes(parts, n) ||
        !digest_equal(&d, &manifest->state_after))
        return err_set(ERR_PROTO,
                       "fragment %u: the snapshot is not state %" PRIu64 " of its manifest",
                       fragment, manifest->round + 1);
    for (size_t i = 0; i < n; data += parts[i++].size_bytes)
        memcpy((void *)(uintptr_t)parts[i].data, data, parts[i].size_bytes);
    if (!own)
        own_zero(m, fragment);
    next->round = manifest->round + 1;
    next->digest = d;
    log_event(LOG_INFO, "snapshot_adopted", "fragment=%u round=%" PRIu64 " residual=%s", fragment,
              next->round, own ? "kept" : "zero");
    TRY(next_store(m, fragment, manifest, NULL, 0));
    return next_commit(m, fragment);
}

struct digest outer_state_digest(const struct outer_state *m, bool residual)
{
    struct digest_stream s;
    digest_open(&s);
    for (unsigned p = 0; p < m->fragments->count; p++) {
        struct file_part parts[PARTS_MAX];
        size_t n = outer_state_elements(m, p), k = outer_state_shared_parts(&m->state[p], n, parts);
        if (residual)
            k += outer_state_own_parts(&m->state[p], n, parts + k);
        parts_add(&s, parts, k);
    }
    return digest_close(&s);
}
