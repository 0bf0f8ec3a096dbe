#ifndef OPTIM_H
#define OPTIM_H
/* Inner optimizers: LAMB (You et al. 2020) and AdamW (Loshchilov & Hutter 2019)
 * over the table's ranges; global clip; the learning-rate schedule as a pure function of the step.
 * The moments live on the device; they survive outer rounds (DiLoCo replaces parameters only).
 */
#include "inner/model/model.h"

struct optim {
    struct dev *dev;
    float *m, *v;             /* device slabs, table's elements */
    float *scalars;           /* device: sum of squares, scale of the gradient */
    struct dev_range *ranges; /* one per tensor */
    size_t range_count, elements;
    const struct settings *settings;
};

/* lr of step (from 0): linear warm-up over train.warmup (its first step has lr / warmup),
 * train.hold steps at the peak, then cosine or linear towards lr_end * lr at train.steps. */
double optim_lr(const struct settings *s, int64_t step);
size_t optim_plan(const struct table *t); /* bytes of the moments */
enum err optim_open(struct optim *o, struct dev *d, const struct settings *s, const struct table *t,
                    struct arena *perm) MUST;
void optim_close(struct optim *o); /* a zeroed one is fine */
/* One update with the gradients in the model's slab (already averaged); step counts from 0; *norm
 * gets their global norm before the clip. A norm that is not finite is ERR_DIVERGED, and nothing is
 * changed. */
enum err optim_step(struct optim *o, struct model *m, int64_t step, float *norm) MUST;

#endif
