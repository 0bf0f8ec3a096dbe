/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GROWTH_H
#define GROWTH_H
/* Models whose depth varies in training (inner/model/depth.h): the layers that a stage adds begin
 * as copies (train.stages), and how many layers ran is a figure of the step (train.stages,
 * train.layer_drop).
 */
#include "inner/methods/method.h"

extern const struct method method_growth;

#endif
