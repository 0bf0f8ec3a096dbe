/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this fails: a site is planned with ranks that cost more than they save, or with
 * settings that do not fit its memory. Collectives, speed-up, knee and accumulation are held
 * against their closed forms, the memory against the start-up check of training itself.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "inner/train/train.h"
#include "kernels/base/log.h"
#include "outer/config/run.h"
#include "outer/plan/scaling.h"
#include "outer/plan/site_search.h"
#include "outer/plan/site_settings.h"

static void close_to(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.9g instead of %.9g", got, want);
}

/* ---- collectives ---- */

/* The three rows of the survey's table (2005.13247), by hand. */
static void test_formulas(void **state)
{
    const struct ranks_fit f = {.alpha_s = 5e-6, .beta_s = 1e-10};
    const double S = 4e6;
    (void)state;
    close_to(ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 8, S, &f),
             14 * 5e-6 + 2 * 7.0 / 8 * S * 1e-10, 1e-12);
    close_to(ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_HALVING, 8, S, &f),
             6 * 5e-6 + 2 * 7.0 / 8 * S * 1e-10, 1e-12);
    close_to(ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_TREE, 5, S, &f),
             6 * (5e-6 + S * 1e-10), 1e-12);
    close_to(ranks_link_formula(RANKS_ALL_GATHER, PLAN_ALGORITHM_RING, 4, S, &f),
             3 * 5e-6 + 0.75 * S * 1e-10, 1e-12);
    close_to(ranks_link_formula(RANKS_REDUCE_SCATTER, PLAN_ALGORITHM_RING, 4, S, &f),
             3 * 5e-6 + 0.75 * S * 1e-10, 1e-12);
    assert_true(ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 1, S, &f) == 0);
}

/* Times of the formula give its alpha and beta back; other ranks and sizes follow. */
static void test_fit(void **state)
{
    (void)state;
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT; op++)
        for (enum plan_algorithm a = PLAN_ALGORITHM_RING; a <= PLAN_ALGORITHM_TREE; a++) {
            const struct ranks_fit truth = {.alpha_s = 7e-6, .beta_s = 3e-10};
            struct ranks_link l = {.ranks = 4, .algorithm = a};
            l.times[op].count = RANKS_LINK_TIMES;
            for (unsigned i = 0; i < RANKS_LINK_TIMES; i++)
                l.times[op].seconds[i] = ranks_link_formula(op, a, 4, ranks_link_bytes(i), &truth);
            l.fit[op] = ranks_link_fit(op, a, 4, &l.times[op]);
            close_to(l.fit[op].alpha_s, truth.alpha_s, 1e-6);
            close_to(l.fit[op].beta_s, truth.beta_s, 1e-6);
            assert_true(l.fit[op].worst < 1e-6);
            close_to(ranks_link_seconds(&l, op, 16, 3e5),
                     ranks_link_formula(op, a, 16, 3e5, &truth), 1e-6);
        }
    close_to(ranks_link_bytes(0), 4096, 0);
    close_to(ranks_link_bytes(RANKS_LINK_TIMES - 1), 64 << 20, 0);
}

/* A line that the formula does not describe: its own times count at the measured ranks, between
 * them the logarithms; at twice the ranks the formula's ratio of both. */
static void test_measured_times_win(void **state)
{
    struct ranks_link l = {.ranks = 2};
    struct ranks_times *t = &l.times[RANKS_ALL_REDUCE];
    (void)state;
    t->count = RANKS_LINK_TIMES;
    for (unsigned i = 0; i < t->count; i++)
        t->seconds[i] = (i < 7 ? 1e-6 : 3e-6) * (1 << i);
    l.fit[RANKS_ALL_REDUCE] = ranks_link_fit(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 2, t);
    assert_true(l.fit[RANKS_ALL_REDUCE].worst > 0.2);
    for (unsigned i = 0; i < t->count; i++)
        close_to(ranks_link_seconds(&l, RANKS_ALL_REDUCE, 2, ranks_link_bytes(i)), t->seconds[i],
                 1e-9);
    const struct ranks_fit *f = &l.fit[RANKS_ALL_REDUCE];
    const double at[] = {262144, 262144 * M_SQRT2, 524288}; /* the middle in the logarithm */
    double over[3];                                         /* time over the formula's */
    for (int k = 0; k < 3; k++)
        over[k] = ranks_link_seconds(&l, RANKS_ALL_REDUCE, 2, at[k]) /
                  ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 2, at[k], f);
    close_to(over[1], sqrt(over[0] * over[2]), 1e-9);
    assert_true(fabs(over[0] / over[2] - 1) > 0.1);
    double ring2 = ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 2, 65536, f),
           ring4 = ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 4, 65536, f);
    close_to(ranks_link_seconds(&l, RANKS_ALL_REDUCE, 4, 65536), t->seconds[4] * ring4 / ring2,
             1e-9);
}

