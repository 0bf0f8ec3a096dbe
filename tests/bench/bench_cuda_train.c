/* Whole training steps on the GPU: forward, backward, clip, optimizer, on random ids. GPT-2's sizes
 * and 1b: Llama 3.2 1B (1,235,814,400 parameters: 16 layers of 2048, 32 heads over 8 of keys and
 * values, SwiGLU of 8192, vocabulary 128256). Rows as bench.h says: tokens/s beside what 989
 * TFLOP/s (H100, H200, dense bf16) would give, so value / baseline is the MFU; then where a step's
 * time goes. Exit code 77 without the device.
 *
 *     bench_cuda_train [SIZE [SEQUENCES [cuda|cpu]]] [--csv PATH]
 *
 * SIZE 124m, 1558m, 1b, or 10m or 10m_llama for a try on a CPU; SEQUENCES of a step, one
 * micro-batch, default 64.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/optim/optim.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"

enum { WARM = 3, STEPS = 10, SKIP = 77, WORD_BYTES = 16 };

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
    char *words[] = {"--model.vocab",      number(&r->a, z->vocab),
                     "--model.layers",     number(&r->a, z->layers),
                     "--model.heads",      number(&r->a, z->heads),
                     "--model.width",      number(&r->a, z->width),
                     "--model.mlp",        number(&r->a, z->mlp),
                     "--model.context",    number(&r->a, z->sequence),
                     "--train.sequence",   number(&r->a, z->sequence),
                     "--model.kv_heads",   number(&r->a, z->kv_heads),
                     "--model.norm",       z->kv_heads ? "rms" : "layer",
                     "--model.positions",  z->kv_heads ? "rope" : "learned",
                     "--model.activation", z->kv_heads ? "swiglu" : "gelu",
                     "--model.bias",       z->kv_heads ? "false" : "true",
                     "--data.tokenizer",   "external",
                     "--train.warmup",     "0",
                     "--train.optimizer",  optimizer_word,
                     "--device.kind",      kind_word};
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

static enum err open_run(struct run *r, const char *kind, const char *optimizer, bool graphs,
                         size_t sequences)
{
    size_t T = sequences * (size_t)r->size->sequence;
    struct dev_options o = {.kind = kind, .model_type = "bf16", .graphs = graphs};
    TRY(configure(r, kind, optimizer));
    TRY(table_make(&r->t, &r->s, &r->a));
    TRY(dev_open(&r->d, &o));
    TRY(model_open(&r->m, r->d, &r->s, &r->t, T, true, &r->a));
    TRY(coll_self_open(&r->c));
    TRY(optim_open(&r->o, r->d, r->c, &r->s, &r->t, &r->a));
    TRY(batch_open(&r->b, &r->a, T, sequences));
    float *initial = arena_array(&r->a, r->t.elements, sizeof *initial);
    TRY_ALLOC(initial);
    table_init(&r->t, 1, initial);
    r->d->ops->copy(r->d, model_params(r->m), initial, r->t.elements * sizeof *initial);
    model_params_changed(r->m);
    fill(r, sequences);
    return ERR_OK;
}

struct times {
    struct bench_times forward, both, optimizer;
};

/* Forward alone is model_eval's; the rest of model_step is the backward. */
static enum err one_step(struct run *r, struct times *t, bool counted)
{
    double loss, at[4];
    size_t count;
    at[0] = bench_now();
    TRY(model_eval(r->m, &r->b, &loss, &count));
    at[1] = bench_now();
    model_grads_zero(r->m);
    TRY(model_step(r->m, &r->b, 1.0f / (float)r->b.tokens_count, NULL, &loss, &count));
    at[2] = bench_now();
    TRY(optim_step(&r->o, r->m, r->step++));
    TRY(dev_sync(r->d));
    at[3] = bench_now();
    if (!counted)
        return ERR_OK;
    bench_add(&t->forward, at[1] - at[0]);
    bench_add(&t->both, at[2] - at[1]);
    bench_add(&t->optimizer, at[3] - at[2]);
    return ERR_OK;
}

/* 6 for each matrix weight, 12 L C T / 2 of causal attention. */
static double flop_per_token(const struct size *z)
{
    double C = z->width, shared = z->kv_heads ? (double)z->kv_heads / z->heads : 1;
    double layer = (2 + 2 * shared) * C * C + (z->kv_heads ? 3 : 2) * C * z->mlp;
    double weights = z->layers * layer + C * z->vocab;
    return 6 * weights + 6.0 * z->layers * C * z->sequence;
}

static enum err measure(const struct size *z, const char *kind, const char *optimizer, bool graphs,
                        size_t sequences, const char *csv)
{
    struct run r = {.size = z, .a = arena_make(0)};
    struct times t = {.forward = {.count = 0}};
    char what[96];
    enum err e = open_run(&r, kind, optimizer, graphs, sequences);
    for (int i = 0; e == ERR_OK && i < WARM + STEPS; i++)
        e = one_step(&r, &t, i >= WARM);
    if (e == ERR_OK) {
        double forward = bench_median(&t.forward), both = bench_median(&t.both),
               update = bench_median(&t.optimizer);
        snprintf(what, sizeof what, "%s %s%s %zu x %d", z->name, optimizer, graphs ? " graphs" : "",
                 sequences, z->sequence);
        bench_write(csv, &(struct bench_row){"cuda_train", what, "tokens/s", "bf16",
                                             (double)r.b.tokens_count / (both + update),
                                             989e12 / flop_per_token(z)});
        printf("  %s: forward %.2f ms, backward %.2f ms, optimizer %.2f ms; MFU %.3f\n", what,
               1e3 * forward, 1e3 * (both - forward), 1e3 * update,
               (double)r.b.tokens_count / (both + update) * flop_per_token(z) / 989e12);
    }
    optim_close(&r.o);
    model_close(r.m);
    coll_close(r.c);
    dev_close(r.d);
    arena_free(&r.a);
    return e;
}

int main(int argc, char **argv)
{
    const char *words[3] = {"124m", "64", "cuda"}, *csv;
    int n = 1;
    for (; n < argc && n <= 3 && strncmp(argv[n], "--", 2); n++)
        words[n - 1] = argv[n];
    argv[n - 1] = argv[0];
    csv = bench_arguments(argc - n + 1, argv + n - 1);
    const struct size *z = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        z = strcmp(sizes[i].name, words[0]) ? z : &sizes[i];
    if (!csv || !z || atoi(words[1]) < 1) {
        fprintf(stderr, "usage: bench_cuda_train [124m|1558m|1b|10m|10m_llama [SEQUENCES "
                        "[cuda|cpu]]] [--csv PATH]\n");
        return 4;
    }
    for (int k = 0; k < 3; k++) {
        enum err e =
            measure(z, words[2], k == 2 ? "lamb" : "adamw", k == 1, (size_t)atoi(words[1]), csv);
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
