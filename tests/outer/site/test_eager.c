/* SPDX-License-Identifier: Apache-2.0 */
/* Eager updates (2502.12996) with three sites: where each continues from is what the paper's
 * equations say, in f64, while the committed state is the one-round delay's; and it is the same
 * after a restart. What breaks here: a start from the wrong state, own and others' deltas mixed up,
 * a delta against something else than the start, a start made twice.
 */
#include <math.h>
#include "tests/cuda/cuda_test.h"
#include "tests/outer/site/slow_run.h"

enum { SITES = 3, EVERY = 3, STEPS = 20 };
static const float weights[SITES] = {1, 1, 0.5f};

struct node {
    struct slow_site at;
    /* The equations, in f64: where the site's steps began, its last delta. */
    double began[SLOW_ELEMENTS_MAX], delta[SLOW_ELEMENTS_MAX], before[SLOW_ELEMENTS_MAX];
};
struct bench {
    struct slow_run run;
    size_t n; /* elements of the one fragment */
    struct node node[SITES];
    double theta[SLOW_ELEMENTS_MAX], momentum[SLOW_ELEMENTS_MAX],
        mean[SLOW_ELEMENTS_MAX]; /* committed, in f64 */
};

static struct bench *bench_open(enum codec_kind codec)
{
    struct bench *b = calloc(1, sizeof *b);
    struct schedule s = schedule_streaming(STEPS, EVERY, 1, 1, codec);
    assert_non_null(b);
    s.overlap = EVERY;
    s.eager = true;
    slow_run_open(&b->run, SITES, 2, &s);
    b->n = b->run.fragments.f[0].elements;
    for (unsigned i = 0; i < SITES; i++) {
        struct dev *d, *front; /* the site's own, and the trainer's next to it */
        must(i == 0 ? cuda_test_open(&d, "f32") : slow_device(&d)); /* the first: under test */
        must(i == 0 ? cuda_test_open(&front, "f32") : slow_device(&front));
        slow_site_open(&b->run, &b->node[i].at, i, i, d, 0);
        b->node[i].at.front = front;
        b->node[i].at.weight = weights[i];
        fragment_gather(b->run.cpu, b->node[i].at.sent, b->run.initial, &b->run.fragments.f[0]);
        for (size_t k = 0; k < b->n; k++)
            b->node[i].began[k] = b->theta[k] = (double)b->node[i].at.sent[k];
    }
    return b;
}

static void bench_close(struct bench *b)
{
    for (unsigned i = 0; i < SITES; i++) {
        slow_site_close(&b->node[i].at);
        dev_close(b->node[i].at.front);
    }
    slow_run_close(&b->run);
    free(b);
}

/* ---- the sites ---- */

/* Towards a point of the site's own. */
static void train(struct bench *b, unsigned i, int64_t step)
{
    struct slow_site *s = &b->node[i].at;
    static float x[SLOW_ELEMENTS_MAX];
    fragment_gather(b->run.cpu, x, s->slab, &b->run.fragments.f[0]);
    for (size_t k = 0; k < b->n; k++)
        x[k] -=
            0.1f * (x[k] - (float)((k + i * 5) % 9) / 8) + (float)((int64_t)k % 7 - step % 5) / 512;
    fragment_scatter(b->run.cpu, s->slab, x, &b->run.fragments.f[0]);
}

static void submit(struct bench *b, unsigned i, uint64_t round, const float *trained)
{
    struct slow_site *s = &b->node[i].at;
    memcpy(s->sent, trained, b->n * sizeof *trained);
    slow_submit(s,
                &(struct stepper_action){.round = round,
                                         .base = schedule_base(&b->run.options.schedule, 0, round),
                                         .copied = true,
                                         .from_start = true});
}

