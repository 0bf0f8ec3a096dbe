#ifndef LINK_LINE_H
#define LINK_LINE_H
/* A link in virtual time that has a rate and a delay and no faults: every call takes the round trips it takes on the real
 * link, every payload the time that its bytes take on the site's line and on the aggregator's, which all sites share. The bytes
 * that travel are those of a small stand-in for the model; the time and the counters are of the real fragments' sizes.
 * Beside link_sim, whose server it uses; one thread, the clock's.
 */
#include "outer/link/link_sim.h"
#include "outer/plan/plan.h"

struct link_line_held; /* a poll that waits */
struct link_line_flow; /* a payload on a shared line */
struct link_line_pipe { /* one direction of a line that many share evenly, as TCP's flows do */
    double bps, at_s;
    double each; /* bytes that every flow has had, of those that were there all the time */
    unsigned flows;
    struct link_line_flow *first; /* by when they are done */
};
struct link_line_hub { /* the aggregator's end */
    struct link_sim_server *server;
    struct link_sim_watch watch; /* the server's */
    const size_t *elements;      /* [fragments], of the real model */
    const struct schedule *schedule;
    struct link_line_pipe in, out; /* its line; bps 0: no limit */
    struct link_line_held *held[ROUND_FRAGMENTS_MAX];
    uint64_t calls;
};
struct link_line {
    struct link link; /* first */
    struct link_line_hub *hub;
    struct world_sim *world; /* the site's */
    struct plan_link plan;
    double outer_s;          /* for a value: to encode it before it is sent and to apply it afterwards */
    double up_free_s, down_free_s;
    double owed_ms;          /* of a wait: what does not make a whole tick of the clock */
    struct {                 /* of the round that a fragment's last manifest committed */
        const struct codec *codec;
        unsigned payloads; /* in the aggregate */
    } committed[ROUND_FRAGMENTS_MAX];
    char peer[192];
    struct link_counters counters;
};

void link_line_hub_open(struct link_line_hub *h, struct link_sim_server *s, const size_t *elements,
                        const struct schedule *schedule, double bps);
void link_line_open(struct link_line *l, struct link_line_hub *h, struct world_sim *site, const struct plan_link *plan,
                    double outer_s, const char *run, const char *name);
/* The running task waits, to the fraction of a tick over many waits; kick wakes it earlier. */
void link_line_wait(struct link_line *l, double seconds);

#endif
