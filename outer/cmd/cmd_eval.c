/* SPDX-License-Identifier: Apache-2.0 */
/* atoll eval: held-out loss of a trained model, of an encoder what it predicts, and multiple-choice
 * tasks. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "inner/eval/choose.h"
#include "inner/eval/evaluate.h"
#include "outer/cmd/cmd.h"
#include "kernels/base/clock.h"
#include "outer/run/load.h"
#include "outer/run/tasks.h"
#include "outer/record/json_write.h"
#include "outer/view/progress.h"

enum { BATCH_TOKENS = 4096 };

struct result { /* of one set */
    const struct load *l;
    const char *name; /* of the set; "": it has none */
    const struct evaluate_sums *sums;
    const struct sidecar *text; /* has the names of the classes */
    bool tokens, pairs, labels; /* what it has targets for */
};

static bool is_bytes(const struct load *l)
{
    return l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES;
}

/* ---- text ---- */
static void print_tokens(const struct result *r)
{
    double loss = evaluate_mean(r->sums, MODEL_LOSS_TOKEN);
    const char *of = r->sums->logits ? "masked token" : "token";
    printf("evaluated    %.0f %ss\nloss         %.6f nats per %s\nperplexity   %.4f\n",
           r->sums->count[MODEL_LOSS_TOKEN], of, loss, of, exp(loss));
    if (r->sums->logits)
        printf("accuracy     %.2f %% of masked tokens\n", 100 * evaluate_token_accuracy(r->sums));
    if (is_bytes(r->l))
        printf("bits per byte %.4f\n", loss / log(2));
}

static void print_pairs(const struct result *r)
{
    struct scores s = scores_of(&r->sums->tasks[0]);
    printf("pairs        %.0f\npair loss    %.6f nats per pair\npair accuracy %.2f %%\n",
           s.examples, evaluate_mean(r->sums, MODEL_LOSS_SEQUENCE), 100 * s.accuracy);
}

/* Of a class: its name where the text knows it. */
static const char *class_name(const struct result *r, const struct class_counts *c, size_t class,
                              char number[24])
{
    if (r->text->classes_count == c->classes)
        return r->text->classes[class].name;
    snprintf(number, 24, "%zu", class);
    return number;
}

static void print_task(const struct result *r, const struct class_counts *c)
{
    struct scores s = scores_of(c);
    char number[24];
    if (s.examples <= 0)
        return;
    printf("accuracy     %.2f %%\nF1, macro    %.4f\nMCC          %.4f\n\n", 100 * s.accuracy,
           s.f1_macro, s.mcc);
    printf("  %-24s %8s %8s %9s %8s\n", "class", "texts", "F1", "precision", "recall");
    for (size_t i = 0; i < c->classes; i++) {
        struct class_score x = scores_of_class(c, i);
        printf("  %-24s %8.0f %8.4f %9.4f %8.4f\n", class_name(r, c, i, number), c->truth[i], x.f1,
               x.precision, x.recall);
    }
}

static void print_text(const struct result *r)
{
    if (*r->name)
        printf("set          %s\n", r->name);
    printf("model        %s\n", r->l->source);
    if (r->tokens)
        print_tokens(r);
    if (r->pairs)
        print_pairs(r);
    if (r->labels)
        printf("evaluated    %.0f texts\nloss         %.6f nats per text\n",
               r->sums->count[MODEL_LOSS_SEQUENCE], evaluate_loss(r->sums));
    for (size_t i = 0; r->labels && i < r->sums->tasks_count; i++)
        print_task(r, &r->sums->tasks[i]);
}

/* ---- json ---- */
static void labels_json(struct json_write *w, const struct result *r)
{
    for (size_t i = 0; i < r->sums->tasks_count; i++) {
        const struct class_counts *c = &r->sums->tasks[i];
        struct scores s = scores_of(c);
        char number[24];
        if (s.examples <= 0)
            continue;
        json_real(w, "accuracy", s.accuracy);
        json_real(w, "f1_macro", s.f1_macro);
        json_real(w, "mcc", s.mcc);
        json_object(w, "f1");
        for (size_t k = 0; k < c->classes; k++)
            json_real(w, class_name(r, c, k, number), scores_of_class(c, k).f1);
        json_end(w);
    }
}

/* A set is one line. Keys stay as they are: scripts read them. bits_per_byte: null where a token is
 * not a byte. */
