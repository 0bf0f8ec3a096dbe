/* Training steps of GPTs of about 10 M and 30 M parameters: forward, backward, clip, AdamW, on
 * random ids. It answers "go N" on stdin with the seconds of each of N steps on one line, so that
 * tests/bench/train.py can take turns between this and others; at "stop" or the end of input it
 * ends. Built by `ninja bench`.
 *
 *     bench_train 10m|30m f32|bf16 THREADS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/optim/optim.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"

enum { SEQUENCES = 16, SEQUENCE = 256, TOKENS = SEQUENCES * SEQUENCE };

/* Vocabulary 8192. 10m: 6 x 320, 10.1 M parameters; 30m: 8 x 512, 29.5 M. */
static enum err configure(struct settings *s, const char *size, struct arena *a)
{
    const char *shape[2][3] = {{"6", "320", "5"}, {"8", "512", "8"}};
    int i = !strcmp(size, "30m");
    char *words[] = {"--model.vocab",     "8192",
                     "--data.tokenizer",  "external",
                     "--model.context",   "256",
                     "--train.sequence",  "256",
                     "--train.optimizer", "adamw",
                     "--train.warmup",    "0",
                     "--model.layers",    (char *)(uintptr_t)shape[i][0],
                     "--model.width",     (char *)(uintptr_t)shape[i][1],
                     "--model.heads",     (char *)(uintptr_t)shape[i][2]};
    struct config_table t = keys_inner(s);
    if (!i && strcmp(size, "10m"))
        return err_set(ERR_CONFIG, "\"%s\" is neither 10m nor 30m", size);
    return config_load(&t, 1, NULL, sizeof words / sizeof *words, words, a);
}

struct run {
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

static enum err open_run(struct run *r, const char *size, const char *type, int threads)
{
    struct dev_options o = {.kind = "cpu", .model_type = type, .threads = threads};
    TRY(configure(&r->s, size, &r->a));
    TRY(table_make(&r->t, &r->s, &r->a));
    TRY(dev_open(&r->d, &o));
    TRY(model_open(&r->m, r->d, &(struct model_options){&r->s, &r->t, TOKENS, true}, &r->a));
    TRY(coll_self_open(&r->c));
    TRY(optim_open(&r->o, r->d, r->c, &r->s, &r->t, &r->a));
    TRY(batch_open(&r->b, &r->a, TOKENS, SEQUENCES));
    table_init(&r->t, 1, model_params(r->m));
    model_params_changed(r->m);
    fprintf(stderr, "%s: %zu parameters, %s\n", size, r->t.parameters, r->d->note);
    return ERR_OK;
}

static void next_batch(struct run *r)
{
    r->b.tokens_count = TOKENS;
    r->b.sequences = SEQUENCES;
    for (int i = 0; i < TOKENS; i++) {
        r->b.tokens[i] = (int32_t)rng_below((uint64_t)r->step, RNG_TEST, (uint64_t)i, 8192);
        r->b.targets[i] =
            (int32_t)rng_below((uint64_t)r->step, RNG_TEST, (uint64_t)(i + TOKENS), 8192);
        r->b.positions[i] = i % SEQUENCE;
        r->b.cu_seqlens[i / SEQUENCE + 1] = (i / SEQUENCE + 1) * SEQUENCE;
    }
}

static enum err one_step(struct run *r, double *seconds)
{
    struct model_loss loss;
    next_batch(r);
    double start = bench_now();
    model_grads_zero(r->m);
    TRY(model_step(r->m, &r->b, 1, NULL, &loss));
    const double stats[STEP_STATS] = {[STEP_LOSS] = loss.sum[MODEL_LOSS_TOKEN],
                                      [STEP_TARGETS] = (double)loss.count[MODEL_LOSS_TOKEN]};
    r->d->ops->copy(r->d, r->o.stats, stats, sizeof stats);
    TRY(optim_step(&r->o, r->m, r->step++));
    *seconds = bench_now() - start;
    return ERR_OK;
}

static enum err answer(struct run *r)
{
    char line[64];
    while (fgets(line, sizeof line, stdin) && !strncmp(line, "go ", 3)) {
        for (long n = strtol(line + 3, NULL, 10); n > 0; n--) {
            double seconds;
            TRY(one_step(r, &seconds));
            printf("%.6f ", seconds);
        }
        printf("\n");
        fflush(stdout);
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static struct run r;
    if (argc != 4) {
        fprintf(stderr, "usage: bench_train 10m|30m f32|bf16 THREADS\n");
        return 2;
    }
    enum err e = open_run(&r, argv[1], argv[2], atoi(argv[3]));
    if (!e)
        e = answer(&r);
    if (e)
        fprintf(stderr, "%s\n", err_message());
    return e != ERR_OK;
}
