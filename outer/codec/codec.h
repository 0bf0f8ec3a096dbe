/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CODEC_H
#define CODEC_H
/* How contributions are encoded: the seam between the outer loop and the codecs. A codec is one
 * file and one row of CODEC_LIST. Everything here is in the exact set: the same bits on every
 * device, compiler and thread count. One table entry per codec, no optional members. A call may
 * wait for the device. A count of values is a multiple of 256: blocks of DEV_BLOCK.
 *
 * Shared scales: one byte per block, its block exponent. The grid is the set of a fragment's block
 * exponents in one round: the mean over the sites of their block codes (log2 of the mean square,
 * dev.h block_code) in the last committed round of this fragment; all 0 before the first. Every
 * dense codec carries block codes, so a full-precision round in bf16 also yields the next grid;
 * topk leaves the grid as it is. Codes of csc are of what a site expects to send next (csc.c).
 * Summable codecs quantise on it: step = 2^exponent, from form_exponent; fixed has one step for all
 * blocks and rounds. A site whose block is all zero sends the grid's code back.
 * - payload, dense: [codes: a byte per block][present: a bit per block, low bits first, filled up
 *   with zeros][the blocks that are present]; an all-zero block is not sent: frozen and unchanged
 *   tensors cost 9/256 bit per value. topk: a bit stream of its own (topk.c).
 * - aggregate, summable: [sums of codes: u16 little-endian each, u32 for more than 256
 *   contributions][present in any payload][sums of integers, ceil(log2(2nQ+1)) bits each] (sign:
 *   sign.c)
 * - aggregate, gathered: [sizes of the n payloads: u64 little-endian][the payloads, in site order]
 * A payload's size is known once it is encoded, and the offer has it. payload_max bounds it
 * beforehand; check refuses a payload that is longer or shorter than its own content says.
 *
 * z = weight * delta + residual is the input of encode. For every finite z, decode(payload) +
 * residual' is a sum without rounding, and it is z (docs/protocol.md 4, I3); for sign, the nearest
 * z that a step can be split from (slack): the books use that z. A payload's integers never exceed
 * Q; a value of 2^24 steps and more is not sent in this round: code 0, all of it in the residual,
 * while its block code widens the next grid.
 */
#include "kernels/dev.h"

/* X(KIND, name): one row per codec, in the order of the numbers on the wire; NAME_codec is defined
 * in the codec's file. */
#define CODEC_LIST(X)                                                                              \
    X(CODEC_F32, f32)                                                                              \
    X(CODEC_BF16, bf16)                                                                            \
    X(CODEC_INT8, int8)                                                                            \
    X(CODEC_INT4, int4)                                                                            \
    X(CODEC_INT2, int2)                                                                            \
    X(CODEC_E3M0, e3m0)                                                                            \
    X(CODEC_FP8_E4M3, fp8_e4m3)                                                                    \
    X(CODEC_FP8_E5M2, fp8_e5m2)                                                                    \
    X(CODEC_TOPK, topk)                                                                            \
    X(CODEC_SIGN, sign)                                                                            \
    X(CODEC_CSC, csc)                                                                              \
    X(CODEC_FP8_SR, fp8_sr)                                                                        \
    X(CODEC_FIXED, fixed)

enum codec_kind {
#define X(kind, name) kind,
    CODEC_LIST(X)
#undef X
        CODEC_COUNT
};
enum { CODEC_RATIO_MAX = 254 };
enum { CODEC_SITES_MAX = 1024 };

struct codec_work; /* device buffers for one piece of the values at a time; see codec_open */

/* The tensors of a fragment, in order; none where it has no whole tensors. */
struct tensor_range {
    size_t first, count; /* in the fragment: from a multiple of 256 on, without the gap after it */
    int64_t rows, columns;
    bool embedding; /* of tokens, positions or types */
};
struct tensor_view {
    const struct tensor_range *ranges;
    size_t count;
};

/* What every op needs to know of a fragment and round. */
struct codec_call {
    struct codec_work *work;        /* check, which is for the host alone: NULL */
    const uint8_t *grid;            /* count/256, host; aggregate: not used */
    size_t count;                   /* values */
    const struct tensor_view *view; /* may be NULL for a codec that does not look at shapes */
    void *state;                    /* encode, of a codec with state_bytes: its own, host */
    bool carries; /* encode: `residual` holds on entry what z has from earlier rounds; else all of z
                     is counted as this round's. residual is not z then */
};
struct codec_payload {
    const uint8_t *data;
    size_t size_bytes;
};
struct codec_aggregate { /* of n payloads; weight_sum: of their sites */
    const uint8_t *data;
    size_t size_bytes;
    unsigned n;
    float weight_sum;
};

