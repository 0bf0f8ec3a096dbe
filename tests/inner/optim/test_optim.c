/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: an optimizer is not the published one, a tensor of zeros or without
 * gradient becomes NaN, shards or a resumed run take other steps than the whole. Oracle:
 * tests/golden/optim (float64). `test_optim vectors CASE SEED` prints the parameters after ten
 * steps, for tests/reproduce/reference/optimizers.py. */
#include "tests/cuda/cuda_test.h"
#include "tests/inner/golden.h"
#include "tests/inner/setup.h"
#include <math.h>
#include "inner/optim/optim.h"
#include "kernels/base/rng.h"
#include "kernels/scalar/narrow.h"

enum { STEPS = 10, GOLDEN_SEED = 7 };

/* Rows and columns; columns 1: a vector. As in the reference. */
static const struct {
    const char *name;
    int64_t rows, columns;
    enum table_group group;
} shapes[] = {{"matrix", 24, 40, TABLE_HIDDEN}, {"vector", 40, 1, TABLE_VECTOR},
              {"rows", 6, 10, TABLE_MATRIX},    {"zero", 5, 8, TABLE_HIDDEN},
              {"one", 1, 1, TABLE_VECTOR},      {"still", 3, 4, TABLE_HIDDEN},
              {"wide", 2, 300, TABLE_MATRIX},   {"tall", 130, 3, TABLE_HIDDEN}};
enum { TENSORS = sizeof shapes / sizeof *shapes, WORDS_MAX = 14 };

#define PLAIN  "--train.bias_correction", "false"
#define HIDDEN "--train.trust_layers", "hidden", "--train.adamw_lr", "0.4"
static const struct optim_case {
    const char *name, *words[WORDS_MAX];
} cases[] = {
    {"adamw", {"--train.optimizer", "adamw"}},
    {"adamw_plain", {"--train.optimizer", "adamw", PLAIN, "--train.beta2", "0.99"}},
    {"lamb", {"--train.optimizer", "lamb"}},
    {"lamb_tensorflow", {PLAIN, "--train.trust_min", "0", "--train.trust_max", "0"}},
    {"lamb_apex", {"--train.trust_min", "0", "--train.trust_max", "0"}},
    {"lamb_nvlamb",
     {"--train.trust_min", "0", "--train.trust_max", "0", "--train.trust_all", "true"}},
    {"lamb_deepspeed", {PLAIN, "--train.trust_max", "0.3", "--train.trust_all", "true"}},
    {"lamb_hidden", {HIDDEN}},
    {"lamb_hidden_plain", {HIDDEN, PLAIN, "--train.trust_max", "0.3"}},
    {"qhadam",
     {"--train.optimizer", "qhadam", "--train.beta1", "0.999", "--train.beta2", "0.9999"}},
    {"qhadam_plain",
     {"--train.optimizer", "qhadam", PLAIN, "--train.beta1", "0.99", "--train.beta2", "0.99",
      "--train.qh_weight", "0.9"}},
    {"lans", {"--train.optimizer", "lans", "--train.max_grad_norm", "0"}},
    {"lans_all",
     {"--train.optimizer", "lans", "--train.max_grad_norm", "0", "--train.trust_all", "true"}},
    {"lans_clip", {"--train.optimizer", "lans", "--train.normalize", "false"}},
    {"lans_hidden", {"--train.optimizer", "lans", "--train.max_grad_norm", "0", HIDDEN}},
    {"lans_hidden_clip", {"--train.optimizer", "lans", "--train.normalize", "false", HIDDEN}},
    {"merit", {"--train.optimizer", "merit"}},
    {"merit_hidden", {"--train.optimizer", "merit", HIDDEN}},
    {"came", {"--train.optimizer", "came"}},
    {"came_published",
     {"--train.optimizer", "came", "--train.beta2", "0.999", "--train.beta3", "0.9999",
      "--train.update_clip", "0.5", "--train.max_grad_norm", "0"}},
};
enum { CASES = sizeof cases / sizeof *cases };
static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- parameters and gradients, by formula ---- */
/* A multiple of 1/1024 from -1 to 1. step -1: the parameters. */
static float drawn(uint32_t seed, int step, uint32_t tensor, uint32_t element)
{
    uint32_t h = element * 2654435761u + (uint32_t)(step + 2) * 40503u + tensor * 2246822519u +
                 seed * 3266489917u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return (float)((int)((h >> 16) % 2049) - 1024) / 1024;
}

