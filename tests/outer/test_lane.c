/* Rounds beside training, with real threads: four fragments, several in flight over a link that takes its
 * time. What breaks here: bits that depend on who was faster, a scratch that two lanes use at once, an
 * error or a stop request that nobody hears, a contribution made twice. Run it under
 * ThreadSanitizer too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/aggregator/aggregator.h"
#include "outer/site/site.h"
#include "tests/outer/link_slow.h"
#include "tests/outer/toy.h"

enum { PARTS = 4, ELEMENTS_MAX = 8192, EVERY = 4, STEPS = 14 };
static const char canonical[] = "run.name=t\n";

struct bench {
    char root[64];
    struct arena arena;
    struct dev *cpu, *aggregator_cpu; /* a device has one thread */
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table table;
    struct fragments fragments;
    struct member_options options;
    float initial[ELEMENTS_MAX], slab[ELEMENTS_MAX], gathered[ELEMENTS_MAX];
    struct world *world, *aggregator_world;
    struct member member, aggregator_member;
    struct aggregator *aggregator;
    pthread_mutex_t calls;
    struct slow link;
    struct site *site;
    int stop;
    int64_t step;
    uint64_t flight[PARTS];
    float mix;
};

/* ---- the bench ---- */

static void must(enum err e)
{
    if (e != ERR_OK)
        fail_msg("%s: %s", err_name(e), err_message());
}

static struct world *world_of(const struct bench *b, const char *name)
{
    struct world *w;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", b->root, name);
    must(world_open_real(&w, path));
    return w;
}

static void site_begin(struct bench *b)
{
    struct member_options o = b->options;
    o.residuals = true;
    struct site_options s = {.run = "t",
                             .name = "s0",
                             .site_count = 1,
                             .canonical = canonical,
                             .strict = true,
                             .feedback = 1,
                             .straggler_ms = 1000,
                             .stop = &b->stop};
    b->world = world_of(b, "site");
    must(member_open(&b->member, b->world, b->cpu, &o, &b->arena));
    must(site_open(&b->site, b->world, &b->link.link, &b->member, &s, &b->arena));
    must(site_start(b->site, b->initial));
}

static void site_end(struct bench *b)
{
    site_close(b->site);
    member_close(&b->member);
    world_close_real(b->world);
}

static void aggregator_begin(struct bench *b)
{
    static const char *const names[] = {"s0"};
    struct aggregator_options a = {.run = "t",
                                   .sites = names,
                                   .site_count = 1,
                                   .canonical = canonical,
                                   .strict = true,
                                   .straggler_ms = 1000};
    b->aggregator_world = world_of(b, "aggregator");
    must(member_open(&b->aggregator_member, b->aggregator_world, b->aggregator_cpu, &b->options,
                     &b->arena));
    must(member_begin(&b->aggregator_member, b->initial));
    must(aggregator_open(&b->aggregator, b->aggregator_world, &b->aggregator_member, &a, &b->arena));
    b->link.service = aggregator_service(b->aggregator);
}

