/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/cmd/privacy.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/data/canaries.h"
#include "outer/cmd/acts.h"
#include "outer/record/json_write.h"
#include "outer/run/canary_audit.h"

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
               "in the configuration of the site, in addition to its own text:\n"
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
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return args.help ? ERR_OK : canaries_make(&args, config, out, count);
}

/* ---- the audit of a run ---- */
struct audit_wish {
    struct canary_audit w;
    const char *format;
    bool json;
};

static void audit_json(const struct canary_audit *w, const char *model)
{
    struct json_write out = {.out = stdout, .digits = 9};
    json_object(&out, NULL);
    if (model)
        json_text(&out, "model", model);
    json_int(&out, "canaries", w->canaries);
    json_int(&out, "included", (int64_t)w->included);
    json_int(&out, "guesses", w->guesses);
    json_int(&out, "correct", w->correct);
    json_real(&out, "epsilon_at_least", w->bound);
    json_real(&out, "delta", w->delta);
    json_real(&out, "confidence", w->confidence);
    json_real(&out, "claimed", w->claim == 0 ? NAN : w->claim);
    json_close(&out);
}

static enum err bound_contradicts(const struct canary_audit *w)
{
    if (w->claim == 0 || w->bound <= w->claim)
        return ERR_OK;
    return err_set(ERR_DIFFERS,
                   "privacy audit: the lower bound %.6g is above the claimed "
                   "epsilon %.6g: the mechanism does not do what was accounted",
                   w->bound, w->claim);
}

static enum err bound_judge(const struct canary_audit *w)
{
    printf("epsilon is at least %.9g at delta %g, with confidence %g\n", w->bound, w->delta,
           w->confidence);
    if (w->claim == 0) {
        puts("claimed      nothing, so the bound is compared with nothing");
        return ERR_OK;
    }
    TRY(bound_contradicts(w));
    printf("claimed      epsilon %.6g: no contradiction, which is no proof of the claim\n",
           w->claim);
    return ERR_OK;
}

static enum err audit_run(struct load *l, void *self)
{
    struct audit_wish *wish = self;
    struct canary_audit *w = &wish->w;
    TRY(cmd_format(wish->format, &wish->json));
    TRY(canary_audit_run(l, w));
    if (wish->json) {
        audit_json(w, l->source);
        TRY(canary_audit_record(l, w));
        return bound_contradicts(w);
    }
    printf("model        %s\n"
           "canaries     %" PRId64 ", %" PRIu64 " of them in the training text\n"
           "guesses      %" PRId64 ", by the loss against that of the initial model; %" PRId64
           " right\n",
           l->source, w->canaries, w->included, w->guesses, w->correct);
    TRY(canary_audit_record(l, w));
    return bound_judge(w);
}

/* ---- the command ---- */
static enum err audit_numbers(struct audit_wish *wish)
{
    struct canary_audit *w = &wish->w;
    TRY(cmd_format(wish->format, &wish->json));
    if (!w->canaries || !w->guesses)
        return err_set(ERR_CONFIG, "privacy audit: give --set DIR with --run.dir, or --canaries, "
                                   "--guesses and --correct");
    if (w->guesses > w->canaries || w->correct > w->guesses)
        return err_set(ERR_CONFIG,
                       "privacy audit: %" PRId64 " canaries, %" PRId64 " guesses, %" PRId64
                       " right; give no more guesses than canaries and no more right ones than "
                       "guesses",
                       w->canaries, w->guesses, w->correct);
    canary_audit_bound(w);
    if (!wish->json)
        return bound_judge(w);
    audit_json(w, NULL);
    return bound_contradicts(w);
}

enum err privacy_audit(int argc, char **argv, struct arena *arena)
{
    struct load_options from = {.from = NULL};
    struct audit_wish wish = {.w.confidence = 0.95, .format = "text"};
    const struct args_option options[] = {
        {"set", ARGS_TEXT, &wish.w.set, .value = "DIR",
         .help =
             "Canaries of atoll privacy canaries, of a run that has ended: they are scored with "
             "its model."},
        LOAD_ROWS(&from),
        {"canaries", ARGS_INT, &wish.w.canaries, .value = "M", .max = CANARY_AUDIT_MAX,
         .help = "Without --set: canaries, each included with probability 1/2."},
        {"guesses", ARGS_INT, &wish.w.guesses, .value = "R", .max = CANARY_AUDIT_MAX,
         .help = "Canaries for which the auditor guesses: included or not. With --set 0: a quarter "
                 "of them. Choose it before you look."},
        {"correct", ARGS_INT, &wish.w.correct, .value = "V", .max = CANARY_AUDIT_MAX,
         .help = "Without --set: guesses that were right."},
        {"delta", ARGS_REAL, &wish.w.delta, .value = "DELTA", .max = 0.999,
         .help = "Delta of the claim; with --set 0: the run's."},
        {"confidence", ARGS_REAL, &wish.w.confidence, .value = "P", .min = 0.5, .max = 0.999999,
         .help = "Confidence of the lower bound."},
        {"claim", ARGS_REAL, &wish.w.claim, .value = "EPSILON", .max = 1e6,
         .help = "The claimed epsilon: a bound above it ends with an error. With --set 0: that of "
                 "the run's charges."},
        FORMAT_ROW(&wish.format, ": canaries, guesses, the bound epsilon_at_least"),
    };
    struct args args = {
        .command = "privacy audit",
        .summary =
            "Lower bound on epsilon from one run with canaries (2305.08846), to compare with "
            "the claim.",
        .example = "atoll privacy audit --run.dir run-a --set canaries",
        .settings = run_nearest_setting,
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (wish.w.set)
        return load_run(&args, &from, audit_run, &wish);
    return args.help ? ERR_OK : audit_numbers(&wish);
}
