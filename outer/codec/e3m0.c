/* e3m0: 4 bits per value and an f32 scale per block, count/2 + count/64 + count/256 bytes, 4.16
 * bits per value. Streaming DiLoCo's 4-bit float (2501.18512), in the form of field.md 2.3: the
 * scale s is the block's largest magnitude; nibble = sign (8) + level L; value 0 for L = 0, else
 * +-2^(L-7) s; the even value in the low half of its byte. Nearest, halves towards zero. A value of
 * level L lies between 1/2 and 3/2 of what is sent (level 1: up from 1/2), so the residual is exact
 * (Sterbenz). A block whose largest is below 2^-100, where levels would round, waits in the
 * residual. Relayed.
 */
#include <string.h>
#include "kernels/scalar/bf16.h"
#include "outer/codec/codec_work.h"

enum { LEVELS = 7, SCALE_BYTES = 4 };
#define SMALLEST 0x0d800000u /* bits of 2^-100 */
#define INFINITE 0x7f800000u

static float level_value(uint32_t nibble, float s)
{
    uint32_t level = nibble & LEVELS;
    float v = level ? s * float_of_bits((127 - LEVELS + level) << 23) : 0;
    return nibble & 8 ? -v : v;
}

/* Magnitudes compare as integers; a NaN is above infinity. */
static uint32_t largest(const float *z, size_t n)
{
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t size = (int32_t)(float_bits(z[i]) & 0x7fffffffu);
        most = size > most ? size : most;
    }
    return (uint32_t)most < SMALLEST || (uint32_t)most >= INFINITE ? 0 : (uint32_t)most;
}

static void encode(uint8_t *out, const uint8_t *codes, float *z, size_t n)
{
    (void)codes;
    uint32_t scale = largest(z, n);
    float s = float_of_bits(scale), above[LEVELS];
    for (uint32_t l = 1; l <= LEVELS; l++) /* half of level 1, then 3/4 of each */
        above[l - 1] = level_value(l, s) * (l == 1 ? 0.5f : 0.75f);
    memcpy(out, &scale, SCALE_BYTES);
    memset(out + SCALE_BYTES, 0, n / 2);
    for (size_t i = 0; i < n && scale; i++) {
        float size = float_of_bits(float_bits(z[i]) & 0x7fffffffu);
        uint32_t level = 0;
        for (int l = 0; l < LEVELS; l++)
            level += size > above[l];
        uint32_t nibble = level ? level | (float_bits(z[i]) >> 31) << 3 : 0;
        out[SCALE_BYTES + i / 2] |= (uint8_t)(nibble << i % 2 * 4);
        z[i] -= level_value(nibble, s);
    }
}

static const char *wrong(const uint8_t *in, size_t n)
{
    uint32_t scale, top = 0, sent = 0, minus = 0;
    memcpy(&scale, in, SCALE_BYTES);
    for (size_t i = 0; i < n; i++) {
        uint32_t nibble = in[SCALE_BYTES + i / 2] >> i % 2 * 4 & 15;
        top |= (nibble & LEVELS) == LEVELS;
        sent |= nibble;
        minus |= nibble == 8;
    }
    if (scale >= INFINITE || (scale && scale < SMALLEST))
        return "a scale out of range";
    if (minus)
        return "-0";
    return (scale ? top : !sent) ? NULL : "a scale that is not the largest magnitude";
}

static void decode(float *z, const uint8_t *codes, const uint8_t *in, size_t n)
{
    (void)codes;
    float s;
    memcpy(&s, in, SCALE_BYTES);
    for (size_t i = 0; i < n; i++)
        z[i] = level_value(in[SCALE_BYTES + i / 2] >> i % 2 * 4 & 15, s);
}

const struct codec_host e3m0_codec = {
    .c = {.name = "e3m0",
          .kind = CODEC_E3M0,
          .adds = false,
          .q_max = 0,
          .payload_bytes = codec_host_payload_bytes,
          .aggregate_bytes = codec_relay_bytes,
          .encode = codec_host_encode,
          .check = codec_host_check,
          .aggregate = codec_relay,
          .mean = codec_host_mean,
          .decode = codec_host_decode},
    .chunk = DEV_BLOCK,
    .block_bytes = SCALE_BYTES + DEV_BLOCK / 2,
    .chunk_bytes = 0,
    .encode = encode,
    .wrong = wrong,
    .decode = decode,
};
