/* SPDX-License-Identifier: Apache-2.0 */
/* Gathered codecs: the aggregate is the list of the payloads; every replica decodes them and adds
 * in site order. n sites: n times the payload down. */
#include <string.h>
#include "kernels/base/file.h"
#include "outer/codec/codec_work.h"

enum { SIZE_BYTES = 8 }; /* of a payload's size before the payloads */

size_t codec_gather_max(const struct codec *c, size_t count, unsigned sites)
{
    return sites * (SIZE_BYTES + c->payload_max(c, count));
}

void codec_gather_parts(struct file_part *parts, uint8_t *sizes,
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

enum err codec_gather_aggregate(const struct codec *c, const struct codec_call *call,
                                uint8_t *aggregate, size_t *size_bytes,
                                const struct codec_payload *payloads, unsigned n)
{
    (void)c, (void)call;
    ASSERT(n >= 1 && n <= CODEC_SITES_MAX);
    struct file_part parts[CODEC_SITES_MAX + 1];
    codec_gather_parts(parts, aggregate, payloads, n);
    *size_bytes = parts[0].size_bytes;
    for (unsigned i = 1; i <= n; i++) {
        memcpy(aggregate + *size_bytes, parts[i].data, parts[i].size_bytes);
        *size_bytes += parts[i].size_bytes;
    }
    return ERR_OK;
}

enum err codec_gather_list(const struct codec *c, const struct codec_call *call,
                           const struct codec_aggregate *a,
                           struct codec_payload payloads[CODEC_SITES_MAX])
{
    size_t end = a->n * SIZE_BYTES;
    if (a->size_bytes < end)
        return codec_check_size(a->size_bytes, end);
    for (unsigned i = 0; i < a->n; i++) {
        uint64_t size = 0;
        for (unsigned k = 0; k < SIZE_BYTES; k++)
            size |= (uint64_t)a->data[i * SIZE_BYTES + k] << 8 * k;
        if (size > a->size_bytes - end)
            return err_set(ERR_PROTO, "aggregate: contribution %u reaches beyond the end", i);
        payloads[i] = (struct codec_payload){a->data + end, size};
        end += size;
    }
    TRY(codec_check_size(a->size_bytes, end));
    for (unsigned i = 0; i < a->n; i++)
        TRY(c->check(c, call, NULL, payloads[i].data, payloads[i].size_bytes));
    return ERR_OK;
}

struct values_op { /* set or added, and divided */
    bool add;
    float divisor;
};

/* The next n values of a payload. */
static void values_next(const struct codec *c, struct codec_work *w, float *z, struct codec_in *in,
                        const struct values_op *op, size_t n)
{
    size_t blocks = codec_blocks(n);
    const uint8_t *codes = in->codes + in->block;
    struct codec_taken t = codec_in_take(w, in, blocks);
    struct dev_decode a = {.form = c->dense->form,
                           .count = n,
                           .slot = t.slot,
                           .code = codec_there(w, w->codes, codes, blocks),
                           .add = op->add,
                           .divisor = op->divisor};
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

enum err codec_sum(const struct codec *c, const struct codec_call *call, float *z, float *values,
                   const struct codec_payload *payloads, unsigned n)
{
    struct dev *d = call->work->d;
    ASSERT(!c->summable && n >= 1);
    for (unsigned i = 0; i < n; i++) {
        TRY(c->decode(c, call, i ? values : z, payloads[i].data, payloads[i].size_bytes));
        if (i)
            d->ops->axpy(d, z, values, 1.0f, call->count);
    }
    return dev_sync(d);
}

void codec_sum_codes(const struct codec *c, uint8_t *payload, const struct codec_payload *payloads,
                     unsigned n, size_t count)
{
    if (c->full_precision)
        mean_codes(payload, payloads, n, codec_blocks(count));
}

/* The first site's values, then f32 additions in site order, then one division. */
enum err codec_gather_mean(const struct codec *c, const struct codec_call *call, float *mean,
                           uint8_t *next_grid, const struct codec_aggregate *a)
{
    struct codec_work *w = call->work;
    struct codec_payload payloads[CODEC_SITES_MAX];
    struct codec_in in[CODEC_SITES_MAX];
    size_t count = call->count;
    TRY(codec_check_mean(a->n, a->weight_sum));
    TRY(codec_gather_list(c, call, a, payloads));
    for (unsigned i = 0; i < a->n; i++)
        in[i] = codec_dense_in(c, payloads[i].data, count);
    for (size_t at = 0; at < count; at += w->piece) {
        size_t values = count - at < w->piece ? count - at : w->piece;
        for (unsigned i = 0; i < a->n; i++)
            values_next(c, w, mean + at, &in[i],
                        &(struct values_op){i > 0, i + 1 < a->n ? 1 : a->weight_sum}, values);
    }
    mean_codes(next_grid, payloads, a->n, codec_blocks(count));
    return dev_sync(w->d);
}

enum err codec_gather_decode(const struct codec *c, const struct codec_call *call, float *z,
                             const uint8_t *payload, size_t size_bytes)
{
    (void)size_bytes;
    struct codec_work *w = call->work;
    size_t count = call->count;
    struct codec_in in = codec_dense_in(c, payload, count);
    const struct values_op set = {false, 1};
    for (size_t at = 0; at < count; at += w->piece)
        values_next(c, w, z + at, &in, &set, count - at < w->piece ? count - at : w->piece);
    return dev_sync(w->d);
}
