/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NAMES_OWN_H
#define NAMES_OWN_H
/* Where a tensor of Hugging Face lies in our slabs: shared by names.c (models) and portable.c
 * (checkpoints). */
#include "inner/io/family.h"
#include "inner/io/safetensors.h"

struct names_context {
    const struct settings *settings;
    const struct table *table;
    const struct family *family; /* set by names_pairs */
    size_t task;                 /* whose head is the one on classes */
};

/* One tensor of theirs, and where it lies in ours. */
struct names_pair {
    char theirs[96]; /* with prefix */
    size_t prefix;   /* length of it */
    char ours[TABLE_NAME_MAX];
    const struct tensor *tensor; /* NULL: one that this model does not have */
    size_t first, rows, columns; /* of ours; columns 0: a vector */
    bool transposed;
    bool again;   /* the head of a tied model: the embedding once more */
    bool absent;  /* of a head that this model does not have: not written, and not read */
    bool zeros;   /* this model does not have it, and zeros mean the same: a bias, or token types */
    bool written; /* in an exported file */
    bool seeded;  /* of a head that the file does not have: keeps its initial parameters */
};

/* All pairs of the model's family. ERR_UNSUPPORTED: it is of none. */
enum err names_pairs(struct names_context *x, struct arena *a, struct names_pair **pairs,
                     size_t *count) MUST;
/* The elements of a slab as their tensor, in memory of `a`, under the name p->theirs. */
enum err names_convert(const struct names_pair *p, const float *slab, bool bf16, struct arena *a,
                       struct safetensors_tensor *out) MUST;
bool names_same_shape(const struct names_pair *p, const struct safetensors_tensor *x);

/* Element (r, c) of the part in our slab. */
static inline size_t names_ours_at(const struct names_pair *p, size_t r, size_t c)
{
    size_t columns = p->columns ? p->columns : 1;
    return p->tensor->offset + (p->first + r) * columns + c;
}

/* Where element (r, c) of ours lies in theirs. */
static inline size_t names_theirs_at(const struct names_pair *p, size_t r, size_t c)
{
    return p->transposed ? c * p->rows + r : r * (p->columns ? p->columns : 1) + c;
}

#endif
