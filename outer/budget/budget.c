/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/budget.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"

/* ---- what is charged ---- */
/* Steps of DP-SGD that account for `steps` of a setting. */
static struct lot_account account_of(const struct private_charge *c, int64_t steps)
{
    const struct lot_sizes sizes = private_sizes(c);
    return lot_account(private_sampling(c), &sizes, steps);
}

/* Where steps are counted in rounds, those of one setting have to follow each other. */
static bool same_setting(const struct budget *b, size_t i, const struct private_charge *c)
{
    return private_same(&b->settings[i].charge, c) && (!c->bins || i + 1 == b->count);
}

enum err budget_add(struct budget *b, const struct private_charge *c)
{
    int64_t steps = c->counted ? c->counted : 1;
    size_t i = b->count;
    while (i > 0 && !same_setting(b, i - 1, c)) /* the newest first */
        i--;
    if (i == 0) {
        if (b->count == SAMPLED_SETTINGS_MAX)
            return err_set(ERR_CONFIG,
                           "privacy: more than %d different settings are charged; the accountant "
                           "composes no more: end the run here",
                           SAMPLED_SETTINGS_MAX);
        i = ++b->count;
        b->settings[i - 1] = (struct budget_setting){.charge = *c};
    }
    b->last = i - 1;
    b->settings[i - 1].steps += steps;
    b->settings[i - 1].counted += c->counted;
    b->steps += steps;
    if (!c->counted && c->step + 1 > b->next)
        b->next = c->step + 1;
    return ERR_OK;
}

enum err budget_join(struct budget *b, const struct private_charge *c, int64_t steps)
{
    bool poisson = private_sampling(c) == PRIVACY_SAMPLING_POISSON;
    size_t i = 0;
    while (i < b->count && !(poisson && private_same(&b->settings[i].charge, c)))
        i++;
    if (i == SAMPLED_SETTINGS_MAX)
        return err_set(ERR_CONFIG,
                       "privacy: the lists together have more than %d different settings; the "
                       "accountant composes no more",
                       SAMPLED_SETTINGS_MAX);
    if (i == b->count)
        b->settings[b->count++] = (struct budget_setting){.charge = *c};
    b->settings[i].steps += steps;
    b->steps += steps;
    b->last = i;
    return ERR_OK;
}

static enum err budget_visit(void *self, const struct private_charge *c)
{
    return budget_add(self, c);
}

enum err budget_read(struct budget *b, const char *path, const struct chained_at *known)
{
    *b = (struct budget){.count = 0};
    return file_exists(path) ? private_read(path, known, budget_visit, b) : ERR_OK;
}

/* ---- the accountant's view ---- */
struct budget_steps {
    struct sampled_steps s[SAMPLED_SETTINGS_MAX + 1];
    size_t count;
};

static void steps_put(struct budget_steps *to, const struct private_charge *c, int64_t steps)
{
    const struct lot_account a = account_of(c, steps);
    struct sampled_steps s = {fmin(1, a.rate), c->noise, a.steps};
    if (steps == 0)
        return;
    for (size_t i = 0; i < to->count; i++)
        if (to->s[i].q == s.q && to->s[i].noise == s.noise) {
            to->s[i].steps += steps;
            return;
        }
    to->s[to->count++] = s;
}

static struct budget_steps steps_of(const struct budget *b, const struct budget_plan *p)
{
    struct budget_steps to = {.count = 0};
    bool goes_on = p->more && b->count && same_setting(b, b->count - 1, p->more);
    for (size_t i = 0; i < b->count; i++)
        steps_put(&to, &b->settings[i].charge,
                  b->settings[i].steps + (goes_on && i + 1 == b->count ? p->steps : 0));
    if (p->more && !goes_on)
        steps_put(&to, p->more, p->steps);
    return to;
}

static const char *charge_unclaimed(const struct private_charge *c)
{
    if (!account_of(c, 1).claimed)
        return "sampling = fixed: the order of the records follows from run.seed, which all sites "
               "know, so "
               "nothing is sampled";
    if (c->noise > 0 && c->noise < SAMPLED_NOISE_MIN)
        return "the noise multiplier is below 0.05";
    return NULL;
}

const char *budget_unclaimed(const struct budget *b, const struct budget_plan *p)
{
    const char *why = p->more ? charge_unclaimed(p->more) : NULL;
    for (size_t i = 0; !why && i < b->count; i++)
        why = charge_unclaimed(&b->settings[i].charge);
    return why;
}

static enum err steps_epsilon(struct accountant *out, const struct budget_steps *s, double delta)
{
    *out = (struct accountant){.holds = ACCOUNTANT_PLD};
    return s->count ? accountant_epsilon(out, s->s, s->count, delta) : ERR_OK;
}

enum err budget_epsilon(struct accountant *out, const struct budget *b, const struct budget_plan *p)
{
    const struct budget_steps s = steps_of(b, p);
    return steps_epsilon(out, &s, p->delta);
}

static enum err within(bool *yes, const struct budget *b, const struct budget_plan *p,
                       int64_t steps, double cap)
{
    struct accountant a;
    TRY(budget_epsilon(&a, b, &(struct budget_plan){p->more, steps, p->delta}));
    *yes = a.epsilon[a.holds] <= cap;
    return ERR_OK;
}

enum err budget_left(int64_t *left, const struct budget *b, const struct budget_plan *p, double cap)
{
    int64_t low = 0, high = p->steps;
    bool yes;
    *left = 0;
    TRY(within(&yes, b, p, high, cap));
    if (yes) {
        *left = high;
        return ERR_OK;
    }
    while (high - low > 1) { /* with `high` it is above the cap */
        int64_t middle = low + (high - low) / 2;
        TRY(within(&yes, b, p, middle, cap));
        if (yes)
            low = middle;
        else
            high = middle;
    }
    *left = low;
    return ERR_OK;
}

