/* f32: 32 bits per value and 9 per block, at most count*4 + count/256*9/8 bytes; residual 0. The
 * reference every other codec is compared with. Relayed. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const uint8_t *encode_piece(const struct codec *c, struct codec_work *w,
                                   const struct codec_piece *p)
{
    (void)c;
    const float *z = p->z;
    if (z == p->residual) /* its place is needed for zeros */
        w->d->ops->copy(w->d, w->values, z, p->count * sizeof *z);
    const uint8_t *seen = codec_seen(w, z == p->residual ? w->values : z, p->count * sizeof *z);
    w->d->ops->zero(w->d, p->residual, p->count * sizeof *z);
    return seen;
}

static const char *wrong(const uint8_t *block)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, block + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad ? "a value that is not finite" : NULL;
}

static void values(const struct codec *c, struct codec_work *w, float *z,
                   const struct codec_run *run)
{
    (void)c;
    w->d->ops->copy(w->d, z, run->bytes, run->blocks * DEV_BLOCK * sizeof *z);
}

const struct codec_relay f32_codec = {
    .dense = {.c = {.name = "f32", .kind = CODEC_F32, CODEC_RELAYED},
              .block_bytes = DEV_BLOCK * sizeof(float),
              .nothing = 0,
              .encode_piece = encode_piece,
              .wrong = wrong},
    .values = values,
};
