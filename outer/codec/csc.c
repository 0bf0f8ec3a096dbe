/* SPDX-License-Identifier: Apache-2.0 */
/* csc: a tenth of the chunks of 4096 values of a fragment, the same at every site, in int4's form
 * on int4's grid; all others wait in the residual (coarse-grained sparse communication of
 * GradientFlow, 1902.06855). All sites agree on the set before any of them encodes, and no message
 * is spent on it: a payload has codes of all blocks, of what the site expects to send in the next
 * round, so the mean codes of a round, which every replica holds, are both the next grid and the
 * norms that choose the next set: the chunks with the largest sum of block RMS, ties to the lower
 * index.
 *
 * What a site expects to send of a block in the next round: its residual plus this round's delta.
 * For a chunk that is sent now that is the delta, for any other z + delta. Without it a chunk would
 * be chosen again for what it has just sent.
 *
 * Which chunks have blocks is said by the bits of present blocks: at most count/256*9/8 +
 * chosen*2048 bytes, 0.44 bits per value. Summable: the aggregate has as many chunks as a payload,
 * at 4 sites in 6 bits per value, 0.6 bits per value of the fragment. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "outer/codec/codec_work.h"

enum { CHUNK = DEV_CHUNK, BLOCKS = CHUNK / DEV_BLOCK, SHARE = 10 };

static size_t csc_chunks(size_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static size_t csc_chosen(size_t count)
{
    return (csc_chunks(count) + SHARE - 1) / SHARE;
}

struct norm {
    double sum;
    size_t chunk;
};

/* Root mean square of a block by its code, a power of two of the mean square. */
static double code_rms(uint8_t code)
{
    return code ? sqrt(ldexp(1, code - 128)) : 0;
}

/* Largest first. */
static int norm_larger(const void *x, const void *y)
{
    const struct norm *a = x, *b = y;
    if (a->sum != b->sum)
        return a->sum > b->sum ? -1 : 1;
    return a->chunk < b->chunk ? -1 : 1;
}

static size_t chunk_blocks(size_t blocks, size_t chunk)
{
    return blocks - chunk * BLOCKS < BLOCKS ? blocks - chunk * BLOCKS : BLOCKS;
}

/* The grid, but 0 in blocks that are not of the round's set. */
static enum err blocks_choose(uint8_t *sent, const uint8_t *grid, size_t count)
{
    struct arena a = arena_make(0);
    size_t blocks = codec_blocks(count);
    struct norm *norm = arena_array(&a, csc_chunks(count), sizeof *norm);
    TRY_ALLOC(norm);
    for (size_t c = 0; c < csc_chunks(count); c++) {
        norm[c] = (struct norm){.chunk = c};
        for (size_t b = 0; b < chunk_blocks(blocks, c); b++)
            norm[c].sum += code_rms(grid[c * BLOCKS + b]);
    }
    qsort(norm, csc_chunks(count), sizeof *norm, norm_larger);
    memset(sent, 0, blocks);
    for (size_t i = 0; i < csc_chosen(count); i++) {
        size_t c = norm[i].chunk;
        memcpy(sent + c * BLOCKS, grid + c * BLOCKS, chunk_blocks(blocks, c));
    }
    arena_free(&a);
    return ERR_OK;
}

/* p (n values, w->values) += z where nothing is sent. */
static void add_unsent(struct codec_work *w, float *p, const float *z, const uint8_t *sent,
                       size_t blocks)
{
    for (size_t first = 0, end; first < blocks; first = end) {
        for (end = first; end < blocks && !sent[end] == !sent[first]; end++)
            ;
        if (!sent[first])
            w->d->ops->axpy(w->d, p + first * DEV_BLOCK, z + first * DEV_BLOCK, 1,
                            (end - first) * DEV_BLOCK);
    }
}

/* Block codes of what the next round is expected to have: z - carried, and z once more where
 * nothing is sent. */
static enum err codes_expect(const struct codec_call *call, uint8_t *expected, const float *z,
                             const float *carried, const uint8_t *sent)
{
    struct codec_work *w = call->work;
    float *p = w->values;
    for (size_t at = 0; at < call->count; at += w->piece) {
        size_t n = call->count - at < w->piece ? call->count - at : w->piece;
        w->d->ops->copy(w->d, p, z + at, n * sizeof *p);
        if (carried)
            w->d->ops->axpy(w->d, p, carried + at, -1, n);
        add_unsent(w, p, z + at, sent + codec_blocks(at), codec_blocks(n));
        TRY(codec_codes(w, expected + codec_blocks(at), p, n));
    }
    return ERR_OK;
}

