/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/aggregator/aggregator_scrub.h"
#include "outer/config/sync_config.h"
#include "outer/organ/amend/amend_organ.h"
#include "outer/organ/archive/archive_organ.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/site/site_repair.h"
#include "tests/sim/sim_own.h"

enum { KILL_MAX_MS = 40000, KILL_SMALL_MAX_MS = 8000 };
enum {
    DOWN_MAX_MS = 20000,
    POWER_MAX_MS = 60000,
    WIND_UP_MS = 60000,
    DAY_MS = 86400000,
    REFUSED_MAX = 5
};

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

bool sim_parted(const struct sim *s)
{
    return s->o.second != SIM_COPY_NONE || s->o.copied != SIM_COPY_NONE;
}

struct outer_state_options sim_member_options(const struct sim *s, bool site)
{
    const struct sync_config_replica r = {.site = site,
                                          .sites = s->roster.initial,
                                          .error_feedback_decay = s->o.error_feedback_decay,
                                          .digest = s->o.seed % 2 ? STATE_DIGEST_LEAVES
                                                                  : STATE_DIGEST_WHOLE,
                                          .keep = s->o.keep};
    struct outer_state_options o = sync_config_state(&s->fragments, &s->amend.first, &s->outer, &r);
    o.amend = amend_schedule;
    o.amend_self = &s->amend.base;
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
    for (int l = 0; s->o.small && l < (int)s->o.fragments; l++)
        table_add(&s->table, 60, l);
    if (s->o.small)
        return;
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
    struct sim_mark mark;
};

enum err sim_save(struct sim_node *n)
{
    struct sim *s = n->sim;
    size_t bytes = s->table.elements * sizeof *n->slab;
    struct inner_header header = {.step = n->step, .tokens = n->tokens, .mark = n->mark};
    struct file_part parts[3] = {{&header, sizeof header}, {n->slab, 2 * bytes}, {n->began, bytes}};
    TRY(site_wait_stored(n->site));
    TRY(n->env.sim.env.ops->write(&n->env.sim.env, "inner", parts, 3));
    for (unsigned f = 0; f < s->o.fragments; f++)
        TRY(site_prune(n->site, f, schedule_applied(&n->stepper.o.schedule, f, n->step - 1)));
    return ERR_OK;
}

static void inner_load(struct sim_node *n, struct sim_mark *mark)
{
    struct sim *s = n->sim;
    size_t size, bytes = s->table.elements * sizeof *n->slab;
    const uint8_t *data = env_faulty_look(&n->env, "inner", &size);
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
    *mark = header.mark;
}

void sim_damage(struct sim_node *n, float *part)
{
    struct sim *s = n->sim;
    double chance = s->o.leaning.power > 0 ? 0.7 : 0.3;
    if (!s->o.damaged || n->index != 1 || !sim_chance(&s->clock, chance))
        return;
    part[3] = n->step % 2 ? NAN : -INFINITY;
    s->r->damaged++;
}

static void scrub_count(struct sim *s, const struct scrub_counts *c)
{
    s->r->scrubbed += c->files;
    s->r->mended += c->repaired;
}

/* A scrub that finds damage where nothing has rotted alarms a person for nothing. (The aggregator's
 * journal has a torn end after a failed append, until there is space for a copy.) */
static void site_scrub_check(struct sim_node *n)
{
    struct scrub_counts c;
    site_scrub_counts(n->site, &c);
    scrub_count(n->sim, &c);
    if (c.damaged && !n->env.rot.rots)
        sim_violate(n->sim, "the scrub of %s calls a whole file damaged", n->name);
}

static enum err one_step(struct sim_node *n)
{
    toy_gradient(n);
    TRY(sim_event(n, STEPPER_BEFORE_UPDATE));
    toy_update(n);
    TRY(sim_event(n, STEPPER_AFTER_STEP));
    TRY(sim_event(n, STEPPER_MOVED));
    uint64_t round;
    if (schedule_due(&n->stepper.o.schedule, n->step, 0, &round))
        TRY(sim_interval(n, n->step));
    bool stops = n->env.sim.stop && n->step < n->stepper.o.schedule.steps;
    if (stops || n->step % n->checkpoint_every == 0) {
        sim_mark(n, &(struct stepper_event){.phase = STEPPER_AFTER_STEP, .step = n->step});
        TRY(sim_save(n));
    }
    return stops ? err_set(ERR_STOPPED, "asked to, after a step") : ERR_OK;
}

