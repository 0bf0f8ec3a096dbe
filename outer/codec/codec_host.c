/* Relayed codecs that the host encodes, block by block. Blocks do not know of each other, so the
 * bytes are the same at every thread count; values that live on another device are copied here and
 * back, 8 bytes per value, which its bus does much faster than a long link takes the payload. */
#include "outer/codec/codec_work.h"

static const struct codec_host *host_of(const struct codec *c)
{
    return (const struct codec_host *)c; /* c is its first member */
}

const uint8_t *codec_host_encode(const struct codec *c, struct codec_work *w,
                                 const struct codec_piece *p)
{
    const struct codec_host *h = host_of(c);
    const struct dev_ops *ops = w->d->ops;
    size_t n = h->relay.dense.block_bytes;
    const float *z = w->here ? p->z : w->host;
    float *residual = w->here ? p->residual : w->host;
    if (!w->here)
        ops->copy(w->d, w->host, p->z, p->count * sizeof *z);
    if (dev_sync(w->d) != ERR_OK) /* the codes are there now, too; the failure sticks */
        return w->bytes;
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
    for (size_t b = 0; b < codec_blocks(p->count); b++)
        h->encode(w, p->block + b, w->bytes + b * n, p->codes[b], residual + b * DEV_BLOCK,
                  z + b * DEV_BLOCK);
    if (!w->here)
        ops->copy(w->d, p->residual, w->host, p->count * sizeof *z);
    return w->bytes;
}

void codec_host_values(const struct codec *c, struct codec_work *w, float *z,
                       const struct codec_run *run)
{
    const struct codec_host *h = host_of(c);
    size_t n = h->relay.dense.block_bytes;
    float *to = w->here ? z : w->host;
    if (!w->here && dev_sync(w->d) != ERR_OK) /* w->host may still be on its way */
        return;
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
    for (size_t b = 0; b < run->blocks; b++)
        h->decode(to + b * DEV_BLOCK, run->codes[b], run->bytes + b * n);
    if (!w->here)
        w->d->ops->copy(w->d, z, w->host, run->blocks * DEV_BLOCK * sizeof *z);
}
