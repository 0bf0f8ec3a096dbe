#include "outer/sim/sim.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/config/sync_config.h"
#include "outer/sim/sim_own.h"

enum { DOWN_MAX_MS = 20000, POWER_MAX_MS = 60000, DAY_MS = 86400000 };

void sim_violate(struct sim *s, const char *format, ...)
{
    va_list args;
    s->clock.halted = true;
    if (*s->r->why)
        return;
    va_start(args, format);
    vsnprintf(s->r->why, sizeof s->r->why, format, args);
    va_end(args);
    log_event(LOG_ERROR, "violation", "%s", s->r->why);
}

struct outer_state_options sim_member_options(const struct sim *s, bool site)
{
    const struct sync_config_replica r = {.site = site,
                                          .sites = s->o.sites,
                                          .error_feedback_decay = s->o.error_feedback_decay,
                                          .keep = s->o.keep};
    struct outer_state_options o = sync_config_state(&s->fragments, &s->schedule, &s->outer, &r);
    o.remake = aggregator_remake;
    o.remake_self = (void *)(uintptr_t)s->names;
    return o;
}

/* ---- the toy ---- */

static void table_add(struct table *t, size_t count, int layer)
{
    ASSERT(t->count < SIM_TENSORS_MAX);
    t->tensors[t->count++] = (struct tensor){
        .shape = {(int64_t)count, 1}, .offset = t->elements, .count = count, .layer = layer};
    t->elements += (count + DEV_BLOCK - 1) / DEV_BLOCK * DEV_BLOCK;
    t->parameters += count;
}

static void toy_table(struct sim *s)
{
    s->table = (struct table){.tensors = s->tensors};
    table_add(&s->table, 300, -1);
    for (int l = 0; l < (int)s->o.fragments; l++) {
        table_add(&s->table, 280, l);
        table_add(&s->table, 20, l);
    }
    table_add(&s->table, 20, (int)s->o.fragments);
}

/* splitmix64's finaliser (Steele et al. 2014): one value in [-1, 1) from its arguments. */
static float toy_noise(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xc2b2ae3d27d4eb4fu + c * 0x165667b19e3779f9u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return (float)((int64_t)(x >> 40) - (1 << 23)) / (1 << 23);
}

/* Towards a target of the site's own, with noise, moments and a pull between elements of different
 * fragments. In quorum mode the noise depends on the process: such a trainer does not repeat. */
static void toy_gradient(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint64_t salt = s->o.strict ? 0 : n->lives;
    for (size_t k = 0; k < s->table.count; k++)
        for (size_t i = s->tensors[k].offset; i < s->tensors[k].offset + s->tensors[k].count; i++) {
            float target = toy_noise(n->index + 1, i, 1),
                  noise = toy_noise((uint64_t)n->step, i, n->index + 8 * salt);
            float pull = (n->slab[i] - target) * 0.1f + n->slab[s->table.elements - 1 - i] * 0.02f;
            n->gradient[i] = pull + noise * 0.05f;
        }
}

static void toy_update(struct sim_node *n)
{
    struct sim *s = n->sim;
    float *moment = n->slab + s->table.elements;
    for (size_t k = 0; k < s->table.count; k++)
        for (size_t i = s->tensors[k].offset; i < s->tensors[k].offset + s->tensors[k].count; i++) {
            moment[i] = moment[i] * 0.5f + n->gradient[i];
            n->slab[i] -= moment[i] * 0.1f;
        }
    n->step++;
    n->tokens += SIM_BATCH;
}

/* ---- a site's process ---- */

struct inner_header {
    int64_t step;
    uint64_t tokens;
    bool before; /* the rounds of the step are not done: STEPPER_MARK */
};

enum err sim_save(struct sim_node *n, bool before)
{
    struct sim *s = n->sim;
    size_t bytes = s->table.elements * sizeof *n->slab;
    struct inner_header header = {.step = n->step, .tokens = n->tokens, .before = before};
    struct file_part parts[3] = {{&header, sizeof header}, {n->slab, 2 * bytes}, {n->began, bytes}};
    TRY(site_wait_stored(n->site));
    TRY(n->env.env.ops->write(&n->env.env, "inner", parts, 3));
    for (unsigned f = 0; f < s->o.fragments; f++)
        TRY(site_prune(n->site, f, schedule_applied(&s->schedule, f, n->step - 1)));
    return ERR_OK;
}