static enum err site_train(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct sim_mark mark;
    inner_load(n, &mark);
    TRY(site_start(n->site, s->initial));
    TRY(sim_resume(n, &mark));
    while (n->step < n->stepper.o.schedule.steps) {
        sim_sleep(&s->clock, s->clock.now_ms + n->step_ms + sim_below(&s->clock, n->step_ms),
                  &n->env);
        if (n->env.disk.dead)
            return err_set(ERR_STOPPED, "crash");
        TRY(one_step(n));
    }
    TRY(site_leave(n->site, "done"));
    /* A site that is asked to stop gives up its last report: it starts once more and reports. */
    return n->env.sim.stop ? err_set(ERR_STOPPED, "asked to, in the last reports") : ERR_OK;
}

static enum err site_process(struct sim_node *n, struct arena *arena)
{
    struct sim *s = n->sim;
    TRY(env_faulty_begin(&n->env));
    struct outer_state_options mo = sim_member_options(s, true);
    struct site_options so = {.run = "sim",
                              .name = n->name,
                              .index = sim_roster_index(n),
                              .site_count = s->roster.initial,
                              .canonical = s->canonical,
                              .strict = s->o.strict,
                              .error_feedback_decay = s->o.error_feedback_decay,
                              .max_local_steps_offline = s->o.max_local_steps_offline,
                              .straggler_ms = 20000,
                              .seed = s->o.seed + n->index,
                              .stop = &n->env.sim.stop,
                              .masks = {.on = s->o.masked, .colluding = s->o.colluding},
                              .scrub_every_ms = s->o.scrub_every_ms,
                              .scrub_bytes_per_s = s->o.scrub_bytes_per_s,
                              .roster = s->names,
                              .organs = {.count = 2, .at = {roster_at_site(), amend_at_site()}},
                              .signer = &n->signer.signer};
    link_sim_open(&n->link, &n->route, &n->env, &n->net, "sim", n->name);
    TRY(outer_state_open(&n->replica, &n->env.sim.env, s->cpu, &mo, arena));
    const struct archive_options ar = {
        .head = {.run = "sim", .replica = n->name}, .settings = "x\n", .states_every = 3};
    if (s->o.archives && n->index % 2) {
        struct archive *archive;
        TRY(archive_open(&archive, &n->env.sim.env, "archive", &ar, arena));
        so.organs.at[so.organs.count++] = archive_at_site(archive);
    }
    TRY(site_open(&n->site, &n->env.sim.env, &n->link.link, &n->replica, &so, arena));
    return site_train(n);
}

/* Is this one of the faults of the point? */
static bool point_has(const struct sim_point *p, enum disk_fault fault)
{
    return p->fault == fault || (p->then_at && p->then == fault);
}

/* What a process may end with when the disk fails it; anything else is a finding. */
static bool excused(const struct sim *s, enum err e)
{
    bool reads =
        point_has(&s->o.point, DISK_FAULT_EIO) || point_has(&s->o.point, DISK_FAULT_BROKEN);
    return e == ERR_IO || e == ERR_FULL || (reads && e == ERR_CORRUPT) ||
           (s->o.memory.at && e == ERR_MEMORY);
}

/* With a copied directory: another history, another process of the same name, or the proof that an
 * aggregator is not the newest. Of two aggregators in the same term one may give the manifest and
 * the other the aggregate: other bytes than announced.
 */
static bool for_a_person(const struct sim *s, enum err e)
{
    bool two = s->o.second == SIM_COPY_BOTH && e == ERR_PROTO;
    return sim_parted(s) &&
           (e == ERR_DISAGREE || e == ERR_BUSY || e == ERR_TAKEN || e == ERR_STALE || two);
}

