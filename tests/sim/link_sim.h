/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_SIM_H
#define LINK_SIM_H
/* The link in memory and in virtual time: calls are delayed, lost, answered into the void,
 * delivered twice (the second time later), cut in the middle of a stream; a site can be
 * partitioned, the aggregator can be down. What a connection cannot do does not happen here either:
 * nothing reaches another process than the one it was sent to. A site's next call goes to the
 * aggregator that its route names at that moment.
 */
#include "outer/sim/link_server.h"
#include "tests/sim/env_faulty.h"

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
struct link_sim_watch { /* what the checks want to see, a server's watcher; site: its watch_self */
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
};
struct link_sim {
    struct link link; /* first */
    struct link_sim_server *const *route;
    struct link_sim_server *server; /* of one call */
    struct env_faulty *env;         /* the site's */
    const struct link_sim_faults *faults;
    char peer[192];
    struct link_counters counters, *counted; /* counted: the link's own, in a call's copy too */
    unsigned process;                        /* of one call: its caller (clock_sim.h) */
};

void link_sim_open(struct link_sim *l, struct link_sim_server *const *route,
                   struct env_faulty *site, const struct link_sim_faults *f, const char *run,
                   const char *name);

#endif
