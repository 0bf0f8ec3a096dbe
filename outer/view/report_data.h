/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REPORT_DATA_H
#define REPORT_DATA_H
/* What a report needs to know of each run directory, read from its metrics.jsonl (docs/metrics.md).
 * Steps and rounds that came twice (a restarted site repeats some) are kept once, the later one.
 * From the aggregator's directory come its rounds, and what it saw of each site whose own directory
 * is not given.
 */
#include "outer/record/ledger_read.h"
#include "outer/record/counted.h"
#include "outer/view/progress.h"

/* Parts of a round's time, in milliseconds; outage: the aggregator was unreachable. */
enum report_time {
    REPORT_COMPUTE,
    REPORT_ENCODE,
    REPORT_STORE,
    REPORT_SEND,
    REPORT_WAIT,
    REPORT_FETCH,
    REPORT_APPLY,
    REPORT_OUTAGE,
    REPORT_TIMES
};
enum { REPORT_RUNS_MAX = 64 };
enum report_metric { REPORT_GAIN, REPORT_RHO, REPORT_AGREEMENT, REPORT_RESIDUAL, REPORT_METRICS };
extern const char *const report_metric_name[REPORT_METRICS]; /* the record's keys */

enum { REPORT_POINTS_MAX = 16384 }; /* of a series: then every second one is left out */
struct report_points {
    double *x, *y;
    size_t count, capacity;
    size_t stride, since; /* every stride-th point is kept, and the last one; 0: all */
};
/* By step, but for the rate: by minutes since the first record. */
enum report_series {
    REPORT_LOSS,
    REPORT_EVAL,
    REPORT_NORM,
    REPORT_LR,
    REPORT_RATE,
    REPORT_BYTES_UP, /* cumulative */
    REPORT_BYTES_DOWN,
    REPORT_SERIES
};
struct report_round {
    double step, fragment, round, included, sites;
    double up, up_predicted, down, down_predicted, wire_up, wire_down; /* bytes */
    double ms[REPORT_TIMES];
    double hidden_ms, exposed_ms;    /* of the exchange: during training; waited for */
    double metrics[REPORT_METRICS];  /* NaN: not known */
    double waited_ms, momentum_norm; /* the aggregator's */
    bool replayed;
};
/* Where the time of a site went since its first record: goodput is the computing of steps that were
 * not lost again. */
#define REPORT_SPENT(X)                                                                            \
    X(COMPUTE, compute, "steps that count")                                                        \
    X(EXCHANGE, exchange, "encode, store, send, fetch, apply: training stood still")               \
    X(WAIT, wait, "for the other sites and the commit")                                            \
    X(RESTART, restart, "no process, start-up, and repeated steps")                                \
    X(OUTAGE, outage, "the aggregator was unreachable")                                            \
    X(EVALUATION, evaluation, "tasks and probes of `eval.every_rounds`")                           \
    X(OTHER, other, "eval loss, checkpoints and the rest")
