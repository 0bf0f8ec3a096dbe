#include "inner/coll/reduce.h"

const struct reducer *reducer_of(const struct settings *s)
{
    static const struct reducer *const reducers[] = {
#define X(VALUE, name) [VALUE] = &reducer_##name,
        TRAIN_GRAD_REDUCE_DTYPE(X)
#undef X
    };
    return reducers[s->train_grad_reduce_dtype];
}

void reduce_begin(struct reduce *r)
{
    r->begun = r->elements;
    r->failed = ERR_OK;
}

/* The sum of [from, to) begins. */
static enum err start_range(struct reduce *r, size_t from, size_t to, int owner)
{
    void *x = r->reducer->pack(r, from, to);
    return r->coll->ops->start(r->coll, x, r->reducer->type, to - from, owner);
}

/* What of [from, to) lies in rank i's part goes there. */
static enum err start_parts(struct reduce *r, size_t from, size_t to)
{
    for (int i = r->coll->size; i-- > 0;) {
        size_t begin = r->offsets[i] > from ? r->offsets[i] : from,
               end = r->offsets[i + 1] < to ? r->offsets[i + 1] : to;
        if (begin < end)
            TRY(start_range(r, begin, end, i));
    }
    return ERR_OK;
}

static enum err start(struct reduce *r, size_t from)
{
    size_t to = r->begun;
    r->begun = from;
    if (from == to)
        return ERR_OK;
    return r->offsets ? start_parts(r, from, to) : start_range(r, from, to, COLL_ALL);
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
    if (r->coll->size == 1)
        return ERR_OK;
    if (!r->failed)
        r->failed = start(r, 0);
    TRY(r->failed);
    TRY(r->coll->ops->finish(r->coll));
    if (r->reducer->unpack)
        r->reducer->unpack(r);
    return ERR_OK;
}
