/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/deal.h"
#include <stdlib.h>
#include "kernels/base/mutant.h"

static int compare_keys(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

enum err deal_open(struct loader_deal **d, size_t ranks, size_t each, struct arena *perm)
{
    struct loader_deal *x;
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    *x = (struct loader_deal){.next = 0};
    TRY_ALLOC(x->order = arena_array(perm, ranks * each, sizeof *x->order));
    TRY_ALLOC(x->lengths = arena_array(perm, ranks * each, sizeof *x->lengths));
    TRY_ALLOC(x->keys = arena_array(perm, ranks * each, sizeof *x->keys));
    *d = x;
    return ERR_OK;
}

void deal_snake(uint32_t *order, const uint32_t *lengths, size_t ranks, size_t each, uint64_t *keys)
{
    size_t n = ranks * each;
    for (size_t i = 0; i < n; i++) /* the index makes keys distinct: the sort is stable */
        keys[i] = (uint64_t)(UINT32_MAX - lengths[i]) << 32 | i;
    if (!WITHOUT(DEAL_SORTED))
        qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        size_t row = i / ranks, column = i % ranks;
        size_t rank = row % 2 ? ranks - 1 - column : column;
        order[rank * each + row] = (uint32_t)keys[i];
    }
}
