#ifndef LINE_H
#define LINE_H
/* The time that a payload takes on a line, as a formula or between measured times, and what one
 * exchange costs the machines at its ends. Pure arithmetic, used by the planner and by the
 * simulated line.
 *
 * Rates are of IP packets, as a provider sells them and an emulator keeps them: headers and TLS
 * records are part of them, by the ledger's model.
 */
#include <stdbool.h>

/* Rates beyond this and delays below it are no link: what the search may assume at most. */
#define LINE_RATE_MAX 1e13

enum { LINE_TIMES_FIRST = 1 << 16, LINE_TIMES_MAX = 9 };
struct line_times { /* measured: seconds[i] for LINE_TIMES_FIRST * 4^i bytes of payload, the delay
                       of the line left out */
    unsigned count; /* 0: nothing was */
    double seconds[LINE_TIMES_MAX];
};
struct line {                /* of one site to the aggregator */
    double up_bps, down_bps; /* bits of IP packets in a second */
    double rtt_s;
    double loss;      /* share of packets; 0 with measured rates, which hold it already */
    unsigned streams; /* connections that share the payload; at least 1 */
    bool bbr; /* no loss slows it, and it knows the line's rate after a pause too (Cardwell et al.
                 2016) */
    struct line_times up, down; /* in place of rate, loss, streams: how TCP, TLS and this machine do
                                   on this very line */
};
struct exchange_cost { /* seconds for a value of a fragment, its storage included */
    double encode_s;   /* a site: from the parameters until the contribution is durable */
    double apply_s;    /* a site: from the aggregate until the new state is durable */
    double accept_s;   /* the aggregator: each contribution, beside the others, from its last byte
                          until its receipt */
    double commit_s, sum_s; /* one after the other: a round; and for each contribution in it */
};
double line_wire_bytes(
    double payload); /* what a payload takes on the line, headers and records included */
/* Seconds for `bytes` of payload one way, the delay of the line itself left out: between the times
 * that were measured, or TCP with slow start after the pause of a round. */
double line_transfer_s(const struct line *l, double bytes, bool up);
/* What the link carries with this loss: Mathis et al. 1997, or CUBIC's average window (RFC 9438)
 * where that is larger. */
double line_rate_bps(const struct line *l, double bps);

#endif
