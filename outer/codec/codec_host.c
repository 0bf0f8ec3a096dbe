/* Relayed codecs that the host encodes, chunk by chunk. Chunks do not know of each other, so the
 * bytes are the same at every thread count; values that live on another device are copied here and
 * back, 8 bytes per value, which its bus does much faster than a long link takes the payload. */
#include "outer/codec/codec_work.h"

static const struct codec_host *host_of(const struct codec *c)
{
    return (const struct codec_host *)c; /* c is its first member */
}

/* Bytes of `count` values, which begin a chunk, without their codes. */
static size_t values_bytes(const struct codec_host *h, size_t count)
{
    return codec_blocks(count) * h->block_bytes +
           (count + h->chunk - 1) / h->chunk * h->chunk_bytes;
}

size_t codec_host_payload_bytes(const struct codec *c, size_t count)
{
    return codec_blocks(count) + values_bytes(host_of(c), count);
}

enum err codec_host_encode(const struct codec *c, struct codec_work *w, uint8_t *payload,
                           float *residual, const float *z, const uint8_t *grid, size_t count)
{
    const struct codec_host *h = host_of(c);
    size_t blocks = codec_blocks(count);
    ASSERT(w->piece % h->chunk == 0);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        const uint8_t *codes = payload + codec_blocks(at);
        codec_put_codes(w, payload + codec_blocks(at), z + at, n);
        w->d->ops->copy(w->d, w->host, z + at, n * sizeof *z);
        TRY(dev_sync(w->d));
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
        for (size_t i = 0; i < n; i += h->chunk)
            h->encode(payload + blocks + values_bytes(h, at + i), codes + codec_blocks(i),
                      w->host + i, n - i < h->chunk ? n - i : h->chunk);
        w->d->ops->copy(w->d, residual + at, w->host, n * sizeof *residual);
    }
    return codec_finish(w, payload, grid, blocks);
}

enum err codec_host_check(const struct codec *c, const uint8_t *payload, size_t size_bytes,
                          size_t count)
{
    const struct codec_host *h = host_of(c);
    size_t blocks = codec_blocks(count);
    TRY(codec_check_size(size_bytes, c->payload_bytes(c, count)));
    TRY(codec_check_codes(payload, blocks));
    for (size_t i = 0; i < count; i += h->chunk) {
        const char *wrong = h->wrong(payload + blocks + values_bytes(h, i),
                                     count - i < h->chunk ? count - i : h->chunk);
        if (wrong)
            return err_set(ERR_PROTO, "encoded values: %s in chunk %zu", wrong, i / h->chunk);
    }
    return ERR_OK;
}

static void get(const struct codec *c, struct codec_work *w, float *z, const struct codec_part *p)
{
    const struct codec_host *h = host_of(c);
    if (dev_sync(w->d) != ERR_OK) /* w->host may still be on its way; the failure sticks */
        return;
#pragma omp parallel for num_threads(w->d->threads) schedule(static)
    for (size_t i = 0; i < p->count; i += h->chunk)
        h->decode(w->host + i, p->codes + codec_blocks(i), p->values + values_bytes(h, p->at + i),
                  p->count - i < h->chunk ? p->count - i : h->chunk);
    w->d->ops->copy(w->d, z, w->host, p->count * sizeof *z);
}

enum err codec_host_mean(const struct codec *c, struct codec_work *w, float *mean,
                         uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                         unsigned n, float weight_sum, const uint8_t *grid, size_t count)
{
    (void)grid;
    struct codec_relayed r = {aggregate, size_bytes, count, n, weight_sum};
    return codec_relay_mean(c, w, mean, next_grid, &r, get);
}

enum err codec_host_decode(const struct codec *c, struct codec_work *w, float *z,
                           const uint8_t *payload, const uint8_t *grid, size_t count)
{
    (void)grid;
    return codec_relay_decode(c, w, z, payload, count, get);
}
