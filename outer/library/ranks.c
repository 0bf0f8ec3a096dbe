/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/library/ranks.h"

static enum err not_here(void)
{
    return err_set(ERR_INTERNAL, "a collective that no exchange uses");
}

static enum err reduce_begin(struct coll *c, void *x, enum dtype type, size_t count)
{
    (void)c, (void)x, (void)type, (void)count;
    return not_here();
}

static enum err all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    (void)c, (void)x, (void)unit_bytes, (void)first;
    return not_here();
}

static enum err all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first)
{
    (void)c, (void)to, (void)from, (void)unit_bytes, (void)first;
    return not_here();
}

static enum err send_begin(struct coll *c, const void *x, size_t bytes, int to, int tag)
{
    (void)c, (void)x, (void)bytes, (void)to, (void)tag;
    return not_here();
}

static enum err send_wait(struct coll *c, int tag)
{
    (void)c, (void)tag;
    return not_here();
}

static enum err recv_bytes(struct coll *c, void *x, size_t bytes, int from, int tag)
{
    (void)c, (void)x, (void)bytes, (void)from, (void)tag;
    return not_here();
}

static enum err all_reduce(struct coll *c, double *x, size_t count)
{
    (void)c, (void)x, (void)count;
    return not_here();
}

static enum err nothing(struct coll *c)
{
    (void)c;
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes, int from)
{
    struct ranks *r = (struct ranks *)c;
    if (from != 0)
        return not_here();
    if (c->size == 1 || !r->broadcast(r->self, x, bytes))
        return ERR_OK;
    return err_set(ERR_IO, "the trainer could not broadcast %zu bytes to its %d ranks", bytes,
                   c->size);
}

static void close_ranks(struct coll *c)
{
    (void)c;
}

static void abort_ranks(struct coll *c, int exit_code)
{
    (void)c, (void)exit_code;
}

enum err ranks_open(struct ranks *r, const struct atoll_options *o)
{
    static const struct coll_ops ops = {.reduce_begin = reduce_begin,
                                        .progress = nothing,
                                        .reduce_wait = nothing,
                                        .all_gather = all_gather,
                                        .all_to_all = all_to_all,
                                        .send_begin = send_begin,
                                        .send_wait = send_wait,
                                        .recv = recv_bytes,
                                        .all_reduce = all_reduce,
                                        .event_record = nothing,
                                        .event_wait = nothing,
                                        .all_reduce_host = all_reduce,
                                        .broadcast = broadcast,
                                        .broadcast_host = broadcast,
                                        .barrier = nothing,
                                        .close = close_ranks,
                                        .abort = abort_ranks};
    int size = o->ranks ? o->ranks : 1;
    if (size < 1 || o->rank < 0 || o->rank >= size || (size > 1 && !o->broadcast))
        return err_set(ERR_CONFIG,
                       "rank %d of %d: ranks are numbered from 0, and more than one need a "
                       "broadcast",
                       o->rank, o->ranks);
    *r = (struct ranks){{.ops = &ops,
                         .rank = o->rank,
                         .size = size,
                         .local_rank = o->rank,
                         .kind = "caller",
                         .found = "the trainer's ranks"},
                        o->broadcast,
                        o->self};
    return ERR_OK;
}
