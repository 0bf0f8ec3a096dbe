/* SPDX-License-Identifier: Apache-2.0 */
/* Summable codecs: integers in [-Q, Q] on the shared scales. Value + Q goes into bits(1) bits; a
 * sum over n sites plus n*Q into bits(n), with bits(n) = ceil(log2(2nQ + 1)): the aggregate loses
 * nothing and no payload can make it overflow. A block is present in the aggregate that is present
 * in any payload. */
#include <string.h>
#include "outer/codec/codec_work.h"

static size_t grid_block_bytes(unsigned bits)
{
    return DEV_BLOCK / 8 * bits;
}

size_t codec_grid_code_bytes(unsigned n)
{
    return n <= 256 ? 2 : 4;
}

size_t codec_grid_max(const struct codec *c, size_t count, unsigned sites)
{
    size_t blocks = codec_blocks(count);
    return blocks * (codec_grid_code_bytes(sites) + grid_block_bytes(codec_grid_bits(c, sites))) +
           codec_present_bytes(blocks);
}

void codec_grid_read(struct codec_work *w, struct codec_in *in, int32_t bias, bool add, size_t n)
{
    unsigned bits = (unsigned)(in->block_bytes * 8 / DEV_BLOCK);
    struct codec_taken t = codec_in_take(w, in, codec_blocks(n));
    w->d->ops->unpack(
        w->d, w->values, t.bytes,
        &(struct dev_unpack){.slot = t.slot, .bias = bias, .bits = bits, .add = add, .count = n});
}

void codec_grid_values(const struct codec *c, struct codec_work *w, float *z, struct codec_in *in,
                       const struct codec_grid_sums *sums, size_t n)
{
    size_t blocks = codec_blocks(n);
    struct codec_taken t = codec_in_take(w, in, blocks);
    struct dev_decode a = {.form = c->dense->form,
                           .count = n,
                           .slot = t.slot,
                           .code = codec_there(w, w->grid, sums->grid, blocks),
                           .bits = (unsigned)(in->block_bytes * 8 / DEV_BLOCK),
                           .bias = sums->bias,
                           .overflow = w->over,
                           .divisor = sums->divisor};
    if (sums->signs)
        a.signs = codec_there(w, w->signs, sums->signs, blocks * sizeof *sums->signs);
    w->d->ops->block_decode(w->d, z, t.bytes, &a);
}

enum err codec_grid_over(struct codec_work *w, bool *over)
{
    uint32_t any = 0;
    w->d->ops->copy(w->d, &any, w->over, sizeof any);
    *over = any;
    return dev_sync(w->d);
}

void codec_grid_sum_codes(uint8_t *sums, const struct codec_payload *payloads, unsigned n,
                          size_t blocks)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < n; i++)
            sum += payloads[i].data[b];
        for (size_t k = 0; k < codec_grid_code_bytes(n); k++)
            *sums++ = (uint8_t)(sum >> 8 * k);
    }
}

enum err codec_grid_aggregate(const struct codec *c, const struct codec_call *call,
                              uint8_t *aggregate, size_t *size_bytes,
                              const struct codec_payload *payloads, unsigned n)
{
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    struct codec_work *w = call->work;
    size_t count = call->count, blocks = codec_blocks(count);
    unsigned bits = codec_grid_bits(c, n);
    struct codec_in in[CODEC_SITES_MAX];
    struct codec_out out = codec_out_open(aggregate + codec_grid_code_bytes(n) * blocks,
                                          grid_block_bytes(bits), blocks);
    codec_grid_sum_codes(aggregate, payloads, n, blocks);
    for (unsigned i = 0; i < n; i++)
        in[i] = codec_dense_in(c, payloads[i].data, count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece, here = codec_blocks(values);
        memset(w->present, 0, here);
        for (unsigned i = 0; i < n; i++) {
            for (size_t b = 0; b < here; b++)
                w->present[b] |= codec_is_present(in[i].present, in[i].block + b);
            codec_grid_read(w, &in[i], c->q_max, i > 0, values);
        }
        w->d->ops->pack(w->d, w->stream, w->values, (int32_t)n * c->q_max, bits, values);
        TRY(codec_out_put(w, &out, w->stream, w->values, here));
    }
    *size_bytes = (size_t)(out.end - aggregate);
    return ERR_OK;
}

enum err codec_grid_mean_codes(uint8_t *next_grid, const uint8_t *sums, unsigned n, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (size_t k = 0; k < codec_grid_code_bytes(n); k++)
            sum |= (uint32_t)*sums++ << 8 * k;
        if (sum > n * 254)
            return err_set(ERR_PROTO, "aggregate: block %zu has a sum of codes of %u", b, sum);
        next_grid[b] = codec_mean_code(sum, n);
    }
    return ERR_OK;
}

enum err codec_grid_mean(const struct codec *c, const struct codec_call *call, float *mean,
                         uint8_t *next_grid, const struct codec_aggregate *a)
{
    struct codec_work *w = call->work;
    size_t count = call->count, blocks = codec_blocks(count), rest;
    size_t sums = codec_grid_code_bytes(a->n) * blocks;
    bool over;
    TRY(codec_check_mean(a->n, a->weight_sum));
    size_t block = grid_block_bytes(codec_grid_bits(c, a->n)),
           head = sums + codec_present_bytes(blocks);
    if (a->size_bytes < head)
        return codec_check_size(a->size_bytes, head);
    TRY(codec_in_bytes(a->data + sums, block, blocks, &rest));
    TRY(codec_check_size(a->size_bytes, sums + rest));
    struct codec_in in = codec_in_open(a->data, a->data + sums, block, blocks);
    struct codec_grid_sums s = {.bias = (int32_t)a->n * c->q_max, .divisor = a->weight_sum};
    w->d->ops->zero(w->d, w->over, sizeof *w->over);
    for (size_t at = 0; at < count; at += w->piece) {
        s.grid = call->grid + codec_blocks(at);
        codec_grid_values(c, w, mean + at, &in, &s, count - at < w->piece ? count - at : w->piece);
    }
    TRY(codec_grid_over(w, &over));
    if (over)
        return err_set(ERR_PROTO, "aggregate: a sum beyond what %u contributions can reach", a->n);
    return codec_grid_mean_codes(next_grid, a->data, a->n, blocks); /* last: may be grid */
}

enum err codec_grid_decode(const struct codec *c, const struct codec_call *call, float *z,
                           const uint8_t *payload, size_t size_bytes)
{
    (void)size_bytes;
    struct codec_work *w = call->work;
    size_t count = call->count;
    struct codec_in in = codec_dense_in(c, payload, count);
    struct codec_grid_sums s = {.bias = c->q_max, .divisor = 1};
    for (size_t at = 0; at < count; at += w->piece) {
        s.grid = call->grid + codec_blocks(at);
        codec_grid_values(c, w, z + at, &in, &s, count - at < w->piece ? count - at : w->piece);
    }
    return dev_sync(w->d);
}
