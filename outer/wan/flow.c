/* SPDX-License-Identifier: Apache-2.0 */
/* The model of one direction. Exactness: the transmitter's clock keeps the remainder of every
 * division, so a thousand packets take what one of a thousand times the size would. */
#include "outer/wan/flow.h"
#include <math.h>
#include <string.h>
#include "kernels/base/err.h"
#include "kernels/base/rng.h"

__extension__ typedef unsigned __int128 wide;
static const uint64_t SECOND_NS = 1000000000;
/* Jitter follows a path through one random value per slot. A slot is long compared with the jitter,
 * so that packets seldom meet one that left before them, which would cut off the low half of the
 * distribution. */
static const double SLOT_NS = 10e6, SLOT_PER_JITTER = 8;

void flow_open(struct flow *f, const struct flow_settings *set, struct flow_counters *count)
{
    *f = (struct flow){
        .set = *set, .count = count, .free_ns = INT64_MIN / 2, .last_ns = INT64_MIN, .slot = -1};
}

/* ---- transmitter ---- */

static uint64_t rate_at(const struct flow *f, int64_t at_ns)
{
    bool later = f->set.later_ns && at_ns >= f->set.later_ns;
    return later ? f->set.later_bps : f->set.rate_bps;
}

uint64_t flow_backlog_bytes(const struct flow *f, int64_t now_ns)
{
    int64_t later_ns = f->set.later_ns, free_ns = f->free_ns;
    if (free_ns <= now_ns)
        return 0;
    wide bits = (wide)(uint64_t)(free_ns - now_ns) * rate_at(f, now_ns);
    if (later_ns > now_ns && later_ns < free_ns)
        bits = (wide)(uint64_t)(later_ns - now_ns) * f->set.rate_bps +
               (wide)(uint64_t)(free_ns - later_ns) * f->set.later_bps;
    return (uint64_t)((bits + 8 * SECOND_NS - 1) / (8 * SECOND_NS));
}

/* Takes a packet; returns when its last bit has left. Token bucket as a virtual clock: after a
 * pause the clock is late by the time that the burst takes. A packet has the rate of its
 * first bit. */
static int64_t transmit(struct flow *f, int64_t now_ns, size_t size_bytes)
{
    uint64_t rate_bps = rate_at(f, f->free_ns > now_ns ? f->free_ns : now_ns);
    if (rate_bps == 0)
        return now_ns;
    int64_t credit_ns = (int64_t)((wide)f->set.burst_bytes * 8 * SECOND_NS / rate_bps);
    if (f->free_ns < now_ns - credit_ns) {
        f->free_ns = now_ns - credit_ns;
        f->free_rest = 0;
    }
    if (f->rest_bps != rate_bps)
        f->free_rest = 0;
    f->rest_bps = rate_bps;
    uint64_t work = (uint64_t)size_bytes * 8 * SECOND_NS + f->free_rest;
    f->free_ns += (int64_t)(work / rate_bps);
    f->free_rest = work % rate_bps;
    return f->free_ns > now_ns ? f->free_ns : now_ns;
}

int64_t flow_outage_end(const struct flow *f, int64_t at_ns)
{
    int64_t turn = 0, in = at_ns;
    if (f->set.outage_every_ns) {
        in = at_ns % f->set.outage_every_ns;
        turn = at_ns - in;
    }
    for (size_t i = 0; i < f->set.outage_count; i++)
        if (in >= f->set.outages[i].from_ns && in < f->set.outages[i].until_ns)
            return turn + f->set.outages[i].until_ns;
    return at_ns;
}

/* ---- dice ---- */
static double share(uint32_t word)
{
    return (double)word * 0x1p-32;
}

/* Gilbert 1960: two states, all is lost in the bad one; loss = p / (p + r), mean run 1 / r. */
static bool lose(struct flow *f, uint32_t word)
{
    if (f->set.loss_run <= 0)
        return share(word) < f->set.loss;
    double leave = 1 / f->set.loss_run;
    double enter = f->set.loss < 1 ? leave * f->set.loss / (1 - f->set.loss) : 1;
    if (f->set.loss >= 1)
        f->losing = true;
    else if (f->losing)
        f->losing = share(word) >= leave;
    else
        f->losing = share(word) < enter;
    return f->losing;
}

