#ifndef CODEC_WORK_H
#define CODEC_WORK_H
/* What the codecs share among themselves; callers see codec.h only. Values go through the device in
 * pieces, so that the buffers are small and, on a CPU, every pass after the first finds its
 * operands in the cache.
 */
#include "kernels/base/level.h"
#include "outer/codec/codec.h"

enum { CODEC_STREAM_BITS = 18 }; /* the sum of CODEC_SITES_MAX integers of int8 */

struct codec_work {
    struct dev *d;
    size_t piece;          /* values, a multiple of DEV_BLOCK; the sizes below follow from it */
    bool here;             /* the device's memory is the host's: nothing to copy between them */
    uint64_t random_seed, random_stream; /* codec_seed */
    /* device */
    float *values;     /* piece */
    int32_t *integers; /* piece */
    uint8_t *stream;   /* piece: up to CODEC_STREAM_BITS per value, or bf16 */
    uint8_t *codes;    /* piece / 256 */
    int8_t *exponents; /* piece / 256 */
    uint32_t *over;    /* one: set by the op exceeds */
    /* host */
    int8_t *exponents_host; /* piece / 256 */
    uint8_t *present;       /* piece / 256: 1 for a block that goes on the wire */
    /* host, and fast to copy */
    float *host;    /* piece */
    uint8_t *bytes; /* 4 * piece: the blocks of a piece before the empty ones are left out */
};

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
enum err codec_check_mean(unsigned n, float weight_sum) MUST;
/* round(sum / n), integers only. */
uint8_t codec_mean_code(uint32_t sum, unsigned n);
/* Device bytes where the host can read them: themselves, or copied to w->bytes. */
const uint8_t *codec_seen(struct codec_work *w, const void *bytes, size_t size_bytes);

/* ---- blocks that may be absent (codec_dense.c) ---- */

/* [present bits][blocks], as they are written and as they are read. */
struct codec_out {
    uint8_t *present, *end; /* end: behind the last block so far */
    size_t block, block_bytes;
};
struct codec_in {
    const uint8_t *codes, *present, *next;
    size_t block, block_bytes;
};
struct codec_run { /* blocks one after the other that are all present, or all absent */
    const uint8_t *codes, *bytes; /* bytes NULL: absent */
    size_t blocks;
};
static inline size_t codec_present_bytes(size_t blocks)
{
    return (blocks + 7) / 8;
}
static inline bool codec_is_present(const uint8_t *present, size_t block)
{
    return present[block / 8] >> block % 8 & 1;
}
struct codec_out codec_out_open(uint8_t *present, size_t block_bytes, size_t blocks);
/* The next blocks, dense, and which of them are present. */
void codec_out_put(struct codec_out *o, int threads, const uint8_t *dense, const uint8_t *present,
                   size_t blocks);
struct codec_in codec_in_open(const uint8_t *codes, const uint8_t *present, size_t block_bytes,
                              size_t blocks);
struct codec_run codec_in_run(struct codec_in *in, size_t most_blocks);
/* Bytes of bits and blocks; fill bits that are set: ERR_PROTO. */
enum err codec_in_bytes(const uint8_t *present, size_t block_bytes, size_t blocks,
                        size_t *size_bytes) MUST;

struct codec_piece { /* of one encode */
    float *residual;
    const float *z; /* both device; may be the same */
    const uint8_t *grid, *codes;
    size_t block, count; /* block: the first one's number in the fragment */
};
struct codec_dense {
    struct codec c; /* first */
    size_t block_bytes;
    /* A block all of whose bytes are this is absent. NOTHING_NONE: encode_piece says which, in
     * w->present. */
    int nothing;
    /* The piece's blocks, all of them, where the host can read them. */
    const uint8_t *(*encode_piece)(const struct codec *c, struct codec_work *w,
                                   const struct codec_piece *p);
    const char *(*wrong)(const uint8_t *block); /* NULL: what encode could have made */
};
enum { NOTHING_NONE = -1 };
size_t codec_dense_max(const struct codec *c, size_t count);
enum err codec_dense_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                            size_t *size_bytes, float *residual, const float *z,
                            const uint8_t *grid, size_t count);
enum err codec_dense_check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                           size_t count);
struct codec_in codec_dense_in(const struct codec *c, const uint8_t *payload, size_t count);

/* ---- relayed codecs (codec_relay.c) ---- */

/* A run of present blocks -> values, device. */
typedef void codec_values(const struct codec *c, struct codec_work *w, float *z,
                          const struct codec_run *run);
