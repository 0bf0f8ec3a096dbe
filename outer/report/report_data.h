#ifndef REPORT_DATA_H
#define REPORT_DATA_H
/* What a report needs to know of each run directory, read from its metrics.jsonl. Steps and rounds
 * that came twice (a restarted site repeats some) are kept once, the later one.
 */
#include "outer/report/ledger_read.h"

enum { REPORT_TIMES = 7, REPORT_RUNS_MAX = 64 };
enum report_gauge { REPORT_GAIN, REPORT_RHO, REPORT_AGREEMENT, REPORT_RESIDUAL, REPORT_GAUGES };
extern const char *const report_gauge_name[REPORT_GAUGES]; /* the record's keys */
extern const char
    *const report_time_name[REPORT_TIMES]; /* compute, encode, store, send, wait, fetch, apply */

struct report_points {
    double *x, *y;
    size_t count, capacity;
};
struct report_round {
    double step, fragment, round, included, sites;
    double up, up_predicted, down, down_predicted, wire_up, wire_down; /* bytes */
    double ms[REPORT_TIMES];
    double hidden_ms, exposed_ms;  /* of the exchange: beside training, and waited for */
    double metrics[REPORT_GAUGES]; /* NaN: not known */
    bool replayed;
};
struct report_event {
    double t;
    char text[160];
};
struct report_run {
    const char *dir;
    char name[64];             /* the site's, or the directory's last part when it trained alone */
    bool alone;                /* no outer loop: a baseline */
    struct report_points loss; /* training, by step */
    struct report_points held_out;
    struct report_round *rounds;
    size_t round_count, round_capacity;
    struct report_event *events;
    size_t event_count, event_capacity;
    unsigned starts;
    double first_t, last_t, tokens, tokens_per_second; /* the last one is the mean over the steps */
    double parameters, steps, ranks, threads;
    bool finished;
    const char *run, *config, *version, *commit, *compiler, *device,
        *command;                /* of the last start; in the arena */
    char digest[4][65];          /* parameters, momentum, residual, outer; "" before the end */
    uint64_t skipped;            /* unreadable lines */
    struct ledger_member ledger; /* lives 0: there is none, or a damaged one: */
    char ledger_why[256];
};

/* What rounds cost a site: where its time went from the first step to its last round. */
enum report_cost_part {
    REPORT_COMPUTING,
    REPORT_SENDING,
    REPORT_WAITING,
    REPORT_RECEIVING,
    REPORT_REST, /* encode, store, apply */
    REPORT_COSTS
};
struct report_cost {
    double share[REPORT_COSTS]; /* of the time; NaN without a round */
    double hidden_s;            /* of rounds that went on beside training */
    double round_s, step_s;     /* mean seconds of a round's exchange, and of a step's computing */
};
struct report_cost report_cost(const struct report_run *r);
/* ERR_INPUT: the directory has no record. */
enum err report_data_read(struct report_run *r, const char *dir, struct arena *a) MUST;

#endif