/* More ranks than a machine has: two levels. An all-reduce is a reduce-scatter inside, an
 * all-reduce of each rank's part between the machines, an all-gather inside; by hand. */
static void test_machines(void **state)
{
    struct ranks_link l = {.machine_ranks = 8, .net_alpha_s = 1e-5, .net_beta_s = 1e-10};
    const struct ranks_fit in = {.alpha_s = 1e-6, .beta_s = 1e-11};
    (void)state;
    for (enum ranks_op op = 0; op < RANKS_OP_COUNT; op++) {
        double ways = op == RANKS_ALL_REDUCE ? 2 : 1;
        l.fit[op] = in;
        close_to(ranks_link_seconds(&l, op, 8, 1e6), ways * (7 * 1e-6 + 7.0 / 8 * 1e6 * 1e-11),
                 1e-12);
        close_to(ranks_link_seconds(&l, op, 16, 1e6),
                 ways * (7 * 1e-6 + 7.0 / 8 * 1e6 * 1e-11 + 1e-5 + 0.5 * 1e6 / 8 * 1e-10), 1e-12);
        close_to(ranks_link_seconds(&l, op, 60, 1e6), /* the last machine is not full */
                 ways * (7 * 1e-6 + 7.0 / 8 * 1e6 * 1e-11 + 7e-5 + 7.0 / 8 * 1e6 / 8 * 1e-10),
                 1e-12);
    }
    l.machine_ranks = 0; /* all alike */
    close_to(ranks_link_seconds(&l, RANKS_ALL_GATHER, 16, 1e6), 15 * 1e-6 + 15.0 / 16 * 1e6 * 1e-11,
             1e-12);
}

/* ---- speed-up and knee ---- */

/* Amdahl's law with a latency for each GPU: T(n) = serial + work / n + a n. n T(n)^2 over the
 * reals is least where (serial + work / n + a n) = 2 (work / n - a n), that is
 * 3 a n^2 + serial n - work = 0. */
static void test_knee(void **state)
{
    const double serial[] = {1, 2, 5, 0}, work[] = {100, 50, 400, 1000},
                 a[] = {0.001, 0.01, 0, 0.05};
    enum { N = 400 };
    static struct scaling rows[N];
    (void)state;
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < N; i++) {
            double n = i + 1;
            rows[i] = (struct scaling){.n = n, .seconds = serial[k] + work[k] / n + a[k] * n};
        }
        scaling_fill(rows, N);
        double best =
            a[k] > 0 ? (sqrt(serial[k] * serial[k] + 12 * a[k] * work[k]) - serial[k]) / (6 * a[k])
                     : work[k] / serial[k];
        size_t knee = scaling_knee(rows, N);
        double n = rows[knee].n;
        for (int i = 0; i < N; i++) {
            double S = rows[0].seconds / rows[i].seconds;
            close_to(rows[i].speedup, S, 1e-12);
            close_to(rows[i].efficiency, S / rows[i].n, 1e-12);
            close_to(rows[i].hours, rows[i].n * rows[i].seconds / 3600, 1e-12);
        }
        assert_true(rows[knee].efficiency >= SCALING_EFFICIENCY);
        /* Where the efficiency does not bind, the knee is the minimum itself. */
        size_t least = (size_t)(best + 0.5) - 1;
        if (best < N && rows[least].efficiency >= SCALING_EFFICIENCY)
            assert_true(fabs(n - best) <= 1);
        else
            assert_true(n < best && rows[knee + 1].efficiency < SCALING_EFFICIENCY);
    }
}

