/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCALING_H
#define SCALING_H
/* Speed-up, efficiency and the number of GPUs beyond which more of them stop paying, from times of
 * the same work on several numbers of GPUs (Cortes et al. 2025, 2509.03263; Fernandez et al. 2024,
 * 2411.13055). Pure.
 */
#include <stddef.h>

struct scaling {
    double n, seconds; /* given: GPUs, ranks or sites, and the time of the work */
    double speedup;    /* S = T(n0) / T(n), n0: the first row */
    double efficiency; /* E = S n0 / n */
    double hours;      /* of GPUs: n T(n) / 3600 */
    double marginal;   /* d ln(work/s) / d ln n from the row before; the first row: 1 */
};
#define SCALING_EFFICIENCY 0.7 /* least efficiency of the knee */
#define SCALING_MARGINAL   0.5 /* below it more GPUs are not worth their power */

/* Fills the results. Rows: n ascending, seconds > 0. */
void scaling_fill(struct scaling *rows, size_t count);
/* Index of the row where n T(n)^2 is least among those with an efficiency of SCALING_EFFICIENCY:
 * a further doubling of n costs more than it saves. */
size_t scaling_knee(const struct scaling *rows, size_t count);

#endif