static void print_json(const struct result *r)
{
    struct json_write w = {.out = stdout, .digits = 9};
    double loss = evaluate_loss(r->sums);
    json_object(&w, NULL);
    json_text(&w, "model", r->l->source);
    if (*r->name)
        json_text(&w, "set", r->name);
    json_int(&w, "step", r->l->step);
    json_int(&w, "tokens",
             (int64_t)r->sums->count[r->tokens ? MODEL_LOSS_TOKEN : MODEL_LOSS_SEQUENCE]);
    json_real(&w, "loss", loss);
    json_real(&w, "perplexity", exp(loss));
    json_real(&w, "bits_per_byte", is_bytes(r->l) ? loss / log(2) : NAN);
    if (r->tokens && r->sums->logits) {
        json_real(&w, "masked_loss", evaluate_mean(r->sums, MODEL_LOSS_TOKEN));
        json_real(&w, "masked_accuracy", evaluate_token_accuracy(r->sums));
    }
    if (r->pairs) {
        json_real(&w, "pair_loss", evaluate_mean(r->sums, MODEL_LOSS_SEQUENCE));
        json_real(&w, "pair_accuracy", scores_of(&r->sums->tasks[0]).accuracy);
    }
    if (r->labels)
        labels_json(&w, r);
    json_end(&w);
    putchar('\n');
}

/* ---- the sets ---- */
struct wish {
    int64_t tokens;
    const char *format;
    bool details;
};

struct evaluation { /* of several sets */
    struct load *l;
    const struct wish *w;
    struct batch b;
    struct evaluate_sums sums;
    struct loader_options o;
    bool json;
    uint64_t windows; /* of the set that is read */
    double began, shown;
    bool terminal;
};

/* How far it is, on standard error: the numbers themselves go to standard output. */
static void bar_show(void *self, uint64_t done)
{
    enum { WIDTH = 24 };
    struct evaluation *e = self;
    char left[32] = "-";
    double share = (double)done / (double)e->windows, now = clock_mono_s();
    bool last = done == e->windows;
    if (!e->terminal || (!last && now - e->shown < 0.2))
        return;
    e->shown = now;
    progress_duration(left, sizeof left, (now - e->began) * (1 - share) / share);
    fprintf(stderr, "\r[%-*.*s] %3.0f %%  ETA %s  ", WIDTH, (int)(share * WIDTH),
            "########################", 100 * share, left);
    if (last)
        fprintf(stderr, "\r%*s\r", WIDTH + 32, "");
}

static void reads_say(struct evaluation *e, const struct shard_group *g, const struct loader *text)
{
    uint64_t S = text->options.sequence;
    fprintf(stderr, "atoll eval: reads %llu of %llu held-out tokens%s%s%s\n",
            (unsigned long long)(e->windows * S), (unsigned long long)(text->windows * S),
            *g->name ? " of " : "", g->name,
            e->windows < text->windows ? " (train.eval_tokens, or --tokens; --tokens 0: all)" : "");
    e->terminal = isatty(2) == 1;
    e->began = clock_mono_s();
}

static enum err evaluate_set(struct evaluation *e, const struct shard_group *g)
{
    struct loader text;
    bool labels = e->l->run.s.data_objective == DATA_OBJECTIVE_LABELS;
    int64_t tokens = e->w->tokens < 0 ? e->l->run.s.train_eval_tokens : e->w->tokens;
    TRY(loader_open(&text, &e->l->run.perm, &g->paths, &e->o));
    uint64_t windows = tokens ? evaluate_count(&text, tokens) : text.windows;
    e->windows = windows;
    reads_say(e, g, &text);
    enum err failed = evaluate_windows(e->l->model, &text, &e->b, 0, windows, &e->sums);
    const struct result r = {.l = e->l,
                             .name = g->name,
                             .sums = &e->sums,
                             .text = &text.sidecar,
                             .tokens = text.token_targets,
                             .pairs = text.sequence_targets && !labels,
                             .labels = text.sequence_targets && labels};
    if (!failed && e->json)
        print_json(&r);
    else if (!failed)
        print_text(&r);
    loader_close(&text);
    return failed;
}

static enum err evaluate_sets(struct evaluation *e)
{
    struct shard_group *groups;
    size_t count;
    TRY(shard_groups(&e->l->run.s.data_eval, &e->l->run.perm, &groups, &count));
    for (size_t i = 0; i < count; i++)
        TRY(evaluate_set(e, &groups[i]));
    return ERR_OK;
}

/* ---- tasks ---- */
static void print_question(const struct choices *c, size_t i, const double *scores)
{
    const struct choices_question *q = &c->question[i];
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_text(&w, "task", c->name);
    json_int(&w, "question", (int64_t)i);
    json_int(&w, "label", (int64_t)q->label);
    json_int(&w, "pick", (int64_t)choose_pick(c, i, scores, false));
    json_int(&w, "pick_norm", (int64_t)choose_pick(c, i, scores, true));
    json_array(&w, "scores");
    for (size_t k = 0; k < q->count; k++)
        json_real(&w, NULL, scores[k]);
    json_end(&w);
    json_end(&w);
    putchar('\n');
}

