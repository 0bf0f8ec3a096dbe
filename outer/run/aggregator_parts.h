/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_PARTS_H
#define AGGREGATOR_PARTS_H
/* What atoll serve and a site that is its own aggregator (site.aggregator = self) open alike. */
#include "outer/aggregator/aggregator.h"
#include "outer/config/run.h"

/* Opens the CPU device and the aggregator's outer state in its directory `env`: loaded, or begun at
 * round 0 with the run's initial parameters. The caller closes both, also after an error. */
enum err aggregator_parts_state(struct outer_state *replica, struct dev **cpu, struct env *env,
                                struct run *run) MUST;
/* Options that follow from the configuration alone: of one aggregator of all fragments that waits
 * for every site. */
struct aggregator_options aggregator_parts_options(const struct run *run);

#endif
