/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_SERVER_H
#define LINK_SERVER_H
/* The aggregator's end of a simulated link, in virtual time: its service answers calls while its
 * process lives; work() and commit() run after each call. The sites' ends: link_line.h, and the
 * chaos harness's (tests/sim/link_sim.h).
 */
#include "outer/link/link.h"
#include "outer/sim/clock_sim.h"

struct link_sim_server {
    struct clock_sim *clock;
    void *task;       /* what the aggregator's process waits on (sim_kick) */
    const bool *dead; /* that process: it answers no more */
    struct link_service service;
    bool up, stopped;
    uint64_t generation; /* one more for each process */
    uint64_t up_ms, wake_ms;
    void (*worked)(void *watcher); /* after every work() */
    void *watcher;
    uint64_t calls;
    bool beside;     /* the process's own task commits, and calls come meanwhile */
    uint64_t amidst; /* calls that came while a commit was in flight */
    bool committing;
};

/* A process of the aggregator begins to serve; link_sim_down before its service is closed. */
void link_sim_up(struct link_sim_server *s, struct link_service service);
void link_sim_down(struct link_sim_server *s);
/* After every call: work() and all of commit(), or with `beside` the process's task is woken for
 * them. */
void link_sim_work(struct link_sim_server *s);
/* By the process's own task, at wake_ms. */
void link_sim_run(struct link_sim_server *s);
/* Does the process of that generation answer still? */
bool link_sim_serving(const struct link_sim_server *s, uint64_t generation);

#endif
