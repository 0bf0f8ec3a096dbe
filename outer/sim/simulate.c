/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/sim/simulate.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/aggregator/aggregator.h"
#include "outer/diloco/stepper.h"
#include "outer/sim/disk_memory.h"
#include "outer/sim/link_line.h"
#include "outer/link/link_many.h"
#include "outer/config/amend.h"
#include "outer/organ/amend/amend_organ.h"
#include "outer/organ/roster/roster_organ.h"

enum { CENTURY_MS_SHIFT = 42 }; /* 2^42 ms are 139 years: nothing waits longer */
static const char run_name[] = "sim";
static const bool never; /* processes do not end here */

struct simulate_run;
struct node { /* a site */
    struct simulate_run *run;
    const struct simulate_site *as;
    struct simulate_site_result *r;
    unsigned index;
    struct disk_memory disk;
    struct env_sim env;
    struct link_line_end end;
    struct link_line *line; /* [aggregators] */
    struct link *link;      /* to all aggregators */
    struct outer_state replica;
    struct site *site;
    struct arena arena;
    struct stepper stepper;
    struct stepper_update update;
    int64_t step, sent_step[ROUND_FRAGMENTS_MAX];
    double exposed_s[ROUND_FRAGMENTS_MAX]; /* what training has waited for the fragment's round
                                              under way */
    double paced_s, paced_flight_ms; /* at the last submission of fragment 0; flights since then */
    unsigned paced_flights;
    double flight_ms, stale, trained_s; /* virtual time at which the steps under way are done */
    double rounded_s;                   /* when the last round was merged */
    bool started;
};
struct aggregator_node { /* an aggregator */
    struct simulate_run *run;
    unsigned index;
    struct link_sim_server server;
    struct link_line_hub hub;
    struct disk_memory disk;
    struct env_sim env;
};
struct simulate_run {
    const struct simulate_options *o;
    struct simulate_result *r;
    struct schedule schedule;
    struct fragments fragments; /* of the stand-in */
    struct dev_range range[ROUND_FRAGMENTS_MAX];
    size_t elements[ROUND_FRAGMENTS_MAX]; /* of the model */
    float initial[ROUND_FRAGMENTS_MAX * DEV_BLOCK];
    const char *names[ROUND_SITES_MAX];
    struct dev *cpu;
    struct clock_sim clock;
    struct aggregator_node *aggregator;
    unsigned aggregators;
    struct node *node;
    unsigned left; /* sites that have not ended */
    enum err e;
    char why[512];
};

static void run_failed(struct simulate_run *s, enum err e)
{
    if (s->e == ERR_OK) {
        s->e = e;
        snprintf(s->why, sizeof s->why, "%s", err_message());
    }
    s->clock.halted = true;
}

static struct outer_state_options outer_state_settings(const struct simulate_run *s, bool site)
{
    const struct sync_config_replica r = {.site = site,
                                          .sites = s->o->site_count,
                                          .error_feedback_decay = (float)s->o->error_feedback_decay,
                                          .digest = s->o->exchange->digest,
                                          .keep = OUTER_STATES_MIN};
    struct outer_state_options o =
        sync_config_state(&s->fragments, &s->schedule, &s->o->exchange->outer, &r);
    o.remake = aggregator_remake;
    o.remake_self = (void *)(uintptr_t)s->names;
    o.amend = amend_schedule;
    o.amend_self = s->o->settings;
    return o;
}

/* ---- a site ---- */

/* What training made of a block: something else at every site and step, so that no delta is zero.
 */
static void block_train(struct node *n, unsigned f, float *local)
{
    const float *theta = n->replica.state[f].theta;
    for (unsigned i = 0; i < DEV_BLOCK; i++)
        local[i] = theta[i] + (float)((i + n->index + (unsigned)n->step) % 7) / 64 - 3.0f / 64;
}

