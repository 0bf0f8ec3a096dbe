/* SPDX-License-Identifier: Apache-2.0 */
#ifndef JOB_H
#define JOB_H
/* The state of one `atoll train` process. job_run.c opens the run, the ranks and the device, and
 * preflight.c as much of it as it checks. Only the lead rank writes what people read: on other
 * ranks record and progress stay closed and ignore rows. Which file writes which member of struct
 * job and of what it points to:
 *
 *   job_aggregator.c: own
 *   job_amend.c: amend, parts, exchange
 *   job_eval.c: eval, exchange, record, last_round
 *   job_final.c: parts, record
 *   job_health.c: health, record
 *   job_loop.c: parts, exchange, events, last_round
 *   job_hooks.c: hooks, record, stop
 *   job_keys.c: record
 *   job_memory.c: none
 *   job_open.c: train, parts, lock, env, record, ledger, progress, status_ready, stop
 *   job_page.c: record, events, page, bound
 *   job_privacy.c: train, privacy, record
 *   job_run.c: run, s, outer, coll, dev, gpu, stoppable
 *   job_shards.c: shards, env, stop
 *   job_signals.c: hooks, progress, signals, stop
 *   job_trainer.c: exchange, trainer
 *   job_tell.c: told, record, events, ledger, progress, last_round, bound
 */
#include <signal.h>
#include <stdatomic.h>
#include "outer/aggregator/aggregator.h"
#include "outer/run/hooks.h"
#include "outer/view/page.h"
#include "outer/library/site_parts.h"
#include "outer/library/site_record.h"
#include "outer/config/run.h"
#include "outer/record/ledger_book.h"
#include "outer/record/relayed.h"
#include "outer/plan/plan.h"
#include "outer/view/progress.h"
#include "outer/record/tfevents.h"
#include "outer/record/json_write.h"
#include "outer/record/jsonl.h"
#include "inner/eval/choose.h"
#include "inner/eval/sample.h"
#include "inner/train/train.h"
#include "outer/run/tasks.h"

struct job_aggregator { /* of a site that is its own; else all 0 */
    struct env *env;    /* owns run.dir/aggregator */
    struct dev *cpu;
    struct outer_state replica;
    struct aggregator *aggregator;
    struct organs organs;
};

enum { JOB_PROBE_BYTES = 4096 }; /* of a continuation on record, at most */
struct job_eval {                /* with eval.every_rounds (job_eval.c); else all 0 */
    struct tasks tasks;
    struct choose choose;
    struct sample sample; /* the lead's; where all ranks make each pass, every rank's: */
    struct job_probe {    /* of the prompts */
        int32_t *ids;     /* with room for eval.prompt_tokens more */
        size_t count;
        char prompt[512];
    } * probes;
    char text[JOB_PROBE_BYTES];
    /* Rounds of the first fragment after the newest evaluation on record, by task, then by probe;
     * 0: none. The same on every rank. */
    int64_t recorded[2 * KEYS_EVALS_MAX];
    uint64_t seen;   /* rounds after the last evaluation, or after the oldest of those on record */
    double begun;    /* seconds */
    bool said;       /* that it takes its time */
    const char *now; /* what is being evaluated */
};

struct job_signals {  /* job_signals.c */
    pthread_t thread; /* waits for signals */
    bool runs;
    sigset_t before; /* the mask of the process before */
    atomic_bool end;
    bool asked; /* by a signal to this rank: the next one ends it at once */
};

struct job_told {                    /* what job_tell.c has said, and what it says next */
    double rho[ROUND_FRAGMENTS_MAX]; /* measured, smoothed over rounds; 0 before the second */
    bool warned;                     /* the warning about a too large outer step was logged */
    struct plan_watch watch;         /* deviation from the plan, with site.probe */
    int64_t planned_step;            /* step of the last predicted round; 0: none yet */
    struct site_notice notice;       /* the last logged one */
    struct schedule_bytes moved;     /* payload of the run so far, earlier processes included */
    struct schedule_bytes predicted; /* predicted payload of the same rounds */
    uint64_t committed[ROUND_FRAGMENTS_MAX]; /* rounds of each fragment */
    struct progress_pace pace;
    struct progress_line line;
    double began;     /* seconds */
    double eval_loss; /* the last one; NAN: none */
    int64_t eval_step;
    char final[4][65]; /* job_final.c: SHA-256 of parameters, momentum, residual, outer state */
    char inner[65]; /* job_final.c: SHA-256 of the inner parameters at the end; "": with outer ones
                     */
    bool unreachable; /* the last notice said that the aggregator is unreachable */
};

