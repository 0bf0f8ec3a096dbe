/* SPDX-License-Identifier: Apache-2.0 */
/* Training steps, forward, backward, clip, AdamW, on random ids: GPTs of about 10 M and 30 M
 * parameters, and BERTs with masked tokens (B1, 1.3 M, and BERT-base, 110 M) whose sequences may
 * be shorter than their slots. It answers lines on stdin, so that tests/bench/train.py and
 * encoder.py can take turns between this and others; at "stop" or the end of input it ends. Built
 * by `ninja bench`.
 *
 *     bench_train 10m|30m f32|bf16 THREADS
 *     bench_train b1|base f32|bf16 THREADS SEQUENCE FILL [MASKED]
 *
 * go N: the seconds of each of N steps on one line; cpu N: their processor time. work: real tokens
 * and GFLOP of a step. peak: GFLOP/s of these threads, in a loop of multiply-adds and in a product
 * of 1,536^3 by the device. profile N: where N steps go, class by class, one line each, then an
 * empty line.
 *
 * FILL: real tokens in percent of the slots. Sequence i of n has length SEQUENCE (low + (high -
 * low) i / (n - 1)), rounded down, low = 2 FILL - 1 or 0, high = 2 FILL - low: from 50 % on the
 * longest fills its slot. MASKED: percent of the real tokens that have a target, by place; 15.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/optim/optim.h"
#include "tests/inner/params.h"
#include "inner/train/work.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"
#include "tests/bench/peak.h"

enum { PRODUCT = 1536, PRODUCTS = 7 };

/* slots: of a step. 10m: 10.1 M parameters; 30m: 29.5 M. */
static const struct size {
    const char *name, *layers, *width, *heads, *vocab;
    int slots;
    bool encoder;
} sizes[] = {{"10m", "6", "320", "5", "8192", 4096, false},
             {"30m", "8", "512", "8", "8192", 4096, false},
             {"b1", "4", "128", "4", "4096", 4096, true},
             {"base", "12", "768", "12", "30522", 1024, true}};

struct run {
    const struct size *size;
    int sequence, fill, masked; /* tokens of a slot; percent; percent */
    struct settings s;
    struct table t;
    struct dev *d;
    struct coll *c;
    struct model *m;
    struct optim o;
    struct batch b;
    size_t tokens; /* real ones */
    struct profile profile;
    int64_t step;
    struct arena a;
};

static char *word(const char *text)
{
    return (char *)(uintptr_t)text;
}

static enum err configure(struct run *r)
{
    const struct size *z = r->size;
    char *length = arena_printf(&r->a, "%d", r->sequence);
    char *slots = arena_printf(&r->a, "%d", z->slots);
    char *words[] = {"--model.vocab_size",   word(z->vocab),
                     "--data.tokenizer",     "external",
                     "--model.max_seq_len",  length,
                     "--train.seq_len",      length,
                     "--train.batch_tokens", slots,
                     "--train.optimizer",    "adamw",
                     "--train.warmup_steps", "0",
                     "--model.layers",       word(z->layers),
                     "--model.d_model",      word(z->width),
                     "--model.heads",        word(z->heads),
                     "--model.causal",       "false",
                     "--data.objective",     "mlm",
                     "--model.head",         "mlm",
                     "--model.norm_place",   "post",
                     "--model.embed_norm",   "true",
                     "--model.token_types",  "2",
                     "--model.activation",   "gelu_erf"};
    enum { OF_ENCODERS = 14 };
    int count = (int)(sizeof words / sizeof *words) - (z->encoder ? 0 : OF_ENCODERS);
    struct config_table t = keys_inner(&r->s);
    return config_load(&t, 1, NULL, count, words, &r->a);
}

static size_t sequence_length(const struct run *r, int i, int n)
{
    int low = r->fill > 50 ? 2 * r->fill - 100 : 0, high = 2 * r->fill - low;
    int64_t percents = n > 1 ? (int64_t)low * (n - 1) + (high - low) * i : r->fill;
    int64_t length = r->sequence * percents / (100 * (n > 1 ? n - 1 : 1));
    return length > 0 ? (size_t)length : 1;
}