static struct bench *bench_open(int64_t tau, enum codec_kind codec, uint64_t seed)
{
    struct bench *b = calloc(1, sizeof *b);
    const struct dev_options cpu = {.kind = "cpu", .model_type = "f32", .threads = 1};
    assert_non_null(b);
    /* Hundreds of fsyncs that test nothing here: in memory where that is. */
    snprintf(b->root, sizeof b->root, "%s/test_lane.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(b->root));
    b->arena = arena_make(0);
    b->table = toy_table(b->tensors, PARTS);
    assert_true(b->table.elements <= ELEMENTS_MAX);
    must(dev_open(&b->cpu, &cpu));
    must(dev_open(&b->aggregator_cpu, &cpu));
    must(fragment_make(&b->fragments, &b->table, &(struct fragment_plan){.count = PARTS},
                       &b->arena));
    b->options = (struct member_options){.fragments = &b->fragments, .keep = 3};
    b->options.schedule = schedule_streaming(STEPS, EVERY, PARTS, 1, codec);
    b->options.schedule.overlap = tau;
    must(nesterov_make(&b->options.outer, "nesterov", 0.7f, 0.9f));
    for (size_t i = 0; i < b->table.elements; i++)
        b->initial[i] = toy_used(&b->table, i) ? (float)(i % 64) / 64 : 0;
    memcpy(b->slab, b->initial, sizeof b->slab);
    b->mix = tau == EVERY ? 0 : 0.5f;
    b->link = (struct slow){.link = {&slow_ops}, .peer = "atoll://t/site/s0", .mutex = &b->calls, .seed = seed};
    pthread_mutex_init(&b->calls, NULL);
    aggregator_begin(b);
    site_begin(b);
    return b;
}

static void bench_close(struct bench *b)
{
    site_end(b);
    aggregator_close(b->aggregator);
    member_close(&b->aggregator_member);
    world_close_real(b->aggregator_world);
    dev_close(b->cpu);
    dev_close(b->aggregator_cpu);
    pthread_mutex_destroy(&b->calls);
    arena_free(&b->arena);
    assert_int_equal(file_remove_tree(b->root), ERR_OK);
    free(b);
}

/* ---- the trainer ---- */

/* Parameters of different fragments pull at one another, so that an apply at another step shows. */
static void train(const struct table *t, float *slab, int64_t step)
{
    for (size_t i = 0; i < t->elements; i++)
        if (toy_used(t, i))
            slab[i] -= 0.01f * slab[t->elements - 1 - i] + (float)((int64_t)i % 7 - step % 5) / 512;
}

static void mix(float *local, const float *theta, float alpha, size_t n)
{
    for (size_t i = 0; i < n; i++)
        local[i] = alpha > 0 ? alpha * local[i] + (1 - alpha) * theta[i] : theta[i];
}

/* gathered holds the fragment. */
static void land(struct bench *b, unsigned f, float alpha)
{
    struct site_landed landed;
    const float *theta;
    must(site_collect(b->site, f, &theta, &landed));
    assert_int_equal(landed.reached, b->flight[f]);
    mix(b->gathered, theta, alpha, b->fragments.f[f].elements);
    fragment_scatter(b->cpu, b->slab, b->gathered, &b->fragments.f[f]);
    b->flight[f] = 0;
}

static void leave(struct bench *b, unsigned f, uint64_t round)
{
    struct site_sending w = {.fragment = f,
                             .round = round,
                             .base = schedule_base(&b->options.schedule, f, round),
                             .weight = 1,
                             .step = b->step};
    float *local;
    must(site_lend(b->site, f, &local));
    memcpy(local, b->gathered, b->fragments.f[f].elements * sizeof *local);
    site_send(b->site, &w);
    b->flight[f] = round + 1;
}

static void one_step(struct bench *b)
{
    const struct schedule *s = &b->options.schedule;
    uint64_t round;
    train(&b->table, b->slab, b->step++);
    must(site_failed(b->site));
    for (unsigned f = 0; f < PARTS; f++)
        if (b->flight[f] && schedule_apply(s, f, b->flight[f] - 1) == b->step &&
            !(schedule_delayed(s, f) && schedule_due(s, b->step, f, &round))) {
            fragment_gather(b->cpu, b->gathered, b->slab, &b->fragments.f[f]);
            land(b, f, b->mix);
        }
    for (unsigned f = 0; f < PARTS; f++) {
        float kept[ELEMENTS_MAX];
        size_t bytes = b->fragments.f[f].elements * sizeof *kept;
        if (!schedule_due(s, b->step, f, &round))
            continue;
        fragment_gather(b->cpu, b->gathered, b->slab, &b->fragments.f[f]);
        memcpy(kept, b->gathered, bytes);
        if (b->flight[f]) { /* one-round delay */
            land(b, f, b->mix);
        } else if (schedule_delayed(s, f) && round == 0) {
            fragment_gather(b->cpu, b->gathered, b->initial, &b->fragments.f[f]);
            fragment_scatter(b->cpu, b->slab, b->gathered, &b->fragments.f[f]);
        }
        memcpy(b->gathered, kept, bytes);
        leave(b, f, round);
        if (schedule_apply(s, f, round) == b->step)
            land(b, f, 0);
    }
    must(site_stored(b->site));
}

static struct digest run(int64_t tau, enum codec_kind codec, uint64_t seed, unsigned spoil)
{
    struct bench *b = bench_open(tau, codec, seed);
    b->link.spoil = spoil;
    while (b->step < STEPS)
        one_step(b);
    must(site_leave(b->site, "done"));
    assert_int_equal(b->link.spoil, 0);
    struct digest shared = member_digest(&b->member, false),
                  there = member_digest(&b->aggregator_member, false);
    assert_true(digest_equal(&shared, &there));
    struct digest all = member_digest(&b->member, true);
    bench_close(b);
    return all;
}

/* ---- tests ---- */

static void test_bits_do_not_depend_on_time(void **state)
{
    (void)state;
    for (int64_t tau = EVERY / 2; tau <= EVERY; tau += EVERY / 2) {
        struct digest one = run(tau, CODEC_INT4, 1, 0), two = run(tau, CODEC_INT4, 2, 0);
        assert_true(digest_equal(&one, &two));
    }
}

/* Healing needs the site's residual after calls in which other lanes used the member's spare. */
static void test_lanes_that_heal_keep_their_residual(void **state)
{
    (void)state;
    struct digest calm = run(3, CODEC_INT4, 3, 0), healed = run(3, CODEC_INT4, 4, 4);
    assert_true(digest_equal(&calm, &healed));
}

/* Streaming DiLoCo's Algorithm 2 for one site, written down once more, without lanes, link, codec. */
static void test_algorithm_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_F32, 5);
    const struct schedule *s = &b->options.schedule;
    static float slab[ELEMENTS_MAX], delta[PARTS][ELEMENTS_MAX], theta[PARTS][ELEMENTS_MAX],
        momentum[PARTS][ELEMENTS_MAX], local[ELEMENTS_MAX];
    memcpy(slab, b->initial, sizeof slab);
    for (unsigned f = 0; f < PARTS; f++)
        fragment_gather(b->cpu, theta[f], slab, &b->fragments.f[f]);
    for (int64_t step = 1; step <= STEPS; step++) {
        train(&b->table, slab, step - 1);
        for (unsigned f = 0; f < PARTS; f++) {
            size_t n = b->fragments.f[f].elements;
            for (uint64_t r = 0; r < schedule_rounds(s, f); r++) {
                bool last = r + 1 == schedule_rounds(s, f);
                if (step == schedule_step(s, f, r)) {
                    fragment_gather(b->cpu, local, slab, &b->fragments.f[f]);
                    for (size_t i = 0; i < n; i++)
                        delta[f][i] = theta[f][i] - local[i];
                }
                if (step != schedule_apply(s, f, r))
                    continue;
                struct nesterov_state outer = {.theta = theta[f], .momentum = momentum[f]};
                nesterov_step(b->cpu, &b->options.outer, &outer, delta[f], r, n);
                fragment_gather(b->cpu, local, slab, &b->fragments.f[f]);
                mix(local, theta[f], last ? 0 : 0.5f, n);
                fragment_scatter(b->cpu, slab, local, &b->fragments.f[f]);
            }
        }
    }
    while (b->step < STEPS)
        one_step(b);
    for (unsigned f = 0; f < PARTS; f++)
        assert_memory_equal(theta[f], b->member.state[f].theta,
                            b->fragments.f[f].elements * sizeof(float));
    assert_memory_equal(slab, b->slab, b->table.elements * sizeof *slab);
    bench_close(b);
}

