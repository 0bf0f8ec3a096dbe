/* atoll sim: the whole run of a configuration in virtual time, through the code that real runs use.
 */
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "kernels/base/number.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/cmd_plan.h"
#include "outer/link/tcp.h"
#include "outer/plan/plan_settings.h"
#include "outer/view/progress.h"
#include "outer/record/jsonl.h"
#include "outer/sim/simulate.h"
#include "outer/wan/topology.h"

struct sim_later { /* a site's line from then on, 0: it stays */
    double up_s, up_bps, down_s, down_bps;
};
struct sim_cmd {
    struct run *p;
    const struct args *args;
    struct plan_task task;
    const char *topology, *record;
    struct jsonl log;
    bool force;
    int64_t rounds, seed;
    double days;
    double began_s, told_s; /* on the wall's clock: the simulation, the last line about it */
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

/* A line on stderr every PROGRESS_SPARSE_S seconds. */
static void tell(void *self, int64_t step, int64_t steps)
{
    struct sim_cmd *c = self;
    double now = clock_mono_s(), share = (double)step / (double)steps;
    char left[32];
    if (c->began_s <= 0)
        c->began_s = c->told_s = now;
    if (now - c->told_s < PROGRESS_SPARSE_S)
        return;
    c->told_s = now;
    progress_duration(left, sizeof left, (now - c->began_s) * (1 - share) / share);
    fprintf(stderr, "simulated %.1f %%, about %s left; Ctrl-C ends it with what it has so far\n",
            100 * share, left);
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
static enum err set_probe(struct sim_cmd *c, const struct args *args, struct simulate_site *s,
                          const char *path)
{
    struct measured m = c->p->measured;
    struct plan_task t;
    TRY(measured_read(&m, path, args, &c->p->perm));
    plan_settings_task(&t, c->p, &m);
    s->step_s = t.step_s;
    s->link = t.link;
    s->encode_s = t.outer.encode_s;
    s->apply_s = t.outer.apply_s;
    return ERR_OK;
}

static struct simulate_site *find(struct sim_cmd *c, const char *name, size_t length)
{
    for (unsigned i = 0; i < c->count; i++)
        if (!strncmp(c->site[i].name, name, length) && !c->site[i].name[length])
            return &c->site[i];
    return NULL;
}

static enum err set_site(struct sim_cmd *c, const struct args *args, const char *text)
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
            TRY(set_probe(c, args, s, pair + 6));
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
static enum err topology_links_set(struct sim_cmd *c)
{
    struct topology t;
    struct tcp_settings here;
    TRY(topology_load(&t, c->topology, NULL, &c->p->perm));
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
            return err_set(ERR_CONFIG, "%s has %u places beside the aggregator, the run %u sites",
                           t.source, t.places - 1, c->count);
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
    const struct sim_cmd *c = self;
    const struct sim_later *x = &c->later[site];
    if (x->up_s > 0 && t_s >= x->up_s)
        l->up_bps = x->up_bps;
    if (x->down_s > 0 && t_s >= x->down_s)
        l->down_bps = x->down_bps;
}

static enum err make_sites(struct sim_cmd *c, const struct args *args)
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
    if (c->topology) {
        TRY_ALLOC(c->later = arena_array(&c->p->perm, c->count, sizeof *c->later));
        TRY(topology_links_set(c));
    }
    for (int i = 0; i < args->operand_count; i++)
        TRY(set_site(c, args, args->operand[i]));
    for (unsigned i = 0; i < c->count; i++) {
        const struct simulate_site *s = &c->site[i];
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
                           s->name, s->step_s, s->link.up_bps / 1e6, s->link.down_bps / 1e6,
                           s->name);
    }
    return ERR_OK;
}

/* ---- what came out ---- */

static void print_site(const struct simulate_site *s, const struct simulate_site_result *r)
{
    char up[32], down[32];
    progress_bytes(up, sizeof up, (double)r->up_bytes);
    progress_bytes(down, sizeof down, (double)r->down_bytes);
    printf("%-16s %6.2f %% %10s %10s %8llu %7llu %9.2f %6lld\n", s->name,
           100 * r->train_s / r->total_s, up, down, (unsigned long long)r->merged,
           (unsigned long long)r->missed, r->stale_steps, (long long)r->stale_max);
}

