/* SPDX-License-Identifier: Apache-2.0 */
/* int4: integers in [-7, 7] on the grid, stored plus 7, the even value in the low half of its byte:
 * 4 bits per value and 9 per block, at most count/2 + count/256*9/8 bytes, 4.04 bits per value.
 * Error at most half a step where not clipped (at 4 RMS); all of it in the residual. Adds: the
 * aggregate of 4 sites takes 6 bits. */
#include "outer/codec/codec_work.h"

static const char *int4_block_wrong(const uint8_t *block)
{
    unsigned bad = 0;
    for (size_t i = 0; i < DEV_BLOCK / 2; i++) {
        unsigned pair = block[i];
        bad |= (pair & 15) == 15 || pair >= 0xf0;
    }
    return bad ? "an integer above 7" : NULL;
}

const struct codec int4_codec = {
    .name = "int4",
    .kind = CODEC_INT4,
    .q_max = 7,
    .dense = &(const struct codec_dense){DEV_INT4, int4_block_wrong},
    CODEC_SUMMABLE,
};
