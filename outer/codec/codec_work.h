/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODEC_WORK_H
#define CODEC_WORK_H
/* What the codecs share among themselves; callers see codec.h only. Values go through the device in
 * pieces, so that the buffers are small and, on a CPU, every pass after the first finds its
 * operands in the cache.
 */
#include "kernels/scalar/forms.h"
#include "outer/codec/codec.h"

struct codec_work {
    struct dev *d;
    size_t piece; /* values, a multiple of DEV_BLOCK; the sizes below follow from it */
    bool here;    /* the device's memory is the host's: nothing to copy between them */
    uint64_t random_seed, random_stream; /* codec_seed */
    /* device */
    void *values;    /* 4 * piece: integers, or blocks before the empty ones are left out */
    uint8_t *stream; /* 4 * piece: as bytes cross */
    uint8_t *grid;   /* piece / 256 */
    uint8_t *codes;  /* piece / 256 */
    uint8_t *said;   /* piece / 256: block_encode's present */
    uint32_t *slots; /* piece / 256 */
    uint16_t *signs; /* piece / 256 */
    uint32_t *over;  /* one */
    /* host */
    uint8_t *present;     /* piece / 256: 1 for a block that is sent */
    uint32_t *slots_host; /* piece / 256 */
    uint16_t *signs_host; /* piece / 256 */
    /* host, and fast to copy */
    uint8_t *bytes;
};
static inline size_t codec_blocks(size_t count)
{
    return count / DEV_BLOCK;
}

/* Waits for the device, then: ERR_DIVERGED if a code says not finite; a code of 0 becomes the
 * grid's. */
enum err codec_finish(struct codec_work *w, uint8_t *codes, const uint8_t *grid,
                      size_t blocks) MUST;
enum err codec_check_size(size_t size_bytes, size_t want) MUST;
enum err codec_check_mean(unsigned n, float weight_sum) MUST;
/* round(sum / n), integers only. */
uint8_t codec_mean_code(uint32_t sum, unsigned n);
/* Device bytes where the host can read them: themselves, or copied to w->bytes, where a sixteenth
 * of a piece and 2^16 values have room. */
const uint8_t *codec_seen(struct codec_work *w, const void *bytes, size_t size_bytes);
/* Host bytes where the device can read them: themselves, or copied to its own `there`. */
const void *codec_there(struct codec_work *w, void *there, const void *bytes, size_t size_bytes);

/* ---- blocks that may be absent (codec_dense.c) ---- */

/* [present bits][blocks], as they are written and as they are read. */
struct codec_out {
    uint8_t *present, *end; /* end: after the last block so far */
    size_t block, block_bytes;
};
struct codec_in {
    const uint8_t *codes, *present, *next;
    size_t block, block_bytes;
};
static inline size_t codec_present_bytes(size_t blocks)
{
    return (blocks + 7) / 8;
}
/* How many blocks from `first` on, a multiple of 8, are present before `end`: a multiple of 8, or
 * the number of blocks. */
size_t codec_present_count(const uint8_t *present, size_t first, size_t end);
static inline bool codec_is_present(const uint8_t *present, size_t block)
{
    return present[block / 8] >> block % 8 & 1;
}
struct codec_out codec_out_open(uint8_t *present, size_t block_bytes, size_t blocks);
/* The next blocks: dense (device), of which those go out that are in w->present. spare: device, as
 * large as dense. */
enum err codec_out_put(struct codec_work *w, struct codec_out *o, const void *dense, void *spare,
                       size_t blocks) MUST;
struct codec_in codec_in_open(const uint8_t *codes, const uint8_t *present, size_t block_bytes,
                              size_t blocks);
/* The next blocks, where the device can read them, until the next call. */
struct codec_taken {
    const uint8_t *bytes;
    const uint32_t *slot; /* as dev_decode */
};
struct codec_taken codec_in_take(struct codec_work *w, struct codec_in *in, size_t blocks);
/* Bytes of bits and blocks; fill bits that are set: ERR_PROTO. */
enum err codec_in_bytes(const uint8_t *present, size_t block_bytes, size_t blocks,
                        size_t *size_bytes) MUST;