struct codec {
    const char *name;
    enum codec_kind kind;
    bool summable;             /* integers that sum; else gathered: the aggregate is the payloads */
    bool full_precision;       /* keeps its own form in full-precision rounds */
    bool momentum_in_residual; /* sends so little that the residual acts as momentum */
    int q_max;                 /* Q; 0 when gathered */
    float slack;               /* |decode + residual' - z| is at most this times |decode| */
    const struct codec_dense *dense; /* blocks of 256 (codec_work.h); NULL: a form of its own */
    /* What encode keeps from round to round, zero at the start; the caller owns it. 0: nothing. */
    size_t (*state_bytes)(const struct tensor_view *view, size_t count);
    size_t (*payload_max)(const struct codec *c, size_t count);
    size_t (*aggregate_max)(const struct codec *c, size_t count, unsigned sites);
    /* z (count, device) -> payload (host, room for payload_max), its size, and residual (device;
     * may be z). ERR_DIVERGED: z is not finite. */
    enum err (*encode)(const struct codec *c, const struct codec_call *call, uint8_t *payload,
                       size_t *size_bytes, float *residual, const float *z);
    /* What the aggregator refuses, ERR_PROTO: wrong size, code 255, value not finite, integer
     * outside [-Q, Q], bytes that encode could not have made. Host only. squares: the sum of
     * squares of the decoded values or, block by block where that is more, the one that the block
     * code claims; infinite where f32 cannot hold it. NULL: not asked for, nor is call->grid. */
    enum err (*check)(const struct codec *c, const struct codec_call *call, double *squares,
                      const uint8_t *payload, size_t size_bytes);
    /* n checked payloads in site order -> aggregate (room for aggregate_max), both host. */
    enum err (*aggregate)(const struct codec *c, const struct codec_call *call, uint8_t *aggregate,
                          size_t *size_bytes, const struct codec_payload *payloads, unsigned n);
    /* aggregate (host) -> mean (count, device) and next_grid (count/256, host; may be grid).
     * mean = sum / weight_sum, one f32 division. The sum is an exact integer times 2^e (summable),
     * or f32 additions in site order (gathered), which may overflow: outer_state_apply looks.
     * ERR_PROTO: wrong size, a sum that n payloads cannot have, weight_sum not positive or not
     * finite. */
    enum err (*mean)(const struct codec *c, const struct codec_call *call, float *mean,
                     uint8_t *next_grid, const struct codec_aggregate *a);
    /* One checked payload (host) -> values (device): for giving back, residual = residual' +
     * decoded. Exact. */
    enum err (*decode)(const struct codec *c, const struct codec_call *call, float *z,
                       const uint8_t *payload, size_t size_bytes);
};
const struct codec *codec_get(enum codec_kind kind); /* NULL: no such number */
/* What payload_max and aggregate_max count for this many values of blocks that are not sent; 0 with
 * a codec whose bytes do not depend on them (topk, csc). */
size_t codec_absent_bytes(const struct codec *c, size_t count);
size_t codec_absent_sum_bytes(const struct codec *c, size_t count, unsigned sites);
/* A payload as words that can be masked and added (secure aggregation): the words of its parts, for
 * sums of `sites` payloads. Returns how many parts; 0: the codec has no such form.
 *   block codes   one word a block: unsigned, the bits of 255 n
 *   sign alone:   one word a block, the bits of n: is the block sent?
 *   integers      one word a value: signed, the bits of 2 n Q; sign: 1 for plus, unsigned, the bits
 *                 of n */
struct codec_words {
    unsigned bits;
    size_t count;
};
enum { CODEC_WORDS_PARTS = 3, CODEC_WORDS_ALIGN = 64 }; /* bytes, of each part */
unsigned codec_words(const struct codec *c, size_t count, unsigned sites,
                     struct codec_words parts[CODEC_WORDS_PARTS]);
