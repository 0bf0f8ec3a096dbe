/* SPDX-License-Identifier: Apache-2.0 */
/* bf16: 16 bits per value and 9 per block, at most count*2 + count/256*9/8 bytes. Nearest even;
 * what it rounds away, at most 2^-9 of a value, is the residual. For full-precision rounds, which
 * empty the residual. Gathered. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const char *bf16_block_wrong(const uint8_t *block)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint16_t bits;
        memcpy(&bits, block + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7f80u) == 0x7f80u;
    }
    return bad ? "a value that is not finite" : NULL;
}

const struct codec bf16_codec = {
    .name = "bf16",
    .kind = CODEC_BF16,
    .full_precision = true,
    .dense = &(const struct codec_dense){DEV_BF16, bf16_block_wrong},
    CODEC_GATHERED,
};
