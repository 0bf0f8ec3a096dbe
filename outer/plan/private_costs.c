/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/private_costs.h"
#include <inttypes.h>
#include <math.h>
#include "outer/budget/budget.h"
#include "outer/plan/plan_private.h"

static const struct budget none = {.count = 0};
_Static_assert((int)PRIVATE_COSTS_CLAIM_MAX == (int)BUDGET_SENTENCE_MAX, "room for the sentence");

static struct budget_plan plan_of(const struct private_costs *x)
{
    return (struct budget_plan){&x->charge, x->s->train_steps, x->s->privacy_delta};
}

enum err private_costs_open(struct private_costs *x, const struct settings *s, uint32_t site,
                            int64_t records, size_t values)
{
    uint64_t counted = (uint64_t)records;
    if (s->privacy_unit == PRIVACY_UNIT_NONE)
        return err_set(ERR_CONFIG, "plan private: privacy.unit is none; say what is protected: "
                                   "--privacy.unit sequence");
    if (!records && !s->data_train.count)
        return err_set(ERR_CONFIG, "plan private: data.train is empty; name it, or say how many "
                                   "records the site has: --records N");
    if (!records)
        TRY(train_records(&counted, s, site));
    *x = (struct private_costs){.s = s, .values = (double)values};
    if (private_charge_of(&x->charge, s, counted) != ERR_OK)
        return err_add(ERR_CONFIG, "plan private: ");
    x->given = x->charge.noise > 0;
    x->q = (double)x->charge.expected / (double)counted;
    return ERR_OK;
}

enum err private_costs_check(const struct private_costs *x)
{
    const struct budget_plan p = plan_of(x);
    const char *why = budget_unclaimed(&none, &p);
    if (why)
        return err_set(ERR_CONFIG, "plan private: no epsilon can be claimed: %s", why);
    if (x->s->privacy_delta * (double)x->charge.records <= 1)
        return ERR_OK;
    return err_set(ERR_CONFIG,
                   "plan private: privacy.delta = %g is above 1 / %" PRIu64
                   ", the number of records; use %.2g or less",
                   x->s->privacy_delta, x->charge.records, 0.1 / (double)x->charge.records);
}

enum err private_costs_claim(struct private_costs *x, char claim[PRIVATE_COSTS_CLAIM_MAX])
{
    struct accountant a;
    const struct budget_plan p = plan_of(x);
    if (!x->given)
        TRY(budget_noise(&x->charge.noise, &none, &p, x->s->privacy_epsilon));
    TRY(budget_epsilon(&a, &none, &p));
    budget_sentence(claim, &a, &none, &p);
    x->epsilon = a.epsilon[a.holds];
    return ERR_OK;
}

enum err private_costs_within(const struct private_costs *x)
{
    double cap = x->s->privacy_epsilon, needed;
    if (!x->given || cap == 0 || x->epsilon <= cap)
        return ERR_OK;
    TRY(private_costs_noise(x, cap, &needed));
    return err_set(
        ERR_CONFIG,
        "plan private: privacy.noise_multiplier = %g costs epsilon %.6g, more than "
        "privacy.epsilon = %g; possible: privacy.noise_multiplier = %g, or privacy.epsilon = %.4g",
        x->charge.noise, x->epsilon, cap, needed, x->epsilon * 1.0001);
}

enum err private_costs_noise(const struct private_costs *x, double epsilon, double *noise)
{
    const struct budget_plan p = plan_of(x);
    return budget_noise(noise, &none, &p, epsilon);
}

double private_costs_unamplified(const struct private_costs *x, double epsilon)
{
    return plan_private_unamplified(x->q, x->s->train_steps, epsilon, x->s->privacy_delta);
}

double private_costs_signal(const struct private_costs *x, double noise)
{
    return plan_private_signal((double)x->charge.expected, noise, x->values);
}

double private_costs_signal_all(const struct private_costs *x, double noise)
{
    return sqrt((double)x->s->train_steps) * private_costs_signal(x, noise);
}

struct private_costs private_costs_larger(const struct private_costs *x, int doublings)
{
    struct private_costs y = *x;
    y.charge.expected <<= doublings;
    y.q = (double)y.charge.expected / (double)y.charge.records;
    return y;
}

enum err private_costs_batches(struct private_batches *b, const struct private_costs *x,
                               double epsilon)
{
    *b = (struct private_batches){.epsilon = epsilon};
    for (; b->count < PRIVATE_COSTS_BATCHES; b->count++) {
        const struct private_costs y = private_costs_larger(x, b->count);
        double noise;
        if (y.q >= 1)
            break;
        TRY(private_costs_noise(&y, epsilon, &noise));
        b->of[b->count] = (struct private_batch){.tokens = x->s->train_batch_tokens << b->count,
                                                 .q = y.q,
                                                 .noise = noise,
                                                 .signal = private_costs_signal(&y, noise),
                                                 .epochs = y.q * (double)x->s->train_steps};
    }
    return ERR_OK;
}

/* Below 1 the noise of all steps together is as long as all that the clipped gradients can add up
 * to, were they alike: nothing can be learned. At 3.2 and 4.7 the encoder of
 * docs/privacy-methods.md 4 kept 69 and 74 % of the accuracy that it has without privacy. */
const char *private_costs_verdict(double signal_all)
{
    static const double HOPELESS = 1, DOUBTFUL = 3;
    return signal_all < HOPELESS
               ? "nothing would be learned: the noise is longer than all gradients "
                 "together; take larger batches, more steps, a smaller model, or a larger "
                 "epsilon"
           : signal_all < DOUBTFUL
               ? "it may learn little; train on public text of this size, with this noise, before "
                 "records are spent"
               : "the signal carries; what accuracy it leaves, a run on public text of this size, "
                 "with this noise, tells";
}
