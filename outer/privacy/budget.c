#include "outer/privacy/budget.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"

/* ---- what is charged ---- */
static double rate_of(const struct private_charge *c)
{
    return (double)c->expected / (double)c->records;
}

static bool same_setting(const struct private_charge *a, const struct private_charge *b)
{
    return a->records == b->records && a->expected == b->expected && a->noise == b->noise &&
           a->clip == b->clip && strcmp(a->unit, b->unit) == 0 &&
           strcmp(a->sampling, b->sampling) == 0;
}

enum err budget_add(struct budget *b, const struct private_charge *c)
{
    int64_t steps = c->counted ? c->counted : 1;
    size_t i = b->count;
    while (i > 0 && !same_setting(&b->settings[i - 1].charge, c)) /* the newest first */
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

static enum err budget_visit(void *self, const struct private_charge *c)
{
    return budget_add(self, c);
}

enum err budget_read(struct budget *b, const char *path)
{
    *b = (struct budget){.count = 0};
    return file_exists(path) ? private_read(path, budget_visit, b) : ERR_OK;
}

/* ---- the accountant's view ---- */
struct budget_steps {
    struct sampled_steps s[SAMPLED_SETTINGS_MAX + 1];
    size_t count;
};

static void steps_put(struct budget_steps *to, const struct private_charge *c, int64_t steps)
{
    struct sampled_steps s = {rate_of(c), c->noise, steps};
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
    for (size_t i = 0; i < b->count; i++)
        steps_put(&to, &b->settings[i].charge, b->settings[i].steps);
    if (p->more)
        steps_put(&to, p->more, p->steps);
    return to;
}

static const char *charge_unclaimed(const struct private_charge *c)
{
    if (strcmp(c->sampling, "poisson") != 0)
        return "sampling = fixed: one record more or less changes the order of all records";
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
    TRY(accountant_noise(noise, &(struct accountant_goal){.q = rate_of(p->more),
                                                          .steps = p->steps,
                                                          .delta = p->delta,
                                                          .epsilon = epsilon,
                                                          .spent = spent.s,
                                                          .spent_count = spent.count}));
    snprintf(text, sizeof text, "%.5g", rounded_up(*noise));
    double shown = strtod(text, NULL);
    *noise = shown >= *noise ? shown : *noise;
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
    return s.count ? s.s[0].q : p->more ? rate_of(p->more) : 0;
}

void budget_sentence(char out[BUDGET_SENTENCE_MAX], const struct accountant *a,
                     const struct budget *b, const struct budget_plan *p)
{
    const char *unit = budget_unit(b, p);
    double q = budget_rate(b, p);
    char rate[64];
    snprintf(rate, sizeof rate, "q = %.6g", q);
    snprintf(
        out, BUDGET_SENTENCE_MAX,
        "(epsilon, delta) = (%.6g, %g) for this site after %lld steps, unit = %s, accountant = "
        "%s, sampling = Poisson with %s (implemented, not assumed). Neighbours are data sets "
        "that differ by one %s more or less. Without amplification by sampling epsilon would "
        "be %.6g.",
        a->epsilon[a->holds], p->delta, (long long)(b->steps + (p->more ? p->steps : 0)), unit,
        accountant_name[a->holds], q > 0 ? rate : "several rates", unit, a->unamplified);
}
