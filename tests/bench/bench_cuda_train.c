/* SPDX-License-Identifier: Apache-2.0 */
/* Whole training steps on the GPU: forward, backward, clip, optimizer, on random ids. GPT-2's sizes
 * and 1b: Llama 3.2 1B (1,235,814,400 parameters: 16 layers of 2048, 32 heads over 8 of keys and
 * values, SwiGLU of 8192, vocabulary 128256). Rows as bench.h says: tokens/s next to what 989
 * TFLOP/s (H100, H200, dense bf16) would give, so value / baseline is the MFU; then where a step's
 * time goes, class by class, and the least time and what log.md predicts. Exit code 77 without
 * the device.
 *
 *     bench_cuda_train [SIZE [SEQUENCES [cuda|cpu|predict [VARIANT]]]] [--csv PATH]
 *
 * predict: the table of log.md for an H200, of any machine: nothing is run.
 * SIZE 124m, 1558m, 1b, or 10m or 10m_llama for a try on a CPU; SEQUENCES of a step, one
 * micro-batch, default 64. VARIANT adamw (default), graphs (AdamW in CUDA graphs), lamb, or all.
 *
 * Weights repeat a pattern of 2^20 normal values, so that a model of 1.2 billion parameters begins
 * in seconds; random ids and such weights cost the GPU what trained ones do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/optim/optim.h"
#include "tests/inner/params.h"
#include "inner/train/work.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"

enum { WARM = 4, STEPS = 10, PROFILED = 3, SKIP = 77, PATTERN = 1 << 20 };

static const struct size {
    const char *name;
    int layers, heads, width, mlp, sequence, vocab;
    int kv_heads; /* of a Llama; 0: GPT-2 */
} sizes[] = {{"10m", 6, 5, 320, 1280, 256, 8192, 0},
             {"10m_llama", 6, 5, 320, 864, 256, 8192, 1},
             {"124m", 12, 12, 768, 3072, 1024, 50257, 0},
             {"1558m", 48, 25, 1600, 6400, 1024, 50257, 0},
             {"1b", 16, 32, 2048, 8192, 2048, 128256, 8}};

struct run {
    const struct size *size;
    struct settings s;
    struct table t;
    struct dev *d;
    struct coll *c;
    struct model *m;
    struct optim o;
    struct batch b;
    struct profile profile;
    int64_t step;
    struct arena a;
};

static char *number(struct arena *a, int x)
{
    return arena_printf(a, "%d", x);
}

static enum err configure(struct run *r, const char *kind, const char *optimizer)
{
    const struct size *z = r->size;
    char *optimizer_word = arena_string(&r->a, optimizer, strlen(optimizer));
    char *kind_word = arena_string(&r->a, kind, strlen(kind));
    char *words[] = {"--model.vocab_size",   number(&r->a, z->vocab),
                     "--model.layers",       number(&r->a, z->layers),
                     "--model.heads",        number(&r->a, z->heads),
                     "--model.d_model",      number(&r->a, z->width),
                     "--model.d_ff",         number(&r->a, z->mlp),
                     "--model.max_seq_len",  number(&r->a, z->sequence),
                     "--train.seq_len",      number(&r->a, z->sequence),
                     "--model.kv_heads",     number(&r->a, z->kv_heads),
                     "--model.norm",         z->kv_heads ? "rms" : "layer",
                     "--model.positions",    z->kv_heads ? "rope" : "learned",
                     "--model.activation",   z->kv_heads ? "swiglu" : "gelu",
                     "--model.bias",         z->kv_heads ? "false" : "true",
                     "--data.tokenizer",     "external",
                     "--train.warmup_steps", "0",
                     "--train.optimizer",    optimizer_word,
                     "--device.kind",        kind_word};
    struct config_table t = keys_inner(&r->s);
    return config_load(&t, 1, NULL, sizeof words / sizeof *words, words, &r->a);
}

