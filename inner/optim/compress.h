/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMPRESS_H
#define COMPRESS_H
/* Interface of train.compress: in which steps the ranks of a site sum their gradients in full, and
 * what a step does in place of the optimizer's own. A method is a row of COMPRESS_LIST
 * (inner/config/keys.h) and a file, compress_NAME in inner/optim/NAME.c. It keeps one
 * struct squeeze (inner/coll/squeeze.h), whose errors are part of the checkpoint while the number
 * of ranks stays the same.
 */

#include "inner/coll/squeeze.h"
#include "inner/config/keys.h"

struct optim;
struct table;
struct compress_method {
    /* Whether the gradients of a step are summed over the ranks, in full, before it; if not they
     * stay on their rank. Pure. */
    bool (*sums)(const struct settings *s, int64_t step);
    /* Steps that change the second moment, of the first `steps`; NULL: all. Pure. */
    int64_t (*second)(const struct settings *s, int64_t steps);
    /* NULL, or the steps in which the ranks send no slab, unless optim.together. Pure. */
    bool (*rests)(const struct settings *s, int64_t step);
    bool one_scale; /* one scale for the slab instead of one for each tensor */
    /* Further state, equal on all ranks and in checkpoints: a slab; numbers in host memory, for so
     * many parts (NULL: none), with which the step reads sums of each part on the host. */
    bool slab;
    size_t (*numbers)(size_t parts);
    /* NULL: the method sends signs with inner/coll/squeeze.h. Device memory, in addition to that of
     * all methods; opens it. */
    size_t (*plan)(const struct settings *s, const struct table *t, int ranks);
    enum err (*open)(struct optim *o, const struct table *t, struct arena *perm);
    /* NULL, or in steps that do not sum: this rank's gradients become the site's, before the
     * clip. */
    enum err (*reduce)(struct optim *o, float *grads);
    /* A step: optim_method.step in steps that sum, or its own. All ranks call. */
    enum err (*step)(struct optim *o, const struct dev_optim *a, int64_t step);
};
struct compress_kept { /* of one rank */
    float *slab;       /* device, (elements of the table), or NULL */
    float *host;       /* (host_count), or NULL; with the rest: */
    size_t host_count;
    double *sums;                /* host: (OPT_SUMS, parts) as compress_read_sums found them */
    float *ratios, *ratios_host; /* (parts) device and host: of range_moments */
    float *rates;                /* (parts) of the groups, relative to the setting */
    struct dev_range *ranges;    /* device, (parts) */
    struct opt_scalars scalars;  /* of the running step */
    float *own[2];               /* device, (elements): this rank's errors, in its checkpoint */
    void *work, *buffers[2];     /* of the method: in host and device memory */
    struct squeeze squeeze;      /* of methods that send signs; else all 0 */
    bool apart;                  /* the ranks' parameters differ since the last step */
};
#define X(name, ...) extern const struct compress_method compress_##name;
COMPRESS_LIST(X)
COMPRESS_ANY_LIST(X)
#undef X

/* NULL: train.compress = none. */
const struct compress_method *compress_of(const struct settings *s);
/* As compress_method.sums; true without compression. */
bool compress_sums(const struct settings *s, int64_t step);
/* As compress_method.rests; false without compression. */
bool compress_rests(const struct settings *s, int64_t step);
/* Whether a step's gradients are this rank's alone when the optimizer clips them. */
bool compress_local(const struct settings *s, int64_t step);
/* After the backward pass of a step: compress_method.reduce, where it applies. */
enum err compress_reduce(struct optim *o, float *grads, int64_t step) MUST;
/* As compress_method.second; all steps without compression. */
int64_t compress_second(const struct settings *s, int64_t steps);
/* Device memory of a rank. */
size_t compress_plan(const struct settings *s, const struct table *t, int ranks);
enum err compress_open(struct optim *o, const struct table *t, struct arena *perm) MUST;
void compress_close(struct optim *o);
/* Of methods with numbers: waits for the device, and copies the sums and the ratios to the host. */
enum err compress_read_sums(struct optim *o) MUST;
/* Of methods that change the groups in a step: waits until the host may write it; copies it to
 * the device. */
enum err compress_wait_groups(struct optim *o) MUST;
void compress_put_groups(struct optim *o);
/* ERR_MISMATCH: the steps in `dir` ran with the settings `before`; with the train.steps of `s` the
 * freeze would have begun at another step. */
enum err compress_lengthened(const struct settings *before, const struct settings *s,
                             const char *dir) MUST;
/* train.compress_start as a number of steps. */
int64_t compress_freeze_steps(const struct settings *s);
/* compress_method.second of methods whose first steps all change it: up to the freeze. */
int64_t compress_until_freeze(const struct settings *s, int64_t steps);
/* compress_method.open of methods without one of their own: the squeeze. */
enum err compress_open_signs(struct optim *o, const struct table *t, struct arena *perm) MUST;

#endif
