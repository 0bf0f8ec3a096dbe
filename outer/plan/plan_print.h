/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAN_PRINT_H
#define PLAN_PRINT_H
/* What `atoll plan` says on standard output: the rows that it found, the run as configured, and
 * what a run takes with the first row: other numbers of sites, memory, archive. As text, or as
 * members of one JSON object.
 */
#include "outer/config/run.h"
#include "outer/plan/plan.h"
#include "outer/record/json_write.h"

struct plan_print {
    struct run *run;
    const struct plan_task *task;
    struct json_write *w; /* NULL: text */
};
void plan_print_options(const struct plan_print *p, const struct plan_option *options, size_t count,
                        const struct plan_result *configured);
enum err plan_print_first(const struct plan_print *p, const struct plan_option *first) MUST;

#endif
