/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHOICE_H
#define CHOICE_H
/* Which of two attention kernels a shape gets, and which algorithm a product: the rules, and the
 * record of what was decided. Pure.
 *
 * The record is text, struct dev's `chosen`: "64x12/12x1024c:fb;..." means head dimension 64, 12
 * heads for 12 of keys, longest sequence 1024 (a power of two where lengths differ, marked r),
 * causal; f and b are o (own), c (cuDNN) or ? (not met yet), of the forward and the backward.
 * Timings differ from run to run and kernels in their last bits, so the record is what makes a
 * resumed run continue as it began: a checkpoint keeps it, and what it says is not measured again.
 *
 * "p89abcdef0123;" means that the product whose shape has the hash 89abcdef takes the algorithm
 * whose description has the hash 0123; "g89abcdef0001;" that the slope of GELU is taken inside that
 * product, 0000 that it is a pass after it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum choice { CHOICE_NONE, CHOICE_OWN, CHOICE_CUDNN };

struct choice_shape { /* what the decision depends on; the number of sequences is not part of it */
    size_t HD, NH, KVH, S;
    bool causal, ragged;
};
/* NONE: the record has no entry for it, or is not a record. */
enum choice choice_find(const char *record, const struct choice_shape *s, bool backward);
/* Replaces the entry of the shape. False: `record`, of `size` bytes, is full and unchanged. */
bool choice_keep(char *record, size_t size, const struct choice_shape *s, bool backward,
                 enum choice what);

struct choice_trial { /* both kernels on the same data */
    double own_ms, cudnn_ms;
    double difference; /* largest difference over largest value; infinite where one is not finite */
    double bound;
    bool repeats; /* cuDNN gave the same bits twice */
};
/* cuDNN where its results agree and repeat, and it is faster by more than the variation of clocks.
 */
enum choice choice_of(const struct choice_trial *t);

/* ---- products ---- */
enum choice_what { CHOICE_ALGORITHM = 'p', CHOICE_SLOPE = 'g' };
struct choice_product {
    enum choice_what what;
    uint32_t shape;
};
uint32_t choice_hash(const void *bytes, size_t size);
/* What was decided, below 2^16; -1: the record has no entry for it. */
int choice_product_find(const char *record, struct choice_product p);
/* Appends an entry; the record has none for it. False: it is full and unchanged. */
bool choice_product_keep(char *record, size_t size, struct choice_product p, uint16_t decided);
/* The candidate with the least time; 0, the library's own choice, unless another is faster by more
 * than the variation of clocks. Infinite: it cannot run. */
size_t choice_fastest(const double *ms, size_t count);

#endif
