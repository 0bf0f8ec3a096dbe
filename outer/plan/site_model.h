/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_MODEL_H
#define SITE_MODEL_H
/* Step time and memory of the ranks of one site, predicted: the roofline of the counted operations
 * (inner/train/work.h) with the utilisation that was measured for each class, the collectives
 * (ranks_link.h), and what of them the backward pass does not hide (Kundu et al. 2024, 2407.14645;
 * Fernandez et al. 2024, 2411.13055). Memory is the start-up table's own function. Pure.
 */
#include "inner/train/train.h"
#include "inner/train/work.h"
#include "outer/plan/ranks_link.h"

enum { SITE_MODEL_POINTS_MAX = 256 };
struct site_point { /* a class of ops in a measured step */
    enum profile_class class;
    double width; /* of the model */
    double flop, bytes, seconds;
};
struct site_machine { /* a rank's machine */
    struct work_peak peak;
    unsigned count; /* points; 0: `utilisation` of the roofline counts for all classes */
    struct site_point points[SITE_MODEL_POINTS_MAX];
    double utilisation;
    struct ranks_link link;
    double overlap; /* share of a collective's speed while the backward pass runs: 1 on a GPU */
    enum dtype type;
    double memory_bytes; /* that a rank may use; 0: not known */
};
struct site_step {    /* of the whole site, one step */
    double micro_s;   /* forward and backward of a micro-batch on a rank */
    double update_s;  /* optimizer */
    double sums_s;    /* collectives of the gradients, alone */
    double exposed_s; /* what of sums_s the backward of the last micro-batch does not hide */
    double gather_s; /* never hidden: parameters to all ranks (train.zero_stage), and the compressed
                        sums after train.compress_start */
    double step_s;
    double tokens_s;  /* of the site */
    double mfu;       /* operations of the model, without recomputation, over ranks x peak */
    double sum_bytes; /* summed in one step, in the mean of the run's steps */
    int accumulate;   /* A: micro-batches of a rank in a step */
    struct train_memory memory;
    bool fits; /* in SITE_MODEL_MEMORY of the memory of a rank */
};
#define SITE_MODEL_MEMORY      0.92 /* of a rank's memory that a plan may use */
#define SITE_MODEL_EXPOSED     0.05 /* of a step: most that A leaves exposed (2008.00177) */
#define SITE_MODEL_UTILISATION 0.5  /* of the roofline, before anything is measured */

/* The work of a class; of the gap, the bytes of the batch that the host fills. */
struct work site_model_work(const struct settings *s, const struct table *t,
                            const struct work_step *w, enum profile_class c);
/* Measured utilisation of a class: interpolated in the logarithm of the width. */
double site_model_utilisation(const struct site_machine *m, enum profile_class c, double width);
struct site_compute {                        /* of one micro-batch, without the sums over ranks */
    double all_s, head_s, layers_s, embed_s; /* head, layers, embed: of the backward */
    double flop;                             /* of the model, without recomputation */
};
struct site_compute site_model_compute(const struct settings *s, const struct table *t,
                                       const struct site_machine *m, int ranks);
/* With the computation of the same micro-batch and recomputation. */
void site_model_step_of(struct site_step *out, const struct site_compute *b,
                        const struct settings *s, const struct table *t,
                        const struct site_machine *m, int ranks);
/* train.batch_tokens is shared among the ranks. ranks must divide it into whole sequences. */
void site_model_step(struct site_step *out, const struct settings *s, const struct table *t,
                     const struct site_machine *m, int ranks);
/* The smallest A, micro-batches before one exchange, whose exposed communication is at most
 * SITE_MODEL_EXPOSED of the step (Lin et al. 2020, 2008.00177). */
int site_model_accumulate(const struct site_step *s);
/* The share of the backward pass's time in which a collective advances, from a measured exposed
 * time: what makes exposed_s of site_model_step equal to it. */
double site_model_overlap(const struct settings *s, const struct table *t,
                          const struct site_machine *m, int ranks, double exposed_s);

#endif
