/* One rank: every sum is already there. */
#include "inner/coll/coll.h"

static enum err start(struct coll *c, void *x, enum dtype type, size_t count, int owner)
{
    (void)c, (void)x, (void)type, (void)count, (void)owner;
    return ERR_OK;
}

static enum err gather(struct coll *c, float *x, const size_t *first)
{
    (void)c, (void)x, (void)first;
    return ERR_OK;
}

static enum err sum_host(struct coll *c, double *x, size_t count)
{
    (void)c, (void)x, (void)count;
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes)
{
    (void)c, (void)x, (void)bytes;
    return ERR_OK;
}

static enum err nothing(struct coll *c)
{
    (void)c;
    return ERR_OK;
}

static void close_self(struct coll *c)
{
    (void)c;
}

static void abort_self(struct coll *c, int exit_code)
{
    (void)c, (void)exit_code;
}

enum err coll_self_open(struct coll **c)
{
    static const struct coll_ops ops = {.start = start,
                                        .progress = nothing,
                                        .finish = nothing,
                                        .gather = gather,
                                        .sum = sum_host,
                                        .mark = nothing,
                                        .wait = nothing,
                                        .sum_host = sum_host,
                                        .broadcast = broadcast,
                                        .broadcast_host = broadcast,
                                        .barrier = nothing,
                                        .close = close_self,
                                        .abort = abort_self};
    static struct coll self; /* stateless: one serves every caller */
    self = (struct coll){.ops = &ops, .rank = 0, .size = 1, .kind = "self", .found = "none"};
    *c = &self;
    return ERR_OK;
}
