/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/slab.h"

static void whole_gather(void *self, float *slab, struct dev_range r)
{
    (void)self, (void)slab, (void)r;
}

static void whole_scatter(void *self, float *slab, struct dev_range r, bool written)
{
    (void)self, (void)slab, (void)r, (void)written;
}

const struct slab_holder slab_whole = {NULL, whole_gather, whole_scatter};

struct dev_range slab_range(const struct table *t, int layer)
{
    size_t first = 0, end;
    while (first < t->count && t->tensors[first].layer < layer)
        first++;
    for (end = first; end < t->count && t->tensors[end].layer == layer;)
        end++;
    size_t from = first < t->count ? t->tensors[first].offset : t->elements,
           to = end < t->count ? t->tensors[end].offset : t->elements;
    return (struct dev_range){from, to - from};
}

struct dev_range slab_all(const struct table *t)
{
    return (struct dev_range){0, t->elements};
}