/* Asked to stop, as by SIGTERM. */
static bool asked_to(const struct sim_node *n, enum err e)
{
    return e == ERR_STOPPED && n->env.sim.stop;
}

/* A process has ended; the time until it is started again. */
static void process_down(struct sim *s, const struct env_faulty *env)
{
    s->r->crashes += env->disk.dead;
    sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, DOWN_MAX_MS), NULL);
    s->r->restarts++;
}

void sim_node_end(struct sim_node *n)
{
    n->over = true;
    env_faulty_crash(&n->env);
    sim_kick(&n->sim->clock, &n->env);
}

/* How a process of a site has ended. */
static void site_ended_with(struct sim_node *n, enum err e)
{
    struct sim *s = n->sim;
    bool dead = n->env.disk.dead;
    n->done = (e == ERR_OK && !dead) || n->over;
    if (n->done || dead || excused(s, e) || asked_to(n, e))
        return;
    if (e == ERR_DIVERGED && s->o.damaged && sim_masks_least(s, s->o.sites) == s->o.sites)
        return;                           /* it cannot skip the round, and repeats its steps */
    if (e == ERR_DENIED && s->o.operates) /* in quarantine: a person starts it again */
        return;
    if (e == ERR_DENIED && sim_roster_denies(n)) {
        n->done = sim_roster_left(n) || sim_roster_never(n);
        return;
    }
    if (!for_a_person(s, e)) {
        sim_violate(s, "site %s ends with %s: %s", n->name, err_name(e), err_message());
        return;
    }
    n->gave_up = n->done = ++n->refused == REFUSED_MAX;
    s->r->given_up += n->gave_up;
}

static void site_live(struct sim_node *n)
{
    struct sim *s = n->sim;
    struct arena arena = arena_make(0);
    n->lives++;
    s->clock.process = 1 + n->index;
    enum err e = site_process(n, &arena);
    s->clock.process = 0;
    site_ended_with(n, e);
    if (n->site)
        site_scrub_check(n);
    site_close(n->site);
    outer_state_close(&n->replica);
    n->site = NULL;
    arena_free(&arena);
}

void sim_site_task(void *self)
{
    struct sim_node *n = self;
    struct sim *s = n->sim;
    sim_sleep(&s->clock, n->start_ms, NULL);
    if (n->liar) {
        sim_liar_run(n);
        n->done = true;
    }
    sim_roster_wait(n);
    n->done = n->done || n->over || sim_roster_never(n);
    while (!n->done) {
        site_live(n);
        if (n->done)
            break;
        if (s->clock.now_ms >= n->away_from_ms && s->clock.now_ms < n->away_until_ms)
            sim_sleep(&s->clock, n->away_until_ms, NULL);
        process_down(s, &n->env);
        sim_site_restart(n);
        n->done = n->over;
    }
    if (!s->first_done_ms)
        s->first_done_ms = s->clock.now_ms;
    s->finished = true;
    for (unsigned i = 0; i < s->nodes; i++)
        s->finished &= s->node[i].done;
    s->finished_ms = s->clock.now_ms;
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++)
        sim_kick(&s->clock, &s->aggregator[i].env);
}

/* ---- the aggregator's process ---- */

/* The last report came between the stages of a commit. */
static bool winds_up(const struct sim_aggregator *at, struct aggregator *a)
{
    const struct sim *s = at->sim;
    return s->o.beside && !aggregator_done(a) && s->clock.now_ms < s->finished_ms + WIND_UP_MS;
}

static enum err aggregator_serve(struct sim_aggregator *at, struct aggregator *a)
{
    struct sim *s = at->sim;
    struct link_service service = aggregator_service(a);
    s->clock.process = 0;
    at->process = a;
    link_sim_up(&at->server, sim_memory_guard(at, &service));
    while ((!s->finished || winds_up(at, a)) && !at->env.disk.dead && !at->server.stopped) {
        uint64_t last_ms = s->finished ? s->finished_ms + WIND_UP_MS : UINT64_MAX;
        sim_sleep(&s->clock, at->server.wake_ms < last_ms ? at->server.wake_ms : last_ms, &at->env);
        if (at->server.wake_ms <= s->clock.now_ms)
            link_sim_run(&at->server);
    }
    enum err e = aggregator_failed(a);
    bool killed = s->o.beside && at->env.disk.dead; /* before it knew of the last report */
    if (s->finished && !aggregator_done(a) && !sim_parted(s) && !killed)
        sim_violate(s, "all sites are done and the aggregator is not");
    link_sim_down(&at->server);
    return e;
}