static void print_sites(const struct sim_cmd *c, const struct simulate_result *r)
{
    enum { SHOWN = 20 };
    unsigned worst = 0;
    printf("\n%-16s %8s %10s %10s %8s %7s %9s %6s\n", "site", "trains", "up", "down", "rounds",
           "missed", "staleness", "most");
    for (unsigned i = 0; i < c->count; i++) {
        if (i < SHOWN)
            print_site(&c->site[i], &r->site[i]);
        if (r->site[i].train_s / r->site[i].total_s <
            r->site[worst].train_s / r->site[worst].total_s)
            worst = i;
    }
    if (c->count > SHOWN) {
        printf("... and %u more; the one that trains least:\n", c->count - SHOWN);
        print_site(&c->site[worst], &r->site[worst]);
    }
}

/* Strict mode: exactly what atoll train predicts, or the simulation is wrong. */
static void print_bytes(const struct sim_cmd *c, const struct simulate_result *r)
{
    struct schedule s = c->p->sync.schedule;
    size_t elements[ROUND_FRAGMENTS_MAX];
    for (unsigned f = 0; f < s.fragments; f++)
        elements[f] = c->p->sync.fragments.f[f].elements;
    s.steps = r->steps;
    uint64_t up = schedule_upload_bytes(&s, elements),
             down = schedule_download_bytes(&s, elements, c->count);
    unsigned same = 0;
    for (unsigned i = 0; i < c->count; i++)
        same += r->site[i].up_bytes == up && r->site[i].down_bytes == down;
    printf("\nPayload as the schedule predicts, %llu bytes up and %llu down a site: at %u of %u "
           "sites.\n",
           (unsigned long long)up, (unsigned long long)down, same, c->count);
}

static void print_result(const struct sim_cmd *c, const struct simulate_result *r)
{
    char total[32], wall[32];
    progress_duration(total, sizeof total, r->total_s);
    progress_duration(wall, sizeof wall, r->wall_s);
    printf("%u sites, %lld aggregator%s, %lld steps, %llu rounds of %u fragments, %llu calls\n",
           c->count, (long long)c->p->o.outer_aggregators, c->p->o.outer_aggregators > 1 ? "s" : "",
           (long long)r->steps, (unsigned long long)r->rounds, c->p->sync.schedule.fragments,
           (unsigned long long)r->calls);
    if (r->ended)
        printf("The first %g days of the run, in which all sites made %lld steps.\n", c->days,
               (long long)r->steps);
    else if (r->stopped)
        printf("Stopped: of %lld steps all sites had made the first %lld. What follows is of "
               "these; nothing is stored.\n",
               (long long)c->p->sync.schedule.steps, (long long)r->steps);
    else if (r->steps < c->p->sync.schedule.steps)
        printf("Only the first %lld of %lld steps (--rounds); the last round of what was simulated "
               "is a full-precision round.\n",
               (long long)r->steps, (long long)c->p->sync.schedule.steps);
    printf("time %s (%.1f s), of it training %.2f %%; a round takes %.3f s from its send to its "
           "commit\n",
           total, r->total_s, 100 * r->utilisation, r->exchange_s);
    print_sites(c, r);
    for (uint32_t i = 0; i < r->last.amendments.count; i++)
        printf("%samendment %u of outer.replan: %s from round %llu on\n", i ? "" : "\n", i + 1,
               r->last.amendments.list[i].text,
               (unsigned long long)r->last.amendments.list[i].round);
    if (!r->stopped && !r->last.amendments.count && c->p->o.outer_mode == OUTER_MODE_STRICT)
        print_bytes(c, r);
    printf("Simulated in %s (%.1f s), %.3g times as fast as the run.\n", wall, r->wall_s,
           r->total_s / r->wall_s);
}

