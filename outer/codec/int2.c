/* SPDX-License-Identifier: Apache-2.0 */
/* int2: -1, 0 or 1 on the grid, stored plus 1, four values to a byte from the low bits up: 2 bits
 * per value and 9 per block, at most count/4 + count/256*9/8 bytes, 2.04 bits per value. A step is
 * about 2 RMS: smaller values than half of it accumulate in the residual. Adds: the
 * aggregate of 4 sites takes 4 bits. Five values to a byte would take 1.63 bits up; two bits keep
 * the payload a stream that pack and unpack of every device know. */
#include "outer/codec/codec_work.h"

static const char *int2_block_wrong(const uint8_t *block)
{
    unsigned bad = 0;
    for (size_t i = 0; i < DEV_BLOCK / 4; i++) {
        unsigned four = block[i];
        bad |= four & four >> 1 & 0x55; /* both bits of a value */
    }
    return bad ? "an integer above 1" : NULL;
}

const struct codec int2_codec = {
    .name = "int2",
    .kind = CODEC_INT2,
    .q_max = 1,
    .dense = &(const struct codec_dense){DEV_INT2, int2_block_wrong},
    CODEC_SUMMABLE,
};