struct job_health {                /* job_health.c */
    double health_s;               /* of the last record of health, seconds; 0: none yet */
    bool clock_known, clock_wrong; /* against the aggregator's: on record; said to be wrong */
    atomic_bool uncertified;       /* its own certificate has expired, or is not valid */
};

struct job_outer { /* with an aggregator, on ranks that hold fragments */
    struct site_parts parts;
    struct job_shards *shards; /* with site.outer_state = sharded, every rank's */
    struct job_aggregator own;
    struct exchange exchange;
    struct job_trainer *trainer; /* every rank's */
    char gpu[32];                /* this rank's */
};

struct job_out { /* run.dir, and what is written there and shown */
    const char *config_path;
    const char *command;   /* the command line, for the record */
    struct file_lock lock; /* of run.dir when it trains alone */
    struct env *env;       /* owns run.dir otherwise */
    struct jsonl record;
    struct tfevents events;    /* with run.tensorboard */
    struct ledger_book ledger; /* with an aggregator */
    struct progress progress;
    double last_round;   /* seconds */
    struct page page;    /* with site.http */
    atomic_bool bound;   /* it trains, and its aggregator was reached last */
    char farewell[2048]; /* closing text for the operator, after the live rows; "": none */
};

struct job_stopping {
    struct job_signals signals;
    atomic_bool
        stoppable; /* true: a stop signal finishes the step first; false: it ends the process */
    atomic_bool status_ready; /* SIGUSR2 prints the status */
    atomic_int stop;          /* a stop was requested, of this rank or of another one of its site */
};

struct job {
    struct run *run;
    struct settings *s; /* of this site's training: run_site_settings() */
    struct coll *coll;
    struct dev *dev;
    bool outer; /* has an aggregator */
    struct train train;
    struct job_amend *amend; /* with an aggregator */
    struct job_privacy *privacy;
    struct hooks hooks; /* run.after_checkpoint */
    struct job_eval eval;
    struct job_told told;
    struct job_health health;
    struct job_outer *o;
    struct job_out *out;
    struct job_stopping *stopping;
};

/* job_run.c */
enum err job_configure(struct job *j, const struct args *args) MUST;
/* Ranks and this rank's device. dry: where there is no GPU the CPU stands for it, and no_gpu says
 * why; else it is "". An error ends the job on all ranks. */
enum err job_ranks_open(struct job *j, bool dry, char no_gpu[512]) MUST;
void job_ranks_close(struct job *j); /* takes what is half open, too */
/* From opening the training to closing it. */
enum err job_run(struct job *j) MUST;
/* job_open.c. The run, the ranks and the device are open; close takes what is half open, too. */
enum err job_open(struct job *j) MUST;
void job_close(struct job *j, bool finished);
/* job_loop.c */
struct train_hook job_loop(struct job *j);
bool job_lead(const struct job *j);         /* of its ranks */
bool job_outer_on_gpu(const struct job *j); /* the outer arithmetic, too */
struct exchange_options job_exchange(struct job *j, const struct run *run);
bool job_looks(const struct job *j); /* has it to look at the outer parameters between rounds? */
/* job_shards.c. With the synchronisation of `run`: which fragments this rank holds; any? */
struct shards job_shards(const struct job *j, const struct run *run);
bool job_holds(const struct job *j);
/* After the lead has opened its end of the exchange, and before the others do. */
enum err job_shards_open(struct job *j) MUST;
void job_shards_close(struct job *j);
const struct site_process *job_shards_process(const struct job *j); /* NULL on the lead */
ledger_sink *job_ledger(struct job *j, void **self);                /* of this rank's calls */
enum err job_ledger_relay(struct job *j, int from) MUST; /* rank `from`'s rows to the lead */
/* All ranks, after the last step and before the lead leaves. */
enum err job_shards_end(struct job *j) MUST;
/* Which rank's list of amendments is the longest? count: of this rank's. */
enum err job_longest_list(struct job *j, uint32_t count, int *rank) MUST;
/* job_trainer.c: the training is open. Opens the exchange; looks: job_looks(). */
enum err job_trainer_open(struct job *j, const struct exchange_options *o, bool looks) MUST;
void job_trainer_close(struct job *j);
/* Where the training stands, for the exchange; the figures are of the last report. */
struct exchange_now *job_now(struct job *j);
void job_now_report(struct job *j, const struct train_report *r);
/* Evaluates the outer parameters. *same: they are the local ones at this step, or outer.sync_every
 * was amended and there is no memory to look at them; nothing was evaluated. */
