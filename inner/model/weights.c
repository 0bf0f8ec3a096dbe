/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/weights.h"
#include <stdlib.h>
#include <string.h>

/* Vectors, each of which begins at a multiple of TABLE_ALIGN. */
struct vectors {
    float *values;         /* device: in the order of the table; NULL: ops read them elsewhere */
    float *sent;           /* device: in the order of the ranks, and of the table in each */
    size_t *at;            /* (tensors) where a tensor begins in `values` */
    size_t *first;         /* (ranks + 1) of the ranks' elements in `sent` */
    struct dev_range *own; /* of this rank's shard */
    struct dev_range *put; /* ranges of `sent`, in the order of the table */
    size_t own_count, put_count, elements;
};
enum { ROOMS = 3, NO_UNIT = -1 }; /* of the embeddings; two of the other units */
struct room {                     /* of one unit */
    char *at;                     /* device */
    uint16_t *sums;               /* device: of gradients that are summed in bf16; NULL */
    ptrdiff_t unit;               /* NO_UNIT */
    uint64_t ticket;              /* of what collects it, or adds it up; 0: none */
    unsigned busy;                /* passes that need it now */
    bool sent;                    /* gradients: they are final */
};
enum { HELD_MAX = 2 };
struct held { /* f32 parameters of a range; at NULL: none */
    float *at;
    struct dev_range range;
};
struct shared { /* a model whose parameters the ranks share out */
    struct coll *coll;
    const struct unit_map *map;
    int stage;
    struct model_shards own;
    uint64_t *tickets;                       /* (units) of what collects them; 0: they are here */
    struct room params[ROOMS], grads[ROOMS]; /* from stage 3, 2 on */
    enum dtype sums;
    unsigned *added; /* (units) micro-batches of the step whose gradients are in the shard */
    bool up;         /* weights_go */
    struct vectors vectors;
    struct held held[HELD_MAX]; /* what weights_gather has handed out */
    enum err error;             /* the first of a pass */
};

const struct unit_map *weights_units(const struct weights *w)
{
    return w->shared ? w->shared->map : NULL;
}

bool weights_have_whole(const struct weights *w)
{
    return w->params != NULL;
}

struct model_shards weights_shards(const struct weights *w)
{
    return w->shared->own;
}

/* ---- memory ---- */
static bool is_vector(const struct tensor *x)
{
    return x->group == TABLE_VECTOR;
}

static size_t vector_elements(const struct table *t)
{
    size_t sum = 0;
    for (size_t i = 0; i < t->count; i++)
        sum += is_vector(&t->tensors[i]) ? table_span(t, i) : 0;
    return sum;
}

/* Elements of a room. */
static size_t room_elements(const struct unit_map *m, size_t room)
{
    size_t most = 0;
    if (room == 0)
        return unit_range(m, 0).count;
    for (size_t u = 1; u < m->count; u++)
        most = unit_range(m, u).count > most ? unit_range(m, u).count : most;
    return most;
}

static size_t rooms_elements(const struct unit_map *m)
{
    return room_elements(m, 0) + (ROOMS - 1) * room_elements(m, 1);
}

/* Elements of a whole slab, or of the rooms that take its place. */
static size_t held_elements(const struct table *t, const struct model_sharing *by, int stage)
{
    return by->map && by->stage >= stage ? rooms_elements(by->map) : t->elements;
}

static bool has_vectors(const struct model_sharing *by, enum dtype type)
{
    return by->map && (type != DTYPE_F32 || by->stage >= 3);
}

