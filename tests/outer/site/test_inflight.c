/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds during training, with real threads: four fragments, several in flight over a link that
 * takes its time. What breaks here: bits that depend on who was faster, a scratch that two slots
 * use at once, an error or a stop request that is not heard, a contribution made twice. Run it
 * under ThreadSanitizer too.
 */
#include <math.h>
#include "tests/outer/site/slow_run.h"

enum { PARTS = SLOW_PARTS, EVERY = 4, STEPS = 14 };

struct bench {
    struct slow_run run;
    struct slow_site at; /* the only one */
    int64_t step;
};

static struct bench *bench_open(int64_t tau, enum codec_kind codec, uint64_t seed)
{
    struct bench *b = calloc(1, sizeof *b);
    struct schedule s = schedule_streaming(STEPS, EVERY, PARTS, 1, codec);
    assert_non_null(b);
    s.overlap = tau;
    slow_run_open(&b->run, 1, PARTS, &s);
    struct dev *d;
    must(slow_device(&d));
    slow_site_open(&b->run, &b->at, 0, seed, d, tau == EVERY ? 0 : 0.5f);
    return b;
}

static void bench_close(struct bench *b)
{
    slow_site_close(&b->at);
    slow_run_close(&b->run);
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

static void one_step(struct bench *b)
{
    train(&b->run.table, b->at.slab, b->step++);
    slow_after_step(&b->at, b->step, 0);
    must(site_wait_stored(b->at.site));
}

static void submit(struct bench *b, unsigned f, bool resend)
{
    slow_submit(&b->at,
                &(struct stepper_action){.verb = STEPPER_SUBMIT, .fragment = f, .resend = resend});
}

static struct digest run(int64_t tau, enum codec_kind codec, uint64_t seed, unsigned spoil)
{
    struct bench *b = bench_open(tau, codec, seed);
    b->at.link.spoil = spoil;
    while (b->step < STEPS)
        one_step(b);
    must(site_leave(b->at.site, "done"));
    assert_int_equal(b->at.link.spoil, 0);
    struct digest shared = outer_state_digest(&b->at.replica, false),
                  there = outer_state_digest(&b->run.replica, false);
    assert_true(digest_equal(&shared, &there));
    struct digest all = outer_state_digest(&b->at.replica, true);
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

/* A resync needs the site's residual after calls in which other slots used the replica's spare. */
static void test_slots_that_resync_keep_their_residual(void **state)
{
    (void)state;
    struct digest calm = run(3, CODEC_INT4, 3, 0), resynced = run(3, CODEC_INT4, 4, 4);
    assert_true(digest_equal(&calm, &resynced));
}

/* Streaming DiLoCo's Algorithm 2 for one site, written down once more, without slots, link, codec.
 */
static void test_algorithm_by_hand(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_F32, 5);
    const struct schedule *s = &b->run.options.schedule;
    static float slab[SLOW_ELEMENTS_MAX], delta[PARTS][SLOW_ELEMENTS_MAX],
        theta[PARTS][SLOW_ELEMENTS_MAX], momentum[PARTS][SLOW_ELEMENTS_MAX],
        local[SLOW_ELEMENTS_MAX];
    memcpy(slab, b->run.initial, sizeof slab);
    for (unsigned f = 0; f < PARTS; f++)
        fragment_gather(b->at.dev, theta[f], slab, &b->run.fragments.f[f]);
    for (int64_t step = 1; step <= STEPS; step++) {
        train(&b->run.table, slab, step - 1);
        for (unsigned f = 0; f < PARTS; f++) {
            size_t n = b->run.fragments.f[f].elements;
            for (uint64_t r = 0; r < schedule_rounds(s, f); r++) {
                bool last = r + 1 == schedule_rounds(s, f);
                if (step == schedule_step(s, f, r)) {
                    fragment_gather(b->at.dev, local, slab, &b->run.fragments.f[f]);
                    for (size_t i = 0; i < n; i++)
                        delta[f][i] = theta[f][i] - local[i];
                }
                if (step != schedule_apply(s, f, r))
                    continue;
                struct outer_opt_state outer = {theta[f], {momentum[f]}};
                outer_opt_step(b->at.dev, &b->run.options.outer, &outer, delta[f], r, n);
                fragment_gather(b->at.dev, local, slab, &b->run.fragments.f[f]);
                mix(local, theta[f], last ? 0 : 0.5f, n);
                fragment_scatter(b->at.dev, slab, local, &b->run.fragments.f[f]);
            }
        }
    }
    while (b->step < STEPS)
        one_step(b);
    for (unsigned f = 0; f < PARTS; f++)
        assert_memory_equal(theta[f], b->at.replica.state[f].theta,
                            b->run.fragments.f[f].elements * sizeof(float));
    assert_memory_equal(slab, b->at.slab, b->run.table.elements * sizeof *slab);
    bench_close(b);
}

/* A slot's error is heard at the next step, long before the apply; the process still ends well. */
static void test_an_error_is_heard_at_once(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_INT8, 6);
    enum err e = ERR_OK;
    b->at.link.refuse = ERR_DENIED;
    for (unsigned f = 0; f < 2; f++)
        submit(b, f, false);
    for (int i = 0; e == ERR_OK && i < 120000; i++) {
        usleep(1000);
        e = site_failed(b->at.site);
    }
    assert_int_equal(e, ERR_DENIED);
    assert_non_null(strstr(err_message(), "refused on purpose"));
    assert_int_equal(site_complete(b->at.site, 1), ERR_DENIED);
    bench_close(b);
}

