/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that lists the methods. */
#include "inner/optim/optim.h"

const struct optim_method *optim_method_of(const struct settings *s)
{
    static const struct optim_method *const methods[] = {
#define X(VALUE, name) [VALUE] = &optim_##name,
        OPTIM_LIST(X)
#undef X
    };
    return methods[s->train_optimizer];
}