struct weights_memory weights_plan(const struct table *t, const struct model_sharing *by,
                                   bool train, enum dtype type)
{
    const size_t f32 = sizeof(float), size = dtype_size(type),
                 shard = by->map ? unit_shard_most(by->map) : 0;
    size_t grads = held_elements(t, by, 2) * f32 + shard * f32;
    bool narrow = type != DTYPE_F32;
    struct weights_memory x = {.parameters = shard * f32};
    if (by->map && by->stage >= 2 && by->sums == DTYPE_BF16)
        grads += rooms_elements(by->map) * dtype_size(DTYPE_BF16);
    if (has_vectors(by, type))
        x.parameters += 2 * vector_elements(t) * f32;
    if (!by->map || !narrow)
        x.parameters += held_elements(t, by, 3) * f32;
    x.params_bf16 = narrow ? (held_elements(t, by, 3) + shard) * size : 0;
    x.gradients = train ? grads : 0;
    return x;
}

/* The pieces of each vector, rank by rank. */
static size_t list_pieces(const struct table *t, const struct shared *x, struct dev_range *pieces,
                          int *ranks)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t begin = t->tensors[i].offset;
        const struct dev_range whole = {begin, table_span(t, i)};
        for (int r = 0; is_vector(&t->tensors[i]) && r < x->map->ranks; r++) {
            size_t from;
            struct dev_range own = unit_own(x->map, unit_of(x->map, begin), r, whole, &from);
            if (own.count == 0)
                continue;
            pieces[n] = (struct dev_range){from, own.count};
            ranks[n++] = r;
        }
    }
    return n;
}

/* Where each piece lies in `sent`, and what this rank sends. */
static void place_pieces(struct shared *x, const struct dev_range *pieces, const int *ranks,
                         size_t n)
{
    struct vectors *v = &x->vectors;
    size_t at = 0;
    for (int r = 0; r < x->map->ranks; r++) {
        v->first[r] = at;
        for (size_t i = 0; i < n; i++) {
            if (ranks[i] != r)
                continue;
            if (r == x->coll->rank)
                v->own[v->own_count++] =
                    (struct dev_range){unit_place_of(x->map, pieces[i].offset).at, pieces[i].count};
            v->put[i] = (struct dev_range){at, pieces[i].count};
            at += pieces[i].count;
        }
    }
    v->first[x->map->ranks] = at;
    v->put_count = n;
}

static enum err open_vectors(struct weights *w, struct arena *perm)
{
    const struct table *t = w->table;
    struct shared *x = w->shared;
    struct vectors *v = &x->vectors;
    size_t ranks = (size_t)x->map->ranks, most = t->count * ranks;
    struct dev_range *pieces;
    int *owners;
    v->elements = vector_elements(t);
    TRY(dev_alloc(w->dev, (void **)&v->values, v->elements * sizeof *v->values));
    TRY(dev_alloc(w->dev, (void **)&v->sent, v->elements * sizeof *v->sent));
    TRY_ALLOC(v->at = arena_array(perm, t->count, sizeof *v->at));
    TRY_ALLOC(v->first = arena_array(perm, ranks + 1, sizeof *v->first));
    TRY_ALLOC(v->own = arena_array(perm, most, sizeof *v->own));
    TRY_ALLOC(v->put = arena_array(perm, most, sizeof *v->put));
    TRY_ALLOC(pieces = arena_array(perm, most, sizeof *pieces));
    TRY_ALLOC(owners = arena_array(perm, most, sizeof *owners));
    for (size_t i = 0, at = 0; i < t->count; i++) {
        v->at[i] = at;
        at += is_vector(&t->tensors[i]) ? table_span(t, i) : 0;
    }
    place_pieces(x, pieces, owners, list_pieces(t, x, pieces, owners));
    return ERR_OK;
}

static bool is_narrow(const struct weights *w)
{
    return w->dev->model_type != DTYPE_F32;
}

static enum err open_rooms(struct dev *d, struct shared *x, struct room rooms[ROOMS], size_t size,
                           bool sums)
{
    for (size_t i = 0; i < ROOMS; i++) {
        size_t elements = room_elements(x->map, i);
        rooms[i].unit = NO_UNIT;
        TRY(coll_alloc(x->coll, d, (void **)&rooms[i].at, elements * size));
        TRY(coll_alloc(x->coll, d, (void **)&rooms[i].sums,
                       sums ? elements * sizeof *rooms[i].sums : 0));
    }
    return ERR_OK;
}

