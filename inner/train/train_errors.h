/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRAIN_ERRORS_H
#define TRAIN_ERRORS_H
/* What train.compress keeps, on its way to and from a checkpoint. Private to train. All ranks call.
 */
#include "inner/train/train_stream.h"

size_t train_errors_slabs(const struct train *t); /* of table.elements floats; 0: no errors */
enum err train_errors_out(struct stream *s) MUST;
enum err train_errors_in(struct stream *s) MUST;
/* Further state of train.compress, equal on all ranks: its slab, then its numbers. */
size_t train_kept_floats(const struct train *t);
enum err train_kept_out(struct stream *s) MUST;
enum err train_kept_in(struct stream *s) MUST;

#endif
