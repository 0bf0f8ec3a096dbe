/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINE_H
#define LINE_H
/* The time that a payload takes on a line, as a formula or between measured times, and the
 * processing time of one exchange at both ends. Pure arithmetic, used by the planner and by the
 * simulated line.
 *
 * Rates count whole IP packets, as a provider sells them and an emulator limits them: headers and
 * TLS records are included, by the ledger's model.
 */
#include <stdbool.h>

/* Largest rate that a search may assume, bits per second. */
#define LINE_RATE_MAX 1e13

enum { LINE_TIMES_FIRST = 1 << 16, LINE_TIMES_MAX = 9 };
struct line_times { /* measured: seconds[i] for LINE_TIMES_FIRST * 4^i bytes of payload, without the
                       line's delay */
    unsigned count; /* 0: not measured */
    double seconds[LINE_TIMES_MAX];
};
struct line {                /* of one site to the aggregator */
    double up_bps, down_bps; /* bits of IP packets in a second */
    double rtt_s;
    double loss;      /* lost share of packets; 0 with measured rates, which include the loss */
    unsigned streams; /* connections that share the payload; at least 1 */
    bool bbr; /* BBR congestion control: loss does not slow it, and it keeps the estimated rate
                 across a pause (Cardwell et al. 2016) */
    struct line_times up,
        down; /* measured times on this line; they replace rate, loss and streams */
};
struct exchange_cost { /* seconds per value of a fragment, storage included */
    double encode_s;   /* a site: from the parameters until the contribution is durable */
    double apply_s;    /* a site: from the aggregate until the new state is durable */
    double accept_s;   /* the aggregator, for each contribution (in parallel): from its last byte
                          until its receipt */
    double commit_s, sum_s; /* serial: once a round; and once for each contribution of the round */
};
/* What a further contribution adds to a sum, from the times of a sum of one and of `sites`. What
 * does not grow with them belongs to commit_s. */
double line_sum_s(double one_s, double all_s, unsigned sites);
double
line_wire_bytes(double payload); /* bytes of a payload on the link, headers and records included */
/* Seconds for `bytes` of payload one way, without the line's delay: interpolated from the measured
 * times, or a model of TCP with slow start after the pause of a round. */
double line_transfer_s(const struct line *l, double bytes, bool up);
/* Rate of one connection with the line's loss: Mathis et al. 1997, or CUBIC's average window (RFC
 * 9438) where larger. */
double line_rate_bps(const struct line *l, double bps);

#endif
