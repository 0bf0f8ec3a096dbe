/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ANNEAL_H
#define ANNEAL_H
/* The outer learning rate over a run (outer.lr_schedule, outer.min_lr_ratio), the outer momentum
 * over it (outer.momentum_warmup and _start, outer.momentum_cooldown and _end), and the rounds that
 * begin with an empty momentum (outer.momentum_restart). Functions of configuration, amendments and
 * round alone, the same at every replica and in every replay. The rate of a round follows from the
 * step that ends it over the last step: of the run, or where train.steps has grown since, the last
 * step that the run had when the round was committed. After a former last step the annealing begins
 * again, with an empty momentum.
 *
 * The momentum of the fragment's round t, mu: outer.momentum, H: schedule_length of the round,
 * left: the steps from the one that ends the round to the last step, which is that of the rate:
 *   m = start + (mu - start) * (t / warmup)                       t < warmup, else mu
 *   m = end + (m - end) * (left / (cooldown * H))                 left < cooldown * H
 * So round 0 has start, the last round has end, and a round's momentum never changes, however many
 * rounds are committed later: train.steps and outer.sync_every may be amended. After a former last
 * step the momentum is mu again. It does not warm up twice, and a restart does not change it.
 * float64 in this order, each operation rounded, then to float.
 */
#include "outer/diloco/schedule.h"

/* X(ENUMERATOR, name): outer.lr_schedule = name. Share of the rate at progress x in 0..1, e the
 * share at the end: 1; 1 - (1 - e) x; e + (1 - e) (1 + cos(pi x)) / 2. */
#define ANNEAL_LIST(X)                                                                             \
    X(ANNEAL_CONSTANT, constant) X(ANNEAL_LINEAR, linear) X(ANNEAL_COSINE, cosine)
enum anneal_kind {
#define X(value, name) value,
    ANNEAL_LIST(X)
#undef X
};

#define ANNEAL_END 0.4 /* default of outer.min_lr_ratio */
struct anneal {
    enum anneal_kind kind;
    double end;                /* share of the rate at the last step */
    uint64_t restart;          /* rounds between two empty momenta; 0: none */
    uint64_t warmup, cooldown; /* of the momentum, rounds; 0: none */
    float momentum_start, momentum_end;
};

/* No library function: its last bit would depend on the machine. The share at 0.5 is the mean: each
 * shape is symmetric. */
double anneal_share(const struct anneal *a, double progress);
float anneal_rate(const struct anneal *a, float lr, const struct schedule *s, unsigned fragment,
                  uint64_t round);
/* mu: outer.momentum, in [0, 1). */
float anneal_momentum(const struct anneal *a, float mu, const struct schedule *s, unsigned fragment,
                      uint64_t round);
/* ERR_CONFIG: the run, as it is configured, has fewer rounds than warm-up and cooldown together. */
enum err anneal_check(const struct anneal *a, const struct schedule *s) MUST;
/* Does the round begin with an empty momentum? Round 0 does, with or without. */
bool anneal_restarts(const struct anneal *a, const struct schedule *s, unsigned fragment,
                     uint64_t round);

#endif
