/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOY_H
#define TOY_H
/* A small table of tensors for tests of the outer loop: layers of a matrix and a bias between two
 * embeddings and a final norm; a few thousand parameters, sizes that are not multiples of 256.
 */
#include <stdio.h>
#include <string.h>
#include "inner/model/table.h"

enum { TOY_TENSORS_MAX = 64 };

static inline void toy_add(struct table *t, const char *name, size_t count, int layer)
{
    struct tensor *x = &t->tensors[t->count++];
    *x = (struct tensor){
        .shape = {(int64_t)count, 1}, .offset = t->elements, .count = count, .layer = layer};
    snprintf(x->name, sizeof x->name, "%s", name);
    t->elements += (count + DEV_BLOCK - 1) / DEV_BLOCK * DEV_BLOCK;
    t->parameters += count;
}

/* tensors has TOY_TENSORS_MAX places. */
static inline struct table toy_table(struct tensor *tensors, int layers)
{
    struct table t = {.tensors = tensors};
    toy_add(&t, "wte", 700, -1);
    toy_add(&t, "wpe", 100, -1);
    for (int l = 0; l < layers; l++) {
        toy_add(&t, "weight", 300, l);
        toy_add(&t, "bias", 20, l);
    }
    toy_add(&t, "norm.gain", 30, layers);
    toy_add(&t, "norm.bias", 30, layers);
    return t;
}

/* Is element i of the slab a parameter (not a gap)? */
static inline int toy_used(const struct table *t, size_t i)
{
    for (size_t k = 0; k < t->count; k++)
        if (i >= t->tensors[k].offset && i < t->tensors[k].offset + t->tensors[k].count)
            return 1;
    return 0;
}

#endif
