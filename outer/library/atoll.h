/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ATOLL_H
#define ATOLL_H
/* libatoll: takes part in a run as one site, with any trainer. Every outer.sync_every steps the
 * site's parameters are exchanged with the other sites of the run over mutual TLS, and the outer
 * step merges them (DiLoCo, arXiv 2311.08105; Streaming DiLoCo, 2501.18512). The trainer owns
 * model, data and inner optimizer; libatoll owns connection, outer state, files of the exchange and
 * recovery. `atoll train` opens the same parts.
 *
 *     struct atoll *run;
 *     int64_t step = 0;                            // or that of the checkpoint that was loaded
 *     if (atoll_open(&run, &options) || atoll_start(run, &step))
 *         fail(atoll_error());
 *     while (step < atoll_steps(run)) {
 *         train_one_step();
 *         step++;
 *         if (atoll_step(run, &step, &report))     // may wait, and may change the parameters
 *             fail(atoll_error());
 *     }
 *     return atoll_close(run);
 *
 * Results: every function that returns int returns 0, or the exit code that the program `atoll`
 * ends with for the same error (`atoll --help` lists them). atoll_error() is the sentence that
 * belongs to it: what is wrong, where, what to do. After an error but ATOLL_STOPPED the handle is
 * good for atoll_close only.
 *
 * Threads: one thread at a time uses a handle; atoll_stop may be called from any thread and from a
 * signal handler. Several handles, of several sites or runs, may be open. A child of fork() must
 * not touch a handle of its parent. Within the process libatoll installs no signal handler, prints
 * nothing (see `log`) and does not end it, but for a failed assertion about its own state.
 *
 * Files: run.dir of the configuration is the site's directory; a second process that uses it is
 * refused. What was sent is durable there before it is sent: after kill -9 the same program
 * continues from its newest checkpoint, and a run in strict mode (outer.mode) ends with the same
 * bits.
 */
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { ATOLL_OK = 0, ATOLL_STOPPED = 75 };
enum atoll_dtype { ATOLL_F32 = 0, ATOLL_BF16 = 1 };
enum { ATOLL_DIMS_MAX = 8 };

/* One tensor of the trainer. The list is the run's table of tensors: for a model that Atoll has
 * (model.* of the configuration), its tensors in their order; for another one that of
 * model.tensors. atoll_tensors() lists it. The first one that differs in name or size is an error.
 */
struct atoll_tensor {
    const char *name;
    int32_t dims, dtype; /* enum atoll_dtype */
    int64_t shape[ATOLL_DIMS_MAX];
    void *data; /* host memory: the values, row-major, without gaps. The caller's; read in
                   atoll_step, written in atoll_start, atoll_step and atoll_outer. NULL: read and
                   write of the options are called in its place */
};
/* In: how to open. Zero it first; what is added later is 0 in a program compiled before. */
struct atoll_options {
    size_t size;        /* sizeof(struct atoll_options) */
    const char *config; /* path of the run's configuration; NULL: config_text alone */
    const char *config_text;
    const char *const *settings; /* "site.name=b": in place of what the configuration has */
    size_t setting_count;
    const struct atoll_tensor *tensors; /* read in atoll_open; `data` stays in use */
    size_t tensor_count;
    /* Values first .. first + count of a tensor, f32 for any dtype, from and to where the
     * trainer has them. Any result but 0 ends the call with exit code 1. May be NULL where every
     * tensor has `data`. */
    int (*read)(void *self, size_t tensor, size_t first, size_t count, float *values);
    int (*write)(void *self, size_t tensor, size_t first, size_t count, const float *values);
    /* Several ranks, each with all parameters (data-parallel) or with shards of them. All of them
     * open the same configuration and make the same calls at the same steps; rank 0 alone talks to
     * the outside and needs the site's certificate. read and write are called on every rank, in the
     * same order and for the same values, so read may be a collective: what it delivers counts on
     * rank 0. broadcast: `bytes` of rank 0 to all; the result as above. One rank: ranks 0 or 1,
     * broadcast NULL. */
    int32_t rank, ranks;
    int (*broadcast)(void *self, void *bytes, size_t count);
    /* What libatoll has to say: one line, logfmt; level 0 debug .. 4 error. From several threads.
     * One log for the process: that of the last handle that was opened with one. NULL: nothing. */
    void (*log)(void *self, int level, const char *line);
    void *self; /* first argument of all callbacks */
};
struct atoll_report { /* of the step just done, for the live views; a trainer's own figures */
    size_t size;      /* sizeof(struct atoll_report) */
    double loss, tokens_per_second; /* NaN: not known */
};
struct atoll_status {
    size_t size; /* sizeof(struct atoll_status), set by the caller */
    int64_t step, steps;
    uint64_t rounds, rounds_all;   /* committed at this site by this process; of the run */
    uint64_t up_bytes, down_bytes; /* payload of these rounds */
    double waited_s;               /* that atoll_step kept the trainer waiting */
    double flight_s;          /* of the last round: from the send until its commit was adopted */
    uint32_t included, sites; /* in the last round */
};

