/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADS_H
#define HEADS_H
/* The heads of multiverse learning (model.classifier_heads): averages of their losses, and which
 * heads leave. */
#include "inner/methods/method.h"

extern const struct method method_heads;

#endif
