/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEALTH_H
#define HEALTH_H
/* The record `health` (docs/metrics.md): what an operator should be warned of before it stops a
 * run: certificate, disk, clock. A process writes one at its start and one a minute. */
#include "outer/record/jsonl.h"

enum { HEALTH_EVERY_S = 60 };
/* Is one due? last_s: of the last one, 0: none yet; set when it is. */
bool health_due(double *last_s, double now_s);
struct health {
    const char *dir;         /* of the run */
    double certificate_days; /* NaN: there is none */
    double clock_s;          /* a site's: minus the aggregator's clock; NaN: not known */
    uint64_t term;           /* an aggregator's; 0: of a site */
};
void health_record(struct jsonl *r, const struct health *h);

#endif
