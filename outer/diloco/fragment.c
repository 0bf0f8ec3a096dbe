/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/fragment.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/rng.h"

static int last_layer(const struct table *t)
{
    int last = -1;
    for (size_t i = 0; i < t->count; i++)
        last = t->tensors[i].layer > last ? t->tensors[i].layer : last;
    return last; /* the final norm's */
}

/* A transformer block's tensors stay together; tensors outside the blocks are placed one by one. */
static bool in_block(const struct tensor *t, int last)
{
    return t->layer >= 0 && t->layer < last;
}

static unsigned part_smallest(const size_t *elements, unsigned count)
{
    unsigned best = 0;
    for (unsigned p = 1; p < count; p++)
        best = elements[p] < elements[best] ? p : best;
    return best;
}

/* Tensors without a home: the largest first, each to the part that is smallest then, ties to the
 * lower number: at most 4/3 of the best possible maximum (Graham 1969, LPT). */
static void tensors_balance(unsigned *home, const struct table *t, unsigned count)
{
    size_t elements[ROUND_FRAGMENTS_MAX] = {0};
    for (size_t i = 0; i < t->count; i++)
        if (home[i] < count)
            elements[home[i]] += table_span(t, i);
    for (;;) {
        size_t best = t->count;
        for (size_t i = 0; i < t->count; i++)
            if (home[i] == count && (best == t->count || table_span(t, i) > table_span(t, best)))
                best = i;
        if (best == t->count)
            return;
        home[best] = part_smallest(elements, count);
        elements[home[best]] += table_span(t, best);
    }
}

static unsigned slice_of(const struct fragment_plan *p, int layer)
{
    unsigned i = 0;
    while (i < p->count && (layer < p->slices[i].first || layer > p->slices[i].last))
        i++;
    return i;
}

/* The part that the plan names for a tensor; p->count: none, it is balanced. */
static unsigned part_named(const struct fragment_plan *p, const struct tensor *t, int last)
{
    if (p->kind == FRAGMENT_SLICES)
        return slice_of(p, t->layer);
    if (!in_block(t, last) || p->kind == FRAGMENT_BALANCED)
        return p->count;
    if (p->kind == FRAGMENT_SEQUENTIAL) /* with fewer blocks than parts some parts get none */
        return (unsigned)((unsigned)t->layer * p->count / (unsigned)last);
    return (unsigned)t->layer % p->count;
}

static void fragment_range_add(struct fragment *f, size_t offset, size_t span, size_t parameters)
{
    struct dev_range *last = f->range_count ? &f->ranges[f->range_count - 1] : NULL;
    if (last && last->offset + last->count == offset)
        last->count += span;
    else
        f->ranges[f->range_count++] = (struct dev_range){.offset = offset, .count = span};
    f->elements += span;
    f->parameters += parameters;
}

/* Whole tensors with their gaps. */
static enum err cut_by_tensor(struct fragments *out, const struct table *t,
                              const struct fragment_plan *p, struct arena *perm)
{
    struct tensor_range *view;
    unsigned *home;
    int last = last_layer(t);
    TRY_ALLOC(home = arena_array(perm, t->count, sizeof *home));
    for (size_t i = 0; i < t->count; i++)
        home[i] = part_named(p, &t->tensors[i], last);
    tensors_balance(home, t, p->count);
    for (unsigned k = 0; k < p->count; k++) {
        struct fragment *f = &out->f[k];
        TRY_ALLOC(f->ranges = arena_array(perm, t->count, sizeof *f->ranges));
        TRY_ALLOC(view = arena_array(perm, t->count, sizeof *view));
        f->view.ranges = view;
        for (size_t i = 0; i < t->count; i++) {
            const struct tensor *x = &t->tensors[i];
            if (home[i] != k)
                continue;
            view[f->view.count++] = (struct tensor_range){f->elements, x->count, x->shape[0],
                                                          x->shape[1], x->layer < 0};
            fragment_range_add(f, x->offset, table_span(t, i), x->count);
        }
    }
    return ERR_OK;
}

/* A permutation of the blocks of 256, dealt out in turn (Fisher and Yates). */
static enum err cut_at_random(struct fragments *out, const struct table *t,
                              const struct fragment_plan *p, struct arena *perm)
{
    size_t blocks = t->elements / DEV_BLOCK;
    uint32_t *order;
    unsigned char *home;
    TRY_ALLOC(order = arena_array(perm, blocks, sizeof *order));
    TRY_ALLOC(home = arena_array(perm, blocks, sizeof *home));
    for (size_t i = 0; i < blocks; i++)
        order[i] = (uint32_t)i;
    for (size_t i = blocks; i > 1; i--) {
        size_t k = (size_t)rng_below(p->seed, RNG_PARTITION, i, i);
        uint32_t swap = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swap;
    }
    for (size_t i = 0; i < blocks; i++)
        home[order[i]] = (unsigned char)(i % p->count);
    for (unsigned k = 0; k < p->count; k++)
        TRY_ALLOC(out->f[k].ranges =
                      arena_array(perm, blocks / p->count + 1, sizeof *out->f[k].ranges));
    for (size_t i = 0; i < blocks; i++)
        fragment_range_add(&out->f[home[i]], i * DEV_BLOCK, DEV_BLOCK, DEV_BLOCK);
    return ERR_OK;
}

