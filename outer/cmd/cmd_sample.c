/* SPDX-License-Identifier: Apache-2.0 */
/* atoll sample: text that a trained model writes. With --ids, or where the run's tokenizer is not
 * found, the prompt and the output are ids. */
#include <math.h>
#include <stdio.h>
#include "inner/eval/sample.h"
#include "outer/cmd/cmd.h"
#include "outer/run/load.h"
#include "outer/run/prompt.h"

struct wish {
    const char *prompt, *ids, *types, *tokenizer;
    int64_t tokens, seed;
    bool logits, class_logits;
    struct sample_options how;
    struct tokenizer *t; /* NULL: bytes, or ids */
    struct buffer text;  /* of all ids so far */
    size_t printed;      /* bytes of it */
};

/* Bytes of an incomplete character at the end of a text: its rest may come with the next id. */
static size_t incomplete(const struct buffer *text)
{
    size_t tail = 0;
    while (tail < 3 && tail < text->count && (text->data[text->count - 1 - tail] & 0xc0) == 0x80)
        tail++;
    if (tail == text->count)
        return 0;
    uint8_t lead = text->data[text->count - 1 - tail];
    size_t needed = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return needed > tail + 1 ? tail + 1 : 0;
}

/* What the last id adds to the text. */
static enum err print_text(struct wish *w, const int32_t *ids, size_t count)
{
    w->text.count = 0;
    TRY(tokenizer_decode(w->t, ids, count, true, &w->text));
    size_t end = w->text.count - incomplete(&w->text);
    if (end > w->printed)
        fwrite(w->text.data + w->printed, 1, end - w->printed, stdout);
    w->printed = end > w->printed ? end : w->printed;
    return ERR_OK;
}

/* The last of `count` ids. */
static enum err print_id(const struct load *l, struct wish *w, const int32_t *ids, size_t count)
{
    int32_t id = ids[count - 1];
    if (w->t)
        TRY(print_text(w, ids, count));
    else if (l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES && !w->ids && id < 256)
        putchar(id);
    else
        printf("%d ", (int)id);
    fflush(stdout);
    return ERR_OK;
}

/* What the model thinks of every id as the next one, for comparing with other programs
 * (deploy/check-export.py). */
static enum err write_logits(const struct load *l, struct sample *x, const int32_t *ids,
                             size_t count)
{
    int32_t id;
    TRY(sample_next(x, ids, count, 0, &id));
    for (int64_t v = 0; v < l->run.s.model_vocab_size; v++)
        printf("%.9g\n", (double)x->logits[v]);
    return ERR_OK;
}

/* ---- an encoder fills [MASK] ---- */
enum { FILLED = 5 }; /* tokens that are told of each */

/* The most likely tokens of one position, with their probabilities. */
static void print_filling(const struct wish *w, struct sample *x, size_t number)
{
    double most = (double)x->logits[0], sum = 0;
    for (size_t i = 0; i < x->vocab; i++)
        most = (double)x->logits[i] > most ? (double)x->logits[i] : most;
    for (size_t i = 0; i < x->vocab; i++)
        sum += exp((double)x->logits[i] - most);
    printf("mask %zu\n", number);
    for (size_t k = 0; k < FILLED && k < x->vocab; k++) {
        int32_t id = sample_likely(x, k);
        const char *token = tokenizer_token(w->t, id);
        printf("  %-20s %.4f\n", token ? token : "?", exp((double)x->logits[id] - most) / sum);
    }
}

static enum err fill_masks(const struct load *l, const struct wish *w, struct sample *x,
                           const int32_t *prompt, size_t count, struct arena *a)
{
    int32_t mask, *ids;
    size_t number = 0;
    if (!w->t)
        return err_set(ERR_CONFIG,
                       "model.causal = false: an encoder writes no text; it fills [MASK] in a "
                       "--prompt, or prints --logits or --class-logits");
    if (l->run.s.model_head != MODEL_HEAD_MLM)
        return err_set(ERR_CONFIG, "model.head = %s: only model.head = mlm fills [MASK]",
                       config_choice_name(model_head_choices, l->run.s.model_head));
    TRY(tokenizer_need(w->t, TOKENIZER_MASK, &mask));
    TRY(prompt_enclose(w->t, prompt, &count, a, &ids));
    TRY(sample_read(x, ids, NULL, count));
    for (size_t i = 0; i < count; i++) {
        if (ids[i] != mask)
            continue;
        TRY(sample_logits_at(x, i));
        print_filling(w, x, ++number);
    }
    return number ? ERR_OK
                  : err_set(ERR_CONFIG,
                            "the prompt has no %s, which an encoder fills: --prompt "
                            "\"The %s is ...\"",
                            tokenizer_token(w->t, mask), tokenizer_token(w->t, mask));
}

/* A line for each id of the vocabulary, position by position. */
static enum err write_position_logits(const struct load *l, struct sample *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TRY(sample_logits_at(x, i));
        for (int64_t v = 0; v < l->run.s.model_vocab_size; v++)
            printf("%.9g\n", (double)x->logits[v]);
    }
    return ERR_OK;
}

