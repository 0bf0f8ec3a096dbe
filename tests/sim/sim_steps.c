/* SPDX-License-Identifier: Apache-2.0 */
/* The toy trainer carries out the actions of the stepper: what exchange.c does, with one rank and
 * arrays instead of a model.
 */
#include <string.h>
#include "tests/sim/sim_own.h"

static size_t bytes_of(const struct sim *s, unsigned f)
{
    return s->fragments.f[f].elements * sizeof(float);
}

/* local = alpha * local + (1 - alpha) * theta */
static void take_theta(struct sim_node *n, unsigned f, const float *theta, float alpha)
{
    struct sim *s = n->sim;
    float beta = 1 - alpha;
    fragment_gather(s->cpu, n->part, n->slab, &s->fragments.f[f]);
    for (size_t i = 0; i < s->fragments.f[f].elements; i++)
        n->part[i] = alpha > 0 ? alpha * n->part[i] + beta * theta[i] : theta[i];
    fragment_scatter(s->cpu, n->slab, n->part, &s->fragments.f[f]);
    memcpy(n->began + s->first[f], n->part, bytes_of(s, f));
}

/* What SUBMIT sends, and where its steps began. */
static void gather(struct sim_node *n, unsigned f)
{
    struct sim *s = n->sim;
    float *sent = n->sent + s->first[f];
    fragment_gather(s->cpu, sent, n->slab, &s->fragments.f[f]);
    sim_damage(n, sent);
    memcpy(n->base + s->first[f], n->began + s->first[f], bytes_of(s, f));
}

static enum err submit(struct sim_node *n, const struct stepper_action *a)
{
    unsigned f = a->fragment;
    float *local;
    if (!a->copied && !a->resend)
        gather(n, f);
    TRY(site_acquire(n->site, f, &local));
    if (!a->resend)
        memcpy(local, n->sent + n->sim->first[f], bytes_of(n->sim, f));
    site_submit(n->site, &(struct site_submission){.fragment = f,
                                                   .round = a->round,
                                                   .base = a->base,
                                                   .weight = n->weight,
                                                   .data_cursor = n->tokens,
                                                   /* a privacy budget, in half of the runs */
                                                   .charged = n->sim->o.seed % 2 ? n->tokens : 0,
                                                   .late = (uint64_t)a->late,
                                                   .from_start = a->from_start,
                                                   .resend = a->resend,
                                                   .step = n->step,
                                                   .loss = 1,
                                                   .tokens_per_second = 1,
                                                   .tokens = n->tokens});
    return ERR_OK;
}

static enum err reap(struct sim_node *n, const struct stepper_action *a)
{
    const float *theta;
    struct site_completion done;
    TRY(site_reap(n->site, a->fragment, &theta, &done));
    if (site_schedule_version(n->site)) /* as exchange.c does */
        stepper_reschedule(&n->stepper, &n->replica.schedule);
    float alpha = stepper_reaped(&n->stepper, a, done.reached, done.skipped);
    if (a->verb == STEPPER_APPLY)
        take_theta(n, a->fragment, theta, alpha);
    return ERR_OK;
}

static enum err go_eager(struct sim_node *n, unsigned f)
{
    const float *start;
    TRY(site_eager(n->site, f, &start));
    take_theta(n, f, start, 0);
    return ERR_OK;
}

static enum err take_recorded(struct sim_node *n, const struct stepper_action *a)
{
    TRY(site_theta(n->site, a->fragment, a->round, n->taken));
    take_theta(n, a->fragment, n->taken, a->alpha);
    return ERR_OK;
}

static enum err move(struct sim_node *n, int64_t step)
{
    for (unsigned f = 0; f < n->sim->o.fragments; f++)
        TRY(site_moved(n->site, f));
    n->step = step;
    n->tokens = (uint64_t)step * SIM_BATCH;
    n->sim->r->moved++;
    if (!n->sim->o.every_ms)
        return ERR_OK;
    TRY(sim_interval(n, step));
    n->tokens = n->interval.began_tokens;
    return ERR_OK;
}