static enum err open_shared(struct weights *w, const struct model_sharing *by, bool train,
                            struct arena *perm)
{
    struct shared *x;
    struct dev *d = w->dev;
    struct coll *c = by->coll;
    size_t shard = unit_shard_most(by->map); /* what is registered has one size on all ranks */
    TRY_ALLOC(w->shared = x = arena_alloc(perm, sizeof *x));
    *x = (struct shared){
        .coll = by->coll, .map = by->map, .stage = by->stage, .sums = by->sums, .up = true};
    TRY_ALLOC(x->tickets = arena_array(perm, by->map->count, sizeof *x->tickets));
    TRY_ALLOC(x->added = arena_array(perm, by->map->count, sizeof *x->added));
    TRY(coll_alloc(c, d, (void **)&x->own.params, shard * sizeof *x->own.params));
    TRY(coll_alloc(c, d, (void **)&x->own.grads, train ? shard * sizeof *x->own.grads : 0));
    TRY(coll_alloc(c, d, (void **)&x->own.copy, is_narrow(w) ? shard * sizeof *x->own.copy : 0));
    if (x->stage >= 2 && train)
        TRY(open_rooms(d, x, x->grads, sizeof(float), x->sums == DTYPE_BF16));
    if (x->stage >= 3)
        TRY(open_rooms(d, x, x->params, dtype_size(d->model_type), false));
    return has_vectors(by, d->model_type) ? open_vectors(w, perm) : ERR_OK;
}

/* A whole slab, from which and into which units move. */
static enum err slab_alloc(struct weights *w, void **p, size_t bytes)
{
    return w->shared ? coll_alloc(w->shared->coll, w->dev, p, bytes) : dev_alloc(w->dev, p, bytes);
}

static void slab_free(struct weights *w, void *p)
{
    if (w->shared)
        coll_free(w->shared->coll, w->dev, p);
    else
        dev_free(w->dev, p);
}

enum err weights_open(struct weights *w, const struct weights_options *o,
                      const struct model_sharing *by, struct arena *perm)
{
    size_t elements = o->table->elements, f32 = sizeof(float);
    *w = (struct weights){.dev = o->dev,
                          .table = o->table,
                          .holder = slab_whole,
                          .stochastic = o->stochastic,
                          .random.seed = o->seed};
    if (by->map)
        TRY(open_shared(w, by, o->train, perm));
    int stage = by->map ? by->stage : 0;
    bool params = stage < 3 && (!stage || !is_narrow(w)), copy = stage < 3 && is_narrow(w),
         grads = stage < 2 && o->train;
    TRY(slab_alloc(w, (void **)&w->params, params ? elements * f32 : 0));
    TRY(slab_alloc(w, &w->params_bf16, copy ? elements * dtype_size(w->dev->model_type) : 0));
    return slab_alloc(w, (void **)&w->grads, grads ? elements * f32 : 0);
}

static void close_shared(struct dev *d, struct shared *x)
{
    coll_free(x->coll, d, x->own.params);
    coll_free(x->coll, d, x->own.grads);
    coll_free(x->coll, d, x->own.copy);
    dev_free(d, x->vectors.values);
    dev_free(d, x->vectors.sent);
    for (size_t i = 0; i < ROOMS; i++) {
        coll_free(x->coll, d, x->params[i].at);
        coll_free(x->coll, d, x->grads[i].at);
        coll_free(x->coll, d, x->grads[i].sums);
    }
}

void weights_close(struct weights *w)
{
    if (!w->dev)
        return;
    slab_free(w, w->params);
    slab_free(w, w->params_bf16);
    slab_free(w, w->grads);
    if (w->shared)
        close_shared(w->dev, w->shared);
    *w = (struct weights){.dev = NULL};
}

/* ---- shards and wholes ---- */
static void fail(struct shared *x, enum err e)
{
    x->error = x->error ? x->error : e;
}