static void inner_load(struct sim_node *n, bool *before)
{
    struct sim *s = n->sim;
    size_t size, bytes = s->table.elements * sizeof *n->slab;
    const uint8_t *data = env_sim_look(&n->env, "inner", &size);
    struct inner_header header = {.step = 0};
    ASSERT(!data || size == sizeof header + 3 * bytes);
    memset(n->slab, 0, 2 * bytes);
    memcpy(n->slab, s->initial, bytes);
    for (unsigned f = 0; f < s->o.fragments; f++)
        fragment_gather(s->cpu, n->began + s->first[f], s->initial, &s->fragments.f[f]);
    if (data) {
        memcpy(&header, data, sizeof header);
        memcpy(n->slab, data + sizeof header, 2 * bytes);
        memcpy(n->began, data + sizeof header + 2 * bytes, bytes);
    }
    n->step = header.step;
    n->tokens = header.tokens;
    *before = header.before;
}

void sim_damage(struct sim_node *n, float *part)
{
    struct sim *s = n->sim;
    if (!s->o.damaged || n->index != 1 || !sim_chance(&s->clock, 0.3))
        return;
    part[3] = n->step % 2 ? NAN : -INFINITY;
    s->r->damaged++;
}

static enum err one_step(struct sim_node *n)
{
    toy_gradient(n);
    TRY(sim_event(n, STEPPER_BEFORE_UPDATE));
    toy_update(n);
    TRY(sim_event(n, STEPPER_AFTER_STEP));
    TRY(sim_event(n, STEPPER_MOVED));
    uint64_t round;
    if (schedule_due(&n->sim->schedule, n->step, 0, &round))
        TRY(sim_interval(n, n->step));
    bool stops = n->env.stop && n->step < n->sim->o.steps;
    if (stops || n->step % n->checkpoint_every == 0)
        TRY(sim_save(n, false));
    return stops ? err_set(ERR_STOPPED, "asked to, after a step") : ERR_OK;
}

static enum err site_train(struct sim_node *n)
{
    struct sim *s = n->sim;
    bool before;
    inner_load(n, &before);
    TRY(site_start(n->site, s->initial));
    TRY(sim_resume(n, before));
    while (n->step < s->o.steps) {
        sim_sleep(&s->clock, s->clock.now_ms + n->step_ms + sim_below(&s->clock, n->step_ms),
                  &n->env);
        if (n->env.disk.dead)
            return err_set(ERR_STOPPED, "crash");
        TRY(one_step(n));
    }
    TRY(site_leave(n->site, "done"));
    /* A site that is asked to stop gives up its last report: it starts once more and reports. */
    return n->env.stop ? err_set(ERR_STOPPED, "asked to, in the last reports") : ERR_OK;
}

static enum err site_process(struct sim_node *n, struct arena *arena)
{
    struct sim *s = n->sim;
    TRY(env_sim_begin(&n->env));
    struct outer_state_options mo = sim_member_options(s, true);
    struct site_options so = {.run = "sim",
                              .name = n->name,
                              .index = n->index,
                              .site_count = s->o.sites,
                              .canonical = s->canonical,
                              .strict = s->o.strict,
                              .error_feedback_decay = s->o.error_feedback_decay,
                              .max_local_steps_offline = s->o.max_local_steps_offline,
                              .straggler_ms = 20000,
                              .seed = s->o.seed + n->index,
                              .stop = &n->env.stop};
    link_sim_open(&n->link, &s->server, &n->env, &n->net, "sim", n->name);
    TRY(outer_state_open(&n->replica, &n->env.env, s->cpu, &mo, arena));
    TRY(site_open(&n->site, &n->env.env, &n->link.link, &n->replica, &so, arena));
    return site_train(n);
}

/* What a process may end with when the disk fails it; anything else is a finding. */
static bool excused(const struct sim *s, enum err e)
{
    bool reads = s->o.point.fault == DISK_FAULT_EIO || s->o.point.fault == DISK_FAULT_BROKEN;
    return e == ERR_IO || e == ERR_FULL || (reads && e == ERR_CORRUPT);
}