/* The knee of doubled rows: a doubling that saves less than sqrt 2 of the time is refused. */
static void test_knee_of_doublings(void **state)
{
    struct scaling good[] = {{.n = 1, .seconds = 100}, {.n = 2, .seconds = 70}},
                   bad[] = {{.n = 1, .seconds = 100}, {.n = 2, .seconds = 71.3}};
    (void)state;
    scaling_fill(good, 2);
    scaling_fill(bad, 2);
    assert_int_equal(scaling_knee(good, 2), 1);
    assert_int_equal(scaling_knee(bad, 2), 0);
    close_to(good[1].marginal, log(100.0 / 70) / log(2), 1e-12);
}

/* The public times of MLPerf Training 4.1, BERT, H100: mean of ten runs without the fastest and the
 * slowest, in minutes. */
static void test_mlperf(void **state)
{
    struct scaling rows[] = {{.n = 8, .seconds = 60 * 5.4688},
                             {.n = 64, .seconds = 60 * 0.8981},
                             {.n = 3472, .seconds = 60 * 0.1193}};
    (void)state;
    scaling_fill(rows, 3);
    close_to(rows[1].speedup, 6.0893, 1e-4);
    close_to(rows[1].efficiency, 0.76117, 1e-4);
    close_to(rows[2].efficiency, 0.10562, 1e-4);
    close_to(rows[2].hours, 6.9035, 1e-4);
    assert_int_equal(scaling_knee(rows, 3), 1);
}

/* ---- step time and memory ---- */

static struct run run;

/* Settings as the command line gives them. */
static void run_of(int count, const char *const *words)
{
    struct args args = {.setting = (char **)(uintptr_t)words, .setting_count = count};
    run_close(&run);
    run = (struct run){.perm = arena_make(0)};
    if (run_open(&run, &(struct run_source){RUN_PLAN, .sites = 1, .args = &args}))
        fail_msg("%s", err_message());
}

static const char *const small[] = {"--model.layers",    "4",  "--model.d_model",      "64",
                                    "--model.heads",     "2",  "--model.max_seq_len",  "64",
                                    "--train.seq_len",   "64", "--train.batch_tokens", "2048",
                                    "--train.bucket_mb", "0"};

static struct site_machine machine_of(void)
{
    struct site_machine m = {.peak = {1e11, 1e10}, .utilisation = 0.5, .overlap = 1};
    m.link.fit[RANKS_ALL_REDUCE] = (struct ranks_fit){.alpha_s = 1e-6, .beta_s = 1e-9};
    m.link.fit[RANKS_ALL_GATHER] = m.link.fit[RANKS_ALL_REDUCE];
    m.link.fit[RANKS_REDUCE_SCATTER] = m.link.fit[RANKS_ALL_REDUCE];
    return m;
}

/* One sum after the backward is exposed as a whole; in buckets only what outlasts it. */
static void test_exposed(void **state)
{
    struct site_machine m = machine_of();
    struct site_step one, lazy, slow;
    (void)state;
    run_of(14, small);
    double bytes = 4 * (double)run.table.elements;
    site_model_step(&one, &run.s, &run.table, &m, 4);
    close_to(one.sum_bytes, bytes, 1e-12);
    close_to(one.exposed_s,
             ranks_link_formula(RANKS_ALL_REDUCE, PLAN_ALGORITHM_RING, 4, bytes,
                                &m.link.fit[RANKS_ALL_REDUCE]),
             1e-9);
    close_to(one.step_s, one.micro_s + one.update_s + one.exposed_s, 1e-12);
    run.s.train_bucket_mb = 0.05;
    site_model_step(&lazy, &run.s, &run.table, &m, 4);
    close_to(lazy.sum_bytes, bytes, 1e-12);
    assert_true(lazy.exposed_s < one.exposed_s && lazy.sums_s > one.sums_s);
    m.overlap = 0; /* nothing continues under the backward */
    site_model_step(&slow, &run.s, &run.table, &m, 4);
    close_to(slow.exposed_s, slow.sums_s, 1e-9);
    /* The overlap that a measured exposed time means. */
    m.overlap = 0.37;
    site_model_step(&slow, &run.s, &run.table, &m, 4);
    close_to(site_model_overlap(&run.s, &run.table, &m, 4, slow.exposed_s), 0.37, 1e-6);
}

