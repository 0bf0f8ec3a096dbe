/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/merge.h"
#include <math.h>
#include "kernels/base/mutant.h"
#include "outer/protocol/mutant.h"

/* A shorter delta has no direction. Its inverse, times the largest weight, is far from what f32
 * holds. */
static const double LENGTH_MIN = 0x1p-60;

bool merge_reads_each(enum merge_kind kind)
{
    return kind != MERGE_MEAN;
}

/* A tensor with the gap after it, whose values are 0. */
static size_t range_span(const struct tensor_range *r)
{
    return (r->count + DEV_BLOCK - 1) / DEV_BLOCK * DEV_BLOCK;
}

static enum err range_length(struct codec_work *w, double *length, const float *x,
                             const struct tensor_range *r)
{
    double squares;
    TRY(codec_squares(w, &squares, x + r->first, NULL, range_span(r)));
    *length = sqrt(squares);
    return ERR_OK;
}

struct share { /* of one contribution */
    float weight, factor;
};

/* One contribution: its lengths, and its directions times its weight added to `mean`. */
static enum err directions_add(const struct codec_call *call, float *mean, double *lengths,
                               const float *values, const struct share *s)
{
    struct dev *d = codec_device(call->work);
    for (size_t i = 0; i < call->view->count; i++) {
        const struct tensor_range *r = &call->view->ranges[i];
        double length;
        if (r->embedding)
            continue;
        TRY(range_length(call->work, &length, values, r));
        lengths[i] += (double)s->factor * length;
        if (length >= LENGTH_MIN)
            d->ops->axpy(d, mean + r->first, values + r->first, (float)((double)s->weight / length),
                         range_span(r));
    }
    return ERR_OK;
}

/* From the summed directions to the delta: scaled to length r. */
static enum err lengths_set(const struct codec_call *call, float *mean, const double *lengths,
                            float weight_sum)
{
    struct dev *d = codec_device(call->work);
    for (size_t i = 0; i < call->view->count; i++) {
        const struct tensor_range *r = &call->view->ranges[i];
        double length;
        if (r->embedding)
            continue;
        TRY(range_length(call->work, &length, mean, r));
        double divisor = length * (double)weight_sum / lengths[i];
        if (length >= LENGTH_MIN && lengths[i] >= LENGTH_MIN)
            d->ops->div_scalar(d, mean + r->first, (float)divisor, range_span(r));
        else /* no delta, or deltas that cancel: no direction is left */
            d->ops->zero(d, mean + r->first, range_span(r) * sizeof *mean);
    }
    return dev_sync(d);
}

static enum err merge_radial(const struct codec *c, const struct codec_call *call, float *mean,
                             const struct merge_input *in, struct arena *scratch)
{
    struct dev *d = codec_device(call->work);
    struct codec_payload payloads[CODEC_SITES_MAX];
    double *lengths;
    TRY_ALLOC(lengths = arena_array(scratch, call->view->count, sizeof *lengths));
    for (size_t i = 0; i < call->view->count; i++) {
        const struct tensor_range *r = &call->view->ranges[i];
        lengths[i] = 0;
        if (!r->embedding)
            d->ops->zero(d, mean + r->first, range_span(r) * sizeof *mean);
    }
    TRY(codec_gather_list(c, call, &in->aggregate, payloads));
    for (unsigned i = 0; i < in->aggregate.n; i++) {
        TRY(c->decode(c, call, in->values, payloads[i].data, payloads[i].size_bytes));
        const struct share s = {in->weights[i], in->factors ? in->factors[i] : 1};
        TRY(directions_add(call, mean, lengths, in->values, &s));
    }
    return lengths_set(call, mean, lengths, in->aggregate.weight_sum);
}

/* The mean once more, with each contribution times its factor: f32 additions in site order, as
 * codec_gather_mean has them. */
static enum err merge_scaled(const struct codec *c, const struct codec_call *call, float *mean,
                             const struct merge_input *in)
{
    struct dev *d = codec_device(call->work);
    struct codec_payload payloads[CODEC_SITES_MAX];
    TRY(codec_gather_list(c, call, &in->aggregate, payloads));
    d->ops->zero(d, mean, call->count * sizeof *mean);
    for (unsigned i = 0; i < in->aggregate.n; i++) {
        TRY(c->decode(c, call, in->values, payloads[i].data, payloads[i].size_bytes));
        d->ops->axpy(d, mean, in->values, in->factors[i], call->count);
    }
    d->ops->div_scalar(d, mean, in->aggregate.weight_sum, call->count);
    return dev_sync(d);
}

/* EDiT's clip of the averaged delta. */
static enum err length_bound(const struct codec_call *call, float *mean, float most)
{
    struct dev *d = codec_device(call->work);
    double squares;
    TRY(codec_squares(call->work, &squares, mean, NULL, call->count));
    if (sqrt(squares) > (double)most)
        d->ops->div_scalar(d, mean, (float)(sqrt(squares) / (double)most), call->count);
    return dev_sync(d);
}

enum err merge_apply(enum merge_kind kind, const struct codec *c, const struct codec_call *call,
                     float *mean, uint8_t *next_grid, const struct merge_input *in)
{
    struct arena scratch = arena_make(0);
    TRY(c->mean(c, call, mean, next_grid, &in->aggregate));
    if (in->factors && c->summable)
        return err_set(ERR_PROTO, "factors for contributions of which only the sum is there");
    if (in->factors)
        TRY(merge_scaled(c, call, mean, in));
    if (kind == MERGE_EDIT && in->length_max > 0 && !MUTANT(LENGTH_UNBOUND))
        return length_bound(call, mean, in->length_max);
    if (kind != MERGE_RADIAL || WITHOUT(RADIAL_MERGE))
        return ERR_OK;
    ASSERT(!c->summable && call->view && in->values);
    enum err e = merge_radial(c, call, mean, in, &scratch);
    arena_free(&scratch);
    return e;
}
