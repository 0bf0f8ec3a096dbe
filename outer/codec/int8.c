/* int8: integers in [-127, 127] on the grid, stored plus 127: 8 bits per value and 9 per block, at
 * most count + count/256*9/8 bytes, 8.04 bits per value. Error at most half a step where not
 * clipped (at 8 RMS); all of it in the residual. Adds: the aggregate of 4 sites takes 10 bits. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const char *wrong(const uint8_t *block)
{
    return memchr(block, 255, DEV_BLOCK) ? "an integer above 127" : NULL;
}

const struct codec_dense int8_codec = {
    .c = {.name = "int8", .kind = CODEC_INT8, .adds = true, .q_max = 127, CODEC_ADDED},
    .form = DEV_INT8,
    .wrong = wrong,
};
