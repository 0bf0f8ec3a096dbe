/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRIVATE_COSTS_PRINT_H
#define PRIVATE_COSTS_PRINT_H
/* What `atoll plan private` says on standard output, as text or as one JSON object. */
#include "outer/config/run.h"
#include "outer/plan/private_costs.h"

/* Of the records of one site. ERR_CONFIG: private_costs_check, private_costs_within. */
enum err private_costs_print(struct private_costs *x, const struct run *p, bool json) MUST;
/* Of whole sites, 0: those of outer.sites. ERR_CONFIG, unless `force`: nothing would be learned. */
enum err private_costs_print_sites(const struct run *p, size_t sites, bool force, bool json) MUST;

#endif