enum err job_outer_eval(struct job *j, struct train_eval *e, bool *same) MUST;
/* Runs `work` on every rank with the outer parameters in place of the local ones, which come back.
 * Needs job_looks(). */
enum err job_outer_work(struct job *j, enum err (*work)(void *self, struct train *t),
                        void *self) MUST;
/* job_amend.c. The exchange is open; the schedule is that of the newest manifests afterwards. */
enum err job_amend_open(struct job *j) MUST;
enum err job_rescheduled(void *self, struct schedule *s, uint32_t *version) MUST; /* exchange */
/* The settings of the inner steps after `step`. */
enum err job_amend_step(struct job *j, int64_t step) MUST;
/* Checks the memory before any is allocated. ERR_MEMORY: it does not fit; the message names
 * settings that would. The training gets the GPU's memory less the outer loop's need. */
enum err job_reserve(struct job *j) MUST;
/* Lines of a comment; or members of an object, w. */
void job_print_memory(struct job *j, const struct table *t, struct json_write *w);
struct job_prediction { /* of the whole run: of this site's link, in payload; of its disk */
    uint64_t rounds, up_bytes, down_bytes, disk_bytes;
};
struct job_prediction job_predict(const struct job *j); /* with an aggregator */
/* Of the outer loop at this rank; on a GPU its host memory is pinned. */
struct outer_memory job_outer_memory(struct job *j, const struct table *t);

/* Of each record of the processes before this one: payload and rounds, from which a restarted site
 * continues. */
void job_tell_resume(struct job *j, const struct jsonl_row *row);
enum err job_tell_start(struct job *j, int64_t step) MUST;
void job_tell_step(struct job *j, const struct train_report *r);
/* Callbacks for exchange and site; self is the job. */
enum err job_tell_round(void *self, const struct exchange_round *r) MUST;
void job_tell_notice(void *self, const char *text);
/* What happened once, on the lead: a record of kind notice. */
void job_tell_event(struct job *j, const char *text);
void job_tell_eval(struct job *j, const struct train_eval *e, const char *of);
void job_tell_sources(struct job *j); /* with data.weights: what each source has given so far */
void job_tell_stop(struct job *j, const char *reason);
void job_tell_done(struct job *j); /* the last row on a terminal */
void job_line(struct job *j);      /* name, rounds and bytes of its line */
/* job_signals.c: called before any other thread starts, so that all others block these signals. */
void job_signals_open(struct job *j);
void job_signals_close(struct job *j);
/* job_aggregator.c, for site_parts_open; self is the job. Close it after the link. */
enum err job_aggregator_open(void *self, struct link **link) MUST;
void job_aggregator_close(struct job *j);
/* job_privacy.c: after train_open, and before train_run. */
enum err job_privacy_open(struct job *j) MUST;
void job_privacy_record(struct job *j); /* after the record of a start */
/* job_keys.c: after the first hello, when the aggregator's key is known. */
enum err job_keys_record(struct job *j) MUST;
/* job_eval.c: after train_open and open_exchange. All ranks call, but for job_eval_record: the
 * lead, with each earlier record, between open and begin. job_eval_look: after the rounds of a step
 * that is due. */
enum err job_eval_open(struct job *j) MUST;
void job_eval_record(struct job *j, const struct jsonl_row *row);
enum err job_eval_begin(struct job *j) MUST;
enum err job_eval_look(struct job *j, struct train *t) MUST;
void job_eval_close(struct job *j);
/* job_hooks.c: the lead's, after train_open; all ranks' job_fetch() before it */
enum err job_fetch(struct job *j) MUST;
enum err job_hooks_open(struct job *j) MUST;
void job_hooks_saved(struct job *j);
void job_hooks_record(struct job *j); /* what has ended since the last call */
void job_hooks_close(struct job *j, bool finished);
/* job_health.c */
void job_health(struct job *j);
/* job_page.c: the live page, and what the service manager is told */
enum err job_page_open(struct job *j) MUST; /* run.dir has its record */
enum err job_events_open(struct job *j) MUST;
void job_page_step(struct job *j); /* after each step */
void job_page_close(struct job *j);
/* job_final.c */
/* Before it, on all ranks. */
enum err job_digest_inner(struct job *j) MUST;
enum err job_digest_outer(struct job *j) MUST;
enum err job_tell_final(struct job *j) MUST; /* digests of the trained parameters */
/* Prints the closing text after the live rows have ended. shown: live rows were enabled. */
void job_tell_farewell(const struct job *j, bool shown);

#endif
