/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TABLE_FILE_H
#define TABLE_FILE_H
/* The table of a model that Atoll does not have (model.tensors): a JSON file,
 *
 *   {"tensors": [{"name": "experts.0.up", "shape": [512, 128], "init": "normal", "std": 0.02,
 * "layer": 3}, ..]}
 *
 * in the order of the table. shape: of 0 to 8 dimensions; as a matrix the first one by the others.
 * init: normal (std), truncated (std), zero (the default), one; drawn from run.seed as for any
 * model, so that all sites start alike. layer: for outer.partition; without one the tensor is of no
 * layer. Other fields are refused.
 */
#include "inner/model/table.h"

/* ERR_INPUT names file, tensor and field. */
enum err table_read(struct table *t, const char *path, struct arena *perm) MUST;

#endif
