/* Codecs that add: integers in [-Q, Q] on the shared grid. Value + Q goes into bits(1) bits; a sum
 * over n sites plus n*Q into bits(n), with bits(n) = ceil(log2(2nQ + 1)): the aggregate loses
 * nothing and no payload can make it overflow. */
#include "outer/codec/codec_work.h"

static unsigned sum_bits(const struct codec *c, unsigned n)
{
    unsigned largest = 2 * n * (unsigned)c->q_max, bits = 0;
    while (largest >> bits)
        bits++;
    return bits;
}

static size_t stream_bytes(unsigned bits, size_t count)
{
    return count / 8 * bits;
}

size_t codec_grid_payload_bytes(const struct codec *c, size_t count)
{
    return codec_blocks(count) + stream_bytes(sum_bits(c, 1), count);
}

/* Bytes of one sum of n codes of at most 254. */
static size_t code_bytes(unsigned n)
{
    return n <= 256 ? 2 : 4;
}

size_t codec_grid_aggregate_bytes(const struct codec *c, size_t count, unsigned sites)
{
    return codec_blocks(count) * code_bytes(sites) + stream_bytes(sum_bits(c, sites), count);
}

/* The steps of one piece, on the device. */
static struct dev_grid piece_grid(const struct codec *c, struct codec_work *w, const uint8_t *grid,
                                  size_t n)
{
    codec_exponents(w->exponents_host, grid, c->q_max, codec_blocks(n));
    w->d->ops->copy(w->d, w->exponents, w->exponents_host, codec_blocks(n));
    return (struct dev_grid){.count = n, .q_max = c->q_max, .exponent = w->exponents};
}

/* n values from a host stream, `at` values into it -> w->integers, set or added. */
static void get_integers(struct codec_work *w, const uint8_t *stream, unsigned bits, int32_t bias,
                         bool add, size_t at, size_t n)
{
    const struct dev_ops *ops = w->d->ops;
    ops->copy(w->d, w->stream, stream + stream_bytes(bits, at), stream_bytes(bits, n));
    ops->unpack(w->d, w->integers, w->stream, bias, bits, add, n);
}

static void put_integers(struct codec_work *w, uint8_t *stream, unsigned bits, int32_t bias,
                         size_t at, size_t n)
{
    const struct dev_ops *ops = w->d->ops;
    ops->pack(w->d, w->stream, w->integers, bias, bits, n);
    ops->copy(w->d, stream + stream_bytes(bits, at), w->stream, stream_bytes(bits, n));
}

enum err codec_grid_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                           float *residual, const float *z, const uint8_t *grid, size_t count)
{
    size_t blocks = codec_blocks(count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        struct dev_grid g = piece_grid(c, w, grid + codec_blocks(at), n);
        codec_put_codes(w, payload + codec_blocks(at), z + at, n);
        w->d->ops->quantise(w->d, w->integers, residual + at, z + at, &g);
        put_integers(w, payload + blocks, sum_bits(c, 1), c->q_max, at, n);
    }
    return codec_finish(w, payload, grid, blocks);
}

/* Little-endian. */
static void sum_codes(uint8_t *sums, const uint8_t *const *payloads, unsigned n, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < n; i++)
            sum += payloads[i][b];
        for (size_t k = 0; k < code_bytes(n); k++)
            *sums++ = (uint8_t)(sum >> 8 * k);
    }
}

enum err codec_grid_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                              const uint8_t *const *payloads, unsigned n, size_t count)
{
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    size_t blocks = codec_blocks(count);
    sum_codes(aggregate, payloads, n, blocks);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        for (unsigned i = 0; i < n; i++)
            get_integers(w, payloads[i] + blocks, sum_bits(c, 1), c->q_max, i > 0, at, values);
        put_integers(w, aggregate + code_bytes(n) * blocks, sum_bits(c, n), (int32_t)n * c->q_max, at, values);
    }
    return dev_sync(w->d);
}

/* Sums of codes -> mean codes. A sum that n codes of at most 254 cannot have is refused. */
static enum err mean_codes(uint8_t *next_grid, const uint8_t *sums, unsigned n, size_t blocks)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (size_t k = 0; k < code_bytes(n); k++)
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
    size_t blocks = codec_blocks(count);
    uint32_t over = 0;
    TRY(codec_check_mean(n, weight_sum));
    TRY(codec_check_size(size_bytes, c->aggregate_bytes(c, count, n)));
    int32_t bias = (int32_t)n * c->q_max;
    ops->zero(w->d, w->over, sizeof over);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        struct dev_grid g = piece_grid(c, w, grid + codec_blocks(at), values);
        get_integers(w, aggregate + code_bytes(n) * blocks, sum_bits(c, n), bias, false, at, values);
        ops->exceeds(w->d, w->over, w->integers, bias, values);
        ops->dequantise(w->d, mean + at, w->integers, &g, weight_sum);
    }
    ops->copy(w->d, &over, w->over, sizeof over);
    TRY(dev_sync(w->d));
    if (over)
        return err_set(ERR_PROTO, "aggregate: a sum beyond what %u contributions can reach", n);
    return mean_codes(next_grid, aggregate, n, blocks); /* last: next_grid may be grid */
}

enum err codec_grid_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, const uint8_t *grid, size_t count)
{
    size_t blocks = codec_blocks(count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        struct dev_grid g = piece_grid(c, w, grid + codec_blocks(at), n);
        get_integers(w, payload + blocks, sum_bits(c, 1), c->q_max, false, at, n);
        w->d->ops->dequantise(w->d, z + at, w->integers, &g, 1.0f);
    }
    return dev_sync(w->d);
}
