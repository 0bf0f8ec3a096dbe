/* SPDX-License-Identifier: Apache-2.0 */
/* int8: integers in [-127, 127] on the grid, stored plus 127: 8 bits per value and 9 per block, at
 * most count + count/256*9/8 bytes, 8.04 bits per value. Error at most half a step where not
 * clipped (at 8 RMS); all of it in the residual. Summable: the aggregate of 4 sites takes 10 bits.
 */
#include <string.h>
#include "outer/codec/codec_work.h"

static const char *int8_block_wrong(const uint8_t *block)
{
    return memchr(block, 255, DEV_BLOCK) ? "an integer above 127" : NULL;
}

const struct codec int8_codec = {
    .name = "int8",
    .kind = CODEC_INT8,
    .q_max = 127,
    .dense = &(const struct codec_dense){DEV_INT8, int8_block_wrong},
    CODEC_SUMMABLE,
};