enum report_spent {
#define X(value, name, help) REPORT_SPENT_##value,
    REPORT_SPENT(X)
#undef X
        REPORT_SPENTS
};
extern const char *const report_spent_name[REPORT_SPENTS];
struct report_clock { /* seconds */
    double offset_s, error_s;
    double aggregator_s; /* a site's clock minus the aggregator's */
};
struct report_budget { /* of a privacy budget */
    double epsilon, cap, steps_left, charged_step;
};
/* How it goes now; a number that is not known is NaN. report_now.c writes it. */
struct report_now {
    double t, state_t, step_t; /* of the newest record; of the state's; of the last step's */
    char state[160];           /* what the site waits for; "": it trains */
    bool waited;               /* the other sites wait for it */
    double step, next_sync, step_s;
    double loss, tokens_per_second, interval_s; /* interval_s: between the last two rounds */
    double up, down, up_predicted, down_predicted, rounds, rounds_all;
    double next[ROUND_FRAGMENTS_MAX]; /* round after the last one, by fragment */
    double round_t[2];                /* of the last round, and of the one before it */
    double certificate_days, disk_free_bytes, term, norm;
    struct report_clock clock;
    struct report_budget budget;
    double spent_ms[REPORT_SPENTS]; /* COMPUTE, RESTART, EVALUATION; report_spent() has all */
    bool secure, started;           /* started: this process has made a step */
    struct progress_pace pace;
};
struct report_event {
    double t;
    char text[160];
};
/* What a site evaluates in the run (eval.every_rounds), the newest of each. */
enum { REPORT_TASKS_MAX = 16, REPORT_PROBES_MAX = 16, REPORT_PROMPT = 512, REPORT_PROBE = 4096 };
struct report_task {
    char name[64];
    double questions, chance, round, accuracy, accuracy_norm;
    struct report_points by_round, by_round_norm; /* the accuracies */
};
struct report_probe {
    double round; /* NaN: none yet */
    char prompt[REPORT_PROMPT], text[REPORT_PROBE];
};
struct report_reading {        /* what is known while records are read */
    double life_t, outage_t;   /* this process's start; since when no aggregator; 0 */
    double outage_ms;          /* of the round under way */
    double seen_up, seen_down; /* bytes of a site, as last said */
    double step_rows;          /* that the mean of the tokens a second is over */
};
enum report_role { REPORT_SITE, REPORT_ALONE, REPORT_AGGREGATOR, REPORT_SEEN };
struct report_rounds { /* in the order in which they ended */
    struct report_round *list;
    size_t count, capacity;
};
struct report_events {
    struct report_event *list;
    size_t count, capacity;
};
struct report_evaluation {
    struct report_task *tasks; /* at most REPORT_TASKS_MAX */
    size_t task_count;
    struct report_probe *probes; /* by number */
    size_t probe_count;
};
/* Of processes that trained: a refused start is none, but is counted. */
struct report_lives {
    unsigned starts;
    double first_t, last_t;
};
struct report_training {
    double tokens, tokens_per_second; /* the last one is the mean over the steps */
    double parameters, steps, ranks, threads;
};
struct report_start { /* what the last start said; in the arena */
    const char *run, *config, *version, *commit, *compiler, *device, *command;
};
struct report_sites { /* of the run: as the last start, or a change of the roster after it, said */
    unsigned count;
    const char *names; /* an aggregator's, "a,b,c"; a long list is cut */
};
struct report_end {
    bool finished;
    char digest[4][65];         /* parameters, momentum, residual, outer; "" before the end */
    const char *short_of_sites; /* "": all sites are in the last round, or it has not ended */
};
struct report_ledger {
    struct ledger_member member; /* lives 0: there is none, or a damaged one: */
    char why[256];
};
/* report_now.c writes `now`, report_data.c all else. */
struct report_run {
    char name[64];         /* the site's, or the directory's last part when it trained alone */
    enum report_role role; /* ALONE: no outer loop, a baseline; SEEN: a site, as the aggregator saw
                              it */
    struct report_points series[REPORT_SERIES];
    struct report_rounds rounds;
    struct report_events events;
    struct report_evaluation evaluation;
    struct report_lives lives;
    struct report_reading reading;
    struct report_training training;
    struct report_start start;
    struct report_sites sites;
    struct report_end end;
    struct counted *counted; /* an aggregator's; NULL: none */
    struct report_now now;
    struct report_ledger ledger;
};

/* What rounds cost a site: where its time went since its first record. */
enum report_cost_part {
    REPORT_COMPUTING,
    REPORT_SENDING,
    REPORT_WAITING, /* for the other sites and the commit, or for the aggregator to be back */
    REPORT_RECEIVING,
    REPORT_REST,    /* encode, store, apply */
    REPORT_BESIDES, /* start-up, evaluation, checkpoints, what was trained again */
    REPORT_COSTS
};
struct report_cost {
    double share[REPORT_COSTS]; /* of the time; NaN without a round */
    double hidden_s;            /* of rounds that ran during training */
    double round_s, step_s;     /* mean seconds of a round's exchange, and of a step's computing */
};
struct report_cost report_cost(const struct report_run *r);
/* Bytes and times of all its rounds. */
struct report_round report_totals(const struct report_run *r);
double report_last(const struct report_points *p); /* NaN: there is none */
/* Seconds by cause; `all`: since the first record. */
void report_spent(const struct report_run *r, double seconds[REPORT_SPENTS], double *all);
/* The compute share, of the demo's summary, the report and the live page: the time of steps that
 * count, over the time since the site's first record (evaluations, checkpoints, start-up and
 * restarts are in it). NaN: no time yet. */
double report_compute_share(const struct report_run *r);

/* The same directories, read on as records come. One thread. */
struct report_source {
    const char *dir;
    struct jsonl_reader reader;
    size_t run;
    bool begun, aggregator;
};
struct report_follow {
    struct report_run *runs;
    size_t count, capacity;
    struct report_source source[REPORT_RUNS_MAX];
    size_t source_count;
    struct arena *a;
};
/* dirs: at most REPORT_RUNS_MAX; they must outlive f. A directory without a record yet is no error.
 */
void report_follow_open(struct report_follow *f, const char *const *dirs, size_t dir_count,
                        struct arena *a);
enum err report_follow_read(struct report_follow *f) MUST; /* what came since the last call */
/* A record from elsewhere: of source 0, which is no directory. */
enum err report_follow_row(struct report_follow *f, const struct jsonl_row *row) MUST;
void report_follow_close(struct report_follow *f);

/* Directories of sites, of the aggregator, or of both, in any order; what they say of one site is
 * one run. ERR_INPUT: a directory has no record. */
enum err report_data_read(struct report_run **runs, size_t *count, const char *const *dirs,
                          size_t dir_count, struct arena *a) MUST;

#endif