static enum err open_model(struct run *r)
{
    size_t slots = (size_t)r->size->slots;
    int n = r->size->slots / r->sequence;
    TRY(model_open(&r->m, r->d, &(struct model_options){&r->s, &r->t, slots, true}, &r->a));
    TRY(coll_self_open(&r->c));
    TRY(optim_open(&r->o, r->d, r->c, &r->s, &r->t, &r->a));
    TRY(batch_open(&r->b, &r->a, slots, (size_t)n + 1));
    table_init(&r->t, 1, model_params(r->m));
    model_params_changed(r->m);
    profile_open(&r->profile, r->d);
    model_profile(r->m, &r->profile);
    for (int i = 0; i < n; i++)
        r->tokens += sequence_length(r, i, n);
    fprintf(stderr, "%s: %zu parameters, %s\n", r->size->name, r->t.parameters, r->d->note);
    return ERR_OK;
}

static enum err open_run(struct run *r, int argc, char **argv)
{
    struct dev_options o = {.kind = "cpu", .model_type = argv[2], .threads = atoi(argv[3])};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(argv[1], sizes[i].name))
            r->size = &sizes[i];
    if (!r->size || r->size->encoder != (argc >= 6))
        return err_set(ERR_CONFIG, "\"%s\": 10m, 30m, or with SEQUENCE and FILL b1, base", argv[1]);
    r->sequence = argc >= 6 ? atoi(argv[4]) : 256;
    r->fill = argc >= 6 ? atoi(argv[5]) : 100;
    r->masked = argc == 7 ? atoi(argv[6]) : 15;
    if (r->sequence < 1 || r->size->slots % r->sequence || r->fill < 20 || r->fill > 100 ||
        r->masked < 1 || r->masked > 100)
        return err_set(ERR_CONFIG, "SEQUENCE divides %d, 20 <= FILL <= 100, 1 <= MASKED <= 100",
                       r->size->slots);
    TRY(configure(r));
    TRY(table_make(&r->t, &r->s, &r->a));
    TRY(dev_open(&r->d, &o));
    return open_model(r);
}

static int32_t random_id(const struct run *r, size_t i)
{
    return (int32_t)rng_below((uint64_t)r->step, RNG_TEST, i, (uint64_t)r->s.model_vocab_size);
}

static void next_batch(struct run *r)
{
    int n = r->size->slots / r->sequence;
    batch_clear(&r->b);
    for (int i = 0; i < n; i++) {
        size_t length = sequence_length(r, i, n), at = batch_append(&r->b, length);
        for (size_t t = at; t < at + length; t++) {
            bool target = !r->size->encoder || t * (size_t)r->masked % 100 < (size_t)r->masked;
            r->b.tokens[t] = random_id(r, t);
            r->b.targets[t] = target ? random_id(r, t + (size_t)r->size->slots) : -1;
        }
    }
    if (r->size->encoder)
        batch_fill_up(&r->b, 0);
}

static enum err one_step(struct run *r, double (*now)(void), double *seconds)
{
    struct model_loss loss;
    next_batch(r);
    double start = now();
    model_grads_zero(r->m);
    profile_record(&r->profile, PROFILE_UPLOAD);
    TRY(model_step(r->m, &r->b, 1, NULL, &loss));
    const double stats[STEP_STATS] = {[STEP_LOSS] = loss.sum[MODEL_LOSS_TOKEN],
                                      [STEP_TARGETS] = (double)loss.count[MODEL_LOSS_TOKEN]};
    r->d->ops->copy(r->d, r->o.buffers.stats, stats, sizeof stats);
    TRY(optim_step(&r->o, r->m, r->step++));
    profile_record(&r->profile, PROFILE_UPDATE);
    *seconds = now() - start;
    return ERR_OK;
}

