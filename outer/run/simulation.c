/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/simulation.h"
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "kernels/base/number.h"
#include "outer/link/tcp.h"
#include "outer/plan/plan_settings.h"
#include "outer/record/jsonl.h"
#include "outer/wan/topology.h"

struct sim_later { /* a site's line from then on, 0: it stays */
    double up_s, up_bps, down_s, down_bps;
};
struct sim {
    struct run *p;
    const struct simulation_options *o;
    struct plan_task task;
    struct jsonl log;
    struct simulate_site *site;
    struct sim_later *later; /* with a topology */
    unsigned count;
};

static const double LOSS_MAX = 0.1; /* as plan.loss_percent */
static atomic_int stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* Errors alone: the log lines of 1,000 sites would hide them. */
static void sink(void *self, enum log_level level, const char *line)
{
    (void)self;
    if (level >= LOG_ERROR)
        fprintf(stderr, "%s\n", line);
}

/* ---- the sites ---- */

/* NAME:key=value,... with the keys of plan.*: step_s, up_mbit, down_mbit, rtt_ms, loss_percent. */
static enum err set_value(struct simulate_site *s, const char *key, double value, const char *text)
{
    if (!strcmp(key, "step_s")) {
        s->step_s = value;
    } else if (!strcmp(key, "up_mbit")) {
        s->link.up_bps = value * 1e6;
        s->link.up.count = 0; /* what was measured is of another rate */
    } else if (!strcmp(key, "down_mbit")) {
        s->link.down_bps = value * 1e6;
        s->link.down.count = 0;
    } else if (!strcmp(key, "rtt_ms")) {
        s->link.rtt_s = value / 1e3;
    } else if (!strcmp(key, "loss_percent")) {
        s->link.loss = value / 100;
    } else {
        return err_set(
            ERR_CONFIG,
            "\"%.100s\": %.40s is none of probe, step_s, up_mbit, down_mbit, rtt_ms, loss_percent",
            text, key);
    }
    return ERR_OK;
}

/* What was measured at that site. */
static enum err set_probe(struct sim *c, struct simulate_site *s, const char *path)
{
    struct measured m = c->p->measured;
    struct plan_task t;
    TRY(measured_read(&m, path, c->o->args, &c->p->perm));
    plan_settings_task(&t, c->p, &m);
    s->step_s = t.step_s;
    s->link = t.link;
    s->encode_s = t.outer.encode_s;
    s->apply_s = t.outer.apply_s;
    return ERR_OK;
}

static struct simulate_site *find(struct sim *c, const char *name, size_t length)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!strncmp(c->site[i].name, name, length) && !c->site[i].name[length])
            return &c->site[i];
    return NULL;
}

