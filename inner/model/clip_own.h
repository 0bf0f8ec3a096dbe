/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLIP_OWN_H
#define CLIP_OWN_H
/* What the two ways of clipping share. Private to clip*.c. */
#include "inner/model/clip.h"
#include "inner/model/model_own.h"

struct clip {
    struct clip_options o;
    struct model *m;
    struct dev *dev;
    struct batch own;    /* sequences taken out of the caller's batch */
    struct clip_cut cut; /* of the running call, with targets and labels */
    size_t *first;       /* (sequences_max + 1): of `cut`, where each sequence is a record */
    double *norms;       /* (sequences_max) of the records */
    size_t *targets;     /* (sequences_max) token targets of a record */
    size_t *labels;      /* (sequences_max) labels of a record */
    double *loss;        /* (MODEL_LOSSES): written by passes, and not read */
    float *sum;          /* slow: (elements) the clipped sum */
    struct ghost *ghost;
};

/* Weights of a record's losses in its gradient: of each token, and of each label. */
static inline float clip_token_weight(const struct clip *c, size_t record)
{
    return c->targets[record] ? 1.0f / (float)c->targets[record] : 0;
}
static inline float clip_label_weight(const struct clip *c, size_t record)
{
    return c->labels[record] ? 1.0f / (float)c->labels[record] : 0;
}
/* min(1, C / norm); 0 for a norm that is not finite. */
double clip_factor(const struct clip *c, double norm);

size_t clip_slow_plan(const struct settings *s, const struct table *t,
                      const struct clip_options *o);
enum err clip_slow_open(struct clip *c, struct arena *perm) MUST;
enum err clip_slow(struct clip *c, const struct batch *b) MUST;
void clip_slow_close(struct clip *c);

enum err clip_ghost_open(struct clip *c, struct arena *perm) MUST;
enum err clip_ghost(struct clip *c, const struct batch *b) MUST;
void clip_ghost_close(struct clip *c);
size_t clip_ghost_plan(const struct settings *s, const struct table *t,
                       const struct clip_options *o);

#endif
