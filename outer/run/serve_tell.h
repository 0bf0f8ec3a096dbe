/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVE_TELL_H
#define SERVE_TELL_H
/* Output of an aggregator: metrics.jsonl (docs/metrics.md), the live rows of its sites, the status
 * on SIGUSR2, the final summary. After a restart the sites' last reports are read from
 * metrics.jsonl and shown until new reports arrive. The link's thread calls serve_tell_commit,
 * serve_tell_replan and serve_tell_adopt; the main thread calls all other functions.
 */
#include <pthread.h>
#include "outer/aggregator/aggregator.h"
#include "outer/config/run.h"
#include "outer/record/jsonl.h"
#include "outer/view/progress.h"
#include "outer/record/counted.h"

struct serve_site { /* last report, to this process or an earlier one */
    int64_t step;
    double loss, tokens_per_second;
    bool in;           /* the newest roster */
    uint64_t up, down; /* payload of the run: committed contributions; adopted aggregates */
};
struct serve_tell {
    const struct run *run;
    struct outer_state *replica;
    struct env *env;
    const char *command;
    int64_t days_left; /* of the aggregator's certificate */
    double began;      /* seconds */
    bool private;      /* no loss of a site is shown or kept */
    struct progress progress;
    pthread_mutex_t mutex;                 /* guards all below */
    uint32_t roster_version;               /* of the newest manifests */
    uint32_t amendments;                   /* that were told of */
    struct aggregator_replanned replanned; /* the last one of outer.replan */
    char added[MANIFEST_ADDED_MAX]
              [MANIFEST_NAME_MAX]; /* names of sites that are not in outer.sites */
    unsigned added_count;
    struct jsonl record;
    struct counted counted;
    struct serve_site site[ROUND_SITES_MAX];
    bool waited[ROUND_SITES_MAX];      /* and whether the others waited for it */
    const char *said[ROUND_SITES_MAX]; /* the text of the last record of kind "state" */
    double health_s;                   /* of the last record of health, seconds; 0: none yet */
    struct progress_pace pace[PROGRESS_LINES_MAX];
};

/* This process holds the lock of serve.dir. */
enum err serve_tell_open(struct serve_tell *t, const struct run *run, struct env *env,
                         const char *command, struct arena *perm) MUST;
/* Called after the outer state is loaded: writes the run's progress to metrics.jsonl. */
enum err serve_tell_start(struct serve_tell *t, struct outer_state *replica, const char *note,
                          struct arena *perm) MUST;
void serve_tell_close(struct serve_tell *t); /* accepts a zeroed struct */
/* Callbacks for aggregator_options; self is the struct serve_tell. */
void serve_tell_commit(struct serve_tell *t, const struct manifest *m, uint64_t waited_ms);
void serve_tell_replan(struct serve_tell *t, const struct aggregator_replanned *r);
void serve_tell_adopt(struct serve_tell *t, unsigned site, const struct wire_report *m);
/* The record of health when it is due; the certificate is looked at for it. */
bool serve_tell_health_due(struct serve_tell *t);
void serve_tell_certificate(struct serve_tell *t, int64_t days_left);
void serve_tell_say(struct serve_tell *t, const char *text); /* after the rows, to a person */
void serve_tell_health(struct serve_tell *t, const struct aggregator_status *now);
void serve_tell_show(struct serve_tell *t, const struct aggregator_status *now);
void serve_tell_status(struct serve_tell *t, const struct aggregator_status *now);
/* Logs the state of the run at start: rounds done, and what is left. */
void serve_tell_standing(struct serve_tell *t, const struct aggregator_status *now);
void serve_tell_stop(struct serve_tell *t, const char *reason);
/* ERR_SHORT: the last round of a fragment is without some site. */
enum err serve_tell_final(struct serve_tell *t) MUST;

#endif
