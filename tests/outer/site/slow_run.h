/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SLOW_RUN_H
#define SLOW_RUN_H
/* A small strict run with real threads and files, for tests of in-flight slots: an aggregator and
 * sites in one process, joined by slow links. The toy's parameters lie in [0, 1), Nesterov 0.7 and
 * 0.9, one full-precision round.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/diloco/stepper.h"
#include "outer/site/site.h"
#include "tests/outer/link/link_slow.h"
#include "tests/outer/toy.h"

enum { SLOW_ELEMENTS_MAX = 8192, SLOW_SITES_MAX = 3 };
static const char slow_canonical[] = "run.name=t\n";
static const char *const slow_name[SLOW_SITES_MAX] = {"s0", "s1", "s2"};
static const char *const slow_peer[SLOW_SITES_MAX] = {"atoll://t/site/s0", "atoll://t/site/s1",
                                                      "atoll://t/site/s2"};

struct slow_run { /* the aggregator, and what all share */
    char root[64];
    struct arena arena;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table table;
    struct fragments fragments;
    struct outer_state_options options;
    float initial[SLOW_ELEMENTS_MAX];
    unsigned sites;
    pthread_mutex_t calls;
    struct env *env;
    struct dev *cpu; /* a device has one thread */
    struct outer_state replica;
    struct aggregator *aggregator;
};
struct slow_site {
    unsigned index;
    struct slow_run *run;
    struct env *env;
    struct dev *dev; /* its own: closed with it */
    struct outer_state replica;
    struct slow link;
    struct site *site;
    atomic_int stop;
    /* The trainer: carries out the actions of the stepper, without a model. */
    struct dev *front; /* works on slab; dev, or another one of the same kind */
    struct stepper stepper;
    struct stepper_update update;
    unsigned done; /* actions of it */
    float weight;
    float slab[SLOW_ELEMENTS_MAX];
    float sent[SLOW_ELEMENTS_MAX];  /* the fragment as it was last submitted */
    float start[SLOW_ELEMENTS_MAX]; /* and the eager start after it */
};

static inline void must(enum err e)
{
    if (e != ERR_OK)
        fail_msg("%s: %s", err_name(e), err_message());
}

static inline struct env *slow_world(const struct slow_run *r, const char *name)
{
    struct env *w;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", r->root, name);
    must(env_posix_open(&w, path));
    return w;
}

static inline enum err slow_device(struct dev **d)
{
    return dev_open(d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1});
}

