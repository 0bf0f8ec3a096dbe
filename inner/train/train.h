/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_H
#define TRAIN_H
/* The inner loop of one rank: batch, forward and backward, all-reduce, optimizer step, checkpoint,
 * evaluation. It knows no other site: an outer exchange or a live display between steps comes in
 * through one hook. train.c is the loop, train_state.c the checkpoints, train_memory.c the memory
 * table.
 *
 * On a GPU the host runs ahead: it submits the next step's forward and backward before it reads the
 * last step's statistics, so the device never waits for a report, the log or a batch. The host
 * waits only for: the step before the last, whose batch buffer it reuses; the last step, before the
 * update of the next; and the step itself where the hook, an evaluation or a checkpoint is due. The
 * device, not the host, waits for sums over several GPUs. Losses are summed on the device. A step
 * whose loss or gradient is not finite changes nothing there, and no later step is run.
 *
 * Everything else that a step reads (data, learning rate, random numbers) is a pure function of the
 * step, so a checkpoint of parameters, moments and step resumes bit for bit on the same device,
 * library and thread count.
 */
#include <stdatomic.h>
#include "inner/io/checkpoint.h"
#include "inner/coll/reduce.h"
#include "inner/data/objective.h"
#include "inner/optim/optim.h"
#include "inner/eval/evaluate.h"
#include "inner/methods/methods.h"
#include "inner/train/private.h"
#include "inner/train/start.h"
#include "inner/train/work.h"

struct train_report {    /* of the step just finished, for displays and records */
    int64_t step, steps; /* step counts finished steps */
    double loss;         /* mean nats per token over all ranks of this site */
    bool hidden;         /* privacy.unit: losses of training are the site's secret, and NaN */
    /* Figures of the methods (inner/methods); losses that are not part of `loss`, and the terms of
     * `loss` where it has several (inner/model/loss.h). */
    struct figures figures;
    float norm, lr; /* gradient norm before clipping */
    double step_seconds;
    double compute_seconds;   /* forward and backward of this rank */
    double exposed_seconds;   /* all-reduce that the backward did not hide */
    double tokens_per_second; /* of the sequences: neither slots nor what fills a batch up */
    uint64_t tokens;          /* of this site so far: steps x train.batch_tokens */
    double inner_up;          /* payload bytes that this rank sent for the step (coll_count.c) */
    bool compressed;          /* train.compress is given: */
    bool summed;              /* the ranks summed a slab; false: a local step */
};
struct train_eval {
    int64_t step;
    double loss;   /* held-out, nats per token; with labels per sequence; with pairs their sum */
    size_t tokens; /* targets that the loss is a mean of; 0: no held-out text */
    struct figures scores; /* evaluate_scores */
    /* With train.eval_attention the largest attention logit of each layer; -INFINITY: the layer has
     * not run. */
    size_t layers;
    double attention[KEYS_LAYERS_MAX];
};
struct train_memory { /* bytes of one rank */
    struct model_memory model;
    size_t moments;     /* with train.zero_stage = 1 one rank's share of them */
    size_t update;      /* what a step of the optimizer works in */
    size_t modules;     /* with train.modules: what passes between them, and earlier parameters */
    size_t clipping;    /* with privacy.unit */
    size_t grad_reduce; /* reducer, and what train.compress keeps */
    size_t reducer;     /* of the reducer (train.grad_reduce_dtype), with several ranks */
    size_t staging;     /* pieces of a checkpoint (train_stream.h) */
    size_t collectives; /* of several ranks: buffers of NCCL or MPI, an estimate */
    size_t graphs;      /* of the GPU's graphs, an estimate */
    size_t data;        /* mapped shards: the system may take these pages back */
    size_t total;
    enum err failed; /* no memory to plan in: total is SIZE_MAX */
};

struct train;

/* Called by every rank at the same places, while no update runs. May change parameters
 * (model_gather) and must then call model_params_changed(); `step` may do so only where due()
 * returned true. The same code path on every rank; only rank 0 may communicate with the outside,
 * and it broadcasts. No member is NULL. */
