/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FLOW_H
#define FLOW_H
/* One direction between two places of an emulated network, as a pure model: a packet is offered at
 * a time, the answer is when it arrives at the other end, or that it does not. No clock, socket or
 * memory of its own, so tests run it on virtual time. Owned by one thread.
 *
 * A packet meets, in this order: the queue (drop-tail), the transmitter (token bucket), outages,
 * random loss, duplication, and the way (delay, jitter, reordering). What is lost after the
 * transmitter has taken its time on it. The n-th packet of a direction meets the same dice in every
 * run with the same seed; jitter is a function of time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flow_jitter { FLOW_NORMAL, FLOW_UNIFORM, FLOW_EXPONENTIAL };
enum flow_drop { FLOW_QUEUE, FLOW_OUTAGE, FLOW_LOSS, FLOW_MEMORY, FLOW_DROPS };

struct flow_window { /* [from, until) after the start of the emulation */
    int64_t from_ns, until_ns;
};
struct flow_settings {
    uint64_t rate_bps;  /* IP packets, headers included; 0: no limit and no queue */
    uint64_t later_bps; /* the same from later_ns after the start on; later_ns 0: it stays */
    int64_t later_ns;
    uint64_t burst_bytes; /* that pass at once after a pause; 0: each takes its time on the wire */
    uint64_t queue_bytes; /* that may wait for the transmitter; an idle one takes any packet */
    int64_t delay_ns;     /* one way */
    enum flow_jitter jitter;
    double
        jitter_ns;   /* standard deviation; exponential: only ever later, by this much on average */
    double loss;     /* share of packets */
    double loss_run; /* mean length of a run of lost packets (Gilbert); 0: each on its own */
    double duplicate;                  /* share of packets */
    double reorder;                    /* share of packets that others may overtake... */
    int64_t reorder_ns;                /* ...because they are this much later */
    const struct flow_window *outages; /* sorted, apart from each other; borrowed */
    size_t outage_count;
    int64_t outage_every_ns; /* the windows repeat; 0: once */
    uint64_t seed;
    uint32_t direction; /* its own dice */
};
struct flow_counters {
    uint64_t packets, bytes; /* offered */
    uint64_t arrived, arrived_bytes;
    uint64_t dropped[FLOW_DROPS]; /* packets */
    uint64_t duplicated, reordered;
    uint64_t queue_peak_bytes;
};
struct flow {
    struct flow_settings set;
    struct flow_counters *count; /* where another process can see them; borrowed */
    uint64_t packet;             /* index of the next one */
    int64_t free_ns;             /* when the transmitter has sent all it took... */
    uint64_t free_rest;          /* ...and the rest of that division, in 1/rest_bps ns */
    uint64_t rest_bps;
    int64_t last_ns; /* latest arrival so far of a packet that is not overtaken */
    bool losing;     /* Gilbert's bad state */
    int64_t slot;    /* jitter: of which the two values are */
    double slot_value[2];
};
struct flow_answer {
    unsigned copies;     /* 0: dropped */
    enum flow_drop drop; /* why, when copies is 0 */
    int64_t due_ns;      /* arrival of all copies */
};

void flow_open(struct flow *f, const struct flow_settings *set, struct flow_counters *count);
/* A packet that is offered now. Time must not run backwards. */
struct flow_answer flow_offer(struct flow *f, int64_t now_ns, size_t size_bytes);
/* For streams that stand in for packets (relay): no queue limit, loss or duplication; an outage
 * delays until it is over. */
int64_t flow_carry(struct flow *f, int64_t now_ns, size_t size_bytes);
/* What waits for the transmitter, rounded up. */
uint64_t flow_backlog_bytes(const struct flow *f, int64_t now_ns);
/* The end of the outage at that time, or the time itself when there is none. */
int64_t flow_outage_end(const struct flow *f, int64_t at_ns);

#endif
