/* SPDX-License-Identifier: Apache-2.0 */
#ifndef START_H
#define START_H
/* Step 0 of a run from the checkpoint of another one. The models are equal, or differ in their
 * heads alone: then heads that the checkpoint does not have, or has in another size, start from the
 * seed, and the moments of the optimizer from zero (fine-tuning).
 */
#include "inner/io/checkpoint.h"
#include "inner/model/table.h"

enum {
    START_SLABS = 3,      /* parameters, first and second moment */
    START_PIECE = 1 << 18 /* values that are read at once where a slab is read in pieces */
};
struct start {
    const char *fresh;           /* names of the tensors that start from the seed; "": none */
    bool there[START_SLABS];     /* of the moments; else they start from zero */
    const float *values;         /* start.c: parameters that lie in memory */
    struct checkpoint_reader *r; /* start.c: else they are read in pieces */
};

/* The newest checkpoint in `dir` or its inner/; or, where `dir` ends in .safetensors, the file of
 * that name, whose tensors are F32 and have the names of the table. Of a checkpoint of an equal
 * model nothing of its size is taken from `a`, since a host has many ranks; of a .safetensors file
 * a slab. ERR_MISMATCH: another model. start_close comes after it, after an error, too, and before
 * `a` is freed. */
enum err start_open(struct start *x, const struct settings *s, const struct table *t,
                    const char *dir, struct arena *a) MUST;
struct start start_of(const float *parameters); /* that lie in memory */
/* `count` values of a slab that is there, from value `at` on. */
enum err start_read(const struct start *x, int slab, size_t at, float *out, size_t count) MUST;
void start_close(struct start *x);

#endif
