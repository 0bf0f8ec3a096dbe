/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the inner optimizers for a GPT of 98 M parameters (12 layers, width 768, vocabulary
 * 16,384) in f32, the gradient's norm included. Each against the bytes that its step must move at
 * the rate of a copy by the same threads; Muon against its matrix products at the rate of a product
 * of 2048 x 2048 x 2048. ratio: times the baseline. Each step is measured between two of what it is
 * compared with.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/optim/optim.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"

/* A step of Muon takes half a minute on two cores, one of the others less than a second. */
enum { CUBE = 2048, REPEATS = 5, REPEATS_PRODUCTS = 1 };

struct work {
    struct arena arena;
    struct settings s;
    struct table t;
    struct dev *d;
    struct coll *c;
    struct optim o;
    struct optim_slabs x;
    float *noise; /* (elements) */
    float *cube[3];
};

static enum err configure(struct work *k, const char *optimizer)
{
    const char *const words[] = {"--model.layers",        "12",   "--model.d_model",    "768",
                                 "--model.heads",         "12",   "--model.vocab_size", "16384",
                                 "--model.max_seq_len",   "1024", "--data.tokenizer",   "external",
                                 "--train.warmup_steps",  "0",    "--train.optimizer",  optimizer,
                                 "--train.max_grad_norm", "0"};
    enum { COUNT = sizeof words / sizeof *words };
    char *argv[COUNT];
    struct config_table keys = keys_inner(&k->s);
    for (int i = 0; i < COUNT; i++)
        TRY_ALLOC(argv[i] = arena_string(&k->arena, words[i], strlen(words[i])));
    TRY(config_load(&keys, 1, NULL, COUNT, argv, &k->arena));
    return table_make(&k->t, &k->s, &k->arena);
}

static enum err take(struct work *k)
{
    size_t bytes = k->t.elements * sizeof(float);
    TRY(dev_open(&k->d, &(struct dev_options){.kind = "cpu", .model_type = "f32"}));
    TRY(coll_self_open(&k->c));
    TRY(optim_open(&k->o, k->d, k->c, &k->s, &k->t, &k->arena));
    TRY(dev_alloc(k->d, (void **)&k->x.params, bytes));
    TRY(dev_alloc(k->d, (void **)&k->x.grads, bytes));
    TRY(dev_alloc(k->d, (void **)&k->noise, bytes));
    for (int i = 0; i < 3; i++)
        TRY(dev_alloc(k->d, (void **)&k->cube[i], sizeof(float) * CUBE * CUBE));
    for (size_t i = 0; i < k->t.elements; i++)
        k->noise[i] = (float)(rng_u32(1, RNG_TEST, i) >> 8) * 0x1p-24f - 0.5f;
    for (int i = 0; i < 2; i++)
        memcpy(k->cube[i], k->noise, sizeof(float) * CUBE * CUBE);
    table_init(&k->t, 1, k->x.params);
    return ERR_OK;
}

static void give(struct work *k)
{
    if (k->d) {
        dev_free(k->d, k->x.params);
        dev_free(k->d, k->x.grads);
        dev_free(k->d, k->noise);
        for (int i = 0; i < 3; i++)
            dev_free(k->d, k->cube[i]);
    }
    optim_close(&k->o);
    coll_close(k->c);
    dev_close(k->d);
    arena_free(&k->arena);
}

static double copy_seconds(struct work *k)
{
    double start = bench_now();
    k->d->ops->copy(k->d, k->x.grads, k->noise, k->t.elements * sizeof(float));
    return bench_now() - start;
}

static double cube_seconds(struct work *k)
{
    double start = bench_now();
    k->d->ops->matmul(k->d, &(struct dev_matmul){.a = k->cube[0],
                                                 .b = k->cube[1],
                                                 .c = k->cube[2],
                                                 .out = DTYPE_F32,
                                                 .M = CUBE,
                                                 .N = CUBE,
                                                 .K = CUBE});
    return bench_now() - start;
}

/* Seconds that the step would take at the rate of the copy, or of the product. */
static double floor_seconds(struct work *k)
{
    const struct optim_method *m = k->o.method;
    if (m->flop)
        return m->flop(&k->s, &k->t) / (2.0 * CUBE * CUBE * CUBE) * cube_seconds(k);
    return (m->bytes + 4) / (2 * sizeof(float)) * copy_seconds(k); /* 4: the norm */
}

static enum err measure(struct work *k, const char *csv)
{
    static struct bench_times steps, floors;
    steps.count = floors.count = 0;
    int64_t repeats = k->o.method->flop ? REPEATS_PRODUCTS : REPEATS;
    floor_seconds(k);
    for (int64_t r = 0; r <= repeats; r++) {
        double stats[STEP_STATS] = {[STEP_TARGETS] = 1}, before = floor_seconds(k);
        copy_seconds(k);
        k->d->ops->copy(k->d, k->o.buffers.stats, stats, sizeof stats);
        double start = bench_now();
        TRY(optim_step_slabs(&k->o, &k->x, r));
        double seconds = bench_now() - start;
        if (r == 0) /* makes the library's products and touches the memory */
            continue;
        bench_add(&steps, seconds);
        bench_add(&floors, 0.5 * (before + floor_seconds(k)));
    }
    TRY(dev_sync(k->d));
    char what[80], flags[128];
    snprintf(what, sizeof what, "%s %.0fM f32", k->o.method->name, 1e-6 * (double)k->t.parameters);
    snprintf(flags, sizeof flags, "threads=%d %s; against %s", k->d->threads, BENCH_COMPILER,
             k->o.method->flop ? "products" : "copied bytes");
    bench_write(csv, &(struct bench_row){.bench = "optim",
                                         .what = what,
                                         .flags = flags,
                                         .unit = "ms",
                                         .value = 1e3 * bench_median(&steps),
                                         .baseline = 1e3 * bench_median(&floors)});
    return ERR_OK;
}

static enum err bench(const char *optimizer, const char *csv)
{
    struct work k = {.arena = arena_make(0)};
    enum err e = configure(&k, optimizer);
    e = e ? e : take(&k);
    e = e ? e : measure(&k, csv);
    give(&k);
    return e;
}

int main(int argc, char **argv)
{
    const char *csv = bench_arguments(argc, argv);
    static const char *const optimizers[] = {
#define X(VALUE, name) #name,
        OPTIM_LIST(X)
#undef X
    };
    for (size_t i = 0; csv && i < sizeof optimizers / sizeof *optimizers; i++)
        if (bench(optimizers[i], csv)) {
            fprintf(stderr, "%s\n", err_message());
            return 1;
        }
    return csv ? 0 : 2;
}