static enum err print_questions(struct choose *x, const struct choices *c)
{
    double scores[CHOICES_MAX];
    bool ended;
    for (size_t i = 0; i < c->count; i++) {
        TRY(choose_scores(x, c, i, i + 1, scores, &ended));
        print_question(c, i, scores);
    }
    return ERR_OK;
}

static enum err evaluate_task(struct evaluation *e, struct choose *x, const struct choices *c)
{
    struct choose_counts n;
    TRY(choose_check(x, c));
    if (e->w->details)
        return print_questions(x, c);
    TRY(choose_count(x, c, 0, c->count, &n));
    double accuracy = n.right / n.questions, by_length = n.right_norm / n.questions;
    if (e->json) {
        struct json_write w = {.out = stdout, .digits = 9};
        json_object(&w, NULL);
        json_text(&w, "model", e->l->source);
        json_int(&w, "step", e->l->step);
        json_text(&w, "task", c->name);
        json_int(&w, "questions", (int64_t)n.questions);
        json_real(&w, "accuracy", accuracy);
        json_real(&w, "accuracy_norm", by_length);
        json_real(&w, "chance", c->chance);
        json_end(&w);
        putchar('\n');
        return ERR_OK;
    }
    printf("task         %s\nmodel        %s\nquestions    %.0f\naccuracy     %.2f %%\n"
           "accuracy by length %.2f %%\nchance       %.2f %%\n",
           c->name, e->l->source, n.questions, 100 * accuracy, 100 * by_length, 100 * c->chance);
    return ERR_OK;
}

static enum err evaluate_tasks(struct evaluation *e)
{
    struct load *l = e->l;
    struct tasks tasks;
    struct choose x;
    enum err failed = tasks_open(&tasks, &l->run.s, &l->run.o, &l->run.perm);
    if (!failed && tasks.count)
        failed = choose_open(&x, l->model, &l->run.s, &l->run.perm);
    for (size_t i = 0; i < tasks.count && !failed; i++)
        failed = evaluate_task(e, &x, &tasks.task[i]);
    tasks_close(&tasks);
    return failed;
}

static enum err evaluate(struct load *l, void *self)
{
    const struct wish *w = self;
    size_t S = (size_t)l->run.s.train_seq_len, sequences = S < BATCH_TOKENS ? BATCH_TOKENS / S : 1;
    struct evaluation e = {.l = l,
                           .w = w,
                           .o = {.seed = (uint64_t)l->run.s.run_seed,
                                 .ranks = 1,
                                 .sequence = S,
                                 .batch_tokens = S,
                                 .vocab = l->run.s.model_vocab_size,
                                 .objective = objective_of(&l->run.s),
                                 .settings = &l->run.s},
                           .json = !strcmp(w->format, "json")};
    if (!e.json && strcmp(w->format, "text"))
        return err_set(ERR_CONFIG, "--format = \"%.40s\": allowed are text, json", w->format);
    if (!l->run.s.data_eval.count && !l->run.o.eval_tasks.count)
        return err_set(ERR_CONFIG,
                       "data.eval and eval.tasks are empty: name held-out shards, or tasks");
    TRY(objective_batch_open(e.o.objective, &e.b, &l->run.perm, sequences, S));
    TRY(evaluate_open(&e.sums, &l->run.s, (struct evaluate_rank){0, 1}, &l->run.perm));
    e.sums.told = bar_show;
    e.sums.self = &e;
    TRY(load_model(l, e.b.tokens_max));
    if (l->run.s.data_eval.count && !w->details)
        TRY(evaluate_sets(&e));
    return evaluate_tasks(&e);
}

enum err cmd_eval(int argc, char **argv)
{
    struct load_options from = {0};
    struct wish w = {.tokens = -1, .format = "text"};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"tokens", ARGS_INT, &w.tokens, .value = "N", .max = 1e15,
         .help = "Held-out tokens to read; 0: all. Without it: train.eval_tokens, as in the run."},
        {"details", ARGS_FLAG, &w.details,
         .help = "Of eval.tasks alone, a JSON line for each question: scores and picks."},
        {"format", ARGS_TEXT, &w.format, .value = "text|json", .help = "json: one object."},
    };
    struct args args = {
        .command = "eval",
        .summary =
            "Held-out loss and perplexity of a trained model (data.eval), of an encoder also "
            "accuracy, F1, MCC; accuracy on multiple-choice tasks (eval.tasks).",
        .example = "atoll eval --config run.yaml --run.dir run/a",
        .settings = run_nearest_setting,
        .options = options,
        .count = sizeof options / sizeof *options};
    return load_run(&args, argc, argv, &from, evaluate, &w);
}