struct codec_relay {
    struct codec_dense dense; /* first */
    codec_values *values;
};
size_t codec_relay_max(const struct codec *c, size_t count, unsigned sites);
enum err codec_relay_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                               size_t *size_bytes, const struct codec_payload *payloads, unsigned n,
                               size_t count);
/* The payloads of an aggregate, each checked. */
enum err codec_relay_list(const struct codec *c, const uint8_t *aggregate, size_t size_bytes,
                          unsigned n, size_t count,
                          struct codec_payload payloads[CODEC_SITES_MAX]) MUST;
enum err codec_relay_mean(const struct codec *c, struct codec_work *w, float *mean,
                          uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                          unsigned n, float weight_sum, const uint8_t *grid, size_t count);
enum err codec_relay_decode(const struct codec *c, struct codec_work *w, float *z,
                            const uint8_t *payload, size_t size_bytes, const uint8_t *grid,
                            size_t count);
extern const struct codec_relay f32_codec, bf16_codec;

/* Relayed codecs that the host encodes (codec_host.c), a block at a time. code: the payload's own
 * code of the block. */
struct codec_host {
    struct codec_relay relay; /* first */
    /* residual and z may be the same. block: its number in the fragment; w: for its seed. */
    void (*encode)(const struct codec_work *w, size_t block, uint8_t *out, uint8_t code,
                   float *residual, const float *z);
    void (*decode)(float *z, uint8_t code, const uint8_t *in); /* of a good one */
};
const uint8_t *codec_host_encode(const struct codec *c, struct codec_work *w,
                                 const struct codec_piece *p);
codec_values codec_host_values;

/* Of the table of a dense codec that is relayed: what all of them share. */
#define CODEC_RELAYED                                                                              \
    .payload_max = codec_dense_max, .aggregate_max = codec_relay_max,                              \
    .encode = codec_dense_encode, .check = codec_dense_check,                                      \
    .aggregate = codec_relay_aggregate, .mean = codec_relay_mean, .decode = codec_relay_decode

/* ---- codecs that add (codec_grid.c), for any Q = c->q_max ---- */

/* Of the table of a dense codec that adds: what all of them share. */
#define CODEC_ADDED                                                                                \
    .payload_max = codec_dense_max, .aggregate_max = codec_grid_max, .encode = codec_dense_encode, \
    .check = codec_dense_check, .aggregate = codec_grid_aggregate, .mean = codec_grid_mean,        \
    .decode = codec_grid_decode

/* Bytes of one sum of n codes of at most 254. */
size_t codec_grid_code_bytes(unsigned n);
/* The next n integers -> w->integers, set or added; of an absent block they are 0. */
void codec_grid_read(struct codec_work *w, struct codec_in *in, int32_t bias, bool add, size_t n);
/* Sums of codes, little-endian; and the mean codes of such sums, ERR_PROTO where n codes of at
 * most 254 cannot have them. */
void codec_grid_sum_codes(uint8_t *sums, const struct codec_payload *payloads, unsigned n,
                          size_t blocks);
enum err codec_grid_mean_codes(uint8_t *next_grid, const uint8_t *sums, unsigned n,
                               size_t blocks) MUST;
size_t codec_grid_max(const struct codec *c, size_t count, unsigned sites);
const uint8_t *codec_grid_encode(const struct codec *c, struct codec_work *w,
                                 const struct codec_piece *p);
enum err codec_grid_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                              size_t *size_bytes, const struct codec_payload *payloads, unsigned n,
                              size_t count);
enum err codec_grid_mean(const struct codec *c, struct codec_work *w, float *mean,
                         uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                         unsigned n, float weight_sum, const uint8_t *grid, size_t count);
enum err codec_grid_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, size_t size_bytes, const uint8_t *grid,
                           size_t count);
extern const struct codec_dense sign_codec;

extern const struct codec topk_codec;

/* ---- compiled once per level of the processor: the same bytes from each ---- */

#define CODEC_LEVEL(_level)                                                                        \
    extern const struct codec_host e3m0_codec##_level, fp8_e4m3_codec##_level,                     \
        fp8_e5m2_codec##_level, fp8_sr_codec##_level;                                              \
    extern const struct codec_dense int8_codec##_level, int4_codec##_level, int2_codec##_level,    \
        csc_codec##_level;                                                                         \
    const uint8_t *codec_here_encode##_level(const struct codec *c, struct codec_work *w,          \
                                             const struct codec_piece *p);
CODEC_LEVEL()
CODEC_LEVEL(_v3)
CODEC_LEVEL(_v4)
#undef CODEC_LEVEL
/* level: at most level_best(), which codec_get takes. */
const struct codec *codec_at(enum codec_kind kind, enum level level);

#endif