static bool included(struct node *n, unsigned f, uint64_t round)
{
    struct manifest m;
    if (n->run->o->strict)
        return true;
    return outer_state_manifest(&n->replica, f, round, &m) == ERR_OK && m.sites[n->index].included;
}

static double now_s(const struct node *n)
{
    return (double)n->run->clock.now_ms / 1e3;
}

static void applied(struct node *n, const struct stepper_action *a,
                    const struct site_completion *done)
{
    unsigned f = a->fragment;
    int64_t stale = n->step - n->sent_step[f];
    bool in = included(n, f, a->round);
    n->r->merged += in;
    n->r->missed += n->replica.state[f].round - a->round - in;
    n->r->stale_max = stale > n->r->stale_max ? stale : n->r->stale_max;
    n->stale += (double)stale;
    n->flight_ms += done->flight_ms;
    n->paced_flight_ms += done->flight_ms;
    n->paced_flights++;
    struct simulate_round r = {.site = n->index,
                               .fragment = f,
                               .round = a->round,
                               .step = n->step,
                               .t_s = now_s(n),
                               .flight_s = done->flight_ms / 1e3,
                               .exposed_s = n->exposed_s[f],
                               .times = done->times};
    r.compute_s = r.t_s - n->rounded_s - r.exposed_s;
    n->exposed_s[f] = 0;
    n->rounded_s = r.t_s;
    if (n->run->o->rounded)
        n->run->o->rounded(n->run->o->rounded_self, &r);
}

/* ---- actions of the stepper; the stand-in has no local parameters ---- */

static enum err reap(struct node *n, const struct stepper_action *a)
{
    const float *theta;
    struct site_completion done;
    double begin = now_s(n);
    TRY(site_reap(n->site, a->fragment, &theta, &done));
    n->exposed_s[a->fragment] += now_s(n) - begin;
    applied(n, a, &done);
    if (site_schedule_version(n->site))
        stepper_reschedule(&n->stepper, &n->replica.schedule);
    (void)stepper_reaped(&n->stepper, a, done.reached, done.skipped);
    return site_prune(n->site, a->fragment, done.reached);
}

static struct wire_pace pace_of(struct node *n, unsigned fragment)
{
    struct wire_pace p = {0};
    if (fragment)
        return p;
    if (n->paced_flights)
        p = (struct wire_pace){.trained_s = (double)(n->step - n->sent_step[0]) * n->as->step_s,
                               .exchange_s = n->paced_flight_ms / 1e3 / n->paced_flights};
    p.waited_s = fmax(0, now_s(n) - n->paced_s - p.trained_s);
    n->paced_s = now_s(n);
    n->paced_flight_ms = n->paced_flights = 0;
    return p;
}

static enum err submit(struct node *n, const struct stepper_action *a)
{
    float *local;
    struct wire_pace pace = pace_of(n, a->fragment);
    TRY(site_acquire(n->site, a->fragment, &local));
    block_train(n, a->fragment, local);
    site_submit(n->site, &(struct site_submission){.fragment = a->fragment,
                                                   .round = a->round,
                                                   .base = a->base,
                                                   .weight = 1,
                                                   .data_cursor = (uint64_t)n->step,
                                                   .from_start = a->from_start,
                                                   .step = n->step,
                                                   .loss = 1,
                                                   .tokens_per_second = 1 / n->as->step_s,
                                                   .pace = pace,
                                                   .tokens = (uint64_t)n->step});
    n->sent_step[a->fragment] = n->step;
    return ERR_OK;
}

/* Waits for the round or for its eager start. */
static enum err wait_for(struct node *n, const struct stepper_action *a)
{
    const float *start;
    double begin = now_s(n);
    enum err e = a->verb == STEPPER_EAGER ? site_eager(n->site, a->fragment, &start)
                                          : site_complete(n->site, a->fragment);
    n->exposed_s[a->fragment] += now_s(n) - begin;
    return e;
}