/* Asked to stop, as by SIGTERM. */
static bool asked_to(const struct sim_node *n, enum err e)
{
    return e == ERR_STOPPED && n->env.stop;
}

/* n NULL: the aggregator. */
static void node_down(struct sim *s, struct sim_node *n)
{
    s->r->crashes += n ? n->env.disk.dead : s->disk.disk.dead;
    sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, DOWN_MAX_MS), NULL);
    if (n)
        sim_site_restart(n);
    else
        env_sim_restart(&s->disk);
    s->r->restarts++;
}

static void site_task(void *self)
{
    struct sim_node *n = self;
    struct sim *s = n->sim;
    sim_sleep(&s->clock, n->start_ms, NULL);
    if (n->liar) {
        sim_liar_run(n);
        n->done = true;
    }
    while (!n->done) {
        struct arena arena = arena_make(0);
        n->lives++;
        enum err e = site_process(n, &arena);
        n->done = e == ERR_OK && !n->env.disk.dead;
        if (!n->done && !n->env.disk.dead && !excused(s, e) && !asked_to(n, e))
            sim_violate(s, "site %s ends with %s: %s", n->name, err_name(e), err_message());
        site_close(n->site);
        outer_state_close(&n->replica);
        n->site = NULL;
        arena_free(&arena);
        if (n->done)
            break;
        if (s->clock.now_ms >= n->away_from_ms && s->clock.now_ms < n->away_until_ms)
            sim_sleep(&s->clock, n->away_until_ms, NULL);
        node_down(s, n);
    }
    if (!s->first_done_ms)
        s->first_done_ms = s->clock.now_ms;
    s->finished = true;
    for (unsigned i = 0; i < s->o.sites; i++)
        s->finished &= s->node[i].done;
    sim_kick(&s->clock, &s->disk);
}

/* ---- the aggregator's process ---- */

static enum err aggregator_serve(struct sim *s, struct aggregator *a)
{
    link_sim_up(&s->server, aggregator_service(a));
    while (!s->finished && !s->disk.disk.dead && !s->server.stopped) {
        sim_sleep(&s->clock, s->server.wake_ms, &s->disk);
        if (s->server.wake_ms <= s->clock.now_ms)
            link_sim_work(&s->server);
    }
    enum err e = aggregator_failed(a);
    if (s->finished && !aggregator_done(a))
        sim_violate(s, "all sites are done and the aggregator is not");
    link_sim_down(&s->server);
    return e;
}

static enum err aggregator_process(struct sim *s, struct arena *arena)
{
    struct outer_state_options mo = sim_member_options(s, false);
    struct aggregator_options ao = {
        .run = "sim",
        .sites = s->names,
        .site_count = s->o.sites,
        .canonical = s->canonical,
        .strict = s->o.strict,
        .norm_limit = 1000,
        .clip = s->o.clip,
        .strikes_max =
            s->o.lies && !s->o.clip ? AGGREGATOR_STRIKES : 0, /* the toy's sites differ */
        .share_max = 100,
        .straggler_ms = 20000,
        .grace = {s->o.grace, (double)s->o.overlap / (double)s->o.every}};
    struct aggregator *a;
    TRY(env_sim_begin(&s->disk));
    TRY(outer_state_open(&s->replica, &s->disk.env, s->cpu, &mo, arena));
    enum err e = outer_state_begun(&s->replica) ? outer_state_load(&s->replica)
                                                : outer_state_begin(&s->replica, s->initial);
    s->r->residuals_lost += s->replica.residuals_lost; /* also when the load fails afterwards */
    TRY(e);
    TRY(aggregator_open(&a, &s->disk.env, &s->replica, &ao, arena));
    e = aggregator_serve(s, a);
    aggregator_close(a);
    return e;
}

static void aggregator_task(void *self)
{
    struct sim *s = self;
    while (!s->finished) {
        struct arena arena = arena_make(0);
        enum err e = aggregator_process(s, &arena);
        if (e != ERR_OK && !s->disk.disk.dead && !excused(s, e) &&
            !(e == ERR_CORRUPT && s->disk_faults.rot > 0))
            sim_violate(s, "the aggregator ends with %s: %s", err_name(e), err_message());
        outer_state_close(&s->replica);
        arena_free(&arena);
        if (!s->finished)
            node_down(s, NULL);
    }
}

