/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_SCAN_H
#define LEDGER_SCAN_H
/* One pass over a ledger's lines, for those who read it (ledger_read.h) and who fold it
 * (ledger_fold.h), on any disk.
 */
#include "kernels/base/disk.h"
#include "outer/record/ledger_read.h"

/* Fills what *m says of processes, and *t, up to ledger_rows_end(). last: the number of the last
 * row of the last process, 0 where rows have none. Errors are ledger_read()'s. */
enum err ledger_scan(struct disk *d, const char *path, struct ledger_member *m,
                     struct ledger_rows *t, uint64_t *last) MUST;
/* For a reader: a process that runs counts among those without an end. */
void ledger_lives_close(struct ledger_lives *l);
enum err ledger_read_on(struct disk *d, struct ledger_member *m, const char *directory,
                        const struct ledger_member *first, struct arena *a) MUST;

#endif
