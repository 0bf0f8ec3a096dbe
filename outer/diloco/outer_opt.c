#include "outer/diloco/outer_opt.h"
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
        *o = (struct nesterov){NESTEROV_MOMENTUM, lr, mu, 1};
    else if (strcmp(name, "delayed_nesterov") == 0)
        *o = (struct nesterov){NESTEROV_DELAYED, lr, mu, 1};
    else if (strcmp(name, "sgd") == 0)
        *o = (struct nesterov){NESTEROV_SGD, lr, 0, 1};
    else if (strcmp(name, "average") == 0)
        *o = (struct nesterov){NESTEROV_AVERAGE, 1, 0, 1};
    else
        return err_set(
            ERR_CONFIG,
            "outer optimizer \"%s\": nesterov, delayed_nesterov, sgd or average expected", name);
    return ERR_OK;
}

bool nesterov_momentum(const struct nesterov *o)
{
    return o->kind == NESTEROV_MOMENTUM || o->kind == NESTEROV_DELAYED;
}

bool nesterov_gathers(const struct nesterov *o)
{
    return o->kind == NESTEROV_DELAYED;
}

size_t nesterov_bytes(const struct nesterov *o)
{
    return sizeof(float) * ((size_t)1 + nesterov_momentum(o) + nesterov_gathers(o));
}

void nesterov_step(struct dev *d, const struct nesterov *o, const struct nesterov_state *s,
                   const float *mean, uint64_t round, size_t count)
{
    ASSERT(nesterov_momentum(o) == (s->momentum != NULL));
    ASSERT(nesterov_gathers(o) == (s->gathered != NULL));
    if (!nesterov_gathers(o)) {
        d->ops->outer_step(d, s->theta, s->momentum, mean, o->lr, o->mu, count);
        return;
    }
    struct dev_delayed delayed = {.theta = s->theta,
                                  .momentum = s->momentum,
                                  .gathered = s->gathered,
                                  .mean = mean,
                                  .lr = o->lr,
                                  .mu = o->mu,
                                  .share = 1.0f / (float)o->delay,
                                  .first = round % o->delay == 0,
                                  .last = round % o->delay == o->delay - 1,
                                  .count = count};
    d->ops->outer_delayed(d, &delayed);
}