struct codec_dense {    /* codec.dense */
    enum dev_form form; /* DEV_FORMS: whole numbers that the codec itself makes, on the host */
    const char *(*wrong)(const uint8_t *block); /* NULL: what encode could have made */
};
size_t codec_block_bytes(const struct codec *c);                     /* of a block in a payload */
size_t codec_no_state(const struct tensor_view *view, size_t count); /* 0 */
size_t codec_dense_max(const struct codec *c, size_t count);
enum err codec_dense_encode(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                            size_t *size_bytes, float *residual, const float *z);
enum err codec_dense_check(const struct codec *c, const struct codec_call *call, double *squares,
                           const uint8_t *payload, size_t size_bytes);
/* The parts of codec_dense_check: codes, bits and size; and the least sum of squares of a block of
 * this code. */
enum err codec_dense_check_size(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                                size_t count) MUST;
double codec_code_squares(uint8_t code);
struct codec_in codec_dense_in(const struct codec *c, const uint8_t *payload, size_t count);

/* ---- gathered codecs (codec_gather.c) ---- */

size_t codec_gather_max(const struct codec *c, size_t count, unsigned sites);
enum err codec_gather_aggregate(const struct codec *c, const struct codec_call *call,
                                uint8_t *aggregate, size_t *size_bytes,
                                const struct codec_payload *payloads, unsigned n);
enum err codec_gather_mean(const struct codec *c, const struct codec_call *call, float *mean,
                           uint8_t *next_grid, const struct codec_aggregate *a);
enum err codec_gather_decode(const struct codec *c, const struct codec_call *call, float *z,
                             const uint8_t *payload, size_t size_bytes);
/* What all dense codecs that are gathered share. */
#define CODEC_GATHERED                                                                             \
    .state_bytes = codec_no_state, .payload_max = codec_dense_max,                                 \
    .aggregate_max = codec_gather_max, .encode = codec_dense_encode, .check = codec_dense_check,   \
    .aggregate = codec_gather_aggregate, .mean = codec_gather_mean, .decode = codec_gather_decode

/* ---- summable codecs (codec_grid.c), for any Q = c->q_max ---- */

/* What all dense codecs that are summable share. */
#define CODEC_SUMMABLE                                                                             \
    .summable = true, .state_bytes = codec_no_state, .payload_max = codec_dense_max,               \
    .aggregate_max = codec_grid_max, .encode = codec_dense_encode, .check = codec_dense_check,     \
    .aggregate = codec_grid_aggregate, .mean = codec_grid_mean, .decode = codec_grid_decode

/* Bits of one sum of n integers. */
unsigned codec_grid_bits(const struct codec *c, unsigned n);
/* Bytes of one sum of n codes of at most 254. */
size_t codec_grid_code_bytes(unsigned n);
/* The next n integers -> w->values, set or added; of an absent block they are 0. */
void codec_grid_read(struct codec_work *w, struct codec_in *in, int32_t bias, bool add, size_t n);
/* The next n sums of an aggregate or payload -> values / divisor. Beyond what a sum can be:
 * *w->over. */
struct codec_grid_sums {
    const uint8_t *grid; /* of these blocks */
    int32_t bias;        /* n Q */
    const uint16_t
        *signs; /* of sign: how many payloads each block is the sum of (host); else NULL */
    float divisor;
};
void codec_grid_values(const struct codec *c, struct codec_work *w, float *z, struct codec_in *in,
                       const struct codec_grid_sums *sums, size_t n);
/* Waits for the device; whether *w->over was set. */
enum err codec_grid_over(struct codec_work *w, bool *over) MUST;
/* Sums of codes, little-endian; and the mean codes of such sums, ERR_PROTO where n codes of at
 * most 254 cannot have them. */
void codec_grid_sum_codes(uint8_t *sums, const struct codec_payload *payloads, unsigned n,
                          size_t blocks);
enum err codec_grid_mean_codes(uint8_t *next_grid, const uint8_t *sums, unsigned n,
                               size_t blocks) MUST;
size_t codec_grid_max(const struct codec *c, size_t count, unsigned sites);
enum err codec_grid_aggregate(const struct codec *c, const struct codec_call *call,
                              uint8_t *aggregate, size_t *size_bytes,
                              const struct codec_payload *payloads, unsigned n);
enum err codec_grid_mean(const struct codec *c, const struct codec_call *call, float *mean,
                         uint8_t *next_grid, const struct codec_aggregate *a);
enum err codec_grid_decode(const struct codec *c, const struct codec_call *call, float *z,
                           const uint8_t *payload, size_t size_bytes);

#define X(kind, name) extern const struct codec name##_codec;
CODEC_LIST(X)
#undef X

#endif
