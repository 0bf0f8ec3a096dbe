/* SPDX-License-Identifier: Apache-2.0 */
/* sign: 1 bit per value (1: plus, 0: minus and -0) and 9 per block, at most count/8 + count/256*9/8
 * bytes, 1.04 bits per value: +-step for every value, never 0. step is the power of two that is
 * nearest to the block's RMS on the grid (1-bit Adam's scale, 2102.02888, docs/methods.md 2.6; its
 * two-sided feedback is not needed, for signs add). Summable: the aggregate counts pluses, of 4
 * sites in 3 bits: ceil(log2(n+1)).
 *
 * Exact: z -+ step is a float where |z| >= step/2 (Sterbenz up to 2 steps; above, a multiple of z's
 * last place and smaller than z). Below, it is rounded to a multiple of 2^-24 steps, which moves z
 * by 2^-25 steps at most; decode + residual' is that z without rounding, as if z had been computed
 * on a grid of 2^-24 steps (c->slack). A block with a value of 2^23 steps or more, or on an empty
 * grid, or all zero, waits.
 *
 * Aggregate: [sums of codes][in how many payloads a block is present, as long as a sum of
 * codes][present in any][counts of pluses]. Sum of m signs with U pluses: 2U - m. */
#include <string.h>
#include "outer/codec/codec_work.h"

enum { BLOCK_BYTES = DEV_BLOCK / 8 };

static const char *sign_block_wrong(const uint8_t *block)
{
    (void)block;
    return NULL; /* any bits are signs */
}

static unsigned count_bits(unsigned n)
{
    unsigned bits = 0;
    while (n >> bits)
        bits++;
    return bits;
}

static size_t sign_aggregate_max(const struct codec *c, size_t count, unsigned sites)
{
    (void)c;
    size_t blocks = codec_blocks(count);
    return blocks * (2 * codec_grid_code_bytes(sites) + BLOCK_BYTES * count_bits(sites)) +
           codec_present_bytes(blocks);
}

static enum err sign_aggregate(const struct codec *c, const struct codec_call *call, uint8_t *out,
                               size_t *size_bytes, const struct codec_payload *payloads, unsigned n)
{
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    struct codec_work *w = call->work;
    size_t count = call->count, blocks = codec_blocks(count),
           sums = blocks * codec_grid_code_bytes(n);
    unsigned bits = count_bits(n);
    struct codec_in in[CODEC_SITES_MAX];
    struct codec_out o = codec_out_open(out + 2 * sums, BLOCK_BYTES * bits, blocks);
    codec_grid_sum_codes(out, payloads, n, blocks);
    memset(out + sums, 0, sums);
    for (unsigned i = 0; i < n; i++)
        in[i] = codec_dense_in(c, payloads[i].data, count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece, here = codec_blocks(values);
        for (size_t b = 0, first = codec_blocks(at); b < here; b++) {
            unsigned m = 0;
            for (unsigned i = 0; i < n; i++)
                m += codec_is_present(in[i].present, first + b);
            w->present[b] = m > 0;
            for (size_t k = 0; k < codec_grid_code_bytes(n); k++)
                out[sums + (first + b) * codec_grid_code_bytes(n) + k] = (uint8_t)(m >> 8 * k);
        }
        for (unsigned i = 0; i < n; i++)
            codec_grid_read(w, &in[i], 0, i > 0, values);
        w->d->ops->pack(w->d, w->stream, w->values, 0, bits, values);
        TRY(codec_out_put(w, &o, w->stream, w->values, here));
    }
    *size_bytes = (size_t)(o.end - out);
    return ERR_OK;
}

/* Sums of presence, as they must be: at most n, and 0 where no block is. */
static enum err presence_read(uint16_t *m, const uint8_t *sums, const uint8_t *present,
                              size_t first, size_t blocks, unsigned n)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (size_t k = 0; k < codec_grid_code_bytes(n); k++)
            sum |= (uint32_t)sums[(first + b) * codec_grid_code_bytes(n) + k] << 8 * k;
        if (sum > n || (sum > 0) != codec_is_present(present, first + b))
            return err_set(ERR_PROTO, "aggregate: block %zu of %u contributions in %u", first + b,
                           n, sum);
        m[b] = (uint16_t)sum;
    }
    return ERR_OK;
}

static enum err sign_mean(const struct codec *c, const struct codec_call *call, float *out,
                          uint8_t *next_grid, const struct codec_aggregate *a)
{
    struct codec_work *w = call->work;
    bool over;
    TRY(codec_check_mean(a->n, a->weight_sum));
    size_t count = call->count, blocks = codec_blocks(count), rest;
    size_t sums = blocks * codec_grid_code_bytes(a->n), block = BLOCK_BYTES * count_bits(a->n);
    size_t head = 2 * sums + codec_present_bytes(blocks);
    const uint8_t *present = a->data + 2 * sums;
    if (a->size_bytes < head)
        return codec_check_size(a->size_bytes, head);
    TRY(codec_in_bytes(present, block, blocks, &rest));
    TRY(codec_check_size(a->size_bytes, 2 * sums + rest));
    struct codec_in in = codec_in_open(a->data, present, block, blocks);
    struct codec_grid_sums s = {.signs = w->signs_host, .divisor = a->weight_sum};
    w->d->ops->zero(w->d, w->over, sizeof *w->over);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece, first = codec_blocks(at);
        TRY(presence_read(w->signs_host, a->data + sums, present, first, codec_blocks(values),
                          a->n));
        s.grid = call->grid + first;
        codec_grid_values(c, w, out + at, &in, &s, values);
    }
    TRY(codec_grid_over(w, &over));
    if (over)
        return err_set(ERR_PROTO, "aggregate: more pluses than signs");
    return codec_grid_mean_codes(next_grid, a->data, a->n, blocks); /* last: may be grid */
}

static enum err sign_decode(const struct codec *c, const struct codec_call *call, float *z,
                            const uint8_t *payload, size_t size_bytes)
{
    (void)size_bytes;
    struct codec_work *w = call->work;
    size_t count = call->count;
    struct codec_in in = codec_dense_in(c, payload, count);
    struct codec_grid_sums s = {.signs = w->signs_host, .divisor = 1};
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece, first = codec_blocks(at);
        for (size_t b = 0; b < codec_blocks(values); b++)
            w->signs_host[b] = codec_is_present(in.present, first + b);
        s.grid = call->grid + first;
        codec_grid_values(c, w, z + at, &in, &s, values);
    }
    return dev_sync(w->d);
}

const struct codec sign_codec = {
    .name = "sign",
    .kind = CODEC_SIGN,
    .summable = true,
    .momentum_in_residual = true,
    .q_max = 1,
    .slack = 0x1p-25f,
    .dense = &(const struct codec_dense){DEV_SIGN, sign_block_wrong},
    .state_bytes = codec_no_state,
    .payload_max = codec_dense_max,
    .aggregate_max = sign_aggregate_max,
    .encode = codec_dense_encode,
    .check = codec_dense_check,
    .aggregate = sign_aggregate,
    .mean = sign_mean,
    .decode = sign_decode,
};
