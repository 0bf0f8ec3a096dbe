/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring end of atoll probe: round trip and both rates over the real link: the TLS, calls,
 * chunks and connections of contributions.
 */
#include "outer/plan/probe.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "kernels/base/clock.h"
#include "outer/identity/tls.h"
#include "outer/link/line.h"
#include "outer/link/link.h"
#include "outer/link/tcp.h"

enum { PINGS = 20, REPEATS = 3, WARM_BYTES = 4 << 20 };
static const double PAUSE_S =
    0.3; /* and two round trips: longer than the time after which TCP calls a connection idle */

struct probe {
    struct run *run;
    struct measured *found;
    int64_t most_mib;
    struct link *link;
    uint8_t *bytes; /* [largest payload]; content does not matter */
    uint64_t sent;  /* payloads so far; used as round numbers, so that data follows each offer at
                       once, as in a run */
    double rtt_s;
};

static struct wire_head head_of(const struct probe *c)
{
    struct wire_head h = {.incarnation = 1, .instance = 1};
    snprintf(h.run, sizeof h.run, "%s", c->run->s.run_name);
    snprintf(h.site, sizeof h.site, "%s", c->run->o.site_name);
    return h;
}

static enum err ping(struct probe *c, double *seconds)
{
    struct wire_report m = {.head = head_of(c)};
    struct wire_answer a;
    double begin = clock_mono_s();
    TRY(c->link->ops->report(c->link, &m, &a));
    *seconds = clock_mono_s() - begin;
    if (a.outcome == ROUND_CURRENT)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s is a running aggregator; measure against atoll probe --listen "
                   "on the same machine, on "
                   "another port",
                   c->run->o.site_aggregator);
}

static enum err send(struct probe *c, size_t size, double *seconds)
{
    struct wire_contribution m = {
        .head = head_of(c), .round = c->sent++, .payload_bytes = size, .weight = 1};
    struct wire_answer a;
    double begin = clock_mono_s();
    TRY(c->link->ops->contribute(c->link, &m, c->bytes, &a));
    *seconds = clock_mono_s() - begin;
    return a.outcome == ROUND_RECEIPT
               ? ERR_OK
               : err_set(ERR_PROTO, "the other end answers %s", round_outcome_name(a.outcome));
}

static enum err get(struct probe *c, size_t size, double *seconds)
{
    struct wire_fetch m = {.head = head_of(c), .what = WIRE_AGGREGATE, .round = size};
    struct wire_answer a = {0}; /* no byte received yet */
    double begin = clock_mono_s();
    TRY(c->link->ops->fetch(c->link, &m, c->bytes, size, &a));
    *seconds = clock_mono_s() - begin;
    return a.outcome == ROUND_NONE
               ? ERR_OK
               : err_set(ERR_PROTO, "the other end answers %s", round_outcome_name(a.outcome));
}

struct fit { /* seconds = alpha + beta * bytes, least squares (Shi et al. 2021, 2005.13247) */
    double n, x, y, xx, xy;
    double variation; /* standard deviation over mean, of the largest size */
    double bps;
};

static void fit_add(struct fit *f, double bytes, double seconds)
{
    f->n++;
    f->x += bytes;
    f->y += seconds;
    f->xx += bytes * bytes;
    f->xy += bytes * seconds;
}

