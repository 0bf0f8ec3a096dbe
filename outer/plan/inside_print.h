/* SPDX-License-Identifier: Apache-2.0 */
#ifndef INSIDE_PRINT_H
#define INSIDE_PRINT_H
/* What `atoll plan inside` and `atoll plan times` say on standard output, as text or as one JSON
 * object: a row for each number of ranks, and the number beyond which more of them stop paying.
 */
#include "outer/plan/site_table.h"

/* searched: the settings of each row were searched. */
void inside_print(const struct site_table *c, const struct run *run, bool searched, bool json);
void inside_print_times(const struct scaling *rows, size_t count, bool json);

#endif
