/* int8: integers in [-127, 127] on the grid, stored plus 127: count + count/256 bytes, 8.03 bits
 * per value. Error at most half a step where not clipped (at 8 RMS); all of it in the residual.
 * Adds: the aggregate of 4 sites takes 10 bits. */
#include <string.h>
#include "outer/codec/codec_work.h"

static enum err check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                      size_t count)
{
    size_t blocks = codec_blocks(count);
    TRY(codec_check_size(size_bytes, c->payload_bytes(c, count)));
    TRY(codec_check_codes(payload, blocks));
    if (memchr(payload + blocks, 255, count))
        return err_set(ERR_PROTO, "encoded values: an integer above 127");
    return ERR_OK;
}

const struct codec int8_codec = {
    .name = "int8",
    .kind = CODEC_INT8,
    .adds = true,
    .q_max = 127,
    .payload_bytes = codec_grid_payload_bytes,
    .aggregate_bytes = codec_grid_aggregate_bytes,
    .encode = codec_grid_encode,
    .check = check,
    .aggregate = codec_grid_aggregate,
    .mean = codec_grid_mean,
    .decode = codec_grid_decode,
};
