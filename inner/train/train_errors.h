/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_ERRORS_H
#define TRAIN_ERRORS_H
/* The errors of train.compress on their way to and from a checkpoint. Private to train. */
#include "inner/train/train.h"

size_t train_errors_slabs(const struct train *t); /* of table.elements floats; 0: no errors */
/* host (slabs): the lead's, NULL at other ranks. All ranks call. */
enum err train_errors_gather(struct train *t, float *host, struct arena *a) MUST;
enum err train_errors_scatter(struct train *t, const float *host) MUST;
/* Further state of train.compress, equal on all ranks: its slab, then its numbers. */
size_t train_kept_floats(const struct train *t);
enum err train_kept_read(struct train *t, float *host) MUST;        /* of this rank */
enum err train_kept_write(struct train *t, const float *host) MUST; /* all ranks call */

#endif