static void reap(struct bench *b, unsigned i)
{
    const float *theta;
    struct site_completion done;
    must(site_reap(b->node[i].at.site, 0, &theta, &done));
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
            n->delta[k] = n->began[k] - (double)n->at.sent[k];
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
    const struct schedule *s = &b->run.options.schedule;
    double apart = 0;
    for (int64_t step = 1; step <= STEPS; step++) {
        uint64_t round;
        for (unsigned i = 0; i < SITES; i++)
            train(b, i, step);
        if (!schedule_due(s, step, 0, &round))
            continue;
        for (unsigned i = 0; i < SITES; i++) /* the last round needs all: it is waited for later */
            slow_after_step(&b->node[i].at, step, step == STEPS ? 2 : 0);
        starts_by_hand(b, round);
        for (unsigned i = 0; i < SITES && schedule_eager(s, 0, round); i++)
            assert_true(furthest(b->node[i].at.start, b->node[i].began, b->n) < 2e-6);
        apart = fmax(apart, furthest(b->node[0].at.start, b->node[1].began, b->n));
        commit_by_hand(b);
    }
    for (unsigned i = 0; i < SITES; i++) {
        static float local[SITES][SLOW_ELEMENTS_MAX];
        slow_actions(&b->node[i].at, 0);
        fragment_gather(b->run.cpu, local[i], b->node[i].at.slab, &b->run.fragments.f[0]);
        assert_true(furthest(local[i], b->theta, b->n) < 2e-6);
        assert_memory_equal(local[i], local[0], b->n * sizeof(float));
        must(site_leave(b->node[i].at.site, "done"));
    }
    assert_true(apart > 1e-3); /* the starts are the sites' own */
    bench_close(b);
}

/* Of a delta of zero nothing is sent and nothing is left. */
static void nothing_left(const struct bench *b, const struct slow_site *s, unsigned round)
{
    char path[64];
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t size;
    snprintf(path, sizeof path, "outbox/0/%u", round);
    must(s->env->ops->read(s->env, path, 1 << 20, &scratch, &data, &size));
    for (size_t k = 0; k < b->n; k++) {
        float left; /* the file's values need not be aligned */
        memcpy(&left, data + size - (b->n - k) * sizeof left, sizeof left);
        assert_true(left == 0);
    }
    arena_free(&scratch);
}

/* A site that comes back makes round 2's start and contribution no second time, with any steps
 * trained meanwhile, before and after the round is committed; its next delta is against that start.
 */
static void test_restart(void **state)
{
    (void)state;
    struct bench *b = bench_open(CODEC_INT4);
    struct slow_site *s = &b->node[1].at;
    static float first[SLOW_ELEMENTS_MAX], other[SLOW_ELEMENTS_MAX];
    const float *start;
    for (uint64_t round = 0; round < 3; round++)
        for (unsigned i = 0; i < SITES; i++) {
            for (int64_t step = 0; step < EVERY; step++)
                train(b, i, step);
            slow_after_step(&b->node[i].at, (int64_t)(round + 1) * EVERY, 0);
        }
    memcpy(first, s->start, sizeof first);
    for (size_t k = 0; k < b->n; k++)
        other[k] = s->sent[k] + 0.01f;
    for (int again = 0; again < 2; again++) {
        slow_site_end(s);
        slow_site_begin(&b->run, s);
        submit(b, 1, 2, other);
        must(site_eager(s->site, 0, &start));
        assert_memory_equal(start, first, b->n * sizeof *start);
        reap(b, 1); /* the second time it is on record */
    }
    memset(s->replica.state[0].residual, 0, b->n * sizeof(float));
    submit(b, 1, 3, first); /* nothing was trained: against another base that were a delta */
    must(site_wait_stored(s->site));
    nothing_left(b, s, 3);
    for (unsigned i = 0; i < SITES; i++) {
        if (i != 1) {
            reap(b, i);
            submit(b, i, 3, b->node[i].at.start);
        }
    }
    for (unsigned i = 0; i < SITES; i++)
        reap(b, i);
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
