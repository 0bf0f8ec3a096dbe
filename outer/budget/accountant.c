/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/budget/accountant.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include "outer/budget/gaussian.h"
#include "outer/budget/pld.h"
#include "outer/budget/rdp.h"

const char *const accountant_name[ACCOUNTANT_METHODS] = {"exact", "PLD", "RDP"};

static enum err settings_check(const struct sampled_steps *s, size_t settings, double delta)
{
    if (settings < 1 || settings > SAMPLED_SETTINGS_MAX)
        return err_set(ERR_CONFIG, "privacy: %zu settings; give 1 to %d", settings,
                       SAMPLED_SETTINGS_MAX);
    if (!(delta > 0 && delta < 1))
        return err_set(ERR_CONFIG,
                       "privacy: delta is %g; give a number above 0 and below 1, such "
                       "as 1e-5, below 1 / number of units",
                       delta);
    for (size_t i = 0; i < settings; i++) {
        if (!(s[i].q >= 0 && s[i].q <= 1))
            return err_set(ERR_CONFIG, "privacy: q is %g; give the sampling rate, 0 to 1", s[i].q);
        if (!(s[i].noise >= SAMPLED_NOISE_MIN && s[i].noise <= SAMPLED_NOISE_MAX))
            return err_set(ERR_CONFIG,
                           "privacy: the noise multiplier is %g; give %g to %g (below, epsilon "
                           "says nothing)",
                           s[i].noise, SAMPLED_NOISE_MIN, SAMPLED_NOISE_MAX);
        if (s[i].steps < 0 || s[i].steps > SAMPLED_STEPS_MAX)
            return err_set(ERR_CONFIG, "privacy: %" PRId64 " steps; give 0 to %d", s[i].steps,
                           SAMPLED_STEPS_MAX);
    }
    return ERR_OK;
}

/* Squared mu of one setting's Gaussian, when one unit takes part `times` times. */
static double mu_squared(const struct sampled_steps *s, double times)
{
    return times / (s->noise * s->noise);
}

static void account_exact(struct accountant *out, const struct sampled_steps *s, size_t settings,
                          double delta)
{
    double fixed = 0;
    bool sampled = false;
    for (size_t i = 0; i < settings; i++) {
        if (s[i].q == 0 || s[i].steps == 0)
            continue;
        double times = ceil((double)s[i].steps / floor(1 / s[i].q));
        out->participations += (int64_t)times;
        fixed += mu_squared(&s[i], times);
        sampled |= s[i].q < 1;
    }
    out->unamplified = fixed > 0 ? gaussian_epsilon(sqrt(fixed), delta) : 0;
    out->epsilon[ACCOUNTANT_EXACT] = sampled ? NAN : out->unamplified;
}

static double account_rdp(const struct sampled_steps *s, size_t settings, double delta,
                          double *order)
{
    double rdp[RDP_ORDERS];
    rdp_compose(rdp, rdp_orders, RDP_ORDERS, s, settings);
    return rdp_epsilon(rdp_orders, rdp, RDP_ORDERS, delta, order);
}

enum err accountant_epsilon(struct accountant *out, const struct sampled_steps *s, size_t settings,
                            double delta)
{
    TRY(settings_check(s, settings, delta));
    *out = (struct accountant){0};
    account_exact(out, s, settings, delta);
    out->epsilon[ACCOUNTANT_RDP] = account_rdp(s, settings, delta, &out->order);
    TRY(pld_epsilon(&out->epsilon[ACCOUNTANT_PLD], s, settings, delta));
    out->holds = ACCOUNTANT_RDP;
    for (int i = ACCOUNTANT_METHODS - 1; i >= 0; i--)
        if (out->epsilon[i] <= out->epsilon[out->holds])
            out->holds = (enum accountant_method)i;
    return ERR_OK;
}

/* The search for the noise, in logarithms: epsilon falls with noise. */
struct noise_search {
    struct sampled_steps s[SAMPLED_SETTINGS_MAX]; /* what is spent, and the last one with noise */
    size_t settings;
    double delta, target;
};

