/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers and scatters of parts between the ranks: twenty under way at once, in place and not, of
 * equal, unequal and empty parts; the sums in the order of the ranks, and the bytes by formula. */
#include "tests/inner/coll/ranks_parts.h"
#include <string.h>
#include "kernels/base/bf16.h"
#include "kernels/base/rng.h"

enum { ROUNDS = 20, VALUES = 6007, RANKS_MAX = 8 };

struct round {
    size_t first[RANKS_MAX + 1];
    struct coll_parts parts;
    bool scatters;
    uint64_t ticket;
};

/* Round k: from equal parts to ever less equal ones, with empty ones. */
static void cut(size_t *first, int size, int k)
{
    size_t total = k % 4 == 0 ? (size_t)(VALUES / size * size) : VALUES - (size_t)k;
    for (int r = 0; r <= size; r++) {
        size_t even = total * (size_t)r / (size_t)size;
        first[r] =
            100 + (r && r < size && k % 4 ? even / (size_t)(1 << k) * (size_t)(1 << k) : even);
    }
}

static float value(int rank, int k, size_t i, enum dtype type)
{
    float x = rng_normal(1, RNG_TEST, ((uint64_t)rank * ROUNDS + (uint64_t)k) * VALUES + i);
    return type == DTYPE_F32 ? x : bf16_float(bf16_round(x));
}

static void put(void *x, enum dtype type, size_t i, float y)
{
    if (type == DTYPE_F32)
        ((float *)x)[i] = y;
    else
        ((uint16_t *)x)[i] = bf16_round(y);
}

static float get(const void *x, enum dtype type, size_t i)
{
    return type == DTYPE_F32 ? ((const float *)x)[i] : bf16_float(((const uint16_t *)x)[i]);
}

static size_t at_of(const struct round *x, int rank)
{
    return x->first[rank] - x->first[0];
}

static enum err fill(struct coll *c, struct dev *d, struct round *x, int k, enum dtype type)
{
    static float host[VALUES];
    size_t size = dtype_size(type), total, mine;
    cut(x->first, c->size, k);
    total = at_of(x, c->size), mine = at_of(x, c->rank + 1) - at_of(x, c->rank);
    x->scatters = k % 2;
    x->parts = (struct coll_parts){.type = type, .first = x->first};
    TRY(dev_alloc(d, &x->parts.whole, total * size));
    char *own = (char *)x->parts.whole + at_of(x, c->rank) * size;
    x->parts.part = own;
    if (k % 3)
        TRY(dev_alloc(d, &x->parts.part, (mine + 1) * size));
    for (size_t i = 0; i < total; i++)
        put(host, type, i, value(c->rank, k, i, type));
    if (x->scatters)
        d->ops->copy(d, x->parts.whole, host, total * size);
    else
        d->ops->copy(d, x->parts.part, (char *)host + at_of(x, c->rank) * size, mine * size);
    return dev_sync(d);
}

/* NCCL and its stand-in add in an order of their own. */
static bool right(struct coll *c, float got, int k, size_t i, enum dtype type)
{
    float sum = value(0, k, i, type), most = sum < 0 ? -sum : sum;
    for (int r = 1; r < c->size; r++) {
        float x = value(r, k, i, type);
        sum += x, most += x < 0 ? -x : x;
    }
    if (strcmp(c->kind, "nccl"))
        return got == (type == DTYPE_F32 ? sum : bf16_float(bf16_round(sum)));
    float off = got - sum, bound = most * (float)c->size * (type == DTYPE_F32 ? 1e-7f : 4e-3f);
    return off <= bound && -off <= bound;
}

static enum err check(struct coll *c, struct dev *d, const struct round *x, int k)
{
    static float host[VALUES];
    enum dtype type = x->parts.type;
    size_t size = dtype_size(type), begin = at_of(x, c->rank), end = at_of(x, c->rank + 1);
    size_t total = at_of(x, c->size);
    if (x->scatters)
        d->ops->copy(d, (char *)host + begin * size, x->parts.part, (end - begin) * size);
    else
        d->ops->copy(d, host, x->parts.whole, total * size);
    TRY(dev_sync(d));
    for (int r = 0; r < c->size; r++)
        for (size_t i = at_of(x, r); i < at_of(x, r + 1); i++) {
            float got = get(host, type, i);
            if (x->scatters ? r == c->rank && !right(c, got, k, i, type)
                            : got != value(r, k, i, type))
                return err_set(ERR_DISAGREE, "rank %d, round %d, value %zu: %g", c->rank, k, i,
                               (double)got);
        }
    return ERR_OK;
}

static enum err check_bytes(const struct coll *c, const struct round *rounds, double up)
{
    double want = 0;
    for (int k = 0; k < ROUNDS; k++) {
        const struct round *x = &rounds[k];
        size_t mine = at_of(x, c->rank + 1) - at_of(x, c->rank),
               sent = x->scatters ? at_of(x, c->size) - mine : (size_t)(c->size - 1) * mine;
        want += (double)(sent * dtype_size(x->parts.type));
    }
    return up == want ? ERR_OK : err_set(ERR_DISAGREE, "%.0f bytes sent, not %.0f", up, want);
}

enum err ranks_parts(struct coll *c, const char *device, const char *name)
{
    static struct round rounds[ROUNDS];
    enum dtype type = strcmp(name, "bf16") ? DTYPE_F32 : DTYPE_BF16;
    struct dev *d;
    double up;
    TRY(dev_open(&d, &(struct dev_options){.kind = device, .model_type = "f32", .threads = 1}));
    coll_follow(c, d);
    for (int k = 0; k < ROUNDS; k++)
        TRY(fill(c, d, &rounds[k], k, type));
    up = c->up;
    for (int k = 0; k < ROUNDS; k++) {
        struct round *x = &rounds[k];
        TRY(x->scatters ? c->ops->reduce_scatter_begin(c, &x->parts, &x->ticket)
                        : c->ops->all_gather_begin(c, &x->parts, &x->ticket));
        TRY(c->ops->progress(c));
    }
    TRY(check_bytes(c, rounds, c->up - up));
    for (int k = ROUNDS / 2; k < ROUNDS; k++) /* a later ticket first */
        TRY(c->ops->ticket_wait(c, rounds[(k * 7) % ROUNDS].ticket));
    for (int k = 0; k < ROUNDS; k++) {
        TRY(c->ops->ticket_wait(c, rounds[k].ticket));
        TRY(c->ops->event_record(c));
        TRY(c->ops->event_wait(c));
        TRY(check(c, d, &rounds[k], k));
    }
    for (int k = 0; k < ROUNDS; k++) {
        if (k % 3)
            dev_free(d, rounds[k].parts.part);
        dev_free(d, rounds[k].parts.whole);
    }
    dev_close(d);
    return ERR_OK;
}