/* Where a tensor of a Hugging Face model lies in one of the run's: rows first .. first + rows of it
 * are the tensor, or its transpose. The names are those of `atoll export`. */
struct atoll_place {
    const char *name;
    int64_t first, rows;
    int32_t transposed;
};

struct atoll; /* one site */

const char *atoll_version(void);
/* Calls `each` with every tensor of the run, in order; data is NULL. places: of a model of a family
 * that Hugging Face has, [count]; else none. Any result but 0 of `each` ends it. Needs config or
 * config_text of the options, and the settings. */
int atoll_tensors(const struct atoll_options *o, void *self,
                  int (*each)(void *self, const struct atoll_tensor *t,
                              const struct atoll_place *places, size_t count));
/* Reads the configuration, checks the tensors, opens run.dir; makes no connection yet. *run NULL on
 * an error. What the library cannot do of the configuration is refused by the name of its key. */
int atoll_open(struct atoll **run, const struct atoll_options *o);
/* Before the first step. *step: 0, or that of the checkpoint whose parameters are in place. At 0
 * the parameters become those that the run starts from. Joins the run, catches up, and makes the
 * rounds that are due at this step; *step becomes the step to continue from, which is a later one
 * where the run continued without this site. */
int atoll_start(struct atoll *run, int64_t *step);
/* train.steps, as an operator has amended it so far. */
int64_t atoll_steps(const struct atoll *run);
/* Is there anything to do for atoll_step after `step`, the current one or the next? A trainer on a
 * GPU need not wait for the device where there is not. */
int atoll_due(const struct atoll *run, int64_t step);
/* After each step, or after those that are due. Sends, waits, merges as the configuration says; the
 * parameters may change. ATOLL_STOPPED: asked to stop while waiting. The trainer saves a checkpoint
 * of *step, between atoll_saving and atoll_saved, and closes; what was trained is not lost. */
int atoll_step(struct atoll *run, int64_t *step, const struct atoll_report *report);
/* Before the trainer writes a checkpoint of `step`: waits until the rounds of its steps are
 * durable.
 */
int atoll_saving(struct atoll *run, int64_t step);
/* A checkpoint is durable; `oldest`: the step of the oldest one that is kept. Outer states from
 * before it are removed. */
int atoll_saved(struct atoll *run, int64_t oldest);
/* The outer parameters of `step` take the place of the trainer's, which the caller puts back:
 * to evaluate or to export what all sites share. */
int atoll_outer(struct atoll *run, int64_t step);
int atoll_status(struct atoll *run, struct atoll_status *out);
/* SHA-256 of the outer state, as hexadecimal digits and a NUL: equal at every site and at the
 * aggregator after the same rounds. Rank 0; "" on the others. While no round is in flight. */
int atoll_digest(struct atoll *run, char hex[65]);
/* Any wait of this handle ends soon, with ATOLL_STOPPED. */
void atoll_stop(struct atoll *run);
/* Leaves the run and frees the handle; NULL is fine. 6: all steps are done, and some site's last
 * work is missing in the outer state. */
int atoll_close(struct atoll *run);
/* The sentence of this thread's last error; "" if none. Good until its next call. */
const char *atoll_error(void);

#ifdef __cplusplus
}
#endif
#endif
