/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements of the slabs a rank holds the state of (train.zero_stage): the cut of the table
 * into units, of a unit into the ranks' parts, and this rank's ranges of each part of a tensor. */
#include "inner/optim/optim.h"
#include <string.h>

/* ---- the map ---- */
/* Where a tensor may be cut: nowhere for methods that work on whole ones; where sums are taken, at
 * multiples of DEV_RUN within what has a trust ratio; else at any block. */
static size_t pieces_of(const struct settings *s, const struct table *t, size_t i,
                        struct unit_piece *to)
{
    const struct optim_method *m = optim_method_of(s);
    const struct tensor *x = &t->tensors[i];
    size_t elements[TABLE_PROJECTIONS_MAX], span = table_span(t, i), offset = x->offset, n;
    if (m->whole || !m->sums) {
        *to = (struct unit_piece){offset, span, m->whole ? span : TABLE_ALIGN};
        return 1;
    }
    n = optim_parts(m, s, x, elements);
    for (size_t k = 0; k < n; offset += elements[k++])
        to[k] = (struct unit_piece){offset, elements[k], DEV_RUN};
    to[n - 1].count = x->offset + span - to[n - 1].offset;
    return n;
}

/* Embeddings, each layer, the head. */
static size_t list_units(const struct table *t, struct dev_range *to)
{
    int last = t->count ? t->tensors[t->count - 1].layer : 0;
    size_t n = 0;
    for (int layer = -1; layer <= last; layer++)
        to[n++] = slab_range(t, layer);
    return n;
}

enum err optim_units(struct unit_map *m, const struct settings *s, const struct table *t, int ranks,
                     struct arena *a)
{
    struct arena scratch = arena_make(0);
    size_t layers = (size_t)(t->count ? t->tensors[t->count - 1].layer + 2 : 0), n = 0;
    struct unit_piece *pieces =
        arena_array(&scratch, TABLE_PROJECTIONS_MAX * t->count, sizeof *pieces);
    struct dev_range *units = arena_array(&scratch, layers + 1, sizeof *units);
    enum err e = pieces && units ? ERR_OK : ERR_MEMORY;
    for (size_t i = 0; !e && i < t->count; i++)
        n += pieces_of(s, t, i, pieces + n);
    if (!e)
        e = unit_map_make(m, &(struct unit_cut){units, list_units(t, units), pieces, n, ranks}, a);
    arena_free(&scratch);
    return e;
}

size_t optim_more_of(const struct optim_method *m, const struct table *t, size_t begin, size_t end)
{
    size_t floats = 0;
    for (size_t i = 0; m->more && i < t->count; i++)
        if (t->tensors[i].offset >= begin && t->tensors[i].offset < end)
            floats += m->more(&t->tensors[i]);
    return floats;
}

/* Of further state, which lies in the order of the tensors. */
static enum err more_units(struct unit_map *more, const struct unit_map *m,
                           const struct optim_method *method, const struct table *t,
                           struct arena *a)
{
    size_t columns = (size_t)m->ranks + 1, *cuts;
    ASSERT(method->whole); /* a part of a tensor has no part of its further state */
    TRY_ALLOC(cuts = arena_array(a, m->count * columns, sizeof *cuts));
    for (size_t i = 0; i < m->count * columns; i++)
        cuts[i] = optim_more_of(method, t, 0, m->cuts[i]);
    return unit_map_of_cuts(more, cuts, m->count, m->ranks, a);
}

bool optim_shares(const struct settings *s, int ranks)
{
    return s->train_zero_stage > 0 && ranks > 1;
}

static enum err cut_maps(struct unit_map maps[2], const struct settings *s, const struct table *t,
                         int ranks, struct arena *a)
{
    const struct optim_method *m = optim_method_of(s);
    TRY(optim_units(&maps[0], s, t, ranks, a));
    return m->more ? more_units(&maps[1], &maps[0], m, t, a) : ERR_OK;
}

/* Floats of the state that the ranks share out, on the rank that has most. */
static size_t shard_floats(const struct optim_method *m, const struct unit_map maps[2])
{
    size_t each = (size_t)m->first + (size_t)m->second, floats = 0;
    for (int r = 0; r < maps[0].ranks; r++) {
        size_t own = each * unit_shard(&maps[0], r) + (m->more ? unit_shard(&maps[1], r) : 0);
        floats = own > floats ? own : floats;
    }
    return floats;
}