static void pause_s(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

static double median_of_three(const double t[REPEATS])
{
    return fmax(fmin(t[0], t[1]), fmin(fmax(t[0], t[1]), t[2]));
}

/* Measures one direction with sizes that grow by a factor of 4 while a transfer takes less than 2
 * s, each after a pause, as in rounds. times: seconds beyond the round trip. */
static enum err rate(struct probe *c, const char *what,
                     enum err (*move)(struct probe *, size_t, double *), struct fit *f,
                     struct config_list *times)
{
    size_t most = (size_t)c->most_mib << 20, size = LINE_TIMES_FIRST;
    double took[REPEATS] = {0}, least = 1e-6;
    TRY_ALLOC(times->items = arena_array(&c->run->perm, LINE_TIMES_MAX, sizeof *times->items));
    TRY(move(c, size, took)); /* warm-up: connections and handshakes are not measured */
    TRY(move(c, most < WARM_BYTES ? most : WARM_BYTES, took));
    *f = (struct fit){0};
    for (took[0] = 0; size <= most && median_of_three(took) < 2; size *= 4) {
        double sum = 0, squares = 0;
        for (int i = 0; i < REPEATS; i++) {
            pause_s(PAUSE_S + 2 * c->rtt_s);
            TRY(move(c, size, &took[i]));
            fit_add(f, (double)size, took[i]);
            sum += took[i];
            squares += took[i] * took[i];
        }
        f->variation =
            sqrt(fmax(0, squares / REPEATS - sum * sum / REPEATS / REPEATS)) * REPEATS / sum;
        least = fmax(least, median_of_three(took) - c->rtt_s);
        TRY_ALLOC(times->items[times->count++] = arena_printf(&c->run->perm, "%.4g", least));
    }
    size_t largest = size / 4;
    double beta = (f->n * f->xy - f->x * f->y) / (f->n * f->xx - f->x * f->x);
    if (!(beta > 0))
        return err_set(ERR_LINK,
                       "%s: time does not grow with size; --most-mib %" PRId64
                       " is too little for this link",
                       what, c->most_mib);
    f->bps = 8 / beta * line_wire_bytes((double)largest) / (double)largest;
    fprintf(stderr, "%-4s %.4g Mbit/s on the link, fitted up to %zu KiB, varies by %.1f %%\n", what,
            f->bps / 1e6, largest >> 10, 100 * f->variation);
    return ERR_OK;
}

/* The choice of the link, and the host's settings that are missing for it. */
static void show_settings(struct probe *c, double bps)
{
    struct tcp_settings t;
    struct path up;
    unsigned down;
    char text[192];
    link_choice(c->link, &up, &down);
    path_text(&up, text, sizeof text);
    fprintf(stderr, "streams up: %s\n", text);
    if (down)
        fprintf(stderr, "streams down: %u connection%s: the other end's choice\n", down,
                down == 1 ? "" : "s");
    tcp_read(&t, "/proc/sys/net/ipv4");
    if (*up.facts.congestion)
        snprintf(t.congestion, sizeof t.congestion, "%s", up.facts.congestion);
    tcp_text(&t, text, sizeof text);
    fprintf(stderr, *text ? "tcp %s\n" : "%s", text);
    tcp_advise(&t, bps, c->rtt_s, up.now.streams, stderr);
}

static enum err measure(struct probe *c)
{
    struct link_dial d = run_dial(c->run); /* with the limits that the run will use */
    struct fit up, down;
    double best = INFINITY, worst = 0, seconds;
    struct wire_leave leave = {.head = head_of(c)};
    struct wire_answer ignored;
    int64_t days;
    if (!*c->run->o.site_name)
        return err_set(ERR_CONFIG, "site.name is empty: give the name of the certificate: "
                                   "--site.name NAME, one of outer.sites");
    d.target = c->run->o.site_aggregator;
    TRY(run_proxy(c->run));
    TRY(run_tls(c->run, c->run->o.site_name, &d.tls));
    TRY(tls_check(&d.tls, c->run->s.run_name, TLS_SITE, c->run->o.site_name, clock_wall_s(),
                  &days));
    TRY(link_open(&c->link, &d));
    TRY(ping(c, &seconds));
    for (int i = 0; i < PINGS; i++) {
        TRY(ping(c, &seconds));
        best = fmin(best, seconds);
        worst = fmax(worst, seconds);
    }
    fprintf(stderr, "rtt  %.3f ms, at most %.3f ms of %d\n", 1e3 * best, 1e3 * worst, PINGS);
    c->rtt_s = best;
    c->found->plan_rtt_ms = 1e3 * best;
    TRY(rate(c, "up", send, &up, &c->found->plan_up_s));
    TRY(rate(c, "down", get, &down, &c->found->plan_down_s));
    show_settings(c, fmax(up.bps, down.bps));
    c->found->plan_up_mbit = up.bps / 1e6;
    c->found->plan_down_mbit = down.bps / 1e6;
    return c->link->ops->leave(c->link, &leave, &ignored);
}

enum err probe_link(struct run *r, struct measured *found, int64_t most_mib)
{
    struct probe c = {.run = r, .found = found, .most_mib = most_mib};
    TRY_ALLOC(c.bytes = arena_alloc(&r->perm, (size_t)most_mib << 20));
    enum err e = measure(&c);
    if (c.link)
        c.link->ops->close(c.link);
    return e;
}
