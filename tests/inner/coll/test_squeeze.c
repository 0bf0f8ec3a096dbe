/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: ranks decode other means, what the signs lose is never made up for,
 * a masked value gets an error, more bytes cross the network than the page says. The reference is
 * written from the paper (Tang et al. 2021, 2102.02888) in double. */
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/coll/squeeze.h"
#include "tests/inner/coll/threads.h"

enum { ELEMENTS = 20 * DEV_BLOCK + 2 * DEV_RUN, RANGES = 5, ROUNDS = 12 };
static const struct dev_range ranges[RANGES] = {{0, 1000},
                                                {1024, 3},
                                                {1280, 2 * DEV_RUN + 77},
                                                {1792 + 2 * DEV_RUN, 2048},
                                                {3840 + 2 * DEV_RUN, 1}};

struct plan { /* one rank's part of a test */
    bool feedback;
    const float *mask;
    float x[ELEMENTS];      /* of the last round */
    double total[ELEMENTS]; /* of the means of all rounds */
    float worker[ELEMENTS], server[ELEMENTS];
    size_t share, up_said, servers;
    double up;
};
static struct plan plans[THREADS_MAX];
static float mask[ELEMENTS];

static bool in_a_range(size_t i)
{
    bool in = false;
    for (int k = 0; k < RANGES; k++)
        in |= ranges[k].offset <= i && i < ranges[k].offset + ranges[k].count;
    return in;
}

static float input(int rank, int round, size_t i)
{
    return !in_a_range(i) ? 0 : (float)rng_normal((uint64_t)rank + 1, (uint64_t)round, i);
}

static enum err rounds(struct coll *c, void *self)
{
    struct plan *p = self;
    struct squeeze q;
    struct arena a = arena_make(0);
    struct dev *d;
    float *x, *stop, *masked = NULL;
    TRY(dev_open(&d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(dev_alloc(d, (void **)&x, ELEMENTS * sizeof *x));
    TRY(dev_alloc(d, (void **)&stop, sizeof *stop));
    if (p->mask)
        TRY(dev_alloc(d, (void **)&masked, ELEMENTS * sizeof *masked));
    if (p->mask)
        memcpy(masked, p->mask, ELEMENTS * sizeof *masked);
    TRY(squeeze_open(&q,
                     &(struct squeeze_options){.dev = d,
                                               .coll = c,
                                               .ranges = ranges,
                                               .count = RANGES,
                                               .elements = ELEMENTS,
                                               .feedback = p->feedback},
                     &a));
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            x[i] = input(c->rank, round, i);
        *stop = 1;
        c->up = 0;
        TRY(squeeze_mean(&q, &(struct squeeze_args){x, masked, stop}));
        p->up = c->up;
        for (size_t i = 0; i < ELEMENTS; i++)
            p->total[i] += (double)x[i];
    }
    memcpy(p->x, x, sizeof p->x);
    p->share = q.shares[c->rank];
    p->servers = q.shares[c->rank + 1] - q.shares[c->rank];
    p->up_said = squeeze_up(&q);
    if (p->feedback) {
        memcpy(p->worker, q.worker, sizeof p->worker);
        memcpy(p->server, q.server, p->servers * sizeof *q.server);
    }
    *stop = NAN;
    TRY(squeeze_mean(&q, &(struct squeeze_args){x, masked, stop}));
    if (memcmp(p->x, x, sizeof p->x) ||
        (p->feedback && memcmp(p->worker, q.worker, sizeof p->worker)))
        return err_set(ERR_DISAGREE, "a stopped mean changed something");
    squeeze_close(&q);
    dev_free(d, x);
    dev_free(d, stop);
    dev_free(d, masked);
    dev_close(d);
    arena_free(&a);
    return ERR_OK;
}

static void run_ranks(int ranks, bool feedback, const float *masked)
{
    memset(plans, 0, sizeof plans);
    for (int r = 0; r < ranks; r++) {
        plans[r].feedback = feedback;
        plans[r].mask = masked;
    }
    if (threads_run(ranks, rounds, plans, sizeof *plans))
        fail_msg("%s", err_message());
    for (int r = 1; r < ranks; r++)
        assert_memory_equal(plans[r].x, plans[0].x, sizeof plans[0].x);
    for (int r = 0; r < ranks; r++)
        assert_true(plans[r].up == (double)plans[r].up_said);
}

/* ---- the reference ---- */
static double worker[THREADS_MAX][ELEMENTS], server[ELEMENTS], want[ELEMENTS];

static bool in_use(const float *masked, size_t i)
{
    return !masked || masked[i] != 0;
}

/* z becomes its signs times its root mean square; the rest goes to `error`. */
static void encode(double *z, double *error, const float *masked, size_t from, size_t to)
{
    double squares = 0, count = 0;
    for (size_t i = from; i < to; i++)
        if (in_use(masked, i)) {
            squares += z[i] * z[i];
            count++;
        }
    double scale = count > 0 ? (double)(float)sqrt(squares / count) : 0;
    for (size_t i = from; i < to; i++) {
        double sent = z[i] >= 0 ? scale : -scale;
        error[i] = in_use(masked, i) ? z[i] - sent : 0;
        z[i] = in_use(masked, i) ? sent : 0;
    }
}

static void reference(int ranks, const float *masked)
{
    static double z[ELEMENTS], mean[ELEMENTS];
    memset(worker, 0, sizeof worker);
    memset(server, 0, sizeof server);
    for (int round = 0; round < ROUNDS; round++) {
        memset(mean, 0, sizeof mean);
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < RANGES; k++) {
                size_t from = ranges[k].offset, to = from + ranges[k].count;
                for (size_t i = from; i < to; i++)
                    z[i] = (double)input(r, round, i) + worker[r][i];
                encode(z, worker[r], masked, from, to);
                for (size_t i = from; i < to; i++)
                    mean[i] += z[i] / ranks;
            }
        for (int r = 0; r < ranks; r++)
            for (int k = 0; k < RANGES; k++) {
                size_t from = ELEMENTS / DEV_BLOCK * (size_t)r / (size_t)ranks * DEV_BLOCK,
                       to = ELEMENTS / DEV_BLOCK * (size_t)(r + 1) / (size_t)ranks * DEV_BLOCK,
                       end = ranges[k].offset + ranges[k].count;
                from = from > ranges[k].offset ? from : ranges[k].offset;
                to = to < end ? to : end;
                for (size_t i = from; i < to; i++)
                    mean[i] += server[i];
                if (from < to)
                    encode(mean, server, masked, from, to);
            }
        memcpy(want, mean, sizeof want);
    }
}