static enum err move(struct node *n, int64_t step)
{
    for (unsigned f = 0; f < n->run->schedule.fragments; f++)
        TRY(site_moved(n->site, f));
    n->step = step;
    return ERR_OK;
}

static enum err act(struct node *n, const struct stepper_action *a)
{
    switch (a->verb) {
    case STEPPER_WAIT:
    case STEPPER_EAGER:
        return wait_for(n, a);
    case STEPPER_APPLY:
    case STEPPER_DROP:
        return reap(n, a);
    case STEPPER_SUBMIT:
        return submit(n, a);
    case STEPPER_MOVE:
        return move(n, a->step);
    default:
        return ERR_OK;
    }
}

static enum err event(struct node *n, enum stepper_phase phase)
{
    struct stepper_event e = {.phase = phase, .step = n->step, .now_ms = n->run->clock.now_ms};
    stepper_step(&n->stepper, &e, &n->update);
    for (unsigned i = 0; i < n->update.count; i++)
        TRY(act(n, &n->update.action[i]));
    return ERR_OK;
}

/* After each event: progress for the caller, and whether it wants to stop. */
static void progress_tell(struct simulate_run *s, int64_t step)
{
    if (s->o->progress)
        s->o->progress(s->o->progress_self, step, s->schedule.steps);
    if (s->o->seconds_max > 0 && (double)s->clock.now_ms >= 1e3 * s->o->seconds_max)
        s->r->ended = true;
    if (s->r->ended || (s->o->stop && *s->o->stop))
        s->r->stopped = s->clock.halted = true;
}

static enum err site_run(struct node *n)
{
    struct simulate_run *s = n->run;
    TRY(site_start(n->site, s->initial));
    stepper_open(&n->stepper, &(struct stepper_options){.schedule = s->schedule,
                                                        .strict = s->o->strict,
                                                        .before_update = s->o->before_update});
    n->started = true;
    n->rounded_s = now_s(n);
    while (n->step < n->stepper.o.schedule.steps) {
        if (s->o->relined)
            s->o->relined(s->o->relined_self, n->index, now_s(n), &n->end.plan);
        int64_t next = stepper_next(&n->stepper, n->step);
        double train_s = (double)(next - n->step) * n->as->step_s;
        n->r->train_s += train_s;
        n->trained_s = now_s(n) + train_s;
        link_line_wait(&n->end, train_s);
        n->step = next;
        progress_tell(s, n->step);
        TRY(event(n, STEPPER_BEFORE_UPDATE)); /* of that step: an update takes no time here */
        TRY(event(n, STEPPER_AFTER_STEP));
        TRY(event(n, STEPPER_MOVED));
    }
    return ERR_OK;
}

/* The two files whose durability ends a site's two pieces of work take the time of the work. */
static void write_takes_time(void *self, const char *path)
{
    struct node *n = self;
    bool outbox = !strncmp(path, "outbox/", 7), fragment = !strncmp(path, "frag/", 5);
    char *end;
    if (!n->started || (!outbox && !fragment))
        return;
    unsigned long f = strtoul(path + (outbox ? 7 : 5), &end, 10);
    ASSERT(f < n->run->fragments.count);
    if (outbox || !strcmp(end, "/CURRENT"))
        link_line_wait(&n->end,
                       (outbox ? n->as->encode_s : n->as->apply_s) * (double)n->run->elements[f]);
}

static enum err site_open_all(struct node *n)
{
    struct simulate_run *s = n->run;
    struct outer_state_options mo = outer_state_settings(s, true);
    struct site_options so = {.run = run_name,
                              .name = n->as->name,
                              .index = n->index,
                              .site_count = s->o->site_count,
                              .aggregators = s->aggregators,
                              .canonical = run_name,
                              .strict = s->o->strict,
                              .error_feedback_decay = (float)s->o->error_feedback_decay,
                              .straggler_ms = (uint64_t)(1e3 * s->o->straggler_timeout_s),
                              .seed = s->o->seed + n->index,
                              .organs = {.count = 2, .at = {roster_at_site(), amend_at_site()}},
                              .stop = &n->env.stop};
    TRY(outer_state_open(&n->replica, &n->env.env, s->cpu, &mo, &n->arena));
    return site_open(&n->site, &n->env.env, n->link, &n->replica, &so, &n->arena);
}

