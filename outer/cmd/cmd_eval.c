/* SPDX-License-Identifier: Apache-2.0 */
/* atoll eval: held-out loss of a trained model, of an encoder what it predicts, and multiple-choice
 * tasks. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "kernels/base/clock.h"
#include "outer/run/evaluation.h"
#include "outer/record/json_write.h"
#include "outer/view/progress.h"

struct eval { /* a command, and what its lines need */
    const struct load *l;
    struct evaluation_options wish;
    const char *format;
    bool json, terminal;
    const struct evaluation_set *set; /* which is read */
    double began, shown;              /* of its bar, seconds */
};

static bool is_bytes(const struct load *l)
{
    return l->run.s.data_tokenizer == DATA_TOKENIZER_BYTES;
}

/* ---- text ---- */
static void print_tokens(const struct load *l, const struct evaluation_set *r)
{
    double loss = evaluate_mean(r->sums, MODEL_LOSS_TOKEN);
    const char *of = r->sums->logits ? "masked token" : "token";
    printf("evaluated    %.0f %ss\nloss         %.6f nats per %s\nperplexity   %.4f\n",
           r->sums->count[MODEL_LOSS_TOKEN], of, loss, of, exp(loss));
    if (r->sums->logits)
        printf("accuracy     %.2f %% of masked tokens\n", 100 * evaluate_token_accuracy(r->sums));
    if (is_bytes(l))
        printf("bits per byte %.4f\n", loss / log(2));
}

static void print_pairs(const struct evaluation_set *r)
{
    struct scores s = scores_of(&r->sums->tasks[0]);
    printf("pairs        %.0f\npair loss    %.6f nats per pair\npair accuracy %.2f %%\n",
           s.examples, evaluate_mean(r->sums, MODEL_LOSS_SEQUENCE), 100 * s.accuracy);
}

/* Of a class: its name where the text knows it. */
static const char *class_name(const struct evaluation_set *r, const struct class_counts *c,
                              size_t class, char number[24])
{
    if (r->text->sidecar.classes_count == c->classes)
        return r->text->sidecar.classes[class].name;
    snprintf(number, 24, "%zu", class);
    return number;
}

static void print_task(const struct evaluation_set *r, const struct class_counts *c)
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

static void print_text(const struct load *l, const struct evaluation_set *r)
{
    if (*r->name)
        printf("set          %s\n", r->name);
    printf("model        %s\n", l->source);
    if (r->tokens)
        print_tokens(l, r);
    if (r->pairs)
        print_pairs(r);
    if (r->labels)
        printf("evaluated    %.0f texts\nloss         %.6f nats per text\n",
               r->sums->count[MODEL_LOSS_SEQUENCE], evaluate_loss(r->sums));
    for (size_t i = 0; r->labels && i < r->sums->tasks_count; i++)
        print_task(r, &r->sums->tasks[i]);
}

/* ---- json ---- */
static void labels_json(struct json_write *w, const struct evaluation_set *r)
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
static void print_json(const struct load *l, const struct evaluation_set *r)
{
    struct json_write w = {.out = stdout, .digits = 9};
    double loss = evaluate_loss(r->sums);
    json_object(&w, NULL);
    json_text(&w, "model", l->source);
    if (*r->name)
        json_text(&w, "set", r->name);
    json_int(&w, "step", l->step);
    json_int(&w, "tokens",
             (int64_t)r->sums->count[r->tokens ? MODEL_LOSS_TOKEN : MODEL_LOSS_SEQUENCE]);
    json_real(&w, "loss", loss);
    json_real(&w, "perplexity", exp(loss));
    json_real(&w, "bits_per_byte", is_bytes(l) ? loss / log(2) : NAN);
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
    json_close(&w);
}

static void print_set(void *self, const struct evaluation_set *set)
{
    const struct eval *e = self;
    (e->json ? print_json : print_text)(e->l, set);
}