static bool is_named(const struct tensor *x, const char *name)
{
    return !strcmp(x->name, name);
}

/* Parameters (step -1) or the gradients of a step in a whole slab, its gaps 0. */
static void fill(float *slab, const struct table *t, uint32_t seed, int step)
{
    memset(slab, 0, t->elements * sizeof *slab);
    for (uint32_t k = 0; k < t->count; k++) {
        const struct tensor *x = &t->tensors[k];
        for (uint32_t i = 0; i < x->count; i++) {
            int64_t row = (int64_t)i / x->shape[1];
            bool none = step < 0 ? is_named(x, "zero") || (is_named(x, "rows") && row == 3)
                                 : is_named(x, "still") || (is_named(x, "rows") && row == 2);
            slab[x->offset + i] = none ? 0.0f : drawn(seed, step, k, i);
        }
    }
}

static struct table make_table(void)
{
    struct table t = {.tensors = arena_array(&arena, TENSORS, sizeof *t.tensors), .count = TENSORS};
    for (size_t k = 0; k < TENSORS; k++) {
        struct tensor *x = &t.tensors[k];
        snprintf(x->name, sizeof x->name, "%s", shapes[k].name);
        x->shape[0] = shapes[k].rows;
        x->shape[1] = shapes[k].columns;
        x->count = (size_t)(x->shape[0] * x->shape[1]);
        x->offset = t.elements;
        x->group = shapes[k].group;
        x->layer = -1;
        t.parameters += x->count;
        t.elements += (x->count + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
    }
    return t;
}

/* ---- a run ---- */
struct bench { /* one rank */
    struct settings *s;
    struct table t;
    struct dev *d;
    struct coll *c;
    struct optim o;
    float *params, *grads;
    float *host; /* (elements) */
};

static struct settings *settings_of(const struct optim_case *k)
{
    const char *words[WORDS_MAX + 16] = {
        "--train.steps",       "10",   "--train.lr",  "0.01", "--train.warmup_steps", "0",
        "--train.lr_schedule", "none", "--train.eps", "1e-6"};
    memcpy(words + 10, k->words, sizeof k->words);
    struct settings *s = setup_settings(&arena, words);
    struct config_rules r = {.length = 0};
    keys_check(&r, s);
    assert_int_equal(config_rules_report(&r), ERR_OK);
    return s;
}

static void begin(struct bench *b, const struct optim_case *k, uint32_t seed)
{
    *b = (struct bench){.s = settings_of(k), .t = make_table()};
    size_t bytes = b->t.elements * sizeof(float);
    assert_int_equal(cuda_test_open(&b->d, "f32"), ERR_OK);
    assert_int_equal(coll_self_open(&b->c), ERR_OK);
    if (optim_open(&b->o, b->d, b->c, b->s, &b->t, &arena))
        fail_msg("%s", err_message());
    assert_int_equal(dev_alloc(b->d, (void **)&b->params, bytes), ERR_OK);
    assert_int_equal(dev_alloc(b->d, (void **)&b->grads, bytes), ERR_OK);
    b->host = arena_alloc(&arena, bytes);
    fill(b->host, &b->t, seed, -1);
    b->d->ops->copy(b->d, b->params, b->host, bytes);
}

static void end(struct bench *b)
{
    optim_close(&b->o);
    dev_free(b->d, b->params);
    dev_free(b->d, b->grads);
    coll_close(b->c);
    dev_close(b->d);
}

/* One step by the gradients in b->host. */
static void step_by(struct bench *b, int step)
{
    const double stats[STEP_STATS] = {[STEP_TARGETS] = 1};
    const struct optim_slabs x = {b->params, b->grads, NULL};
    b->d->ops->copy(b->d, b->grads, b->host, b->t.elements * sizeof *b->host);
    b->d->ops->copy(b->d, b->o.buffers.stats, stats, sizeof stats);
    assert_int_equal(optim_step_slabs(&b->o, &x, step), ERR_OK);
    assert_int_equal(dev_sync(b->d), ERR_OK);
}

static const float *take_params(struct bench *b)
{
    float *copy = arena_array(&arena, b->t.elements, sizeof *copy);
    b->d->ops->copy(b->d, copy, b->params, b->t.elements * sizeof *copy);
    assert_int_equal(dev_sync(b->d), ERR_OK);
    return copy;
}

/* Parameters after STEPS steps; `t`: where they lie. */
static const float *run_case(const struct optim_case *k, uint32_t seed, struct table *t)
{
    struct bench b;
    begin(&b, k, seed);
    for (int step = 0; step < STEPS; step++) {
        fill(b.host, &b.t, seed, step);
        step_by(&b, step);
    }
    const float *x = take_params(&b);
    *t = b.t;
    end(&b);
    return x;
}

/* ---- golden vectors ---- */
static void compare(const struct optim_case *k, const struct tensor *x, const float *got,
                    const double *want)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < x->count; i++) {
        if (!isfinite(got[i]))
            fail_msg("%s, %s: element %zu is not finite", k->name, x->name, i);
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    }
    if (!(worst <= 1e-6 * largest))
        fail_msg("%s, %s: off by %.3g of %.3g", k->name, x->name, worst, largest);
}