/* The round that is waited for cannot end: the other sites wait for the one that has failed. */
static void test_an_error_ends_the_wait_for_another_round(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_INT8, 8);
    const struct fragment *part = &b->run.fragments.f[1];
    struct site_completion done;
    const float *theta;
    static float damaged[SLOW_ELEMENTS_MAX];
    b->at.link.down = true;
    submit(b, 0, false);
    must(site_wait_stored(b->at.site));
    damaged[0] = NAN;
    fragment_scatter(b->at.dev, b->at.slab, damaged, part);
    submit(b, 1, false);
    assert_int_equal(site_complete(b->at.site, 0), ERR_DIVERGED);
    assert_non_null(strstr(err_message(), "not finite"));
    assert_int_equal(site_reap(b->at.site, 0, &theta, &done), ERR_DIVERGED);
    assert_int_equal(site_wait_stored(b->at.site), ERR_DIVERGED);
    bench_close(b);
}

/* Asked to stop in flight: the contribution is stored, the wait ends, and after a restart the same
 * bytes go, not those that the trainer would make now. */
static void test_stopped_in_flight(void **state)
{
    (void)state;
    struct bench *b = bench_open(2, CODEC_INT8, 7);
    struct site_completion done;
    const float *theta;
    bool unreachable = false;
    b->at.link.down = true;
    submit(b, 0, false);
    must(site_wait_stored(b->at.site));
    while (!unreachable) {
        usleep(1000);
        must(site_unreachable(b->at.site, 0, &unreachable));
    }
    atomic_store(&b->at.stop, 1);
    assert_int_equal(site_complete(b->at.site, 0), ERR_STOPPED);
    must(site_failed(b->at.site)); /* no error: it was asked for */
    struct digest sent = b->at.link.sent[0];
    slow_site_end(&b->at);
    b->at.stop = 0;
    b->at.link.down = false;
    slow_site_begin(&b->run, &b->at); /* sends it: the others wait */
    assert_true(digest_equal(&sent, &b->at.link.sent[0]));
    submit(b, 0, true);
    must(site_reap(b->at.site, 0, &theta, &done));
    assert_memory_equal(theta, b->at.replica.state[0].theta,
                        b->run.fragments.f[0].elements * sizeof *theta);
    submit(b, 1, true); /* never sent, and never will be */
    assert_int_equal(site_complete(b->at.site, 1), ERR_CORRUPT);
    assert_non_null(strstr(err_message(), "outbox/1/0"));
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_do_not_depend_on_time),
        cmocka_unit_test(test_slots_that_resync_keep_their_residual),
        cmocka_unit_test(test_algorithm_by_hand),
        cmocka_unit_test(test_an_error_is_heard_at_once),
        cmocka_unit_test(test_an_error_ends_the_wait_for_another_round),
        cmocka_unit_test(test_stopped_in_flight),
    };
    log_min(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
