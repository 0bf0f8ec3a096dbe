/* Codecs that do not add: the aggregator passes the contributions on, every replica decodes them
 * and adds in site order. n sites: n times the payload down. */
#include <string.h>
#include "kernels/base/file.h"
#include "outer/codec/codec_work.h"

enum { SIZE_BYTES = 8 }; /* of a payload's size before the payloads */

size_t codec_relay_max(const struct codec *c, size_t count, unsigned sites)
{
    return sites * (SIZE_BYTES + c->payload_max(c, count));
}

void codec_relay_parts(struct file_part *parts, uint8_t *sizes,
                       const struct codec_payload *payloads, unsigned n)
{
    parts[0] = (struct file_part){sizes, n * SIZE_BYTES};
    for (unsigned i = 0; i < n; i++) {
        uint64_t size = payloads[i].size_bytes;
        for (unsigned k = 0; k < SIZE_BYTES; k++)
            sizes[i * SIZE_BYTES + k] = (uint8_t)(size >> 8 * k);
        parts[i + 1] = (struct file_part){payloads[i].data, size};
    }
}

enum err codec_relay_aggregate(const struct codec *c, struct codec_work *w, uint8_t *aggregate,
                               size_t *size_bytes, const struct codec_payload *payloads, unsigned n,
                               size_t count)
{
    (void)c, (void)w, (void)count;
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    struct file_part parts[CODEC_SITES_MAX + 1];
    codec_relay_parts(parts, aggregate, payloads, n);
    *size_bytes = parts[0].size_bytes;
    for (unsigned i = 1; i <= n; i++) {
        memcpy(aggregate + *size_bytes, parts[i].data, parts[i].size_bytes);
        *size_bytes += parts[i].size_bytes;
    }
    return ERR_OK;
}

enum err codec_relay_list(const struct codec *c, const uint8_t *aggregate, size_t size_bytes,
                          unsigned n, size_t count, struct codec_payload payloads[CODEC_SITES_MAX])
{
    size_t end = n * SIZE_BYTES;
    if (size_bytes < end)
        return codec_check_size(size_bytes, end);
    for (unsigned i = 0; i < n; i++) {
        uint64_t size = 0;
        for (unsigned k = 0; k < SIZE_BYTES; k++)
            size |= (uint64_t)aggregate[i * SIZE_BYTES + k] << 8 * k;
        if (size > size_bytes - end)
            return err_set(ERR_PROTO, "aggregate: contribution %u reaches beyond the end", i);
        payloads[i] = (struct codec_payload){aggregate + end, size};
        end += size;
    }
    TRY(codec_check_size(size_bytes, end));
    for (unsigned i = 0; i < n; i++)
        TRY(c->check(c, NULL, payloads[i].data, payloads[i].size_bytes, NULL, count));
    return ERR_OK;
}

/* The next n values of a payload, set or added, and divided. */
static void values_next(const struct codec *c, struct codec_work *w, float *z, struct codec_in *in,
                        bool add, float divisor, size_t n)
{
    const struct codec_dense *d = (const struct codec_dense *)c; /* c is its first member */
    size_t blocks = codec_blocks(n);
    const uint8_t *codes = in->codes + in->block;
    struct codec_taken t = codec_in_take(w, in, blocks);
    struct dev_decode a = {.form = d->form,
                           .count = n,
                           .slot = t.slot,
                           .code = codec_there(w, w->codes, codes, blocks),
                           .add = add,
                           .divisor = divisor};
    w->d->ops->block_decode(w->d, z, t.bytes, &a);
}

static void mean_codes(uint8_t *codes, const struct codec_payload *payloads, unsigned n,
                       size_t blocks)
{
    for (size_t b = 0; b < blocks; b++) {
        uint32_t sum = 0;
        for (unsigned i = 0; i < n; i++)
            sum += payloads[i].data[b];
        codes[b] = codec_mean_code(sum, n);
    }
}

enum err codec_sum(const struct codec *c, struct codec_work *w, float *z, float *values,
                   const struct codec_payload *payloads, unsigned n, const uint8_t *grid,
                   size_t count)
{
    ASSERT(!c->adds && n >= 1);
    for (unsigned i = 0; i < n; i++) {
        TRY(c->decode(c, w, i ? values : z, payloads[i].data, payloads[i].size_bytes, grid, count));
        if (i)
            w->d->ops->accumulate(w->d, z, values, 1.0f, count);
    }
    return dev_sync(w->d);
}

void codec_sum_codes(const struct codec *c, uint8_t *payload, const struct codec_payload *payloads,
                     unsigned n, size_t count)
{
    if (c->kind == CODEC_F32 || c->kind == CODEC_BF16)
        mean_codes(payload, payloads, n, codec_blocks(count));
}

/* The first site's values, then f32 additions in site order, then one division. */
enum err codec_relay_mean(const struct codec *c, struct codec_work *w, float *mean,
                          uint8_t *next_grid, const uint8_t *aggregate, size_t size_bytes,
                          unsigned n, float weight_sum, const uint8_t *grid, size_t count)
{
    (void)grid;
    struct codec_payload payloads[CODEC_SITES_MAX];
    struct codec_in in[CODEC_SITES_MAX];
    TRY(codec_check_mean(n, weight_sum));
    TRY(codec_relay_list(c, aggregate, size_bytes, n, count, payloads));
    for (unsigned i = 0; i < n; i++)
        in[i] = codec_dense_in(c, payloads[i].data, count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        for (unsigned i = 0; i < n; i++)
            values_next(c, w, mean + at, &in[i], i > 0, i + 1 < n ? 1 : weight_sum, values);
    }
    mean_codes(next_grid, payloads, n, codec_blocks(count));
    return dev_sync(w->d);
}

enum err codec_relay_decode(const struct codec *c, struct codec_work *w, float *z,
                            const uint8_t *payload, size_t size_bytes, const uint8_t *grid,
                            size_t count)
{
    (void)size_bytes, (void)grid;
    struct codec_in in = codec_dense_in(c, payload, count);
    for (size_t at = 0; at < count; at += w->piece)
        values_next(c, w, z + at, &in, false, 1, count - at < w->piece ? count - at : w->piece);
    return dev_sync(w->d);
}
