/* The order of windows is a format-preserving permutation: a Feistel network over the smallest even
 * number of bits that holds every window, walked until it lands inside (Black & Rogaway 2002,
 * "Ciphers with arbitrary finite domains"). Its round function is the counter-based generator,
 * keyed by seed, site and epoch.
 */
#include "inner/data/loader.h"
#include "kernels/base/rng.h"

enum {
    FEISTEL_ROUNDS = 6
}; /* 4 suffice for a pseudo-random permutation of large domains; small ones get two more */

/* ---- order ---- */

static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t x)
{
    uint32_t mask = half_bits < 32 ? (UINT32_C(1) << half_bits) - 1 : UINT32_MAX;
    uint32_t left = (uint32_t)(x >> half_bits), right = (uint32_t)x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint32_t next = left ^ (rng_u32(key, RNG_SHUFFLE, round << 32 | right) & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half_bits | right;
}

/* A permutation of 0 .. n-1. The domain is less than 4n, so the walk takes fewer than 4 steps on
 * average. */
static uint64_t permute(uint64_t key, uint64_t n, uint64_t x)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && n > UINT64_C(1) << 2 * half_bits)
        half_bits++;
    do
        x = feistel(key, half_bits, x);
    while (x >= n);
    return x;
}

uint64_t loader_order(const struct loader *l, uint64_t place)
{
    uint64_t epoch = place / l->windows;
    ASSERT(epoch < UINT64_C(1) << 40); /* else two sites' keys could meet */
    uint64_t key = rng_u64(l->options.seed, RNG_SHUFFLE, (uint64_t)l->options.site << 40 | epoch);
    return permute(key, l->windows, place % l->windows);
}

/* ---- windows ---- */

/* The shard of a window: the last one whose first window is not behind it. */
static size_t shard_of(const struct loader *l, uint64_t window)
{
    size_t low = 0, high = l->set.count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (l->window_first[middle] <= window)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t loader_place(const struct loader *l, uint64_t step, size_t sequence)
{
    const struct loader_options *o = &l->options;
    return (step * o->ranks + o->rank) * l->rank_sequences + sequence;
}

void loader_read(const struct loader *l, uint64_t window, size_t from, int32_t *ids)
{
    size_t S = l->options.sequence, i = shard_of(l, window);
    ASSERT(window < l->windows && from <= 1);
    shard_read(&l->set.shards[i], (window - l->window_first[i]) * S + from, S, ids);
}

/* ---- open ---- */

static enum err check_options(const struct loader_options *o)
{
    ASSERT(o->sequence > 0 && o->ranks > 0 && o->rank < o->ranks);
    size_t unit = o->sequence * o->ranks;
    if (o->batch_tokens == 0 || o->batch_tokens % unit)
        return err_set(ERR_CONFIG,
                       "train.batch_tokens = %zu is not a multiple of %zu: train.sequence = %zu "
                       "times %u ranks",
                       o->batch_tokens, unit, o->sequence, o->ranks);
    return ERR_OK;
}

static enum err count_windows(struct loader *l, struct arena *perm)
{
    TRY_ALLOC(l->window_first = arena_array(perm, l->set.count + 1, sizeof *l->window_first));
    for (size_t i = 0; i < l->set.count; i++) {
        uint64_t windows = (l->set.shards[i].count - 1) / l->options.sequence;
        l->window_first[i + 1] = l->window_first[i] + windows;
    }
    l->windows = l->window_first[l->set.count];
    if (l->windows == 0)
        return err_set(ERR_INPUT,
                       "%s%s: %llu tokens, less than one sequence of train.sequence = %zu and its "
                       "target; take more "
                       "text or a shorter sequence",
                       l->set.shards[0].path, l->set.count > 1 ? " and the shards with it" : "",
                       (unsigned long long)l->set.tokens, l->options.sequence);
    return ERR_OK;
}

enum err loader_open(struct loader *l, struct arena *perm, const struct config_list *paths,
                     const struct loader_options *o)
{
    *l = (struct loader){.options = *o};
    TRY(check_options(o));
    l->rank_sequences = o->batch_tokens / o->sequence / o->ranks;
    TRY(shard_set_open(&l->set, perm, paths, o->vocab));
    enum err e = count_windows(l, perm);
    if (e)
        loader_close(l);
    return e;
}

void loader_close(struct loader *l)
{
    shard_set_close(&l->set);
    *l = (struct loader){0};
}
