#ifndef PLAN_ACCUMULATOR_H
#define PLAN_ACCUMULATOR_H
/* atoll plan --accumulator: the sums of a model's matrix products, and whether an accumulator of so
 * many bits of mantissa holds them.
 */
#include "outer/config/run.h"

enum err plan_accumulator(struct run *p, int64_t bits, int64_t product) MUST;

#endif
