/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/coll/units.h"

/* Where a unit is cut that would best be cut at element `even`, which lies in piece p. */
static size_t cut_in(const struct unit_piece *p, size_t even)
{
    size_t into = even - p->offset;
    if (p->grain < p->count)
        return p->offset + into / p->grain * p->grain;
    return into < p->count - into ? p->offset : p->offset + p->count;
}

static size_t cut_at(const struct unit_cut *c, struct dev_range unit, size_t even)
{
    if (even >= unit.offset + unit.count)
        return unit.offset + unit.count;
    for (size_t i = c->piece_count; i-- > 0;)
        if (c->pieces[i].offset <= even && c->pieces[i].count)
            return cut_in(&c->pieces[i], even);
    return unit.offset;
}

/* Element `late` elements past where rank r's part would begin in equal parts, in the unit. */
static size_t even_at(struct dev_range unit, size_t r, size_t ranks, ptrdiff_t late)
{
    size_t even = unit.count / ranks * r + unit.count % ranks * r / ranks;
    ptrdiff_t at = (ptrdiff_t)even + late;
    return unit.offset + (at < 0 ? 0 : (size_t)at > unit.count ? unit.count : (size_t)at);
}

/* What earlier units gave the ranks below r too few is made up for, so that shards are near equal
 * although units are cut where they can be. late (ranks): the elements that are missing there. */
static void cut_unit(const struct unit_cut *c, struct dev_range unit, size_t *cuts, ptrdiff_t *late)
{
    size_t ranks = (size_t)c->ranks, end = unit.offset + unit.count;
    cuts[0] = unit.offset;
    cuts[ranks] = end;
    for (size_t r = 1; r < ranks; r++) {
        size_t at = cut_at(c, unit, even_at(unit, r, ranks, late[r]));
        cuts[r] = at < cuts[r - 1] ? cuts[r - 1] : at;
        late[r] += (ptrdiff_t)even_at(unit, r, ranks, 0) - (ptrdiff_t)cuts[r];
    }
}

enum err unit_map_of_cuts(struct unit_map *m, size_t *cuts, size_t count, int ranks,
                          struct arena *a)
{
    size_t columns = (size_t)ranks + 1;
    *m = (struct unit_map){.ranks = ranks, .count = count, .cuts = cuts};
    TRY_ALLOC(m->bases = arena_array(a, (size_t)ranks * (count + 1), sizeof *m->bases));
    m->elements = count ? cuts[count * columns - 1] : 0;
    for (int r = 0; r < ranks; r++) {
        size_t *base = m->bases + (size_t)r * (count + 1);
        base[0] = 0;
        for (size_t u = 0; u < count; u++)
            base[u + 1] = base[u] + unit_part(m, u, r).count;
    }
    return ERR_OK;
}

enum err unit_map_make(struct unit_map *m, const struct unit_cut *c, struct arena *a)
{
    size_t columns = (size_t)c->ranks + 1, *cuts;
    ptrdiff_t *late;
    ASSERT(c->ranks > 0);
    TRY_ALLOC(cuts = arena_array(a, c->unit_count * columns, sizeof *cuts));
    TRY_ALLOC(late = arena_array(a, columns, sizeof *late));
    for (size_t u = 0; u < c->unit_count; u++)
        cut_unit(c, c->units[u], cuts + u * columns, late);
    return unit_map_of_cuts(m, cuts, c->unit_count, c->ranks, a);
}

const size_t *unit_cuts(const struct unit_map *m, size_t unit)
{
    return m->cuts + unit * ((size_t)m->ranks + 1);
}

struct dev_range unit_range(const struct unit_map *m, size_t unit)
{
    const size_t *cuts = unit_cuts(m, unit);
    return (struct dev_range){cuts[0], cuts[m->ranks] - cuts[0]};
}

struct dev_range unit_part(const struct unit_map *m, size_t unit, int rank)
{
    const size_t *cuts = unit_cuts(m, unit);
    return (struct dev_range){cuts[rank], cuts[rank + 1] - cuts[rank]};
}

size_t unit_base(const struct unit_map *m, size_t unit, int rank)
{
    return m->bases[(size_t)rank * (m->count + 1) + unit];
}

size_t unit_shard(const struct unit_map *m, int rank)
{
    return unit_base(m, m->count, rank);
}

size_t unit_shard_most(const struct unit_map *m)
{
    size_t most = 0;
    for (int r = 0; r < m->ranks; r++)
        most = unit_shard(m, r) > most ? unit_shard(m, r) : most;
    return most;
}

size_t unit_most(const struct unit_map *m)
{
    size_t most = 0;
    for (size_t u = 0; u < m->count; u++)
        most = unit_range(m, u).count > most ? unit_range(m, u).count : most;
    return most;
}

size_t unit_of(const struct unit_map *m, size_t at)
{
    size_t low = 0, high = m->count;
    ASSERT(at < m->elements);
    while (high - low > 1) { /* the last unit that begins at `at` or before: empty ones lie first */
        size_t middle = low + (high - low) / 2;
        if (unit_cuts(m, middle)[0] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct dev_range unit_own(const struct unit_map *m, size_t unit, int rank, struct dev_range r,
                          size_t *at)
{
    struct dev_range part = unit_part(m, unit, rank);
    size_t end = r.offset + r.count, part_end = part.offset + part.count,
           from = r.offset > part.offset ? r.offset : part.offset,
           to = end < part_end ? end : part_end;
    *at = from;
    if (from >= to)
        return (struct dev_range){0, 0};
    return (struct dev_range){unit_base(m, unit, rank) + from - part.offset, to - from};
}

struct unit_place unit_place_of(const struct unit_map *m, size_t at)
{
    size_t unit = unit_of(m, at);
    const size_t *cuts = unit_cuts(m, unit);
    int rank = m->ranks - 1;
    while (cuts[rank] > at)
        rank--;
    return (struct unit_place){rank, unit, unit_base(m, unit, rank) + at - cuts[rank]};
}

size_t unit_gather_up(const struct unit_map *m, int rank)
{
    return (size_t)(m->ranks - 1) * unit_shard(m, rank);
}

size_t unit_scatter_up(const struct unit_map *m, int rank)
{
    return m->elements - unit_shard(m, rank);
}
