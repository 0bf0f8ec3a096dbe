/* SPDX-License-Identifier: Apache-2.0 */
/* `atoll privacy`: differential privacy in numbers, before and after a run. What account and banded
 * print holds for a mechanism that does what the lines say: their settings are options. ledger
 * reads what a site has charged.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/config/keys.h"
#include "kernels/base/args.h"
#include "outer/cmd/acts.h"
#include "outer/cmd/cmd.h"
#include "outer/run/process.h"
#include "outer/cmd/privacy.h"
#include "outer/budget/accountant.h"
#include "outer/budget/banded.h"
#include "outer/record/json_write.h"
#include "outer/view/spent.h"

/* Options that are numbers without a default. */
static const double NOT_GIVEN = 0;

struct asked { /* options that several acts share */
    double q, delta;
    int64_t steps;
};
#define ASKED_ROWS(b)                                                                              \
    {"q",                                                                                          \
     ARGS_REAL,                                                                                    \
     &(b)->q,                                                                                      \
     .value = "Q",                                                                                 \
     .min = 1e-9,                                                                                  \
     .max = 1,                                                                                     \
     .required = true,                                                                             \
     .help = "Sampling rate: the probability of one unit to be in a step; 1: no sampling."},       \
        {"steps",          ARGS_INT,                                                               \
         &(b)->steps,      .value = "N",                                                           \
         .min = 1,         .max = SAMPLED_STEPS_MAX,                                               \
         .required = true, .help = "Steps with noise."},                                           \
    {                                                                                              \
        "delta", ARGS_REAL, &(b)->delta,                                                           \
            .value = "DELTA", .min = PRIVACY_DELTA_MIN, .max = 0.999, .required = true,            \
            .help = "Delta, far below 1 / number of units, such as 1e-6."                          \
    }

static void print_account(const struct accountant *a, const struct asked *b, double noise,
                          const char *unit)
{
    printf("mechanism      Gaussian, noise multiplier %.9g, %" PRId64 " steps; delta %g\n", noise,
           b->steps, b->delta);
    printf("unit           %s; neighbours differ by one %s more or less\n", unit, unit);
    if (b->q < 1)
        printf("sampling       Poisson with q = %g, each step a new, independent draw: the values "
               "below "
               "hold only if training draws so\n",
               b->q);
    else
        printf("sampling       none: every %s in every step\n", unit);
    spent_print_methods(a);
    if (b->q < 1)
        printf(
            "unamplified    epsilon %.9g: a fixed order instead of Poisson, each %s at most once "
            "in %.0f steps, %" PRId64 " times\n",
            a->unamplified, unit, floor(1 / b->q), a->participations);
}

static void account_json(const struct accountant *a, const struct asked *b, double noise,
                         const char *unit)
{
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_real(&w, "noise", noise);
    json_int(&w, "steps", b->steps);
    json_real(&w, "q", b->q);
    json_real(&w, "delta", b->delta);
    json_text(&w, "unit", unit);
    spent_methods_json(&w, a);
    json_real(&w, "rdp_order", a->order);
    json_real(&w, "unamplified", a->unamplified);
    json_close(&w);
}

