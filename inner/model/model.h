#ifndef MODEL_H
#define MODEL_H
/* One transformer; GPT-2 (and later BERT, ALBERT, Llama) are settings of its one block. It owns the
 * parameter and gradient slabs and all activations on a device, taken at open, their sizes known
 * before. Batches are packed. One thread. Asynchronous where the device is; model_step, model_eval
 * and model_logits wait.
 */
#include "inner/model/table.h"
#include "inner/data/batch.h"
#include "inner/model/profile.h"

struct model; /* opaque: activations and their layout */

/* Bytes by class; the start-up table, known before anything is taken. */
struct model_memory {
    size_t parameters, model_copy, gradients, activations;
    struct dev_workspace workspace;
};

/* train false: no gradients, and one layer's activations serve all layers. With
 * train.activation_checkpointing = block they do so in training, too: only the stream in front of
 * each block is kept, and the backward makes the block's activations again, the same bits. */
struct model_memory model_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, size_t tokens_max, bool train);
/* `t` and `s` are borrowed for the model's life. Parameters are zero until written. */
enum err model_open(struct model **m, struct dev *d, const struct settings *s,
                    const struct table *t, size_t tokens_max, bool train, struct arena *perm) MUST;
void model_close(struct model *m);    /* NULL is fine */
float *model_params(struct model *m); /* device slab, f32, t->elements */
float *model_grads(struct model *m);  /* same layout; NULL when opened without train */
void *model_copy(struct model *m);    /* bf16 copy of the parameters; NULL when the type is f32 */
/* After writing model_params: refreshes the bf16 copy, with train.rounding = stochastic by the
 * random bits of the step that was named last (0 before): the same parameters and step, the same
 * copy. */
void model_params_changed(struct model *m);
bool model_rounds_by_step(
    const struct model *m); /* there is a copy and its rounding is stochastic */
void model_name_step(struct model *m, int64_t step);
void model_grads_zero(struct model *m);
size_t model_tokens_max(const struct model *m);
/* Called during a backward: the gradients from element `from` to the end of the slab are final (on
 * the device's stream: behind what it was given so far). `from` falls to 0, tensor by tensor. */
struct model_ready {
    void *self;
    void (*final)(void *self, size_t from);
};
/* Adds the gradient of grad_scale * sum of losses to the gradient slab, and the sum of the losses
 * in nats over targets >= 0 to *loss (device). ready NULL: nobody asks. The batch may change when
 * this returns; nothing waits for the device but for the batch before the last to have arrived
 * there. */
enum err model_accumulate(struct model *m, const struct batch *b, float grad_scale,
                          const struct model_ready *ready, double *loss) MUST;
/* The same, and waits: *loss_sum gets the sum of the losses, *loss_count their number. */
enum err model_step(struct model *m, const struct batch *b, float grad_scale,
                    const struct model_ready *ready, double *loss_sum, size_t *loss_count) MUST;
enum err model_eval(struct model *m, const struct batch *b, double *loss_sum,
                    size_t *loss_count) MUST;
/* Its ops are told to p from now on; NULL: to nobody. */
void model_profile(struct model *m, struct profile *p);
/* Logits of the last position of one sequence of the batch: host (vocab). */
enum err model_logits(struct model *m, const struct batch *b, size_t sequence, float *logits) MUST;

#endif