static enum err aggregator_process(struct sim_aggregator *at, struct arena *arena)
{
    struct sim *s = at->sim;
    struct outer_state_options mo = sim_member_options(s, false);
    struct aggregator_options ao = {
        .run = "sim",
        .sites = {.names = s->names, .count = s->roster.initial, .room = s->o.sites},
        .canonical = s->canonical,
        .bounds = {.max_local_steps_offline = s->o.max_local_steps_offline,
                   .norm_limit = 1000,
                   .clip = s->o.clip,
                   .edit_warmup = s->o.edit_warmup,
                   .strikes_max = s->o.lies && s->o.clip == 0 ? AGGREGATOR_STRIKES
                                                              : 0 /* the toy's sites differ */,
                   .share_max = 100},
        .strict = s->o.strict,
        .files = {.journal_bytes_max = s->o.journal_bytes_max,
                  .scrub_every_ms = s->o.scrub_every_ms,
                  .scrub_bytes_per_s = s->o.scrub_bytes_per_s},
        .straggler_ms = 20000,
        .masks = {.on = s->o.masked, .colluding = s->o.colluding},
        .signer = &s->signer.signer,
        .grace = {s->o.grace, (double)s->o.overlap / (double)s->o.every}};
    struct aggregator *a;
    struct scrub_counts scrub;
    size_t size;
    TRY(env_faulty_begin(&at->env));
    s->amend.lost |=
        env_faulty_look(&at->env, "begun", &size) && !env_faulty_look(&at->env, "journal", &size);
    s->roster.lost |=
        env_faulty_look(&at->env, "begun", &size) && !env_faulty_look(&at->env, "journal", &size);
    TRY(outer_state_open(&at->replica, &at->env.sim.env, s->cpu, &mo, arena));
    enum err e = outer_state_begun(&at->replica) ? outer_state_load(&at->replica)
                                                 : outer_state_begin(&at->replica, s->initial);
    at->residuals_lost += at->replica.residuals_lost; /* also when the load fails afterwards */
    s->r->residuals_lost += at->replica.residuals_lost;
    TRY(e);
    const struct archive_options ar = {
        .head = {.run = "sim", .replica = "aggregator", .aggregator = true, .aggregators = 1},
        .settings = "x\n",
        .states_every = 3};
    TRY(roster_at_aggregator(&ao.organs.at[ao.organs.count++], arena));
    TRY(amend_at_aggregator(&ao.organs.at[ao.organs.count++], &s->amend.base, arena));
    if (s->o.archives) {
        struct archive *archive;
        TRY(archive_open(&archive, &at->env.sim.env, "archive", &ar, arena));
        ao.organs.at[ao.organs.count++] = archive_at_aggregator(archive);
    }
    TRY(aggregator_open(&a, &at->env.sim.env, &at->replica, &ao, arena));
    e = aggregator_serve(at, a);
    (void)aggregator_scrub_counts(a, &scrub);
    scrub_count(s, &scrub);
    aggregator_close(a);
    return e;
}

