#ifndef TUNING_H
#define TUNING_H
/* What is published about the outer learning rate, and what follows for a run before it starts:
 * the rate where outer.lr is not set, and whether the one that is set steps too far. Pure; doubles,
 * no part of the exact set: the result is rounded to two decimals and pinned.
 *
 * One outer step's effect lasts as long as its momentum: with rho the correlation of successive
 * mean deltas, the effective step is lr * (1 + mu / (1 - mu*rho)). Rounds of few steps have deltas
 * that are much alike, so there the same setting steps further.
 *
 * A codec that sends signs or a few of the values has its momentum in the residual (SparseLoCo,
 * 2508.15706): what waits there is sent later. docs/results.md has what both cost.
 */
#include "outer/config/keys.h"

/* Effective steps up to here cost little: 0.7/0.9 at two sites lost 0.5 % of loss at H = 24 (1.22
 * times the reference by the formulas here) and 9 % at H = 2 (1.49 times). */
#define TUNING_GUARD 1.3

struct tuning {
    double lr, mu;    /* as used: sgd and average have mu 0 */
    double right_lr;  /* what the table gives for this run */
    double rho;       /* published for rounds of this many steps */
    double effective; /* step of lr, mu, rho */
    double reference; /* of the published setting */
    bool from_table;  /* outer.lr was not set */
    bool far;         /* effective > TUNING_GUARD * reference */
    bool twice;       /* momentum on top of a residual that holds most of what was not sent */
    int64_t every;    /* steps that one application of the momentum sums over */
    unsigned sites;
};

/* Published best rate at mu = 0.9: by sites at H = 30 (2503.09799, figure 7, 335 M parameters and
 * more), rising to at least 0.7 at H = 500 (2311.08105). */
double tuning_table(unsigned sites, int64_t every);
/* Correlation of successive mean deltas: 0.98, 0.93, 0.73 at H = 16, 64, 256 (plain averages of
 * four sites); towards 1 at H = 1. */
double tuning_rho(int64_t every);
double tuning_effective(double lr, double mu, double rho);
/* The outer optimizer that suits the codec: the one set, or sgd where the residual is momentum
 * enough. */
enum outer_opt_kind tuning_optimizer(const struct outer_settings *o);
struct tuning tuning_of(const struct outer_settings *o);
/* The same, and outer.lr = 0 becomes its value, so that it is the value that is pinned. */
struct tuning tuning_resolve(struct outer_settings *o);
/* A sentence: the rate and where it comes from. */
void tuning_text(const struct tuning *t, char *out, size_t size_bytes);
/* Both, as log lines. */
void tuning_log(const struct tuning *t);
/* The warning; "" where there is nothing to warn of. */
void tuning_warning(const struct tuning *t, char *out, size_t size_bytes);

#endif