enum err weights_error(struct weights *w)
{
    enum err e = w->shared ? w->shared->error : ERR_OK;
    if (e)
        w->shared->error = ERR_OK;
    return e;
}

/* What passes read of the matrices, whole, in the model type. */
static char *whole_of(const struct weights *w)
{
    return w->params_bf16 ? w->params_bf16 : (char *)w->params;
}

static void round_range(struct weights *w, uint16_t *copy, const float *params, struct dev_range r)
{
    struct dev_random random = w->random;
    random.first = r.offset;
    if (r.count && w->stochastic)
        w->dev->ops->round_stochastic(w->dev, copy, params, &random, r.count);
    else if (r.count)
        w->dev->ops->cast(w->dev, copy, params, r.count);
}

/* The bf16 copy of this rank's shard; random bits are those of the elements of the slab. */
static void round_shard(struct weights *w)
{
    const struct shared *x = w->shared;
    for (size_t u = 0; u < x->map->count; u++) {
        size_t at = unit_base(x->map, u, x->coll->rank);
        round_range(w, x->own.copy + at, x->own.params + at, unit_part(x->map, u, x->coll->rank));
    }
}

static enum err collect_vectors(struct weights *w, struct shared *x)
{
    struct vectors *v = &x->vectors;
    struct dev *d = w->dev;
    float *own = v->sent + v->first[x->coll->rank];
    d->ops->gather_ranges(d, own, x->own.params, v->own, v->own_count);
    TRY(x->coll->ops->all_gather(x->coll, v->sent, sizeof *v->sent, v->first));
    d->ops->gather_ranges(d, v->values, v->sent, v->put, v->put_count);
    return ERR_OK;
}

/* Begins to collect unit u at `whole`, in the model type. */
static enum err collect_unit(struct weights *w, size_t u, char *whole, uint64_t *ticket)
{
    struct shared *x = w->shared;
    size_t base = unit_base(x->map, u, x->coll->rank);
    void *own = x->own.copy ? (void *)(x->own.copy + base) : (void *)(x->own.params + base);
    const struct coll_parts p = {whole, own, w->dev->model_type, unit_cuts(x->map, u)};
    return x->coll->ops->all_gather_begin(x->coll, &p, ticket);
}

static enum err collect_units(struct weights *w)
{
    struct shared *x = w->shared;
    size_t size = dtype_size(w->dev->model_type);
    for (size_t u = 0; u < x->map->count; u++)
        TRY(collect_unit(w, u, whole_of(w) + unit_range(x->map, u).offset * size, &x->tickets[u]));
    return ERR_OK;
}

static enum err room_wait(struct shared *x, struct room *r)
{
    if (r->ticket)
        TRY(x->coll->ops->ticket_wait(x->coll, r->ticket));
    r->ticket = 0;
    return ERR_OK;
}

/* What the rooms hold is of an earlier step. */
static enum err rooms_empty(struct shared *x)
{
    for (size_t i = 0; i < ROOMS; i++) {
        TRY(room_wait(x, &x->params[i]));
        ASSERT(x->params[i].busy == 0);
        x->params[i].unit = NO_UNIT;
    }
    return ERR_OK;
}

enum err weights_shards_changed(struct weights *w, bool copied)
{
    struct shared *x = w->shared;
    if (x->own.copy && !copied)
        round_shard(w);
    if (x->vectors.values)
        TRY(collect_vectors(w, x));
    return x->stage >= 3 ? rooms_empty(x) : collect_units(w);
}

/* Written on every rank alike. Whole f32 parameters of shared ones are those that passes read. */
void weights_changed(struct weights *w)
{
    const struct dev_range all = slab_all(w->table);
    if (w->shared && !w->params)
        fail(w->shared, weights_shards_changed(w, false));
    if (w->shared || !w->params_bf16)
        return;
    const float *params = weights_gather(w, all);
    round_range(w, w->params_bf16, params, all);
    weights_scatter(w, all, false);
}

