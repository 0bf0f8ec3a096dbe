/* SPDX-License-Identifier: Apache-2.0 */
/* The outer state in memory: its arrays and parts, the schedule under amendments. */
#include "outer/store/outer_state_own.h"
#include <string.h>

size_t outer_state_elements(const struct outer_state *m, unsigned fragment)
{
    ASSERT(fragment < m->fragments->count);
    return m->fragments->f[fragment].elements;
}

const struct outer_opt *outer_state_configured(const struct outer_state_options *o,
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

static size_t leaf_count(const struct outer_state_options *o, const struct outer_opt *outer,
                         size_t elements)
{
    return state_leaves(o->digest, elements, 2 + outer_opt_slabs(outer));
}

size_t outer_state_leaves(const struct outer_state_options *o, unsigned fragment)
{
    return leaf_count(o, outer_state_configured(o, fragment), o->fragments->f[fragment].elements);
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
    size_t most = shards_largest(&o->shards, o->fragments);
    struct outer_memory m = {.host = state_bytes(o, &o->outer, most) +
                                     leaf_count(o, &o->outer, most) * sizeof(struct digest)};
    for (unsigned p = 0; p < o->fragments->count; p++) {
        if (!shards_hold(&o->shards, p))
            continue;
        m.host += state_bytes(o, outer_state_configured(o, p), o->fragments->f[p].elements) +
                  outer_state_leaves(o, p) * sizeof(struct digest) + codec_state_bytes(o, p);
    }
    if (here) /* the mean */
        m.host += most * sizeof(float);
    else
        m.device = staging_bytes(most, outer_opt_slabs(&o->outer));
    m.device += here ? 0 : codec_device_bytes(most);
    m.host += codec_host_bytes(most, here);
    return m;
}

enum err outer_state_arrays_alloc(struct outer_state_fragment *s,
                                  const struct outer_state_options *o,
                                  const struct outer_opt *outer, size_t elements,
                                  struct arena *perm)
{
    TRY_ALLOC(s->theta = arena_array(perm, elements, sizeof *s->theta));
    TRY_ALLOC(s->codes = arena_alloc(perm, elements / DEV_BLOCK));
    for (unsigned i = 0; i < outer_opt_slabs(outer); i++)
        TRY_ALLOC(s->slab[i] = arena_array(perm, elements, sizeof *s->slab[i]));
    if (o->residuals || o->compresses_downlink)
        TRY_ALLOC(s->residual = arena_array(perm, elements, sizeof *s->residual));
    if (o->discards)
        TRY_ALLOC(s->discarded = arena_array(perm, elements, sizeof *s->discarded));
    if (o->digest == STATE_DIGEST_LEAVES)
        TRY_ALLOC(s->leaf = arena_array(perm, leaf_count(o, outer, elements), sizeof *s->leaf));
    return ERR_OK;
}

static enum err codec_states_alloc(struct outer_state *m, struct arena *perm)
{
    for (unsigned p = 0; p < m->fragments->count; p++)
        if (outer_state_holds(m, p) && codec_state_bytes(&m->o, p))
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
    size_t most = shards_largest(&o->shards, o->fragments);
    TRY_ALLOC(m->state = arena_array(perm, o->fragments->count, sizeof *m->state));
    for (unsigned p = 0; p < o->fragments->count; p++) {
        if (!outer_state_holds(m, p))
            continue;
        TRY(outer_state_arrays_alloc(&m->state[p], o, outer_state_configured(o, p),
                                     o->fragments->f[p].elements, perm));
        m->state[p].squares = SQUARES_UNKNOWN;
    }
    TRY(codec_states_alloc(m, perm));
    TRY(outer_state_arrays_alloc(&m->buffers, o, &o->outer, most, perm));
    m->next = m->buffers;
    TRY(staging_open(&m->staging, d, most, outer_opt_slabs(&o->outer)));
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

struct outer_state_fragment *outer_state_next(struct outer_state *m, unsigned fragment)
{
    const struct outer_state_fragment *s = &m->state[fragment];
    staging_forget(&m->staging, m->buffers.theta); /* the caller changes it */
    m->next.squares = SQUARES_UNKNOWN;
    for (unsigned i = 0; i < OUTER_SLABS; i++)
        m->next.slab[i] = s->slab[i] ? m->buffers.slab[i] : NULL;
    return &m->next;
}

/* ---- the state's parts ---- */

size_t outer_state_shared_parts(const struct outer_state_fragment *s, size_t elements,
                                struct file_part out[SHARED_MAX])
{
    size_t n = 0;
    out[n++] = (struct file_part){s->theta, elements * sizeof *s->theta};
    for (unsigned i = 0; i < OUTER_SLABS && s->slab[i]; i++)
        out[n++] = (struct file_part){s->slab[i], elements * sizeof *s->slab[i]};
    out[n++] = (struct file_part){s->codes, elements / DEV_BLOCK};
    return n;
}

size_t outer_state_own_parts(const struct outer_state_fragment *s, size_t elements,
                             struct file_part out[OWN_MAX])
{
    size_t n = 0;
    if (s->residual)
        out[n++] = (struct file_part){s->residual, elements * sizeof *s->residual};
    if (s->discarded)
        out[n++] = (struct file_part){s->discarded, elements * sizeof *s->discarded};
    return n;
}

size_t outer_state_parts_bytes(const struct file_part *parts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += parts[i].size_bytes;
    return bytes;
}

void outer_state_parts_fill(const struct file_part *to, size_t n, const uint8_t *bytes)
{
    for (size_t i = 0; i < n; i++) {
        void *at = (void *)(uintptr_t)to[i].data;
        if (bytes)
            memcpy(at, bytes, to[i].size_bytes);
        else
            memset(at, 0, to[i].size_bytes);
        bytes += bytes ? to[i].size_bytes : 0;
    }
}

/* ---- digests ---- */

struct state_cut outer_state_cut(const struct outer_state *m, unsigned fragment)
{
    return (struct state_cut){m->o.digest, outer_state_elements(m, fragment), m->dev->threads};
}

static struct digest shared_sum(const struct outer_state *m, unsigned fragment,
                                const struct outer_state_fragment *s, struct digest *leaf)
{
    struct digest_stream d;
    struct file_part parts[SHARED_MAX];
    struct state_cut cut = outer_state_cut(m, fragment);
    digest_open(&d);
    state_digest_add(&d, &cut, parts, outer_state_shared_parts(s, cut.elements, parts), leaf);
    return digest_close(&d);
}

void outer_state_sum(const struct outer_state *m, unsigned fragment, struct outer_state_fragment *s)
{
    s->digest = shared_sum(m, fragment, s, s->leaf);
}

bool outer_state_unchanged(const struct outer_state *m, unsigned fragment,
                           const struct outer_state_fragment *s)
{
    struct digest d = shared_sum(m, fragment, s, NULL);
    return digest_equal(&d, &s->digest);
}

size_t outer_state_digested(const struct outer_state *m, unsigned fragment, struct digest *sum,
                            struct file_part out[OUTER_STATE_SHARED_MAX])
{
    const struct outer_state_fragment *s = &m->state[fragment];
    if (m->o.digest != STATE_DIGEST_LEAVES)
        return outer_state_shared_parts(s, outer_state_elements(m, fragment), out);
    *sum = shared_sum(m, fragment, s, NULL);
    out[0] = (struct file_part){sum, sizeof *sum};
    return 1;
}

struct digest outer_state_digest(const struct outer_state *m, bool residual)
{
    struct digest_stream d;
    ASSERT(m->o.shards.ranks <= 1);
    digest_open(&d);
    for (unsigned p = 0; p < m->fragments->count; p++) {
        const struct outer_state_fragment *s = &m->state[p];
        struct state_cut cut = outer_state_cut(m, p);
        struct file_part parts[PARTS_MAX];
        struct digest sum;
        size_t n = outer_state_digested(m, p, &sum, parts);
        for (size_t i = 0; i < n; i++)
            digest_add(&d, parts[i].data, parts[i].size_bytes);
        if (residual)
            state_digest_add(&d, &cut, parts, outer_state_own_parts(s, cut.elements, parts), NULL);
    }
    return digest_close(&d);
}

/* ---- the initial state ---- */

enum err outer_state_place(struct outer_state *m, const float *initial_slab)
{
    for (unsigned p = 0; p < m->fragments->count; p++) {
        struct outer_state_fragment *s = &m->state[p];
        const struct fragment *f = &m->fragments->f[p];
        if (!outer_state_holds(m, p))
            continue;
        ASSERT(s->round == 0);
        if (f->state == FRAGMENT_PARAMETERS) /* moments begin at zero, as their memory does */
            fragment_gather(m->dev, s->theta, initial_slab, f);
        for (unsigned i = 0; i < OUTER_SLABS && s->slab[i]; i++)
            for (size_t k = 0; k < f->elements; k++)
                s->slab[i][k] = outer_opt_initial(outer_state_configured(&m->o, p), i);
        staging_forget(&m->staging, s->theta);
        TRY(dev_sync(m->dev));
        s->manifest = (struct digest){0};
        s->squares = SQUARES_UNKNOWN;
        outer_state_sum(m, p, s);
    }
    return ERR_OK;
}

/* ---- amendments ---- */

uint32_t outer_state_schedule_version(const struct outer_state *m)
{
    return m->amendments.count;
}

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

enum err outer_state_ends(struct outer_state *m, const struct schedule_former *ends)
{
    struct schedule s = m->o.schedule;
    schedule_ends_set(&s, ends);
    m->o.schedule = s;
    if (m->amendments.count)
        TRY(m->o.amend(m->o.amend_self, &s, &m->amendments));
    m->schedule = s;
    return ERR_OK;
}

/* ---- snapshots ---- */

size_t outer_state_shared_bytes(const struct outer_state_options *o, unsigned fragment)
{
    struct outer_state_options shared = *o;
    shared.residuals = shared.compresses_downlink = shared.discards = false;
    return state_bytes(&shared, outer_state_configured(o, fragment),
                       o->fragments->f[fragment].elements);
}

size_t outer_state_snapshot_bytes(const struct outer_state *m, unsigned fragment)
{
    return outer_state_shared_bytes(&m->o, fragment);
}

size_t outer_state_state_bytes(const struct outer_state *m, unsigned fragment)
{
    return state_bytes(&m->o, outer_state_configured(&m->o, fragment),
                       outer_state_elements(m, fragment));
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
