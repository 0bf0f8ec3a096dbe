/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "outer/plan/plan_private.h"
#include "outer/plan/private_costs.h"
#include "outer/record/json_write.h"
#include "outer/view/secure.h"

static const double targets[] = {1, 3, 8};
enum { TARGETS = sizeof targets / sizeof *targets };

/* privacy.epsilon, or where the noise is given instead, `other`. */
static double epsilon_of(const struct settings *s, double other)
{
    return s->privacy_epsilon > 0 ? s->privacy_epsilon : other;
}

/* ---- one site's records ---- */
static void print_question(const struct private_costs *x)
{
    printf("unit           %s: %" PRIu64 " records, %" PRIu64 " in a step on average; neighbours "
           "differ by one %s more or less\n",
           x->charge.unit, x->charge.records, x->charge.expected, x->charge.unit);
    printf("sampling       %s, q = %.6g; %lld steps\n", x->charge.sampling, x->q,
           (long long)x->s->train_steps);
    printf("delta          %g; 1 / records is %.3g\n", x->s->privacy_delta,
           1 / (double)x->charge.records);
    printf("values         %.0f parameters with noise; clip %g\n", x->values, x->charge.clip);
}

/* ---- as configured ---- */
static enum err print_configured(struct private_costs *x)
{
    char text[PRIVATE_COSTS_CLAIM_MAX];
    TRY(private_costs_claim(x, text));
    printf("noise          %g, %s\n", x->charge.noise,
           x->given ? "as configured" : "computed for privacy.epsilon");
    printf("claim          %s\n", text);
    return private_costs_within(x);
}

/* ---- tables ---- */
static enum err print_target(const struct private_costs *x, double epsilon)
{
    double noise;
    TRY(private_costs_noise(x, epsilon, &noise));
    printf("%8g %9.5g %14.5g %13.3g %13.3g\n", epsilon, noise,
           private_costs_unamplified(x, epsilon), private_costs_signal(x, noise),
           private_costs_signal_all(x, noise));
    return ERR_OK;
}

static enum err print_targets(const struct private_costs *x)
{
    double own = x->s->privacy_epsilon;
    printf("\n%8s %9s %14s %13s %13s\n", "epsilon", "noise", "unamplified", "signal/noise",
           "of all steps");
    for (int i = 0; i < TARGETS; i++)
        TRY(print_target(x, targets[i]));
    if (own > 0 && own != targets[0] && own != targets[1] && own != targets[2])
        TRY(print_target(x, own));
    puts(
        "noise: the multiplier that the epsilon needs; unamplified: if the order were fixed "
        "instead of sampled.\n"
        "signal/noise of a step: largest norm of the sum of the clipped gradients over the norm of "
        "the noise. Real gradients\n"
        "differ in direction, so theirs is less. of all steps: of their sum, if all were alike.");
    return ERR_OK;
}

static enum err print_batches(const struct private_costs *x)
{
    struct private_batches all;
    TRY(private_costs_batches(&all, x, epsilon_of(x->s, targets[1])));
    printf("\nAt epsilon %g with other batches, in as many steps:\n%14s %9s %9s %13s %13s\n",
           all.epsilon, "batch_tokens", "q", "noise", "signal/noise", "epochs");
    for (int i = 0; i < all.count; i++) {
        const struct private_batch *b = &all.of[i];
        printf("%14lld %9.4g %9.5g %13.3g %13.4g\n", (long long)b->tokens, b->q, b->noise,
               b->signal, b->epochs);
    }
    return ERR_OK;
}

/* ---- the verdict ---- */

static void print_verdict(const struct private_costs *x)
{
    double all = private_costs_signal_all(x, x->charge.noise);
    printf("\nverdict        signal over noise of all %lld steps is %.3g: %s.\n",
           (long long)x->s->train_steps, all, private_costs_verdict(all));
}

static void print_leave(const struct run *p)
{
    const struct round_masks m = keys_masks(&p->o);
    char text[SECURE_LEAVE_MAX];
    if (!p->o.outer_sites.count)
        return;
    secure_leave(text, &m, (unsigned)p->o.outer_sites.count, p->o.outer_mode == OUTER_MODE_STRICT);
    printf("leaving        %s.\n", text);
}

/* ---- JSON ---- */
static enum err target_json(struct json_write *w, const struct private_costs *x, double epsilon)
{
    double noise;
    TRY(private_costs_noise(x, epsilon, &noise));
    json_object(w, NULL);
    json_real(w, "epsilon", epsilon);
    json_real(w, "noise", noise);
    json_real(w, "unamplified", private_costs_unamplified(x, epsilon));
    json_real(w, "signal", private_costs_signal(x, noise));
    json_real(w, "signal_of_all_steps", private_costs_signal_all(x, noise));
    json_end(w);
    return ERR_OK;
}