static enum err wait_unit(struct shared *x, size_t u)
{
    if (x->tickets[u])
        TRY(x->coll->ops->ticket_wait(x->coll, x->tickets[u]));
    x->tickets[u] = 0;
    return ERR_OK;
}

enum err weights_shards_wait(struct weights *w)
{
    struct shared *x = w->shared;
    for (size_t u = 0; u < x->map->count; u++)
        TRY(wait_unit(x, u));
    for (size_t i = 0; i < ROOMS; i++)
        TRY(room_wait(x, &x->params[i]));
    return ERR_OK;
}

/* This rank's elements of a range, which lies at `whole` -> its shard. */
static void copy_own(struct weights *w, float *shard, const float *whole, struct dev_range r)
{
    const struct shared *x = w->shared;
    for (size_t u = 0; u < x->map->count; u++) {
        size_t from;
        struct dev_range own = unit_own(x->map, u, x->coll->rank, r, &from);
        if (own.count)
            w->dev->ops->copy(w->dev, shard + own.offset, whole + (from - r.offset),
                              own.count * sizeof *whole);
    }
}

void weights_take_grads(struct weights *w)
{
    copy_own(w, w->shared->own.grads, w->grads, slab_all(w->table));
}

/* ---- f32 parameters of a range ---- */
/* The part of r that lies in unit u -> out, which is of r. */
static enum err collect_part(struct shared *x, size_t u, struct dev_range r, float *out)
{
    size_t first[COLL_RANKS_MAX + 1], end = r.offset + r.count, from;
    uint64_t ticket;
    ASSERT(x->map->ranks <= COLL_RANKS_MAX);
    for (int i = 0; i <= x->map->ranks; i++) {
        first[i] = unit_cuts(x->map, u)[i];
        first[i] = first[i] < r.offset ? r.offset : first[i] > end ? end : first[i];
    }
    struct dev_range own = unit_own(x->map, u, x->coll->rank, r, &from);
    const struct coll_parts p = {out + (first[0] - r.offset), x->own.params + own.offset, DTYPE_F32,
                                 first};
    TRY(x->coll->ops->all_gather_begin(x->coll, &p, &ticket));
    return x->coll->ops->ticket_wait(x->coll, ticket);
}

static bool overlap(struct dev_range a, struct dev_range b)
{
    return a.offset < b.offset + b.count && b.offset < a.offset + a.count;
}

static enum err collect_range(struct shared *x, struct dev_range r, float *out)
{
    for (size_t u = 0; u < x->map->count; u++)
        if (overlap(unit_range(x->map, u), r))
            TRY(collect_part(x, u, r, out));
    return ERR_OK;
}

static struct held *held_of(struct shared *x, struct dev_range r)
{
    for (size_t i = 0; i < HELD_MAX; i++)
        if (x->held[i].at && x->held[i].range.offset == r.offset &&
            x->held[i].range.count == r.count)
            return &x->held[i];
    return NULL;
}

/* Whole f32 parameters of shared ones are those that passes read. */
static float *gather_shared(struct weights *w, struct dev_range r)
{
    struct shared *x = w->shared;
    if (w->params) {
        fail(x, weights_shards_wait(w));
        return w->params + r.offset;
    }
    struct held *h = x->held[0].at ? &x->held[1] : &x->held[0];
    ASSERT(!h->at);
    fail(x, dev_alloc(w->dev, (void **)&h->at, r.count * sizeof *h->at));
    h->range = r;
    if (h->at)
        fail(x, collect_range(x, r, h->at));
    return h->at;
}

static void scatter_shared(struct weights *w, struct dev_range r, bool written)
{
    struct shared *x = w->shared;
    struct held *h = w->params ? NULL : held_of(x, r);
    ASSERT(w->params || h);
    if (written)
        copy_own(w, x->own.params, w->params ? w->params + r.offset : h->at, r);
    if (!h)
        return;
    fail(x, dev_sync(w->dev));
    dev_free(w->dev, h->at);
    *h = (struct held){.at = NULL};
}

