/* atoll eval: held-out loss and perplexity of a trained model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/train/evaluate.h"
#include "outer/cmd/cmd.h"
#include "outer/cmd/load.h"

enum { BATCH_TOKENS = 4096 };

/* name: of the set; "": it has none. */
static void print_text(const struct load *l, const char *name, double loss, double tokens)
{
    if (*name)
        printf("set          %s\n", name);
    printf("model        %s\nevaluated    %.0f tokens\nloss         %.6f nats per "
           "token\nperplexity   %.4f\n",
           l->source, tokens, loss, exp(loss));
    if (l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES)
        printf("bits per byte %.4f\n", loss / log(2));
}

/* A set is one line. Keys stay as they are: scripts read them. bits_per_byte: null where a token is
 * not a byte. */
static void print_json(const struct load *l, const char *name, double loss, double tokens)
{
    bool bytes = l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES;
    char bits[32] = "null";
    if (bytes)
        snprintf(bits, sizeof bits, "%.9g", loss / log(2));
    printf("{\"model\":\"");
    for (const char *p = l->source; *p; p++)
        printf(*p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    if (*name)
        printf("\",\"set\":\"%s", name);
    printf("\",\"step\":%lld,\"tokens\":%.0f,\"loss\":%.9g,\"perplexity\":%.9g,"
           "\"bits_per_byte\":%s}\n",
           (long long)l->step, tokens, loss, exp(loss), bits);
}

struct wish {
    int64_t tokens;
    const char *format;
};

struct evaluation { /* of several sets */
    struct load *l;
    const struct wish *w;
    struct batch b;
    struct loader_options o;
    bool json;
};

static enum err evaluate_set(struct evaluation *e, const struct shard_group *g)
{
    struct loader text;
    struct evaluate_sums sums;
    TRY(loader_open(&text, &e->l->run.perm, &g->paths, &e->o));
    uint64_t windows = e->w->tokens ? evaluate_count(&text, e->w->tokens) : text.windows;
    enum err failed = evaluate_windows(e->l->model, &text, &e->b, 0, windows, &sums);
    bool text_tokens = text.token_targets;
    loader_close(&text);
    TRY(failed);
    double loss = evaluate_loss(&sums),
           count = sums.count[text_tokens ? MODEL_LOSS_TOKEN : MODEL_LOSS_SEQUENCE];
    if (e->json)
        print_json(e->l, g->name, loss, count);
    else
        print_text(e->l, g->name, loss, count);
    return ERR_OK;
}

static enum err evaluate(struct load *l, void *self)
{
    const struct wish *w = self;
    size_t S = (size_t)l->run.s.train_sequence, sequences = S < BATCH_TOKENS ? BATCH_TOKENS / S : 1;
    struct evaluation e = {.l = l,
                           .w = w,
                           .o = {.seed = (uint64_t)l->run.s.run_seed,
                                 .ranks = 1,
                                 .sequence = S,
                                 .batch_tokens = S,
                                 .vocab = l->run.s.model_vocab,
                                 .objective = objective_of(&l->run.s),
                                 .settings = &l->run.s},
                           .json = !strcmp(w->format, "json")};
    struct shard_group *groups;
    size_t count;
    if (!e.json && strcmp(w->format, "text"))
        return err_set(ERR_CONFIG, "--format = \"%.40s\": allowed are text, json", w->format);
    if (!l->run.s.data_eval.count)
        return err_set(ERR_CONFIG, "data.eval is empty: name held-out shards");
    TRY(shard_groups(&l->run.s.data_eval, &l->run.perm, &groups, &count));
    TRY(objective_batch_open(e.o.objective, &e.b, &l->run.perm, sequences, S));
    TRY(load_model(l, e.b.tokens_max));
    for (size_t i = 0; i < count; i++)
        TRY(evaluate_set(&e, &groups[i]));
    return ERR_OK;
}

enum err cmd_eval(int argc, char **argv)
{
    struct load_options from = {0};
    struct wish w = {.format = "text"};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"tokens", ARGS_INT, &w.tokens, .value = "N", .max = 1e15,
         .help = "Held-out tokens to look at; 0: all."},
        {"format", ARGS_TEXT, &w.format, .value = "text|json", .help = "json: one object."},
    };
    struct args args = {.command = "eval",
                        .summary = "Held-out loss and perplexity of a trained model (data.eval).",
                        .example = "atoll eval --config run.yaml --run.dir run/a",
                        .settings = run_nearest_setting,
                        .options = options,
                        .count = sizeof options / sizeof *options};
    return load_run(&args, argc, argv, &from, evaluate, &w);
}