enum err optim_plan(size_t *bytes, const struct settings *s, const struct table *t, int ranks)
{
    const struct optim_method *m = optim_method_of(s);
    size_t each = (size_t)m->first + (size_t)m->second,
           floats = each * t->elements + optim_more_of(m, t, 0, t->elements);
    struct arena scratch = arena_make(0);
    struct unit_map maps[2];
    enum err e = optim_shares(s, ranks) ? cut_maps(maps, s, t, ranks, &scratch) : ERR_OK;
    if (!e && optim_shares(s, ranks))
        floats = shard_floats(m, maps);
    arena_free(&scratch);
    *bytes = floats * sizeof(float);
    return e;
}

/* ---- open ---- */
enum err optim_shard_open(struct optim *o, struct arena *perm)
{
    const struct settings *s = o->settings;
    struct unit_map *maps;
    int ranks = o->coll->size;
    o->shard.count = o->table->elements;
    if (optim_shares(s, ranks)) {
        TRY_ALLOC(maps = arena_array(perm, 2, sizeof *maps));
        TRY(cut_maps(maps, s, o->table, ranks, perm));
        o->shard.map = &maps[0];
        o->shard.more = o->method->more ? &maps[1] : NULL;
        o->shard.count = unit_shard(&maps[0], o->coll->rank);
        return ERR_OK;
    }
    /* With train.modules a rank has its modules' gradients only. */
    if (ranks == 1 || !o->method->flop || s->train_modules > 1)
        return ERR_OK;
    TRY_ALLOC(o->shard.work = arena_array(perm, (size_t)ranks + 1, sizeof *o->shard.work));
    for (int r = 0; r <= ranks; r++)
        o->shard.work[r] = optim_work(s, o->table, r, ranks);
    return ERR_OK;
}

/* Of methods whose products the ranks divide: between tensors. */
size_t optim_work(const struct settings *s, const struct table *t, int rank, int ranks)
{
    size_t even = t->elements / (size_t)ranks * (size_t)rank;
    ASSERT(optim_method_of(s)->whole);
    if (rank == ranks)
        return t->elements;
    for (size_t i = t->count; i-- > 0;) {
        size_t begin = t->tensors[i].offset, next = begin + table_span(t, i);
        if (begin <= even)
            return even - begin < next - even ? begin : next;
    }
    return 0;
}

static enum err list_parts(struct optim *o, struct arena *perm)
{
    const struct table *t = o->table;
    TRY_ALLOC(o->parts.list =
                  arena_array(perm, TABLE_PROJECTIONS_MAX * t->count, sizeof *o->parts.list));
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        size_t elements[TABLE_PROJECTIONS_MAX],
            offset = x->offset, n = optim_parts(o->method, o->settings, x, elements);
        for (size_t k = 0; k < n; offset += elements[k++])
            o->parts.list[o->parts.count++] = (struct optim_part){x, offset, elements[k]};
    }
    return ERR_OK;
}

struct dev_range optim_own(const struct optim *o, struct dev_range r, size_t *at)
{
    const struct unit_map *m = o->shard.map;
    if (!m || r.count == 0) {
        *at = r.offset;
        return r;
    }
    return unit_own(m, unit_of(m, r.offset), o->coll->rank, r, at);
}

enum err optim_ranges_open(struct optim *o, struct arena *perm)
{
    struct optim_parts *p = &o->parts;
    const struct tensor *last = NULL;
    size_t more = 0, before = 0; /* floats before the next tensor's, of `last` */
    TRY(list_parts(o, perm));
    TRY_ALLOC(p->ranges = arena_array(perm, p->count, sizeof *p->ranges));
    TRY_ALLOC(p->at = arena_array(perm, p->count, sizeof *p->at));
    TRY_ALLOC(p->more_at = arena_array(perm, p->count, sizeof *p->more_at));
    for (size_t i = 0; i < p->count; i++) {
        const struct optim_part *x = &p->list[i];
        p->ranges[i] = optim_own(o, (struct dev_range){x->offset, x->count}, &p->at[i]);
        if (p->ranges[i].count && x->tensor != last) {
            before = more;
            more += o->method->more ? o->method->more(x->tensor) : 0;
            last = x->tensor;
        }
        p->more_at[i] = before;
    }
    return ERR_OK;
}