static void fill(struct run *r, size_t sequences)
{
    size_t S = (size_t)r->size->sequence, T = sequences * S;
    uint64_t V = (uint64_t)r->size->vocab;
    r->b.tokens_count = T;
    r->b.sequences = sequences;
    for (size_t i = 0; i < T; i++) {
        r->b.tokens[i] = (int32_t)rng_below(1, RNG_TEST, i, V);
        r->b.targets[i] = (int32_t)rng_below(1, RNG_TEST, i + T, V);
        r->b.positions[i] = (int32_t)(i % S);
        r->b.cu_seqlens[i / S + 1] = (int32_t)((i / S + 1) * S);
    }
}

/* The initial parameters: of a matrix the pattern again and again, scaled as table_init scales. */
static enum err weights_by_pattern(struct run *r)
{
    float *normal = arena_array(&r->a, PATTERN, sizeof *normal);
    float *part = arena_array(&r->a, PATTERN, sizeof *part);
    TRY_ALLOC(normal);
    TRY_ALLOC(part);
    for (size_t i = 0; i < PATTERN; i++)
        normal[i] = rng_normal(1, RNG_TEST, i);
    for (size_t i = 0; i < r->t.count; i++) {
        const struct tensor *x = &r->t.tensors[i];
        size_t count = (size_t)x->shape[0] * (size_t)x->shape[1];
        if (x->init == TABLE_ZERO)
            continue;        /* as model_open left them */
        TRY(dev_sync(r->d)); /* the last tensor's copies have read `part` */
        for (size_t j = 0; j < PATTERN; j++)
            part[j] = x->init == TABLE_ONE ? 1.0f : x->std * normal[j];
        for (size_t j = 0; j < count; j += PATTERN) {
            size_t n = count - j < PATTERN ? count - j : PATTERN;
            r->d->ops->copy(r->d, model_params(r->m) + x->offset + j, part, n * sizeof *part);
        }
    }
    return dev_sync(r->d);
}

static enum err open_run(struct run *r, const char *kind, const char *optimizer, bool graphs,
                         size_t sequences)
{
    size_t T = sequences * (size_t)r->size->sequence;
    struct dev_options o = {.kind = kind, .model_type = "bf16", .graphs = graphs};
    TRY(configure(r, kind, optimizer));
    TRY(table_make(&r->t, &r->s, &r->a));
    TRY(dev_open(&r->d, &o));
    TRY(model_open(&r->m, r->d, &(struct model_options){&r->s, &r->t, T, true}, &r->a));
    TRY(coll_self_open(&r->c));
    TRY(optim_open(&r->o, r->d, r->c, &r->s, &r->t, &r->a));
    TRY(batch_open(&r->b, &r->a, T, sequences));
    TRY(weights_by_pattern(r));
    model_params_changed(r->m);
    fill(r, sequences);
    profile_open(&r->profile, r->d);
    model_profile(r->m, &r->profile);
    return ERR_OK;
}

/* As train.c gives it to the device, without a wait. */
static enum err one_step(struct run *r)
{
    model_grads_zero(r->m);
    double targets = (double)r->b.tokens_count;
    r->d->ops->zero(r->d, r->o.buffers.stats, STEP_STATS * sizeof *r->o.buffers.stats);
    r->d->ops->copy(r->d, r->o.buffers.stats + STEP_TARGETS, &targets, sizeof targets);
    profile_record(&r->profile, PROFILE_UPLOAD);
    TRY(model_accumulate(r->m, &r->b, 1, NULL, r->o.buffers.stats + STEP_LOSS));
    TRY(optim_step(&r->o, r->m, r->step++));
    profile_record(&r->profile, PROFILE_UPDATE);
    return ERR_OK;
}