/* 1-bit Adam: a quarter of the steps in full, the rest in two exchanges of a bit for each value. */
static void test_compressed(void **state)
{
    struct site_machine m = machine_of();
    struct site_step plain, onebit;
    struct site_choice best;
    (void)state;
    run_of(14, small);
    run.s.train_optimizer = OPTIM_ADAMW;
    run.s.train_steps = 400;
    site_model_step(&plain, &run.s, &run.table, &m, 4);
    run.s.train_compress = TRAIN_COMPRESS_ONEBIT;
    run.s.train_compress_start = 0.25;
    site_model_step(&onebit, &run.s, &run.table, &m, 4);
    double d = (double)run.table.elements;
    close_to(onebit.exposed_s, 0.25 * plain.exposed_s, 1e-9);
    close_to(onebit.sum_bytes, 0.25 * 4 * d + 0.75 * d / 8, 1e-9);
    close_to(onebit.gather_s,
             0.75 * (2 * ranks_link_formula(RANKS_ALL_GATHER, PLAN_ALGORITHM_RING, 4, d / 8,
                                            &m.link.fit[RANKS_ALL_GATHER]) +
                     7 * 4 * d / m.peak.bytes),
             1e-9);
    site_model_step(&onebit, &run.s, &run.table, &m, 1);
    close_to(onebit.gather_s + 1, 1, 0);
    site_search(&best, &run.s, &run.table, &m, 4); /* not with ZeRO, which these sums refuse */
    assert_int_equal(best.settings.train_zero_stage, 0);
}

/* A measured model is predicted as measured; half the tokens take half the time; a width between
 * two measured ones takes their utilisation's geometric mean. */
static void test_utilisation(void **state)
{
    struct site_machine m = machine_of();
    struct site_step before, after;
    (void)state;
    run_of(14, small);
    const struct work_step w = {.tokens = 2048, .micro = 2048, .update_share = 1};
    double sum = 0;
    for (enum profile_class c = 0; c < PROFILE_COUNT; c++) {
        struct work work = site_model_work(&run.s, &run.table, &w, c);
        if (c == PROFILE_REDUCE)
            continue;
        m.points[m.count++] = (struct site_point){c, 64, work.flop, work.bytes, 0.001 * (c + 1)};
        sum += 0.001 * (c + 1);
    }
    site_model_step(&before, &run.s, &run.table, &m, 1);
    close_to(before.step_s, sum, 1e-9);
    close_to(before.tokens_s, 2048 / sum, 1e-9);
    site_model_step(&after, &run.s, &run.table, &m, 2);
    assert_true(after.micro_s < before.micro_s && after.micro_s > before.micro_s / 4);
    m.count = 2;
    m.points[0] = (struct site_point){PROFILE_MLP, 64, 1e9, 1, 1e9 / 1e11 / 0.2};
    m.points[1] = (struct site_point){PROFILE_MLP, 256, 1e9, 1, 1e9 / 1e11 / 0.8};
    close_to(site_model_utilisation(&m, PROFILE_MLP, 128), 0.4, 1e-9);
    close_to(site_model_utilisation(&m, PROFILE_MLP, 32), 0.2, 1e-9);
    close_to(site_model_utilisation(&m, PROFILE_MLP, 512), 0.8, 1e-9);
    close_to(site_model_utilisation(&m, PROFILE_QKV, 64), 0.5, 1e-9);
}

/* The smallest A, against a search of all. */
static void test_accumulate(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 200; k++) {
        struct site_step s = {.micro_s = 0.01 + 0.001 * (k % 17),
                              .update_s = 0.002 * (k % 5),
                              .exposed_s = 0.0005 * k,
                              .gather_s = 0.0001 * (k % 3)};
        double exposed = s.exposed_s + s.gather_s;
        int A = 1;
        while (exposed > 0.05 * (A * s.micro_s + s.update_s + exposed) * (1 + 1e-12))
            A++;
        assert_int_equal(site_model_accumulate(&s), A);
    }
}

static uint32_t drawn;
static int64_t draw(int64_t count) /* 0 .. count - 1 */
{
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % count;
}

/* 1,000 random settings: what the planner calls fitting is what the start-up check of training
 * accepts with SITE_MODEL_MEMORY of the same memory. */
