/* f32: 32 bits per value and one byte per block, count*4 + count/256 bytes; residual 0. The
 * reference every other codec is compared with. Relayed. */
#include <string.h>
#include "outer/codec/codec_work.h"

static size_t payload_bytes(const struct codec *c, size_t count)
{
    (void)c;
    return codec_blocks(count) + count * sizeof(float);
}

static enum err encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                       float *residual, const float *z, const uint8_t *grid, size_t count)
{
    (void)c;
    const struct dev_ops *ops = w->d->ops;
    size_t blocks = codec_blocks(count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        codec_put_codes(w, payload + codec_blocks(at), z + at, n);
        ops->copy(w->d, payload + blocks + at * sizeof(float), z + at, n * sizeof(float));
        ops->zero(w->d, residual + at, n * sizeof(float));
    }
    return codec_finish(w, payload, grid, blocks);
}

static enum err check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                      size_t count)
{
    size_t blocks = codec_blocks(count);
    TRY(codec_check_size(size_bytes, c->payload_bytes(c, count)));
    TRY(codec_check_codes(payload, blocks));
    uint32_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, payload + blocks + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad ? err_set(ERR_PROTO, "encoded values: one is not finite") : ERR_OK;
}

static void get(const struct codec *c, struct codec_work *w, float *z, const struct codec_part *p)
{
    (void)c;
    w->d->ops->copy(w->d, z, p->values + p->at * sizeof *z, p->count * sizeof *z);
}

static enum err mean(const struct codec *c, struct codec_work *w, float *out, uint8_t *next_grid,
                     const uint8_t *aggregate, size_t size_bytes, unsigned n, float weight_sum,
                     const uint8_t *grid, size_t count)
{
    (void)grid;
    struct codec_relayed r = {aggregate, size_bytes, count, n, weight_sum};
    return codec_relay_mean(c, w, out, next_grid, &r, get);
}

static enum err decode(const struct codec *c, struct codec_work *w, float *z,
                       const uint8_t *payload, const uint8_t *grid, size_t count)
{
    (void)grid;
    return codec_relay_decode(c, w, z, payload, count, get);
}

const struct codec f32_codec = {
    .name = "f32",
    .kind = CODEC_F32,
    .adds = false,
    .q_max = 0,
    .payload_bytes = payload_bytes,
    .aggregate_bytes = codec_relay_bytes,
    .encode = encode,
    .check = check,
    .aggregate = codec_relay,
    .mean = mean,
    .decode = decode,
};
