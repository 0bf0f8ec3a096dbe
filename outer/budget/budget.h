/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BUDGET_H
#define BUDGET_H
/* What a site has spent of its privacy budget, from its list of charges (inner/train/private.h),
 * and what further steps cost. Charges of equal settings are one setting of the accountant. The
 * unit of the whole is the smallest that was charged: an epsilon for owners holds for their
 * documents and sequences too, and not the other way round.
 *
 * It knows no configuration and no run: steps that are to come, delta and cap are arguments. Any
 * thread; what asks the accountant takes up to some seconds (accountant.h).
 */
#include "inner/train/private.h"
#include "outer/budget/accountant.h"

struct budget_setting {
    struct private_charge charge; /* the first one */
    int64_t steps, counted;       /* counted: of these, those that a manifest alone names */
};
struct budget {
    struct budget_setting settings[SAMPLED_SETTINGS_MAX];
    size_t count, last; /* last: the setting of the newest charge */
    int64_t steps;      /* of all settings */
    int64_t next;       /* the step after the highest that is listed */
};

/* Charges of the file; no file: none. ERR_CORRUPT names its line; ERR_CONFIG: more than
 * SAMPLED_SETTINGS_MAX settings. */
enum err budget_read(struct budget *b, const char *path, const struct chained_at *known) MUST;
enum err budget_add(struct budget *b, const struct private_charge *c) MUST;
/* Steps of another list: they follow none of these, so only those of Poisson sampling are one
 * setting with equal ones. */
enum err budget_join(struct budget *b, const struct private_charge *c, int64_t steps) MUST;

/* The steps of `more` that are to come; NULL: none. Its step and tag do not matter. */
struct budget_plan {
    const struct private_charge *more;
    int64_t steps;
    double delta;
};
/* Why no epsilon can be claimed for what is charged and planned; NULL: it can. Static text. */
const char *budget_unclaimed(const struct budget *b, const struct budget_plan *p);
/* Of what is charged and planned; nothing of both: all epsilons are 0. budget_unclaimed() is NULL.
 */
enum err budget_epsilon(struct accountant *out, const struct budget *b,
                        const struct budget_plan *p) MUST;
/* The most of the planned steps, 0 to p->steps, with which epsilon is at most `cap`. */
enum err budget_left(int64_t *left, const struct budget *b, const struct budget_plan *p,
                     double cap) MUST;
/* The smallest noise multiplier of the planned steps with which epsilon is at most `epsilon`, with
 * five significant digits, rounded up. */
enum err budget_noise(double *noise, const struct budget *b, const struct budget_plan *p,
                      double epsilon) MUST;

/* The setting, of those that are charged and p->more, with which p->steps steps cost most, as
 * epsilon by themselves; one for which none can be claimed is the dearest. */
enum err budget_dearest(struct private_charge *out, const struct budget *b,
                        const struct budget_plan *p) MUST;

/* Unit and sampling of all of it: what was charged with several sampling rates has no q (0). */
const char *budget_unit(const struct budget *b, const struct budget_plan *p);
double budget_rate(const struct budget *b, const struct budget_plan *p);
/* "(epsilon, delta) = (2.99, 1e-05), unit = sequence, accountant = PLD, sampling = Poisson with
 * q = 0.05 (implemented, not assumed). ...": docs/privacy-setup.md 3.1. */
enum { BUDGET_SENTENCE_MAX = 720 };
void budget_sentence(char out[BUDGET_SENTENCE_MAX], const struct accountant *a,
                     const struct budget *b, const struct budget_plan *p);

#endif