/* Up, to five significant digits. */
static double rounded_up(double x)
{
    double unit = pow(10, floor(log10(x)) - 4);
    return ceil(x / unit * (1 - 1e-12)) * unit;
}

enum err budget_noise(double *noise, const struct budget *b, const struct budget_plan *p,
                      double epsilon)
{
    const struct budget_steps spent =
        steps_of(b, &(struct budget_plan){.more = NULL, .steps = 0, .delta = p->delta});
    char text[32];
    const struct lot_account more = account_of(p->more, p->steps);
    TRY(accountant_noise(noise, &(struct accountant_goal){.q = fmin(1, more.rate),
                                                          .steps = more.steps,
                                                          .delta = p->delta,
                                                          .epsilon = epsilon,
                                                          .spent = spent.s,
                                                          .spent_count = spent.count}));
    snprintf(text, sizeof text, "%.5g", rounded_up(*noise));
    double shown = strtod(text, NULL);
    *noise = shown >= *noise ? shown : *noise;
    return ERR_OK;
}

static enum err cost_of(double *cost, const struct private_charge *c, int64_t steps, double delta)
{
    static const struct budget nothing = {.count = 0};
    struct accountant a;
    *cost = INFINITY;
    if (charge_unclaimed(c))
        return ERR_OK;
    TRY(budget_epsilon(&a, &nothing, &(struct budget_plan){c, steps, delta}));
    *cost = a.epsilon[a.holds];
    return ERR_OK;
}

enum err budget_dearest(struct private_charge *out, const struct budget *b,
                        const struct budget_plan *p)
{
    double most, cost;
    *out = *p->more;
    TRY(cost_of(&most, out, p->steps, p->delta));
    for (size_t i = 0; i < b->count; i++) {
        TRY(cost_of(&cost, &b->settings[i].charge, p->steps, p->delta));
        if (cost <= most)
            continue;
        most = cost;
        *out = b->settings[i].charge;
    }
    return ERR_OK;
}

/* ---- in words ---- */
static unsigned unit_rank(const char *unit)
{
    unsigned rank = 0;
    while (privacy_unit_choices[rank].name && strcmp(privacy_unit_choices[rank].name, unit) != 0)
        rank++;
    return rank;
}

const char *budget_unit(const struct budget *b, const struct budget_plan *p)
{
    const char *unit = p->more ? p->more->unit : NULL;
    for (size_t i = 0; i < b->count; i++) {
        const char *its = b->settings[i].charge.unit;
        if (!unit || unit_rank(its) < unit_rank(unit))
            unit = its;
    }
    return unit ? unit : "sequence";
}

double budget_rate(const struct budget *b, const struct budget_plan *p)
{
    const struct budget_steps s = steps_of(b, p);
    for (size_t i = 1; i < s.count; i++)
        if (s.s[i].q != s.s[0].q)
            return 0;
    return s.count ? s.s[0].q : p->more ? fmin(1, account_of(p->more, 1).rate) : 0;
}

/* The setting that all of it has in sampling, bands and bins; NULL: there are several. */
static const struct private_charge *one_sampling(const struct budget *b,
                                                 const struct budget_plan *p)
{
    const struct private_charge *c = p->more ? p->more : b->count ? &b->settings[0].charge : NULL;
    for (size_t i = 0; c && i < b->count; i++) {
        const struct private_charge *its = &b->settings[i].charge;
        if (private_sampling(its) != private_sampling(c) || its->bands != c->bands ||
            its->bins != c->bins)
            return NULL;
    }
    return c;
}

enum { SAMPLING_WORDS_MAX = 200 };

static void sampling_words(char out[SAMPLING_WORDS_MAX], const struct budget *b,
                           const struct budget_plan *p)
{
    const struct private_charge *c = one_sampling(b, p);
    double q = budget_rate(b, p);
    char rate[64] = "several rates", noise[80] = "";
    if (q > 0)
        snprintf(rate, sizeof rate, "q = %.6g", q);
    if (c && c->bands > 1)
        snprintf(noise, sizeof noise, "; noise correlated over %llu steps",
                 (unsigned long long)c->bands);
    if (!c)
        snprintf(out, SAMPLING_WORDS_MAX, "several kinds");
    else if (private_sampling(c) == PRIVACY_SAMPLING_BALLS)
        snprintf(out, SAMPLING_WORDS_MAX,
                 "balls in bins, each record once in %llu steps (implemented; no amplification is "
                 "claimed)%s",
                 (unsigned long long)c->bins, noise);
    else
        snprintf(out, SAMPLING_WORDS_MAX, "%s with %s (implemented, not assumed)%s",
                 private_sampling(c) == PRIVACY_SAMPLING_CYCLIC ? "cyclic Poisson" : "Poisson",
                 rate, noise);
}

void budget_sentence(char out[BUDGET_SENTENCE_MAX], const struct accountant *a,
                     const struct budget *b, const struct budget_plan *p)
{
    const char *unit = budget_unit(b, p);
    char sampling[SAMPLING_WORDS_MAX];
    sampling_words(sampling, b, p);
    snprintf(out, BUDGET_SENTENCE_MAX,
             "(epsilon, delta) = (%.6g, %g) for this site after %lld steps, unit = %s, accountant "
             "= %s, sampling = %s. Neighbours are data sets that differ by one %s more or less; "
             "the number of records counts as public. "
             "Without amplification by sampling epsilon would be %.6g. "
             "The epsilons of a person with records at several sites add up.",
             a->epsilon[a->holds], p->delta, (long long)(b->steps + (p->more ? p->steps : 0)), unit,
             accountant_name[a->holds], sampling, unit, a->unamplified);
}
