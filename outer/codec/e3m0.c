/* e3m0: 4 bits per value, an f32 scale and 9 bits per block, at most count/2 + count/64 +
 * count/256*9/8 bytes, 4.16 bits per value. Streaming DiLoCo's 4-bit float (2501.18512), in the
 * form of field.md 2.3: the scale s is the block's largest magnitude; nibble = sign (8) + level L;
 * value 0 for L = 0, else +-2^(L-7) s; the even value in the low half of its byte. Nearest, halves
 * towards zero. A value of level L lies between 1/2 and 3/2 of what is sent (level 1: up from 1/2),
 * so the residual is exact (Sterbenz). A block whose largest is below 2^-100, where levels would
 * round, waits in the residual. Relayed.
 */
#include <string.h>
#include "kernels/scalar/bf16.h"
#include "outer/codec/codec_work.h"

enum { LEVELS = 7, SCALE_BYTES = 4 };
#define SMALLEST 0x0d800000u /* bits of 2^-100 */
#define INFINITE 0x7f800000u

static inline float level_value(uint32_t nibble, float s)
{
    uint32_t level = nibble & LEVELS, there = 0 - (uint32_t)(level > 0); /* masks: no branches */
    uint32_t size = float_bits(s * float_of_bits((127 - LEVELS + level) << 23)) & there;
    return float_of_bits(size | (nibble & 8) << 28);
}

/* Magnitudes compare as integers; a NaN is above infinity. */
static uint32_t largest(const float *z)
{
    int32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        int32_t size = (int32_t)(float_bits(z[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    return (uint32_t)most < SMALLEST || (uint32_t)most >= INFINITE ? 0 : (uint32_t)most;
}

/* How many bounds a magnitude exceeds: 1/2 of level 1, and 3/4 of each level from 2 on. Those are
 * 3/4 s times a power of two, whose bits are a whole number of exponents apart, so a subtraction
 * and a shift count them. half, most: bits of s/2^7 and 3/4 s. */
static inline uint32_t level_of(int32_t size, int32_t half, int32_t most)
{
    int32_t above = ((size - most - 1) >> 23) + LEVELS - 1;
    above &= ~(above >> 31);
    above = above < LEVELS - 1 ? above : LEVELS - 1;
    return (uint32_t)(above + (size > half));
}

static void encode(const struct codec_work *w, size_t block, uint8_t *out, uint8_t code,
                   float *residual, const float *z)
{
    (void)w, (void)block, (void)code;
    uint8_t nibble[DEV_BLOCK];
    uint32_t scale = largest(z);
    float s = float_of_bits(scale);
    int32_t half = (int32_t)scale - (LEVELS << 23), most = (int32_t)float_bits(0.75f * s);
    if (!scale) {
        memset(out, 0, SCALE_BYTES + DEV_BLOCK / 2);
        memmove(residual, z, DEV_BLOCK * sizeof *z);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t bits = float_bits(z[i]),
                 level = level_of((int32_t)(bits & 0x7fffffffu), half, most);
        uint32_t n = level | ((bits >> 31 << 3) & (0 - (uint32_t)(level > 0)));
        nibble[i] = (uint8_t)n;
        residual[i] = z[i] - level_value(n, s);
    }
    memcpy(out, &scale, SCALE_BYTES);
    for (size_t i = 0; i < DEV_BLOCK / 2; i++)
        out[SCALE_BYTES + i] = (uint8_t)(nibble[2 * i] | nibble[2 * i + 1] << 4);
}

static const char *wrong(const uint8_t *in)
{
    uint32_t scale, top = 0, minus = 0;
    memcpy(&scale, in, SCALE_BYTES);
    for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
        uint32_t low = in[SCALE_BYTES + i] & 15, high = in[SCALE_BYTES + i] >> 4;
        top |= ((low & LEVELS) == LEVELS) | ((high & LEVELS) == LEVELS);
        minus |= (low == 8) | (high == 8);
    }
    if (scale >= INFINITE || scale < SMALLEST)
        return "a scale out of range";
    if (minus)
        return "-0";
    return top ? NULL : "a scale that is not the largest magnitude";
}

static void decode(float *z, uint8_t code, const uint8_t *in)
{
    (void)code;
    uint8_t nibble[DEV_BLOCK];
    float s;
    memcpy(&s, in, SCALE_BYTES);
    for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
        nibble[2 * i] = in[SCALE_BYTES + i] & 15;
        nibble[2 * i + 1] = in[SCALE_BYTES + i] >> 4;
    }
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++)
        z[i] = level_value(nibble[i], s);
}

const struct codec_host LEVEL_NAME(e3m0_codec) = {
    .relay = {.dense = {.c = {.name = "e3m0", .kind = CODEC_E3M0, CODEC_RELAYED},
                        .block_bytes = SCALE_BYTES + DEV_BLOCK / 2,
                        .nothing = 0,
                        .encode_piece = codec_host_encode,
                        .wrong = wrong},
              .values = codec_host_values},
    .encode = encode,
    .decode = decode,
};