static enum err set_site(struct sim *c, const char *text)
{
    const char *colon = strchr(text, ':');
    struct simulate_site *s = colon ? find(c, text, (size_t)(colon - text)) : NULL;
    if (!colon)
        return err_set(ERR_CONFIG, "\"%.100s\": expected is NAME:step_s=0.8,up_mbit=20", text);
    if (!s)
        return err_set(ERR_CONFIG, "\"%.100s\": there is no site of this name; the first is %s",
                       text, c->site[0].name);
    char *copy = arena_string(&c->p->perm, colon + 1, strlen(colon + 1)), *rest, *pair;
    TRY_ALLOC(copy);
    for (pair = strtok_r(copy, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(pair, '=');
        if (!strncmp(pair, "probe=", 6)) {
            TRY(set_probe(c, s, pair + 6));
            continue;
        }
        double value = -1;
        if (!equals || !number_good(equals + 1, &value) || !(value >= 0) || value > 1e9)
            return err_set(ERR_CONFIG, "\"%.100s\": %.40s is not key=number", text, pair);
        *equals = 0;
        TRY(set_value(s, pair, value, text));
    }
    return ERR_OK;
}

/* The links of an emulated network between its places and the place of the aggregator, by name or
 * by position. */
static enum err topology_links_set(struct sim *c)
{
    struct topology t;
    struct tcp_settings here;
    TRY(topology_load(&t, c->o->topology, NULL, &c->p->perm));
    tcp_read(&here, "/proc/sys/net/ipv4");
    const char *congestion =
        *t.set.wan_congestion ? t.set.wan_congestion : here.congestion; /* as atoll wan has it */
    int hub = topology_place(&t, "aggregator");
    unsigned next = 0;
    if (hub < 0)
        return err_set(ERR_CONFIG, "%s: none of its places is the aggregator", t.source);
    for (unsigned i = 0; i < c->count; i++) {
        int place = topology_place(&t, c->site[i].name);
        while (place < 0 && (int)next == hub)
            next++;
        place = place >= 0 ? place : (int)next++;
        if (place >= (int)t.places)
            return err_set(ERR_CONFIG,
                           "%s has %u places apart from the aggregator, the run %u sites", t.source,
                           t.places - 1, c->count);
        const struct flow_settings *up = &t.flows[(unsigned)place * t.places + (unsigned)hub],
                                   *down = &t.flows[(unsigned)hub * t.places + (unsigned)place];
        struct line *l = &c->site[i].link;
        l->up.count = l->down.count = 0;
        l->bbr = strcmp(congestion, "bbr") == 0;
        l->up_bps = up->rate_bps ? (double)up->rate_bps : LINE_RATE_MAX;
        l->down_bps = down->rate_bps ? (double)down->rate_bps : LINE_RATE_MAX;
        l->rtt_s = (double)(up->delay_ns + down->delay_ns) / 1e9;
        l->loss = up->loss > down->loss ? up->loss : down->loss;
        c->later[i] = (struct sim_later){(double)up->later_ns / 1e9, (double)up->later_bps,
                                         (double)down->later_ns / 1e9, (double)down->later_bps};
    }
    return ERR_OK;
}

/* The rates of the topology, before and from later_s on. */
static void relined(void *self, unsigned site, double t_s, struct line *l)
{
    const struct sim *c = self;
    const struct sim_later *x = &c->later[site];
    if (x->up_s > 0 && t_s >= x->up_s)
        l->up_bps = x->up_bps;
    if (x->down_s > 0 && t_s >= x->down_s)
        l->down_bps = x->down_bps;
}

static enum err check_site(const struct simulate_site *s)
{
    if (s->link.loss > LOSS_MAX)
        return err_set(ERR_CONFIG,
                       "site %s: %g %% of packets lost, must be at most %g %%: beyond it TCP "
                       "hardly works, and no formula for "
                       "its rate holds",
                       s->name, 100 * s->link.loss, 100 * LOSS_MAX);
    bool up = s->link.up_bps > 0 || s->link.up.count,
         down = s->link.down_bps > 0 || s->link.down.count;
    if (!(s->step_s > 0) || !up || !down)
        return err_set(ERR_CONFIG,
                       "site %s: a step of %g s, %g up and %g down Mbit/s: nothing would ever "
                       "arrive; give plan.step_s, "
                       "plan.up_mbit, plan.down_mbit, or %s:step_s=..,up_mbit=..",
                       s->name, s->step_s, s->link.up_bps / 1e6, s->link.down_bps / 1e6, s->name);
    return ERR_OK;
}

static enum err make_sites(struct sim *c)
{
    const struct config_list *names = &c->p->o.outer_sites;
    c->count = (unsigned)names->count;
    TRY_ALLOC(c->site = arena_array(&c->p->perm, c->count, sizeof *c->site));
    for (unsigned i = 0; i < c->count; i++)
        c->site[i] = (struct simulate_site){.name = names->items[i],
                                            .step_s = c->task.step_s,
                                            .link = c->task.link,
                                            .encode_s = c->task.outer.encode_s,
                                            .apply_s = c->task.outer.apply_s};
    if (c->o->topology) {
        TRY_ALLOC(c->later = arena_array(&c->p->perm, c->count, sizeof *c->later));
        TRY(topology_links_set(c));
    }
    for (int i = 0; i < c->o->args->operand_count; i++)
        TRY(set_site(c, c->o->args->operand[i]));
    for (unsigned i = 0; i < c->count; i++)
        TRY(check_site(&c->site[i]));
    return ERR_OK;
}

/* ---- the record ---- */

/* As atoll train records a round, and whose it is; t: seconds after the run's start. */
static void rounded(void *self, const struct simulate_round *r)
{
    struct sim *c = self;
    const struct {
        const char *key;
        double value;
    } parts[] = {{"run_s", r->t_s},
                 {"compute_ms", 1e3 * r->compute_s},
                 {"encode_ms", r->times.encode_ms},
                 {"store_ms", r->times.store_ms},
                 {"send_ms", r->times.send_ms},
                 {"wait_ms", r->times.wait_ms},
                 {"fetch_ms", r->times.fetch_ms},
                 {"apply_ms", r->times.apply_ms},
                 {"flight_ms", 1e3 * r->flight_s},
                 {"exposed_ms", 1e3 * r->exposed_s}};
    jsonl_begin(&c->log, "round");
    jsonl_text(&c->log, "site", c->site[r->site].name);
    jsonl_int(&c->log, "step", r->step);
    jsonl_int(&c->log, "fragment", r->fragment);
    jsonl_int(&c->log, "round", (int64_t)r->round);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        jsonl_real(&c->log, parts[i].key, parts[i].value);
    jsonl_end(&c->log);
}

static void line_print(void *self, const char *line, size_t size)
{
    (void)self;
    printf("%.*s\n", (int)size, line);
}

/* "-": standard output. */
static enum err open_record(struct sim *c)
{
    if (!c->o->record)
        return ERR_OK;
    if (strcmp(c->o->record, "-") == 0)
        return jsonl_open_told(&c->log, line_print, NULL, &c->p->perm);
    if (c->o->force)
        TRY(file_remove_tree(c->o->record));
    TRY(jsonl_open(&c->log, c->o->record, &c->p->perm));
    jsonl_hold(
        &c->log); /* a year has millions of lines: written as many at once as the buffer holds */
    return ERR_OK;
}

/* ---- the simulation ---- */

/* Steps that the fastest site makes in `days` without waiting: no site makes more. */
static double shortest_step_s(const struct sim *c)
{
    double least = c->site[0].step_s;
    for (unsigned i = 1; i < c->count; i++)
        least = c->site[i].step_s < least ? c->site[i].step_s : least;
    return least;
}

/* Virtual steps until its end, with the log silent. */
static enum err simulate_all(struct sim *c, struct simulate_result *r)
{
    const struct simulation_options *s = c->o;
    const struct simulate_options o = {.exchange = &c->p->sync,
                                       .sites = c->site,
                                       .site_count = c->count,
                                       .strict = c->p->o.outer_mode == OUTER_MODE_STRICT,
                                       .grace = c->p->o.outer_grace_fraction,
                                       .before_update = c->p->o.outer_before_update,
                                       .straggler_timeout_s = c->p->o.outer_straggler_timeout_s,
                                       .outer = c->task.outer,
                                       .aggregators = (unsigned)c->p->o.outer_aggregators,
                                       .aggregator_bps = c->task.aggregator_bps,
                                       .error_feedback_decay = c->p->o.outer_error_feedback_decay,
                                       .seed = (uint64_t)s->seed,
                                       .settings = &c->p->base,
                                       .relined = c->later ? relined : NULL,
                                       .relined_self = c,
                                       .rounds_max = (uint64_t)s->rounds,
                                       .seconds_max = s->days * 86400,
                                       .stop = &stop,
                                       .progress = s->progress,
                                       .progress_self = s->self,
                                       .rounded = s->record ? rounded : NULL,
                                       .rounded_self = c};
    mallopt(M_TRIM_THRESHOLD,
            1 << 30); /* what is freed is wanted again in the next virtual millisecond */
    mallopt(M_MMAP_THRESHOLD, 1 << 24);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    log_min(LOG_ERROR);
    log_to(sink, NULL);
    enum err e = simulate(&o, r, &c->p->perm);
    log_to(NULL, NULL);
    return e;
}

enum err simulation_run(struct run *p, const struct simulation_options *o,
                        struct simulation_result *out)
{
    struct sim c = {.p = p, .o = o};
    TRY(plan_settings_may_write(o->record, o->force));
    plan_settings_task(&c.task, p, &p->measured);
    TRY(make_sites(&c));
    if (o->days > 0)
        p->sync.schedule.steps = (int64_t)(o->days * 86400 / shortest_step_s(&c));
    if (p->sync.schedule.steps < 1)
        return err_set(ERR_CONFIG, "--days %g is less than one step of %g s", o->days,
                       shortest_step_s(&c));
    TRY(open_record(&c));
    out->site = c.site;
    out->count = c.count;
    enum err e = simulate_all(&c, &out->r);
    jsonl_release(&c.log);
    jsonl_close(&c.log);
    return e;
}
