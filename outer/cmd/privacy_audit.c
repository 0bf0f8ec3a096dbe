#include "outer/cmd/privacy_audit.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/data/canaries.h"
#include "inner/eval/evaluate.h"
#include "outer/run/load.h"
#include "outer/budget/audit.h"
#include "outer/record/jsonl.h"
#include "outer/view/spent.h"

/* ---- canaries ---- */
static enum err canaries_make(const struct args *args, const char *config, const char *out,
                              int64_t count)
{
    struct run run = {.index = 0};
    const struct run_source source = {RUN_MODEL, .config = config, .args = args};
    enum err e = run_open(&run, &source);
    if (e == ERR_OK)
        e = canaries_write(&run.s, out, (uint64_t)count, &run.perm);
    if (e == ERR_OK)
        printf("%" PRId64 " canaries, each in %s/in-0000.bin with probability 1/2: which ones are "
               "there is the secret of the audit.\n\n"
               "in the configuration of the site, beside its own text:\n"
               "    data:\n        train: [%s%s..., \"%s/in-0000.bin\"]\n\n"
               "after the run:\n    atoll privacy audit --run.dir RUN --set %s\n",
               count, out, run.s.data_train.count ? run.s.data_train.items[0] : "",
               run.s.data_train.count ? ", " : "", out, out);
    run_close(&run);
    return e;
}

enum err privacy_canaries(int argc, char **argv, struct arena *arena)
{
    const char *config = NULL, *out = NULL;
    int64_t count = 1000;
    const struct args_option options[] = {
        {"config", ARGS_TEXT, &config, .value = "FILE",
         .help = "Configuration of the site: canaries are made like its training text."},
        {"out", ARGS_TEXT, &out, .value = "DIR", .required = true,
         .help = "New directory; it stays with the site."},
        {"count", ARGS_INT, &count, .value = "M", .min = CANARIES_MIN, .max = CANARIES_MAX,
         .help = "Canaries; each is included with probability 1/2."},
    };
    struct args args = {
        .command = "privacy canaries",
        .summary = "Random examples for an audit in one run (2305.08846): a set that goes into a "
                   "site's training text and one that does not.",
        .example = "atoll privacy canaries --config run.yaml --out canaries --count 1000",
        .settings = run_nearest_setting,
        .options = options,
        .count = sizeof options / sizeof *options};
    TRY(args_parse(&args, argc, argv, arena));
    return args.help ? ERR_OK : canaries_make(&args, config, out, count);
}

/* ---- the audit of a run ---- */
enum { MASKS = 8 }; /* of masked text: a canary's score is the mean over as many masks */

struct scored {
    double score; /* loss of the trained model less that of the initial one */
    uint64_t tie; /* random: the order among equals says nothing of the coins */
    bool in;
};
struct audit_work {
    struct audit numbers; /* guesses 0: a quarter of the canaries */
    const char *set;
    double delta, confidence, claim; /* claim 0: of the run's charges */
    struct scored *scored;
    size_t count;
};

static int by_score(const void *x, const void *y)
{
    const struct scored *a = x, *b = y;
    if (a->score != b->score)
        return a->score > b->score ? 1 : -1;
    return (a->tie > b->tie) - (a->tie < b->tie);
}

/* Adds sign x the loss of each canary to its score. */
static enum err losses_add(struct load *l, struct audit_work *w, struct loader *set,
                           struct batch *b, struct evaluate_sums *sums, double sign, size_t at)
{
    uint64_t seed = set->options.seed;
    int masks = set->token_targets && !set->sequence_targets && sums->logits ? MASKS : 1;
    for (int k = 0; k < masks; k++) {
        set->options.seed = seed + (uint64_t)k;
        for (uint64_t i = 0; i < set->windows; i++) {
            TRY(evaluate_windows(l->model, set, b, i, i + 1, sums));
            w->scored[at + i].score += sign * evaluate_loss(sums) / masks;
        }
    }
    set->options.seed = seed;
    return ERR_OK;
}

