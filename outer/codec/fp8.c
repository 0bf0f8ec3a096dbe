/* fp8_e4m3 and fp8_e5m2: 8 bits per value on a power of two per block, and 9 bits per block: at
 * most count + count/256*9/8 bytes, 8.04 bits per value. The scale costs nothing: it follows from
 * the block code the payload carries anyway, and no value of a block exceeds 16 RMS. Nearest even
 * (Micikevicius et al. 2022, 2209.05433, formats; no NaN, infinity or negative zero is ever sent).
 * Error at most 2^-4 (E4M3), 2^-3 (E5M2) of a value down to 2^-11, 2^-26 of the block's RMS; all of
 * it in the residual, exact: the difference is no larger than z and a multiple of z's last place.
 * fp8_sr: E5M2 with stochastic rounding (Wang et al. 2018, 1812.08011, methods.md D), bits by seed,
 * site, fragment, round and element; its error is twice the nearest one's and has no bias, which
 * matters where the residual is not carried on (outer.feedback: 0). Relayed. */
#include "kernels/scalar/grid.h"
#include "kernels/scalar/philox.h"
#include "outer/codec/codec_work.h"

enum { E4M3 = 3, E5M2 = 2 };                /* bits of the mantissa */
#define FP8_BIAS(m)  ((m) == E4M3 ? 7 : 15) /* 1 is (bias << m) */
#define FP8_MAX(m)   ((m) == E4M3 ? 0x7e : 0x7b)
#define FP8_BELOW(m) ((m) == E4M3 ? 8 : 15) /* the block is scaled below 2^this */

/* Mean square below 2^(code - 127), so no value reaches 2^(ceil((code - 127) / 2) + 4). */
static inline int scale_exponent(uint8_t code, int m)
{
    return (code + 2) / 2 - 64 + 4 - FP8_BELOW(m);
}

/* Below the smallest normal the steps are equal, 2^(1 - bias - m). */
static inline float smallest_step(int m)
{
    return float_of_bits((uint32_t)(127 + 1 - FP8_BIAS(m) - m) << 23);
}

static inline float fp8_float(uint32_t u, int m)
{
    uint32_t size = u & 0x7f;
    float small = (float)(int32_t)size * smallest_step(m);
    float normal = float_of_bits((size + ((127u - (uint32_t)FP8_BIAS(m)) << m)) << (23 - m));
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < 1 << m); /* masks: no branches */
    uint32_t x = (float_bits(small) & tiny) | (float_bits(normal) & ~tiny);
    return float_of_bits(x | (u & 0x80) << 24);
}

static inline uint32_t fp8_round(float x, int m)
{
    uint32_t bits = float_bits(x), size = bits & 0x7fffffffu;
    float bound = smallest_step(m) * (float)(1 << m), inverse = 1 / smallest_step(m);
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < (int32_t)float_bits(bound));
    uint32_t even = size + ((1u << (22 - m)) - 1) + (size >> (23 - m) & 1);
    uint32_t normal = (even >> (23 - m)) - ((127u - (uint32_t)FP8_BIAS(m)) << m);
    float few = (float_of_bits(size & tiny) * inverse + GRID_NEAREST) - GRID_NEAREST;
    uint32_t u = ((uint32_t)(int32_t)few & tiny) | (normal & ~tiny);
    /* The code was at its end, or not finite: not sent. And no -0. */
    u &= 0 - (uint32_t)((int32_t)u <= FP8_MAX(m));
    return u | ((bits >> 31) << 7 & (0 - (uint32_t)((int32_t)u > 0)));
}

static inline void fp8_encode(uint8_t *out, uint8_t code, float *residual, const float *z, int m)
{
    int e = scale_exponent(code, m);
    float scale = grid_step(e), inverse = grid_inverse(e);
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t u = fp8_round(z[i] * inverse, m);
        out[i] = (uint8_t)u;
        residual[i] = z[i] - fp8_float(u, m) * scale;
    }
}

static inline void fp8_decode(float *z, uint8_t code, const uint8_t *in, int m)
{
    float scale = grid_step(scale_exponent(code, m));
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++)
        z[i] = fp8_float(in[i], m) * scale;
}

static inline const char *fp8_wrong(const uint8_t *in, uint32_t max)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++)
        bad |= (in[i] & 0x7fu) > max || in[i] == 0x80;
    return bad ? "a value that is not finite, or -0" : NULL;
}

static void e4m3_encode(const struct codec_work *w, size_t block, uint8_t *out, uint8_t code,
                        float *residual, const float *z)
{
    (void)w, (void)block;
    fp8_encode(out, code, residual, z, E4M3);
}

static const char *e4m3_wrong(const uint8_t *in)
{
    return fp8_wrong(in, FP8_MAX(E4M3));
}

