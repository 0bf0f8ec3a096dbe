#ifndef LINK_SIM_H
#define LINK_SIM_H
/* The link in memory and in virtual time: calls are delayed, lost, answered into the void,
 * delivered twice (the second time later), cut in the middle of a stream; a site can be
 * partitioned, the aggregator can be down. What a connection cannot do does not happen here either:
 * nothing reaches another process than the one it was sent to. A site's next call goes to the
 * aggregator that its route names at that moment.
 */
#include "outer/link/link.h"
#include "outer/sim/clock_sim.h"
#include "outer/sim/env_sim.h"

enum {
    LINK_SIM_CHUNK_BYTES = 1024,
    LINK_SIM_TIMEOUT_MS = 4000,
    LINK_SIM_TWICE_MS = 10000 /* the second delivery of a message comes within this */
};

struct link_sim_faults {
    double lost, lost_answer, twice, cut; /* chances per message; cut: per chunk */
    uint64_t delay_ms;                    /* up to this, each way and chunk */
    uint64_t part_from_ms, part_until_ms; /* partitioned */
};
struct link_sim_watch { /* what the checks want to see; all members set. site: its watch_self */
    void *self;
    void (*hello)(void *self, void *site, const struct wire_hello *m,
                  const struct wire_hello_answer *a);
    void (*offered)(void *self, void *site, const struct wire_contribution *m,
                    const uint8_t *payload);
    void (*answered)(void *self, void *site, const struct wire_contribution *m,
                     const struct wire_answer *a);
    void (*fetching)(void *self, void *site, const struct wire_fetch *m);
    /* A step of secure aggregation: as the site sends it, and with the aggregator's answer. */
    void (*masking)(void *self, void *site, const struct wire_mask *m);
    void (*masked)(void *self, void *site, const struct wire_mask *m,
                   const struct wire_mask_answer *a);
    void (*worked)(void *self); /* after every work() */
};
struct link_sim_server {
    struct clock_sim *clock;
    struct env_sim *env; /* the aggregator's: dead means down */
    struct link_service service;
    bool up, stopped;
    uint64_t generation; /* one more for each process */
    uint64_t up_ms, wake_ms;
    const struct link_sim_watch *watch;
    uint64_t calls;
    bool beside;     /* the process's own task commits, and calls come meanwhile */
    uint64_t amidst; /* calls that came while a commit was in flight */
    bool committing;
};
struct link_sim {
    struct link link; /* first */
    struct link_sim_server *const *route;
    struct link_sim_server *server; /* of one call */
    struct env_sim *env;            /* the site's */
    const struct link_sim_faults *faults;
    char peer[192];
    struct link_counters counters, *counted; /* counted: the link's own, in a call's copy too */
    unsigned process;                        /* of one call: its caller (clock_sim.h) */
};

/* A process of the aggregator begins to serve; link_sim_down before its service is closed. */
void link_sim_up(struct link_sim_server *s, struct link_service service);
void link_sim_down(struct link_sim_server *s);
/* After every call: work() and all of commit(), or with `beside` the process's task is woken for
 * them. */
void link_sim_work(struct link_sim_server *s);
/* By the process's own task, at wake_ms. */
void link_sim_run(struct link_sim_server *s);
void link_sim_open(struct link_sim *l, struct link_sim_server *const *route, struct env_sim *site,
                   const struct link_sim_faults *f, const char *run, const char *name);

#endif
