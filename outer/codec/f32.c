/* SPDX-License-Identifier: Apache-2.0 */
/* f32: 32 bits per value and 9 per block, at most count*4 + count/256*9/8 bytes; residual 0. The
 * reference every other codec is compared with. Gathered. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const char *f32_block_wrong(const uint8_t *block)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, block + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad ? "a value that is not finite" : NULL;
}

const struct codec f32_codec = {
    .name = "f32",
    .kind = CODEC_F32,
    .full_precision = true,
    .dense = &(const struct codec_dense){DEV_F32, f32_block_wrong},
    CODEC_GATHERED,
};
