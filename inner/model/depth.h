/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEPTH_H
#define DEPTH_H
/* Which layers run at a step, which learn, and by what their branches are multiplied: a pure
 * function of the settings and the step, the same on all ranks and at all sites. A step is counted
 * from 0: it is the number of finished steps.
 *
 * Progressive layer dropping (Zhang & He 2020, 2010.13369), with l from 0 and t the step:
 *   theta(t) = (1 - keep) exp(-rate t) + keep,  p_l = 1 - l / L (1 - theta(t)).
 * Layer l runs with probability p_l, and then the outputs of its attention and MLP are divided by
 * p_l. Layer 0 always runs. A layer that is left out does not learn.
 *
 * Progressive stacking (Yang et al. 2020, 2011.13635), train.stages: each stage has the layers
 * below `layers`. The layers that a stage adds begin as copies of those right below them, and learn
 * with the heads and the last norm; all else is frozen: no gradient, no moments, no updates. In the
 * first stage, and in one that adds no layers, everything learns that is there. All layers lie in
 * the table from step 0 on.
 */
#include "inner/model/table.h"

bool depth_drops(const struct settings *s);                               /* ever */
double depth_keep(const struct settings *s, uint64_t step, size_t layer); /* p_l */
float depth_scale(const struct settings *s, uint64_t step, size_t layer); /* 1 / p_l */
bool depth_runs(const struct settings *s, uint64_t step, size_t layer);
/* Whether the tensors of that layer learn at a step; `layer` as in struct tensor. Those that do not
 * keep their values, moments and number of updates. */
bool depth_learns(const struct settings *s, uint64_t step, int layer);
/* In how many of the steps from <= step < to they learn. */
uint64_t depth_updates(const struct settings *s, uint64_t from, uint64_t to, int layer);

/* ---- stages ---- */
struct depth_stage {
    int64_t begin, end; /* steps */
    int layers;         /* layers 0 .. layers - 1 run */
    int first;          /* layers first .. layers - 1 learn; 0: and the embeddings */
};
bool depth_stages(const struct settings *s); /* is train.stages given? */
/* The stage of a step; without stages one of all steps and layers. Steps after the last are the
 * last stage's. */
struct depth_stage depth_stage_of(const struct settings *s, uint64_t step);
/* The layers of the model after `steps` finished steps: a stage's layers are there from its first
 * step on. */
int depth_layers_after(const struct settings *s, int64_t steps);
/* Does a stage with more layers begin at this step? */
bool depth_grows(const struct settings *s, uint64_t step);
/* The learning rate's warm-up of a stage, 0 < x <= 1: over train.warmup_steps, from the second
 * stage on (the first has the run's own). */
double depth_warmup(const struct settings *s, uint64_t step);

struct depth_copy { /* elements of every slab */
    size_t to, from, count;
};
/* What the growth at the beginning of a step copies: of the parameters; the moments of `to` become
 * 0. Returns the number of copies, at most table.count; 0: nothing grows. */
size_t depth_growth(const struct settings *s, const struct table *t, uint64_t step,
                    struct depth_copy *copies);
/* The ranges of the slab, in order and with their gaps, whose tensors learn at a step, or, with
 * `learns` false, do not. Returns their number, at most table.count. */
size_t depth_ranges(const struct settings *s, const struct table *t, uint64_t step, bool learns,
                    struct dev_range *ranges);

#endif
