/* SPDX-License-Identifier: Apache-2.0 */
#ifndef START_H
#define START_H
/* Step 0 of a run from the checkpoint of another one. The models are equal, or differ in their
 * heads alone: then heads that the checkpoint does not have, or has in another size, start from the
 * seed, and the moments of the optimizer from zero (fine-tuning).
 */
#include "inner/model/table.h"

struct start {
    const float *slabs[3]; /* parameters, first and second moment; NULL: from zero */
    const char *fresh;     /* names of the tensors that start from the seed; "": none */
};

/* The newest checkpoint in `dir` or its inner/, in memory of `a`; or, where `dir` ends in
 * .safetensors, the file of that name, whose tensors are F32 and have the names of the table.
 * ERR_MISMATCH: another model. */
enum err start_read(struct start *x, const struct settings *s, const struct table *t,
                    const char *dir, struct arena *a) MUST;

#endif
