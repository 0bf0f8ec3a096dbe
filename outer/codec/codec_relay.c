/* Codecs that do not add: the aggregator passes the contributions on, every member decodes them and
 * adds in site order. n sites: n times the payload down. */
#include <string.h>
#include "outer/codec/codec_work.h"

size_t codec_relay_bytes(const struct codec *c, size_t count, unsigned sites)
{
    return sites * c->payload_bytes(c, count);
}

enum err codec_relay(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                     const uint8_t *const *payloads, unsigned n, size_t count)
{
    (void)w;
    size_t size = c->payload_bytes(c, count);
    for (unsigned i = 0; i < n; i++)
        memcpy(aggregate + i * size, payloads[i], size);
    return ERR_OK;
}

/* One piece: the first site's values, then f32 additions in site order, then one division. */
static void relay_piece(const struct codec *c, struct codec_work *w, float *mean,
                        const struct codec_relayed *r, size_t at, size_t n, codec_values *get)
{
    const struct dev_ops *ops = w->d->ops;
    size_t size = r->size_bytes / r->n;
    for (unsigned i = 0; i < r->n; i++) {
        const uint8_t *payload = r->aggregate + i * size;
        get(c, w, i ? w->values : mean,
            &(struct codec_part){payload + codec_blocks(at), payload + codec_blocks(r->count), at,
                                 n});
        if (i)
            ops->accumulate(w->d, mean, w->values, 1.0f, n);
    }
    ops->divide(w->d, mean, r->weight_sum, n);
}

enum err codec_relay_mean(const struct codec *c, struct codec_work *w, float *mean,
                          uint8_t *next_grid, const struct codec_relayed *r, codec_values *get)
{
    TRY(codec_check_mean(r->n, r->weight_sum));
    TRY(codec_check_size(r->size_bytes, c->aggregate_bytes(c, r->count, r->n)));
    size_t size = r->size_bytes / r->n;
    for (unsigned i = 0; i < r->n; i++)
        TRY(c->check(c, r->aggregate + i * size, size, r->count));
    for (size_t at = 0; at < r->count; at += w->piece) {
        size_t n = r->count - at < w->piece ? r->count - at : w->piece;
        relay_piece(c, w, mean + at, r, at, n, get);
    }
    for (size_t b = 0; b < codec_blocks(r->count); b++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < r->n; i++)
            sum += r->aggregate[i * size + b];
        next_grid[b] = codec_mean_code(sum, r->n);
    }
    return dev_sync(w->d);
}

enum err codec_relay_decode(const struct codec *c, struct codec_work *w, float *z,
                            const uint8_t *payload, size_t count, codec_values *get)
{
    for (size_t at = 0; at < count; at += w->piece) {
        size_t n = count - at < w->piece ? count - at : w->piece;
        get(c, w, z + at,
            &(struct codec_part){payload + codec_blocks(at), payload + codec_blocks(count), at, n});
    }
    return dev_sync(w->d);
}
