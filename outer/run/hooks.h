/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOOKS_H
#define HOOKS_H
/* run.after_checkpoint: the operator's command, run once a checkpoint is durable, such as a copy to
 * an object store. A thread starts it and waits for it; the training waits for neither. At most one
 * runs. Of checkpoints that come meanwhile the newest alone is next. Both are held
 * (checkpoint_hold): no save removes them. A command that fails or takes longer than
 * run.after_checkpoint_timeout_s is tried again, later and later; the run continues in any case.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "inner/config/config.h"
#include "outer/run/command.h"

enum { HOOK_TRIES = 5, HOOK_OUTCOMES = 32 };
struct hook_options { /* texts are borrowed */
    const char *command, *log;
    const char *run, *site, *checkpoints;
    uint64_t timeout_ms;
};
struct hook_outcome { /* of a checkpoint, for the record */
    int64_t step;
    unsigned tries;
    int status;     /* 0: done; else of the last try, or of a replaced one */
    bool replaced;  /* a newer checkpoint came before it was done */
    double seconds; /* since the checkpoint */
};
struct hook_checkpoint {
    bool there;
    int64_t step;
    uint64_t round, saved_ms;
    unsigned tries;
};
struct hooks {
    struct hook_options o;
    pthread_t thread;
    bool open;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    struct hook_checkpoint next, running;
    struct command command;
    struct hook_outcome outcomes[HOOK_OUTCOMES];
    unsigned outcome_count;
    bool ending;     /* nothing further is started */
    uint64_t end_ms; /* of `ending`: what runs or is next has until then */
    uint64_t patience_ms;
    bool each; /* what is next has patience_ms from its own start */
};

/* Nothing with an empty command. */
enum err hooks_open(struct hooks *h, const struct hook_options *o) MUST;
/* This checkpoint is durable. rounds: committed so far. */
void hooks_saved(struct hooks *h, int64_t step, uint64_t rounds);
/* The oldest outcome that has not been taken yet; false: there is none. */
bool hooks_take(struct hooks *h, struct hook_outcome *out);
/* Waits for the command of the last checkpoint, `patience_ms` at most, then ends it (SIGTERM, after
 * 5 s SIGKILL). each: where an older one still runs, both have that time, one after the other.
 * Outcomes may still be taken. */
void hooks_close(struct hooks *h, uint64_t patience_ms, bool each);
/* At once, without waiting: this process is about to end. Any thread. */
void hooks_kill(struct hooks *h);

/* data.fetch: brings files of a list that are not there. Blocks until they are; tries again, later
 * and later, and says so. `stop` set: ERR_STOPPED. Items with a wildcard name no file and are left
 * as they are. Of the items number, number + each, .. alone; 0, 1: of all. */
struct fetch_options {
    const char *command, *log, *run, *site;
    uint64_t timeout_ms;
    const atomic_int *stop;
    uint32_t number, each;
};
bool hooks_absent(const char *item); /* it names a file that is not there */
enum err hooks_fetch(const struct config_list *list, const struct fetch_options *o) MUST;

#endif