static enum err privacy_account(int argc, char **argv, struct arena *arena)
{
    struct asked b = {0};
    double noise = NOT_GIVEN, epsilon = NOT_GIVEN;
    const char *unit = "record", *format = "text";
    bool json;
    const struct args_option options[] = {
        ASKED_ROWS(&b),
        {"noise-multiplier", ARGS_REAL, &noise, .value = "Z", .min = SAMPLED_NOISE_MIN,
         .max = SAMPLED_NOISE_MAX,
         .help = "Standard deviation of the noise over the clipping norm.", .former = "noise"},
        {"epsilon", ARGS_REAL, &epsilon, .value = "EPSILON", .min = 1e-6, .max = 1e6,
         .help = "Instead of --noise-multiplier: prints the smallest noise multiplier for this "
                 "epsilon."},
        {"unit", ARGS_TEXT, &unit, .value = "NAME",
         .help = "What is clipped and sampled as one: sequence, document, owner; printed only."},
        FORMAT_ROW(&format, ": noise, epsilon and the epsilon of each method"),
    };
    struct args args = {
        .command = "privacy account",
        .summary = "Epsilon of training with DP-SGD, or the noise for an epsilon: exact, by Renyi "
                   "DP and by the privacy loss distribution.",
        .example =
            "atoll privacy account --q 0.01 --noise-multiplier 1.1 --steps 1000 --delta 1e-5",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if ((noise == NOT_GIVEN) == (epsilon == NOT_GIVEN))
        return err_set(ERR_CONFIG,
                       "privacy account: give either --noise-multiplier Z, for the epsilon, "
                       "or --epsilon EPSILON, for the noise");
    if (noise == NOT_GIVEN)
        TRY(accountant_noise(
            &noise, &(struct accountant_goal){b.q, b.steps, b.delta, epsilon, .spent_count = 0}));
    const struct sampled_steps s = {b.q, noise, b.steps};
    struct accountant a;
    TRY(accountant_epsilon(&a, &s, 1, b.delta));
    if (json)
        account_json(&a, &b, noise, unit);
    else
        print_account(&a, &b, noise, unit);
    return ERR_OK;
}

/* One line of the table, or with w an object of it: noise for the epsilon, and the error of the
 * model's state. */
static enum err print_banded(const struct asked *b, double epsilon, int64_t bands,
                             double independent, double *rms, struct json_write *w)
{
    struct sampled_steps s = banded_cyclic(bands, b->q, 1, b->steps);
    double noise, error;
    TRY(accountant_noise(
        &noise, &(struct accountant_goal){s.q, s.steps, b->delta, epsilon, .spent_count = 0}));
    TRY(banded_error(&error, bands, b->steps));
    *rms = noise * banded_column(bands) * error;
    double gain = independent > 0 ? independent / *rms : 1;
    if (!w) {
        printf("%6" PRId64 " %10.4g %8" PRId64 " %12.6g %14.6g %8.4g\n", bands, s.q, s.steps, noise,
               *rms, gain);
        return ERR_OK;
    }
    json_object(w, NULL);
    json_int(w, "bands", bands);
    json_real(w, "rate", s.q);
    json_int(w, "releases", s.steps);
    json_real(w, "noise", noise);
    json_real(w, "rms_error", *rms);
    json_real(w, "gain", gain);
    json_end(w);
    return ERR_OK;
}

/* bands 1, 2, 4, .. and `most`. */
static enum err banded_rows(const struct asked *b, double epsilon, int64_t most,
                            struct json_write *w)
{
    double independent = 0, rms;
    for (int64_t bands = 1;; bands = bands * 2 < most ? bands * 2 : most) {
        TRY(print_banded(b, epsilon, bands, independent, &rms, w));
        independent = bands == 1 ? rms : independent;
        if (bands == most)
            return ERR_OK;
    }
}

static enum err banded_json(const struct asked *b, double epsilon, int64_t most)
{
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_real(&w, "epsilon", epsilon);
    json_real(&w, "delta", b->delta);
    json_array(&w, "rows");
    TRY(banded_rows(b, epsilon, most, &w));
    json_close(&w);
    return ERR_OK;
}

static enum err privacy_banded(int argc, char **argv, struct arena *arena)
{
    struct asked b = {0};
    double epsilon = NOT_GIVEN;
    int64_t most = 0;
    const char *format = "text";
    bool json;
    const struct args_option options[] = {
        ASKED_ROWS(&b),
        {"epsilon", ARGS_REAL, &epsilon, .value = "EPSILON", .min = 1e-6, .max = 1e6,
         .required = true, .help = "The epsilon that every line of the table reaches."},
        {"bands", ARGS_INT, &most, .value = "N", .max = BANDED_BANDS_MAX,
         .help = "Most bands; 0: as many as q allows, 1 / q."},
        FORMAT_ROW(&format, ": rows of the table"),
    };
    struct args args = {
        .command = "privacy banded",
        .summary =
            "Noise correlated over steps (banded matrix factorisation), compared with independent "
            "noise, at one epsilon: the error of the summed gradients.",
        .example = "atoll privacy banded --q 0.01 --steps 2000 --delta 1e-6 --epsilon 8",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if (b.steps > BANDED_STEPS_MAX)
        return err_set(ERR_CONFIG, "privacy banded: --steps is %" PRId64 "; give at most %d",
                       b.steps, BANDED_STEPS_MAX);
    double allowed = fmin(fmin(floor(1 / b.q * (1 + 1e-12)), (double)b.steps), BANDED_BANDS_MAX);
    if ((double)most > allowed)
        return err_set(ERR_CONFIG,
                       "privacy banded: --bands is %" PRId64 "; with q = %g and %" PRId64
                       " steps give at most %.0f: a unit returns after that many steps",
                       most, b.q, b.steps, allowed);
    most = most ? most : (int64_t)allowed;
    if (json)
        return banded_json(&b, epsilon, most);
    printf("%6s %10s %8s %12s %14s %8s\n", "bands", "rate", "releases", "noise", "rms error",
           "gain");
    TRY(banded_rows(&b, epsilon, most, NULL));
    printf("sampling: cyclic Poisson; the data are in `bands` parts, step i draws from part i mod "
           "bands with the rate.\nnoise is relative to a column's norm; rms error is in clipping "
           "norms, over all prefix sums; bands 1 is independent noise.\n");
    return ERR_OK;
}

static enum err privacy_ledger(int argc, char **argv, struct arena *arena)
{
    struct spent_options o = {.delta = 0, .cap = 0};
    const char *format = "text";
    bool json;
    const struct args_option options[] = {
        {"delta", ARGS_REAL, &o.delta, .value = "DELTA", .max = 0.999,
         .help = "Delta of the epsilon; 0: as the site's record has it."},
        {"epsilon-max", ARGS_REAL, &o.cap, .value = "EPSILON", .max = 1e6,
         .help = "Cap to compare with; 0: as the site's record has it.", .former = "cap"},
        FORMAT_ROW(&format, "; of several directories: directories and together"),
    };
    struct args args = {
        .command = "privacy ledger",
        .summary =
            "What a site has spent of its privacy budget, of its run.dir: every setting that "
            "was charged, epsilon by each method, the cap and what is left. Several directories, "
            "of runs over the same people or of sites: also their sum. Reads only, also while the "
            "site trains.",
        .example = "atoll privacy ledger run-a",
        .operands = "DIR...",
        ARGS_OPTIONS(options)};
    struct spent s;
    TRY(args_parse(&args, argc, argv, arena));
    if (args.help)
        return ERR_OK;
    TRY(cmd_format(format, &json));
    if (!args.operand_count)
        return err_set(ERR_CONFIG, "privacy ledger: give the run.dir of a site, or several");
    if (args.operand_count > 1)
        return spent_sum_print((const char *const *)args.operand, (size_t)args.operand_count, &o,
                               json, arena);
    TRY(spent_read(&s, args.operand[0], &o, arena));
    if (json)
        spent_print_json(&s);
    else
        spent_print(&s);
    return ERR_OK;
}

static const struct cmd_act acts[] = {
    {"account", "epsilon of DP-SGD, or the noise for an epsilon", privacy_account},
    {"banded", "correlated and independent noise, at one epsilon", privacy_banded},
    {"ledger", "what a site has spent of its budget, and what is left", privacy_ledger},
    {"canaries", "random examples for an audit, to put into the training text", privacy_canaries},
#ifdef ATOLL_NET
    {"verify", "proves what left a site under secure aggregation", privacy_verify},
#endif
    {"audit", "a lower bound on epsilon from one run with canaries", privacy_audit},
};

enum err cmd_privacy(int argc, char **argv, struct arena *arena)
{
    static const struct cmd_acts privacy = {
        "privacy", "atoll privacy ACT: differential privacy in numbers.",
        "  atoll privacy account --q 0.01 --noise-multiplier 1.1 --steps 1000 --delta 1e-5", acts,
        sizeof acts / sizeof *acts};
    process_files_private(); /* canaries are a secret */
    return cmd_acts_run(&privacy, argc, argv, arena);
}
