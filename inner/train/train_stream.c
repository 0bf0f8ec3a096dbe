/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/train_stream.h"
#include <string.h>

static size_t piece_elements(const struct table *t)
{
    return t->elements < STREAM_PIECE ? t->elements : STREAM_PIECE;
}

size_t stream_bytes(const struct table *t)
{
    return piece_elements(t) * sizeof(float);
}

static bool is_lead(const struct stream *s)
{
    return s->t->coll->rank == 0;
}

enum err stream_open(struct stream *s, struct train *t, float *room)
{
    size_t bytes = stream_bytes(&t->table);
    *s = (struct stream){.t = t, .room = room, .arena = arena_make(0)};
    s->host = t->dev->host_memory ? s->room : NULL;
    if (!s->host)
        TRY_ALLOC(s->host = arena_alloc(&s->arena, bytes));
    return ERR_OK;
}

void stream_close(struct stream *s)
{
    if (s->t)
        arena_free(&s->arena);
}

static void copy_if_needed(struct stream *s, float *to, const float *from, size_t count)
{
    if (to != from && count)
        s->t->dev->ops->copy(s->t->dev, to, from, count * sizeof *to);
}

/* The next elements of [*at, end), no more than a piece. */
static struct dev_range next_piece(const struct stream *s, size_t *at, size_t end)
{
    size_t most = piece_elements(&s->t->table), count = end - *at < most ? end - *at : most;
    const struct dev_range piece = {*at, count};
    *at += count;
    return piece;
}

/* ---- to the checkpoint ---- */
static enum err gather_piece(struct stream *s, struct dev_range piece, const size_t *first,
                             const float *own)
{
    struct coll *c = s->t->coll;
    size_t cuts[COLL_RANKS_MAX + 1], end = piece.offset + piece.count;
    uint64_t ticket;
    ASSERT(c->size <= COLL_RANKS_MAX);
    for (int r = 0; r <= c->size; r++)
        cuts[r] = first[r] < piece.offset ? piece.offset : first[r] > end ? end : first[r];
    bool any = cuts[c->rank] < cuts[c->rank + 1];
    const struct coll_parts p = {
        s->room, any ? (float *)(uintptr_t)own + (cuts[c->rank] - first[c->rank]) : s->room,
        DTYPE_F32, cuts};
    TRY(c->ops->all_gather_begin(c, &p, &ticket));
    return c->ops->ticket_wait(c, ticket);
}

enum err stream_out(struct stream *s, const size_t *first, const float *own)
{
    struct dev *d = s->t->dev;
    for (size_t at = first[0], end = first[s->t->coll->size]; at < end;) {
        struct dev_range piece = next_piece(s, &at, end);
        TRY(dev_sync(d));
        TRY(gather_piece(s, piece, first, own));
        if (!is_lead(s))
            continue;
        copy_if_needed(s, s->host, s->room, piece.count);
        TRY(dev_sync(d));
        checkpoint_put(s->to, s->host, piece.count * sizeof *s->host);
    }
    return ERR_OK;
}

enum err stream_out_units(struct stream *s, const struct unit_map *m, const float *shard)
{
    for (size_t u = 0; u < m->count; u++)
        TRY(stream_out(s, unit_cuts(m, u), shard + unit_base(m, u, s->t->coll->rank)));
    return ERR_OK;
}

enum err stream_out_whole(struct stream *s, const float *slab, size_t count)
{
    TRY(dev_sync(s->t->dev));
    if (!is_lead(s))
        return ERR_OK;
    if (s->t->dev->host_memory)
        checkpoint_put(s->to, slab, count * sizeof *slab);
    for (size_t at = 0; !s->t->dev->host_memory && at < count;) {
        struct dev_range piece = next_piece(s, &at, count);
        copy_if_needed(s, s->host, slab + piece.offset, piece.count);
        TRY(dev_sync(s->t->dev));
        checkpoint_put(s->to, s->host, piece.count * sizeof *s->host);
    }
    return ERR_OK;
}

void stream_out_host(struct stream *s, const void *data, size_t bytes)
{
    if (is_lead(s) && bytes)
        checkpoint_put(s->to, data, bytes);
}

/* ---- from the checkpoint ---- */
void stream_begin(struct stream *s, const char *part, size_t bytes)
{
    s->part = part;
    s->at = 0;
    s->there = is_lead(s) && checkpoint_part_bytes(s->from, part) == bytes;
}

/* Other ranks wait for what the lead sends, so an error is kept for the end. */
void stream_in_host(struct stream *s, void *data, size_t bytes)
{
    if (!is_lead(s) || !bytes)
        return;
    if (!s->there)
        memset(data, 0, bytes);
    else if (!s->error)
        s->error = checkpoint_get(s->from, s->part, s->at, data, bytes);
    s->at += bytes;
}

/* This rank's elements of a piece that `room` holds. */
static void keep_own(struct stream *s, struct dev_range piece, const size_t *first, float *own)
{
    int rank = s->t->coll->rank;
    size_t end = piece.offset + piece.count,
           from = first[rank] > piece.offset ? first[rank] : piece.offset,
           to = first[rank + 1] < end ? first[rank + 1] : end;
    if (from < to)
        copy_if_needed(s, own + (from - first[rank]), s->room + (from - piece.offset), to - from);
}

enum err stream_in(struct stream *s, const size_t *first, float *own)
{
    struct coll *c = s->t->coll;
    for (size_t at = first[0], end = first[c->size]; at < end;) {
        struct dev_range piece = next_piece(s, &at, end);
        stream_in_host(s, s->host, piece.count * sizeof *s->host);
        if (is_lead(s))
            copy_if_needed(s, s->room, s->host, piece.count);
        TRY(dev_sync(s->t->dev));
        TRY(c->ops->broadcast(c, s->room, piece.count * sizeof *s->room, 0));
        keep_own(s, piece, first, own);
        TRY(dev_sync(s->t->dev));
    }
    return ERR_OK;
}

enum err stream_in_units(struct stream *s, const struct unit_map *m, float *shard)
{
    for (size_t u = 0; u < m->count; u++)
        TRY(stream_in(s, unit_cuts(m, u), shard + unit_base(m, u, s->t->coll->rank)));
    return ERR_OK;
}

enum err stream_in_whole(struct stream *s, float *slab, size_t count)
{
    struct coll *c = s->t->coll;
    if (s->t->dev->host_memory)
        stream_in_host(s, slab, count * sizeof *slab);
    for (size_t at = 0; is_lead(s) && !s->t->dev->host_memory && at < count;) {
        struct dev_range piece = next_piece(s, &at, count);
        stream_in_host(s, s->host, piece.count * sizeof *s->host);
        copy_if_needed(s, slab + piece.offset, s->host, piece.count);
        TRY(dev_sync(s->t->dev));
    }
    TRY(dev_sync(s->t->dev));
    return c->ops->broadcast(c, slab, count * sizeof *slab, 0);
}

/* ---- from the seed ---- */
enum err stream_seed(struct stream *s, struct dev_range r, float *device)
{
    const struct train *t = s->t;
    for (size_t at = r.offset; at < r.offset + r.count;) {
        struct dev_range piece = next_piece(s, &at, r.offset + r.count);
        table_init_range(&t->table, (uint64_t)t->settings->run_seed, piece, s->host);
        copy_if_needed(s, device + (piece.offset - r.offset), s->host, piece.count);
        TRY(dev_sync(t->dev));
    }
    return ERR_OK;
}