static enum err encode_chosen(const struct codec *c, const struct codec_call *call,
                              uint8_t *payload, size_t *size_bytes, float *residual, const float *z,
                              struct arena *scratch)
{
    struct codec_call chosen = *call;
    size_t blocks = codec_blocks(call->count);
    uint8_t *sent, *expected;
    TRY_ALLOC(sent = arena_alloc(scratch, blocks));
    TRY_ALLOC(expected = arena_alloc(scratch, blocks));
    TRY(blocks_choose(sent, call->grid, call->count));
    TRY(codes_expect(call, expected, z, call->carries ? residual : NULL, sent));
    chosen.grid = sent;
    TRY(codec_dense_encode(c, &chosen, payload, size_bytes, residual, z));
    for (size_t b = 0; b < blocks; b++) { /* no code: nothing is expected; or beyond what f32 has */
        uint8_t own = payload[b] ? payload[b] : call->grid[b];
        payload[b] = expected[b] && expected[b] != GRID_CODE_BAD ? expected[b] : own;
    }
    return ERR_OK;
}

static enum err csc_encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                           size_t *size_bytes, float *residual, const float *z)
{
    struct arena scratch = arena_make(0);
    enum err e = encode_chosen(c, call, payload, size_bytes, residual, z, &scratch);
    arena_free(&scratch);
    return e;
}

/* Blocks beyond the round's set. */
static enum err check_set(const struct codec_call *call, const uint8_t *present)
{
    struct arena scratch = arena_make(0);
    size_t blocks = codec_blocks(call->count);
    uint8_t *sent = arena_alloc(&scratch, blocks);
    enum err e = sent ? blocks_choose(sent, call->grid, call->count)
                      : err_set(ERR_MEMORY, "codec: %zu bytes wanted", blocks);
    for (size_t b = 0; e == ERR_OK && b < blocks; b++)
        if (codec_is_present(present, b) && !sent[b])
            e = err_set(ERR_PROTO,
                        "encoded values: block %zu is sent, of no chunk of the round's set", b);
    arena_free(&scratch);
    return e;
}

static enum err csc_check(const struct codec *c, const struct codec_call *call, double *squares,
                          const uint8_t *payload, size_t size_bytes)
{
    TRY(codec_dense_check(c, call, squares, payload, size_bytes));
    if (call->grid)
        return check_set(call, payload + codec_blocks(call->count));
    size_t chosen = 0, count = call->count, blocks = codec_blocks(count);
    for (size_t chunk = 0; chunk < blocks; chunk += BLOCKS) {
        bool here = false;
        for (size_t b = chunk; b < chunk + BLOCKS && b < blocks; b++)
            here |= codec_is_present(payload + blocks, b);
        chosen += here;
    }
    return chosen <= csc_chosen(count)
               ? ERR_OK
               : err_set(ERR_PROTO, "encoded values: %zu chunks, at most %zu are chosen", chosen,
                         csc_chosen(count));
}

/* Blocks of a set. */
static size_t blocks_max(size_t count)
{
    size_t most = csc_chosen(count) * BLOCKS;
    return most < codec_blocks(count) ? most : codec_blocks(count);
}

static size_t csc_payload_max(const struct codec *c, size_t count)
{
    size_t left = codec_blocks(count) - blocks_max(count);
    return codec_dense_max(c, count) - left * form_bytes(DEV_INT4);
}

static size_t csc_aggregate_max(const struct codec *c, size_t count, unsigned sites)
{
    size_t blocks = codec_blocks(count),
           head = blocks * codec_grid_code_bytes(sites) + codec_present_bytes(blocks);
    size_t all = codec_grid_max(c, count, sites) - head;
    return head + (blocks ? all / blocks * blocks_max(count) : 0);
}

static const char *csc_block_wrong(const uint8_t *block)
{
    return int4_codec.dense->wrong(block);
}

const struct codec csc_codec = {
    .name = "csc",
    .kind = CODEC_CSC,
    .summable = true,
    .momentum_in_residual = true,
    .q_max = 7,
    .dense = &(const struct codec_dense){DEV_INT4, csc_block_wrong},
    .state_bytes = codec_no_state,
    .payload_max = csc_payload_max,
    .aggregate_max = csc_aggregate_max,
    .encode = csc_encode,
    .check = csc_check,
    .aggregate = codec_grid_aggregate,
    .mean = codec_grid_mean,
    .decode = codec_grid_decode,
};
