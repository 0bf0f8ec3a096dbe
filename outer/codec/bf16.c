/* bf16: 16 bits per value and 9 per block, at most count*2 + count/256*9/8 bytes. Nearest even;
 * what it rounds away, at most 2^-9 of a value, is the residual. For whole rounds, which empty the
 * residual. Relayed. */
#include <string.h>
#include "outer/codec/codec_work.h"

static const uint8_t *encode_piece(const struct codec *c, struct codec_work *w,
                                   const struct codec_piece *p)
{
    (void)c;
    uint16_t *half = (uint16_t *)(void *)w->stream;
    w->d->ops->round_bf16(w->d, half, p->residual, p->z, p->count);
    return codec_seen(w, half, p->count * sizeof *half);
}

static const char *wrong(const uint8_t *block)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint16_t bits;
        memcpy(&bits, block + i * sizeof bits, sizeof bits);
        bad |= (bits & 0x7f80u) == 0x7f80u;
    }
    return bad ? "a value that is not finite" : NULL;
}

static void values(const struct codec *c, struct codec_work *w, float *z,
                   const struct codec_run *run)
{
    (void)c;
    uint16_t *half = (uint16_t *)(void *)w->stream;
    size_t n = run->blocks * DEV_BLOCK;
    w->d->ops->copy(w->d, half, run->bytes, n * sizeof *half);
    w->d->ops->widen_bf16(w->d, z, half, n);
}

const struct codec_relay bf16_codec = {
    .dense = {.c = {.name = "bf16", .kind = CODEC_BF16, CODEC_RELAYED},
              .block_bytes = DEV_BLOCK * sizeof(uint16_t),
              .nothing = 0,
              .encode_piece = encode_piece,
              .wrong = wrong},
    .values = values,
};
