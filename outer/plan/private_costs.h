/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVATE_COSTS_H
#define PRIVATE_COSTS_H
/* What record-level privacy costs one site before a run: the noise for an epsilon, the epsilon of a
 * noise, and how much of a step is signal (plan_private.h). Pure but for the count of the records;
 * the accountant takes some seconds.
 */
#include "inner/train/train.h"
#include "outer/config/run.h"

struct private_costs {
    const struct settings *s;     /* borrowed */
    struct private_charge charge; /* of a step; noise: as configured, or computed for the epsilon */
    bool given;                   /* the noise is as configured */
    double q, values;             /* sampling rate; parameters with noise */
    double epsilon;               /* after private_costs_claim: of all steps with this noise */
};
/* Of the site of this index. records 0: they are counted in data.train. ERR_CONFIG: nothing is
 * protected, or there is nothing to count. */
enum err private_costs_open(struct private_costs *x, const struct settings *s, uint32_t site,
                            int64_t records, size_t values) MUST;
/* ERR_CONFIG: no epsilon can be claimed, or delta is above 1 / records. */
enum err private_costs_check(const struct private_costs *x) MUST;
/* The claim as a sentence (budget.h); computes the noise where none is given. */
enum { PRIVATE_COSTS_CLAIM_MAX = 720 };
enum err private_costs_claim(struct private_costs *x, char claim[PRIVATE_COSTS_CLAIM_MAX]) MUST;
/* After the claim. ERR_CONFIG: the given noise costs more than privacy.epsilon. */
enum err private_costs_within(const struct private_costs *x) MUST;
/* The noise that an epsilon needs; without amplification, if the order were fixed. */
enum err private_costs_noise(const struct private_costs *x, double epsilon, double *noise) MUST;
double private_costs_unamplified(const struct private_costs *x, double epsilon);
/* Largest norm of the sum of a step's clipped gradients over the norm of the noise; of all steps.
 */
double private_costs_signal(const struct private_costs *x, double noise);
double private_costs_signal_all(const struct private_costs *x, double noise);
/* The same site with a batch of 2^doublings times as many records. */
struct private_costs private_costs_larger(const struct private_costs *x, int doublings);
/* The same epsilon with larger batches, which read more records for as many steps. */
enum { PRIVATE_COSTS_BATCHES = 4 };
struct private_batches {
    double epsilon;
    int count;
    struct private_batch {
        int64_t tokens;
        double q, noise, signal, epochs;
    } of[PRIVATE_COSTS_BATCHES];
};
enum err private_costs_batches(struct private_batches *b, const struct private_costs *x,
                               double epsilon) MUST;
/* What signal over noise of all steps means, in words. */
const char *private_costs_verdict(double signal_all);
/* What `atoll plan private` says on standard output, as text or as one JSON object: of the records
 * of one site. ERR_CONFIG: private_costs_check, private_costs_within. */
enum err private_costs_print(struct private_costs *x, const struct run *p, bool json) MUST;
/* Of whole sites, 0: those of outer.sites. ERR_CONFIG, unless `force`: nothing would be learned. */
enum err private_costs_print_sites(const struct run *p, size_t sites, bool force, bool json) MUST;

#endif
