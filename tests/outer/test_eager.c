/* Eager updates (2502.12996) with three sites: where each goes on from is what the paper's
 * equations say, in f64, while the committed state is the one-round delay's; and it is the same
 * after a restart. What breaks here: a start from the wrong state, own and others' deltas mixed up,
 * a delta against something else than the start, a start made twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator.h"
#include "outer/site/site.h"
#include "tests/outer/link_slow.h"
#include "tests/outer/site_device.h"
#include "tests/outer/toy.h"

enum { SITES = 3, ELEMENTS_MAX = 4096, EVERY = 3, STEPS = 20 };
static const char canonical[] = "run.name=t\n";
static const char *const names[SITES] = {"s0", "s1", "s2"};
static const char *const peers[SITES] = {"atoll://t/site/s0", "atoll://t/site/s1",
                                         "atoll://t/site/s2"};
static const float weights[SITES] = {1, 1, 0.5f};

struct node {
    struct world *world;
    struct dev *dev; /* of the first site: site_device.h */
    struct member member;
    struct slow link;
    struct site *site;
    bool flies;
    float slab[ELEMENTS_MAX], sent[ELEMENTS_MAX], start[ELEMENTS_MAX];
    /* The equations, in f64: where the site's steps began, its last delta. */
    double began[ELEMENTS_MAX], delta[ELEMENTS_MAX], before[ELEMENTS_MAX];
};
struct bench {
    char root[64];
    struct arena arena;
    struct dev *cpu;
    struct tensor tensors[TOY_TENSORS_MAX];
    struct table table;
    struct fragments fragments;
    struct member_options options;
    size_t n; /* elements of the one fragment */
    float initial[ELEMENTS_MAX];
    pthread_mutex_t calls;
    struct world *world;
    struct member member;
    struct aggregator *aggregator;
    struct node node[SITES];
    double theta[ELEMENTS_MAX], momentum[ELEMENTS_MAX], mean[ELEMENTS_MAX]; /* committed, in f64 */
};

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

static void site_begin(struct bench *b, unsigned i)
{
    struct node *n = &b->node[i];
    struct member_options o = b->options;
    o.residuals = true;
    struct site_options s = {.run = "t",
                             .name = names[i],
                             .index = i,
                             .site_count = SITES,
                             .canonical = canonical,
                             .strict = true,
                             .feedback = 1,
                             .straggler_ms = 1000};
    n->world = world_of(b, names[i]);
    must(member_open(&n->member, n->world, n->dev, &o, &b->arena));
    must(site_open(&n->site, n->world, &n->link.link, &n->member, &s, &b->arena));
    must(site_start(n->site, b->initial));
}

static void site_end(struct node *n)
{
    site_close(n->site);
    member_close(&n->member);
    world_close_real(n->world);
}

static enum err cpu_only(struct dev **d)
{
    return dev_open(d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1});
}

static void aggregator_begin(struct bench *b)
{
    struct aggregator_options a = {.run = "t",
                                   .sites = names,
                                   .site_count = SITES,
                                   .canonical = canonical,
                                   .strict = true,
                                   .straggler_ms = 1000};
    b->world = world_of(b, "aggregator");
    must(member_open(&b->member, b->world, b->cpu, &b->options, &b->arena));
    must(member_begin(&b->member, b->initial));
    must(aggregator_open(&b->aggregator, b->world, &b->member, &a, &b->arena));
}