float *weights_gather(struct weights *w, struct dev_range r)
{
    ASSERT(r.offset + r.count <= w->table->elements);
    if (w->shared)
        return gather_shared(w, r);
    w->holder.gather(w->holder.self, w->params, r);
    return w->params + r.offset;
}

void weights_scatter(struct weights *w, struct dev_range r, bool written)
{
    if (w->shared)
        scatter_shared(w, r, written);
    else
        w->holder.scatter(w->holder.self, w->params, r, written);
}

enum err weights_read(struct weights *w, const struct dev_range *r, size_t n, float *out)
{
    if (w->params) {
        for (size_t i = 0; i < n; i++)
            (void)weights_gather(w, r[i]);
        w->dev->ops->gather_ranges(w->dev, out, w->params, r, n);
        for (size_t i = 0; i < n; i++)
            weights_scatter(w, r[i], false);
        return weights_error(w);
    }
    TRY(weights_shards_wait(w));
    for (size_t i = 0; i < n; out += r[i++].count)
        TRY(collect_range(w->shared, r[i], out));
    return ERR_OK;
}

/* This rank's elements of a range; in: of the range. */
static void mix_own(struct weights *w, struct dev_range r, const struct dev_lerp *b,
                    const float *in)
{
    const struct shared *x = w->shared;
    for (size_t u = 0; u < x->map->count; u++) {
        size_t from;
        struct dev_range own = unit_own(x->map, u, x->coll->rank, r, &from);
        if (own.count)
            w->dev->ops->lerp_ranges(w->dev, x->own.params, in + (from - r.offset),
                                     &(struct dev_lerp){&own, 1, b->alpha, b->positive});
    }
}

enum err weights_mix(struct weights *w, const struct dev_lerp *b, const float *in)
{
    if (w->params) {
        for (size_t i = 0; i < b->n; i++)
            (void)weights_gather(w, b->ranges[i]);
        w->dev->ops->lerp_ranges(w->dev, w->params, in, b);
        for (size_t i = 0; i < b->n; i++)
            weights_scatter(w, b->ranges[i], true);
        return weights_error(w);
    }
    TRY(weights_shards_wait(w));
    for (size_t i = 0; i < b->n; in += b->ranges[i++].count)
        mix_own(w, b->ranges[i], b, in);
    return ERR_OK;
}

void weights_hold(struct weights *w, const struct slab_holder *h)
{
    w->holder = *h;
}

struct weights_used weights_borrow(struct weights *w, struct weights_used x)
{
    const struct weights_used before = {w->params, w->params_bf16, w->borrowed};
    if (!x.params)
        return before;
    w->params = x.params;
    w->params_bf16 = x.copy;
    w->borrowed = x.borrowed;
    return before;
}

void weights_step(struct weights *w, uint64_t step)
{
    w->random.step = step;
}

/* ---- rooms ---- */
static struct room *room_of(struct room rooms[ROOMS], size_t unit)
{
    for (size_t i = 0; i < ROOMS; i++)
        if (rooms[i].unit == (ptrdiff_t)unit)
            return &rooms[i];
    return NULL;
}

/* The room that a unit may take; of the two the one that is not needed, and was not taken last.
 * NULL: both are needed. */
static struct room *room_for(struct room rooms[ROOMS], size_t unit, ptrdiff_t keep)
{
    if (unit == 0)
        return &rooms[0];
    for (size_t i = 1; i < ROOMS; i++)
        if (!rooms[i].busy && (rooms[i].unit == NO_UNIT || rooms[i].unit != keep))
            return &rooms[i];
    return NULL;
}

/* Begins to collect a unit that no room holds. keep: a unit that stays. */
static enum err fetch(struct weights *w, size_t unit, ptrdiff_t keep)
{
    struct shared *x = w->shared;
    struct room *r = room_for(x->params, unit, keep);
    if (!r || room_of(x->params, unit) || unit_range(x->map, unit).count == 0)
        return ERR_OK;
    TRY(room_wait(x, r));
    r->unit = (ptrdiff_t)unit;
    return collect_unit(w, unit, r->at, &r->ticket);
}

