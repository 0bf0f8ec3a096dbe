/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TUNING_H
#define TUNING_H
/* Published outer learning rates applied to a run before it starts: the default of outer.lr, and a
 * check whether a configured outer.lr is too large. Pure; doubles, not in the exact set: the result
 * is rounded to two decimals and pinned.
 *
 * One outer step's effect lasts as long as its momentum: with rho the correlation of successive
 * mean deltas, the effective step is lr * (1 + mu / (1 - mu*rho)). Rounds of few steps have deltas
 * that are much alike, so there the same setting steps further.
 *
 * outer.merge = radial with a momentum wants 0.3 of the rate (measured: docs/methods.md
 * 1.13).
 *
 * A codec that sends signs or a few of the values has its momentum in the residual (SparseLoCo,
 * 2508.15706): what waits there is sent later. docs/results.md has what both cost.
 */
#include "outer/config/keys.h"

/* Largest effective step over the reference without a warning: 0.7/0.9 at two sites lost 0.5 % of
 * loss at H = 24 (1.22 times the reference by the formulas here) and 9 % at H = 2 (1.49 times). */
#define TUNING_GUARD 1.3

struct tuning {
    double lr, mu;    /* values in use: sgd and average have mu 0 */
    double right_lr;  /* the table's rate for this run */
    double share;     /* lr steps as far as share * lr of Nesterov's momentum */
    double rho;       /* published correlation for rounds of `every` steps */
    double effective; /* effective step of mu, rho and the mean of the rate over the run */
    double reference; /* effective step of the published setting */
    bool from_table;  /* outer.lr was not set */
    bool own;         /* the table is not for this optimizer: right_lr is the default of its row */
    bool far;         /* effective > TUNING_GUARD * reference */
    bool twice;       /* momentum on top of a residual that holds most of what was not sent */
    int64_t every;    /* inner steps per application of the momentum */
    unsigned sites;
};

/* Published best rate at mu = 0.9: by sites at H = 30 (2503.09799, figure 7, 335 M parameters and
 * more), rising to at least 0.7 at H = 500 (2311.08105). */
double tuning_table(unsigned sites, int64_t every);
/* Correlation of successive mean deltas: 0.98, 0.93, 0.73 at H = 16, 64, 256 (plain averages of
 * four sites); towards 1 at H = 1. */
double tuning_rho(int64_t every);
double tuning_effective(double lr, double mu, double rho);
/* The outer optimizer for the codec: the configured one, or sgd where the codec's residual acts as
 * momentum. */
enum outer_opt_kind tuning_optimizer(const struct outer_settings *o);
struct tuning tuning_of(const struct outer_settings *o);
/* The same, and outer.lr = 0 becomes its value, so that it is the value that is pinned. */
struct tuning tuning_resolve(struct outer_settings *o);
/* Momentum and rate by the rounds of a fragment (row outer-rounds of docs/reproductions.md, the
 * rate searched at each momentum):
 * - a decoder with LAMB, more than TUNING_GROWTH_ROUNDS of at least TUNING_LEAST_EVERY steps: a
 *   momentum that grows from `start` to 0.9 in the first third. The rate is 0.7; from eight sites
 *   on 1 (row distance-sites); of two sites 1, and falls to ANNEAL_END of it. Below
 *   TUNING_SHORT_EVERY steps it is lower, at any number of sites;
 * - else up to TUNING_FEW_ROUNDS: 0.6 with a rate of 1;
 * - else 0.9 with the rate of the table (lr 0), below TUNING_SHORT_EVERY steps with a lower one;
 * - fewer than TUNING_LEAST_ROUNDS: not measured. */
enum {
    TUNING_LEAST_ROUNDS = 10,
    TUNING_GROWTH_ROUNDS = 30,
    TUNING_FEW_ROUNDS = 90,
    TUNING_LEAST_EVERY = 6,
    TUNING_SHORT_EVERY = 20
};
struct tuning_momentum {
    bool measured; /* false: mu is the configured one */
    double mu, lr, start;
    int64_t warmup; /* rounds; 0: a constant momentum */
    bool falls;     /* lr falls to ANNEAL_END of it in a line: outer.lr_schedule linear */
};
struct tuning_momentum tuning_momentum(const struct settings *s, const struct outer_settings *o,
                                       int64_t rounds);
/* Which momentum, or which rate of short rounds, ended with less loss in a run of this many rounds;
 * "": the configured one, one that grows already, or nothing is known of this outer.optimizer. */
void tuning_momentum_text(const struct settings *s, const struct outer_settings *o, int64_t rounds,
                          char *out, size_t size_bytes);
/* Is outer.update_alpha = 0 better for overlapped rounds of this run? Row distance-left, 150
 * rounds. False: not measured, or nothing overlaps. */
bool tuning_unmixed(const struct outer_settings *o, int64_t rounds);
/* The advice that follows; "": none. */
void tuning_overlap_text(const struct outer_settings *o, int64_t rounds, char *out,
                         size_t size_bytes);
/* Is LAMB for the layers' matrices alone better for this model (row trust-layers)? Decoders; an
 * encoder is better with LAMB as published (row trust-encoder). False: it is set already, or
 * settings say how ratios are taken. */
bool tuning_trust_hidden(const struct settings *s);
/* Text: the rate and its source. */
void tuning_text(const struct tuning *t, char *out, size_t size_bytes);
/* What is known of rate and momentum of a run of `rounds` rounds of a fragment, as log lines. */
void tuning_log(const struct tuning *t, const struct settings *s, const struct outer_settings *o,
                int64_t rounds);
/* The warning; "": none. */
void tuning_warning(const struct tuning *t, char *out, size_t size_bytes);

#endif