/* At its end, or where the simulation was stopped: steps under way count as far as they are. */
static void account(struct node *n)
{
    struct link_counters bytes;
    n->link->ops->counters(n->link, &bytes);
    n->r->total_s =
        (double)(n->run->clock.now_ms + !n->run->clock.now_ms) / 1e3; /* shares are of it */
    if (n->trained_s > n->r->total_s)
        n->r->train_s -= n->trained_s - n->r->total_s;
    n->r->up_bytes = bytes.payload_up;
    n->r->down_bytes = bytes.payload_down;
}

static void site_task(void *self)
{
    struct node *n = self;
    struct simulate_run *s = n->run;
    enum err e = site_open_all(n);
    if (e == ERR_OK)
        e = site_run(n);
    account(n);
    if (e == ERR_OK)
        e = site_leave(n->site, "done");
    if (e != ERR_OK)
        run_failed(s, e);
    site_close(n->site);
    s->left--;
    for (unsigned k = 0; k < s->aggregators; k++)
        sim_kick(&s->clock, &s->aggregator[k].env);
}

/* ---- an aggregator ---- */

static enum err operate(const struct aggregator_node *k, struct aggregator *a)
{
    const struct simulate_options *o = k->run->o;
    const struct link_service service = aggregator_service(a);
    return o->operate ? o->operate(o->operate_self, &service) : ERR_OK;
}

/* The manifest that made the newest state of fragment 0. */
static enum err last_find(const struct aggregator_node *k, struct outer_state *m)
{
    uint64_t round = m->state[0].round;
    return round ? outer_state_manifest(m, 0, round - 1, &k->run->r->last) : ERR_OK;
}

static enum err aggregator_run(struct aggregator_node *k, struct outer_state *m,
                               struct arena *arena)
{
    struct simulate_run *s = k->run;
    struct outer_state_options mo = outer_state_settings(s, false);
    struct aggregator_options ao = {
        .run = run_name,
        .sites = {.names = s->names, .count = s->o->site_count},
        .canonical = run_name,
        .strict = s->o->strict,
        .straggler_ms = (uint64_t)(1e3 * s->o->straggler_timeout_s),
        .grace = {s->o->grace, (double)s->schedule.overlap / (double)s->schedule.period[0].p.every},
        .tell = {.committed = link_line_committed, .self = &k->hub},
        .place = {.index = k->index, .count = s->aggregators}};
    struct aggregator *a;
    TRY(outer_state_open(m, &k->env.env, s->cpu, &mo, arena));
    TRY(outer_state_begin(m, s->initial));
    TRY(roster_at_aggregator(&ao.organs.at[ao.organs.count++], arena));
    TRY(amend_at_aggregator(&ao.organs.at[ao.organs.count++], s->o->settings, arena));
    TRY(aggregator_open(&a, &k->env.env, m, &ao, arena));
    TRY(operate(k, a));
    link_sim_up(&k->server, aggregator_service(a));
    while (s->left && !k->server.stopped) {
        sim_sleep(&s->clock, k->server.wake_ms, &k->env);
        if (k->server.wake_ms <= s->clock.now_ms)
            link_sim_work(&k->server);
    }
    enum err e = aggregator_failed(a);
    if (e == ERR_OK)
        e = last_find(k, m);
    s->r->state = outer_state_digest(m, false);
    link_sim_down(&k->server);
    aggregator_close(a);
    return e;
}