static enum err need_room(struct weights *w, size_t unit)
{
    struct shared *x = w->shared;
    size_t next = x->up ? unit + 1 : unit - 1;
    TRY(fetch(w, unit, NO_UNIT));
    struct room *r = room_of(x->params, unit);
    ASSERT(r);
    r->busy++;
    if (x->up ? next < x->map->count : unit > 0)
        TRY(fetch(w, next, (ptrdiff_t)unit));
    return room_wait(x, r);
}

/* The sum of this rank's part, which its room holds, joins that of earlier micro-batches. */
static enum err room_add(struct weights *w, struct room *r)
{
    struct shared *x = w->shared;
    if (r->unit == NO_UNIT || !r->sent)
        return ERR_OK;
    size_t unit = (size_t)r->unit;
    struct dev_range part = unit_part(x->map, unit, x->coll->rank);
    size_t into = part.offset - unit_range(x->map, unit).offset;
    float *sum = (float *)(void *)r->at + into,
          *to = x->own.grads + unit_base(x->map, unit, x->coll->rank);
    TRY(room_wait(x, r));
    if (r->sums && part.count)
        w->dev->ops->bf16_to_f32(w->dev, sum, r->sums + into, part.count);
    if (part.count && x->added[unit])
        w->dev->ops->axpy(w->dev, to, sum, 1, part.count);
    else if (part.count)
        w->dev->ops->copy(w->dev, to, sum, part.count * sizeof *to);
    x->added[unit]++;
    r->unit = NO_UNIT;
    r->sent = false;
    return ERR_OK;
}

/* Room 0 is that of unit 0. The other units take turns in two rooms: one that has no unit yet, else
 * one whose sum is under way, of two such the one that was sent first. */
static struct room *grads_next(struct room rooms[ROOMS], size_t unit)
{
    struct room *a = &rooms[1], *b = &rooms[2];
    if (unit == 0)
        return &rooms[0];
    if (a->unit == NO_UNIT || b->unit == NO_UNIT)
        return a->unit == NO_UNIT ? a : b;
    if (a->sent != b->sent)
        return a->sent ? a : b;
    return a->ticket < b->ticket ? a : b;
}

/* The room of a unit's gradients, zero when it is taken. */
static struct room *grads_room(struct weights *w, size_t unit)
{
    struct shared *x = w->shared;
    struct room *r = room_of(x->grads, unit);
    if (r && !r->sent)
        return r;
    r = r ? r : grads_next(x->grads, unit);
    ASSERT(r->unit == NO_UNIT || r->sent);
    fail(x, room_add(w, r));
    r->unit = (ptrdiff_t)unit;
    w->dev->ops->zero(w->dev, r->at, unit_range(x->map, unit).count * sizeof(float));
    return r;
}

static bool shares_grads(const struct weights *w)
{
    return w->shared && w->shared->stage >= 2;
}

void weights_grads_begin(struct weights *w)
{
    struct shared *x = w->shared;
    if (!shares_grads(w)) {
        w->dev->ops->zero(w->dev, w->grads, w->table->elements * sizeof *w->grads);
        return;
    }
    for (size_t i = 0; i < ROOMS; i++) /* those of a step that was given up */
        fail(x, room_wait(x, &x->grads[i]));
    for (size_t i = 0; i < ROOMS; i++)
        x->grads[i].unit = NO_UNIT, x->grads[i].sent = false;
    memset(x->added, 0, x->map->count * sizeof *x->added);
    w->dev->ops->zero(w->dev, x->own.grads,
                      unit_shard(x->map, x->coll->rank) * sizeof *x->own.grads);
}

