#include "outer/nesterov.h"
#include <math.h>
#include <string.h>

enum err nesterov_make(struct nesterov *o, const char *name, float lr, float mu)
{
    if (!(lr >= 0) || !isfinite(lr))
        return err_set(ERR_CONFIG, "outer learning rate %g: must be finite and not negative",
                       (double)lr);
    if (!(mu >= 0) || !(mu < 1))
        return err_set(ERR_CONFIG, "outer momentum %g: must be in [0, 1)", (double)mu);
    if (strcmp(name, "nesterov") == 0)
        *o = (struct nesterov){NESTEROV_MOMENTUM, lr, mu};
    else if (strcmp(name, "sgd") == 0)
        *o = (struct nesterov){NESTEROV_SGD, lr, 0};
    else if (strcmp(name, "average") == 0)
        *o = (struct nesterov){NESTEROV_AVERAGE, 1, 0};
    else
        return err_set(ERR_CONFIG, "outer optimizer \"%s\": nesterov, sgd or average expected",
                       name);
    return ERR_OK;
}

bool nesterov_momentum(const struct nesterov *o)
{
    return o->kind == NESTEROV_MOMENTUM;
}

void nesterov_step(struct dev *d, const struct nesterov *o, float *theta, float *momentum,
                   const float *mean, size_t count)
{
    ASSERT(nesterov_momentum(o) == (momentum != NULL));
    d->ops->outer_step(d, theta, momentum, mean, o->lr, o->mu, count);
}
