/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the payload bytes that this rank sends: its operations call the backend's. With W
 * ranks, and B bytes of the operation:
 *     all_reduce               2 (W - 1) / W B, a reduce-scatter and an all-gather
 *     all_gather, all_to_all   what the other ranks receive of this rank
 *     all_gather_begin         (W - 1) of this rank's part
 *     reduce_scatter_begin     B without this rank's part
 *     broadcast                (W - 1) B, of the rank that has them
 *     send_begin               B
 */
#include "inner/coll/coll.h"

static double others(const struct coll *c)
{
    return (double)(c->size - 1);
}

static double all_reduce_bytes(const struct coll *c, size_t bytes)
{
    return 2 * others(c) / (double)c->size * (double)bytes;
}

static enum err reduce_begin(struct coll *c, void *x, enum dtype type, size_t count)
{
    c->up += all_reduce_bytes(c, count * dtype_size(type));
    return c->backend->reduce_begin(c, x, type, count);
}

static enum err all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    c->up += others(c) * (double)((first[c->rank + 1] - first[c->rank]) * unit_bytes);
    return c->backend->all_gather(c, x, unit_bytes, first);
}

static double part_bytes(const struct coll *c, const struct coll_parts *p)
{
    return (double)((p->first[c->rank + 1] - p->first[c->rank]) * dtype_size(p->type));
}

static enum err all_gather_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    c->up += others(c) * part_bytes(c, p);
    return c->backend->all_gather_begin(c, p, ticket);
}

static enum err reduce_scatter_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    c->up += (double)((p->first[c->size] - p->first[0]) * dtype_size(p->type)) - part_bytes(c, p);
    return c->backend->reduce_scatter_begin(c, p, ticket);
}

static enum err ticket_wait(struct coll *c, uint64_t ticket)
{
    return c->backend->ticket_wait(c, ticket);
}

static enum err all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first)
{
    size_t mine = first[c->rank + 1] - first[c->rank];
    c->up += (double)((first[c->size] - first[0] - mine) * unit_bytes);
    return c->backend->all_to_all(c, to, from, unit_bytes, first);
}

static enum err send_begin(struct coll *c, const void *x, size_t bytes, int to, int tag)
{
    c->up += (double)bytes;
    return c->backend->send_begin(c, x, bytes, to, tag);
}

static enum err send_wait(struct coll *c, int tag)
{
    return c->backend->send_wait(c, tag);
}

static enum err recv_bytes(struct coll *c, void *x, size_t bytes, int from, int tag)
{
    return c->backend->recv(c, x, bytes, from, tag);
}

static void follow(struct coll *c, const struct dev *d)
{
    if (c->backend->follow)
        c->backend->follow(c, d);
}

static enum err alloc(struct coll *c, struct dev *d, void **p, size_t bytes)
{
    return c->backend->alloc ? c->backend->alloc(c, d, p, bytes) : dev_alloc(d, p, bytes);
}

static void give(struct coll *c, struct dev *d, void *p)
{
    if (c->backend->free)
        c->backend->free(c, d, p);
    else
        dev_free(d, p);
}

static enum err all_reduce(struct coll *c, double *x, size_t count)
{
    c->up += all_reduce_bytes(c, count * sizeof *x);
    return c->backend->all_reduce(c, x, count);
}

static enum err all_reduce_host(struct coll *c, double *x, size_t count)
{
    c->up += all_reduce_bytes(c, count * sizeof *x);
    return c->backend->all_reduce_host(c, x, count);
}

static void count_broadcast(struct coll *c, size_t bytes, int from)
{
    c->up += c->rank == from ? others(c) * (double)bytes : 0;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes, int from)
{
    count_broadcast(c, bytes, from);
    return c->backend->broadcast(c, x, bytes, from);
}

static enum err broadcast_host(struct coll *c, void *x, size_t bytes, int from)
{
    count_broadcast(c, bytes, from);
    return c->backend->broadcast_host(c, x, bytes, from);
}

static enum err progress(struct coll *c)
{
    return c->backend->progress(c);
}

static enum err reduce_wait(struct coll *c)
{
    return c->backend->reduce_wait(c);
}

static enum err event_record(struct coll *c)
{
    return c->backend->event_record(c);
}

static enum err event_wait(struct coll *c)
{
    return c->backend->event_wait(c);
}

static enum err barrier(struct coll *c)
{
    return c->backend->barrier(c);
}

static void close_counted(struct coll *c)
{
    c->backend->close(c);
}

static void abort_counted(struct coll *c, int exit_code)
{
    c->backend->abort(c, exit_code);
}

void coll_count(struct coll *c)
{
    static const struct coll_ops ops = {.reduce_begin = reduce_begin,
                                        .progress = progress,
                                        .reduce_wait = reduce_wait,
                                        .all_gather_begin = all_gather_begin,
                                        .reduce_scatter_begin = reduce_scatter_begin,
                                        .ticket_wait = ticket_wait,
                                        .all_gather = all_gather,
                                        .all_to_all = all_to_all,
                                        .send_begin = send_begin,
                                        .send_wait = send_wait,
                                        .recv = recv_bytes,
                                        .all_reduce = all_reduce,
                                        .event_record = event_record,
                                        .event_wait = event_wait,
                                        .all_reduce_host = all_reduce_host,
                                        .broadcast = broadcast,
                                        .broadcast_host = broadcast_host,
                                        .barrier = barrier,
                                        .follow = follow,
                                        .alloc = alloc,
                                        .free = give,
                                        .close = close_counted,
                                        .abort = abort_counted};
    ASSERT(!c->backend);
    c->backend = c->ops;
    c->ops = &ops;
}
