/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MODEL_H
#define MODEL_H
/* One transformer. GPT-2, Llama, BERT, ALBERT and ModernBERT are settings of its one block, of the
 * embedding before it and of the heads after it. The model owns the slabs of parameters and
 * gradients and all activations on a device: allocated at open, their sizes known before. Batches
 * are packed. One thread. Asynchronous where the device is; model_step, model_eval and model_logits
 * wait.
 */
#include "inner/model/table.h"
#include "inner/data/batch.h"
#include "inner/model/loss.h"
#include "inner/model/profile.h"
#include "inner/model/slab.h"
#include "inner/model/weights.h"

struct model; /* opaque */

/* Bytes by class, for the memory table at start-up, before anything is allocated. */
struct model_memory {
    size_t parameters, params_bf16, gradients, activations;
    struct dev_workspace workspace;
};

/* train false: no gradients, and all layers share one layer's activations. They do so in training,
 * too, with train.activation_checkpointing = block: only the residual stream before each block
 * is saved, and the backward recomputes the activations of the block, with the same bits. */
struct model_options {
    const struct settings *settings; /* both borrowed for the model's life */
    const struct table *table;
    size_t tokens_max; /* of a batch */
    bool train;
};
/* device.matmul_precision, device.accumulator: what the device is opened with. */
struct dev_emulation model_emulation(const struct settings *s);
struct model_memory model_plan(const struct model_options *o, enum dtype model_type);
/* The ranks share parameters and gradients out (train.zero_stage). map NULL: as model_plan, and
 * model_open. */
struct model_memory model_plan_shared(const struct model_options *o, const struct model_sharing *by,
                                      enum dtype model_type);
/* Parameters are zero until written. */
enum err model_open(struct model **m, struct dev *d, const struct model_options *o,
                    struct arena *perm) MUST;
enum err model_open_shared(struct model **m, struct dev *d, const struct model_options *o,
                           const struct model_sharing *by, struct arena *perm) MUST;
void model_close(struct model *m); /* NULL is fine */
/* The parameters of a range of the table, on the device, f32: values[0] is element r.offset. Valid
 * until model_scatter of the same range, which says whether they were written. Gradients lie in one
 * slab (t->elements), NULL when opened without train. */
float *model_gather(struct model *m, struct dev_range r);
void model_scatter(struct model *m, struct dev_range r, bool written);
/* What of the slabs is on this rank. */
struct weights *model_weights(struct model *m);
/* Replaces slab_whole as the holder. Before the first pass, and before parameters are written. */
void model_hold(struct model *m, const struct slab_holder *h);
float *model_grads(struct model *m); /* NULL: units of them alone are here (weights.h) */
void *
model_params_bf16(struct model *m); /* bf16 copy of the parameters; NULL when the type is f32 */
/* After parameters were written: refreshes the bf16 copy. With train.rounding = stochastic the
 * random bits depend on the step of model_set_step (0 before the first call): equal parameters and
 * steps give equal copies. */
void model_params_changed(struct model *m);
bool model_rounds_stochastically(
    const struct model *m); /* there is a bf16 copy and its rounding is stochastic */
void model_set_step(struct model *m, int64_t step);
/* The finished steps of the parameters, where it is not a step of this process: which
 * layers train.stages has reached. Before any call: all of train.steps. */
void model_set_finished(struct model *m, int64_t steps);
void model_grads_zero(struct model *m);
size_t model_tokens_max(const struct model *m);
void model_use_set(struct model *m, size_t set); /* of saved activations; 0 at open */
/* The backward calls `ready` when the gradients from element `from` to the end of the slab are
 * final, in the order of the device's stream. `from` falls to 0, tensor by tensor. */
struct model_grad_hook {
    void *self;
    void (*ready)(void *self, size_t from);
};
struct model_loss {
    double sum[MODEL_LOSSES];
    size_t count[MODEL_LOSSES];
};
/* Adds the gradient of grad_scale * (sum of token losses + batch.sequence_weight * sum of sequence
 * losses), and of the standardization losses, to the gradient slab, and the sums, without the
 * weight, to loss (MODEL_LOSSES) (device). hook NULL: none. The batch may change when this
 * returns. The host waits only until the device has read the batch before the last. */
enum err model_accumulate(struct model *m, const struct batch *b, float grad_scale,
                          const struct model_grad_hook *hook, double *loss) MUST;
/* The same, and waits. */
enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_grad_hook *hook, struct model_loss *loss) MUST;
enum err model_eval(struct model *m, const struct batch *b, struct model_loss *loss) MUST;
/* The loss of each position of the batch, nats; 0 where it has no target. model.head = plain. Host
 * (tokens_count). Never a graph: batches of an evaluation by sequences hardly repeat. */
enum err model_eval_losses(struct model *m, const struct batch *b, float *losses) MUST;
/* Of the batch that model_eval has just read: the logits of `count` positions, at most
 * MODEL_LOGIT_ROWS, of a sequence by the head of a task. Host (count, vocab), (classes). */
enum { MODEL_LOGIT_ROWS = 64 };
enum err model_eval_logits(struct model *m, const struct batch *b, const size_t *positions,
                           size_t count, float *logits) MUST;
enum err model_eval_class_logits(struct model *m, const struct batch *b, size_t sequence,
                                 size_t task, float *logits) MUST;
/* With train.eval_attention: the largest attention logit, scaled q k^T, of each layer in all calls
 * of model_eval since model_attention_begin. Host (layers); -INFINITY: the layer has not run. Wait.
 */
enum err model_attention_begin(struct model *m) MUST;
enum err model_attention_largest(struct model *m, float *largest) MUST;
/* With model.classifier_heads a head has left when its weights are all 0; with no gradient and no
 * moments they stay so. Looks again which are left: after parameters were put in, or a head's were
 * set to 0. Waits. Returns how many are left. */
enum err model_find_heads(struct model *m, size_t *left) MUST;
bool model_has_head(const struct model *m, size_t head);
/* From now on the ops are recorded in p; NULL: not at all. */
void model_profile(struct model *m, struct profile *p);
/* Logits of the last position of one sequence of the batch, or of any position: host (vocab). */
enum err model_logits(struct model *m, const struct batch *b, size_t sequence, float *logits) MUST;
enum err model_logits_at(struct model *m, const struct batch *b, size_t position,
                         float *logits) MUST;
/* Logits of one sequence by the head of a task, task 0 without model.classes: by the pair head.
 * Host (classes). */
enum err model_class_logits(struct model *m, const struct batch *b, size_t sequence, size_t task,
                            float *logits) MUST;

#endif
