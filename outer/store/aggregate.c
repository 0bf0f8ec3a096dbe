/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/store/aggregate.h"
#include <string.h>

enum err aggregate_sum(struct outer_state *m, unsigned fragment, const struct downlink_input *in,
                       bool again, struct aggregate_bytes *out, struct arena *a)
{
    const struct codec *c = codec_get(outer_state_codec(m, fragment));
    unsigned payloads = schedule_payloads(&m->schedule, c->kind, in->n);
    size_t most = c->aggregate_max(c, m->fragments->f[fragment].elements, payloads);
    TRY_ALLOC(out->data = arena_alloc(a, most));
    if (again)
        return downlink_sum(m, fragment, out->data, &out->size_bytes, in, a);
    struct codec_call call = outer_state_call(m, fragment, NULL);
    return c->aggregate(c, &call, out->data, &out->size_bytes, in->payloads, in->n);
}

static enum err aggregate_gather(const struct downlink_input *in, struct aggregate_bytes *out,
                                 struct arena *a)
{
    struct file_part *parts = arena_array(a, in->n + 1, sizeof *parts);
    uint8_t *sizes = arena_alloc(a, 8 * (size_t)in->n);
    size_t at = 0;
    TRY_ALLOC(sizes && parts ? sizes : NULL);
    codec_gather_parts(parts, sizes, in->payloads, in->n);
    out->size_bytes = 0;
    for (unsigned i = 0; i < in->n + 1; i++)
        out->size_bytes += parts[i].size_bytes;
    TRY_ALLOC(out->data = arena_alloc(a, out->size_bytes));
    for (unsigned i = 0; i < in->n + 1; at += parts[i++].size_bytes)
        memcpy(out->data + at, parts[i].data, parts[i].size_bytes);
    return ERR_OK;
}

enum err aggregate_make(struct outer_state *m, unsigned fragment, const struct downlink_input *in,
                        struct aggregate_bytes *out, struct arena *a)
{
    const struct codec *c = codec_get(outer_state_codec(m, fragment));
    bool again = schedule_compresses_downlink(&m->schedule, c->kind, in->n);
    outer_state_own_keep(m, fragment);
    return c->summable || again ? aggregate_sum(m, fragment, in, again, out, a)
                                : aggregate_gather(in, out, a);
}
