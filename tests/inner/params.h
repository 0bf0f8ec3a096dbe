/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PARAMS_H
#define PARAMS_H
/* All parameters of a model, for tests that write them or look at them. */
#include "inner/model/model.h"

static inline float *model_params(struct model *m)
{
    return model_gather(m, (struct dev_range){0, 0});
}

#endif
