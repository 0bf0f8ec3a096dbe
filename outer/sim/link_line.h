/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_LINE_H
#define LINK_LINE_H
/* A link in virtual time that has a rate and a delay and no faults: every call takes the round
 * trips it takes on the real link, every payload the time that its bytes take on the site's line
 * and on the aggregator's, which all sites share. An aggregator takes its time to accept a
 * contribution, for all sites at once, and to commit, one round after the other. The bytes that
 * travel are those of a small stand-in for the model; times and counters are of the real fragments'
 * sizes. It calls link_server.h. One thread, the clock's.
 */
#include "outer/sim/env_sim.h"
#include "outer/sim/link_server.h"
#include "outer/diloco/schedule.h"
#include "outer/link/line.h"

struct link_line_held;  /* a poll that waits */
struct link_line_flow;  /* a payload on a shared line */
struct link_line_pipe { /* one direction of a line that many share evenly, as TCP's flows do */
    double bps, at_s;
    double each; /* bytes that every flow has had, of those that were there all the time */
    unsigned flows;
    struct link_line_flow *first; /* by when they are done */
};
struct link_line_hub { /* the aggregator's end */
    struct link_sim_server *server;
    const size_t *elements; /* [fragments], of the real model */
    const struct schedule *schedule;
    const struct exchange_cost *outer;
    double free_s;                       /* when it has committed all it was given */
    double ready_s[ROUND_FRAGMENTS_MAX]; /* from when on the last commit can be had */
    struct link_line_pipe in, out;       /* its line; bps 0: no limit */
    struct link_line_held *held[ROUND_FRAGMENTS_MAX];
    uint64_t calls;
};
struct link_line_end { /* the site's, of its links to all aggregators */
    struct env_sim *env;
    struct line plan;
    double up_free_s, down_free_s;
    double owed_ms; /* of a wait: what does not make a whole tick of the clock */
};
struct link_line {
    struct link link; /* first */
    struct link_line_hub *hub;
    struct link_line_end *end;
    uint64_t fresh[ROUND_FRAGMENTS_MAX]; /* from this round on, unless 0, the bytes follow the offer
                                            at once: link_up.c */
    struct { /* of the round that a fragment's last manifest committed */
        const struct codec *codec;
        unsigned payloads; /* in the aggregate */
    } committed[ROUND_FRAGMENTS_MAX];
    char peer[192];
    struct link_counters counters;
};

void link_line_hub_open(struct link_line_hub *h, struct link_sim_server *s, const size_t *elements,
                        const struct schedule *schedule, const struct exchange_cost *outer,
                        double bps);
/* The aggregator's service has committed this round: aggregator_options.committed. */
void link_line_committed(void *hub, const struct manifest *m, uint64_t waited_ms);
void link_line_open(struct link_line *l, struct link_line_hub *h, struct link_line_end *end,
                    const char *run, const char *name);
/* The running task waits, to the fraction of a tick over many waits; kick wakes it earlier. */
void link_line_wait(struct link_line_end *e, double seconds);

#endif
