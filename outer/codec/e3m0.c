/* SPDX-License-Identifier: Apache-2.0 */
/* e3m0: 4 bits per value, an f32 scale and 9 bits per block, at most count/2 + count/64 +
 * count/256*9/8 bytes, 4.16 bits per value. Streaming DiLoCo's 4-bit float (2501.18512),
 * docs/methods.md 2.3: the scale s is the block's largest magnitude; nibble = sign (8) + level L;
 * value 0 for L = 0, else +-2^(L-7) s; the even value in the low half of its byte. Nearest, halves
 * towards zero. A value of level L is between 1/2 and 3/2 of the sent value (level 1: from 1/2 up),
 * so the residual is exact (Sterbenz). A block whose largest is below 2^-100, where levels would
 * round, waits in the residual. Gathered.
 */
#include <string.h>
#include "outer/codec/codec_work.h"

static const char *e3m0_block_wrong(const uint8_t *in)
{
    uint32_t scale;
    uint8_t top = 0, minus = 0;
    memcpy(&scale, in, FORM_SCALE_BYTES);
    for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
        uint8_t low = in[FORM_SCALE_BYTES + i] & 15, high = in[FORM_SCALE_BYTES + i] >> 4;
        top |= (uint8_t)((low & FORM_LEVELS) == FORM_LEVELS) |
               (uint8_t)((high & FORM_LEVELS) == FORM_LEVELS);
        minus |= (uint8_t)(low == 8) | (uint8_t)(high == 8);
    }
    if (scale >= FORM_INFINITE || scale < FORM_SCALE_LEAST)
        return "a scale out of range";
    if (minus)
        return "-0";
    return top ? NULL : "a scale that is not the largest magnitude";
}

const struct codec e3m0_codec = {
    .name = "e3m0",
    .kind = CODEC_E3M0,
    .dense = &(const struct codec_dense){DEV_E3M0, e3m0_block_wrong},
    CODEC_GATHERED,
};
