/* Codecs that add, where the values' memory is the host's: a block is quantised and packed at one
 * go, as the ops quantise and pack do it one after the other, and its integers never leave the
 * registers' neighbourhood. Compiled once per level. */
#include <string.h>
#include "kernels/scalar/grid.h"
#include "outer/codec/codec_work.h"

static inline void integers(uint8_t *value, float *residual, const float *z, int e, int q_max)
{
    float step = grid_step(e), inverse = grid_inverse(e), most = (float)q_max;
#pragma omp simd
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        float whole = grid_round(z[i], inverse, most);
        value[i] = (uint8_t)((int32_t)whole + q_max);
        residual[i] = z[i] - whole * step;
    }
}

/* residual may be z. */
static void block_encode(uint8_t *out, float *residual, const float *z, int e, int q_max)
{
    uint8_t v[DEV_BLOCK];
    if (q_max == 127) {
        integers(out, residual, z, e, 127);
    } else if (q_max == 7) {
        integers(v, residual, z, e, 7);
        for (size_t i = 0; i < DEV_BLOCK / 2; i++)
            out[i] = (uint8_t)(v[2 * i] | v[2 * i + 1] << 4);
    } else {
        integers(v, residual, z, e, 1);
        for (size_t i = 0; i < DEV_BLOCK / 4; i++)
            out[i] =
                (uint8_t)(v[4 * i] | v[4 * i + 1] << 2 | v[4 * i + 2] << 4 | v[4 * i + 3] << 6);
    }
}

const uint8_t *LEVEL_NAME(codec_here_encode)(const struct codec *c, struct codec_work *w,
                                             const struct codec_piece *p)
{
    const struct codec_dense *d = (const struct codec_dense *)c; /* c is its first member */
    if (!w->here)
        return codec_grid_encode(c, w, p);
    size_t blocks = codec_blocks(p->count), n = d->block_bytes;
    codec_exponents(w->exponents_host, p->grid, c->q_max, blocks);
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
    for (size_t b = 0; b < blocks; b++) {
        const float *z = p->z + b * DEV_BLOCK;
        float *residual = p->residual + b * DEV_BLOCK;
        if (w->exponents_host[b] != DEV_GRID_EMPTY) {
            block_encode(w->bytes + b * n, residual, z, w->exponents_host[b], c->q_max);
        } else { /* csc: nine in ten */
            memset(w->bytes + b * n, d->nothing, n);
            if (residual != z)
                memcpy(residual, z, DEV_BLOCK * sizeof *z);
        }
    }
    return w->bytes;
}
