/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIM_H
#define OPTIM_H
/* The inner optimizer of one rank: its state on the device, global clip, the learning-rate schedule
 * as a pure function of the step, and the step of the method that train.optimizer names (method.h).
 * The state survives outer rounds (DiLoCo replaces parameters only).
 *
 * With train.zero_stage = 1 (ZeRO-1: Rajbhandari et al. 2020, arXiv 1910.02054, P_os) or more rank
 * r holds a shard: its parts of all units (inner/coll/units.h), one after another. Its parameters,
 * gradients and state have the same offsets there. It updates the parameters of its shard from the
 * summed gradients, and the model collects the others'. A tensor may lie in several shards: its
 * sums (LAMB's norms), like the global one (clip), are then the sum of the shards', one small
 * all-reduce in doubles. Of methods with sums, parts end at multiples of DEV_RUN within a tensor or
 * projection, so that the step is that of train.zero_stage = 0 from the same gradients, but for the
 * last bit of a double.
 */
#include "inner/coll/units.h"
#include "inner/optim/compress.h"
#include "inner/optim/method.h"

/* Statistics of a step, on the device and in one piece: one all-reduce for all of them. */
enum step_stat {
    STEP_LOSS, /* (MODEL_LOSSES) sums of the losses, by enum model_loss_kind: what model_accumulate
                  writes */
    STEP_LAST_LOSS = STEP_LOSS + MODEL_LOSSES - 1,
    STEP_TARGETS,   /* what the gradient is divided by: targets of tokens, or of sequences
                       where tokens have none */
    STEP_SEQUENCES, /* targets of sequences */
    STEP_TOKENS,    /* without those that fill batches up */
    STEP_STOP,      /* ranks with a stop request */
    STEP_SQUARE,    /* sum of squares of the gradient, which is a sum over targets */
    STEP_STATS
};

enum optim_state_kind { OPTIM_FIRST, OPTIM_SECOND, OPTIM_MORE, OPTIM_STATES };
struct optim_state {  /* one slab of state; all 0 where the method does not keep it */
    const char *name; /* in checkpoints: "m", "v", "more" */
    float *shard;     /* device: (count) of this rank */
    size_t elements;  /* of all ranks' shards */
    size_t count;
    const struct unit_map *map; /* whose shards these are; NULL: every rank holds all */
};

struct optim_part { /* of the slab: a tensor, or with train.trust_per a projection of it */
    const struct tensor *tensor;
    size_t offset, count;
};

struct optim_matrices {      /* of methods with `matrices`; on the device */
    struct dev_matrix *list; /* (parts), in `workspace` */
    struct dev_matrices all;
    float *partial, *lines; /* in `workspace`; lines may be further state */
};

struct optim_parts {         /* of the slab, and what a step goes over */
    struct optim_part *list; /* (count) of the table, in order */
    struct dev_range
        *ranges;     /* (count) of this rank's shard: what it has of the part; or nothing */
    size_t *at;      /* (count) where the range begins in the slab */
    size_t *more_at; /* (count) where further state begins in its shard, of the range's tensor */
    size_t count;
};
struct optim_buffers {
    double *sums;    /* device: (OPT_SUMS, parts), this rank's, then all ranks'; NULL: not needed */
    float *gscale;   /* device: scale of the gradient */
    double *stats;   /* device: (STEP_STATS) */
    void *workspace; /* device, of the method */
    struct opt_group *groups;      /* device, (parts): of the running step */
    struct opt_group *groups_host; /* pinned; the host may write it after `event` */
    unsigned event;
};
struct optim_shard {
    size_t count;                      /* elements that this rank updates */
    const struct unit_map *map, *more; /* of the slab, of further state; NULL: every rank updates
                                          everything */
    size_t *work; /* (ranks + 1) without shards: of the slab, whose products each rank computes;
                     NULL: there are none, or one rank */
};
struct optim_learned {
    uint64_t
        *updates; /* (tensors of the table) steps of 0 .. counted in which the tensor learned */
    int64_t counted;
};
/* (tensors of the table) steps from `from` on in which a tensor does not learn, because its
 * gradient is not there yet (inner/methods/pipeline.h, which sets them); NULL: none. The gradients
 * of a tensor that is OPTIM_ELSEWHERE are another rank's, which updates it. */
struct optim_delays {
    const int64_t *steps;
    int64_t from;
};