void weights_grads_final(struct weights *w, struct dev_range range)
{
    struct shared *x = w->shared;
    if (!shares_grads(w) || range.count == 0)
        return;
    size_t unit = unit_of(x->map, range.offset);
    struct room *r = grads_room(w, unit); /* of zeros where this rank had nothing to learn from */
    size_t into = unit_part(x->map, unit, x->coll->rank).offset - range.offset;
    float *grads = (float *)(void *)r->at;
    struct coll_parts p = {grads, grads + into, DTYPE_F32, unit_cuts(x->map, unit)};
    if (r->sums) {
        w->dev->ops->round_bf16(w->dev, r->sums, grads, grads, range.count);
        p = (struct coll_parts){r->sums, r->sums + into, DTYPE_BF16, unit_cuts(x->map, unit)};
    }
    r->sent = true;
    fail(x, x->coll->ops->reduce_scatter_begin(x->coll, &p, &r->ticket));
}

enum err weights_grads_wait(struct weights *w)
{
    struct shared *x = w->shared;
    for (size_t i = 0; shares_grads(w) && i < ROOMS; i++)
        TRY(room_add(w, &x->grads[i]));
    return weights_error(w);
}

/* ---- passes ---- */
bool weights_move(const struct weights *w)
{
    return shares_grads(w);
}

bool weights_together(const struct weights *w)
{
    return w->shared && w->shared->stage >= 3;
}

void weights_go(struct weights *w, bool up)
{
    if (w->shared)
        w->shared->up = up;
}

void weights_need(struct weights *w, struct dev_range unit)
{
    struct shared *x = w->shared;
    if (x && unit.count) {
        size_t u = unit_of(x->map, unit.offset);
        fail(x, x->stage >= 3 ? need_room(w, u) : wait_unit(x, u));
    } else if (!x && !w->borrowed) {
        (void)weights_gather(w, unit);
    }
}

void weights_done(struct weights *w, struct dev_range unit)
{
    struct shared *x = w->shared;
    if (!x && !w->borrowed)
        weights_scatter(w, unit, false);
    if (!x || x->stage < 3 || unit.count == 0)
        return;
    struct room *r = room_of(x->params, unit_of(x->map, unit.offset));
    ASSERT(r && r->busy > 0);
    r->busy--;
}

static const float *vector_at(const struct weights *w, const struct vectors *v, size_t at)
{
    const struct tensor *t = w->table->tensors;
    size_t low = 0, high = w->table->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (t[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    ASSERT(t[low].offset == at && is_vector(&t[low]));
    return v->values + v->at[low];
}

/* MPI advances only inside its calls, and every op asks for its tensors. */
static void poll(struct shared *x)
{
    fail(x, x->coll->ops->progress(x->coll));
}

const float *weights_param(const struct weights *w, ptrdiff_t at)
{
    const struct shared *x = w->shared;
    if (at == WEIGHTS_NONE)
        return NULL;
    return x && x->vectors.values ? vector_at(w, &x->vectors, (size_t)at) : w->params + at;
}

float *weights_grad(struct weights *w, ptrdiff_t at)
{
    if (at == WEIGHTS_NONE)
        return NULL;
    if (w->shared)
        poll(w->shared);
    if (!shares_grads(w))
        return w->grads + at;
    size_t unit = unit_of(w->shared->map, (size_t)at);
    struct room *r = grads_room(w, unit);
    return (float *)(void *)r->at + ((size_t)at - unit_range(w->shared->map, unit).offset);
}

const void *weights_matrix(const struct weights *w, ptrdiff_t at)
{
    struct shared *x = w->shared;
    if (at == WEIGHTS_NONE)
        return NULL;
    if (x)
        poll(x);
    size_t size = dtype_size(x || w->params_bf16 ? w->dev->model_type : DTYPE_F32);
    if (!x || x->stage < 3)
        return whole_of(w) + (size_t)at * size;
    size_t unit = unit_of(x->map, (size_t)at);
    const struct room *r = room_of(x->params, unit);
    ASSERT(r && r->busy && !r->ticket); /* a pass reads what it has asked for */
    return r->at + ((size_t)at - unit_range(x->map, unit).offset) * size;
}
