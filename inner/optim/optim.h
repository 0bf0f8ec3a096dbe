#ifndef OPTIM_H
#define OPTIM_H
/* Inner optimizers: LAMB (You et al. 2020) and AdamW (Loshchilov & Hutter 2019)
 * over the table's ranges; global clip; the learning-rate schedule as a pure function of the step.
 * The moments live on the device; they survive outer rounds (DiLoCo replaces parameters only).
 *
 * With train.zero = 1 (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054, P_os) rank r holds the
 * moments of elements first[r] .. first[r + 1] of the slab, updates the parameters there from the
 * summed gradients there, and gathers the others' parameters. A tensor may lie in several parts:
 * its norms (LAMB), like the global one (clip), are then the sum of the parts', one small
 * all-reduce in doubles. Parts are cut at multiples of DEV_RUN within a tensor, so that the step is
 * that of train.zero = 0 from the same gradients, but for the last bit of a double.
 */
#include "inner/coll/coll.h"
#include "inner/model/model.h"

struct optim {
    struct dev *dev;
    struct coll *coll;
    float *m, *v;             /* device slabs, of elements begin .. end */
    double *square, *norms;   /* device: of the gradients; of this rank's ranges (LAMB in parts) */
    double *norms_host;       /* (tensors, 2) */
    float *gscale;            /* device: scale of the gradient */
    struct dev_range *ranges; /* of tensors from first_tensor on, or of their parts here */
    size_t range_count, first_tensor, tensors;
    size_t begin, end; /* of the slab: what this rank updates */
    size_t *first;     /* (ranks + 1) all ranks' parts; NULL: every rank updates everything */
    const struct settings *settings;
};

/* lr of step (from 0): linear warm-up over train.warmup (its first step has lr / warmup),
 * train.hold steps at the peak, then cosine or linear towards lr_end * lr at train.steps. */
double optim_lr(const struct settings *s, int64_t step);
/* Where rank's part begins, 0 <= rank <= ranks. */
size_t optim_cut(const struct table *t, int rank, int ranks);
/* Bytes of the moments, on the rank that has most. */
size_t optim_plan(const struct settings *s, const struct table *t, int ranks);
enum err optim_open(struct optim *o, struct dev *d, struct coll *c, const struct settings *s,
                    const struct table *t, struct arena *perm) MUST;
void optim_close(struct optim *o); /* a zeroed one is fine */
/* One update with the gradients in the model's slab (summed over the ranks, of this rank's part at
 * least); step counts from 0; *norm gets their global norm before the clip. A norm that is not
 * finite is ERR_DIVERGED on all ranks, and nothing is changed. All ranks call. */
enum err optim_step(struct optim *o, struct model *m, int64_t step, float *norm) MUST;

#endif
