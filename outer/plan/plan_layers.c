/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/plan_layers.h"
#include <stdio.h>
#include <stdlib.h>
#include "kernels/base/number.h"
#include "outer/plan/dreamddp.h"

/* Elements of one layer, gaps included; -1: embeddings. */
static size_t elements_of(const struct table *t, int layer)
{
    size_t elements = 0;
    for (size_t i = 0; i < t->count; i++)
        if (t->tensors[i].layer == layer)
            elements += table_span(t, i);
    return elements;
}

/* Up, then down, then the round trip. */
static double exchange_s(const struct run *p, const struct line *l, int layer)
{
    const struct codec *c = codec_get(p->o.outer_codec);
    struct schedule_bytes b =
        schedule_bytes(&p->sync.schedule, c->kind, elements_of(&p->table, layer),
                       (unsigned)p->o.outer_sites.count);
    double up = line_wire_bytes((double)b.up), down = line_wire_bytes((double)b.down);
    return 8 * up / line_rate_bps(l, l->up_bps) + 8 * down / line_rate_bps(l, l->down_bps) +
           l->rtt_s;
}

/* The measured passes, stretched to what a slot lasts: all its steps, forward passes included. */
static enum err profile(struct dreamddp_layer *out, const struct run *p, const struct line *link,
                        unsigned layers, double slot_s)
{
    const struct config_list *ms = &p->measured.times.plan_layers_ms;
    double sum = 0;
    if (ms->count != layers)
        return err_set(ERR_CONFIG,
                       "plan.layers_ms has %zu entries; a model of %lld layers has %u (embeddings, "
                       "layers, final norm): measure them with atoll probe --step",
                       ms->count, (long long)p->s.model_layers, layers);
    for (unsigned i = 0; i < layers; i++) { /* in the order of the backward pass */
        const char *text = ms->items[layers - 1 - i];
        double time;
        if (!number_good(text, &time) || !(time >= 0) || time > 1e9)
            return err_set(ERR_CONFIG, "plan.layers_ms: \"%.40s\" is no time in ms", text);
        out[i].backward_s = time / 1e3;
        out[i].exchange_s = exchange_s(p, link, (int)(layers - 1 - i) - 1);
        sum += out[i].backward_s;
    }
    if (!(sum > 0))
        return err_set(ERR_CONFIG,
                       "plan.layers_ms: all zero; measure them with atoll probe --step");
    for (unsigned i = 0; i < layers; i++)
        out[i].backward_s *= slot_s / sum;
    return ERR_OK;
}

/* Layers that are placed, in the order of the backward pass. */
struct placed {
    unsigned layers, slots;
    unsigned *at, *again; /* dreamddp_place, dreamddp_fill */
};

/* Does a slice end before this layer? Where fill-in takes only a part of one, it is cut. */
static bool slice_begins(const struct plan_layers *out, const struct placed *p, unsigned i)
{
    bool cut = i == 0 || p->at[i] != p->at[i - 1];
    for (unsigned slot = 0; slot < p->slots && out->count < ROUND_FRAGMENTS_MAX - p->slots; slot++)
        cut = cut || p->again[slot] == i;
    return cut;
}

static void slices_make(struct plan_layers *out, const struct placed *p)
{
    for (unsigned i = 0; i < p->layers; i++) {
        int layer = (int)(p->layers - 1 - i) - 1;
        if (slice_begins(out, p, i))
            out->slice[out->count++] = (struct fragment_slice){
                .first = layer, .last = layer, .at = (int64_t)(p->at[i] + 1) * out->span};
        out->slice[out->count - 1].first = layer;
    }
}

/* A slice is sent again in the slots whose fill-in takes all of its layers. */
static void slices_fill(struct plan_layers *out, const struct placed *p)
{
    for (unsigned k = 0; k < out->count; k++) {
        struct fragment_slice *s = &out->slice[k];
        unsigned end = p->layers - (unsigned)(s->first + 1);
        for (unsigned slot = 0; slot < p->slots; slot++)
            if (p->again[slot] >= end && s->more_count < PERIOD_MORE_MAX)
                s->more[s->more_count++] = (int64_t)(slot + 1) * out->span;
        out->more += s->more_count;
    }
}

enum err plan_layers_make(struct plan_layers *out, struct run *p, const struct line *link)
{
    unsigned layers = (unsigned)p->s.model_layers + 2, slots = layers;
    struct dreamddp_layer *l;
    if (slots > p->o.outer_sync_every)
        slots = (unsigned)p->o.outer_sync_every;
    if (slots > ROUND_FRAGMENTS_MAX)
        slots = ROUND_FRAGMENTS_MAX;
    struct placed x = {.layers = layers, .slots = slots};
    *out = (struct plan_layers){.span = p->o.outer_sync_every / slots};
    TRY_ALLOC(l = arena_array(&p->perm, layers, sizeof *l));
    TRY_ALLOC(x.at = arena_array(&p->perm, layers, sizeof *x.at));
    TRY_ALLOC(x.again = arena_array(&p->perm, slots, sizeof *x.again));
    TRY(profile(l, p, link, layers, (double)out->span * p->measured.times.plan_step_s));
    TRY(dreamddp_place(l, layers, slots, x.at, &out->wait_s));
    for (unsigned i = 0; i < slots; i++)
        x.again[i] = 0;
    if (out->span == 1)
        dreamddp_fill(l, layers, x.at, slots, x.again);
    slices_make(out, &x);
    slices_fill(out, &x);
    return ERR_OK;
}

enum err plan_layers_every(int64_t *every, struct run *p, const struct line *link)
{
    int64_t configured = p->o.outer_sync_every;
    enum err e = ERR_OK;
    *every = 0;
    for (int64_t n = configured; e == ERR_OK && !*every && n <= PLAN_EVERY_MAX; n += configured) {
        struct plan_layers l;
        p->o.outer_sync_every = n;
        e = plan_layers_make(&l, p, link);
        if (e == ERR_OK && l.wait_s <= PLAN_LAYERS_WAIT * (double)n * p->measured.times.plan_step_s)
            *every = n;
    }
    p->o.outer_sync_every = configured;
    return e;
}

static void name(int layer, int layers, char out[16])
{
    if (layer < 0 || layer == layers)
        snprintf(out, 16, "%s", layer < 0 ? "embed" : "final");
    else
        snprintf(out, 16, "%d", layer);
}

void plan_layers_text(const struct fragment_slice *s, int layers, char *out, size_t size_bytes)
{
    char first[16], last[16];
    name(s->first, layers, first);
    name(s->last, layers, last);
    int n = s->first == s->last
                ? snprintf(out, size_bytes, "%s@%lld", first, (long long)s->at)
                : snprintf(out, size_bytes, "%s-%s@%lld", first, last, (long long)s->at);
    for (unsigned i = 0; i < s->more_count && n > 0 && (size_t)n < size_bytes; i++)
        n += snprintf(out + n, size_bytes - (size_t)n, "+%lld", (long long)s->more[i]);
}
