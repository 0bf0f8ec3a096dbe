/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_MASKS_H
#define AGGREGATOR_MASKS_H
/* Secure aggregation at the aggregator (docs/privacy-methods.md): aggregator_masks.c, its parts. */
#include "outer/aggregator/aggregator_sums.h"

extern const struct aggregator_sums aggregator_sums_masked;

#endif