void sim_aggregator_task(void *self)
{
    struct sim_aggregator *a = self;
    struct sim *s = a->sim;
    while (!s->finished && !a->over) {
        struct arena arena = arena_make(0);
        s->clock.process = 1 + s->o.sites;
        enum err e = aggregator_process(a, &arena);
        s->clock.process = 0;
        if (e != ERR_OK && !a->env.disk.dead && !excused(s, e) && !for_a_person(s, e) &&
            !(e == ERR_CORRUPT && a->disk.rot > 0))
            sim_violate(s, "the aggregator ends with %s: %s", err_name(e), err_message());
        a->over |= e == ERR_STALE;
        outer_state_close(&a->replica);
        arena_free(&arena);
        if (s->finished || a->over)
            continue;
        process_down(s, &a->env);
        env_faulty_restart(&a->env);
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
    struct sim_aggregator *a = self;
    unsigned f;
    uint64_t round;
    if (sscanf(path, "spool/%u/%20" SCNu64, &f, &round) == 2)
        a->replica.o.outer.lr = sim_aborts(a->sim, f, round) ? INFINITY : a->sim->outer.lr;
}

/* kill -9 or a stop request at any moment, in waits too; the chances per operation do the rest. */
static void killer_task(void *self)
{
    struct sim *s = self;
    uint64_t most_ms = s->o.small ? KILL_SMALL_MAX_MS : KILL_MAX_MS;
    for (;;) {
        sim_sleep(&s->clock, s->clock.now_ms + 1 + sim_below(&s->clock, most_ms), NULL);
        if (s->clock.now_ms >= s->calm_ms || s->finished)
            return;
        uint64_t victim = sim_below(&s->clock, s->o.sites + 1);
        struct env_faulty *w = victim < s->o.sites ? &s->node[victim].env : &s->aggregator[0].env;
        if (victim < s->o.sites && sim_chance(&s->clock, 0.4)) {
            if (!sim_strikes(&s->clock, 1, "asked to stop", w->name))
                continue;
            w->sim.stop = 1; /* it ends by itself, with a checkpoint */
            s->r->stopped++;
        } else if (sim_strikes(&s->clock, 1, "kill", w->name)) {
            env_faulty_crash(w);
        }
        sim_kick(&s->clock, w);
    }
}

static void absence_task(void *self)
{
    struct sim_node *n = self;
    sim_sleep(&n->sim->clock, n->away_from_ms, NULL);
    env_faulty_crash(&n->env);
    sim_kick(&n->sim->clock, &n->env);
}

/* The one node that the point is about. */
static struct env_faulty *point_env(struct sim *s)
{
    unsigned node = s->o.point.node;
    return node < s->o.sites ? &s->node[node].env : &s->aggregator[0].env;
}

/* A minute in which the node continues with what the fault has left in its page cache. */
static void point_task(void *self)
{
    struct sim *s = self;
    struct env_faulty *w = point_env(s);
    while ((!w->disk.plan.applied || w->disk.plan.then_at) && !s->finished)
        sim_sleep(&s->clock, s->clock.now_ms + 500, NULL);
    sim_sleep(&s->clock, s->clock.now_ms + sim_below(&s->clock, POWER_MAX_MS), NULL);
    bool dies = s->o.point.power || point_has(&s->o.point, DISK_FAULT_BROKEN);
    w->disk.broken = w->disk.full = false; /* a person has put another one in, or made room */
    if (s->finished || w->disk.dead || !dies)
        return;
    env_faulty_crash(w);
    w->disk.power = true;
    sim_kick(&s->clock, w);
}

/* A run with a copied directory waits for a person. */
static void run_over(struct sim *s)
{
    s->over = s->finished = true;
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++) {
        s->aggregator[i].over = true;
        env_faulty_crash(&s->aggregator[i].env);
        sim_kick(&s->clock, &s->aggregator[i].env);
    }
    for (unsigned i = 0; i < s->nodes; i++)
        sim_node_end(&s->node[i]);
}

static void calm_task(void *self)
{
    struct sim *s = self;
    sim_sleep(&s->clock, s->calm_ms, NULL);
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++)
        s->aggregator[i].disk = (struct disk_faults){0};
    s->mask_kills = 0;
    s->aggregator[0].env.rot.loses_journal = 0;
    s->aggregator[0].env.disk.ends_at = 0;
    for (unsigned i = 0; i < SIM_NODES_MAX && i < s->nodes; i++) {
        s->node[i].disk = (struct disk_faults){0};
        s->node[i].env.disk.ends_at = 0;
        s->node[i].net = (struct link_sim_faults){.delay_ms = s->node[i].net.delay_ms};
    }
    s->progress_ms = s->clock.now_ms;
    while (!s->finished) { /* I9 */
        sim_sleep(&s->clock, s->clock.now_ms + 5000, NULL);
        uint64_t gap = s->clock.now_ms - s->progress_ms;
        if (gap > SIM_GAP_MAX_MS && sim_parted(s)) {
            run_over(s);
            return;
        }
        if (gap > SIM_GAP_MAX_MS)
            sim_violate(s, "no commit for %" PRIu64 " s after the last fault", gap / 1000);
    }
}