static void test_fits_as_start_up(void **state)
{
    struct dev d = {.model_type = DTYPE_F32};
    struct coll c = {.size = 1};
    unsigned fits = 0;
    (void)state;
    drawn = 11;
    run_of(14, small);
    for (int i = 0; i < 1000; i++) {
        struct settings s = run.s;
        struct site_machine m = machine_of();
        struct arena a = arena_make(0);
        struct train t = {.settings = &s, .dev = &d, .coll = &c};
        struct site_step step;
        s.model_layers = 1 + draw(12);
        s.model_heads = 1 + draw(8);
        s.model_d_model = 64 * s.model_heads;
        s.train_seq_len = s.model_max_seq_len = 64 << draw(3);
        c.size = 1 << draw(4);
        s.train_batch_tokens = s.train_seq_len * c.size * (1 + draw(8)) * 2;
        s.train_micro_batch_tokens = draw(2) ? s.train_seq_len : 0;
        s.train_zero_stage = draw(4);
        s.train_activation_checkpointing =
            draw(2) ? TRAIN_CHECKPOINTING_BLOCK : TRAIN_CHECKPOINTING_NONE;
        s.train_grad_reduce_dtype = draw(2) ? TRAIN_GRAD_REDUCE_BF16 : TRAIN_GRAD_REDUCE_F32;
        s.train_optimizer = draw(2) ? OPTIM_LAMB : OPTIM_ADAMW;
        m.type = d.model_type = draw(2) ? DTYPE_BF16 : DTYPE_F32;
        assert_int_equal(table_make(&t.table, &s, &a), ERR_OK);
        m.memory_bytes = (double)((1 + draw(400)) << 20);
        d.memory_bytes = (size_t)(SITE_MODEL_MEMORY * m.memory_bytes);
        site_model_step(&step, &s, &t.table, &m, c.size);
        t.memory = train_plan(&s, &t.table, d.model_type, c.size);
        assert_int_equal(step.memory.total, t.memory.total);
        assert_int_equal(step.fits, train_memory_check(&t) == ERR_OK);
        fits += step.fits;
        arena_free(&a);
    }
    assert_in_range(fits, 200, 800); /* both answers occur */
}

/* MPI copies the sum that runs: a bucket with the tensor that fills it, at most the slab. */
static void test_copy_of_the_sum(void **state)
{
    (void)state;
    run_of(14, small);
    size_t largest = 0;
    for (size_t i = 0; i < run.table.count; i++)
        largest = table_span(&run.table, i) > largest ? table_span(&run.table, i) : largest;
    assert_int_equal(train_plan(&run.s, &run.table, DTYPE_F32, 1).collectives, 0);
    assert_int_equal(train_plan(&run.s, &run.table, DTYPE_F32, 2).collectives,
                     4 * run.table.elements);
    run.s.train_bucket_mb = 0.0625; /* 16,384 gradients */
    assert_int_equal(train_plan(&run.s, &run.table, DTYPE_F32, 2).collectives,
                     4 * (16384 + largest));
    run.s.train_grad_reduce_dtype = TRAIN_GRAD_REDUCE_BF16;
    assert_int_equal(train_plan(&run.s, &run.table, DTYPE_F32, 2).collectives,
                     2 * (16384 + largest));
}

struct tried {
    double bytes, tokens_s;
};

static unsigned try_all(struct tried out[160], const struct site_machine *m)
{
    static const double mib[] = {0, 6.25, 25, 100};
    struct settings s = run.s;
    struct site_step step;
    unsigned count = 0;
    for (int64_t micro = 64; micro <= 1024; micro *= 2)
        for (int k = 0; k < 32; k++) {
            s.train_micro_batch_tokens = micro;
            s.train_zero_stage = (k & 1) + 2 * (k >> 4);
            s.train_activation_checkpointing =
                k & 2 ? TRAIN_CHECKPOINTING_BLOCK : TRAIN_CHECKPOINTING_NONE;
            s.train_bucket_mb = mib[k >> 2 & 3];
            site_model_step(&step, &s, &run.table, m, 2);
            out[count++] = (struct tried){(double)step.memory.total, step.tokens_s};
        }
    return count;
}

/* The search finds the best of all combinations that fit, with every memory that is the limit of
 * one of them; where none does, the one that takes least. */
