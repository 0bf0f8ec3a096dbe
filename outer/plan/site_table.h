/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_TABLE_H
#define SITE_TABLE_H
/* The table of `atoll plan inside`: what the ranks of one site take for a step, for several numbers
 * of ranks (site_model.h), with speed-up and efficiency (scaling.h). Of the CPU it opens the
 * device, to ask for its type; no state.
 */
#include "outer/config/run.h"
#include "outer/plan/scaling.h"
#include "outer/plan/site_search.h"
#include "outer/plan/site_settings.h"

enum { SITE_TABLE_ROWS_MAX = 32 };
struct site_table {     /* in the run's arena */
    struct settings *s; /* of the run; with plan.gpu, of that device */
    struct site_machine *machine;
    struct site_costs *costs;
    struct scaling *rows;        /* [count], by ranks */
    struct site_choice *choices; /* [count] */
    size_t count;
};
/* ranks: "1,2,4"; NULL: powers of two. search: settings, too, for each number of ranks. ERR_CONFIG:
 * ranks that do not divide the batch, or collectives that were not measured. */
enum err site_table_make(struct site_table *t, struct run *p, const char *ranks, bool search) MUST;
/* ERR_CONFIG: no row fits the memory of a rank. */
enum err site_table_fits(const struct site_table *t) MUST;
/* Operations of a rank's micro-batch for each byte that a step sums: Shi et al. 2021 (2005.13247).
 */
double site_table_intensity(const struct site_table *t, const struct site_step *x);
/* times: "8:5.47,64:0.898", GPUS:MINUTES in ascending order; filled (scaling_fill). */
enum err site_table_times(const char *times, struct scaling rows[SITE_TABLE_ROWS_MAX],
                          size_t *count) MUST;

#endif