static void ten_steps_are_the_papers(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++) {
        struct table t;
        size_t count;
        const double *want = golden_values(&arena, "tests/golden/optim", cases[c].name, &count);
        if (!want)
            fail_msg("no golden values of %s", cases[c].name);
        const float *got = run_case(&cases[c], GOLDEN_SEED, &t);
        assert_int_equal(count, t.parameters);
        for (size_t i = 0; i < TENSORS; want += t.tensors[i++].count)
            compare(&cases[c], &t.tensors[i], got + t.tensors[i].offset, want);
    }
}

static void print_vectors(const char *name, uint32_t seed)
{
    for (size_t c = 0; c < CASES; c++) {
        struct table t;
        if (strcmp(cases[c].name, name) != 0)
            continue;
        const float *x = run_case(&cases[c], seed, &t);
        for (size_t i = 0; i < TENSORS; i++)
            for (size_t k = 0; k < t.tensors[i].count; k++)
                printf("%.9g\n", (double)x[t.tensors[i].offset + k]);
    }
}

/* ---- what the papers say of a step ---- */
static const struct optim_case *case_named(const char *name)
{
    for (size_t c = 0; c < CASES; c++)
        if (!strcmp(cases[c].name, name))
            return &cases[c];
    fail_msg("no case %s", name);
    return NULL;
}

/* One step by `times` the gradients of step 0. */
static const float *one_step(const char *name, float times, struct table *t)
{
    struct bench b;
    begin(&b, case_named(name), GOLDEN_SEED);
    fill(b.host, &b.t, GOLDEN_SEED, 0);
    for (size_t i = 0; i < b.t.elements; i++)
        b.host[i] *= times;
    step_by(&b, 0);
    const float *x = take_params(&b);
    *t = b.t;
    end(&b);
    return x;
}

/* Zheng et al. 2020: the norm of a tensor's gradient does not matter, up to eps. */
static void lans_ignores_the_size_of_a_gradient(void **state)
{
    (void)state;
    struct table t;
    const float *x = one_step("lans", 1, &t), *y = one_step("lans", 1024, &t);
    for (size_t i = 0; i < t.elements; i++)
        assert_true(fabsf(x[i] - y[i]) <= 2e-6f);
}

