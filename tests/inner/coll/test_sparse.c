/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: gradients are lost between what is sent and what is kept, ranks
 * choose other chunks and wait for ever, a share of 1 is not the full sum, more bytes are sent than
 * the share. */
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/optim/compress.h"
#include "inner/optim/optim.h"
#include "tests/inner/coll/threads.h"

enum { ELEMENTS_MAX = 1 << 17, ROUNDS = 4 };
struct plan { /* one rank's part of a test */
    const struct settings *s;
    size_t elements;
    float in[ROUNDS][ELEMENTS_MAX], out[ROUNDS][ELEMENTS_MAX], residual[ROUNDS][ELEMENTS_MAX];
    double up;
};
static struct plan plans[3];
static struct arena arena;

static struct settings *settings_of(const char *share, const char *momentum)
{
    return setup_settings(
        &arena, (const char *[]){"--train.compress", "sparse", "--train.compress_start", "0",
                                 "--train.sparse_share", share, "--train.sparse_momentum", momentum,
                                 "--model.d_model", "32", "--model.layers", "2", NULL});
}

static enum err rounds(struct coll *c, void *self)
{
    struct plan *p = self;
    struct arena a = arena_make(0);
    struct table t;
    struct optim o;
    struct dev *d;
    float *grads;
    TRY(dev_open(&d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1}));
    TRY(table_make(&t, p->s, &a));
    TRY(optim_open(&o, d, c, p->s, &t, &a));
    TRY(dev_alloc(d, (void **)&grads, t.elements * sizeof *grads));
    p->elements = t.elements;
    if (t.elements > ELEMENTS_MAX)
        return err_set(ERR_INTERNAL, "%zu elements", t.elements);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < t.elements; i++)
            grads[i] = p->in[round][i] =
                rng_normal((uint64_t)c->rank + 1, (uint64_t)round, i) * (float)(1 + i / 5000 % 7);
        c->up = 0;
        TRY(compress_reduce(&o, grads, round));
        p->up = c->up;
        memcpy(p->out[round], grads, t.elements * sizeof *grads);
        memcpy(p->residual[round], o.kept->own[0], t.elements * sizeof *grads);
    }
    optim_close(&o);
    dev_free(d, grads);
    dev_close(d);
    arena_free(&a);
    return ERR_OK;
}

static void run_ranks(const char *share, const char *momentum)
{
    for (int r = 0; r < 3; r++)
        plans[r].s = settings_of(share, momentum);
    if (threads_run(3, rounds, plans, sizeof *plans))
        fail_msg("%s", err_message());
    for (int r = 1; r < 3; r++)
        assert_memory_equal(plans[r].out, plans[0].out, sizeof plans[0].out);
}

static double norm_of(int round, size_t chunk)
{
    double norm = 0;
    for (int r = 0; r < 3; r++)
        for (size_t i = chunk * DEV_CHUNK; i < plans[0].elements && i < (chunk + 1) * DEV_CHUNK;
             i++) {
            float before = round ? plans[r].residual[round - 1][i] : 0;
            norm += fabs((double)(plans[r].in[round][i] + before));
        }
    return norm;
}

/* Of each chunk either the sum is in the gradient and no residual is left, or the input is the
 * residual and the gradient is 0; and no chunk that stays is larger than one that is sent. */
static size_t check_round(int round)
{
    size_t sent = 0;
    double least = INFINITY, most = 0;
    for (size_t c = 0; c * DEV_CHUNK < plans[0].elements; c++) {
        bool is_sent = plans[0].residual[round][c * DEV_CHUNK] == 0;
        double norm = norm_of(round, c);
        sent += is_sent;
        least = is_sent && norm < least ? norm : least;
        most = !is_sent && norm > most ? norm : most;
        for (size_t i = c * DEV_CHUNK; i < plans[0].elements && i < (c + 1) * DEV_CHUNK; i++) {
            float sum = 0;
            for (int r = 0; r < 3; r++) {
                float before = round ? plans[r].residual[round - 1][i] : 0,
                      in = plans[r].in[round][i] + before;
                sum += in;
                assert_true(plans[r].residual[round][i] == (is_sent ? 0 : in));
            }
            assert_true(plans[0].out[round][i] == (is_sent ? sum : 0));
        }
    }
    assert_true(least >= most);
    return sent;
}

static void sent_and_kept_are_the_input(void **state)
{
    (void)state;
    run_ranks("0.3", "0");
    size_t chunks = (plans[0].elements + DEV_CHUNK - 1) / DEV_CHUNK,
           k = (size_t)llround(0.3 * (double)chunks);
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(check_round(round), k);
    /* All-reduce of the norms and of the chunks, one of which may be the short last one. */
    double most = 4.0 / 3 * (8 * (double)chunks + 4 * (double)k * DEV_CHUNK);
    assert_true(plans[0].up <= most && plans[0].up > most - 4.0 / 3 * 4 * DEV_CHUNK);
}

static void a_share_of_1_is_the_full_sum(void **state)
{
    (void)state;
    run_ranks("1", "0");
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < plans[0].elements; i++)
            assert_true(plans[0].out[round][i] ==
                        (0 + plans[0].in[round][i] + plans[1].in[round][i]) +
                            plans[2].in[round][i]);
}

/* u = mu u + g, added to what waits; both are 0 where a chunk was sent. */
static void momentum_is_corrected(void **state)
{
    (void)state;
    static float u[ELEMENTS_MAX], waits[ELEMENTS_MAX];
    memset(u, 0, sizeof u);
    memset(waits, 0, sizeof waits);
    run_ranks("0.3", "0.5");
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < plans[1].elements; i++) {
            bool is_sent = plans[1].residual[round][i / DEV_CHUNK * DEV_CHUNK] == 0;
            u[i] = 0.5f * u[i] + plans[1].in[round][i];
            waits[i] += u[i];
            if (is_sent)
                u[i] = waits[i] = 0;
            assert_true(fabs((double)(plans[1].residual[round][i] - waits[i])) < 1e-5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sent_and_kept_are_the_input),
        cmocka_unit_test(a_share_of_1_is_the_full_sum),
        cmocka_unit_test(momentum_is_corrected),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
