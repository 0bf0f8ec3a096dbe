/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AUDIT_H
#define AUDIT_H
/* A lower bound on epsilon from one training run (Steinke, Nasr, Jagielski 2023, 2305.08846,
 * corollary 5.4 and the program of its appendix D). m canaries are each included with probability
 * 1/2, independently; the auditor guesses for r of them, and v guesses are right. A lower bound
 * above the claimed epsilon is a defect of the mechanism. Pure; any thread. O(r) time for each
 * epsilon.
 */
#include <stdint.h>

struct audit {
    int64_t canaries; /* m, at most AUDIT_CANARIES_MAX */
    int64_t guesses;  /* r <= m; for the others the auditor abstains */
    int64_t correct;  /* v <= r */
};
#define AUDIT_CANARIES_MAX 10000000

/* Upper bound on the probability of as many right guesses if the run were (epsilon, delta)-DP. */
double audit_p_value(const struct audit *a, double epsilon, double delta);
/* Largest epsilon, 0 or more, that is refuted with the given confidence (0 to 1, exclusive). 0: no
 * statement. */
double audit_epsilon(const struct audit *a, double delta, double confidence);

#endif