static struct bench *bench_open(enum codec_kind codec)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    snprintf(b->root, sizeof b->root, "%s/test_eager.XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    assert_non_null(mkdtemp(b->root));
    b->arena = arena_make(0);
    b->table = toy_table(b->tensors, 2);
    assert_true(b->table.elements <= ELEMENTS_MAX);
    must(cpu_only(&b->cpu));
    must(fragment_make(&b->fragments, &b->table, &(struct fragment_plan){.count = 1}, &b->arena));
    b->n = b->fragments.f[0].elements;
    b->options = (struct member_options){.fragments = &b->fragments, .keep = 3};
    b->options.schedule = schedule_streaming(STEPS, EVERY, 1, 1, codec);
    b->options.schedule.overlap = EVERY;
    b->options.schedule.eager = true;
    must(nesterov_make(&b->options.outer, "nesterov", 0.7f, 0.9f));
    for (size_t i = 0; i < b->table.elements; i++)
        b->initial[i] = toy_used(&b->table, i) ? (float)(i % 64) / 64 : 0;
    pthread_mutex_init(&b->calls, NULL);
    aggregator_begin(b);
    for (unsigned i = 0; i < SITES; i++) {
        b->node[i].link = (struct slow){.link = {&slow_ops},
                                        .peer = peers[i],
                                        .mutex = &b->calls,
                                        .seed = i,
                                        .service = aggregator_service(b->aggregator)};
        must(i == 0 ? site_device_open(&b->node[i].dev) : cpu_only(&b->node[i].dev));
        site_begin(b, i);
        fragment_gather(b->cpu, b->node[i].slab, b->initial, &b->fragments.f[0]);
        for (size_t k = 0; k < b->n; k++)
            b->node[i].began[k] = b->theta[k] = (double)b->node[i].slab[k];
    }
    return b;
}

static void bench_close(struct bench *b)
{
    for (unsigned i = 0; i < SITES; i++) {
        site_end(&b->node[i]);
        dev_close(b->node[i].dev);
    }
    aggregator_close(b->aggregator);
    member_close(&b->member);
    world_close_real(b->world);
    dev_close(b->cpu);
    pthread_mutex_destroy(&b->calls);
    arena_free(&b->arena);
    assert_int_equal(file_remove_tree(b->root), ERR_OK);
    free(b);
}

/* ---- the sites ---- */

/* Towards a point of the site's own. */
static void train(struct bench *b, unsigned i, int64_t step)
{
    float *x = b->node[i].slab;
    for (size_t k = 0; k < b->n; k++)
        x[k] -=
            0.1f * (x[k] - (float)((k + i * 5) % 9) / 8) + (float)((int64_t)k % 7 - step % 5) / 512;
}

static void send(struct bench *b, unsigned i, uint64_t round, const float *trained, bool ahead)
{
    struct node *n = &b->node[i];
    float *local;
    must(site_lend(n->site, 0, &local));
    memcpy(local, trained, b->n * sizeof *local);
    site_send(n->site, &(struct site_sending){.round = round,
                                              .base = schedule_base(&b->options.schedule, 0, round),
                                              .weight = weights[i],
                                              .ahead = ahead});
}

static void collect(struct bench *b, unsigned i, float *theta)
{
    const float *from;
    struct site_landed landed;
    must(site_collect(b->node[i].site, 0, &from, &landed));
    memcpy(theta, from, b->n * sizeof *theta);
}

/* Round `round` leaves after the round before has landed; the site goes on from its start. */
static void leave(struct bench *b, unsigned i, uint64_t round)
{
    struct node *n = &b->node[i];
    const float *start;
    bool ahead = n->flies;
    memcpy(n->sent, n->slab, sizeof n->sent);
    if (ahead)
        collect(b, i, n->slab);
    send(b, i, round, n->sent, ahead);
    n->flies = true;
    if (!schedule_eager(&b->options.schedule, 0, round))
        return;
    must(site_eager(n->site, 0, &start));
    memcpy(n->start, start, b->n * sizeof *start);
    memcpy(n->slab, start, b->n * sizeof *start);
}

/* ---- the equations ---- */

static double step_of(double theta, double *momentum, double mean)
{
    *momentum = 0.9 * *momentum + mean;
    return theta - 0.7 * (mean + 0.9 * *momentum);
}

static double weight_all(void)
{
    double all = 0;
    for (unsigned i = 0; i < SITES; i++)
        all += (double)weights[i];
    return all;
}

/* Round t: the mean of t-1 has been applied to theta; D~ = mean(t-1) + w/W (delta(t) - delta(t-1)).
 * In round 0 nothing is known of the others, not their weights either: D~ = delta/M. */
static void starts_by_hand(struct bench *b, uint64_t round)
{
    for (unsigned i = 0; i < SITES; i++) {
        struct node *n = &b->node[i];
        for (size_t k = 0; k < b->n; k++) {
            double share = round ? (double)weights[i] / weight_all() : 1.0 / SITES;
            double momentum = b->momentum[k];
            n->before[k] = n->delta[k];
            n->delta[k] = n->began[k] - (double)n->sent[k];
            double mixed = b->mean[k] + share * (n->delta[k] - n->before[k]);
            n->began[k] = step_of(b->theta[k], &momentum, mixed);
        }
    }
}

