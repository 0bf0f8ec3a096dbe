/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROFILE_H
#define PROFILE_H
/* Device time of a step by class of op: events between the ops, each interval of one class. The
 * code that submits ops calls profile_record after them with their class; outside of profiled
 * steps that tests one flag. While profiling is on, passes run op by op (no graphs). Only
 * profile_collect waits for the device. One thread.
 */
#include "kernels/dev.h"

/* X(NAME, "name"), in the order of a step. */
#define PROFILE_CLASSES(X)                                                                         \
    X(GAP, "gap")       /* the device was idle, or busy with other work */                         \
    X(UPLOAD, "upload") /* the batch; gradients set to zero */                                     \
    X(EMBED, "embed")                                                                              \
    X(NORM, "norm") /* with the residual's addition */                                             \
    X(QKV, "qkv")                                                                                  \
    X(ATTENTION, "attention")                                                                      \
    X(PROJ, "proj")                                                                                \
    X(MLP, "mlp")                                                                                  \
    X(CLASSIFIER, "classifier") /* logits, losses and both gradients */                            \
    X(MLP_BWD, "mlp_bwd")                                                                          \
    X(NORM_BWD, "norm_bwd")                                                                        \
    X(PROJ_BWD, "proj_bwd")                                                                        \
    X(ATTENTION_BWD, "attention_bwd")                                                              \
    X(QKV_BWD, "qkv_bwd")                                                                          \
    X(EMBED_BWD, "embed_bwd")                                                                      \
    X(REDUCE, "reduce") /* all-reduce over the ranks, as far as the backward did not hide it */    \
    X(UPDATE, "update") /* gradient norm, clipping, optimizer, bf16 copy of the parameters */

enum profile_class {
#define X(NAME, name) PROFILE_##NAME,
    PROFILE_CLASSES(X)
#undef X
        PROFILE_COUNT
};
const char *profile_name(enum profile_class c);

enum { PROFILE_EVENTS = 4096 };
struct profile {
    struct dev *dev;
    bool on;
    unsigned first, used;             /* events */
    uint8_t interval[PROFILE_EVENTS]; /* class of the ops before event i, i > 0 */
    double seconds[PROFILE_COUNT];    /* sums over the collected steps */
    unsigned calls[PROFILE_COUNT];
    unsigned steps;
    bool full; /* a step had more ops than events: its tail is missing */
};

void profile_open(struct profile *p, struct dev *d);
/* A step begins; on false: profiling ends. */
void profile_begin(struct profile *p, bool on);
/* Accounts the ops since the last call to class c. NULL, or off: does nothing. */
void profile_record(struct profile *p, enum profile_class c);
static inline bool profile_on(const struct profile *p)
{
    return p && p->on;
}
/* Adds the step to the sums; waits for its last event. */
enum err profile_collect(struct profile *p) MUST;

#endif
