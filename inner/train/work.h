/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WORK_H
#define WORK_H
/* Floating-point operations and device memory traffic of a training step for each class of the
 * profile, counted from the table of tensors, and a lower bound of their time. Lower bounds, not a
 * model of the kernels: every operand is read or written once.
 */
#include "inner/model/profile.h"
#include "inner/model/table.h"

struct work {
    double flop, bytes;
};
struct work_step {
    size_t targets;       /* of the tokens; 0: all of them */
    size_t tokens, micro; /* of one rank: in a step, in a micro-batch */
    double sequence;      /* tokens of the sequence that a token is of, in the mean over tokens; 0:
                             train.seq_len */
    enum dtype type;
    double update_share; /* of the parameters that this rank updates: 1, or 1 / ranks with
                            train.zero_stage */
};
struct work work_of(const struct settings *s, const struct table *t, const struct work_step *w,
                    enum profile_class c);

/* Peak rates of a device; 0: not known, then work_seconds ignores that bound. */
struct work_peak {
    double flop, bytes; /* per second */
};
/* H100 and H200: 989 TFLOP/s dense bf16 (data sheet), 4.3 TB/s as copied on an H200. */
struct work_peak work_peak_h200(void);
double work_seconds(const struct work *w, const struct work_peak *p);

#endif
