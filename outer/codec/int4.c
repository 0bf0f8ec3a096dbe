/* int4: integers in [-7, 7] on the grid, stored plus 7, the even value in the low half of its byte:
 * count/2 + count/256 bytes, 4.03 bits per value. Error at most half a step where not clipped (at 4
 * RMS); all of it in the residual. Adds: the aggregate of 4 sites takes 6 bits. */
#include "outer/codec/codec_work.h"

static enum err check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                      size_t count)
{
    size_t blocks = codec_blocks(count);
    TRY(codec_check_size(size_bytes, c->payload_bytes(c, count)));
    TRY(codec_check_codes(payload, blocks));
    unsigned bad = 0;
    for (size_t i = 0; i < count / 2; i++) {
        unsigned pair = payload[blocks + i];
        bad |= (pair & 15) == 15 || pair >= 0xf0;
    }
    return bad ? err_set(ERR_PROTO, "encoded values: an integer above 7") : ERR_OK;
}

const struct codec int4_codec = {
    .name = "int4",
    .kind = CODEC_INT4,
    .adds = true,
    .q_max = 7,
    .payload_bytes = codec_grid_payload_bytes,
    .aggregate_bytes = codec_grid_aggregate_bytes,
    .encode = codec_grid_encode,
    .check = check,
    .aggregate = codec_grid_aggregate,
    .mean = codec_grid_mean,
    .decode = codec_grid_decode,
};