static struct sampled_steps *noise_asked(struct noise_search *n)
{
    return &n->s[n->settings - 1];
}

/* log(epsilon / target) at a noise, by the method that holds. */
static enum err noise_try(double *above, struct noise_search *n, double noise)
{
    struct accountant a;
    noise_asked(n)->noise = noise;
    TRY(accountant_epsilon(&a, n->s, n->settings, n->delta));
    *above = log(fmax(a.epsilon[a.holds], 1e-300) / n->target);
    return ERR_OK;
}

/* Noise that RDP alone asks for, at least: where the search begins. */
static double noise_by_rdp(struct noise_search *n)
{
    double low = log(SAMPLED_NOISE_MIN), high = log(SAMPLED_NOISE_MAX), order;
    for (int i = 0; i < 30; i++) {
        double middle = (low + high) / 2;
        noise_asked(n)->noise = exp(middle);
        if (account_rdp(n->s, n->settings, n->delta, &order) > n->target)
            low = middle;
        else
            high = middle;
    }
    return exp(high);
}

/* Narrows low..high, where epsilon is above and at most the target (Illinois method). */
static enum err noise_narrow(struct noise_search *n, double low, double high, double f_low,
                             double f_high, double *noise)
{
    while (high / low > 1 + 1e-4) {
        double share = fmin(0.98, fmax(0.02, f_low / (f_low - f_high))), f;
        double middle = low * pow(high / low, share);
        TRY(noise_try(&f, n, middle));
        if (f > 0) {
            low = middle;
            f_low = f;
            f_high /= 2;
        } else {
            high = middle;
            f_high = f;
            f_low /= 2;
        }
    }
    *noise = high;
    return ERR_OK;
}

static enum err noise_refuse(struct noise_search *n)
{
    return err_set(ERR_CONFIG,
                   "privacy: no noise multiplier up to %g reaches epsilon %g at delta %g with "
                   "%" PRId64 " steps%s; allow a larger epsilon or delta",
                   SAMPLED_NOISE_MAX, n->target, n->delta, noise_asked(n)->steps,
                   n->settings > 1 ? " and those that are charged already" : "");
}

static enum err noise_begin(struct noise_search *n, const struct accountant_goal *g)
{
    *n = (struct noise_search){
        .settings = g->spent_count + 1, .delta = g->delta, .target = g->epsilon};
    for (size_t i = 0; i < g->spent_count && i < SAMPLED_SETTINGS_MAX - 1; i++)
        n->s[i] = g->spent[i];
    if (n->settings <= SAMPLED_SETTINGS_MAX)
        *noise_asked(n) = (struct sampled_steps){g->q, 1, g->steps};
    TRY(settings_check(n->s, n->settings, g->delta));
    return g->epsilon > 0 && g->epsilon <= 1e6
               ? ERR_OK
               : err_set(ERR_CONFIG, "privacy: epsilon is %g; give a number above 0, such as 8",
                         g->epsilon);
}

enum err accountant_noise(double *noise, const struct accountant_goal *g)
{
    struct noise_search n;
    double low, high, f_low, f_high;
    TRY(noise_begin(&n, g));
    if (g->q == 1 && g->spent_count == 0) {
        *noise = fmax(SAMPLED_NOISE_MIN,
                      sqrt((double)g->steps) / gaussian_mu(g->epsilon, g->delta) * (1 + 1e-12));
        return *noise <= SAMPLED_NOISE_MAX ? ERR_OK : noise_refuse(&n);
    }
    high = noise_by_rdp(&n);
    TRY(noise_try(&f_high, &n, high));
    if (f_high > 0)
        return noise_refuse(&n);
    for (double step = 0.7;; step *= step) {
        low = fmax(SAMPLED_NOISE_MIN, high * step);
        TRY(noise_try(&f_low, &n, low));
        if (f_low > 0)
            break;
        high = low;
        f_high = f_low;
        if (low == SAMPLED_NOISE_MIN) {
            *noise = low;
            return ERR_OK;
        }
    }
    return noise_narrow(&n, low, high, f_low, f_high, noise);
}
