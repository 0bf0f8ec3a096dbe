/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
/* The parameters and gradients of a model, and what of them is on this rank: the one place that
 * knows. With train.zero_stage >= 1 and several ranks, each holds its shard (inner/coll/units.h) of
 * the f32 parameters, which the optimizer updates, and of the summed gradients. Next to them it has
 *
 *     stage 1   the whole parameters in the model type, collected from all ranks after each update,
 *               unit by unit as the next pass asks for them; whole gradients of its own batch
 *     stage 2   the parameters of stage 1; rooms for the gradients of a few units. What a unit's
 *               backward has written is added up over the ranks while the backward runs, in
 *               each micro-batch, and its room is used again
 *     stage 3   the gradients of stage 2; rooms for the parameters of a few units. A pass collects
 *               a unit before its ops, and the next one meanwhile
 *
 * The embeddings have a room of their own, the other units take turns in two. With bf16, or at
 * stage 3, the whole f32 parameters are not there; vectors (norms, biases), which ops read in f32,
 * are. From stage 2 on passes run op by op: a recorded graph repeats the ops but not what moves
 * units.
 */
#include "inner/coll/coll.h"
#include "inner/coll/units.h"
#include "inner/model/slab.h"

enum { WEIGHTS_NONE = -1 }; /* offset of a tensor that a model does not have */
struct model_sharing {      /* borrowed; map NULL: every rank has all */
    struct coll *coll;
    const struct unit_map *map;
    int stage;       /* train.zero_stage */
    enum dtype sums; /* train.grad_reduce_dtype, from stage 2 on */
};
struct model_shards { /* of this rank, on the device: (unit_shard) of the map */
    float *params, *grads;
    uint16_t *copy; /* bf16 of params; NULL: the model type is f32 */
};
struct weights_used {
    float *params; /* NULL: those that the model uses already */
    void *copy;
    bool borrowed; /* they are those of an earlier step, and whole */
};
struct shared;
struct weights { /* weights.c alone writes it */
    struct dev *dev;
    const struct table *table;
    float *params, *grads;     /* params NULL: of bf16 and shared */
    void *params_bf16;         /* NULL: the model type is f32 */
    struct slab_holder holder; /* of params */
    bool borrowed;
    bool stochastic;          /* rounding of params_bf16, with the bits of `random` */
    struct dev_random random; /* of the seed and the step */
    struct shared *shared;    /* NULL: this rank holds all parameters */
};
struct weights_options {
    struct dev *dev;
    const struct table *table;
    bool train; /* else there are no gradients */
    bool stochastic;
    uint64_t seed;
};
struct weights_memory { /* bytes of one rank */
    size_t parameters, params_bf16, gradients;
};

/* by->coll is not read. */
struct weights_memory weights_plan(const struct table *t, const struct model_sharing *by,
                                   bool train, enum dtype type);
enum err weights_open(struct weights *w, const struct weights_options *o,
                      const struct model_sharing *by, struct arena *perm) MUST;
void weights_close(struct weights *w); /* a zeroed one is fine */
/* What went wrong in the last passes. */
enum err weights_error(struct weights *w) MUST;
void weights_hold(struct weights *w, const struct slab_holder *h);
struct weights_used weights_borrow(struct weights *w, struct weights_used x);
void weights_step(struct weights *w, uint64_t step);

/* model.h: model_gather, model_scatter, model_params_changed. Of parameters that are whole on no
 * rank, weights_gather takes memory of the range; two ranges at once at most. */
float *weights_gather(struct weights *w, struct dev_range r);
void weights_scatter(struct weights *w, struct dev_range r, bool written);
void weights_changed(struct weights *w);
/* The f32 parameters of ranges of the slab -> out (device), concatenated; lerp_ranges of the
 * ranges (kernels/dev.h). No other memory is taken. All ranks call. */
enum err weights_read(struct weights *w, const struct dev_range *r, size_t n, float *out) MUST;
enum err weights_mix(struct weights *w, const struct dev_lerp *b, const float *in) MUST;

/* Passes call these before and after the ops of a unit. Nothing to do for borrowed parameters. */
void weights_need(struct weights *w, struct dev_range unit);
void weights_done(struct weights *w, struct dev_range unit);
/* Units move during a pass: no graphs. */
bool weights_move(const struct weights *w);
/* A pass collects parameters: all ranks make the same ones. */
bool weights_together(const struct weights *w);
/* The pass goes up through the table, or down: what is collected ahead of time. */
void weights_go(struct weights *w, bool up);
/* Gradients, from stage 2 on; else nothing: a step begins; those of a unit are final in this
 * micro-batch, on every rank alike; all are in the shard. */
void weights_grads_begin(struct weights *w);
void weights_grads_final(struct weights *w, struct dev_range unit);
enum err weights_grads_wait(struct weights *w) MUST;
/* A tensor's parameters, its gradients, and its weights in the model type; NULL for WEIGHTS_NONE.
 */
const float *weights_param(const struct weights *w, ptrdiff_t at);
float *weights_grad(struct weights *w, ptrdiff_t at);
const void *weights_matrix(const struct weights *w, ptrdiff_t at);

/* Of shared ones. NULL: this rank holds all, and the rest is not to be called. */
const struct unit_map *weights_units(const struct weights *w);
/* Whether the whole f32 parameters are on this rank: weights_gather and weights_read send nothing.
 */
bool weights_have_whole(const struct weights *w);
struct model_shards weights_shards(const struct weights *w);
/* params was written; copied: copy, too. Begins to collect what passes will read. All ranks call.
 */
enum err weights_shards_changed(struct weights *w, bool copied) MUST;
/* Nothing of the shards is under way any more. */
enum err weights_shards_wait(struct weights *w) MUST;
/* grads of the shard becomes what the whole gradients hold there: where every rank has the whole
 * sums. */
void weights_take_grads(struct weights *w);

#endif