/* ---- progress ---- */
/* On standard error: the numbers themselves go to standard output. */
static void print_begin(void *self, const struct evaluation_set *set)
{
    struct eval *e = self;
    uint64_t S = set->text->options.sequence;
    fprintf(stderr, "atoll eval: reads %llu of %llu held-out tokens%s%s%s\n",
            (unsigned long long)(set->windows * S), (unsigned long long)(set->text->windows * S),
            *set->name ? " of " : "", set->name,
            set->windows < set->text->windows ? " (train.eval_tokens, or --tokens; --tokens 0: all)"
                                              : "");
    e->set = set;
    e->terminal = isatty(2) == 1;
    e->began = clock_mono_s();
}

static void print_bar(void *self, uint64_t done)
{
    enum { WIDTH = 24 };
    struct eval *e = self;
    char left[32] = "-";
    double share = (double)done / (double)e->set->windows, now = clock_mono_s();
    bool last = done == e->set->windows;
    if (!e->terminal || (!last && now - e->shown < 0.2))
        return;
    e->shown = now;
    progress_duration(left, sizeof left, (now - e->began) * (1 - share) / share);
    fprintf(stderr, "\r[%-*.*s] %3.0f %%  ETA %s  ", WIDTH, (int)(share * WIDTH),
            "########################", 100 * share, left);
    if (last)
        fprintf(stderr, "\r%*s\r", WIDTH + 32, "");
}

/* ---- tasks ---- */
static void print_question(void *self, const struct choices *c, size_t i, const double *scores)
{
    (void)self;
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
    json_close(&w);
}

static void print_choices(void *self, const struct choices *c, const struct choose_counts *n)
{
    const struct eval *e = self;
    double accuracy = n->right / n->questions, by_length = n->right_norm / n->questions;
    if (e->json) {
        struct json_write w = {.out = stdout, .digits = 9};
        json_object(&w, NULL);
        json_text(&w, "model", e->l->source);
        json_int(&w, "step", e->l->step);
        json_text(&w, "task", c->name);
        json_int(&w, "questions", (int64_t)n->questions);
        json_real(&w, "accuracy", accuracy);
        json_real(&w, "accuracy_norm", by_length);
        json_real(&w, "chance", c->chance);
        json_close(&w);
        return;
    }
    printf("task         %s\nmodel        %s\nquestions    %.0f\naccuracy     %.2f %%\n"
           "accuracy by length %.2f %%\nchance       %.2f %%\n",
           c->name, e->l->source, n->questions, 100 * accuracy, 100 * by_length, 100 * c->chance);
}

static enum err evaluate(struct load *l, void *self)
{
    struct eval *e = self;
    const struct evaluation_told told = {.self = e,
                                         .begins = print_begin,
                                         .progress = print_bar,
                                         .set = print_set,
                                         .task = print_choices,
                                         .question = print_question};
    e->l = l;
    TRY(cmd_format(e->format, &e->json));
    return evaluation_run(l, &e->wish, &told);
}

enum err cmd_eval(int argc, char **argv, struct arena *arena)
{
    struct load_options from = {0};
    struct eval e = {.wish.tokens = -1, .format = "text"};
    const struct args_option options[] = {
        LOAD_ROWS(&from),
        {"tokens", ARGS_INT, &e.wish.tokens, .value = "N", .max = 1e15,
         .help = "Held-out tokens to read; 0: all. Without it: train.eval_tokens, as in the run."},
        {"details", ARGS_FLAG, &e.wish.details,
         .help = "Of eval.tasks alone, a JSON line for each question: scores and picks."},
        FORMAT_ROW(&e.format, " for each held-out set or task"),
    };
    struct args args = {
        .command = "eval",
        .summary =
            "Held-out loss and perplexity of a trained model (data.eval), of an encoder also "
            "accuracy, F1, MCC; accuracy on multiple-choice tasks (eval.tasks).",
        .example = "atoll eval --config run.yaml --run.dir run/a",
        .settings = run_nearest_setting,
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return load_run(&args, &from, evaluate, &e);
}
