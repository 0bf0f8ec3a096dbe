/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENSORS_H
#define TENSORS_H
/* A caller's tensors as the slab of a run: where the values of a range lie in the caller's memory.
 * Gaps and padding of the table are read as zeros, and are dropped when written. */
#include "inner/model/table.h"
#include "outer/library/atoll.h"

struct tensors {
    const struct table *table;
    const struct atoll_tensor *list; /* [table->count] */
    int (*read)(void *self, size_t tensor, size_t first, size_t count, float *values);
    int (*write)(void *self, size_t tensor, size_t first, size_t count, const float *values);
    void *self;
    float *piece; /* TENSORS_PIECE values, to convert and to mix in */
};
enum { TENSORS_PIECE = 1 << 16 };

/* Does the list of `count` hold the table's tensors, in their order? ERR_MISMATCH names the first
 * one that differs; ERR_CONFIG: a tensor without data and without callbacks. */
enum err tensors_check(const struct tensors *t, size_t count) MUST;
/* Elements at .. at + count of the slab -> out. ERR_IO: a callback failed. */
enum err tensors_read(const struct tensors *t, size_t at, size_t count, float *out) MUST;
enum err tensors_write(const struct tensors *t, size_t at, size_t count, const float *values) MUST;
/* The values of the ranges, concatenated -> out. */
enum err tensors_gather(const struct tensors *t, const struct dev_range *ranges, size_t n,
                        float *out) MUST;
/* lerp_ranges of kernels/dev.h, with the tensors as the slab; d works in the host's memory. */
enum err tensors_mix(const struct tensors *t, struct dev *d, const float *in,
                     const struct dev_lerp *b) MUST;

#endif