/* ---- faults ---- */

bool sim_aborts(const struct sim *s, unsigned f, uint64_t round)
{
    return s->o.aborts && rng_below(s->o.seed, RNG_TEST, 1000 + f * SIM_ROUNDS_MAX + round, 3) == 0;
}

/* A commit begins with the contributions of its round. At an infinite learning rate no next state
 * is finite. */
static void before_commit(void *self, const char *path)
{
    struct sim *s = self;
    unsigned f;
    uint64_t round;
    if (sscanf(path, "spool/%u/%20" SCNu64, &f, &round) == 2)
        s->replica.o.outer.lr = sim_aborts(s, f, round) ? INFINITY : s->outer.lr;
}

/* kill -9 or a stop request at any moment, in waits too; the chances per operation do the rest. */
static void killer_task(void *self)
{
    struct sim *s = self;
    for (;;) {
        sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, 40000), NULL);
        if (s->clock.now_ms >= s->calm_ms || s->finished)
            return;
        uint64_t victim = sim_below(&s->clock, s->o.sites + 1);
        struct env_sim *w = victim < s->o.sites ? &s->node[victim].env : &s->disk;
        if (victim < s->o.sites && sim_chance(&s->clock, 0.4)) {
            w->stop = 1; /* it ends by itself, with a checkpoint */
            s->r->stopped++;
        } else {
            env_sim_crash(w);
        }
        sim_kick(&s->clock, w);
    }
}

static void absence_task(void *self)
{
    struct sim_node *n = self;
    sim_sleep(&n->sim->clock, n->away_from_ms, NULL);
    env_sim_crash(&n->env);
    sim_kick(&n->sim->clock, &n->env);
}

/* The one node that the point is about. */
static struct env_sim *point_env(struct sim *s)
{
    unsigned node = s->o.point.node;
    return node < s->o.sites ? &s->node[node].env : &s->disk;
}

/* A minute in which the node goes on with what the fault has left in its page cache. */
static void point_task(void *self)
{
    struct sim *s = self;
    struct env_sim *w = point_env(s);
    while (!w->disk.plan.applied && !s->finished)
        sim_sleep(&s->clock, s->clock.now_ms + 500, NULL);
    sim_sleep(&s->clock, s->clock.now_ms + sim_below(&s->clock, POWER_MAX_MS), NULL);
    w->disk.broken = false; /* a person has put another one in */
    if (s->finished || w->disk.dead)
        return;
    env_sim_crash(w);
    w->disk.power = true;
    sim_kick(&s->clock, w);
}

static void calm_task(void *self)
{
    struct sim *s = self;
    sim_sleep(&s->clock, s->calm_ms, NULL);
    s->disk_faults = (struct disk_faults){0};
    for (unsigned i = 0; i < s->o.sites; i++) {
        s->node[i].disk = (struct disk_faults){0};
        s->node[i].net = (struct link_sim_faults){.delay_ms = s->node[i].net.delay_ms};
    }
    s->progress_ms = s->clock.now_ms;
    while (!s->finished) { /* I9 */
        sim_sleep(&s->clock, s->clock.now_ms + 5000, NULL);
        uint64_t gap = s->clock.now_ms - s->progress_ms;
        if (gap > SIM_GAP_MAX_MS)
            sim_violate(s, "no commit for %" PRIu64 " s after the last fault", gap / 1000);
    }
}

static double intensity(struct sim *s, double most)
{
    return sim_chance(&s->clock, 0.4) ? 0 : most * (double)sim_below(&s->clock, 1000) / 1000;
}

static struct disk_faults disk_draw(struct sim *s)
{
    struct disk_faults f = {.crash = intensity(s, 0.006),
                            .eio = intensity(s, 0.002),
                            .slow = intensity(s, 0.02),
                            .rot = intensity(s, 0.3)};
    if (sim_chance(&s->clock, 0.3)) {
        f.full_from_ms = sim_below(&s->clock, s->calm_ms);
        f.full_until_ms = f.full_from_ms + sim_below(&s->clock, 20000);
    }
    return f;
}

