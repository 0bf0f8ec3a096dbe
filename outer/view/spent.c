/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/spent.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double DELTA_DEFAULT = 1e-5; /* privacy.delta */

/* ---- reading ---- */
static void record_take(struct spent *s, const char *dir, struct arena *a)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    const char *path = arena_printf(a, "%s/%s", dir, RECORD_FILE);
    if (!path || !jsonl_reader_open(&reader, path))
        return;
    while (jsonl_next(&reader, &row)) {
        if (jsonl_is(&row, "start")) {
            snprintf(s->run, sizeof s->run, "%s", jsonl_string(&row, "run"));
            snprintf(s->site, sizeof s->site, "%s", jsonl_string(&row, "site"));
        }
        if (!jsonl_is(&row, "privacy"))
            continue;
        s->promised = true;
        double delta = jsonl_number(&row, "delta"), cap = jsonl_number(&row, "cap");
        s->delta = delta > 0 ? delta : s->delta;
        s->cap = cap > 0 ? cap : 0;
    }
    jsonl_reader_close(&reader);
}

/* Further steps, in growing numbers: a few that are left are found without an account of millions.
 */
static enum err left_find(struct spent *s)
{
    struct budget_plan p = {&s->budget.settings[s->budget.last].charge, 64, s->delta};
    for (;; p.steps *= 4) {
        TRY(budget_left(&s->left, &s->budget, &p, s->cap));
        s->left_more = s->left == p.steps;
        if (!s->left_more || p.steps >= SPENT_LEFT_MAX)
            return ERR_OK;
    }
}

struct budget_plan spent_plan(const struct spent *s)
{
    return (struct budget_plan){.more = NULL, .steps = 0, .delta = s->delta};
}

/* A list that is not there was never there only where nothing else says that steps were charged:
 * its head, the key of the noise that a checkpoint has, what a checkpoint or the record tell. */
static enum err charges_there(const struct spent *s, const char *dir, bool known, struct arena *a)
{
    static const char *const traces[] = {"privacy.charges.head", "privacy.key", "CURRENT"};
    bool there[3];
    if (file_exists(s->charges))
        return ERR_OK;
    for (size_t i = 0; i < 3; i++) {
        const char *path = arena_printf(a, "%s/inner/%s", dir, traces[i]);
        TRY_ALLOC(path);
        there[i] = file_exists(path);
    }
    if (!known && !there[0] && !(there[2] && (there[1] || s->promised)))
        return err_set(ERR_INPUT,
                       "%s is not there: %s is no run.dir of a site with privacy.unit, or it has "
                       "not begun",
                       s->charges, dir);
    return err_set(ERR_CORRUPT,
                   "%s is missing, and this directory has charged steps: the budget that was spent "
                   "is not known; restore the whole directory of one backup, or begin a new run",
                   s->charges);
}

enum err spent_read(struct spent *s, const char *dir, const struct spent_options *o,
                    struct arena *a)
{
    struct chained_at known;
    char *inner;
    *s = (struct spent){.delta = DELTA_DEFAULT};
    TRY_ALLOC(s->charges = arena_printf(a, "%s/inner/privacy.charges", dir));
    TRY_ALLOC(inner = arena_printf(a, "%s/inner", dir));
    TRY(private_known(inner, &known)); /* first: a site that trains appends meanwhile */
    record_take(s, dir, a);
    TRY(charges_there(s, dir, known.number > 0, a));
    TRY(budget_read(&s->budget, s->charges, &known));
    s->delta = o->delta > 0 ? o->delta : s->delta;
    s->cap = o->cap > 0 ? o->cap : s->cap;
    const struct budget_plan none = spent_plan(s);
    s->unclaimed = budget_unclaimed(&s->budget, &none);
    if (s->unclaimed)
        return ERR_OK;
    TRY(budget_epsilon(&s->account, &s->budget, &none));
    return s->cap > 0 && s->budget.count ? left_find(s) : ERR_OK;
}

/* ---- text ---- */
const char *spent_time(char out[SPENT_TIME_MAX], double t)
{
    jsonl_date(out, SPENT_TIME_MAX, "%Y-%m-%d %H:%M:%S UTC", t);
    if (!*out || t <= 0)
        snprintf(out, SPENT_TIME_MAX, "-");
    return out;
}

