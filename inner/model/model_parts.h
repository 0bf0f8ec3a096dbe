/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_PARTS_H
#define MODEL_PARTS_H
/* Passes over a part of a model: some layers, with the embeddings before the first layer and the
 * heads after the last one. For a site whose ranks, or whose steps, run one part after the
 * other (inner/methods/pipeline.h). The parts of a pass in order compute what model_accumulate
 * does, with the same bits. Between two parts the caller carries the boundary: of the forward the
 * residual stream, of the backward its gradient, model_boundary_bytes of device memory each.
 */
#include "inner/model/model.h"

struct model_part {
    size_t first, end; /* layers first .. end - 1 */
    size_t set;        /* of saved activations: the forward fills it, the backward reads it */
    /* Of the pass, in the place of the model's own: parameters and their bf16 copy; NULL: the
     * model's. */
    float *params;
    void *copy;
};
/* Sets of saved activations. Set 0 is that of evaluations and of whole passes. With delayed
 * gradients (train.pipeline = stale) each part's backward runs up to train.modules - 1 steps after
 * its forward: as many sets more as there are parts. */
size_t model_sets(const struct settings *s);
size_t model_boundary_bytes(const struct model *m);
/* in: NULL for the first part, out: NULL for the last. The last adds the sums of losses to `loss`,
 * computes the gradients of the classifiers, and needs its backward next. */
enum err model_part_fwd(struct model *m, const struct batch *b, const struct model_part *p,
                        const void *in, void *out, double *loss) MUST;
/* Adds to the slab of gradients. dout: NULL for the last part, din: NULL for the first. */
enum err model_part_bwd(struct model *m, const struct batch *b, const struct model_part *p,
                        const void *dout, void *din, const struct model_grad_hook *hook) MUST;

#endif