static void e4m3_decode(float *z, uint8_t code, const uint8_t *in)
{
    fp8_decode(z, code, in, E4M3);
}

static void e5m2_encode(const struct codec_work *w, size_t block, uint8_t *out, uint8_t code,
                        float *residual, const float *z)
{
    (void)w, (void)block;
    fp8_encode(out, code, residual, z, E5M2);
}

static const char *e5m2_wrong(const uint8_t *in)
{
    return fp8_wrong(in, FP8_MAX(E5M2));
}

static void e5m2_decode(float *z, uint8_t code, const uint8_t *in)
{
    fp8_decode(z, code, in, E5M2);
}

/* x / 2^21 in [0, 1): E5M2's neighbour above where it carries. A value below half the smallest step
 * is not sent: z less a whole step could round. */
static inline uint32_t sr_round(float x, uint32_t r21)
{
    uint32_t bits = float_bits(x), size = bits & 0x7fffffffu;
    float bound = smallest_step(E5M2) * (1 << E5M2), inverse = 1 / smallest_step(E5M2);
    uint32_t tiny = 0 - (uint32_t)((int32_t)size < (int32_t)float_bits(bound));
    uint32_t normal = ((size + r21) >> (23 - E5M2)) - ((127u - (uint32_t)FP8_BIAS(E5M2)) << E5M2);
    float few = float_of_bits(size & tiny) * inverse;
    uint32_t there = 0 - (uint32_t)((int32_t)float_bits(few) >= (int32_t)float_bits(0.5f));
    uint32_t up = (uint32_t)(int32_t)(few + (float)(int32_t)r21 * 0x1p-21f) & there;
    uint32_t u = (up & tiny) | (normal & ~tiny);
    u &= 0 - (uint32_t)((int32_t)u <= FP8_MAX(E5M2));
    return u | ((bits >> 31) << 7 & (0 - (uint32_t)((int32_t)u > 0)));
}

/* Element e of the fragment gets word e % 4 of counter e / 4 (philox); here the counters of a block
 * go through the rounds side by side. */
static inline void random_words(uint32_t random[DEV_BLOCK], uint64_t seed, uint64_t stream,
                                size_t block)
{
    enum { N = DEV_BLOCK / 4 };
    philox_word c[4][N];
    uint64_t first = (uint64_t)block * N;
    for (uint32_t i = 0; i < N; i++) {
        c[0][i] = (uint32_t)first + i; /* no carry: first is a multiple of N */
        c[1][i] = (uint32_t)(first >> 32);
        c[2][i] = (uint32_t)stream;
        c[3][i] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        struct philox_key k = philox_key(seed, round);
        for (size_t i = 0; i < N; i++)
            philox_round(&c[0][i], &c[1][i], &c[2][i], &c[3][i], k);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < 4; k++)
            random[4 * i + k] = (uint32_t)c[k][i];
}

static void sr_encode(const struct codec_work *w, size_t block, uint8_t *out, uint8_t code,
                      float *residual, const float *z)
{
    uint32_t random[DEV_BLOCK];
    int e = scale_exponent(code, E5M2);
    float scale = grid_step(e), inverse = grid_inverse(e);
    random_words(random, w->random_seed, w->random_stream, block);
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t u = sr_round(z[i] * inverse, random[i] >> 11);
        out[i] = (uint8_t)u;
        residual[i] = z[i] - fp8_float(u, E5M2) * scale;
    }
}

const struct codec_host LEVEL_NAME(fp8_e4m3_codec) = {
    .relay = {.dense = {.c = {.name = "fp8_e4m3", .kind = CODEC_FP8_E4M3, CODEC_RELAYED},
                        .block_bytes = DEV_BLOCK,
                        .nothing = 0,
                        .encode_piece = codec_host_encode,
                        .wrong = e4m3_wrong},
              .values = codec_host_values},
    .encode = e4m3_encode,
    .decode = e4m3_decode,
};

const struct codec_host LEVEL_NAME(fp8_e5m2_codec) = {
    .relay = {.dense = {.c = {.name = "fp8_e5m2", .kind = CODEC_FP8_E5M2, CODEC_RELAYED},
                        .block_bytes = DEV_BLOCK,
                        .nothing = 0,
                        .encode_piece = codec_host_encode,
                        .wrong = e5m2_wrong},
              .values = codec_host_values},
    .encode = e5m2_encode,
    .decode = e5m2_decode,
};

const struct codec_host LEVEL_NAME(fp8_sr_codec) = {
    .relay = {.dense = {.c = {.name = "fp8_sr", .kind = CODEC_FP8_SR, CODEC_RELAYED},
                        .block_bytes = DEV_BLOCK,
                        .nothing = 0,
                        .encode_piece = codec_host_encode,
                        .wrong = e5m2_wrong},
              .values = codec_host_values},
    .encode = sr_encode,
    .decode = e5m2_decode,
};