static struct link_sim_faults net_draw(struct sim *s)
{
    struct link_sim_faults f = {.lost = intensity(s, 0.2),
                                .lost_answer = intensity(s, 0.2),
                                .twice = intensity(s, 0.4),
                                .cut = intensity(s, 0.2),
                                .delay_ms = 1 + sim_below(&s->clock, 400)};
    if (sim_chance(&s->clock, 0.4)) {
        f.part_from_ms = sim_below(&s->clock, s->calm_ms);
        f.part_until_ms = f.part_from_ms + sim_below(&s->clock, 60000);
    }
    return f;
}

static void faults_draw(struct sim *s)
{
    s->calm_ms = 20000 + sim_below(&s->clock, 100000);
    s->disk_faults = disk_draw(s);
    s->disk.disk.faults = &s->disk_faults;
    for (unsigned i = 0; i < s->o.sites; i++) {
        struct sim_node *n = &s->node[i];
        n->disk = disk_draw(s);
        n->net = net_draw(s);
        n->env.disk.faults = &n->disk;
    }
    if (s->o.late)
        s->node[s->o.sites - 1].start_ms = sim_below(&s->clock, s->calm_ms);
    if (s->o.absent) {
        s->node[0].away_from_ms = 1 + sim_below(&s->clock, 20000);
        s->node[0].away_until_ms = s->node[0].away_from_ms + sim_below(&s->clock, 3 * s->calm_ms);
        if (s->calm_ms < s->node[0].away_until_ms)
            s->calm_ms = s->node[0].away_until_ms;
        sim_start(&s->clock, absence_task, &s->node[0]);
    }
    if (sim_chance(&s->clock, 0.7))
        sim_start(&s->clock, killer_task, s);
    sim_start(&s->clock, calm_task, s);
}

/* ---- a run ---- */

static enum err node_make(struct sim *s, unsigned i)
{
    struct sim_node *n = &s->node[i];
    size_t elements = s->table.elements;
    *n = (struct sim_node){.sim = s, .index = i, .weight = i % 3 == 2 ? 0.5f : 1};
    snprintf(n->name, sizeof n->name, "s%u", i);
    s->names[i] = n->name;
    n->checkpoint_every =
        1 + (int64_t)rng_below(s->o.seed, RNG_TEST, 10 + i, (uint64_t)s->o.every * 4);
    n->step_ms = 50 + rng_below(s->o.seed, RNG_TEST, 20 + i, 500);
    TRY_ALLOC(n->slab = arena_array(&s->arena, 2 * elements, sizeof *n->slab));
    TRY_ALLOC(n->part = arena_array(&s->arena, elements, sizeof *n->part));
    TRY_ALLOC(n->sent = arena_array(&s->arena, elements, sizeof *n->sent));
    TRY_ALLOC(n->gradient = arena_array(&s->arena, elements, sizeof *n->gradient));
    TRY_ALLOC(n->taken = arena_array(&s->arena, elements, sizeof *n->taken));
    TRY_ALLOC(n->began = arena_array(&s->arena, elements, sizeof *n->began));
    TRY_ALLOC(n->base = arena_array(&s->arena, elements, sizeof *n->base));
    TRY_ALLOC(n->trained = arena_array(&s->arena, elements, sizeof *n->trained));
    TRY_ALLOC(n->booked = arena_array(&s->arena, elements, sizeof *n->booked));
    TRY_ALLOC(n->included = arena_array(&s->arena, elements, sizeof *n->included));
    env_sim_open(&n->env, &s->clock, n->name, s->o.seed * 31 + i);
    n->liar = s->o.lies && i + 1 == s->o.sites;
    n->env.disk.gives_way = true;
    n->env.wrote = sim_wrote;
    n->env.watch_self = n;
    return ERR_OK;
}

