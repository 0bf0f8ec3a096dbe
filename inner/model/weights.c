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
struct shared { /* a model whose parameters the ranks share out */
    struct coll *coll;
    const struct unit_map *map;
    struct model_shards own;
    uint64_t *tickets; /* (units) of what collects them; 0: they are here */
    struct vectors vectors;
    float *held; /* f32 parameters of the ranges that are gathered; NULL: none */
    size_t holds;
    enum err error; /* the first of a pass */
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

struct weights_memory weights_plan(const struct table *t, const struct unit_map *map, bool train,
                                   enum dtype type)
{
    const size_t elements = t->elements, f32 = sizeof(float), size = dtype_size(type);
    bool narrow = type != DTYPE_F32;
    struct weights_memory x = {.parameters = elements * f32,
                               .params_bf16 = narrow ? elements * size : 0,
                               .gradients = train ? elements * f32 : 0};
    if (!map)
        return x;
    size_t shard = unit_shard_most(map);
    x.parameters = shard * f32 + (narrow ? 2 * vector_elements(t) : elements) * f32;
    x.params_bf16 += narrow ? shard * size : 0;
    x.gradients += train ? shard * f32 : 0;
    return x;
}

/* The pieces of each vector, rank by rank. */
static size_t list_pieces(const struct table *t, const struct shared *x, struct dev_range *pieces,
                          int *ranks)
{
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t begin = t->tensors[i].offset, end = begin + table_span(t, i);
        for (int r = 0; is_vector(&t->tensors[i]) && r < x->map->ranks; r++) {
            struct dev_range part = unit_part(x->map, unit_of(x->map, begin), r);
            size_t from = part.offset > begin ? part.offset : begin,
                   to = part.offset + part.count < end ? part.offset + part.count : end;
            if (from >= to)
                continue;
            pieces[n] = (struct dev_range){from, to - from};
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

static enum err open_shared(struct weights *w, const struct model_sharing *by, bool train,
                            struct arena *perm)
{
    struct shared *x;
    size_t shard = unit_shard(by->map, by->coll->rank);
    TRY_ALLOC(w->shared = x = arena_alloc(perm, sizeof *x));
    *x = (struct shared){.coll = by->coll, .map = by->map};
    TRY_ALLOC(x->tickets = arena_array(perm, by->map->count, sizeof *x->tickets));
    TRY(dev_alloc(w->dev, (void **)&x->own.params, shard * sizeof *x->own.params));
    TRY(dev_alloc(w->dev, (void **)&x->own.grads, train ? shard * sizeof *x->own.grads : 0));
    TRY(dev_alloc(w->dev, (void **)&x->own.copy, is_narrow(w) ? shard * sizeof *x->own.copy : 0));
    return is_narrow(w) ? open_vectors(w, perm) : ERR_OK;
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
    bool whole = !by->map || !is_narrow(w);
    TRY(dev_alloc(w->dev, (void **)&w->params, whole ? elements * f32 : 0));
    TRY(dev_alloc(w->dev, &w->params_bf16,
                  is_narrow(w) ? elements * dtype_size(w->dev->model_type) : 0));
    return dev_alloc(w->dev, (void **)&w->grads, o->train ? elements * f32 : 0);
}

static void close_shared(struct dev *d, struct shared *x)
{
    dev_free(d, x->own.params);
    dev_free(d, x->own.grads);
    dev_free(d, x->own.copy);
    dev_free(d, x->vectors.values);
    dev_free(d, x->vectors.sent);
}

void weights_close(struct weights *w)
{
    if (!w->dev)
        return;
    if (w->shared)
        close_shared(w->dev, w->shared);
    dev_free(w->dev, w->params);
    dev_free(w->dev, w->params_bf16);
    dev_free(w->dev, w->grads);
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

static enum err collect_units(struct weights *w, struct shared *x)
{
    enum dtype type = w->dev->model_type;
    const char *own = x->own.copy ? (const char *)x->own.copy : (const char *)x->own.params;
    for (size_t u = 0; u < x->map->count; u++) {
        size_t base = unit_base(x->map, u, x->coll->rank);
        const struct coll_parts p = {.whole = whole_of(w) +
                                              unit_range(x->map, u).offset * dtype_size(type),
                                     .part = (char *)(uintptr_t)own + base * dtype_size(type),
                                     .type = type,
                                     .first = unit_cuts(x->map, u)};
        TRY(x->coll->ops->all_gather_begin(x->coll, &p, &x->tickets[u]));
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
    return collect_units(w, x);
}

/* Written on every rank alike. Whole f32 parameters of shared ones are those that passes read. */
void weights_changed(struct weights *w)
{
    const struct dev_range all = slab_all(w->table);
    if (w->shared && !w->params)
        fail(w->shared, weights_shards_changed(w, false));
    if (w->shared || !w->params_bf16)
        return;
    const float *params = weights_gather(w, &all, 1);
    round_range(w, w->params_bf16, params, all);
    weights_scatter(w, &all, 1, false);
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
    return ERR_OK;
}

/* This rank's elements of a range: of a slab that holds it whole <-> of the shard. */
static void copy_own(struct weights *w, float *shard, const float *whole, struct dev_range r)
{
    const struct shared *x = w->shared;
    for (size_t u = 0; u < x->map->count; u++) {
        struct dev_range part = unit_part(x->map, u, x->coll->rank);
        size_t from = part.offset > r.offset ? part.offset : r.offset, end = r.offset + r.count,
               to = part.offset + part.count < end ? part.offset + part.count : end;
        if (from < to)
            w->dev->ops->copy(w->dev,
                              shard + unit_base(x->map, u, x->coll->rank) + from - part.offset,
                              whole + from, (to - from) * sizeof *whole);
    }
}

void weights_take_grads(struct weights *w)
{
    copy_own(w, w->shared->own.grads, w->grads, slab_all(w->table));
}

/* ---- f32 parameters of a range ---- */
/* Room for the whole slab, of which only the ranges that are gathered are touched. */
static enum err held_open(struct weights *w, struct shared *x)
{
    size_t bytes = w->table->elements * sizeof *x->held;
    if (x->holds++)
        return ERR_OK;
    if (!w->dev->host_memory)
        return dev_alloc(w->dev, (void **)&x->held, bytes);
    TRY_ALLOC(x->held = aligned_alloc(64, (bytes + 63) / 64 * 64));
    return ERR_OK;
}

static void held_close(struct weights *w, struct shared *x)
{
    ASSERT(x->holds > 0);
    if (--x->holds)
        return;
    if (w->dev->host_memory)
        free(x->held);
    else
        dev_free(w->dev, x->held);
    x->held = NULL;
}

static enum err collect_range(struct shared *x, struct dev_range r)
{
    size_t first[COLL_RANKS_MAX + 1];
    uint64_t ticket;
    ASSERT(x->map->ranks <= COLL_RANKS_MAX);
    for (size_t u = 0; u < x->map->count; u++) {
        struct dev_range unit = unit_range(x->map, u), part;
        size_t end = r.offset + r.count;
        if (unit.offset >= end || unit.offset + unit.count <= r.offset)
            continue;
        for (int i = 0; i <= x->map->ranks; i++) {
            first[i] = unit_cuts(x->map, u)[i];
            first[i] = first[i] < r.offset ? r.offset : first[i] > end ? end : first[i];
        }
        part = unit_part(x->map, u, x->coll->rank);
        size_t base = unit_base(x->map, u, x->coll->rank) + first[x->coll->rank] - part.offset;
        const struct coll_parts p = {
            x->held + first[0],
            first[x->coll->rank] < first[x->coll->rank + 1] ? x->own.params + base : x->own.params,
            DTYPE_F32, first};
        TRY(x->coll->ops->all_gather_begin(x->coll, &p, &ticket));
        TRY(x->coll->ops->ticket_wait(x->coll, ticket));
    }
    return ERR_OK;
}

static float *gather_shared(struct weights *w, const struct dev_range *r, size_t n)
{
    struct shared *x = w->shared;
    if (w->params) {
        fail(x, weights_shards_wait(w));
        return w->params;
    }
    fail(x, held_open(w, x));
    for (size_t i = 0; i < n && !x->error; i++)
        fail(x, collect_range(x, r[i]));
    return x->held;
}

static void scatter_shared(struct weights *w, const struct dev_range *r, size_t n, bool written)
{
    struct shared *x = w->shared;
    const float *whole = w->params ? w->params : x->held;
    for (size_t i = 0; i < n && written; i++)
        copy_own(w, x->own.params, whole, r[i]);
    if (!w->params)
        held_close(w, x);
}

float *weights_gather(struct weights *w, const struct dev_range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ASSERT(r[i].offset + r[i].count <= w->table->elements);
    if (w->shared)
        return gather_shared(w, r, n);
    for (size_t i = 0; i < n; i++)
        w->holder.gather(w->holder.self, w->params, r[i]);
    return w->params;
}

void weights_scatter(struct weights *w, const struct dev_range *r, size_t n, bool written)
{
    if (w->shared)
        scatter_shared(w, r, n, written);
    for (size_t i = 0; !w->shared && i < n; i++)
        w->holder.scatter(w->holder.self, w->params, r[i], written);
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

/* ---- passes ---- */
void weights_need(struct weights *w, struct dev_range unit)
{
    struct shared *x = w->shared;
    if (x && unit.count)
        fail(x, wait_unit(x, unit_of(x->map, unit.offset)));
    else if (!x && !w->borrowed)
        (void)weights_gather(w, &unit, 1);
}

void weights_done(struct weights *w, struct dev_range unit)
{
    if (!w->shared && !w->borrowed)
        weights_scatter(w, &unit, 1, false);
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

const float *weights_param(const struct weights *w, ptrdiff_t at)
{
    const struct shared *x = w->shared;
    if (at == WEIGHTS_NONE)
        return NULL;
    return x && x->vectors.values ? vector_at(w, &x->vectors, (size_t)at) : w->params + at;
}

float *weights_grad(const struct weights *w, ptrdiff_t at)
{
    return at == WEIGHTS_NONE ? NULL : w->grads + at;
}

const void *weights_matrix(const struct weights *w, ptrdiff_t at)
{
    size_t size = dtype_size(w->params_bf16 ? w->dev->model_type : DTYPE_F32);
    return at == WEIGHTS_NONE ? NULL : whole_of(w) + (size_t)at * size;
}
