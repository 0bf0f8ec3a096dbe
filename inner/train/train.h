#ifndef TRAIN_H
#define TRAIN_H
/* The inner loop of one rank: batch, forward and backward, all-reduce, optimizer step, checkpoint,
 * evaluation. It has never heard of another site: whatever happens between steps (an outer
 * exchange, a live display) comes in through one hook. train.c is the loop, train_state.c what
 * survives the process, train_memory.c the start-up table.
 *
 * On a GPU the host runs ahead: it gives the device the next step's forward and backward before it
 * reads what the last one came to, so the device never waits for a report, a line of a log or a
 * batch. What is waited for, all of it: the step before the last (its batch's buffer is filled
 * again); the last one, before its successor's update; and where the hook, an evaluation or a
 * checkpoint is due, the step itself. Sums over several GPUs are the device's to wait for. Losses
 * are summed on the device; a step whose loss or gradient is not finite changes nothing there, and
 * no step behind it is taken.
 *
 * Everything that a step reads besides parameters and moments (data, learning rate, random numbers)
 * is a pure function of the step, so a checkpoint of those three resumes bit for bit on the same
 * device, library and thread count.
 */
#include "inner/io/checkpoint.h"
#include "inner/coll/reduce.h"
#include "inner/data/objective.h"
#include "inner/optim/optim.h"

struct train_report {    /* of the step just finished; what displays and records print */
    int64_t step, steps; /* step counts finished steps */
    double loss;         /* mean nats per token over all ranks of this site */
    float norm, lr;      /* gradient norm before the clip */
    double step_seconds;
    double compute_seconds; /* forward and backward of this rank */
    double exposed_seconds; /* then it waited for sums of gradients */
    double tokens_per_second;
    uint64_t tokens; /* of this site so far */
};
struct train_eval {
    int64_t step;
    double loss; /* held-out, nats per token */
    size_t tokens;
};
struct train_memory { /* bytes of one rank */
    struct model_memory model;
    size_t moments;     /* with train.zero_stage = 1 one rank's share of them */
    size_t grad_reduce; /* of the reducer (train.grad_reduce_dtype), with several ranks */
    size_t staging;     /* of the lead while it stores or loads moments that are shared out, in host
                           memory; 0 on a GPU, whose memory this table is about */
    size_t collectives; /* of several GPUs: NCCL's buffers, an estimate */
    size_t graphs;      /* of the GPU's graphs, an estimate */
    size_t data;        /* mapped shards: the system may take these pages back */
    size_t total;
};

struct train_tune {          /* train_tune.c's own */
    struct profile *profile; /* NULL: none was asked for */
    unsigned seen;           /* steps begun in this process */
    bool told;
    int64_t steps;   /* of the trial of graphs */
    double least[2]; /* seconds: without, with */
};

struct train;

/* Called by every rank at the same places, the parameters at rest. May change model_params(); must
 * then call model_params_changed(); `step` only where due() says so. The same code path on every
 * rank; only rank 0 may talk to the outside and it broadcasts. All members are given. */
struct train_hook {
    void *self;
    /* Before the first step, after resume. */
    enum err (*start)(void *self, struct train *t);
    /* The gradients of step t->step + 1 are there, the optimizer has not used them. An error gives
     * that step up, the parameters being those of t->step still. Its time is not the step's. */
    enum err (*update)(void *self, struct train *t);
    /* Does step() want the parameters of this very t->step? The same answer on every rank. Where
     * not, it may be called while the gradients of the next step are being made. */
    bool (*due)(void *self, const struct train *t);
    /* Once for each step, in order, t->step being r->step. */
    enum err (*step)(void *self, struct train *t, const struct train_report *r);
    enum err (*eval)(void *self, struct train *t, const struct train_eval *e);
    /* A checkpoint of t->step is about to be written. */
    enum err (*saving)(void *self, struct train *t);
    /* A checkpoint of this step is durable. */
    enum err (*saved)(void *self, struct train *t, int64_t step);
};

