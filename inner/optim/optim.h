#ifndef OPTIM_H
#define OPTIM_H
/* Inner optimizers: LAMB (You et al. 2020) and AdamW (Loshchilov & Hutter 2019)
 * over the table's ranges; global clip; the learning-rate schedule as a pure function of the step.
 * The moments live on the device; they survive outer rounds (DiLoCo replaces parameters only).
 *
 * With train.zero_stage = 1 (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054, P_os) rank r holds
 * the moments of elements first[r] .. first[r + 1] of the slab, updates the parameters there from
 * the summed gradients there, and gathers the others' parameters. A tensor may lie in several
 * parts: its norms (LAMB), like the global one (clip), are then the sum of the parts', one small
 * all-reduce in doubles. Parts are cut at multiples of DEV_RUN within a tensor, so that the step is
 * that of train.zero_stage = 0 from the same gradients, but for the last bit of a double.
 */
#include "inner/coll/coll.h"
#include "inner/model/model.h"

/* What a step is judged by, on the device and in one piece: one sum over the ranks for all of it.
 */
enum optim_tally { OPTIM_LOSS, OPTIM_COUNT, OPTIM_STOP, OPTIM_SQUARE, OPTIM_TALLY };

struct optim {
    struct dev *dev;
    struct coll *coll;
    float *m, *v;  /* device slabs, of elements begin .. end */
    double *norms; /* device: (tensors, 2), this rank's parts, then everybody's (LAMB in parts) */
    float *gscale; /* device: scale of the gradient */
    double *tally; /* device: (OPTIM_TALLY) */
    struct dev_range *ranges; /* of tensors from first_tensor on, or of their parts here */
    size_t range_count, first_tensor, tensors;
    size_t begin, end; /* of the slab: what this rank updates */
    size_t *first;     /* (ranks + 1) all ranks' parts; NULL: every rank updates everything */
    const struct settings *settings;
};

/* lr of step (from 0): linear warm-up over train.warmup (its first step has lr / warmup),
 * train.stable_steps steps at the peak, then cosine or linear towards lr_end * lr at train.steps.
 */
double optim_lr(const struct settings *s, int64_t step);
/* Where rank's part begins, 0 <= rank <= ranks. */
size_t optim_cut(const struct table *t, int rank, int ranks);
/* Bytes of the moments, on the rank that has most. */
size_t optim_plan(const struct settings *s, const struct table *t, int ranks);
enum err optim_open(struct optim *o, struct dev *d, struct coll *c, const struct settings *s,
                    const struct table *t, struct arena *perm) MUST;
void optim_close(struct optim *o); /* a zeroed one is fine */
/* One update with the gradients in the model's slab (summed over the ranks, of this rank's part at
 * least); step counts from 0. o->tally brings this rank's sum of losses, their number and its wish
 * to stop (0 or 1), becomes the sums over the ranks, and gets the square of the gradients' global
 * norm before the clip. Where loss or norm is not finite the device changes nothing: whoever reads
 * the tally, before the next update, says so. Nothing waits for the device. All ranks call. */
enum err optim_step(struct optim *o, struct model *m, int64_t step) MUST;

#endif