/* Seconds of a step, the median; how often the host waited for the device in all of them. */
static enum err time_steps(struct run *r, double *seconds, unsigned *waits)
{
    unsigned marks = dev_events(r->d, STEPS + 1);
    struct bench_times t = {.count = 0};
    for (int i = 0; i < WARM; i++)
        TRY(one_step(r));
    uint64_t drains = r->d->sync_count;
    for (unsigned i = 0; i < STEPS; i++) {
        r->d->ops->event_record(r->d, marks + i);
        TRY(one_step(r));
    }
    r->d->ops->event_record(r->d, marks + STEPS);
    *waits = (unsigned)(r->d->sync_count - drains);
    TRY(dev_sync(r->d));
    for (unsigned i = 0; i < STEPS; i++)
        bench_add(&t, r->d->ops->event_seconds(r->d, marks + i, marks + i + 1));
    *seconds = bench_median(&t);
    return ERR_OK;
}

static enum err profile_steps(struct run *r)
{
    for (int i = 0; i < PROFILED; i++) {
        profile_begin(&r->profile, true);
        TRY(one_step(r));
        TRY(profile_collect(&r->profile));
    }
    profile_begin(&r->profile, false);
    return ERR_OK;
}

/* What log.md expects of an H200: products at 650 TFLOP/s, causal attention at 230 and 180
 * (FlashAttention 2's rates on an H100 at sequence 1024, a quarter less for the diagonal), passes
 * over memory at 80 % of the copy rate, the softmax after the classifier's products. */
static double predicted_seconds(enum profile_class c, const struct work *w)
{
    const double products = 650e12, forward = 230e12, backward = 180e12, memory = 0.8 * 4.3e12;
    double rate = c == PROFILE_ATTENTION       ? forward
                  : c == PROFILE_ATTENTION_BWD ? backward
                                               : products;
    double softmax = c == PROFILE_CLASSIFIER ? 2.0 / 5 * w->bytes / memory : 0;
    return w->flop > 0 ? w->flop / rate + softmax : w->bytes / memory;
}

/* One line for each class; profile NULL: the prediction alone. */
static void print_table(const struct run *r, const struct profile *p, size_t tokens)
{
    const struct work_step step = {
        .tokens = tokens, .micro = tokens, .type = DTYPE_BF16, .update_share = 1};
    const struct work_peak peak = work_peak_h200();
    double all[3] = {0};
    printf("  %-14s %9s %9s %9s %9s %7s\n", "class", "least ms", "predicted", "measured", "TFLOP/s",
           "GB/s");
    for (int c = PROFILE_UPLOAD; c < PROFILE_COUNT; c++) {
        struct work w = work_of(&r->s, &r->t, &step, (enum profile_class)c);
        double seconds[3] = {work_seconds(&w, &peak), predicted_seconds((enum profile_class)c, &w),
                             p ? p->seconds[c] / p->steps : 0};
        for (int i = 0; i < 3; i++)
            all[i] += seconds[i];
        if (w.bytes > 0)
            printf("  %-14s %9.3f %9.3f %9.3f %9.1f %7.0f\n", profile_name((enum profile_class)c),
                   1e3 * seconds[0], 1e3 * seconds[1], 1e3 * seconds[2],
                   p ? 1e-12 * w.flop / seconds[2] : 0, p ? 1e-9 * w.bytes / seconds[2] : 0);
    }
    printf("  %-14s %9.3f %9.3f %9.3f\n", "all", 1e3 * all[0], 1e3 * all[1], 1e3 * all[2]);
}

/* 6 for each matrix weight, 12 L C T / 2 of causal attention. */
static double flop_per_token(const struct size *z)
{
    double C = z->width, shared = z->kv_heads ? (double)z->kv_heads / z->heads : 1;
    double layer = (2 + 2 * shared) * C * C + (z->kv_heads ? 3 : 2) * C * z->mlp;
    double weights = z->layers * layer + C * z->vocab;
    return 6 * weights + 6.0 * z->layers * C * z->sequence;
}

