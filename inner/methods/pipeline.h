/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PIPELINE_H
#define PIPELINE_H
/* The modules of a model on the ranks of a site (train.modules = K): contiguous layers, with the
 * embeddings in the first module and the heads in the last one. Module k is on rank k mod W; W
 * divides K - 1, so both ends, which share the tied embedding, are on rank 0.
 *
 * Every rank holds the slabs of the whole model: memory is not saved. A rank computes and updates
 * its own modules' tensors; the values of the others are those of the last pipeline_gather.
 *
 * Ouroboros (Yang et al. 2019, 1909.06695), train.pipeline = stale: in step t module k (from 0)
 * runs the backward of step t - (K - 1 - k), whose error module k + 1 has computed in step t - 1.
 * It reads the activations and the parameters of that step's forward, so that its gradient is that
 * of the loss of step t - (K - 1 - k) at the parameters of that step, exactly. Until
 * train.warmup_steps ends nothing is delayed; then a module does not learn until its first gradient
 * has come.
 */
#include "inner/methods/method.h"
#include "inner/model/model_parts.h"

struct pipeline_module {
    size_t first, end;   /* layers */
    size_t offset, stop; /* elements of the slabs */
    int rank;
    int64_t delay;       /* steps, after the warm-up */
    void *input, *error; /* device: the boundary before the module, forward and backward */
    bool sent;           /* the error of its output has been sent, in an earlier step */
    bool here;           /* the error of its output has been received */
};
struct pipeline {
    struct pipeline_module *modules;
    size_t count;
    int64_t *delays;    /* (tensors of the table) of its module, or OPTIM_ELSEWHERE */
    float **params;     /* (count - 1) slabs: those of step s in [s mod (count - 1)]; stale only */
    void **copies;      /* (count - 1) their bf16 copies, or NULL */
    int64_t stale_from; /* the first step whose backward is delayed; INT64_MAX: none */
    int64_t loaded;     /* the step whose batch parts.batch holds, or -1 */
    int64_t step; /* finished steps; passes of earlier steps use the parameters that were kept */
    struct method_parts parts;
};
/* ERR_CONFIG: the ranks do not divide the modules. */
enum err pipeline_check(const struct settings *s, int ranks) MUST;
/* Bytes of device memory in addition to the model. */
size_t pipeline_plan(const struct settings *s, const struct table *t, enum dtype model_type,
                     size_t tokens_max);
size_t pipeline_kept_slabs(const struct pipeline *p); /* of earlier parameters, in checkpoints */
enum err pipeline_open(struct pipeline **p, const struct method_parts *parts,
                       struct arena *perm) MUST;
void pipeline_close(struct pipeline *p); /* NULL or a partly opened one is fine */
bool pipeline_own(const struct pipeline *p, size_t k);
/* The batch of a step into parts.batch. */
void pipeline_load(struct pipeline *p, int64_t step);
/* Module k, in this rank's order; waits for its input and begins to send its output. */
enum err pipeline_fwd(struct pipeline *p, size_t k, int64_t step) MUST;
/* Of the forward of `step`, with that step's parameters. */
enum err pipeline_bwd(struct pipeline *p, size_t k, int64_t step) MUST;
/* Receives the errors that other ranks have sent and no backward has read yet: before a stale
 * step, and before the ranks do something else, so that no message is left over at the end. */
enum err pipeline_fetch(struct pipeline *p) MUST;
/* Keeps this rank's parameters as those of a step. */
void pipeline_keep(struct pipeline *p, int64_t step);
/* Makes a slab whole on all ranks. */
enum err pipeline_gather(struct pipeline *p, float *slab) MUST;

/* modules.c. `step`: finished steps. */
/* The passes of one step by this rank's modules, in order. */
enum err modules_passes(struct pipeline *p, int64_t step) MUST;
/* Makes all slabs whole on all ranks: before an evaluation or a checkpoint. */
enum err modules_gather(struct pipeline *p) MUST;
/* After a restart: repeats the passes whose gradients are under way. */
enum err modules_resumed(struct pipeline *p, int64_t step) MUST;
/* ERR_MISMATCH: with another train.steps the warm-up, at whose end train.pipeline = stale begins,
 * would end at another step. */
enum err modules_lengthened(const struct settings *before, const struct settings *s,
                            const char *dir) MUST;

#endif