static enum err sim_make(struct sim *s)
{
    toy_table(s);
    TRY(dev_open(&s->cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(codec_open(&s->work, s->cpu));
    TRY(fragment_make(&s->fragments, &s->table, &(struct fragment_plan){.count = s->o.fragments},
                      &s->arena));
    TRY(outer_opt_make(&s->outer, s->o.optimizer, 0.7f, 0.9f));
    s->outer.delay = s->o.delay;
    s->outer.merge = s->o.merge;
    s->outer.anneal = s->o.anneal;
    s->schedule = schedule_streaming(s->o.steps, s->o.every, s->o.fragments, 1, s->o.codec);
    for (unsigned f = 0; f < s->o.fragments; f++)
        s->schedule.period[f].p.growth = s->o.growth;
    s->schedule.overlap = s->o.overlap;
    s->schedule.downlink_compression_from = s->o.downlink_compression_from;
    s->schedule.eager = s->o.eager;
    s->schedule.clips = s->o.clip > 0;
    s->schedule.residual_reset =
        codec_residual_ratio((double)s->o.residual_reset * s->o.residual_reset, 1);
    TRY_ALLOC(s->initial = arena_array(&s->arena, s->table.elements, sizeof *s->initial));
    for (size_t k = 0; k < s->table.count; k++)
        for (size_t i = 0; i < s->tensors[k].count; i++)
            s->initial[s->tensors[k].offset + i] = toy_noise(99, k, i);
    for (unsigned f = 1; f < s->o.fragments; f++)
        s->first[f] = s->first[f - 1] + s->fragments.f[f - 1].elements;
    for (unsigned f = 0; f < s->o.fragments; f++)
        ASSERT(schedule_rounds(&s->schedule, f) <= SIM_ROUNDS_MAX);
    snprintf(s->canonical, sizeof s->canonical, "run.name=sim\nrun.seed=%" PRIu64 "\n", s->o.seed);
    env_sim_open(&s->disk, &s->clock, "aggregator", s->o.seed * 31 + 30);
    s->disk.mapping = before_commit;
    s->disk.watch_self = s;
    for (unsigned i = 0; i < s->o.sites; i++)
        TRY(node_make(s, i));
    s->server = (struct link_sim_server){
        .clock = &s->clock, .env = &s->disk, .watch = &s->watch, .wake_ms = UINT64_MAX};
    sim_watch(s);
    return ERR_OK;
}

static void sim_unmake(struct sim *s)
{
    clock_sim_close(&s->clock);
    env_sim_close(&s->disk);
    for (unsigned i = 0; i < s->o.sites; i++)
        env_sim_close(&s->node[i].env);
    codec_close(s->work);
    dev_close(s->cpu);
    arena_free(&s->arena);
}

void sim_run_options(const struct sim_options *o, struct sim_result *r)
{
    static struct sim storage; /* half a megabyte of tables: not for a stack */
    struct sim *s = &storage;
    ASSERT(o->sites >= 1 && o->sites <= SIM_SITES_MAX && o->fragments >= 1 &&
           o->fragments <= SIM_FRAGMENTS_MAX);
    *r = (struct sim_result){.ok = false};
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->r = r;
    s->arena = arena_make(0);
    clock_sim_open(&s->clock, o->seed);
    enum err e = sim_make(s);
    if (e != ERR_OK) {
        sim_violate(s, "the simulator cannot start: %s", err_message());
    } else {
        if (o->faults)
            faults_draw(s);
        point_env(s)->disk.plan = (struct disk_plan){.at = o->point.at, .fault = o->point.fault};
        if (o->point.power || o->point.fault == DISK_FAULT_BROKEN)
            sim_start(&s->clock, point_task, s);
        sim_start(&s->clock, aggregator_task, s);
        for (unsigned i = 0; i < o->sites; i++)
            sim_start(&s->clock, site_task, &s->node[i]);
        if (!sim_run(&s->clock, DAY_MS))
            sim_violate(s, "the run did not end within a day");
        else
            sim_check_end(s);
    }
    for (unsigned i = 0; i <= o->sites; i++)
        r->operations[i] = (i < o->sites ? &s->node[i].env : &s->disk)->disk.operations;
    r->struck = point_env(s)->disk.plan.applied;
    r->virtual_ms = s->clock.now_ms;
    r->calls = s->server.calls;
    r->ok = !*r->why;
    sim_unmake(s);
}

struct sim_options sim_draw(uint64_t seed)
{
    enum {
        SITES,
        FRAGMENTS,
        EVERY,
        ROUNDS,
        TAIL,
        CODEC,
        FEEDBACK,
        STRICT,
        KEEP,
        LATE,
        ABSENT,
        RESIDUAL_RESET,
        OPTIMIZER,
        DAMAGED,
        OVERLAP,
        MIX,
        DOWNLINK,
        EAGER,
        BEFORE_UPDATE,
        OFFLINE,
        LIES,
        OFFLINE_STEPS,
        ABORTS,
        MERGE,
        ANNEAL,
        RESTART,
        GROW,
        GROW_ROUNDS,
        TIMED,
        GRACE,
        CLIP
    };
#define DRAW(what, n) rng_below(seed, RNG_TEST, what, n)
    static const float feedbacks[] = {1, 1, 0.5f}, residual_resets[] = {0, 0, 0.25f, 2},
                       mixes[] = {0.5f, 0.5f, 0};
    static const float clips[] = {0, 0.5f, 1, 1.25f};
    static const unsigned downlink[] = {0, 2, 3};
    static const enum outer_opt_kind optimizers[] = {OUTER_OPT_MOMENTUM, OUTER_OPT_MOMENTUM,
                                                     OUTER_OPT_SGD, OUTER_OPT_DELAYED};
    struct sim_options o = {.seed = seed, .faults = true};
    o.sites = 1 + (unsigned)DRAW(SITES, SIM_SITES_MAX);
    o.fragments = DRAW(FRAGMENTS, 2) ? 1 : 4;
    o.every = o.fragments == 4 ? 4 : 2 + (int64_t)DRAW(EVERY, 4);
    o.steps = o.every * (2 + (int64_t)DRAW(ROUNDS, 7)) + (int64_t)DRAW(TAIL, 3);
    o.codec = (enum codec_kind)DRAW(CODEC, CODEC_COUNT);
    o.error_feedback_decay = feedbacks[DRAW(FEEDBACK, 3)];
    o.residual_reset = residual_resets[DRAW(RESIDUAL_RESET, 4)];
    o.optimizer = optimizers[DRAW(OPTIMIZER, 4)];
    o.delay = o.optimizer == OUTER_OPT_DELAYED ? 1 + o.sites : 1;
    o.strict = DRAW(STRICT, 2);
    o.overlap =
        (int64_t)DRAW(OVERLAP, 2 * (uint64_t)o.every + 1); /* half of them: none, or the delay */
    o.overlap = o.overlap <= o.every ? o.overlap : o.overlap % 3 ? 0 : o.every;
    o.mix = o.overlap == o.every ? 0 : mixes[DRAW(MIX, 3)];
    o.eager = o.overlap == o.every && DRAW(EAGER, 2);
    o.keep = 2 + DRAW(KEEP, 3);
    o.downlink_compression_from = downlink[DRAW(DOWNLINK, 3)];
    o.before_update = o.overlap > 0 && o.overlap < o.every && DRAW(BEFORE_UPDATE, 2);
    if (!o.strict && DRAW(OFFLINE, 4))
        o.max_local_steps_offline = 1 + (int64_t)DRAW(OFFLINE_STEPS, 2 * (uint64_t)o.every);
    o.late = !o.strict && DRAW(LATE, 2);
    o.absent = !o.strict && DRAW(ABSENT, 2);
    o.damaged = !o.strict && o.sites > 2 && DRAW(DAMAGED, 3) == 0;
    o.lies = !o.strict && o.sites > 2 && !o.damaged && DRAW(LIES, 3) == 0;
    o.aborts = DRAW(ABORTS, 4) == 0;
    bool forwards = !codec_get(o.codec)->summable && !o.downlink_compression_from && !o.eager;
    if (forwards && DRAW(MERGE, 2))
        o.merge = MERGE_RADIAL;
    else if (forwards && DRAW(CLIP, 4)) /* below 1: in every round somebody is scaled */
        o.clip = clips[DRAW(CLIP, 4)];
    o.anneal = (struct anneal){
        .kind = (enum anneal_kind)DRAW(ANNEAL, 3), .end = 0.25, .restart = DRAW(RESTART, 3)};
    if (o.overlap < o.every && DRAW(GROW, 3) == 0)
        o.growth = (struct period_growth){1 + (int64_t)DRAW(GROW_ROUNDS, 3), 2, o.every * 3};
    bool timed = o.strict && !o.overlap && o.fragments == 1 && !o.growth.rounds;
    o.every_ms = timed && DRAW(TIMED, 2) ? 100 + DRAW(TIMED, 1500) : 0;
    o.grace = !o.strict && o.overlap && DRAW(GRACE, 2) ? 0.5 : 0;
#undef DRAW
    return o;
}