/* As atoll train records a round, and whose it is; t: seconds after the run's start. */
static void rounded(void *self, const struct simulate_round *r)
{
    struct sim_cmd *c = self;
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

static enum err open_record(struct sim_cmd *c)
{
    if (!c->record)
        return ERR_OK;
    if (c->force)
        TRY(file_remove_tree(c->record));
    TRY(jsonl_open(&c->log, c->record, &c->p->perm));
    jsonl_hold(
        &c->log); /* a year has millions of lines: written as many at once as the buffer holds */
    return ERR_OK;
}

/* Steps that the fastest site makes in `days` without waiting: no site makes more. */
static double shortest_step_s(const struct sim_cmd *c)
{
    double least = c->site[0].step_s;
    for (unsigned i = 1; i < c->count; i++)
        least = c->site[i].step_s < least ? c->site[i].step_s : least;
    return least;
}

static enum err sim(struct run *p, void *self)
{
    struct sim_cmd *c = self;
    const struct args *args = c->args;
    struct simulate_result r;
    c->p = p;
    TRY(plan_settings_may_write(c->record, c->force));
    plan_settings_task(&c->task, c->p, &c->p->measured);
    TRY(make_sites(c, args));
    if (c->days > 0)
        c->p->sync.schedule.steps = (int64_t)(c->days * 86400 / shortest_step_s(c));
    if (c->p->sync.schedule.steps < 1)
        return err_set(ERR_CONFIG, "--days %g is less than one step of %g s", c->days,
                       shortest_step_s(c));
    TRY(open_record(c));
    struct simulate_options o = {.exchange = &c->p->sync,
                                 .sites = c->site,
                                 .site_count = c->count,
                                 .strict = c->p->o.outer_mode == OUTER_MODE_STRICT,
                                 .grace = c->p->o.outer_grace,
                                 .before_update = c->p->o.outer_before_update,
                                 .straggler_timeout_s = c->p->o.outer_straggler_timeout_s,
                                 .outer = c->task.outer,
                                 .aggregators = (unsigned)c->p->o.outer_aggregators,
                                 .aggregator_bps = c->task.aggregator_bps,
                                 .error_feedback_decay = c->p->o.outer_error_feedback_decay,
                                 .seed = (uint64_t)c->seed,
                                 .settings = &c->p->base,
                                 .relined = c->later ? relined : NULL,
                                 .relined_self = c,
                                 .rounds_max = (uint64_t)c->rounds,
                                 .seconds_max = c->days * 86400,
                                 .stop = &stop,
                                 .progress = tell,
                                 .progress_self = c,
                                 .rounded = c->record ? rounded : NULL,
                                 .rounded_self = c};
    mallopt(M_TRIM_THRESHOLD,
            1 << 30); /* what is freed is wanted again in the next virtual millisecond */
    mallopt(M_MMAP_THRESHOLD, 1 << 24);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    log_min(LOG_ERROR);
    log_to(sink, NULL);
    enum err e = simulate(&o, &r, &c->p->perm);
    log_to(NULL, NULL);
    jsonl_release(&c->log);
    jsonl_close(&c->log);
    if (e == ERR_OK)
        print_result(c, &r);
    if (e == ERR_OK && r.stopped && !r.ended)
        return err_set(ERR_STOPPED,
                       "stopped on request; a simulation stores nothing, the next one begins anew");
    return e;
}

enum err cmd_sim(int argc, char **argv)
{
    struct run_source source = {.role = RUN_PLAN};
    struct sim_cmd c = {.seed = 1};
    const struct args_option options[] = {
        PLAN_ROWS(&source),
        {"topology", ARGS_TEXT, &c.topology, .value = "FILE",
         .help = "Links from a topology or preset of atoll wan, one of whose places is the "
                 "aggregator."},
        {"days", ARGS_REAL, &c.days, .max = 36500, .value = "DAYS",
         .help = "Simulate the first N days of the run instead of train.steps; 0: train.steps."},
        {"rounds", ARGS_INT, &c.rounds, .max = 1e9, .value = "N",
         .help = "Only the first N rounds of a fragment; 0: all."},
        {"record", ARGS_TEXT, &c.record, .value = "FILE",
         .help = "Write every round of every site there, in a new file, as lines of metrics.jsonl "
                 "with site and run_s."},
        {"force", ARGS_FLAG, &c.force, .help = "Replace the file of --record."},
        {"seed", ARGS_INT, &c.seed, .max = 9e15, .value = "N",
         .help = "Order of what happens in the same millisecond."},
    };
    struct args args = {
        .command = "sim",
        .summary = "Runs the exchange of a configuration in virtual time: the real protocol, "
                   "aggregator and codecs on "
                   "links with a rate and a delay, the payloads of the real model, training as a "
                   "wait. Says how "
                   "much of the time trains, bytes by site, staleness. No faults. A round takes "
                   "about 0.05 ms of processor time for each site, memory is about 0.5 MiB a site, "
                   "0.1 more for each "
                   "further fragment; --rounds, --days or a larger outer.every make it short.",
        .example = "atoll sim --sites 8 --days 30 --outer.every 500 --plan.step_s 1 --plan.up_mbit "
                   "100 --plan.down_mbit 100 "
                   "--plan.rtt_ms 80 s3:step_s=1.2,up_mbit=20",
        .operands = "[NAME:probe=FILE,step_s=S,up_mbit=R,down_mbit=R,rtt_ms=T,loss_percent=L ...]",
        .settings = run_nearest_of_plan,
        .options = options,
        .count = sizeof options / sizeof *options};
    c.args = &args;
    return cmd_run(&args, &source, argc, argv, sim, &c);
}