static enum err score_all(struct load *l, struct audit_work *w, struct canaries *c)
{
    struct batch b;
    struct evaluate_sums sums;
    TRY(objective_batch_open(c->in.options.objective, &b, &l->run.perm, 1,
                             (size_t)l->run.s.train_sequence));
    TRY(evaluate_open(&sums, &l->run.s, (struct evaluate_rank){0, 1}, &l->run.perm));
    for (int trained = 1; trained >= 0; trained--) {
        if (!trained) {
            TRY(run_initial(&l->run, l->params));
            model_set_finished(l->model, 0);
            load_put(l);
            TRY(dev_sync(l->dev));
        }
        double sign = trained ? 1 : -1;
        TRY(losses_add(l, w, &c->in, &b, &sums, sign, 0));
        TRY(losses_add(l, w, &c->out, &b, &sums, sign, (size_t)c->in.windows));
    }
    for (size_t i = 0; i < w->count; i++) {
        struct scored *x = &w->scored[i];
        x->in = i < c->in.windows;
        x->score = isfinite(x->score) ? x->score : 0;
        digest_random(&x->tie, sizeof x->tie);
    }
    return ERR_OK;
}

/* The lowest scores are guessed to be in, the highest to be out, half of the guesses each. */
static void guess(struct audit_work *w)
{
    size_t half = (size_t)w->numbers.guesses / 2;
    qsort(w->scored, w->count, sizeof *w->scored, by_score);
    for (size_t i = 0; i < half; i++) {
        w->numbers.correct += w->scored[i].in;
        w->numbers.correct += !w->scored[w->count - 1 - i].in;
    }
}

static enum err claim_find(struct audit_work *w, const char *dir, struct arena *a)
{
    struct spent s;
    TRY(spent_read(&s, dir, &(struct spent_options){.delta = w->delta, .cap = 0}, a));
    w->delta = s.delta;
    if (w->claim == 0 && !s.unclaimed)
        w->claim = s.account.epsilon[s.account.holds];
    return ERR_OK;
}

static enum err audit_record(const struct audit_work *w, const char *dir, double bound,
                             uint64_t included, struct arena *a)
{
    struct jsonl r = {.fd = 0};
    char *path;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", dir, AUDIT_FILE));
    TRY(jsonl_open(&r, path, a));
    jsonl_begin(&r, "audit");
    jsonl_int(&r, "canaries", w->numbers.canaries);
    jsonl_int(&r, "included", (int64_t)included);
    jsonl_int(&r, "guesses", w->numbers.guesses);
    jsonl_int(&r, "correct", w->numbers.correct);
    jsonl_real(&r, "delta", w->delta);
    jsonl_real(&r, "confidence", w->confidence);
    jsonl_real(&r, "epsilon_at_least", bound);
    if (w->claim > 0)
        jsonl_real(&r, "claim", w->claim);
    jsonl_end(&r);
    jsonl_close(&r);
    return ERR_OK;
}

static enum err bound_judge(const struct audit_work *w, double bound)
{
    printf("epsilon is at least %.9g at delta %g, with confidence %g\n", bound, w->delta,
           w->confidence);
    if (w->claim == 0) {
        puts("claimed      nothing, so the bound is compared with nothing");
        return ERR_OK;
    }
    if (bound > w->claim)
        return err_set(ERR_DIFFERS,
                       "privacy audit: the lower bound %.6g is above the claimed "
                       "epsilon %.6g: the mechanism does not do what was accounted",
                       bound, w->claim);
    printf("claimed      epsilon %.6g: no contradiction, which is no proof of the claim\n",
           w->claim);
    return ERR_OK;
}

static enum err audit_set(struct load *l, struct audit_work *w, struct canaries *c)
{
    struct arena *a = &l->run.perm;
    w->count = (size_t)(c->in.windows + c->out.windows);
    w->numbers.canaries = (int64_t)w->count;
    if (w->numbers.guesses == 0)
        w->numbers.guesses = w->numbers.canaries / 4;
    w->numbers.guesses -= w->numbers.guesses % 2;
    if (w->numbers.guesses < 2 || w->numbers.guesses > w->numbers.canaries)
        return err_set(ERR_CONFIG,
                       "privacy audit: %" PRId64 " guesses for %" PRId64
                       " canaries; give --guesses "
                       "from 2 to that number",
                       w->numbers.guesses, w->numbers.canaries);
    TRY(claim_find(w, l->run.s.run_dir, a));
    TRY_ALLOC(w->scored = arena_array(a, w->count, sizeof *w->scored));
    TRY(load_model(l,
                   objective_tokens_max(c->in.options.objective, (size_t)l->run.s.train_sequence)));
    TRY(score_all(l, w, c));
    guess(w);
    double bound = audit_epsilon(&w->numbers, w->delta, w->confidence);
    printf("model        %s\n"
           "canaries     %" PRId64 ", %" PRIu64 " of them in the training text\n"
           "guesses      %" PRId64 ", by the loss against that of the initial model; %" PRId64
           " right\n",
           l->source, w->numbers.canaries, c->in.windows, w->numbers.guesses, w->numbers.correct);
    TRY(audit_record(w, l->run.s.run_dir, bound, c->in.windows, a));
    return bound_judge(w, bound);
}

