#ifndef CODEC_WORK_H
#define CODEC_WORK_H
/* What the codecs share among themselves; callers see codec.h only. Values go through the device in
 * pieces, so that the buffers are small and, on a CPU, every pass after the first finds its
 * operands in the cache.
 */
#include "outer/codec/codec.h"

enum { CODEC_STREAM_BITS = 18 }; /* the sum of CODEC_SITES_MAX integers of int8 */

struct codec_work {
    struct dev *d;
    size_t piece; /* values, a multiple of DEV_BLOCK; the sizes below follow from it */
    /* device */
    float *values;     /* piece */
    int32_t *integers; /* piece */
    uint8_t *stream;   /* piece: up to CODEC_STREAM_BITS per value, or bf16 */
    uint8_t *codes;    /* piece / 256 */
    int8_t *exponents; /* piece / 256 */
    uint32_t *over;    /* one: set by the op exceeds */
    /* host */
    int8_t *exponents_host; /* piece / 256 */
    float *host;            /* piece */
};

extern const struct codec f32_codec, bf16_codec, int8_codec, int4_codec, int2_codec;

static inline size_t codec_blocks(size_t count)
{
    return count / DEV_BLOCK;
}

/* Block codes of one piece of z -> host. */
void codec_put_codes(struct codec_work *w, uint8_t *codes, const float *z, size_t n);
/* Waits for the device, then: ERR_DIVERGED if a code says not finite; a code of 0 becomes the
 * grid's. */
enum err codec_finish(struct codec_work *w, uint8_t *codes, const uint8_t *grid,
                      size_t blocks) MUST;
enum err codec_check_size(size_t size_bytes, size_t want) MUST;
enum err codec_check_codes(const uint8_t *codes, size_t blocks) MUST;
enum err codec_check_mean(unsigned n, float weight_sum) MUST;
/* round(sum / n), integers only. */
uint8_t codec_mean_code(uint32_t sum, unsigned n);

/* Relayed codecs (codec_relay.c). get: `count` values of a payload, from value `at` on -> device.
 */
struct codec_part {
    const uint8_t *codes;  /* of these values */
    const uint8_t *values; /* of the whole payload */
    size_t at, count;
};
typedef void codec_values(const struct codec *c, struct codec_work *w, float *z,
                          const struct codec_part *p);
size_t codec_relay_bytes(const struct codec *c, size_t count, unsigned sites);
enum err codec_relay(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                     const uint8_t *const *payloads, unsigned n, size_t count) MUST;
struct codec_relayed { /* arguments of mean */
    const uint8_t *aggregate;
    size_t size_bytes, count;
    unsigned n;
    float weight_sum;
};
enum err codec_relay_mean(const struct codec *c, struct codec_work *w, float *mean,
                          uint8_t *next_grid, const struct codec_relayed *r,
                          codec_values *get) MUST;
enum err codec_relay_decode(const struct codec *c, struct codec_work *w, float *z,
                            const uint8_t *payload, size_t count, codec_values *get) MUST;

/* Relayed codecs that the host encodes (codec_host.c), in chunks of whole blocks; the last chunk
 * may be shorter. Bytes of the values: block_bytes per block, chunk_bytes per chunk, chunk after
 * chunk, so a payload's size follows from the count alone. codes: the payload's own block codes. */
struct codec_host {
    struct codec c; /* first */
    size_t chunk;   /* values; divides a piece */
    size_t block_bytes, chunk_bytes;
    void (*encode)(uint8_t *out, const uint8_t *codes, float *z, size_t n); /* z: then residual */
    const char *(*wrong)(const uint8_t *in, size_t n); /* NULL: what encode could have made */
    void (*decode)(float *z, const uint8_t *codes, const uint8_t *in, size_t n); /* of a good one */
};
size_t codec_host_payload_bytes(const struct codec *c, size_t count);
enum err codec_host_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                           float *residual, const float *z, const uint8_t *grid, size_t count);
enum err codec_host_check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                          size_t count);
enum err codec_host_mean(const struct codec *c, struct codec_work *w, float *mean,
                         uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                         unsigned n, float weight_sum, const uint8_t *grid, size_t count);
enum err codec_host_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, const uint8_t *grid, size_t count);
extern const struct codec_host e3m0_codec, fp8_e4m3_codec, fp8_e5m2_codec, topk_codec;

/* Codecs that add (codec_grid.c), for any Q = c->q_max. Everything but the check of a payload's
 * integers. */
size_t codec_grid_payload_bytes(const struct codec *c, size_t count);
size_t codec_grid_aggregate_bytes(const struct codec *c, size_t count, unsigned sites);
enum err codec_grid_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                           float *residual, const float *z, const uint8_t *grid, size_t count);
enum err codec_grid_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                              const uint8_t *const *payloads, unsigned n, size_t count);
enum err codec_grid_mean(const struct codec *c, struct codec_work *w, float *mean,
                         uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                         unsigned n, float weight_sum, const uint8_t *grid, size_t count);
enum err codec_grid_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, const uint8_t *grid, size_t count);

#endif
