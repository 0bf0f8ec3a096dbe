#include "outer/diloco/outer_opt.h"
#include "outer/protocol/mutant.h"
#include <math.h>

enum err outer_opt_make(struct outer_opt *o, enum outer_opt_kind kind, float lr, float mu)
{
    if (!(lr >= 0) || !isfinite(lr))
        return err_set(ERR_CONFIG, "outer learning rate %g: must be finite and not negative",
                       (double)lr);
    if (!(mu >= 0) || !(mu < 1))
        return err_set(ERR_CONFIG, "outer momentum %g: must be in [0, 1)", (double)mu);
    *o = (struct outer_opt){.kind = kind, .lr = lr, .delay = 1};
    if (outer_opt_momentum(o))
        o->mu = mu;
    if (kind == OUTER_OPT_AVERAGE)
        o->lr = 1;
    return ERR_OK;
}

bool outer_opt_momentum(const struct outer_opt *o)
{
    return o->kind == OUTER_OPT_MOMENTUM || o->kind == OUTER_OPT_DELAYED;
}

bool outer_opt_gathers(const struct outer_opt *o)
{
    return o->kind == OUTER_OPT_DELAYED;
}

size_t outer_opt_bytes(const struct outer_opt *o)
{
    return sizeof(float) * ((size_t)1 + outer_opt_momentum(o) + outer_opt_gathers(o));
}

void outer_opt_step(struct dev *d, const struct outer_opt *o, const struct outer_opt_state *s,
                    const float *mean, uint64_t round, size_t count)
{
    ASSERT(outer_opt_momentum(o) == (s->momentum != NULL));
    ASSERT(outer_opt_gathers(o) == (s->gathered != NULL));
    if (!outer_opt_gathers(o)) {
        d->ops->outer_step(d, &(struct dev_outer_step){.theta = s->theta,
                                                       .momentum = s->momentum,
                                                       .mean = mean,
                                                       .lr = o->lr,
                                                       .mu = o->mu,
                                                       .count = count});
        return;
    }
    struct dev_delayed delayed = {.theta = s->theta,
                                  .momentum = s->momentum,
                                  .accumulated = s->gathered,
                                  .mean = mean,
                                  .lr = o->lr,
                                  .mu = o->mu,
                                  .fraction = 1.0f / (float)o->delay,
                                  .first = round % o->delay == 0,
                                  .last = MUTANT(CYCLE_SHIFTED) ? round % o->delay == 0
                                                                : round % o->delay == o->delay - 1,
                                  .count = count};
    d->ops->outer_delayed(d, &delayed);
}