static void say(const struct run *r, const char *what, double seconds, unsigned waits,
                const char *csv)
{
    double tokens = (double)r->b.tokens_count;
    char flags[80];
    bench_gpu(flags, sizeof flags, r->d->note);
    bench_write(csv, &(struct bench_row){"cuda_train", what, "tokens/s", flags, tokens / seconds,
                                         989e12 / flop_per_token(r->size)});
    printf("  %s: %.2f ms, MFU %.3f, the host waited %u times in %d steps\n", what, 1e3 * seconds,
           tokens / seconds * flop_per_token(r->size) / 989e12, waits, STEPS);
}

static enum err measure(const struct size *z, const char *kind, const char *optimizer, bool graphs,
                        size_t sequences, const char *csv)
{
    static struct run r;
    double seconds = 0;
    unsigned waits = 0;
    char what[96];
    r = (struct run){.size = z, .a = arena_make(0)};
    enum err e = open_run(&r, kind, optimizer, graphs, sequences);
    if (e == ERR_OK)
        e = time_steps(&r, &seconds, &waits);
    if (e == ERR_OK && !graphs)
        e = profile_steps(&r);
    if (e == ERR_OK) {
        snprintf(what, sizeof what, "%s %s%s %zu x %d", z->name, optimizer, graphs ? " graphs" : "",
                 sequences, z->sequence);
        say(&r, what, seconds, waits, csv);
        if (!graphs)
            print_table(&r, &r.profile, r.b.tokens_count);
    }
    optim_close(&r.o);
    model_close(r.m);
    coll_close(r.c);
    dev_close(r.d);
    arena_free(&r.a);
    return e;
}

static enum err predict(const struct size *z, size_t sequences)
{
    static struct run r;
    size_t tokens = sequences * (size_t)z->sequence;
    r = (struct run){.size = z, .a = arena_make(0)};
    enum err e = configure(&r, "cpu", "adamw");
    if (e == ERR_OK)
        e = table_make(&r.t, &r.s, &r.a);
    if (e == ERR_OK) {
        printf("%s adamw %zu x %d, a prediction for one H200; at 989 TFLOP/s: %.2f ms\n", z->name,
               sequences, z->sequence, 1e3 * (double)tokens * flop_per_token(z) / 989e12);
        print_table(&r, NULL, tokens);
    }
    arena_free(&r.a);
    return e;
}

static const char *const variants[] = {"adamw", "graphs", "lamb"};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const struct size *size_of(const char *name)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].name, name))
            return &sizes[i];
    return NULL;
}

static bool known_variant(const char *name)
{
    for (size_t i = 0; i < VARIANTS; i++)
        if (!strcmp(variants[i], name))
            return true;
    return !strcmp(name, "all");
}

int main(int argc, char **argv)
{
    const char *words[4] = {"124m", "64", "cuda", "adamw"}, *csv;
    int n = 1;
    for (; n < argc && n <= 4 && strncmp(argv[n], "--", 2); n++)
        words[n - 1] = argv[n];
    argv[n - 1] = argv[0];
    csv = bench_arguments(argc - n + 1, argv + n - 1);
    const struct size *z = size_of(words[0]);
    if (!csv || !z || atoi(words[1]) < 1 || !known_variant(words[3])) {
        fprintf(stderr, "usage: bench_cuda_train [124m|1558m|1b|10m|10m_llama [SEQUENCES "
                        "[cuda|cpu|predict [adamw|graphs|lamb|all]]]] [--csv PATH]\n");
        return 4;
    }
    size_t sequences = (size_t)atoi(words[1]);
    if (!strcmp(words[2], "predict")) {
        enum err e = predict(z, sequences);
        return e ? err_exit_code(e) : 0;
    }
    for (size_t k = 0; k < VARIANTS; k++) {
        if (strcmp(words[3], "all") && strcmp(words[3], variants[k]))
            continue;
        enum err e = measure(z, words[2], k == 2 ? "lamb" : "adamw", k == 1, sequences, csv);
        if (e == ERR_UNSUPPORTED) {
            printf("SKIPPED: %s\n", err_message());
            return SKIP;
        }
        if (e) {
            fprintf(stderr, "bench_cuda_train: %s\n", err_message());
            return err_exit_code(e);
        }
    }
    return 0;
}