struct train { /* open for the hook to read */
    const struct settings *settings;
    struct dev *dev;
    struct coll *coll;
    struct table table;
    struct model *model;
    struct optim optim;
    int64_t step; /* finished steps */
    uint64_t tokens;
    const char *checkpoint_dir;
    uint32_t data_site; /* which data stream this site draws: part of (seed, site, rank, step) */
    /* Set by a signal handler: finish the step, store, return ERR_STOPPED. NULL: none. */
    volatile int *stop;
    struct train_memory memory;
    /* train's own */
    struct loader loader, held_out;
    struct batch batch; /* one micro-batch */
    struct reduce reduce;
    void *reduce_memory; /* device: of the reducer, or NULL */
    size_t micro_sequences;
    bool ahead;        /* the host does not wait for a step before it begins the next; on a GPU */
    bool pending;      /* a step's statistics are on their way to the host */
    size_t free_bytes; /* of the GPU when this was opened */
    double *flags;     /* pinned: this rank's STEP_TARGETS and STEP_STOP, to the device */
    double *stats;     /* pinned: (STEP_STATS) of the last step, from the device */
    struct train_tune tune;
    unsigned marks;     /* of the step that runs and of the one before, by turns */
    char *pinned;       /* canonical settings that a resumed run must share */
    int64_t saved_step; /* of the newest checkpoint, -1: none */
};

/* Tokens of one micro-batch of one of `ranks` ranks. */
size_t train_micro_batch_tokens(const struct settings *s, int ranks);
/* What one rank will hold; `data` is 0 until shards are open. */
struct train_memory train_plan(const struct settings *s, const struct table *t,
                               enum dtype model_type, int ranks);
size_t train_memory_left(void); /* bytes that this machine has left for this process */
/* The rows of the table in the order in which they are told; total comes last. */
struct train_memory_row {
    const char *name, *what; /* for the log, for people */
    size_t bytes;
};
enum { TRAIN_MEMORY_ROWS = 14 };
void train_memory_rows(const struct train_memory *m,
                       struct train_memory_row rows[TRAIN_MEMORY_ROWS]);
/* Logs the table (ev=memory), compares it with what the machine has left: ERR_MEMORY names settings
 * that would fit. */
enum err train_memory_check(const struct train *t) MUST;
/* Logs what was planned beside what was taken (ev=memory_used): on a GPU what this process took
 * through the device, and by how much the GPU's free memory went down since train_open, whoever
 * took it; on a CPU the process's largest resident set. */
void train_memory_used(const struct train *t);

/* `s` must have passed keys_check. ERR_CONFIG: the batch does not divide among the ranks.
 * Parameters are not set yet. */
enum err train_open(struct train *t, const struct settings *s, struct dev *d, struct coll *c,
                    uint32_t data_site, const char *checkpoint_dir, struct arena *perm) MUST;
void train_close(struct train *t); /* a zeroed or partly opened one is fine */
/* Resumes from the newest checkpoint when there is one, else starts from the seed. ERR_OK: all
 * steps done and stored; ERR_STOPPED: stopped on request and stored; ERR_DIVERGED: loss or gradient
 * not finite, the parameters being those of t->step, the last step that hook->step saw; on all
 * ranks alike. Any other error may be this rank's alone: the caller ends the job with coll_abort.
 * hook may be NULL. */
enum err train_run(struct train *t, const struct train_hook *hook) MUST;
/* Held-out loss of the current parameters; tokens 0 when there is no held-out text. All ranks call.
 */
enum err train_evaluate(struct train *t, double *loss, size_t *tokens) MUST;
/* Now, durable; all ranks call. Not between a backward and its step, unless that is given up: the
 * slab of gradients may be used. */
enum err train_checkpoint(struct train *t) MUST;
/* Parameters, moments and step from the newest checkpoint, or from the seed. All ranks call;
 * train_run does it first. */
enum err train_resume(struct train *t) MUST;
/* Stores a checkpoint of step 0 with these parameters (host slab) and empty moments, for a run to
 * start from. ERR_CONFIG: the directory holds checkpoints already. */
enum err train_begin_from(const struct settings *s, const struct table *t,
                          const float *const slabs[3], const char *dir, struct arena *a) MUST;

#endif