static struct work class_work(struct run *r, enum profile_class c)
{
    struct work_step step = {.tokens = r->tokens,
                             .micro = r->tokens,
                             .targets = batch_targets(&r->b),
                             .type = r->d->model_type,
                             .update_share = 1};
    int n = r->size->slots / r->sequence;
    for (int i = 0; i < n; i++)
        step.sequence += (double)(sequence_length(r, i, n) * sequence_length(r, i, n));
    step.sequence /= (double)r->tokens;
    return work_of(&r->s, &r->t, &step, c);
}

static void print_work(struct run *r)
{
    double flop = 0;
    next_batch(r);
    for (int c = 0; c < PROFILE_COUNT; c++)
        flop += class_work(r, (enum profile_class)c).flop;
    printf("%zu %.6f\n", r->tokens, flop / 1e9);
}

static enum err print_peak(struct run *r, int threads)
{
    enum { ELEMENTS = PRODUCT * PRODUCT };
    float *x;
    struct dev_linear a = {.T = PRODUCT, .K = PRODUCT, .N = PRODUCT};
    size_t size = ELEMENTS * sizeof *x;
    double best = 0, (*now)(void) = threads == 1 ? bench_cpu : bench_now;
    TRY(dev_alloc(r->d, (void **)&x, 3 * size));
    a.x = x;
    a.w = x + ELEMENTS;
    for (int i = 0; i < PRODUCTS; i++) {
        double start = now();
        r->d->ops->linear_fwd(r->d, x + 2 * (size_t)ELEMENTS, &a);
        double rate = 2e-9 * PRODUCT * ELEMENTS / (now() - start);
        best = rate > best ? rate : best;
    }
    dev_free(r->d, x);
    printf("%.2f %.2f\n", peak_fma(threads), best);
    return ERR_OK;
}

static enum err print_profile(struct run *r, long steps)
{
    struct profile *p = &r->profile;
    double all = 0, seconds;
    memset(p->seconds, 0, sizeof p->seconds);
    memset(p->calls, 0, sizeof p->calls);
    p->steps = 0;
    for (long i = 0; i < steps; i++) {
        profile_begin(p, true);
        TRY(one_step(r, bench_now, &seconds));
        TRY(profile_collect(p));
    }
    profile_begin(p, false);
    for (int c = 0; c < PROFILE_COUNT; c++)
        all += p->seconds[c];
    for (int c = 0; c < PROFILE_COUNT; c++) {
        struct work w = class_work(r, (enum profile_class)c);
        double s = p->seconds[c] / p->steps;
        if (p->calls[c])
            printf("%-14s %9.3f ms %5.1f %% %8.1f GFLOP/s %7.1f GB/s\n",
                   profile_name((enum profile_class)c), 1e3 * s, 100 * p->seconds[c] / all,
                   1e-9 * w.flop / s, 1e-9 * w.bytes / s);
    }
    printf("\n");
    return ERR_OK;
}

static enum err go(struct run *r, double (*now)(void), long steps)
{
    for (; steps > 0; steps--) {
        double seconds;
        TRY(one_step(r, now, &seconds));
        printf("%.6f ", seconds);
    }
    printf("\n");
    return ERR_OK;
}

static enum err answer(struct run *r, int threads)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "go ", 3))
            TRY(go(r, bench_now, strtol(line + 3, NULL, 10)));
        else if (!strncmp(line, "cpu ", 4))
            TRY(go(r, bench_cpu, strtol(line + 4, NULL, 10)));
        else if (!strncmp(line, "profile ", 8))
            TRY(print_profile(r, strtol(line + 8, NULL, 10)));
        else if (!strcmp(line, "work\n"))
            print_work(r);
        else if (!strcmp(line, "peak\n"))
            TRY(print_peak(r, threads));
        else
            break;
        fflush(stdout);
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static struct run r;
    if (argc != 4 && argc != 6 && argc != 7) {
        fprintf(stderr, "usage: bench_train 10m|30m f32|bf16 THREADS\n"
                        "       bench_train b1|base f32|bf16 THREADS SEQUENCE FILL [MASKED]\n");
        return 2;
    }
    enum err e = open_run(&r, argc, argv);
    if (!e)
        e = answer(&r, atoi(argv[3]));
    if (e)
        fprintf(stderr, "%s\n", err_message());
    return e != ERR_OK;
}