static void test_search(void **state)
{
    struct site_machine m = machine_of();
    struct site_choice best;
    struct tried all[160];
    double least = INFINITY;
    (void)state;
    run_of(14, small);
    m.overlap = 0.3;
    unsigned count = try_all(all, &m);
    for (unsigned i = 0; i < count; i++) {
        double most = 0;
        m.memory_bytes = (all[i].bytes + 1) / SITE_MODEL_MEMORY;
        for (unsigned k = 0; k < count; k++)
            if (all[k].bytes <= SITE_MODEL_MEMORY * m.memory_bytes)
                most = fmax(most, all[k].tokens_s);
        site_search(&best, &run.s, &run.table, &m, 2);
        assert_true(best.step.fits);
        close_to(best.step.tokens_s, most, 1e-12);
        least = fmin(least, all[i].bytes);
    }
    m.memory_bytes = 1e5;
    site_search(&best, &run.s, &run.table, &m, 2);
    assert_false(best.step.fits);
    close_to((double)best.step.memory.total, least, 1e-12);
}

/* ---- settings ---- */

static void test_points(void **state)
{
    struct arena a = arena_make(0);
    const struct site_point p = {PROFILE_ATTENTION_BWD, 128, 1.5e9, 2.5e7, 0.0125};
    struct site_point q;
    char *text;
    static const char *const bad[] = {"",
                                      "mlp",
                                      "mlp/128/1/1",
                                      "mlp/128/1/1/1/1",
                                      "nothing/128/1/1/1",
                                      "mlp/0/1/1/1",
                                      "mlp/128/-1/1/1",
                                      "mlp/128/0/0/1",
                                      "mlp/128/1/1/0",
                                      "mlp/128/1/1/nan",
                                      "mlp/128/inf/1/1"};
    (void)state;
    assert_int_equal(site_settings_point_text(&text, &p, &a), ERR_OK);
    assert_int_equal(site_settings_point(&q, text), ERR_OK);
    assert_true(q.class == p.class && q.width == p.width && q.flop == p.flop &&
                q.bytes == p.bytes && q.seconds == p.seconds);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (site_settings_point(&q, bad[i]) != ERR_CONFIG)
            fail_msg("\"%s\" is taken", bad[i]);
    arena_free(&a);
}

static void test_gpus(void **state)
{
    struct site_machine m;
    struct site_costs c;
    (void)state;
    run_of(14, small);
    run.measured.ranks.plan_gpu = "h100";
    assert_int_equal(site_settings_machine(&m, &c, &run.s, &run.measured), ERR_OK);
    close_to(m.peak.flop, 989e12, 1e-12);
    close_to(m.memory_bytes, 80e9, 1e-12);
    close_to(site_model_utilisation(&m, PROFILE_MLP, 8192), 793.0 / 989, 1e-9); /* as on our H200 */
    close_to(c.watts, 700, 0);
    run.measured.ranks.plan_watts = 350;
    assert_int_equal(site_settings_machine(&m, &c, &run.s, &run.measured), ERR_OK);
    close_to(c.watts, 350, 0);
    assert_string_equal(c.watts_from, "plan.watts");
    run.measured.ranks.plan_gpu = "h1000";
    assert_int_equal(site_settings_machine(&m, &c, &run.s, &run.measured), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "v100, t4, a100"));
    run.measured.ranks.plan_gpu = "";
    assert_int_equal(site_settings_machine(&m, &c, &run.s, &run.measured), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "atoll probe --ranks"));
}

static int close_run(void **state)
{
    (void)state;
    run_close(&run);
    return 0;
}

int main(void)
{
    log_min(LOG_ERROR); /* not 1,000 memory tables */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas),
                                       cmocka_unit_test(test_fit),
                                       cmocka_unit_test(test_measured_times_win),
                                       cmocka_unit_test(test_machines),
                                       cmocka_unit_test(test_knee),
                                       cmocka_unit_test(test_knee_of_doublings),
                                       cmocka_unit_test(test_mlperf),
                                       cmocka_unit_test(test_exposed),
                                       cmocka_unit_test(test_compressed),
                                       cmocka_unit_test(test_utilisation),
                                       cmocka_unit_test(test_accumulate),
                                       cmocka_unit_test(test_fits_as_start_up),
                                       cmocka_unit_test(test_copy_of_the_sum),
                                       cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_points),
                                       cmocka_unit_test(test_gpus)};
    return cmocka_run_group_tests(tests, NULL, close_run);
}
