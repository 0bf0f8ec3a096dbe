/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/train_units.h"

static float *room_of(const struct units_slab *x, size_t unit)
{
    return x->room + (x->room_is_unit ? 0 : unit_range(x->map, unit).offset);
}

static enum err unit_to_lead(struct train *t, const struct units_slab *x, size_t u, float *host)
{
    struct dev_range unit = unit_range(x->map, u);
    float *whole = room_of(x, u), *to = host + unit.offset;
    uint64_t ticket;
    const struct coll_parts p = {whole, x->shard + unit_base(x->map, u, t->coll->rank), DTYPE_F32,
                                 unit_cuts(x->map, u)};
    TRY(t->coll->ops->all_gather_begin(t->coll, &p, &ticket));
    TRY(t->coll->ops->ticket_wait(t->coll, ticket));
    if (t->coll->rank == 0 && to != whole)
        t->dev->ops->copy(t->dev, to, whole, unit.count * sizeof *to);
    return dev_sync(t->dev);
}

enum err units_to_lead(struct train *t, const struct units_slab *x, float *host)
{
    TRY(dev_sync(t->dev));
    for (size_t u = 0; u < x->map->count; u++)
        TRY(unit_to_lead(t, x, u, host));
    return ERR_OK;
}

/* This rank's part of a unit that `room` holds. */
static void keep_part(struct train *t, const struct units_slab *x, size_t u)
{
    struct dev_range unit = unit_range(x->map, u), part = unit_part(x->map, u, t->coll->rank);
    if (part.count)
        t->dev->ops->copy(t->dev, x->shard + unit_base(x->map, u, t->coll->rank),
                          room_of(x, u) + part.offset - unit.offset, part.count * sizeof *x->shard);
}

enum err units_from_lead(struct train *t, const struct units_slab *x, const float *host)
{
    for (size_t u = 0; u < x->map->count; u++) {
        struct dev_range unit = unit_range(x->map, u);
        float *whole = room_of(x, u);
        if (t->coll->rank == 0 && whole != host + unit.offset)
            t->dev->ops->copy(t->dev, whole, host + unit.offset, unit.count * sizeof *whole);
        TRY(dev_sync(t->dev));
        TRY(t->coll->ops->broadcast(t->coll, whole, unit.count * sizeof *whole));
        keep_part(t, x, u);
    }
    return dev_sync(t->dev);
}

enum err units_from_seed(struct train *t, const struct units_slab *x)
{
    struct arena a = arena_make(0);
    enum err e = ERR_OK;
    for (size_t u = 0; !e && u < x->map->count; u++) {
        struct dev_range part = unit_part(x->map, u, t->coll->rank);
        float *host = arena_array(&a, part.count + 1, sizeof *host);
        if (!host) {
            e = ERR_MEMORY;
            break;
        }
        table_init_range(&t->table, (uint64_t)t->settings->run_seed, part, host);
        if (part.count)
            t->dev->ops->copy(t->dev, x->shard + unit_base(x->map, u, t->coll->rank), host,
                              part.count * sizeof *host);
        e = dev_sync(t->dev);
        arena_reset(&a);
    }
    arena_free(&a);
    return e;
}
