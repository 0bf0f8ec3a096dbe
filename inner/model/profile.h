#ifndef PROFILE_H
#define PROFILE_H
/* Where the device's time goes in a step: marks between the ops, each interval of one class.
 * Whoever gives the device work says afterwards of which class it was; outside of profiled steps
 * that is a test of a flag. Passes run op by op while it is on (no graphs). It waits for nothing
 * itself: profile_take does, behind the last step. One thread.
 */
#include "kernels/dev.h"

/* X(NAME, "name", pass). In the order in which a step meets them. */
#define PROFILE_CLASSES(X)                                                                         \
    X(GAP, "gap")       /* the device had nothing to do, or was busy with another's work */        \
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
    X(REDUCE, "reduce") /* waiting for sums over the ranks: what the backward did not hide */      \
    X(UPDATE, "update") /* norm, clip, optimizer, the parameters' copy */

enum profile_class {
#define X(NAME, name) PROFILE_##NAME,
    PROFILE_CLASSES(X)
#undef X
        PROFILE_COUNT
};
const char *profile_name(enum profile_class c);

enum { PROFILE_MARKS = 4096 };
struct profile {
    struct dev *dev;
    bool on;
    unsigned first, used;            /* marks */
    uint8_t interval[PROFILE_MARKS]; /* class of what lies in front of mark i, i > 0 */
    double seconds[PROFILE_COUNT];   /* sums of the steps taken so far */
    unsigned calls[PROFILE_COUNT];
    unsigned steps;
    bool full; /* a step had more ops than there are marks: its tail is missing */
};

void profile_open(struct profile *p, struct dev *d);
/* A step begins, or the profile ends (on false). */
void profile_begin(struct profile *p, bool on);
/* What the device was given since the call before is of this class. NULL, or off: nothing. */
void profile_mark(struct profile *p, enum profile_class c);
static inline bool profile_on(const struct profile *p)
{
    return p && p->on;
}
/* Adds the step to the sums; waits for its last mark. */
enum err profile_take(struct profile *p) MUST;

#endif