/* A lane's error is heard at the next step, long before the apply; the process still ends well. */
static void test_an_error_is_heard_at_once(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_INT8, 6);
    enum err e = ERR_OK;
    b->link.refuse = ERR_DENIED;
    for (unsigned f = 0; f < 2; f++) {
        fragment_gather(b->cpu, b->gathered, b->slab, &b->fragments.f[f]);
        leave(b, f, 0);
    }
    for (int i = 0; e == ERR_OK && i < 5000; i++) {
        usleep(1000);
        e = site_failed(b->site);
    }
    assert_int_equal(e, ERR_DENIED);
    assert_non_null(strstr(err_message(), "refused on purpose"));
    assert_int_equal(site_await(b->site, 1), ERR_DENIED);
    must(site_await(b->site, 0));
    bench_close(b);
}

/* Asked to stop in flight: the contribution is stored, the wait ends, and after a restart the same
 * bytes go, whatever the trainer would make now. */
static void test_stopped_in_flight(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_INT8, 7);
    struct site_landed landed;
    const float *theta;
    float *local;
    b->link.down = true;
    fragment_gather(b->cpu, b->gathered, b->slab, &b->fragments.f[0]);
    leave(b, 0, 0);
    must(site_stored(b->site));
    while (!site_is_away(b->site, 0))
        usleep(1000);
    __atomic_store_n(&b->stop, 1, __ATOMIC_RELAXED);
    assert_int_equal(site_await(b->site, 0), ERR_STOPPED);
    must(site_failed(b->site)); /* no error: it was asked for */
    struct digest sent = b->link.sent[0];
    site_end(b);
    b->stop = 0;
    b->link.down = false;
    site_begin(b); /* sends it: the others wait */
    assert_true(digest_equal(&sent, &b->link.sent[0]));
    must(site_lend(b->site, 0, &local));
    site_send(b->site, &(struct site_sending){.fragment = 0, .round = 0, .again = true});
    must(site_collect(b->site, 0, &theta, &landed));
    assert_memory_equal(theta, b->member.state[0].theta, b->fragments.f[0].elements * sizeof *theta);
    must(site_lend(b->site, 1, &local)); /* never sent, and never will be */
    site_send(b->site, &(struct site_sending){.fragment = 1, .round = 0, .again = true});
    assert_int_equal(site_await(b->site, 1), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "outbox/1/0"));
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_time),
        cmocka_unit_test(test_lanes_that_heal_keep_their_residual),
        cmocka_unit_test(test_algorithm_by_hand),
        cmocka_unit_test(test_an_error_is_heard_at_once),
        cmocka_unit_test(test_stopped_in_flight),
    };
    log_min(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
