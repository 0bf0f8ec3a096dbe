/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LEDGER_FOLD_H
#define LEDGER_FOLD_H
/* Folds a ledger, so that it does not grow with the rounds of a run: rows of older rounds and of no
 * round become sums by site, kind of call, fragment and hour, or day (ledger_rows.h). Every figure
 * that a reader shows stays what it was; of older rounds there are no single ones. The file is
 * replaced as a whole (durable_write), so a crash or a full disk leaves the old one or the new one,
 * which say the same. The writer of the file holds its lock meanwhile, and opens it again after any
 * result. What the file has beyond its last whole line is dropped.
 */
#include "kernels/base/disk.h"
#include "kernels/base/err.h"

/* keep: the newest rounds of each fragment that stay rows; 0 is taken for LEDGER_ROUNDS_WHOLE.
 * Memory: the new file, and what ledger_rows.h says. An error changes nothing. ERR_INPUT,
 * ERR_CORRUPT: it is no ledger, or damaged (ledger_read.h). ERR_FULL, ERR_IO: of durable_write. */
enum err ledger_fold(struct disk *d, const char *path, uint64_t keep) MUST;

#endif