/* A line for each class of each task, or for the two classes of the pair head. */
static enum err write_class_logits(const struct load *l, struct sample *x, struct arena *a)
{
    const struct settings *s = &l->run.s;
    size_t tasks = s->model_classes.count ? s->model_classes.count : 1;
    if (!s->model_pooler)
        return err_set(ERR_CONFIG, "--class-logits with model.pooler = false: there is no head");
    for (size_t task = 0; task < tasks; task++) {
        size_t classes = s->model_classes.count ? (size_t)keys_classes(s, task) : 2;
        float *logits = arena_array(a, classes, sizeof *logits);
        TRY_ALLOC(logits);
        TRY(sample_class_logits(x, task, logits));
        for (size_t i = 0; i < classes; i++)
            printf("%.9g\n", (double)logits[i]);
    }
    return ERR_OK;
}

static enum err write_encoder(struct load *l, const struct wish *w, struct sample *x,
                              const int32_t *ids, size_t count)
{
    int32_t *types;
    if (!w->logits && !w->class_logits)
        return fill_masks(l, w, x, ids, count, l->perm);
    TRY(prompt_types(w->types, &l->run.s, count, l->perm, &types));
    TRY(sample_read(x, ids, types, count));
    return w->class_logits ? write_class_logits(l, x, l->perm) : write_position_logits(l, x, count);
}

static enum err write_text(struct load *l, void *self)
{
    struct wish *w = self;
    struct sample x;
    int32_t *ids;
    size_t count;
    const struct prompt p = {w->prompt, w->ids, w->t, w->tokens};
    w->how.seed = (uint64_t)w->seed;
    TRY(prompt_read(&p, &l->run.s, l->perm, &ids, &count));
    TRY(load_model(l, sample_tokens(&l->run.s)));
    TRY(sample_open(&x, l->model, &l->run.s, &w->how, l->perm));
    if (!l->run.s.model_causal)
        return write_encoder(l, w, &x, ids, count);
    if (w->logits)
        return write_logits(l, &x, ids, count);
    for (size_t i = 0; i < count; i++)
        TRY(print_id(l, w, ids, i + 1));
    for (int64_t n = 0; n < w->tokens; n++, count++) {
        TRY(sample_next(&x, ids, count, (uint64_t)n, &ids[count]));
        TRY(print_id(l, w, ids, count + 1));
    }
    putchar('\n');
    return ERR_OK;
}

static enum err write_with_tokenizer(struct load *l, void *self)
{
    struct wish *w = self;
    bool ids = w->ids || (l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES && !w->tokenizer);
    if (!ids)
        TRY(load_tokenizer(&l->run.s, w->tokenizer, &w->t));
    enum err e = write_text(l, w);
    tokenizer_close(w->t);
    buffer_free(&w->text);
    return e;
}

enum err cmd_sample(int argc, char **argv, struct arena *arena)
{
    struct load_options from = {0};
    struct wish w = {
        .prompt = "The ", .tokens = 300, .seed = (int64_t)sample_usual.seed, .how = sample_usual};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"prompt", ARGS_TEXT, &w.prompt, .value = "TEXT", .help = "What the text begins with."},
        {"tokenizer", ARGS_TEXT, &w.tokenizer, .value = "PATH",
         .help =
             "Its tokenizer (default: tokenizer.json or vocab.txt of the run's directory, or of "
             "the one of its shards)."},
        {"ids", ARGS_TEXT, &w.ids, .value = "1,2,..",
         .help = "The prompt as token ids; the output is ids too."},
        {"tokens", ARGS_INT, &w.tokens, .value = "N", .min = 1, .max = 1e6,
         .help = "How many to write."},
        {"temperature", ARGS_REAL, &w.how.temperature, .value = "T", .max = 10,
         .help = "0 always takes the most likely, 1 the model's own distribution."},
        {"top-k", ARGS_INT, &w.how.top_k, .value = "K", .max = 1e6,
         .help = "Only the K most likely; 0: all."},
        {"logits", ARGS_FLAG, &w.logits,
         .help = "Instead of text the logits of the next id, one line for each id of the "
                 "vocabulary; of an encoder at every position."},
        {"types", ARGS_TEXT, &w.types, .value = "0,0,1,..", .help = "Token types of --ids."},
        {"class-logits", ARGS_FLAG, &w.class_logits,
         .help = "Of an encoder: the logits of the pair head or of every task, one line each."},
        {"seed", ARGS_INT, &w.seed, .value = "N", .max = 9e15,
         .help = "The same seed writes the same text."},
    };
    struct args args = {
        .command = "sample",
        .summary = "Text that a trained model writes; an encoder fills [MASK] in the prompt.",
        .example = "atoll sample --config run.yaml --run.dir run/a --prompt \"The \"",
        .settings = run_nearest_setting,
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return load_run(&args, &from, write_with_tokenizer, &w);
}