/* Zeroed before. `layers` of the toy; the schedule says how many fragments. */
static inline void slow_run_open(struct slow_run *r, unsigned sites, int layers,
                                 const struct schedule *schedule)
{
    struct aggregator_options a = {.run = "t",
                                   .sites = {.names = slow_name, .count = sites},
                                   .canonical = slow_canonical,
                                   .strict = true,
                                   .straggler_ms = 1000};
    r->sites = sites;
    /* Hundreds of fsyncs that test nothing here: in memory where that is. */
    snprintf(r->root, sizeof r->root, "%s/test_slow.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(r->root));
    r->arena = arena_make(0);
    r->table = toy_table(r->tensors, layers);
    assert_true(r->table.elements <= SLOW_ELEMENTS_MAX);
    must(fragment_make(&r->fragments, &r->table,
                       &(struct fragment_plan){.count = schedule->fragments}, &r->arena));
    r->options =
        (struct outer_state_options){.fragments = &r->fragments, .schedule = *schedule, .keep = 3};
    must(outer_opt_make(&r->options.outer, OUTER_OPT_MOMENTUM, 0.7f, 0.9f));
    for (size_t i = 0; i < r->table.elements; i++)
        r->initial[i] = toy_used(&r->table, i) ? (float)(i % 64) / 64 : 0;
    pthread_mutex_init(&r->calls, NULL);
    must(slow_device(&r->cpu));
    r->env = slow_world(r, "aggregator");
    must(outer_state_open(&r->replica, r->env, r->cpu, &r->options, &r->arena));
    must(outer_state_begin(&r->replica, r->initial));
    must(aggregator_open(&r->aggregator, r->env, &r->replica, &a, &r->arena));
}

/* A process of the site: its directory may hold what an earlier one left. */
static inline void slow_site_begin(struct slow_run *r, struct slow_site *s)
{
    struct outer_state_options o = r->options;
    o.residuals = true;
    struct site_options so = {.run = "t",
                              .name = slow_name[s->index],
                              .index = s->index,
                              .site_count = r->sites,
                              .canonical = slow_canonical,
                              .strict = true,
                              .error_feedback_decay = 1,
                              .straggler_ms = 1000,
                              .stop = &s->stop};
    s->env = slow_world(r, slow_name[s->index]);
    must(outer_state_open(&s->replica, s->env, s->dev, &o, &r->arena));
    must(site_open(&s->site, s->env, &s->link.link, &s->replica, &so, &r->arena));
    must(site_start(s->site, r->initial));
}

static inline void slow_site_end(struct slow_site *s)
{
    site_close(s->site);
    outer_state_close(&s->replica);
    env_posix_close(s->env);
}

static inline void slow_site_open(struct slow_run *r, struct slow_site *s, unsigned index,
                                  uint64_t seed, struct dev *d, float mix)
{
    s->index = index;
    s->run = r;
    s->front = d;
    s->weight = 1;
    memcpy(s->slab, r->initial, sizeof s->slab);
    stepper_open(&s->stepper, &(struct stepper_options){
                                  .schedule = r->options.schedule, .strict = true, .mix = mix});
    s->link = (struct slow){.link = {&slow_ops},
                            .peer = slow_peer[index],
                            .mutex = &r->calls,
                            .seed = seed,
                            .service = aggregator_service(r->aggregator)};
    s->dev = d;
    slow_site_begin(r, s);
}

static inline void slow_site_close(struct slow_site *s)
{
    slow_site_end(s);
    dev_close(s->dev);
}

/* ---- the trainer ---- */

/* local = alpha * local + (1 - alpha) * theta; theta: memory of the replica's device. */
static inline void slow_take(struct slow_site *s, unsigned f, const float *theta, float alpha)
{
    static float local[SLOW_ELEMENTS_MAX], outer[SLOW_ELEMENTS_MAX];
    const struct fragment *part = &s->run->fragments.f[f];
    s->front->ops->copy(s->front, outer, theta, part->elements * sizeof *outer);
    must(dev_sync(s->front));
    fragment_gather(s->run->cpu, local, s->slab, part);
    for (size_t i = 0; i < part->elements; i++)
        local[i] = alpha > 0 ? alpha * local[i] + (1 - alpha) * outer[i] : outer[i];
    fragment_scatter(s->run->cpu, s->slab, local, part);
}

static inline void slow_submit(struct slow_site *s, const struct stepper_action *a)
{
    size_t bytes = s->run->fragments.f[a->fragment].elements * sizeof(float);
    float *local;
    if (!a->copied)
        fragment_gather(s->run->cpu, s->sent, s->slab, &s->run->fragments.f[a->fragment]);
    must(site_acquire(s->site, a->fragment, &local));
    s->front->ops->copy(s->front, local, s->sent, bytes);
    must(dev_sync(s->front)); /* the slot's device is in no order with this one */
    site_submit(s->site, &(struct site_submission){.fragment = a->fragment,
                                                   .round = a->round,
                                                   .base = a->base,
                                                   .weight = s->weight,
                                                   .from_start = a->from_start,
                                                   .resend = a->resend});
}

static inline void slow_apply(struct slow_site *s, const struct stepper_action *a)
{
    struct site_completion done;
    const float *theta;
    must(site_reap(s->site, a->fragment, &theta, &done));
    assert_int_equal(done.reached, a->round + 1);
    slow_take(s, a->fragment, theta, stepper_reaped(&s->stepper, a, done.reached, done.skipped));
}

static inline void slow_act(struct slow_site *s, const struct stepper_action *a)
{
    const struct fragment *part = &s->run->fragments.f[a->fragment];
    float theta[SLOW_ELEMENTS_MAX];
    const float *start;
    switch (a->verb) {
    case STEPPER_CHECK:
        must(site_failed(s->site));
        break;
    case STEPPER_COPY:
        fragment_gather(s->run->cpu, s->sent, s->slab, part);
        break;
    case STEPPER_WAIT:
        must(site_complete(s->site, a->fragment));
        break;
    case STEPPER_APPLY:
        slow_apply(s, a);
        break;
    case STEPPER_TAKE:
        must(site_theta(s->site, a->fragment, a->round, theta));
        slow_take(s, a->fragment, theta, a->alpha);
        break;
    case STEPPER_SUBMIT:
        slow_submit(s, a);
        break;
    case STEPPER_EAGER:
        must(site_eager(s->site, a->fragment, &start));
        memcpy(s->start, start, part->elements * sizeof *start);
        slow_take(s, a->fragment, start, 0);
        break;
    default:
        fail_msg("verb %d", (int)a->verb);
    }
}

/* Carries out all but the last `left` actions. */
static inline void slow_actions(struct slow_site *s, unsigned left)
{
    for (; s->done + left < s->update.count; s->done++)
        slow_act(s, &s->update.action[s->done]);
}

static inline void slow_after_step(struct slow_site *s, int64_t step, unsigned left)
{
    struct stepper_event e = {.phase = STEPPER_AFTER_STEP, .step = step};
    stepper_step(&s->stepper, &e, &s->update);
    s->done = 0;
    slow_actions(s, left);
}

/* After the sites. */
static inline void slow_run_close(struct slow_run *r)
{
    aggregator_close(r->aggregator);
    outer_state_close(&r->replica);
    env_posix_close(r->env);
    dev_close(r->cpu);
    pthread_mutex_destroy(&r->calls);
    arena_free(&r->arena);
    assert_int_equal(file_remove_tree(r->root), ERR_OK);
}

#endif