/* Luo et al. 2025: no element moves by more than the rate. */
static void merit_steps_at_most_by_the_rate(void **state)
{
    (void)state;
    struct table t;
    const float *x = one_step("merit", 1, &t);
    float *before = arena_array(&arena, t.elements, sizeof *before), most = 0;
    fill(before, &t, GOLDEN_SEED, -1);
    for (size_t i = 0; i < t.elements; i++)
        most = fmaxf(most, fabsf(x[i] - before[i]));
    assert_true(most <= 0.01f * (1 + 1e-5f) && most > 0.0099f);
}

/* Luo et al. 2023: where g^2 has rank 1 the factored form is the whole second moment. The gradients
 * are +-a_i b_j, so every direction is +-1 / sqrt(1 - beta2) in the first step, and limited to 1.
 */
static void came_is_exact_where_squares_have_rank_one(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, case_named("came"), GOLDEN_SEED);
    const struct tensor *x = &b.t.tensors[0];
    size_t columns = (size_t)x->shape[1];
    memset(b.host, 0, b.t.elements * sizeof *b.host);
    for (size_t i = 0; i < x->count; i++) {
        float row = (float)(i / columns + 1), column = (float)(i % columns + 1);
        b.host[x->offset + i] = (i * 7 % 3 ? 1.0f : -1.0f) * row * column / 64;
    }
    float *signs = arena_array(&arena, b.t.elements, sizeof *signs), *m = b.o.state[0].shard;
    memcpy(signs, b.host, b.t.elements * sizeof *signs);
    step_by(&b, 0);
    b.d->ops->copy(b.d, b.host, m, b.t.elements * sizeof *m);
    assert_int_equal(dev_sync(b.d), ERR_OK);
    for (size_t i = x->offset; i < x->offset + x->count; i++)
        assert_true(fabsf(b.host[i] - (signs[i] > 0 ? 0.1f : -0.1f)) < 1e-6f);
    end(&b);
}

/* A decay of 0 forgets all: before + 1 (now - before) may be 0 where now is not, and 0 times its
 * inverse is no number. Rows without a gradient, as of tokens that a step has not, come and go. */
static void came_without_decay_stays_finite(void **state)
{
    (void)state;
    static const struct optim_case none = {
        "none", {"--train.optimizer", "came", "--train.beta2", "0", "--train.beta3", "0"}};
    struct bench b;
    begin(&b, &none, GOLDEN_SEED);
    for (int step = 0; step < 4; step++) {
        fill(b.host, &b.t, GOLDEN_SEED, step);
        for (size_t k = 0; k < b.t.count; k++) /* every second row, in turns */
            for (size_t i = 0, n = (size_t)b.t.tensors[k].shape[1]; i < b.t.tensors[k].count; i++)
                if ((i / n + (size_t)step) % 2)
                    b.host[b.t.tensors[k].offset + i] = 0;
        step_by(&b, step);
        const float *after = take_params(&b);
        for (size_t i = 0; i < b.t.elements; i++)
            assert_true(isfinite(after[i]));
    }
    end(&b);
}

/* Ma & Yarats 2019: weight 1 is Adam, up to the rounding of moments. */
static void qhadam_of_weight_one_is_adamw(void **state)
{
    (void)state;
    static const struct optim_case one = {
        "one", {"--train.optimizer", "qhadam", "--train.qh_weight", "1"}};
    struct table t;
    const float *x = run_case(&one, 3, &t), *y = run_case(case_named("adamw"), 3, &t);
    for (size_t i = 0; i < t.elements; i++)
        assert_true(fabsf(x[i] - y[i]) < 1e-6f);
}

/* The Nesterov term alone: no moment is left, so that the step of g and then -g comes back but for
 * what the second moment has grown. */