struct train_hook {
    void *self;
    /* Before the first step, after resume. */
    enum err (*start)(void *self, struct train *t);
    /* The gradients of step t->step + 1 are final, the optimizer has not used them. An error
     * discards that step; the parameters are still those of t->step. Its time does not count as the
     * step's. */
    enum err (*update)(void *self, struct train *t);
    /* Whether step() needs the parameters of exactly `step`, which is t->step or the next; equal on
     * all ranks. If not, step() may be called while the gradients of the next step are being
     * computed, and with train.compress = zeroone the ranks' parameters may differ. */
    bool (*due)(void *self, const struct train *t, int64_t step);
    /* Once for each step, in order; t->step == r->step. */
    enum err (*step)(void *self, struct train *t, const struct train_report *r);
    enum err (*eval)(void *self, struct train *t, const struct train_eval *e);
    /* A checkpoint of t->step is about to be written. */
    enum err (*saving)(void *self, struct train *t);
    /* A checkpoint of t->step is durable. */
    enum err (*saved)(void *self, struct train *t);
};

/* Who keeps the site's privacy budget; called by the lead. No member is NULL. */
struct train_budget {
    void *self;
    /* After resume, before the first step: a charge as every step of this run will make it, but for
     * its step and tag. *noise: privacy.noise_multiplier; 0: the multiplier is to be set. */
    enum err (*begin)(void *self, const struct private_charge *c, double *noise);
    const char *program; /* its version: from another one a sum may differ in its last bits */
    /* Steps of this site that the run knows of, outside of its directory; 0: none. */
    uint64_t (*known)(void *self);
    /* Steps that are not on the list: c, as the next step is charged, becomes the dearest that the
     * site can have charged them at. */
    enum err (*dearest)(void *self, struct private_charge *c, uint64_t missing);
    /* Before a charge is written, and not for one that the site's file holds already: a step that
     * is repeated after a crash. charged: steps of the file. ERR_BUDGET refuses the step, such as
     * one beyond the site's cap: no record is read, a checkpoint of the steps so far is stored, and
     * train_run returns ERR_BUDGET. Any other error ends the run as any failure does. */
    enum err (*may_charge)(void *self, const struct private_charge *c, int64_t charged);
};

/* The parts of struct train, each written by one file. */
struct train_given { /* train.c: by the caller, at open or before train_run */
    const char *checkpoint_dir;
    uint32_t data_site; /* data stream of this site: part of (seed, site, rank, step) */
    /* Set by a signal handler: finish the step, store, return ERR_STOPPED. NULL: none. */
    atomic_int *stop;
    const struct train_budget *budget; /* with privacy.unit; NULL: no cap */
    /* A restart whose data.train is the same but finds other files: an error; false: a warning. */
    bool text_fixed;
};
struct train_data {        /* train.c */
    struct loader *loader; /* of the training text */
    struct batch *batch;   /* one micro-batch */
    struct loader held_out;
    struct evaluate_sums evaluation; /* with held-out text */
    size_t micro_sequences;
};
struct train_running {       /* train.c: the loop */
    double inner_up;         /* of the last step */
    bool ahead;              /* the host runs ahead of the device: on a GPU */
    bool pending;            /* the last step's statistics have not been read */
    double *flags;           /* pinned: this rank's STEP_TARGETS .. STEP_STOP, to the device */
    double *stats;           /* pinned: (STEP_STATS) of the last step, from the device */
    unsigned events;         /* of the step that runs and of the one before, by turns */
    size_t free_bytes;       /* of the GPU when this was opened */
    struct train_tune *tune; /* train_tune.c */
};
struct train_parallel;
struct train_division { /* how the ranks divide a step: train_parallel.h. The functions of `how`
                           write the other members */
    const struct train_parallel *how;
    void *state;
    struct grad_reduce *reduce; /* sums of gradients over the ranks; NULL: there are none */
};
struct train_saved {            /* train_state.c */
    struct mixture_phase phase; /* as loaded, or stored last */
    char *pinned;               /* canonical settings that a resumed run must share */
    int64_t step;               /* of the newest checkpoint, -1: none */
    void *piece; /* device: room for the pieces of checkpoints, kept from the first */
};
/* Which file writes which member of these structs:
 * train.c: settings, dev, coll, table, model, optim, step, tokens, memory, given, data, division,
 *     running, methods, how
 * train_batch.c: state, reduce
 * train_errors.c: none
 * train_memory.c: moments, update, grad_reduce, reducer, staging, collectives, graphs, total,
 *     failed
 * train_modules.c: state, modules
 * train_private.c: state, reduce, clipping
 * train_state.c: step, tokens, saved, phase, pinned
 * train_stream.c: none
 * train_tune.c: none
 */
