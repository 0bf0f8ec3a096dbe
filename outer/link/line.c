/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/line.h"
#include <math.h>
#include "outer/link/ledger.h"
#include "outer/wire/wire.h"

enum {
    SEGMENT_BYTES = 1448, /* of a packet of 1500 */
    WINDOW_SEGMENTS = 10, /* RFC 6928 */
};

static double wire_chunk(uint64_t payload)
{
    struct ledger_side s = ledger_predict(payload, WIRE_CHUNK_BYTES);
    return (double)ledger_ip(ledger_sum(&s), 0);
}

/* Every whole chunk is counted with the header of the first: the offsets differ by one or two
 * bytes. */
double line_wire_bytes(double payload)
{
    uint64_t bytes = (uint64_t)payload, chunks = bytes / WIRE_CHUNK_BYTES;
    return (double)chunks * wire_chunk(WIRE_CHUNK_BYTES) + wire_chunk(bytes % WIRE_CHUNK_BYTES);
}

double line_rate_bps(const struct line *l, double bps)
{
    if (l->loss <= 0 || l->rtt_s <= 0 || l->bbr)
        return bps;
    double reno = sqrt(1.5 / l->loss), cubic = 1.054 * pow(l->rtt_s / l->loss, 0.75);
    double most = l->streams * 8.0 * SEGMENT_BYTES / l->rtt_s * (reno > cubic ? reno : cubic);
    return most < bps ? most : bps;
}

/* Linear interpolation between measured times; beyond the last, extrapolation from the last two. */
static double measured_s(const struct line_times *t, double bytes)
{
    double size = LINE_TIMES_FIRST, before = 0, before_s = 0;
    unsigned i = 0;
    while (i + 1 < t->count && bytes > size) {
        before = size;
        before_s = t->seconds[i++];
        size *= 4;
    }
    return before_s + (bytes - before) * (t->seconds[i] - before_s) / (size - before);
}

double line_transfer_s(const struct line *l, double bytes, bool up)
{
    const struct line_times *times = up ? &l->up : &l->down;
    double bps = up ? l->up_bps : l->down_bps;
    if (times->count)
        return measured_s(times, bytes);
    double rate = line_rate_bps(l, bps) / 8, wire = line_wire_bytes(bytes);
    double first = (double)l->streams * WINDOW_SEGMENTS * SEGMENT_BYTES, full = rate * l->rtt_s;
    if (full <= first || l->bbr)
        return wire / rate;
    /* The window doubles in every round trip until it fills the line. */
    double doublings = log2(full / first), sent = full - first;
    if (wire <= sent)
        return l->rtt_s * log2(wire / first + 1);
    return l->rtt_s * doublings + (wire - sent) / rate;
}

double line_sum_s(double one_s, double all_s, unsigned sites)
{
    bool more = sites > 1 && all_s > one_s; /* a clock may say otherwise of a short sum */
    return more ? (all_s - one_s) / (sites - 1) : all_s / sites;
}
