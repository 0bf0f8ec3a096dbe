/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/path.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "outer/link/line.h"

/* Share of a socket buffer that is in flight; the rest is the kernel's overhead for a packet. */
static const double IN_FLIGHT = 0.6;
/* A transfer is long when it carries LONG bandwidth-delay products: in slow start it has carried
 * twice what its last round trip carried. */
static const double LONG = 4;
/* Pace over measured rate: above 1, so that a path that has become faster is noticed. A queue of 4
 * % of a transfer's time is short. */
static const double GAIN = 1.04, GAIN_FASTER = 1.25, GAIN_MOST = 2;
/* The pace was the limit if the transfer was faster than before by nearly the gain. */
static const double REACHED = 0.99;
/* Of a loss-based congestion control's long path, for each connection: cubic gains so much in seven
 * seconds from nothing. */
static const double WINDOW_BYTES = 256 << 10;

bool path_is_bbr(const char *congestion)
{
    return strncmp(congestion, "bbr", 3) == 0;
}

/* Bytes per second of one connection: what its buffer holds in a round trip, what loss leaves. */
static double by_buffer(const struct path_facts *f)
{
    return f->buffer_bytes > 0 && f->rtt_s > 0 ? IN_FLIGHT * f->buffer_bytes / f->rtt_s : INFINITY;
}

static double by_loss(const struct path_facts *f)
{
    struct line l = {.rtt_s = f->rtt_s, .loss = f->loss, .streams = 1};
    bool limits = !path_is_bbr(f->congestion) && f->loss > 0 && f->rtt_s > 0;
    return limits ? line_rate_bps(&l, LINE_RATE_MAX) / 8 : INFINITY;
}

static double by_window(const struct path_facts *f)
{
    return path_is_bbr(f->congestion) ? INFINITY : WINDOW_BYTES / f->rtt_s;
}

static unsigned streams_for(double connections)
{
    return connections >= PATH_STREAMS_MAX ? PATH_STREAMS_MAX
           : connections <= 1              ? 1
                                           : (unsigned)ceil(connections);
}

/* Random loss explains the rate within a factor of two or three. A rate far above what the loss
 * allows was lost in one burst, when a queue overflowed; far below, something else is the limit. */
static bool loss_binds(const struct path_facts *f)
{
    double share = f->mean / (f->streams * by_loss(f));
    return share > 0.6 && share < 3;
}

struct path_choice path_choose(const struct path_facts *f)
{
    bool bbr = path_is_bbr(f->congestion);
    double buffer = by_buffer(f), loss = by_loss(f);
    if (f->rate <= 0 || f->rtt_s <= 0)
        return (struct path_choice){bbr ? 1 : PATH_STREAMS_MAX, 0, PATH_UNKNOWN};
    if (f->rate > 0.7 * f->streams * buffer)
        return (struct path_choice){streams_for(2 * f->rate / buffer), 0, PATH_BUFFERS};
    if (loss_binds(f))
        return (struct path_choice){PATH_STREAMS_MAX, 0, PATH_LOSS};
    bool burst = f->mean >= 3 * f->streams * loss;
    unsigned full = streams_for(1.5 * f->rate / (burst || buffer < loss ? buffer : loss)),
             windows = streams_for(f->rate / by_window(f));
    return windows > full ? (struct path_choice){windows, f->rate, PATH_WINDOWS}
                          : (struct path_choice){full, f->rate, PATH_FULL};
}

void path_open(struct path *p, const struct path_facts *f, unsigned fixed)
{
    *p = (struct path){.facts = *f, .fixed = fixed, .gain = GAIN};
    p->now = fixed ? (struct path_choice){fixed, 0, PATH_FIXED} : path_choose(f);
}

void path_congestion(struct path *p, const char *name)
{
    snprintf(p->facts.congestion, sizeof p->facts.congestion, "%s", name);
    if (!p->fixed && !p->transfers)
        p->now = path_choose(&p->facts);
}

static double largest(const struct path *p)
{
    double most = 0;
    for (unsigned i = 0; i < p->transfers && i < PATH_WINDOW; i++)
        most = fmax(most, p->rates[i]);
    return most;
}

/* The next pace over the rate: more and more as long as the path takes all that is sent. BBR may
 * have left its start-up phase too early, at a part of the path's rate, and then probes for more by
 * itself: until a transfer is no faster than those before, the pace leaves it room. */
static double gain_next(const struct path *p, const struct path_sample *s)
{
    bool limited = p->now.pace > 0 && s->rate > REACHED * p->gain * p->facts.rate;
    bool grows = path_is_bbr(p->facts.congestion) && s->rate > GAIN * p->facts.rate;
    if (grows)
        return GAIN_MOST;
    return !limited ? GAIN : p->gain < GAIN_FASTER ? GAIN_FASTER : GAIN_MOST;
}

void path_learn(struct path *p, const struct path_sample *s)
{
    if (p->fixed)
        return;
    if (s->rtt_s > 0 && (p->facts.rtt_s <= 0 || s->rtt_s < p->facts.rtt_s))
        p->facts.rtt_s = s->rtt_s;
    if (s->rate > 0 && s->seconds > 0 && s->bytes >= LONG * s->rate * p->facts.rtt_s) {
        p->gain = gain_next(p, s);
        p->rates[p->transfers++ % PATH_WINDOW] = s->rate;
        p->facts.rate = largest(p);
        p->facts.mean = s->bytes / s->seconds;
        p->facts.loss = s->loss;
        p->facts.streams = s->streams;
    }
    unsigned before = p->now.streams;
    p->now = path_choose(&p->facts);
    p->now.pace *= p->gain;
    if (p->now.streams < before && 2 * p->now.streams > before)
        p->now.streams = before; /* a few fewer: not worth other connections each time */
}

void path_text(const struct path *p, char *out, size_t size)
{
    static const char *const why[] = {[PATH_FIXED] = "site.streams gives the number",
                                      [PATH_UNKNOWN] = "the path is not measured",
                                      [PATH_FULL] = "they fill the path",
                                      [PATH_BUFFERS] = "the socket buffers limit each",
                                      [PATH_LOSS] = "lost packets limit each",
                                      [PATH_WINDOWS] =
                                          "congestion windows grow slowly on a long path"};
    const struct path_facts *f = &p->facts;
    char pace[48] = "";
    if (p->now.pace > 0)
        snprintf(pace, sizeof pace, ", paced at %.0f Mbit/s", p->now.pace * 8e-6);
    snprintf(out, size, "%u connection%s with %s%s: %s", p->now.streams,
             p->now.streams == 1 ? "" : "s",
             *f->congestion ? f->congestion : "the kernel's congestion control", pace,
             p->now.reason == PATH_FULL && p->now.streams == 1 ? "it fills the path"
                                                               : why[p->now.reason]);
}