static double intensity(struct sim *s, double most)
{
    return sim_chance(&s->clock, 0.4) ? 0 : most * (double)sim_below(&s->clock, 1000) / 1000;
}

static struct disk_faults disk_draw(struct sim *s, const char *who)
{
    struct disk_faults f = {.crash = intensity(s, s->o.small ? 0.02 : 0.006),
                            .eio = intensity(s, s->o.small ? 0.006 : 0.002),
                            .slow = intensity(s, 0.02),
                            .rot = intensity(s, 0.3)};
    if (sim_chance(&s->clock, 0.3)) {
        f.full_from_ms = sim_below(&s->clock, s->calm_ms);
        f.full_until_ms = f.full_from_ms + sim_below(&s->clock, 20000);
        if (!sim_strikes(&s->clock, 1, "its disk will be full for a time", who))
            f.full_until_ms = 0;
    }
    return f;
}

static struct link_sim_faults net_draw(struct sim *s, const char *who)
{
    struct link_sim_faults f = {.lost = intensity(s, 0.2),
                                .lost_answer = intensity(s, 0.2),
                                .twice = intensity(s, 0.4),
                                .cut = intensity(s, 0.2),
                                .delay_ms = 1 + sim_below(&s->clock, 400)};
    if (sim_chance(&s->clock, 0.4)) {
        f.part_from_ms = sim_below(&s->clock, s->calm_ms);
        f.part_until_ms = f.part_from_ms + sim_below(&s->clock, 60000);
        if (!sim_strikes(&s->clock, 1, "will be partitioned for a time", who))
            f.part_until_ms = 0;
    }
    return f;
}

/* What a focus makes likely, in place of what the seed has drawn. */
static void lean(struct sim *s)
{
    enum { TURN_MS = 32000, AWAY_MS = 23000 };
    const struct sim_leaning *l = &s->o.leaning;
    s->aggregator[0].env.rot.loses_journal = l->journal;
    for (unsigned i = 0; i < s->o.sites; i++) {
        s->node[i].disk.keys_full = l->full;
        s->node[i].disk.power = l->power;
        if (l->crash > 0)
            s->node[i].disk.crash = l->crash;
        struct link_sim_faults *net = &s->node[i].net;
        if (l->away && sim_strikes(&s->clock, 0.9, "will be out of reach", s->node[i].name)) {
            net->part_from_ms = i * TURN_MS + sim_below(&s->clock, TURN_MS / 2);
            net->part_until_ms = net->part_from_ms + AWAY_MS + sim_below(&s->clock, TURN_MS / 4);
        }
    }
    if (l->crash > 0)
        s->aggregator[0].disk.crash = l->crash;
    if (l->seals > 0)
        s->mask_kills = l->seals;
    if (l->rot > 0)
        s->aggregator[0].disk.rot = l->rot;
}