static void lans_without_a_moment_follows_the_gradient(void **state)
{
    (void)state;
    static const struct optim_case none = {"none",
                                           {"--train.optimizer", "lans", "--train.max_grad_norm",
                                            "0", "--train.beta1", "0", "--train.weight_decay", "0",
                                            "--train.bias_correction", "false"}};
    struct bench b;
    begin(&b, &none, GOLDEN_SEED);
    for (int step = 0; step < 3; step++) {
        const float *before = take_params(&b);
        fill(b.host, &b.t, GOLDEN_SEED, step);
        step_by(&b, step);
        const float *after = take_params(&b);
        for (size_t i = 0; i < b.t.elements; i++)
            assert_true(b.host[i] > 0   ? after[i] <= before[i]
                        : b.host[i] < 0 ? after[i] >= before[i]
                                        : after[i] == before[i]);
    }
    end(&b);
}

/* You et al. 2020: without bounds a step of a tensor is as long as lr ||x||. */
static void lamb_steps_by_the_norm_of_the_parameters(void **state)
{
    (void)state;
    struct table t;
    const float *x = one_step("lamb_nvlamb", 1, &t);
    float *before = arena_array(&arena, t.elements, sizeof *before);
    fill(before, &t, GOLDEN_SEED, -1);
    for (size_t k = 0; k < TENSORS; k++) {
        double p2 = 0, d2 = 0;
        for (size_t i = t.tensors[k].offset; i < t.tensors[k].offset + t.tensors[k].count; i++) {
            p2 += (double)before[i] * (double)before[i];
            d2 += ((double)x[i] - (double)before[i]) * ((double)x[i] - (double)before[i]);
        }
        if (p2 > 0)
            assert_true(fabs(sqrt(d2) - 0.01 * sqrt(p2)) < 1e-6 * sqrt(p2));
    }
}

/* ---- the layers' matrices alone ---- */
static size_t bytes_kept(const struct optim_case *k)
{
    const struct settings *s = settings_of(k);
    struct table t = make_table();
    size_t bytes;
    assert_int_equal(optim_plan(&bytes, s, &t, 1), ERR_OK);
    return bytes + optim_workspace(s, &t, DTYPE_F32);
}

/* train.trust_layers = hidden: the layers' matrices keep the published step and all others have
 * AdamW's, bit for bit; state and workspace stay as they are. */
static void other_tensors_step_as_adamw(void **state)
{
#define HALF "--train.trust_layers", "hidden", "--train.adamw_lr", "0.5"
#define OWN  "--train.max_grad_norm", "0", "--train.optimizer"
    static const struct optim_case adamw = {"adamw", {OWN, "adamw", "--train.lr", "0.005"}},
                                   all[] = {{"lamb", {OWN, "lamb"}},
                                            {"lans", {OWN, "lans"}},
                                            {"merit", {OWN, "merit"}}},
                                   hidden[] = {{"lamb", {OWN, "lamb", HALF}},
                                               {"lans", {OWN, "lans", HALF}},
                                               {"merit", {OWN, "merit", HALF}}};
    struct table t;
    const float *other = run_case(&adamw, GOLDEN_SEED, &t);
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const float *published = run_case(&all[i], GOLDEN_SEED, &t),
                    *got = run_case(&hidden[i], GOLDEN_SEED, &t);
        for (size_t k = 0; k < TENSORS; k++) {
            const struct tensor *x = &t.tensors[k];
            const float *want = x->group == TABLE_HIDDEN ? published : other;
            if (memcmp(got + x->offset, want + x->offset, x->count * sizeof *got) != 0)
                fail_msg("%s, %s: another step", all[i].name, x->name);
        }
        assert_int_equal(bytes_kept(&hidden[i]), bytes_kept(&all[i]));
    }
}

/* 1-bit LAMB, before and after the freeze of step 5: of the moments that a step leaves, all other
 * tensors have AdamW's step. The layers' matrices have 1-bit LAMB's factors, which make another. */
