/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRACE_H
#define GRACE_H
/* How long a round waits for late sites once a majority is in: adaptive grace (Decoupled DiLoCo,
 * 2604.21428). A round that is applied tau steps after its send may take as long as these steps do
 * before training waits for it:
 *     slack = tau * step time - (time until the majority was in + time of the exchange)
 * and the grace is gamma * slack, gamma < 1. All three times are measured at the aggregator: a step
 * from the first contributions of rounds in a row, the exchange from the seal until a majority has
 * adopted the state. Smoothed; of one fragment; pure.
 */
#include <stdbool.h>
#include <stdint.h>

struct grace_rule {
    double gamma;   /* outer.grace_fraction; 0: the straggler timeout alone */
    double overlap; /* tau over the steps between two rounds of a fragment */
};
struct grace {
    bool began;                     /* first_ms is of the present round, not of the one before */
    bool majority, sealed, timed;   /* majority_ms, sealed_ms are set; first_ms is */
    uint64_t first_ms, majority_ms; /* of a round: its first contribution, its majority */
    uint64_t sealed_ms;
    unsigned adopted;             /* sites that have the state that the last round made */
    double round_ms, exchange_ms; /* smoothed; 0: not measured yet */
};

void grace_contribution(struct grace *g, uint64_t now_ms, bool majority);
void grace_contribution_lost(struct grace *g); /* a counted contribution is asked for again */
void grace_sealed(struct grace *g, uint64_t now_ms);
void grace_committed(struct grace *g); /* the next round begins */
/* One more site has the state that the round before made; majority: of the configured sites. */
void grace_adopted(struct grace *g, uint64_t now_ms, unsigned majority);
/* When the round may be sealed by a majority; UINT64_MAX: not by the grace. */
uint64_t grace_until(const struct grace *g, const struct grace_rule *rule);

#endif
