#ifndef EXACT_H
#define EXACT_H
/* The exact set of dev.h, compiled once per level (kernels/base/level.h): plainly it has the names
 * of dev.h, cpu_delta and so on; a level's own ops come in through its table.
 */
#include "kernels/base/level.h"
#include "kernels/dev.h"

/* Puts the level's exact ops into a table that has the plain ones. */
void cpu_exact_v3(struct dev_ops *ops);
void cpu_exact_v4(struct dev_ops *ops);

#ifdef ISA
#define X(name, arguments) void LEVEL_NAME(cpu_##name) arguments;
DEV_OPS_EXACT(X)
#undef X
#endif

#endif
