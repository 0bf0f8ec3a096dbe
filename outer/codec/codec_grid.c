/* Codecs that add: integers in [-Q, Q] on the shared grid. Value + Q goes into bits(1) bits; a sum
 * over n sites plus n*Q into bits(n), with bits(n) = ceil(log2(2nQ + 1)): the aggregate loses
 * nothing and no payload can make it overflow. A block is present in the aggregate that is present
 * in any payload. */
#include <string.h>
#include "outer/codec/codec_work.h"

static unsigned sum_bits(const struct codec *c, unsigned n)
{
    unsigned largest = 2 * n * (unsigned)c->q_max, bits = 0;
    while (largest >> bits)
        bits++;
    return bits;
}

static size_t block_bytes(unsigned bits)
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
    return blocks * (codec_grid_code_bytes(sites) + block_bytes(sum_bits(c, sites))) +
           codec_present_bytes(blocks);
}

static struct dev_grid piece_grid(const struct codec *c, struct codec_work *w, const uint8_t *grid,
                                  size_t n)
{
    codec_exponents(w->exponents_host, grid, c->q_max, codec_blocks(n));
    w->d->ops->copy(w->d, w->exponents, w->exponents_host, codec_blocks(n));
    return (struct dev_grid){.count = n, .q_max = c->q_max, .exponent = w->exponents};
}

void codec_grid_read(struct codec_work *w, struct codec_in *in, int32_t bias, bool add, size_t n)
{
    const struct dev_ops *ops = w->d->ops;
    unsigned bits = (unsigned)(in->block_bytes * 8 / DEV_BLOCK);
    for (size_t done = 0; done < n;) {
        struct codec_run run = codec_in_run(in, codec_blocks(n - done));
        size_t values = run.blocks * DEV_BLOCK;
        if (run.bytes) {
            ops->copy(w->d, w->stream, run.bytes, run.blocks * in->block_bytes);
            ops->unpack(w->d, w->integers + done, w->stream, bias, bits, add, values);
        } else if (!add) {
            ops->zero(w->d, w->integers + done, values * sizeof *w->integers);
        }
        done += values;
    }
}

const uint8_t *codec_grid_encode(const struct codec *c, struct codec_work *w,
                                 const struct codec_piece *p)
{
    struct dev_grid g = piece_grid(c, w, p->grid, p->count);
    unsigned bits = sum_bits(c, 1);
    w->d->ops->quantise(w->d, w->integers, p->residual, p->z, &g);
    w->d->ops->pack(w->d, w->stream, w->integers, c->q_max, bits, p->count);
    return codec_seen(w, w->stream, codec_blocks(p->count) * block_bytes(bits));
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

enum err codec_grid_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                              size_t *size_bytes, const struct codec_payload *payloads, unsigned n,
                              size_t count)
{
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    size_t blocks = codec_blocks(count);
    unsigned bits = sum_bits(c, n);
    struct codec_in in[CODEC_SITES_MAX];
    struct codec_out out =
        codec_out_open(aggregate + codec_grid_code_bytes(n) * blocks, block_bytes(bits), blocks);
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
        w->d->ops->pack(w->d, w->stream, w->integers, (int32_t)n * c->q_max, bits, values);
        const uint8_t *sums = codec_seen(w, w->stream, here * block_bytes(bits));
        TRY(dev_sync(w->d));
        codec_out_put(&out, w->d->threads, sums, w->present, here);
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

enum err codec_grid_mean(const struct codec *c, struct codec_work *w, float *mean,
                         uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                         unsigned n, float weight_sum, const uint8_t *grid, size_t count)
{
    const struct dev_ops *ops = w->d->ops;
    size_t blocks = codec_blocks(count), sums = codec_grid_code_bytes(n) * blocks, rest;
    uint32_t over = 0;
    TRY(codec_check_mean(n, weight_sum));
    size_t block = block_bytes(sum_bits(c, n)), head = sums + codec_present_bytes(blocks);
    if (size_bytes < head)
        return codec_check_size(size_bytes, head);
    TRY(codec_in_bytes(aggregate + sums, block, blocks, &rest));
    TRY(codec_check_size(size_bytes, sums + rest));
    struct codec_in in = codec_in_open(aggregate, aggregate + sums, block, blocks);
    int32_t bias = (int32_t)n * c->q_max;
    ops->zero(w->d, w->over, sizeof over);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        struct dev_grid g = piece_grid(c, w, grid + codec_blocks(at), values);
        codec_grid_read(w, &in, bias, false, values);
        ops->exceeds(w->d, w->over, w->integers, bias, values);
        ops->dequantise(w->d, mean + at, w->integers, &g, weight_sum);
        TRY(dev_sync(w->d)); /* the next piece's exponents take the place of these */
    }
    ops->copy(w->d, &over, w->over, sizeof over);
    TRY(dev_sync(w->d));
    if (over)
        return err_set(ERR_PROTO, "aggregate: a sum beyond what %u contributions can reach", n);
    return codec_grid_mean_codes(next_grid, aggregate, n, blocks); /* last: may be grid */
}

enum err codec_grid_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, size_t size_bytes, const uint8_t *grid,
                           size_t count)
{
    (void)size_bytes;
    struct codec_in in = codec_dense_in(c, payload, count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        struct dev_grid g = piece_grid(c, w, grid + codec_blocks(at), values);
        codec_grid_read(w, &in, c->q_max, false, values);
        w->d->ops->dequantise(w->d, z + at, w->integers, &g, 1.0f);
        TRY(dev_sync(w->d));
    }
    return ERR_OK;
}