static void other_tensors_step_as_one_bit_adam(void **state)
{
    static const struct optim_case onebit = {
        "onebit", {HIDDEN, PLAIN, "--train.compress", "onebit", "--train.compress_start", "0.5"}};
    struct bench b;
    (void)state;
    begin(&b, &onebit, GOLDEN_SEED);
    size_t bytes = b.t.elements * sizeof(float);
    float *m = arena_alloc(&arena, bytes), *v = arena_alloc(&arena, bytes);
    for (int step = 0; step < STEPS; step++) {
        const float *before = take_params(&b);
        fill(b.host, &b.t, GOLDEN_SEED, step);
        step_by(&b, step);
        const float *after = take_params(&b);
        b.d->ops->copy(b.d, m, b.o.state[OPTIM_FIRST].shard, bytes);
        b.d->ops->copy(b.d, v, b.o.state[OPTIM_SECOND].shard, bytes);
        assert_int_equal(dev_sync(b.d), ERR_OK);
        for (size_t k = 0; k < TENSORS; k++) {
            const struct tensor *x = &b.t.tensors[k];
            double worst = 0, decay = x->group == TABLE_VECTOR ? 0 : 0.1;
            for (size_t i = x->offset; i < x->offset + x->count; i++) {
                double u = (double)m[i] / (sqrt((double)v[i]) + 1e-6) + decay * (double)before[i];
                worst = fmax(worst, fabs((double)before[i] - 0.4 * 0.01 * u - (double)after[i]));
            }
            if (x->group != TABLE_HIDDEN && !(worst <= 2e-7))
                fail_msg("step %d, %s: off by %.3g", step, x->name, worst);
            if (is_named(x, "matrix") && !(worst > 1e-4))
                fail_msg("step %d, %s: AdamW's step, too", step, x->name);
        }
    }
    end(&b);
}

/* 0/1 Adam changes the groups of a step after local ones. With the GPU's kernels emulated a host
 * that writes them while they are copied ends here, as in the test above. */
static void zeroone_waits_for_the_groups_that_it_changes(void **state)
{
    static const struct optim_case local = {
        "local",
        {"--train.optimizer", "adamw", "--train.compress", "zeroone", "--train.compress_start",
         "0.2", "--train.local_grow", "1e-6", "--train.local_max", "4"}};
    struct table t;
    const float *x = run_case(&local, GOLDEN_SEED, &t);
    (void)state;
    for (size_t i = 0; i < t.elements; i++)
        assert_true(isfinite(x[i]));
}

/* ---- master weights of 16 bits ---- */
static const struct narrow fp16 = {6, 9};

/* A step with them is the step in f32, each element rounded by its own random bits; moments that
 * are not rounded and layers that do not learn keep all bits. */
static void masters_round_what_a_step_updates(void **state)
{
    enum { FROZEN = 0, STEP = 5 };
#define GROWING "--train.optimizer", "adamw", "--model.layers", "2", "--train.stages", "1@0.5,2@0.5"
    static const struct optim_case kinds[] = {
        {"f32", {GROWING}},
        {"nearest", {GROWING, "--train.master_weights", "fp16"}},
        {"stochastic", {GROWING, "--train.master_weights", "fp16_stochastic"}},
        {"moment", {GROWING, "--train.master_weights", "fp16_stochastic_moment"}}};
    struct table t;
    const float *x[4], *m[4];
    size_t moved = 0;
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        struct bench b;
        begin(&b, &kinds[k], GOLDEN_SEED);
        for (size_t n = 0; n < TENSORS; n++) /* step 5 of 10: the layers from 1 on learn */
            b.t.tensors[n].layer = n == FROZEN ? 0 : 1;
        fill(b.host, &b.t, GOLDEN_SEED, 0);
        step_by(&b, STEP);
        x[k] = take_params(&b);
        float *moment = arena_array(&arena, b.t.elements, sizeof *moment);
        b.d->ops->copy(b.d, moment, b.o.state[OPTIM_FIRST].shard, b.t.elements * sizeof *moment);
        assert_int_equal(dev_sync(b.d), ERR_OK);
        m[k] = moment;
        t = b.t;
        end(&b);
    }
    for (size_t k = 0; k < TENSORS; k++)
        for (size_t i = t.tensors[k].offset; i < t.tensors[k].offset + t.tensors[k].count; i++) {
            uint32_t bits[4], others[4];
            rng_block(1, RNG_MASTER | (uint64_t)STEP << 32, i / 4, bits);
            rng_block(1, RNG_MASTER | (uint64_t)STEP << 32, (1ull << 60) + i / 4, others);
            float near = k == FROZEN ? x[0][i] : narrow_round(x[0][i], fp16),
                  either = k == FROZEN ? x[0][i] : narrow_stochastic(x[0][i], fp16, bits[i % 4]);
            assert_true(x[1][i] == near && x[2][i] == either);
            assert_true(m[0][i] == m[1][i] && m[0][i] == m[2][i]);
            assert_true(x[3][i] == either);
            moved += m[3][i] != m[0][i] && x[2][i] != x[0][i];
            assert_true(m[3][i] ==
                        (k == FROZEN ? m[0][i] : narrow_stochastic(m[0][i], fp16, others[i % 4])));
        }
    assert_true(moved > t.parameters / 4);
}

