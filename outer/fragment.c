#include "outer/fragment.h"
#include <string.h>

/* Elements a tensor takes in the slab, its gap included. */
static size_t tensor_span(const struct table *t, size_t i)
{
    size_t next = i + 1 < t->count ? t->tensors[i + 1].offset : t->elements;
    return next - t->tensors[i].offset;
}

static int last_layer(const struct table *t)
{
    int last = -1;
    for (size_t i = 0; i < t->count; i++)
        last = t->tensors[i].layer > last ? t->tensors[i].layer : last;
    return last; /* the final norm's */
}

/* A transformer block's tensors stay together; what lies around the blocks is placed tensor by
 * tensor. */
static bool in_block(const struct tensor *t, int last)
{
    return t->layer >= 0 && t->layer < last;
}

static unsigned smallest(const size_t *elements, unsigned count)
{
    unsigned best = 0;
    for (unsigned p = 1; p < count; p++)
        best = elements[p] < elements[best] ? p : best;
    return best;
}

/* home[tensor] = fragment. Outside the blocks the largest tensor goes first, each to the fragment
 * that is smallest then, ties to the lower number: at most 4/3 of the best possible maximum (Graham
 * 1969, LPT). */
static void place(unsigned *home, const struct table *t, unsigned count)
{
    size_t elements[ROUND_FRAGMENTS_MAX] = {0};
    int last = last_layer(t);
    for (size_t i = 0; i < t->count; i++) {
        home[i] = count;
        if (in_block(&t->tensors[i], last)) {
            home[i] = (unsigned)t->tensors[i].layer % count;
            elements[home[i]] += tensor_span(t, i);
        }
    }
    for (;;) {
        size_t best = t->count;
        for (size_t i = 0; i < t->count; i++)
            if (home[i] == count && (best == t->count || tensor_span(t, i) > tensor_span(t, best)))
                best = i;
        if (best == t->count)
            return;
        home[best] = smallest(elements, count);
        elements[home[best]] += tensor_span(t, best);
    }
}

static void add_range(struct fragment *f, const struct table *t, size_t i)
{
    size_t offset = t->tensors[i].offset, span = tensor_span(t, i);
    struct dev_range *last = f->range_count ? &f->ranges[f->range_count - 1] : NULL;
    if (last && last->offset + last->count == offset)
        last->count += span;
    else
        f->ranges[f->range_count++] = (struct dev_range){.offset = offset, .count = span};
    f->elements += span;
    f->parameters += t->tensors[i].count;
}

enum err fragment_make(struct fragments *out, const struct table *t, unsigned count,
                       struct arena *perm)
{
    ASSERT(count >= 1 && count <= ROUND_FRAGMENTS_MAX);
    *out = (struct fragments){.count = count};
    unsigned *home;
    TRY_ALLOC(home = arena_array(perm, t->count, sizeof *home));
    place(home, t, count);
    for (unsigned p = 0; p < count; p++) {
        struct fragment *f = &out->f[p];
        TRY_ALLOC(f->ranges = arena_array(perm, t->count, sizeof *f->ranges));
        for (size_t i = 0; i < t->count; i++)
            if (home[i] == p)
                add_range(f, t, i);
        ASSERT(f->elements % DEV_BLOCK == 0);
        if (!f->elements)
            return err_set(
                ERR_CONFIG,
                "outer.fragments = %u: fragment %u would be empty; the model has %d layers", count,
                p, last_layer(t));
    }
    return ERR_OK;
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
