/* csc: of all chunks of 4096 values of a fragment the tenth with the largest L1 norms, ties to the
 * lower index, in int4's form on int4's grid; all others wait in the residual (coarse-grained
 * sparse communication of GradientFlow, 1902.06855, with each site choosing for itself: no question
 * goes round before bulk data does). Codes of all blocks are sent, so that the grid knows what has
 * gathered where. Which chunks were chosen is said by the bits of present blocks: at most
 * count/256*9/8 + chosen*2048 bytes, 0.44 bits per value. Summable: the aggregate holds what any
 * site has chosen, at most n times as much, 6 bits per value of 4 sites. */
#include <stdlib.h>
#include <string.h>
#include "outer/codec/codec_work.h"

enum { CHUNK = DEV_CHUNK, BLOCKS = CHUNK / DEV_BLOCK, SHARE = 10 };

static size_t chunks_of(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static size_t chosen_of(size_t count)
{
    return (chunks_of(count) + SHARE - 1) / SHARE;
}

struct norm {
    double sum;
    size_t chunk;
};

static enum err norms(struct codec_work *w, struct norm *norm, const float *z, size_t count)
{
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        w->d->ops->chunk_l1(w->d, w->values, z + at, n);
        const double *sums = (const void *)codec_seen(w, w->values, chunks_of(n) * sizeof *sums);
        TRY(dev_sync(w->d));
        for (size_t i = 0; i < chunks_of(n); i++)
            norm[at / CHUNK + i] = (struct norm){sums[i], at / CHUNK + i};
    }
    return ERR_OK;
}

/* Largest first. Bits order as the sums do, and what is not finite has its place. */
static int larger(const void *x, const void *y)
{
    const struct norm *a = x, *b = y;
    uint64_t p, q;
    memcpy(&p, &a->sum, sizeof p);
    memcpy(&q, &b->sum, sizeof q);
    if (p != q)
        return p > q ? -1 : 1;
    return a->chunk < b->chunk ? -1 : 1;
}

/* The grid, but 0 where nothing is to be sent. */
static enum err choose(const struct codec_call *call, uint8_t *sent, const float *z,
                       struct arena *a)
{
    struct codec_work *w = call->work;
    struct norm *norm;
    size_t count = call->count, blocks = codec_blocks(count);
    ASSERT(w->piece % CHUNK == 0);
    TRY_ALLOC(norm = arena_array(a, chunks_of(count), sizeof *norm));
    TRY(norms(w, norm, z, count));
    qsort(norm, chunks_of(count), sizeof *norm, larger);
    memset(sent, 0, blocks);
    for (size_t i = 0; i < chosen_of(count); i++) {
        size_t b = norm[i].chunk * BLOCKS, n = blocks - b < BLOCKS ? blocks - b : BLOCKS;
        memcpy(sent + b, call->grid + b, n);
    }
    return ERR_OK;
}

static enum err encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                       size_t *size_bytes, float *residual, const float *z)
{
    struct codec_call chosen = *call;
    const uint8_t *grid = call->grid;
    struct arena scratch = arena_make(0);
    size_t blocks = codec_blocks(call->count);
    uint8_t *sent = arena_alloc(&scratch, blocks);
    enum err e = sent ? choose(call, sent, z, &scratch)
                      : err_set(ERR_MEMORY, "codec: %zu bytes wanted", blocks);
    chosen.grid = sent;
    if (e == ERR_OK)
        e = codec_dense_encode(c, &chosen, payload, size_bytes, residual, z);
    for (size_t b = 0; e == ERR_OK && b < blocks; b++) /* all zero, and not chosen */
        if (!payload[b])
            payload[b] = grid[b];
    arena_free(&scratch);
    return e;
}

static enum err check(const struct codec *c, const struct codec_call *call, double *squares,
                      const uint8_t *payload, size_t size_bytes)
{
    TRY(codec_dense_check(c, call, squares, payload, size_bytes));
    size_t chosen = 0, count = call->count, blocks = codec_blocks(count);
    for (size_t chunk = 0; chunk < blocks; chunk += BLOCKS) {
        bool here = false;
        for (size_t b = chunk; b < chunk + BLOCKS && b < blocks; b++)
            here |= codec_is_present(payload + blocks, b);
        chosen += here;
    }
    return chosen <= chosen_of(count)
               ? ERR_OK
               : err_set(ERR_PROTO, "encoded values: %zu chunks, at most %zu are chosen", chosen,
                         chosen_of(count));
}

/* Blocks that so many sites can choose. */
static size_t blocks_max(size_t count, unsigned sites)
{
    size_t most = sites * chosen_of(count) * BLOCKS;
    return most < codec_blocks(count) ? most : codec_blocks(count);
}

static size_t payload_max(const struct codec *c, size_t count)
{
    size_t left = codec_blocks(count) - blocks_max(count, 1);
    return codec_dense_max(c, count) - left * form_bytes(DEV_INT4);
}

static size_t aggregate_max(const struct codec *c, size_t count, unsigned sites)
{
    size_t blocks = codec_blocks(count),
           head = blocks * codec_grid_code_bytes(sites) + codec_present_bytes(blocks);
    size_t all = codec_grid_max(c, count, sites) - head;
    return head + (blocks ? all / blocks * blocks_max(count, sites) : 0);
}

static const char *wrong(const uint8_t *block)
{
    return int4_codec.dense->wrong(block);
}

const struct codec csc_codec = {
    .name = "csc",
    .kind = CODEC_CSC,
    .summable = true,
    .momentum_in_residual = true,
    .q_max = 7,
    .dense = &(const struct codec_dense){DEV_INT4, wrong},
    .state_bytes = codec_no_state,
    .payload_max = payload_max,
    .aggregate_max = aggregate_max,
    .encode = encode,
    .check = check,
    .aggregate = codec_grid_aggregate,
    .mean = codec_grid_mean,
    .decode = codec_grid_decode,
};