static enum err batches_json(struct json_write *w, const struct private_costs *x)
{
    struct private_batches all;
    TRY(private_costs_batches(&all, x, epsilon_of(x->s, targets[1])));
    json_array(w, "batches");
    for (int i = 0; i < all.count; i++) {
        const struct private_batch *b = &all.of[i];
        json_object(w, NULL);
        json_int(w, "batch_tokens", b->tokens);
        json_real(w, "epsilon", all.epsilon);
        json_real(w, "q", b->q);
        json_real(w, "noise", b->noise);
        json_real(w, "signal", b->signal);
        json_real(w, "epochs", b->epochs);
        json_end(w);
    }
    json_end(w);
    return ERR_OK;
}

static void question_json(struct json_write *w, const struct private_costs *x)
{
    json_text(w, "unit", x->charge.unit);
    json_int(w, "records", (int64_t)x->charge.records);
    json_int(w, "expected", (int64_t)x->charge.expected);
    json_text(w, "sampling", x->charge.sampling);
    json_real(w, "q", x->q);
    json_int(w, "steps", x->s->train_steps);
    json_real(w, "delta", x->s->privacy_delta);
    json_real(w, "parameters", x->values);
    json_real(w, "clip", x->charge.clip);
}

static enum err private_json(struct private_costs *x)
{
    struct json_write w = {.out = stdout, .digits = 9};
    char claim[PRIVATE_COSTS_CLAIM_MAX];
    TRY(private_costs_claim(x, claim));
    double all = private_costs_signal_all(x, x->charge.noise);
    json_object(&w, NULL);
    question_json(&w, x);
    json_real(&w, "noise", x->charge.noise);
    json_bool(&w, "noise_configured", x->given);
    json_real(&w, "epsilon", x->epsilon);
    json_text(&w, "claim", claim);
    json_array(&w, "targets");
    for (int i = 0; i < TARGETS; i++)
        TRY(target_json(&w, x, targets[i]));
    json_end(&w);
    TRY(batches_json(&w, x));
    json_real(&w, "signal_of_all_steps", all);
    json_text(&w, "verdict", private_costs_verdict(all));
    json_close(&w);
    return private_costs_within(x);
}

static void sites_json(const struct run *p, const struct plan_site_level *l, int64_t rounds,
                       size_t sites, double epsilon)
{
    struct json_write w = {.out = stdout, .digits = 9};
    json_object(&w, NULL);
    json_text(&w, "unit", "site");
    json_int(&w, "rounds", rounds);
    json_int(&w, "parameters", (int64_t)p->table.parameters);
    json_int(&w, "sites", (int64_t)sites);
    json_real(&w, "epsilon", epsilon);
    json_real(&w, "delta", p->s.privacy_delta);
    json_real(&w, "noise", l->noise);
    json_real(&w, "noise_over_signal", l->ratio);
    json_close(&w);
}

/* ---- whole sites ---- */
enum err private_costs_print_sites(const struct run *p, size_t sites, bool force, bool json)
{
    const struct settings *s = &p->s;
    double epsilon = epsilon_of(s, targets[TARGETS - 1]);
    int64_t rounds = (s->train_steps + p->o.outer_sync_every - 1) / p->o.outer_sync_every;
    sites = sites ? sites : p->o.outer_sites.count;
    if (!sites)
        return err_set(ERR_CONFIG, "--site-level: outer.sites is empty; say how many sites "
                                   "there are: --sites N");
    const struct plan_site_level l = plan_site_level(
        rounds, (double)sites, (double)p->table.parameters, epsilon, s->privacy_delta);
    if (json)
        sites_json(p, &l, rounds, sites, epsilon);
    else
        printf("unit           a site: all that it contributes\n"
               "releases       %" PRId64 " rounds of %zu parameters, all %zu sites in each, so "
               "sampling amplifies nothing\n"
               "claim          (epsilon, delta) = (%g, %g), noise multiplier %.6g, exact\n",
               rounds, p->table.parameters, sites, epsilon, s->privacy_delta, l.noise);
    if (!json)
        printf("Noise norm is %.4g times the largest possible signal.\n", l.ratio);
    if (l.ratio <= 1 || force)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "--site-level: noise norm is %.4g times the largest possible signal: "
                   "nothing would be learned. Possible: %.0f sites, or the privacy of records "
                   "inside each site (privacy.unit) with secure aggregation; --force prints the "
                   "plan in spite of it",
                   l.ratio, ceil(l.sites));
}

enum err private_costs_print(struct private_costs *x, const struct run *p, bool json)
{
    if (!json)
        print_question(x);
    TRY(private_costs_check(x));
    if (json)
        return private_json(x);
    TRY(print_configured(x));
    TRY(print_targets(x));
    TRY(print_batches(x));
    print_verdict(x);
    print_leave(p);
    return ERR_OK;
}
