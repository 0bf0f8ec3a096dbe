/* SPDX-License-Identifier: Apache-2.0 */
/* fp8_e4m3 and fp8_e5m2: 8 bits per value on a power of two per block, and 9 bits per block: at
 * most count + count/256*9/8 bytes, 8.04 bits per value. The scale costs nothing: it follows from
 * the block code the payload carries anyway, and no value of a block exceeds 16 RMS. Nearest even
 * (Micikevicius et al. 2022, 2209.05433, formats; no NaN, infinity or negative zero is ever sent).
 * Error at most 2^-4 (E4M3), 2^-3 (E5M2) of a value down to 2^-11, 2^-26 of the block's RMS; all of
 * it in the residual, exact: the difference is no larger than z and a multiple of z's last place.
 * fp8_sr: E5M2 with stochastic rounding (Wang et al. 2018, 1812.08011, docs/methods.md 2.4), bits
 * by seed, site, fragment, round and element; its error is twice the nearest one's and has no bias,
 * which matters where the residual is not carried on (outer.error_feedback_decay: 0). Gathered. */
#include "outer/codec/codec_work.h"

/* Bytes as they are compared: sixteen and more at a time. */
static inline const char *fp8_wrong(const uint8_t *in, uint8_t max)
{
    uint8_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++)
        bad |= (uint8_t)((in[i] & 0x7fu) > max) | (uint8_t)(in[i] == 0x80);
    return bad ? "a value that is not finite, or -0" : NULL;
}

static const char *e4m3_wrong(const uint8_t *in)
{
    return fp8_wrong(in, FORM_FP8_MAX(3));
}

static const char *e5m2_wrong(const uint8_t *in)
{
    return fp8_wrong(in, FORM_FP8_MAX(2));
}

const struct codec fp8_e4m3_codec = {
    .name = "fp8_e4m3",
    .kind = CODEC_FP8_E4M3,
    .dense = &(const struct codec_dense){DEV_E4M3, e4m3_wrong},
    CODEC_GATHERED,
};

const struct codec fp8_e5m2_codec = {
    .name = "fp8_e5m2",
    .kind = CODEC_FP8_E5M2,
    .dense = &(const struct codec_dense){DEV_E5M2, e5m2_wrong},
    CODEC_GATHERED,
};

const struct codec fp8_sr_codec = {
    .name = "fp8_sr",
    .kind = CODEC_FP8_SR,
    .dense = &(const struct codec_dense){DEV_E5M2_RANDOM, e5m2_wrong},
    CODEC_GATHERED,
};