static void commit_by_hand(struct bench *b)
{
    for (size_t k = 0; k < b->n; k++) {
        b->mean[k] = 0;
        for (unsigned i = 0; i < SITES; i++)
            b->mean[k] += (double)weights[i] * b->node[i].delta[k] / weight_all();
        b->theta[k] = step_of(b->theta[k], &b->momentum[k], b->mean[k]);
    }
}

static double furthest(const float *got, const double *want, size_t n)
{
    double most = 0;
    for (size_t k = 0; k < n; k++)
        most = fmax(most, fabs((double)got[k] - want[k]));
    return most;
}

/* ---- tests ---- */

/* One site weighs half; what each weighs stays the same from round to round. */
static void test_equations(void **state)
{
    (void)state;
    struct bench *b = bench_open(CODEC_F32);
    const struct schedule *s = &b->options.schedule;
    double apart = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        uint64_t round;
        for (unsigned i = 0; i < SITES; i++)
            train(b, i, step);
        if (!schedule_due(s, step, 0, &round))
            continue;
        for (unsigned i = 0; i < SITES; i++)
            leave(b, i, round);
        starts_by_hand(b, round);
        for (unsigned i = 0; i < SITES && schedule_eager(s, 0, round); i++)
            assert_true(furthest(b->node[i].start, b->node[i].began, b->n) < 2e-6);
        apart = fmax(apart, furthest(b->node[0].start, b->node[1].began, b->n));
        commit_by_hand(b);
    }
    for (unsigned i = 0; i < SITES; i++) {
        collect(b, i, b->node[i].slab);
        assert_true(furthest(b->node[i].slab, b->theta, b->n) < 2e-6);
        assert_memory_equal(b->node[i].slab, b->node[0].slab, b->n * sizeof(float));
        must(site_leave(b->node[i].site, "done"));
    }
    assert_true(apart > 1e-3); /* the starts are the sites' own */
    bench_close(b);
}

/* Of a delta of zero nothing is sent and nothing is left. */
static void nothing_left(const struct bench *b, const struct node *n, unsigned round)
{
    char path[64];
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t size;
    snprintf(path, sizeof path, "outbox/0/%u", round);
    must(n->world->ops->read(n->world, path, 1 << 20, &scratch, &data, &size));
    for (size_t k = 0; k < b->n; k++) {
        float left; /* the file's values need not be aligned */
        memcpy(&left, data + size - (b->n - k) * sizeof left, sizeof left);
        assert_true(left == 0);
    }
    arena_free(&scratch);
}

/* A site that comes back makes round 2's start and contribution no second time, whatever it has
 * trained meanwhile, before and after the round is committed; its next delta is against that start.
 */
static void test_restart(void **state)
{
    (void)state;
    struct bench *b = bench_open(CODEC_INT4);
    struct node *n = &b->node[1];
    static float first[ELEMENTS_MAX], other[ELEMENTS_MAX];
    const float *start;
    for (uint64_t round = 0; round < 3; round++)
        for (unsigned i = 0; i < SITES; i++) {
            for (int64_t step = 0; step < EVERY; step++)
                train(b, i, step);
            leave(b, i, round);
        }
    memcpy(first, n->start, sizeof first);
    for (size_t k = 0; k < b->n; k++)
        other[k] = n->sent[k] + 0.01f;
    for (int again = 0; again < 2; again++) {
        site_end(n);
        site_begin(b, 1);
        send(b, 1, 2, other, true);
        must(site_eager(n->site, 0, &start));
        assert_memory_equal(start, first, b->n * sizeof *start);
        collect(b, 1, n->slab); /* the second time it is on record */
    }
    memset(n->member.state[0].residual, 0, b->n * sizeof(float));
    send(b, 1, 3, first, true); /* nothing was trained: against another base that were a delta */
    must(site_stored(n->site));
    nothing_left(b, n, 3);
    for (unsigned i = 0; i < SITES; i++) {
        if (i != 1) {
            collect(b, i, b->node[i].slab);
            send(b, i, 3, b->node[i].slab, true);
        }
    }
    for (unsigned i = 0; i < SITES; i++)
        collect(b, i, b->node[i].slab);
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_restart),
    };
    log_min(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