void spent_print_methods(const struct accountant *a)
{
    for (int i = 0; i < ACCOUNTANT_METHODS; i++) {
        printf("%-14s ", accountant_name[i]);
        if (isnan(a->epsilon[i]))
            printf("no closed form with sampling");
        else
            printf("epsilon %.9g", a->epsilon[i]);
        if (i == ACCOUNTANT_RDP)
            printf(", order %g", a->order);
        printf("%s\n", i == (int)a->holds ? "  <- holds: the smallest of the bounds" : "");
    }
}

static double rate_of(const struct private_charge *c)
{
    return (double)c->expected / (double)c->records;
}

/* What a row of the table has no column for. */
static void print_spacing(const struct budget *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct private_charge *c = &b->settings[i].charge;
        if (c->bins)
            printf("%s: a record returns after %" PRIu64 " steps or more\n", c->sampling, c->bins);
        if (c->bands > 1)
            printf("noise correlated over %" PRIu64 " steps\n", c->bands);
    }
}

static void print_settings(const struct budget *b)
{
    printf("%10s  %-9s  %-9s %10s %9s %12s %9s %7s %9s\n", "steps", "unit", "sampling", "records",
           "expected", "q", "noise", "clip", "counted");
    for (size_t i = 0; i < b->count; i++) {
        const struct budget_setting *g = &b->settings[i];
        const struct private_charge *c = &g->charge;
        printf("%10" PRId64 "  %-9s  %-9s %10" PRIu64 " %9" PRIu64 " %12.6g %9.6g %7.6g %9" PRId64
               "\n",
               g->steps, c->unit, c->sampling, c->records, c->expected, rate_of(c), c->noise,
               c->clip, g->counted);
    }
}

static bool any_counted(const struct budget *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->settings[i].counted)
            return true;
    return false;
}

static void print_cap(const struct spent *s)
{
    double epsilon = s->account.epsilon[s->account.holds];
    if (!(s->cap > 0)) {
        puts("cap            none");
        return;
    }
    printf("cap            %g; left: epsilon %.6g, %s%" PRId64 " further steps of the newest "
           "setting\n",
           s->cap, fmax(0, s->cap - epsilon), s->left_more ? "more than " : "", s->left);
}

void spent_print(const struct spent *s)
{
    const struct budget_plan none = spent_plan(s);
    const char *unit = budget_unit(&s->budget, &none);
    if (*s->run)
        printf("site           %s, run %s\n", *s->site ? s->site : "alone", s->run);
    printf("charges        %s: %" PRId64 " steps\n\n", s->charges, s->budget.steps);
    print_settings(&s->budget);
    print_spacing(&s->budget);
    if (any_counted(&s->budget))
        puts("counted: steps that a manifest of the run names and this list does not have one by "
             "one, at the settings of that time.");
    puts("");
    if (s->unclaimed) {
        printf("epsilon        none can be claimed: %s\n", s->unclaimed);
        return;
    }
    printf("delta          %g\n", s->delta);
    printf("unit           %s; neighbours differ by one %s more or less\n", unit, unit);
    if (s->budget.count)
        spent_print_methods(&s->account);
    printf("unamplified    epsilon %.9g: without amplification by sampling\n",
           s->account.unamplified);
    print_cap(s);
}

/* ---- JSON ---- */
static void settings_json(struct json_write *w, const struct budget *b)
{
    json_array(w, "settings");
    for (size_t i = 0; i < b->count; i++) {
        const struct budget_setting *g = &b->settings[i];
        json_object(w, NULL);
        json_int(w, "steps", g->steps);
        json_int(w, "counted", g->counted);
        json_int(w, "records", (int64_t)g->charge.records);
        json_int(w, "expected", (int64_t)g->charge.expected);
        json_text(w, "unit", g->charge.unit);
        json_text(w, "sampling", g->charge.sampling);
        json_real(w, "clip", g->charge.clip);
        json_int(w, "bands", (int64_t)g->charge.bands);
        json_int(w, "bins", (int64_t)g->charge.bins);
        json_real(w, "noise", g->charge.noise);
        json_end(w);
    }
    json_end(w);
}

void spent_methods_json(struct json_write *w, const struct accountant *a)
{
    json_real(w, "epsilon", a->epsilon[a->holds]);
    json_text(w, "accountant", accountant_name[a->holds]);
    json_real(w, "epsilon_exact", a->epsilon[ACCOUNTANT_EXACT]);
    json_real(w, "epsilon_pld", a->epsilon[ACCOUNTANT_PLD]);
    json_real(w, "epsilon_rdp", a->epsilon[ACCOUNTANT_RDP]);
}