enum err sim_interval(struct sim_node *n, int64_t step)
{
    const struct schedule *s = &n->stepper.o.schedule;
    uint64_t round = schedule_sent(s, 0, step);
    struct interval i = {n->sim->o.every_ms, n->sim->clock.now_ms, 0, 0};
    if (!i.length_ms)
        return ERR_OK;
    if (round)
        TRY(site_round_tokens(n->site, 0, round - 1, &i.began_tokens));
    if (round < schedule_rounds(s, 0))
        TRY(site_round_tokens(n->site, 0, round, &i.ended_tokens));
    n->interval = i;
    return ERR_OK;
}

void sim_mark(struct sim_node *n, const struct stepper_event *e)
{
    n->mark.before = e->before;
    (void)stepper_postponed(&n->stepper, e, n->mark.postponed);
}

static enum err act(struct sim_node *n, const struct stepper_event *e,
                    const struct stepper_action *a)
{
    switch (a->verb) {
    case STEPPER_CHECK:
        return site_failed(n->site);
    case STEPPER_WAIT:
        return site_complete(n->site, a->fragment);
    case STEPPER_COPY:
        gather(n, a->fragment);
        return ERR_OK;
    case STEPPER_APPLY:
    case STEPPER_DROP:
        return reap(n, a);
    case STEPPER_TAKE:
        return take_recorded(n, a);
    case STEPPER_SUBMIT:
        return submit(n, a);
    case STEPPER_EAGER:
        return go_eager(n, a->fragment);
    case STEPPER_POSTPONE:
        n->sim->r->postponed++;
        return ERR_OK;
    case STEPPER_MOVE:
        return move(n, a->step);
    case STEPPER_SKIP:
        n->step = a->step;
        return ERR_OK;
    case STEPPER_STORE:
        return site_wait_stored(n->site);
    case STEPPER_MARK:
        sim_mark(n, e);
        return ERR_OK;
    case STEPPER_SAVE:
        return sim_save(n);
    }
    return ERR_OK;
}

static enum err carry_out(struct sim_node *n, struct stepper_event *e)
{
    e->now_ms = n->sim->clock.now_ms;
    e->over = interval_over(&n->interval, e->now_ms, n->tokens);
    e->trained = interval_steps(&n->interval, n->tokens, SIM_BATCH);
    for (unsigned f = 0; f < n->sim->o.fragments; f++)
        if (stepper_asks(&n->stepper, e, f))
            TRY(site_unreachable(n->site, f, &e->unreachable[f]));
    stepper_step(&n->stepper, e, &n->update);
    for (unsigned i = 0; i < n->update.count; i++)
        TRY(act(n, e, &n->update.action[i]));
    return ERR_OK;
}

enum err sim_event(struct sim_node *n, enum stepper_phase phase)
{
    bool after = phase != STEPPER_BEFORE_UPDATE;
    struct stepper_event e = {.phase = phase, .step = n->step + !after};
    enum err ended = carry_out(n, &e);
    if (ended != ERR_STOPPED || n->env.disk.dead || phase == STEPPER_MOVED)
        return ended;
    e = (struct stepper_event){.phase = STEPPER_STOP, .step = n->step, .before = after};
    n->mark = (struct sim_mark){.before = false};
    TRY(carry_out(n, &e));
    return err_set(ERR_STOPPED, "asked to, in a wait");
}

enum err sim_resume(struct sim_node *n, const struct sim_mark *mark)
{
    struct sim *s = n->sim;
    struct stepper_event e = {.phase = STEPPER_RESUME, .step = n->step, .before = mark->before};
    memcpy(e.postponed, mark->postponed, sizeof e.postponed);
    stepper_open(&n->stepper,
                 &(struct stepper_options){.schedule = n->replica.schedule,
                                           .strict = s->o.strict,
                                           .timed = s->o.every_ms > 0,
                                           .before_update = s->o.before_update,
                                           .max_local_steps_offline = s->o.max_local_steps_offline,
                                           .mix = s->o.mix});
    for (unsigned f = 0; f < s->o.fragments; f++) {
        e.state[f] = n->replica.state[f].round;
        for (uint64_t r = stepper_needs(&n->stepper, &e, f); !e.lost && r < e.state[f];)
            e.lost = outer_state_load_theta(&n->replica, f, ++r, n->taken) != ERR_OK;
    }
    TRY(sim_interval(n, n->step - 1));
    TRY(carry_out(n, &e));
    return sim_interval(n, n->step);
}