static void aggregator_task(void *self)
{
    struct aggregator_node *k = self;
    struct arena arena = arena_make(0);
    struct outer_state replica = {0};
    enum err e = aggregator_run(k, &replica, &arena);
    if (e != ERR_OK)
        run_failed(k->run, e);
    outer_state_close(&replica);
    arena_free(&arena);
}

/* ---- a run ---- */

/* One block for each fragment. The residual ratio of the stand-in says nothing about the model's:
 * no round is whole for it. */
static void stand_in_model(struct simulate_run *s)
{
    const struct sync_config *x = s->o->exchange;
    s->schedule = x->schedule;
    s->schedule.residual_reset = 0;
    s->fragments = (struct fragments){.count = x->fragments.count, .parts = x->fragments.parts};
    for (unsigned f = 0; f < s->fragments.count; f++) {
        s->elements[f] = x->fragments.f[f].elements;
        s->range[f] = (struct dev_range){.offset = f * DEV_BLOCK, .count = DEV_BLOCK};
        s->fragments.f[f] = (struct fragment){.ranges = &s->range[f],
                                              .range_count = 1,
                                              .elements = DEV_BLOCK,
                                              .parameters = DEV_BLOCK};
    }
    for (size_t i = 0; i < s->fragments.count * DEV_BLOCK; i++)
        s->initial[i] = (float)(i % 64) / 64;
    int64_t last = 0;
    for (unsigned f = 0; s->o->rounds_max && f < s->schedule.fragments; f++) {
        uint64_t rounds = schedule_rounds(&x->schedule, f);
        int64_t at = schedule_step(&x->schedule, f,
                                   (s->o->rounds_max < rounds ? s->o->rounds_max : rounds) - 1);
        last = at > last ? at : last;
    }
    s->schedule.steps = last ? last : s->schedule.steps;
}

static enum err aggregators_make(struct simulate_run *s, struct arena *a)
{
    s->aggregators = s->o->aggregators ? s->o->aggregators : 1;
    TRY_ALLOC(s->aggregator = arena_array(a, s->aggregators, sizeof *s->aggregator));
    for (unsigned i = 0; i < s->aggregators; i++) {
        struct aggregator_node *k = &s->aggregator[i];
        k->run = s;
        k->index = i;
        disk_memory_open(&k->disk, env_sim_root);
        env_sim_open(&k->env, &s->clock, &k->disk.disk, s->o->seed ^ (uint64_t)i << 32);
        k->server = (struct link_sim_server){
            .clock = &s->clock, .task = &k->env, .dead = &never, .wake_ms = UINT64_MAX};
        link_line_hub_open(&k->hub, &k->server, s->elements, &s->schedule, &s->o->outer,
                           s->o->aggregator_bps);
    }
    return ERR_OK;
}

