/* SPDX-License-Identifier: Apache-2.0 */
/* What the loader costs next to the step that it feeds: batches of masked text of every kind of
 * mask and pair, and forward and backward of a small BERT (6 layers of 320, vocabulary 8192) on the
 * same batches. Processor time of one thread. The targets of the whole step are counted where a
 * step has targets of two kinds. Built by `ninja bench`.
 *
 *     bench_loader [--csv PATH]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/data/objective.h"
#include "tests/inner/params.h"
#include "inner/model/model.h"
#include "kernels/base/rng.h"
#include "tests/bench/bench.h"

enum {
    SEQUENCE = 128,
    SEQUENCES = 32,
    VOCAB = 8192,
    FIRST = 5,
    DOCUMENTS = 400,
    LOADS = 51,
    STEPS = 3
};

struct bench {
    struct arena a;
    struct settings s;
    struct table t;
    struct dev *d;
    struct model *m;
    char directory[64];
};

/* Sentences of 1 to 40 random ids, 20 a document; a piece in three continues a word. */
static enum err write_text(const struct bench *x)
{
    struct indexed_writer w = {0};
    struct sidecar s = sidecar_none();
    char path[100], *text = malloc(VOCAB * 12u), *at = text;
    TRY_ALLOC(text);
    snprintf(path, sizeof path, "%s/text", x->directory);
    TRY(indexed_open(&w, path, VOCAB));
    for (uint64_t i = 0; i < 20 * DOCUMENTS; i++) {
        int32_t ids[40];
        size_t n = 1 + (size_t)rng_below(1, RNG_TEST, i, 40);
        for (size_t j = 0; j < n; j++)
            ids[j] = FIRST + (int32_t)rng_below(2, RNG_TEST, 40 * i + j, VOCAB - FIRST);
        TRY(indexed_sentence(&w, ids, n));
        if (i % 20 == 19)
            TRY(indexed_document_end(&w));
    }
    TRY(indexed_close(&w));
    for (int i = 0; i < VOCAB; i++)
        at += sprintf(at, "%sw%d\n", i % 3 ? "" : "##", i);
    snprintf(path, sizeof path, "%s/vocab.txt", x->directory);
    struct file_part whole = {text, (size_t)(at - text)};
    enum err e = file_write(path, &whole, 1, 0644);
    free(text);
    TRY(e);
    s.tokenizer = "vocab.txt";
    s.word_start = "##";
    s.vocab = VOCAB;
    for (int i = 0; i < SIDECAR_SPECIALS; i++)
        s.special[i] = i;
    return sidecar_write(&s, x->directory);
}

static enum err open_model(struct bench *x)
{
    char *words[] = {"--model.vocab_size=8192", "--data.tokenizer=external",
                     "--model.max_seq_len=128", "--model.layers=6",
                     "--model.d_model=320",     "--model.heads=5",
                     "--model.causal=false",    "--data.objective=mlm",
                     "--device.dtype=f32",      "--train.batch_tokens=4096"};
    struct config_table t = keys_inner(&x->s);
    struct dev_options o = {.kind = "cpu", .model_type = "f32", .threads = 1};
    TRY(config_load(&t, 1, NULL, sizeof words / sizeof *words, words, &x->a));
    TRY(table_make(&x->t, &x->s, &x->a));
    TRY(dev_open(&x->d, &o));
    TRY(model_open(&x->m, x->d, &(struct model_options){&x->s, &x->t, SEQUENCE * SEQUENCES, true},
                   &x->a));
    table_init(&x->t, 1, model_params(x->m));
    model_params_changed(x->m);
    return ERR_OK;
}

/* Medians of a step's batch, counts included, and, where `model`, of its forward and backward. */
static enum err measure(struct bench *x, bool model, double seconds[2], size_t *tokens)
{
    char path[100];
    struct loader l;
    struct batch b;
    struct bench_times load = {.count = 0}, step = {.count = 0};
    struct loader_options o = {.ranks = 1,
                               .sequence = SEQUENCE,
                               .batch_tokens = SEQUENCE * SEQUENCES,
                               .vocab = VOCAB,
                               .objective = &objective_mlm,
                               .settings = &x->s};
    snprintf(path, sizeof path, "%s/text.bin", x->directory);
    struct config_list list = {(const char *[]){path}, 1};
    TRY(loader_open(&l, &x->a, &list, &o));
    TRY(objective_batch_open(o.objective, &b, &x->a, SEQUENCES, SEQUENCE));
    for (uint64_t i = 0; i < LOADS; i++) {
        struct model_loss loss;
        double begin = bench_cpu();
        b.sequence_weight = (float)objective_sequence_weight(&l, i);
        objective_step(&l, i, 0, SEQUENCES, &b);
        double middle = bench_cpu();
        bench_add(&load, middle - begin);
        if (!model || i >= STEPS)
            continue;
        TRY(model_step(x->m, &b, 1, NULL, &loss));
        bench_add(&step, bench_cpu() - middle);
    }
    *tokens = b.tokens_count - b.filled;
    seconds[0] = bench_median(&load);
    seconds[1] = model ? bench_median(&step) : seconds[1];
    loader_close(&l);
    return ERR_OK;
}

static enum err run(struct bench *x, const char *csv)
{
    static const char *const masks[] = {"token", "word", "ngram"};
    static const char *const pairs[] = {"none", "nsp", "sop"};
    double seconds[2] = {0};
    TRY(write_text(x));
    TRY(open_model(x));
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 3; k++) {
            size_t tokens;
            char what[64], flags[128];
            x->s.data_mask = (enum data_mask)k;
            x->s.data_pairs = (enum data_pairs)p;
            TRY(measure(x, !p && !k, seconds, &tokens));
            snprintf(what, sizeof what, "mask %s pairs %s: share of a step", masks[k], pairs[p]);
            snprintf(flags, sizeof flags, "%s; %zu tokens; %d threads; %.1f ns a token",
                     BENCH_COMPILER, tokens, x->d->threads, 1e9 * seconds[0] / (double)tokens);
            bench_write(csv, &(struct bench_row){.bench = "loader",
                                                 .what = what,
                                                 .unit = "s",
                                                 .flags = flags,
                                                 .value = seconds[0],
                                                 .baseline = seconds[1]});
        }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    struct bench x = {.a = arena_make(0), .directory = "/tmp/atoll-bench-XXXXXX"};
    const char *csv = bench_arguments(argc, argv);
    if (!csv || !mkdtemp(x.directory))
        return 4;
    enum err e = run(&x, csv);
    if (e)
        fprintf(stderr, "%s\n", err_message());
    model_close(x.m);
    if (x.d)
        dev_close(x.d);
    arena_free(&x.a);
    return file_remove_tree(x.directory) || e ? 1 : 0;
}