/* Written by optim.c, but for parts, shard (optim_shards.c), matrices (matrices.c), delays,
 * together (train.c). */
struct optim {
    struct dev *dev;
    struct coll *coll;
    const struct optim_method *method;
    const struct settings *settings;
    const struct table *table;
    struct optim_state state[OPTIM_STATES];
    struct optim_parts parts;
    struct optim_buffers buffers;
    struct optim_shard shard;
    struct optim_learned learned;
    struct optim_matrices matrices;
    struct optim_delays delays;
    const struct compress_method *compress; /* NULL: train.compress = none */
    struct compress_kept *kept;             /* of compress; all 0 without */
    bool together; /* by the caller: the ranks' parameters must be equal after the next step */
};

enum { OPTIM_ELSEWHERE = -1 };
struct optim_slabs {       /* of this rank's shard, or whole; on the device */
    float *params, *grads; /* the method may overwrite the gradients */
    uint16_t *copy;        /* bf16 copy of the parameters, which the update writes; NULL: none */
};

/* lr of step (from 0): warm-up over train.warmup_steps (its first step has lr / warmup, or its
 * square), train.stable_steps steps at the peak, then cosine or linear towards min_lr_ratio * lr at
 * train.steps, or exponential with min_lr_ratio * lr added to all steps (DeepSpeed); times
 * depth_warmup. */
double optim_lr(const struct settings *s, int64_t step);
const struct optim_method *optim_method_of(const struct settings *s); /* list.c */
/* Whether the ranks share the state out. The units and their parts, by what the method allows. */
bool optim_shares(const struct settings *s, int ranks);
enum err optim_units(struct unit_map *m, const struct settings *s, const struct table *t, int ranks,
                     struct arena *a) MUST;
/* Where the products of a rank begin, 0 <= rank <= ranks, of methods that have some. */
size_t optim_work(const struct settings *s, const struct table *t, int rank, int ranks);
/* Floats of further state that tensors from slab element `begin` to `end` keep. */
size_t optim_more_of(const struct optim_method *m, const struct table *t, size_t begin, size_t end);
/* What this rank holds of a range that lies in one unit: of its shard; *at: of the slab. */
struct dev_range optim_own(const struct optim *o, struct dev_range r, size_t *at);
/* Parts of optim_open. */
enum err optim_shard_open(struct optim *o, struct arena *perm) MUST;
enum err optim_ranges_open(struct optim *o, struct arena *perm) MUST;
/* The slabs of state that a method keeps, of one rank that holds all; no memory yet. */
void optim_describe(struct optim_state state[OPTIM_STATES], const struct optim_method *m,
                    const struct table *t);
/* Bytes of the state, on the rank that has most. ERR_MEMORY: none to plan in. */
enum err optim_plan(size_t *bytes, const struct settings *s, const struct table *t, int ranks) MUST;
/* Bytes of device memory that a step works in. */
size_t optim_workspace(const struct settings *s, const struct table *t, enum dtype type);
enum err optim_open(struct optim *o, struct dev *d, struct coll *c, const struct settings *s,
                    const struct table *t, struct arena *perm) MUST;
void optim_close(struct optim *o); /* a zeroed one is fine */
/* Of methods with `matrices`: part of optim_open, and their workspace. */
enum err optim_matrices_open(struct optim *o, struct arena *scratch) MUST;
size_t optim_matrices_bytes(const struct optim_method *m, const struct settings *s,
                            const struct table *t, enum dtype type);
/* train.master_weights: rounds what the step has updated. */
void optim_masters_round(struct optim *o, const struct optim_slabs *x, int64_t step);
/* Sets the moments of these elements of the slab to 0: of layers that have not learned yet, so that
 * further state is 0 already. */
void optim_forget(struct optim *o, size_t from, size_t count);
/* One update with the gradients in the model's slab: sums over targets, and over the ranks, of this
 * rank's shard at least. step counts from 0. On entry o->buffers.stats holds this rank's sum of
 * losses, their number and its stop request (0 or 1); on return their sums over the ranks, and the
 * sum of squares of the gradients before clipping. If loss or norm is not finite the device changes
 * nothing; the caller reads the statistics before the next update and reports it. The host does not
 * wait. All ranks call. */
enum err optim_step(struct optim *o, struct model *m, int64_t step) MUST;
/* The same of slabs that belong to no model. */
enum err optim_step_slabs(struct optim *o, const struct optim_slabs *x, int64_t step) MUST;

#endif