struct train { /* open for the hook to read */
    const struct settings *settings;
    struct dev *dev;
    struct coll *coll;
    struct table table;
    struct model *model;
    struct optim *optim;
    int64_t step; /* finished steps */
    uint64_t tokens;
    struct train_memory memory;
    struct train_given given;
    struct train_data data;
    struct train_division division;
    struct train_running running;
    struct train_saved saved;
    struct methods methods;
};
/* Before train_run. `stop`, `budget` and `fixed`: struct train_given. */
void train_stop_by(struct train *t, atomic_int *stop);
void train_charge_to(struct train *t, const struct train_budget *budget);
void train_fix_text(struct train *t, bool fixed);

/* Of the training text, for one of the ranks that divide the batch. */
struct loader_options train_loader_options(const struct settings *s, uint32_t data_site,
                                           uint32_t rank, uint32_t ranks);
/* Tokens of one micro-batch of one of `ranks` ranks. */
size_t train_micro_batch_tokens(const struct settings *s, int ranks);
/* Planned memory of one rank; `data` is 0 until shards are open. */
struct train_memory train_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, int ranks);
size_t train_memory_left(void); /* bytes available to this process on this machine */
/* The rows of the table in the order of the log; total comes last. */
struct train_memory_row {
    const char *name, *what; /* for the log, for people */
    size_t bytes;
};
enum { TRAIN_MEMORY_ROWS = 17 };
void train_memory_rows(const struct train_memory *m,
                       struct train_memory_row rows[TRAIN_MEMORY_ROWS]);
/* Logs the table (ev=memory) and compares it with the available memory: ERR_MEMORY names settings
 * that fit. */
enum err train_memory_check(const struct train *t) MUST;
/* Logs planned and used memory (ev=memory_used): on a GPU the bytes allocated through the device,
 * and the decrease of the GPU's free memory since train_open, by all processes; on a CPU the
 * largest resident set of the process. */
void train_memory_used(const struct train *t);

/* With train.profile: seconds of this rank by class, summed over the profiled steps so far, and the
 * counted work of one of them. Returns their number; the steps since the last call of
 * tune_profile_step are not in it. */
struct train_class {
    double seconds;
    struct work work;
};
unsigned train_profiled(const struct train *t, struct train_class out[PROFILE_COUNT]);

/* `s` must have passed keys_check. ERR_CONFIG: the batch does not divide among the ranks.
 * Parameters are not set yet. */
struct train_options { /* borrowed for train's life */
    const struct settings *settings;
    struct dev *dev;
    struct coll *coll;
    uint32_t data_site;         /* see struct train_given */
    const char *checkpoint_dir; /* created when missing */
};
enum err train_open(struct train *t, const struct train_options *o, struct arena *perm) MUST;
void train_close(struct train *t); /* a zeroed or partly opened one is fine */
/* Resumes from the newest checkpoint when there is one, else starts from the seed. ERR_OK: all
 * steps done and stored; ERR_STOPPED: stopped on request and stored; ERR_DIVERGED: loss or gradient
 * not finite, the parameters being those of t->step, the last step that hook->step saw; on all
 * ranks alike. ERR_BUDGET: the steps before the one that was refused are done and stored; on
 * all ranks alike. Any other error may be this rank's alone: the caller ends the job with
 * coll_abort. hook may be NULL. */
enum err train_run(struct train *t, const struct train_hook *hook) MUST;
/* Held-out loss and scores of the current parameters. All ranks call. */
enum err train_evaluate(struct train *t, struct train_eval *e) MUST;
/* The parameters of all modules at every rank (train.modules); else nothing. All ranks call. */
enum err train_gather(struct train *t) MUST;
/* With privacy.unit: the records of data.train, as a run of these settings counts them. */
enum err train_records(uint64_t *records, const struct settings *s, uint32_t data_site) MUST;
/* Steps on the site's list of charges; 0: without privacy.unit. */
uint64_t train_charged(const struct train *t);
struct digest train_private_id(const struct train *t); /* private.h, private_run_id */
/* Durable on return; all ranks call. Not between a backward and its update, unless the gradients
 * are discarded: their slab serves as a buffer. */
enum err train_checkpoint(struct train *t) MUST;
/* Parameters, moments and step from the newest checkpoint, or from the seed. All ranks call;
 * train_run does it first. */
enum err train_resume(struct train *t) MUST;
/* Stores a checkpoint of step 0 for a run to start from: parameters, then moments, in pieces.
 * ERR_CONFIG: the directory holds checkpoints already. */
enum err train_begin_from(const struct settings *s, const struct table *t, const struct start *from,
                          const char *dir, struct arena *a) MUST;

#endif
