#ifndef JOB_H
#define JOB_H
/* One `atoll train` process: all that it opens, in one place. cmd_train.c opens, runs and closes
 * it; job_memory.c says what it will take; job_tell.c, job_signals.c and job_final.c say what
 * happens, to the log, to metrics.jsonl and to the person who looks (lead only: the others' record
 * and progress are closed and take nothing).
 */
#include <signal.h>
#include <stdatomic.h>
#include "outer/config/run.h"
#include "outer/report/ledger_book.h"
#include "outer/plan/plan.h"
#include "outer/report/progress.h"
#include "outer/report/jsonl.h"
#include "outer/site/site_train.h"

struct job {
    struct run run;
    struct settings s; /* of this site's training: run_site_settings() */
    const char *config_path;
    const char *command; /* as typed, for the record */
    struct coll *coll;
    struct dev *dev;
    char gpu[32];       /* this rank's */
    struct dev *beside; /* outer arithmetic of overlapped rounds, since one thread at a time uses a
                           device, and of a site on a GPU; or NULL */
    struct arena host;  /* outer state: memory that the training device copies fast */
    bool outer;         /* has an aggregator */
    int lock;           /* of run.dir when it trains alone; -1 */
    struct env *env;    /* owns run.dir otherwise */
    struct train train;
    double rho[ROUND_FRAGMENTS_MAX]; /* measured, smoothed over rounds; 0 before the second */
    bool warned;                     /* of an outer step that is too far */
    struct outer_state replica;
    struct link *link;
    struct site *site;
    struct site_train exchange;
    struct jsonl record;
    struct ledger_book ledger; /* with an aggregator */
    struct progress progress;
    struct progress_line line;
    struct plan_watch watch;                 /* of plan.*, where it is given */
    int64_t planned_step;                    /* the last round was predicted at; 0: none yet */
    char notice[128];                        /* words of the last notice logged */
    double noticed;                          /* and when, seconds */
    struct schedule_bytes moved;             /* payload so far, of the run: all its processes */
    struct schedule_bytes predicted;         /* of the rounds that it belongs to */
    uint64_t committed[ROUND_FRAGMENTS_MAX]; /* rounds of each fragment */
    struct progress_pace pace;
    double began, last_round; /* seconds */
    double eval_loss;         /* the last one; NAN: none */
    int64_t eval_step;
    bool unreachable;    /* the aggregator, as last said */
    struct link_tls tls; /* of this site's certificate */
    pthread_t signals;   /* job_signals.c: waits for signals */
    bool signals_run;
    sigset_t signals_before;
    atomic_bool signals_end;
    atomic_bool stoppable;    /* a stop finishes the step; before, it ends the process */
    atomic_bool status_ready; /* SIGUSR2 prints the status */
    volatile int stop;        /* asked to stop */
    volatile bool launched;   /* by the launcher of several ranks */
    char farewell[2048];      /* for a person, after the rows; "": none */
};

bool job_outer_on_gpu(const struct job *j); /* the outer arithmetic, too */
struct site_train_options job_exchange(struct job *j);
/* Before anything is taken: refuses what does not fit, ERR_MEMORY, with settings that would; the
 * training is told of the GPU's memory without what the outer loop will take. */
enum err job_reserve(struct job *j) MUST;
void job_print_memory(struct job *j, const struct table *t);

/* Elements of each fragment, as the schedule's predictions want them. */
void job_sizes(const struct job *j, size_t elements[ROUND_FRAGMENTS_MAX]);

enum err job_tell_start(struct job *j, int64_t step) MUST;
void job_tell_step(struct job *j, const struct train_report *r);
/* As site_train and site want them: self is the job. */
void job_tell_round(void *self, const struct site_train_round *r);
void job_tell_notice(void *self, const char *text);
void job_tell_eval(struct job *j, const struct train_eval *e, const char *of);
void job_tell_stop(struct job *j, const char *reason);
void job_line(struct job *j); /* name, rounds and bytes of j->line */
/* job_signals.c: before any other thread is made, so that all others block these signals. */
void job_signals_open(struct job *j);
void job_signals_close(struct job *j);
/* job_final.c */
enum err job_tell_final(struct job *j) MUST; /* digests of what was trained */
/* After the progress rows have stopped. shown: they were wanted. */
void job_tell_farewell(const struct job *j, bool shown);

#endif
