/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW (Loshchilov & Hutter 2019) for embeddings, heads, biases and norms, where a method is for
 * the matrices of the layers: with Muon always, with LAMB, LANS and MERIT under train.trust_layers
 * = hidden. Both share decay, clip, moments and bias correction; the rate is train.adamw_lr times
 * the method's. docs/methods.md 3d has the equation. */
#include "inner/optim/optim.h"

static bool is_split(const struct optim *o)
{
    return o->method->hidden || o->settings->train_trust_layers == TRAIN_TRUST_LAYERS_HIDDEN;
}

bool optim_beside(const struct optim *o, const struct tensor *x)
{
    return is_split(o) && x->group != TABLE_HIDDEN;
}

void optim_beside_group(const struct optim *o, const struct optim_part *x, struct opt_group *group)
{
    if (!optim_beside(o, x->tensor))
        return;
    group->kind = OPTIM_BESIDE;
    group->lr *= (float)o->settings->train_adamw_lr;
}

enum err optim_beside_update(struct optim *o, const struct dev_optim *a)
{
    struct dev_optim beside = *a;
    beside.kind = OPTIM_BESIDE;
    return is_split(o) ? optim_update(o, OPT_UPDATE_ADAMW, &beside) : ERR_OK;
}
