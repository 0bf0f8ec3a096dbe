/* int2: -1, 0 or 1 on the grid, stored plus 1, four values to a byte from the low bits up: count/4
 * + count/256 bytes, 2.03 bits per value. A step is about 2 RMS: what is below half of it waits in
 * the residual until it has grown. Adds: the aggregate of 4 sites takes 4 bits. Five values to a
 * byte would take 1.63 bits up; two bits keep the payload a stream that pack and unpack of every
 * device know. */
#include "outer/codec/codec_work.h"

static enum err check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                      size_t count)
{
    size_t blocks = codec_blocks(count);
    TRY(codec_check_size(size_bytes, c->payload_bytes(c, count)));
    TRY(codec_check_codes(payload, blocks));
    unsigned bad = 0;
    for (size_t i = 0; i < count / 4; i++) {
        unsigned four = payload[blocks + i];
        bad |= four & four >> 1 & 0x55; /* both bits of a value */
    }
    return bad ? err_set(ERR_PROTO, "encoded values: an integer above 1") : ERR_OK;
}

const struct codec int2_codec = {
    .name = "int2",
    .kind = CODEC_INT2,
    .adds = true,
    .q_max = 1,
    .payload_bytes = codec_grid_payload_bytes,
    .aggregate_bytes = codec_grid_aggregate_bytes,
    .encode = codec_grid_encode,
    .check = check,
    .aggregate = codec_grid_aggregate,
    .mean = codec_grid_mean,
    .decode = codec_grid_decode,
};