static void faults_draw(struct sim *s)
{
    struct sim_aggregator *a = &s->aggregator[0];
    uint64_t longer = 1 + schedule_rounds(&s->schedule, 0) / 16; /* chaos as long as the rounds */
    s->calm_ms = (20000 + sim_below(&s->clock, 100000)) * longer;
    a->disk = disk_draw(s, a->env.name);
    a->env.disk.faults = &a->disk;
    for (unsigned i = 0; i < s->o.sites; i++) {
        struct sim_node *n = &s->node[i];
        n->disk = disk_draw(s, n->name);
        n->net = net_draw(s, n->name);
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
    if (s->o.masked) {
        s->mask_kills = intensity(s, 0.15);
        a->disk.rot = intensity(s, 1);
    }
    lean(s);
    if (sim_chance(&s->clock, 0.7))
        sim_start(&s->clock, killer_task, s);
    sim_start(&s->clock, calm_task, s);
    sim_copies_start(s);
}

/* ---- a run ---- */

enum err sim_node_make(struct sim *s, unsigned place, unsigned i)
{
    struct sim_node *n = &s->node[place];
    size_t elements = s->table.elements;
    memset(n, 0, sizeof *n);
    n->sim = s;
    n->index = i;
    n->weight = i % 3 == 2 && !s->o.equal ? 0.5f : 1;
    n->copy = place != i;
    n->route = &s->aggregator[0].server;
    snprintf(n->name, sizeof n->name, "s%u", i);
    s->names[i] = s->names[i] ? s->names[i] : n->name;
    n->checkpoint_every =
        1 + (int64_t)rng_below(s->o.seed, RNG_TEST, 10 + i,
                               s->o.leaning.power > 0 ? 1 : (uint64_t)s->o.every * 4);
    n->step_ms = 50 + rng_below(s->o.seed, RNG_TEST, 20 + i, 500);
    TRY_ALLOC(n->slab = arena_array(&s->arena, 2 * elements, sizeof *n->slab));
    TRY_ALLOC(n->part = arena_array(&s->arena, elements, sizeof *n->part));
    TRY_ALLOC(n->sent = arena_array(&s->arena, elements, sizeof *n->sent));
    TRY_ALLOC(n->gradient = arena_array(&s->arena, elements, sizeof *n->gradient));
    TRY_ALLOC(n->taken = arena_array(&s->arena, elements, sizeof *n->taken));
    TRY_ALLOC(n->began = arena_array(&s->arena, elements, sizeof *n->began));
    TRY_ALLOC(n->base = arena_array(&s->arena, elements, sizeof *n->base));
    TRY_ALLOC(n->trained = arena_array(&s->arena, elements, sizeof *n->trained));
    TRY_ALLOC(n->included = arena_array(&s->arena, elements, sizeof *n->included));
    env_faulty_open(&n->env, &s->clock, n->name, s->o.seed * 31 + place + (place >= 30));
    signer_sim_open(&n->signer, "sim", "site", n->name);
    n->liar = s->o.lies && i + 1 == s->o.sites;
    n->env.disk.gives_way = true;
    n->env.wrote = sim_wrote;
    n->env.watch_self = n;
    return ERR_OK;
}

void sim_aggregator_make(struct sim *s, unsigned index)
{
    static const char *const names[SIM_AGGREGATORS_MAX] = {"aggregator", "aggregator-copy"};
    struct sim_aggregator *a = &s->aggregator[index];
    *a = (struct sim_aggregator){.sim = s, .index = index, .there = true};
    env_faulty_open(&a->env, &s->clock, names[index], s->o.seed * 31 + 30 + 1000 * index);
    a->env.mapping = before_commit;
    a->env.rot.seals =
        s->o.masked && rng_below(s->o.seed, RNG_TEST, 303, 2) && !(s->o.leaning.journal > 0);
    a->env.watch_self = a;
    a->server = (struct link_sim_server){.clock = &s->clock,
                                         .task = &a->env,
                                         .dead = &a->env.disk.dead,
                                         .beside = s->o.beside,
                                         .wake_ms = UINT64_MAX};
    sim_watch(a);
}

static enum err sim_make(struct sim *s)
{
    toy_table(s);
    TRY(dev_open(&s->cpu, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(codec_open_for(&s->work, s->cpu, s->table.elements));
    TRY(fragment_make(&s->fragments, &s->table, &(struct fragment_plan){.count = s->o.fragments},
                      &s->arena));
    TRY(outer_opt_make(&s->outer, s->o.optimizer, 0.7f, 0.9f));
    s->outer.delay = s->o.delay;
    s->outer.merge = s->o.merge;
    s->outer.anneal = s->o.anneal;
    s->outer.length_max = s->o.merge == MERGE_EDIT ? s->o.edit_norm : 0;
    s->schedule = schedule_streaming(s->o.steps, s->o.every, s->o.fragments, 1, s->o.codec);
    s->schedule.full_precision = s->o.full_fixed ? CODEC_FIXED : CODEC_BF16;
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
    TRY(sim_amend_open(s));
    sim_roster_open(s);
    snprintf(s->canonical, sizeof s->canonical, "run.name=sim\nrun.seed=%" PRIu64 "\n", s->o.seed);
    signer_sim_open(&s->signer, "sim", "aggregator", "aggregator");
    sim_aggregator_make(s, 0);
    for (unsigned i = 0; i < s->o.sites; i++)
        TRY(sim_node_make(s, i, i));
    return ERR_OK;
}

static void sim_unmake(struct sim *s)
{
    clock_sim_close(&s->clock);
    sim_memory_end();
    for (unsigned i = 0; i < SIM_AGGREGATORS_MAX; i++)
        if (s->aggregator[i].there)
            env_faulty_close(&s->aggregator[i].env);
    for (unsigned i = 0; i < s->nodes; i++)
        env_faulty_close(&s->node[i].env);
    codec_close(s->work);
    dev_close(s->cpu);
    arena_free(&s->arena);
}

void sim_run_options(const struct sim_options *o, struct sim_result *r)
{
    static struct sim storage; /* a megabyte of tables: not for a stack */
    struct sim *s = &storage;
    ASSERT(o->sites >= 1 && o->sites <= SIM_SITES_MAX && o->fragments >= 1 &&
           o->fragments <= SIM_FRAGMENTS_MAX);
    ASSERT(!o->masked || o->equal); /* else sim_draw_masked is forgotten */
    *r = (struct sim_result){.ok = false};
    memset(s, 0, offsetof(struct sim, node));
    s->nodes = o->sites;
    s->o = *o;
    s->r = r;
    s->arena = arena_make(0);
    clock_sim_open(&s->clock, o->seed);
    s->clock.without = o->without;
    s->clock.told = o->told;
    s->clock.told_self = o->told_self;
    sim_memory_begin(s);
    enum err e = sim_make(s);
    if (e != ERR_OK) {
        sim_violate(s, "the simulator cannot start: %s", err_message());
    } else {
        if (o->faults)
            faults_draw(s);
        point_env(s)->disk.plan = (struct disk_plan){.at = o->point.at,
                                                     .fault = o->point.fault,
                                                     .then_at = o->point.then_at,
                                                     .then = o->point.then};
        if (o->point.power || point_has(&o->point, DISK_FAULT_BROKEN) ||
            point_has(&o->point, DISK_FAULT_FULL))
            sim_start(&s->clock, point_task, s);
        sim_start(&s->clock, sim_aggregator_task, &s->aggregator[0]);
        for (unsigned i = 0; i < o->sites; i++)
            sim_start(&s->clock, sim_site_task, &s->node[i]);
        sim_operator_start(s);
        bool ended = sim_run(&s->clock, DAY_MS);
        r->struck = r->struck || (point_env(s)->disk.plan.applied &&
                                  !point_env(s)->disk.plan.then_at); /* the checks clear it */
        if (!ended)
            sim_violate(s, "the run did not end within a day");
        else if (sim_parted(s))
            sim_copies_check_end(s);
        else
            sim_check_end(s);
        if (ended)
            sim_amend_end(s);
    }
    for (unsigned i = 0; i <= o->sites; i++)
        r->operations[i] =
            (i < o->sites ? &s->node[i].env : &s->aggregator[0].env)->disk.operations;
    r->virtual_ms = s->clock.now_ms;
    r->calls = s->aggregator[0].server.calls + s->aggregator[1].server.calls;
    r->amidst = s->aggregator[0].server.amidst + s->aggregator[1].server.amidst;
    r->faults = s->clock.struck;
    r->parted = s->over;
    r->repeats = !s->ordered_late;
    sim_roster_end(s);
    r->ok = !*r->why;
    sim_unmake(s);
}