static void check_against_reference(int ranks, const float *masked)
{
    reference(ranks, masked);
    for (int k = 0; k < RANGES; k++)
        for (size_t i = ranges[k].offset; i < ranges[k].offset + ranges[k].count; i++) {
            if (fabs((double)plans[0].x[i] - want[i]) > 1e-5)
                fail_msg("%d ranks, element %zu: %g, not %g", ranks, i, (double)plans[0].x[i],
                         want[i]);
            for (int r = 0; r < ranks; r++)
                assert_true(fabs((double)plans[r].worker[i] - worker[r][i]) < 2e-5);
        }
}

static void means_are_those_of_the_paper(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        run_ranks(ranks, true, NULL);
        check_against_reference(ranks, NULL);
    }
}

/* A row that never has a gradient stays 0, and does not count in the root mean square. */
static void masked_values_are_left_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTS; i++)
        mask[i] = i % 3 == 0 || (i >= 1280 && i < 2000) ? 0 : 1;
    run_ranks(3, true, mask);
    check_against_reference(3, mask);
    for (size_t i = 0; i < ELEMENTS; i++)
        assert_true(mask[i] != 0 || (plans[1].worker[i] == 0 && plans[0].x[i] == 0));
}

/* What was decoded and what the errors hold is what went in. */
static double lost(int ranks)
{
    double most = 0;
    for (int k = 0; k < RANGES; k++)
        for (size_t i = ranges[k].offset; i < ranges[k].offset + ranges[k].count; i++) {
            double in = 0, held = 0;
            for (int r = 0; r < ranks; r++) {
                for (int round = 0; round < ROUNDS; round++)
                    in += (double)input(r, round, i) / ranks;
                held += (double)plans[r].worker[i] / ranks;
                if (i >= plans[r].share && i < plans[r].share + plans[r].servers)
                    held += (double)plans[r].server[i - plans[r].share];
            }
            most = fmax(most, fabs(in - held - plans[0].total[i]));
        }
    return most;
}

static void errors_hold_what_signs_lose(void **state)
{
    (void)state;
    run_ranks(4, true, NULL);
    assert_true(lost(4) < 1e-4);
    run_ranks(4, false, NULL);
    assert_true(lost(4) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_are_those_of_the_paper),
        cmocka_unit_test(masked_values_are_left_out),
        cmocka_unit_test(errors_hold_what_signs_lose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
