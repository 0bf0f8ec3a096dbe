/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/depth.h"
#include <math.h>
#include "kernels/base/mutant.h"
#include "kernels/base/rng.h"

/* ---- layer dropping ---- */
bool depth_drops(const struct settings *s)
{
    return s->train_layer_drop > 0;
}

double depth_keep(const struct settings *s, uint64_t step, size_t layer)
{
    double keep = 1 - s->train_layer_drop, rate = s->train_layer_drop_rate;
    double theta = (1 - keep) * exp(-rate * (double)step) + keep;
    return 1 - (double)layer / (double)s->model_layers * (1 - theta);
}

float depth_scale(const struct settings *s, uint64_t step, size_t layer)
{
    return WITHOUT(DROP_SCALE) ? 1 : (float)(1 / depth_keep(s, step, layer));
}

/* The gate: place 0 of the stream of dropout, which no mask has. */
static bool depth_gate(const struct settings *s, uint64_t step, size_t layer)
{
    return !depth_drops(s) || rng_unit((uint64_t)s->run_seed, RNG_DROPOUT | step << 32, layer) <
                                  depth_keep(s, step, layer);
}

bool depth_runs(const struct settings *s, uint64_t step, size_t layer)
{
    return (int)layer < depth_stage_of(s, step).layers && depth_gate(s, step, layer);
}

/* ---- stages ---- */
bool depth_stages(const struct settings *s)
{
    return s->train_stages.count > 0;
}

/* Where a stage ends, after this share of all steps. */
static int64_t end_of(const struct settings *s, double share)
{
    return llround(share * (double)s->train_steps);
}

static struct depth_stage stage_at(const struct settings *s, size_t i)
{
    double share = 0;
    struct depth_stage x = {0, 0, 0, 0};
    for (size_t k = 0; k <= i; k++) {
        struct keys_stage now = keys_stage(s, k);
        x.begin = x.end;
        x.end = end_of(s, share += now.share);
        x.first = now.layers > x.layers ? x.layers : 0;
        x.layers = (int)now.layers;
    }
    return x;
}

struct depth_stage depth_stage_of(const struct settings *s, uint64_t step)
{
    if (!depth_stages(s))
        return (struct depth_stage){0, s->train_steps, (int)s->model_layers, 0};
    size_t i = 0, last = s->train_stages.count - 1;
    while (i < last && (int64_t)step >= stage_at(s, i).end)
        i++;
    return stage_at(s, i);
}

int depth_layers_after(const struct settings *s, int64_t steps)
{
    return depth_stage_of(s, steps > 0 ? (uint64_t)steps - 1 : 0).layers;
}

bool depth_grows(const struct settings *s, uint64_t step)
{
    struct depth_stage x = depth_stage_of(s, step);
    return depth_stages(s) && step && (int64_t)step < s->train_steps && (int64_t)step == x.begin &&
           x.first;
}

double depth_warmup(const struct settings *s, uint64_t step)
{
    struct depth_stage x = depth_stage_of(s, step);
    int64_t since = (int64_t)step - x.begin + 1, length = keys_warmup(s);
    length = length < x.end - x.begin ? length : x.end - x.begin;
    return x.begin && since < length ? (double)since / (double)length : 1;
}

/* ---- what learns ---- */
/* With model.share_layers the tensors of layer 0 are all layers', and layer 0 always runs. */
bool depth_learns(const struct settings *s, uint64_t step, int layer)
{
    struct depth_stage x = depth_stage_of(s, step);
    bool block = layer >= 0 && layer < s->model_layers && !s->model_share_layers;
    if (layer < 0)
        return x.first == 0 || WITHOUT(STAGE_FREEZE);
    return !block || ((layer >= x.first || WITHOUT(STAGE_FREEZE)) && layer < x.layers &&
                      depth_gate(s, step, (size_t)layer));
}

uint64_t depth_updates(const struct settings *s, uint64_t from, uint64_t to, int layer)
{
    uint64_t updates = 0;
    if (!depth_drops(s) && !depth_stages(s))
        return to - from;
    for (uint64_t step = from; step < to;) {
        uint64_t end = (uint64_t)depth_stage_of(s, step).end;
        end = depth_drops(s) || end <= step ? step + 1 : end < to ? end : to;
        updates += depth_learns(s, step, layer) ? end - step : 0;
        step = end;
    }
    return updates;
}

/* ---- tables ---- */
/* Layer `first` + i begins as a copy of the i-th of the top layers below, again and again where the
 * stage adds more layers than there are. */
static int source_of(const struct depth_stage *x, int layer)
{
    int added = x->layers - x->first, period = added < x->first ? added : x->first;
    return x->first - period + (layer - x->first) % period;
}

/* Tensors of two layers correspond by their place: all layers have the same, but for a first norm
 * that the first layer may not have, so they are counted from the end of the layer. */
static size_t layer_end(const struct table *t, int layer)
{
    size_t i = t->count;
    while (i > 0 && t->tensors[i - 1].layer > layer)
        i--;
    return i;
}

size_t depth_growth(const struct settings *s, const struct table *t, uint64_t step,
                    struct depth_copy *copies)
{
    struct depth_stage x = depth_stage_of(s, step);
    size_t count = 0;
    if (!depth_grows(s, step))
        return 0;
    for (int layer = x.first; layer < x.layers; layer++) {
        int source = source_of(&x, layer);
        size_t to = layer_end(t, layer), from = layer_end(t, source);
        while (to-- > 0 && from-- > 0 && t->tensors[to].layer == layer &&
               t->tensors[from].layer == source)
            copies[count++] = (struct depth_copy){t->tensors[to].offset, t->tensors[from].offset,
                                                  t->tensors[to].count};
    }
    return count;
}

size_t depth_ranges(const struct settings *s, const struct table *t, uint64_t step, bool learns,
                    struct dev_range *ranges)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        if (depth_learns(s, step, x->layer) != learns)
            continue;
        if (count && ranges[count - 1].offset + ranges[count - 1].count == x->offset)
            ranges[count - 1].count += table_span(t, i);
        else
            ranges[count++] = (struct dev_range){x->offset, table_span(t, i)};
    }
    return count;
}