static enum err slices_check(const struct fragment_plan *p, int last)
{
    for (int layer = -1; layer <= last; layer++) {
        unsigned in = 0;
        for (unsigned i = 0; i < p->count; i++)
            in += layer >= p->slices[i].first && layer <= p->slices[i].last;
        if (in != 1)
            return err_set(ERR_CONFIG,
                           "outer.slices: layer %d (-1: embeddings, %d: final norm) stands in %u "
                           "slices; each layer belongs to exactly one",
                           layer, last, in);
    }
    return ERR_OK;
}

enum err fragment_make(struct fragments *out, const struct table *t, const struct fragment_plan *p,
                       struct arena *perm)
{
    int last = last_layer(t);
    ASSERT(p->count >= 1 && p->count <= ROUND_FRAGMENTS_MAX);
    *out = (struct fragments){.parts = p->count, .count = p->count};
    if (p->kind == FRAGMENT_SLICES)
        TRY(slices_check(p, last));
    TRY(p->kind == FRAGMENT_RANDOM ? cut_at_random(out, t, p, perm)
                                   : cut_by_tensor(out, t, p, perm));
    for (unsigned k = 0; k < p->count; k++) {
        ASSERT(out->f[k].elements % DEV_BLOCK == 0);
        if (!out->f[k].elements)
            return err_set(
                ERR_CONFIG,
                "outer.fragments = %u: fragment %u would be empty; the model has %d layers",
                p->count, k, last);
    }
    for (int state = FRAGMENT_FIRST; state < FRAGMENT_STATES; state++) {
        if (!p->synchronised[state])
            continue;
        ASSERT(out->count + p->count <= ROUND_FRAGMENTS_MAX);
        for (unsigned k = 0; k < p->count; k++) {
            out->f[out->count] = out->f[k];
            out->f[out->count++].state = (enum fragment_state)state;
        }
    }
    return ERR_OK;
}

/* ---- outer.slices ---- */

/* embed, a number, or final, up to one of `ends`. */
static bool layer_parse(const char **text, const char *ends, int layers, int *layer)
{
    size_t n = strcspn(*text, ends);
    char *end;
    if (n == 5 && !memcmp(*text, "embed", n))
        *layer = -1;
    else if (n == 5 && !memcmp(*text, "final", n))
        *layer = layers;
    else {
        long number = strtol(*text, &end, 10);
        if (n == 0 || n > 6 || end != *text + n || **text < '0' || **text > '9' || number >= layers)
            return false;
        *layer = (int)number;
    }
    *text += n;
    return true;
}

/* "2" or "2+5+8". */
static bool steps_parse(struct fragment_slice *s, const char *text, int64_t every)
{
    char *end = NULL;
    int64_t before = 0;
    for (unsigned i = 0; i <= PERIOD_MORE_MAX; i++, text = end + 1) {
        int64_t step = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : 0;
        if (step <= before || step > every)
            return false;
        if (i)
            s->more[i - 1] = step;
        else
            s->at = step;
        s->more_count = i;
        before = step;
        if (*end != '+')
            return !*end;
    }
    return false;
}

bool fragment_slice_parse(struct fragment_slice *s, const char *text, int layers, int64_t every)
{
    if (!layer_parse(&text, "-@", layers, &s->first))
        return false;
    s->last = s->first;
    if (*text == '-') {
        text++;
        if (!layer_parse(&text, "@", layers, &s->last))
            return false;
    }
    return *text == '@' && s->first <= s->last && steps_parse(s, text + 1, every);
}

/* ---- slab <-> fragment ---- */

size_t fragment_largest(const struct fragments *f)
{
    size_t most = 0;
    for (unsigned p = 0; p < f->count; p++)
        most = f->f[p].elements > most ? f->f[p].elements : most;
    return most;
}

void fragment_sizes(size_t elements[ROUND_FRAGMENTS_MAX], const struct fragments *f)
{
    for (unsigned i = 0; i < f->count; i++)
        elements[i] = f->f[i].elements;
}

void fragment_gather(struct dev *d, float *out, const float *slab, const struct fragment *f)
{
    for (size_t i = 0; i < f->range_count; i++) {
        d->ops->copy(d, out, slab + f->ranges[i].offset, f->ranges[i].count * sizeof *slab);
        out += f->ranges[i].count;
    }
}

void fragment_scatter(struct dev *d, float *slab, const float *in, const struct fragment *f)
{
    for (size_t i = 0; i < f->range_count; i++) {
        d->ops->copy(d, slab + f->ranges[i].offset, in, f->ranges[i].count * sizeof *slab);
        in += f->ranges[i].count;
    }
}