static enum err audit_run(struct load *l, void *self)
{
    struct audit_work *w = self;
    struct canaries c;
    enum err e = canaries_open(&c, &l->run.s, w->set, &l->run.perm);
    if (e == ERR_OK)
        e = audit_set(l, w, &c);
    canaries_close(&c);
    return e;
}

/* ---- the command ---- */
static enum err audit_numbers(const struct audit_work *w)
{
    const struct audit *a = &w->numbers;
    if (!a->canaries || !a->guesses)
        return err_set(ERR_CONFIG, "privacy audit: give --set DIR with --run.dir, or --canaries, "
                                   "--guesses and --correct");
    if (a->guesses > a->canaries || a->correct > a->guesses)
        return err_set(ERR_CONFIG,
                       "privacy audit: %" PRId64 " canaries, %" PRId64 " guesses, %" PRId64
                       " right; give no more guesses than canaries and no more right ones than "
                       "guesses",
                       a->canaries, a->guesses, a->correct);
    return bound_judge(w, audit_epsilon(a, w->delta, w->confidence));
}

/* The configuration is read before `audit_run`, so which of both it is has to be known before. */
static bool names_set(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--set") == 0 || strncmp(argv[i], "--set=", 6) == 0)
            return true;
    return false;
}

enum err privacy_audit(int argc, char **argv, struct arena *arena)
{
    struct load_options from = {.from = NULL};
    struct audit_work w = {.confidence = 0.95};
    const struct args_option options[] = {
        {"set", ARGS_TEXT, &w.set, .value = "DIR",
         .help =
             "Canaries of atoll privacy canaries, of a run that has ended: they are scored with "
             "its model."},
        LOAD_ROWS(&from),
        {"canaries", ARGS_INT, &w.numbers.canaries, .value = "M", .max = AUDIT_CANARIES_MAX,
         .help = "Without --set: canaries, each included with probability 1/2."},
        {"guesses", ARGS_INT, &w.numbers.guesses, .value = "R", .max = AUDIT_CANARIES_MAX,
         .help = "Canaries for which the auditor guesses: included or not. With --set 0: a quarter "
                 "of them. Choose it before you look."},
        {"correct", ARGS_INT, &w.numbers.correct, .value = "V", .max = AUDIT_CANARIES_MAX,
         .help = "Without --set: guesses that were right."},
        {"delta", ARGS_REAL, &w.delta, .value = "DELTA", .max = 0.999,
         .help = "Delta of the claim; with --set 0: the run's."},
        {"confidence", ARGS_REAL, &w.confidence, .value = "P", .min = 0.5, .max = 0.999999,
         .help = "Confidence of the lower bound."},
        {"claim", ARGS_REAL, &w.claim, .value = "EPSILON", .max = 1e6,
         .help = "The claimed epsilon: a bound above it ends with an error. With --set 0: that of "
                 "the run's charges."},
    };
    struct args args = {
        .command = "privacy audit",
        .summary = "Lower bound on epsilon from one run with canaries (2305.08846), beside the "
                   "claim.",
        .example = "atoll privacy audit --run.dir run-a --set canaries",
        .settings = run_nearest_setting,
        .options = options,
        .count = sizeof options / sizeof *options};
    if (names_set(argc, argv))
        return load_run(&args, argc, argv, &from, audit_run, &w);
    TRY(args_parse(&args, argc, argv, arena));
    return args.help ? ERR_OK : audit_numbers(&w);
}