static void account_json(struct json_write *w, const struct spent *s)
{
    spent_methods_json(w, &s->account);
    json_real(w, "unamplified", s->account.unamplified);
    if (s->cap > 0) {
        json_real(w, "cap", s->cap);
        json_int(w, "steps_left", s->left);
        json_bool(w, "steps_left_more", s->left_more);
    }
}

void spent_print_json(const struct spent *s)
{
    struct json_write w = {.out = stdout, .digits = 9};
    const struct budget_plan none = spent_plan(s);
    json_object(&w, NULL);
    json_text(&w, "charges", s->charges);
    json_text(&w, "run", s->run);
    json_text(&w, "site", s->site);
    settings_json(&w, &s->budget);
    json_text(&w, "unit", budget_unit(&s->budget, &none));
    json_real(&w, "delta", s->delta);
    if (s->unclaimed)
        json_text(&w, "unclaimed", s->unclaimed);
    else
        account_json(&w, s);
    json_int(&w, "steps", s->budget.steps);
    json_close(&w);
}

/* ---- several directories ---- */
static void claim_json(struct json_write *w, const char *why, double epsilon, double delta)
{
    json_real(w, "epsilon", why ? NAN : epsilon);
    json_real(w, "delta", delta);
    if (why)
        json_text(w, "unclaimed", why);
}

static void one_json(struct json_write *w, const struct spent *s, const char *directory,
                     const char *unit)
{
    json_object(w, NULL);
    json_text(w, "directory", directory);
    json_int(w, "steps", s->budget.steps);
    json_text(w, "unit", unit);
    claim_json(w, s->unclaimed, s->account.epsilon[s->account.holds], s->delta);
    json_end(w);
}

static void sum_begin(struct json_write *w)
{
    json_object(w, NULL);
    json_array(w, "directories");
}

static void one_print(const struct spent *s, const char *directory, struct json_write *w)
{
    const struct budget_plan none = spent_plan(s);
    const char *unit = budget_unit(&s->budget, &none);
    double epsilon = s->account.epsilon[s->account.holds];
    if (w) {
        one_json(w, s, directory, unit);
        return;
    }
    printf("%-24s %8" PRId64 " steps, unit %s", directory, s->budget.steps, unit);
    if (s->unclaimed)
        printf(", no epsilon can be claimed: %s\n", s->unclaimed);
    else
        printf(", epsilon %.6g at delta %g\n", epsilon, s->delta);
}

static void sum_text(const char *why, double epsilon, double delta, const char *unit)
{
    if (why)
        printf("together                 no epsilon can be claimed: %s\n", why);
    else
        printf(
            "together                 (epsilon, delta) = (%.6g, %g), unit %s: of who has records "
            "in all of them\n",
            epsilon, delta, unit);
}

static void sum_json(struct json_write *w, const char *why, double epsilon, double delta,
                     const char *unit)
{
    json_end(w);
    json_object(w, "together");
    claim_json(w, why, epsilon, delta);
    json_text(w, "unit", unit);
    json_close(w);
}

enum err spent_sum_print(const char *const *dirs, size_t count, const struct spent_options *o,
                         bool json, struct arena *arena)
{
    struct json_write w = {.out = stdout, .digits = 9};
    struct budget all = {.count = 0};
    struct spent s;
    struct accountant a;
    double delta = 0;
    for (size_t i = 0; i < count; i++) {
        TRY(spent_read(&s, dirs[i], o, arena));
        if (json && i == 0)
            sum_begin(&w);
        one_print(&s, dirs[i], json ? &w : NULL);
        delta = i == 0 || s.delta < delta ? s.delta : delta;
        for (size_t k = 0; k < s.budget.count; k++)
            TRY(budget_join(&all, &s.budget.settings[k].charge, s.budget.settings[k].steps));
    }
    const struct budget_plan none = {.more = NULL, .steps = 0, .delta = delta};
    const char *why = budget_unclaimed(&all, &none);
    if (!why)
        TRY(budget_epsilon(&a, &all, &none));
    double epsilon = why ? NAN : a.epsilon[a.holds];
    if (json)
        sum_json(&w, why, epsilon, delta, budget_unit(&all, &none));
    else
        sum_text(why, epsilon, delta, budget_unit(&all, &none));
    return ERR_OK;
}