/* Between the values of two slots in a straight line, scaled so that the variance stays 1. */
static double wander(struct flow *f, int64_t at_ns)
{
    double length = fmax(SLOT_NS, SLOT_PER_JITTER * f->set.jitter_ns), t = (double)at_ns / length;
    int64_t slot = (int64_t)t;
    uint64_t stream = RNG_WAN_JITTER | (uint64_t)f->set.direction << 32;
    if (slot != f->slot) {
        f->slot = slot;
        for (int i = 0; i < 2; i++)
            f->slot_value[i] = (double)rng_normal(f->set.seed, stream, (uint64_t)(slot + i));
    }
    double b = t - (double)slot, a = 1 - b;
    return (a * f->slot_value[0] + b * f->slot_value[1]) / sqrt(a * a + b * b);
}

static int64_t jitter(struct flow *f, int64_t at_ns)
{
    if (f->set.jitter_ns <= 0)
        return 0;
    double z = wander(f, at_ns),
           above = fmax(0.5 * erfc(z * M_SQRT1_2), 1e-12); /* share of larger values */
    switch (f->set.jitter) {
    case FLOW_UNIFORM:
        return (int64_t)(f->set.jitter_ns * sqrt(3) * (1 - 2 * above));
    case FLOW_EXPONENTIAL:
        return (int64_t)(f->set.jitter_ns * -log(above));
    default:
        return (int64_t)(f->set.jitter_ns * z);
    }
}

/* ---- packets ---- */
static struct flow_answer dropped(struct flow *f, enum flow_drop why)
{
    f->count->dropped[why]++;
    return (struct flow_answer){.drop = why};
}

/* Arrival of what left the transmitter: never before its predecessor, unless others may overtake
 * it. */
static int64_t arrival(struct flow *f, int64_t left_ns, bool late)
{
    int64_t way = f->set.delay_ns + jitter(f, left_ns);
    int64_t due = left_ns + (way > 0 ? way : 0);
    if (late) {
        f->count->reordered++;
        return due + f->set.reorder_ns;
    }
    if (due < f->last_ns)
        due = f->last_ns;
    f->last_ns = due;
    return due;
}

static void note_backlog(struct flow *f, uint64_t backlog)
{
    if (backlog > f->count->queue_peak_bytes)
        f->count->queue_peak_bytes = backlog;
}

struct flow_answer flow_offer(struct flow *f, int64_t now_ns, size_t size_bytes)
{
    uint32_t dice[4] = {0};
    bool random = f->set.loss > 0 || f->set.duplicate > 0 || f->set.reorder > 0;
    uint64_t backlog = flow_backlog_bytes(f, now_ns), index = f->packet++;
    f->count->packets++;
    f->count->bytes += size_bytes;
    if (backlog > 0 && backlog + size_bytes > f->set.queue_bytes)
        return dropped(f, FLOW_QUEUE);
    if (rate_at(f, now_ns))
        note_backlog(f, backlog + size_bytes);
    int64_t left = transmit(f, now_ns, size_bytes);
    if (random)
        rng_block(f->set.seed, RNG_WAN | (uint64_t)f->set.direction << 32, index, dice);
    bool lost = f->set.loss > 0 && lose(f, dice[0]);
    if (flow_outage_end(f, left) != left)
        return dropped(f, FLOW_OUTAGE);
    if (lost)
        return dropped(f, FLOW_LOSS);
    struct flow_answer answer = {.copies = 1};
    if (share(dice[1]) < f->set.duplicate) {
        answer.copies = 2;
        f->count->duplicated++;
    }
    answer.due_ns = arrival(f, left, share(dice[2]) < f->set.reorder);
    return answer;
}

int64_t flow_carry(struct flow *f, int64_t now_ns, size_t size_bytes)
{
    f->count->packets++;
    f->count->bytes += size_bytes;
    if (rate_at(f, now_ns))
        note_backlog(f, flow_backlog_bytes(f, now_ns) + size_bytes);
    int64_t left = transmit(f, now_ns, size_bytes);
    return arrival(f, flow_outage_end(f, left), false);
}