static enum err run_make(struct simulate_run *s, struct arena *a)
{
    const struct simulate_options *o = s->o;
    struct link *links[WIRE_AGGREGATORS_MAX];
    stand_in_model(s);
    TRY(dev_open(&s->cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY_ALLOC(s->node = arena_array(a, o->site_count, sizeof *s->node));
    TRY_ALLOC(s->r->site = arena_array(a, o->site_count, sizeof *s->r->site));
    TRY(aggregators_make(s, a));
    for (unsigned i = 0; i < o->site_count; i++) {
        struct node *n = &s->node[i];
        s->names[i] = o->sites[i].name;
        n->run = s;
        n->as = &o->sites[i];
        n->r = &s->r->site[i];
        n->index = i;
        disk_memory_open(&n->disk, env_sim_root);
        env_sim_open(&n->env, &s->clock, &n->disk.disk, o->seed + 1 + i);
        n->env.wrote = write_takes_time;
        n->env.watch_self = n;
        n->end = (struct link_line_end){.env = &n->env, .plan = o->sites[i].link};
        TRY_ALLOC(n->line = arena_array(a, s->aggregators, sizeof *n->line));
        for (unsigned k = 0; k < s->aggregators; k++) {
            link_line_open(&n->line[k], &s->aggregator[k].hub, &n->end, run_name, o->sites[i].name);
            links[k] = &n->line[k].link;
        }
        TRY(link_many_open(&n->link, links, s->aggregators));
    }
    s->left = o->site_count;
    return ERR_OK;
}

static void run_unmake(struct simulate_run *s)
{
    clock_sim_close(&s->clock);
    for (unsigned k = 0; s->aggregator && k < s->aggregators; k++)
        if (s->aggregator[k].run) {
            env_sim_close(&s->aggregator[k].env);
            disk_memory_close(&s->aggregator[k].disk);
        }
    for (unsigned i = 0; s->node && i < s->o->site_count; i++) {
        struct node *n = &s->node[i];
        outer_state_close(&n->replica);
        arena_free(&n->arena);
        if (n->link)
            n->link->ops->close(n->link);
        if (n->run) {
            env_sim_close(&n->env);
            disk_memory_close(&n->disk);
        }
    }
    if (s->cpu)
        dev_close(s->cpu);
}

static enum err totals(struct simulate_run *s)
{
    struct simulate_result *r = s->r;
    double share = 0, flight_ms = 0;
    uint64_t flights = 0;
    r->steps = s->schedule.steps;
    for (unsigned k = 0; k < s->aggregators; k++)
        r->calls += s->aggregator[k].hub.calls;
    struct schedule made = s->schedule;
    if (r->last.amendments.count)
        TRY(amend_schedule(s->o->settings, &made, &r->last.amendments));
    for (unsigned f = 0; !r->stopped && f < made.fragments; f++)
        r->rounds += schedule_rounds(&made, f);
    for (unsigned i = 0; i < s->o->site_count; i++) {
        struct simulate_site_result *site = &r->site[i];
        if (site->total_s <= 0) /* stopped before its end */
            account(&s->node[i]);
        if (r->stopped && site->merged + site->missed > r->rounds)
            r->rounds = site->merged + site->missed;
        r->steps = s->node[i].step < r->steps ? s->node[i].step : r->steps;
        r->total_s = site->total_s > r->total_s ? site->total_s : r->total_s;
        share += site->train_s / site->total_s;
        flight_ms += s->node[i].flight_ms;
        flights += site->merged;
        site->stale_steps = site->merged ? s->node[i].stale / (double)site->merged : 0;
    }
    r->utilisation = share / s->o->site_count;
    r->exchange_s = flights ? flight_ms / 1e3 / (double)flights : 0;
    return ERR_OK;
}

enum err simulate(const struct simulate_options *o, struct simulate_result *r, struct arena *a)
{
    struct simulate_run *s;
    double begin = clock_mono_s();
    ASSERT(o->site_count >= 1 && o->site_count <= ROUND_SITES_MAX);
    *r = (struct simulate_result){0};
    TRY_ALLOC(s = arena_alloc(a, sizeof *s));
    *s = (struct simulate_run){.o = o, .r = r};
    clock_sim_open(&s->clock, o->seed);
    enum err e = run_make(s, a);
    if (e == ERR_OK) {
        for (unsigned k = 0; k < s->aggregators; k++)
            sim_start(&s->clock, aggregator_task, &s->aggregator[k]);
        for (unsigned i = 0; i < o->site_count; i++)
            sim_start(&s->clock, site_task, &s->node[i]);
        bool ended = sim_run(&s->clock, 1ull << CENTURY_MS_SHIFT);
        if (s->e != ERR_OK)
            e = err_set(s->e, "%s", s->why);
        else if (!ended && !r->stopped)
            e = err_set(ERR_INTERNAL, "the simulated run has not ended after a century");
        else
            e = totals(s);
    }
    run_unmake(s);
    r->wall_s = clock_mono_s() - begin;
    return e;
}