/* A rate below half a place of most parameters: to nearest they stay, stochastically they move by
 * it in the mean. */
static void stochastic_masters_take_small_steps(void **state)
{
#define SMALL "--train.optimizer", "adamw", "--train.lr", "1e-5", "--train.weight_decay", "0"
    static const struct optim_case kinds[] = {
        {"f32", {SMALL}},
        {"nearest", {SMALL, "--train.master_weights", "fp16"}},
        {"stochastic", {SMALL, "--train.master_weights", "fp16_stochastic"}}};
    double moved[3] = {0};
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct bench b;
        begin(&b, &kinds[k], GOLDEN_SEED);
        for (size_t i = 0; i < b.t.elements; i++)
            b.host[i] = b.host[i] < 0 ? -0.5f : 0.5f;
        b.d->ops->copy(b.d, b.params, b.host, b.t.elements * sizeof *b.host);
        for (int step = 0; step < 100; step++) {
            for (size_t i = 0; i < b.t.elements; i++)
                b.host[i] = 1;
            step_by(&b, step);
        }
        const float *x = take_params(&b);
        size_t count = 0;
        for (size_t n = 0; n < TENSORS; count += b.t.tensors[n++].count)
            for (size_t i = b.t.tensors[n].offset; i < b.t.tensors[n].offset + b.t.tensors[n].count;
                 i++)
                moved[k] += (double)x[i] < 0 ? (double)x[i] + 0.5 : (double)x[i] - 0.5;
        moved[k] /= (double)count;
        end(&b);
    }
    assert_true(fabs(moved[0] + 1e-3) < 1e-5);
    assert_true(moved[1] == 0);
    assert_true(fabs(moved[2] / moved[0] - 1) < 0.1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(ten_steps_are_the_papers, reset),
        cmocka_unit_test_setup(lans_ignores_the_size_of_a_gradient, reset),
        cmocka_unit_test_setup(merit_steps_at_most_by_the_rate, reset),
        cmocka_unit_test_setup(came_is_exact_where_squares_have_rank_one, reset),
        cmocka_unit_test_setup(came_without_decay_stays_finite, reset),
        cmocka_unit_test_setup(qhadam_of_weight_one_is_adamw, reset),
        cmocka_unit_test_setup(lans_without_a_moment_follows_the_gradient, reset),
        cmocka_unit_test_setup(lamb_steps_by_the_norm_of_the_parameters, reset),
        cmocka_unit_test_setup(other_tensors_step_as_adamw, reset),
        cmocka_unit_test_setup(other_tensors_step_as_one_bit_adam, reset),
        cmocka_unit_test_setup(zeroone_waits_for_the_groups_that_it_changes, reset),
        cmocka_unit_test_setup(masters_round_what_a_step_updates, reset),
        cmocka_unit_test_setup(stochastic_masters_take_small_steps, reset),
    };
    if (cuda_test_missing("f32"))
        return CUDA_TEST_SKIP;
    if (argc == 4 && !strcmp(argv[1], "vectors")) {
        print_vectors(argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
        arena_free(&arena);
        return 0;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
