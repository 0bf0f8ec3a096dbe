/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIMULATE_H
#define SIMULATE_H
/* A whole run in virtual time: the production site, aggregators, round core, journal, replica and
 * codecs, on links with a rate and a delay. Every round of the schedule is exchanged, none is
 * extrapolated. What stands in for the model is one block of 256 values for each fragment; time and
 * bytes are of the real fragments' sizes. Training itself is a wait of the given length, as are
 * arithmetic and storage (plan_outer); what is sent and applied after a step is in the order of
 * exchange. One thread; a site takes about half a megabyte, more with many fragments.
 */
#include <stdatomic.h>
#include "outer/config/keys.h"
#include "outer/config/sync_config.h"
#include "outer/link/line.h"
#include "outer/site/site.h"

struct simulate_site {
    const char *name;
    double step_s;
    struct line link;
    double encode_s, apply_s; /* of its struct exchange_cost */
};
struct simulate_round { /* a site has merged it */
    unsigned site, fragment;
    uint64_t round;
    int64_t step;
    double t_s, compute_s, flight_s,
        exposed_s; /* since the run's start; since the round before; as in report/record.h */
    struct site_times times;
};
struct simulate_options {
    const struct sync_config *exchange; /* of the real model */
    const struct simulate_site *sites;
    unsigned site_count;
    bool strict;
    double grace;       /* quorum with overlap: outer.grace_fraction */
    bool before_update; /* with overlap: a round is applied before its step's update */
    double straggler_timeout_s, aggregator_bps; /* as in struct plan_task, of each aggregator */
    struct exchange_cost outer;                 /* the aggregators' part of it */
    unsigned aggregators;                       /* that share the fragments; 0: one */
    double error_feedback_decay;
    uint64_t seed;
    const struct keys_base *settings; /* of the exchange, as it is amended; NULL: it never is */
    /* What an operator asks of each aggregator before the first step; may be NULL. */
    enum err (*operate)(void *self, const struct link_service *service);
    void *operate_self;
    uint64_t rounds_max; /* of a fragment; 0: all */
    double seconds_max;  /* virtual: the run is looked at until then; 0: to its end */
    atomic_int *stop;    /* asked to: the result is of what was simulated so far; may be NULL */
    void (*progress)(void *self, int64_t step,
                     int64_t steps); /* some site is there: at each of its rounds; may be NULL */
    void *progress_self;
    /* The site's line may be another one from here on: before each wait for steps. May be NULL. */
    void (*relined)(void *self, unsigned site, double t_s, struct line *line);
    void *relined_self;
    void (*rounded)(void *self, const struct simulate_round *r); /* may be NULL */
    void *rounded_self;
};
struct simulate_site_result {
    double train_s, total_s;       /* steps; until its last one was merged */
    uint64_t up_bytes, down_bytes; /* payload */
    uint64_t merged, missed; /* rounds of all fragments: with its contribution; committed without */
    double stale_steps;      /* mean steps from a contribution's send until its commit is merged */
    int64_t stale_max;
};
struct simulate_result {
    bool ended;             /* by seconds_max */
    bool stopped;           /* before its end */
    int64_t steps;          /* as far as it was simulated, by all sites */
    uint64_t rounds, calls; /* of all fragments; messages to the aggregator */
    double total_s, wall_s; /* virtual, of the run; real, of the simulation */
    double utilisation;     /* steps over total, mean of the sites */
    double exchange_s;      /* mean time of a round, from a site's send until its commit is there */
    struct manifest last;   /* of fragment 0; of no round: empty */
    struct digest state;    /* of all fragments, at the end */
    struct simulate_site_result *site; /* [site_count] */
};

enum err simulate(const struct simulate_options *o, struct simulate_result *r,
                  struct arena *a) MUST;

#endif
