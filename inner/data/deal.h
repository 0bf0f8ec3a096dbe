/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DATA_DEAL_H
#define DATA_DEAL_H
/* Which rank gets which example of a step, by length, so that the ranks have as many tokens. Pure:
 * lengths in, a permutation out. Kim et al. 2024, arXiv 2402.02447, local presorting.
 */
#include <stdint.h>
#include "kernels/base/arena.h"

struct loader_deal { /* of one step */
    uint64_t next;   /* the step after it; 0: none yet */
    uint32_t *order, *lengths;
    uint64_t *keys; /* scratch */
};
enum err deal_open(struct loader_deal **d, size_t ranks, size_t each, struct arena *perm) MUST;
/* order: (ranks x each) the examples of rank r are order[r * each] .. order[r * each + each - 1].
 * Examples are sorted by length, longest first, equal ones in their order, and laid out as `each`
 * rows of `ranks`; every odd row is reversed; a rank has a column. keys: (ranks x each) scratch. */
void deal_snake(uint32_t *order, const uint32_t *lengths, size_t ranks, size_t each,
                uint64_t *keys);

#endif
