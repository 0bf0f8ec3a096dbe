#ifndef TRAIN_H
#define TRAIN_H
/* The inner loop of one rank: batch, forward and backward, all-reduce, optimizer step, checkpoint, evaluation. It has
 * never heard of another site: whatever happens between steps (an outer exchange, a live display) comes in
 * through one hook.
 */
#include "inner/checkpoint.h"
#include "inner/coll/coll.h"
#include "inner/optim/optim.h"

struct train_report { /* of the step just finished; what displays and records print */
    int64_t step, steps; /* step counts finished steps */
    double loss;         /* mean nats per token over all ranks of this site */
    float norm, lr;
    double step_seconds, compute_seconds, tokens_per_second;
    uint64_t tokens;     /* of this site so far */
};
struct train_eval {
    int64_t step;
    double loss;         /* held-out, nats per token */
    size_t tokens;
};

struct train;

/* Called by every rank after each step, the parameters at rest. May change model_params(); must then call
 * model_params_changed(). The same code path on every rank; only rank 0 may talk to the outside and it broadcasts. */
struct train_hook {
    void *self;
    enum err (*start)(void *self, struct train *t);              /* before the first step, after resume */
    enum err (*step)(void *self, struct train *t, const struct train_report *r);
    enum err (*eval)(void *self, struct train *t, const struct train_eval *e);
    /* Before an inner checkpoint of `step` is written (lead): named parts to add; and after a load. */
    enum err (*saved)(void *self, struct train *t, int64_t step); /* a checkpoint of this step is durable */
};

struct train { /* open for the hook to read */
    const struct settings *settings;
    struct dev *dev;
    struct coll *coll;
    struct table table;
    struct model *model;
    struct optim optim;
    int64_t step;            /* finished steps */
    uint64_t tokens;
    const char *checkpoint_dir;
    uint64_t data_site;      /* which data stream this site draws: part of (seed, site, rank, step) */
    volatile int *stop;      /* set by a signal handler: finish the step, store, return ERR_STOPPED */
    struct train_private *own;
};

/* The start-up memory table: printed before anything is taken; ERR_MEMORY names settings that would fit. */
enum err train_open(struct train *t, const struct settings *s, struct dev *d, struct coll *c, uint64_t data_site,
                    const char *checkpoint_dir, struct arena *perm) MUST;
void train_close(struct train *t);
/* Resumes from the newest checkpoint when there is one. ERR_OK: all steps done; ERR_STOPPED: stopped on request and
 * stored; ERR_DIVERGED: loss or gradient not finite, before any hook saw the step. */
enum err train_run(struct train *t, const struct train_hook *hook) MUST;
enum err train_evaluate(struct train *t, double *loss, size_t *tokens) MUST; /* held-out loss of the current parameters */
enum err train_checkpoint(struct train *t) MUST;                             /* now, durable */

#endif
