#include "inner/coll/reduce.h"

void reduce_begin(struct reduce *r)
{
    r->begun = r->elements;
    r->failed = ERR_OK;
}

/* What of [from, to) lies in rank i's part goes there. */
static enum err start_parts(struct reduce *r, size_t from, size_t to)
{
    for (int i = r->coll->size; i-- > 0;) {
        size_t begin = r->first[i] > from ? r->first[i] : from,
               end = r->first[i + 1] < to ? r->first[i + 1] : to;
        if (begin < end)
            TRY(r->coll->ops->start(r->coll, r->grads + begin, end - begin, i));
    }
    return ERR_OK;
}

static enum err start(struct reduce *r, size_t from)
{
    size_t to = r->begun;
    r->begun = from;
    if (from == to)
        return ERR_OK;
    return r->first ? start_parts(r, from, to)
                    : r->coll->ops->start(r->coll, r->grads + from, to - from, COLL_ALL);
}

void reduce_ready(void *reduce, size_t from)
{
    struct reduce *r = reduce;
    ASSERT(from <= r->begun);
    if (r->failed || r->coll->size == 1)
        return;
    if (r->bucket && r->begun - from >= r->bucket)
        r->failed = start(r, from);
    if (!r->failed)
        r->failed = r->coll->ops->progress(r->coll);
}

enum err reduce_finish(struct reduce *r)
{
    if (!r->failed && r->coll->size > 1)
        r->failed = start(r, 0);
    return r->failed ? r->failed : r->coll->ops->finish(r->coll);
}