size_t codec_words_bytes(const struct codec *c, size_t count, unsigned sites); /* 0: no such form */
/* Of a full-precision round of fragments with this codec; full: of the run's, bf16 or fixed. */
enum codec_kind codec_full_precision(enum codec_kind kind, enum codec_kind full);

enum err codec_open(struct codec_work **w, struct dev *d) MUST;
/* For at most this many values at a time: buffers of megabytes are for large fragments only. */
enum err codec_open_for(struct codec_work **w, struct dev *d, size_t largest) MUST;
void codec_close(struct codec_work *w); /* NULL is fine */
struct dev *codec_device(const struct codec_work *w);
/* What it takes on a device that has memory of its own. */
size_t codec_device_bytes(size_t largest);
/* What it takes of the host's memory. here: the device works in it. */
size_t codec_host_bytes(size_t largest, bool here);
/* Block codes of z (count, device) -> codes (count/256, host). */
enum err codec_codes(struct codec_work *w, uint8_t *codes, const float *z, size_t count) MUST;
/* Where the random bits of the next encode come from, for codecs that round stochastically: the
 * same bits whenever a site encodes the same round again. */
void codec_seed(struct codec_work *w, uint64_t seed, unsigned site, unsigned fragment,
                uint64_t round);

/* Gathered: the aggregate in pieces, n + 1 of them: the sizes, written to `sizes` (8 n bytes), then
 * the payloads in place. */
struct file_part;
void codec_gather_parts(struct file_part *parts, uint8_t *sizes,
                        const struct codec_payload *payloads, unsigned n);
/* The payloads of an aggregate of them, each checked. */
enum err codec_gather_list(const struct codec *c, const struct codec_call *call,
                           const struct codec_aggregate *a,
                           struct codec_payload payloads[CODEC_SITES_MAX]) MUST;

/* The residual ratio as one byte, which the header of a contribution carries. residual, delta: sums
 * of squares of residual' and of the weighted delta of the round. The byte is log2(residual /
 * delta), rounded down, + 128 (half octaves of the ratio of norms), at most CODEC_RATIO_MAX; 0: the
 * residual is empty. */
uint8_t codec_residual_ratio(double residual, double delta);

/* Sum of (a - b)^2 (count, device) in f64, always in the same order; b NULL: of a^2. */
enum err codec_squares(struct codec_work *w, double *sum, const float *a, const float *b,
                       size_t count) MUST;
/* Whether sent values and residual' make up z, within codec.slack; all device. */
enum err codec_adds_up(const struct codec *c, const struct codec_call *call, bool *yes,
                       const float *sent, const float *kept, const float *z) MUST;
/* x[0], x[stride], ... (device) where the host can read them, until the next call with w. At most
 * 2^16, and no more than codec_open_for was told of. */
const float *codec_sample(struct codec_work *w, const float *x, size_t stride, size_t count);

/* Gathered codecs: what payloads add up to, for downlink compression (downlink.h). z = the first
 * one's values, then f32 additions in site order, as `mean` has it; values: scratch. Both count,
 * device.
 */
enum err codec_sum(const struct codec *c, const struct codec_call *call, float *z, float *values,
                   const struct codec_payload *payloads, unsigned n) MUST;
/* The sum's own codes would make the next grid too coarse. Where a payload's codes do nothing but
 * that (f32, bf16), they become the mean of the contributions', as if these had been passed on. */
void codec_sum_codes(const struct codec *c, uint8_t *payload, const struct codec_payload *payloads,
                     unsigned n, size_t count);

/* A value that no training makes: from 4096 times the RMS of nine in ten blocks on, and alone in
 * its block (15/16 of the sum of squares). codes: of this z, dev.h block_code. Parameters of one
 * fragment move at rates that differ by 10^3 at most, rows that are rare in the text move as a
 * whole, while a flipped exponent bit multiplies by 2^128 or 2^8. Its place in z (device), or
 * count: none; *value is it.
 */
enum { CODEC_SPIKE = 4096 };
size_t codec_spike(struct codec_work *w, const uint8_t *codes, const float *z, size_t count,
                   float *value);

/* Error-feedback decay: residual *= beta in place (host), and discarded += the discarded part (f64;
 * NULL: not booked). Called where z is formed, before delta; trained = included + residual +
 * discarded. beta 1 does nothing. */
void codec_residual_decay(float *residual, double *discarded, float beta, size_t count);

#endif
