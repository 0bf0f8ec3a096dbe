/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/outer_opt.h"
#include "outer/protocol/mutant.h"
#include <math.h>

const struct outer_opt_row *outer_opt_row(enum outer_opt_kind kind)
{
#define ROW(X, value, name, slabs, ...) [value] = {__VA_ARGS__},
    static const struct outer_opt_row rows[] = {OUTER_OPT_ROWS(ROW, )};
#undef ROW
    return &rows[kind];
}

enum err outer_opt_make(struct outer_opt *o, enum outer_opt_kind kind, float lr, float mu)
{
    if (!(lr >= 0) || !isfinite(lr))
        return err_set(ERR_CONFIG, "outer learning rate %g: must be finite and not negative",
                       (double)lr);
    if (!(mu >= 0) || !(mu < 1))
        return err_set(ERR_CONFIG, "outer momentum %g: must be in [0, 1)", (double)mu);
    const struct outer_opt_row *row = outer_opt_row(kind);
    *o = (struct outer_opt){.kind = kind,
                            .lr = row->fixed ? row->rate : lr,
                            .mu = row->momentum ? mu : 0,
                            .delay = 1,
                            .beta2 = 0.99f,
                            .eps = 1e-3f,
                            .interpolation = (float)OUTER_INTERPOLATION};
    return ERR_OK;
}

unsigned outer_opt_slabs(const struct outer_opt *o)
{
    const struct outer_opt_row *row = outer_opt_row(o->kind);
    unsigned n = 0;
    while (n < OUTER_SLABS && row->slab[n])
        n++;
    return n;
}

float outer_opt_initial(const struct outer_opt *o, unsigned slab)
{
    return outer_opt_row(o->kind)->squares && slab + 1 == outer_opt_slabs(o) ? o->eps * o->eps : 0;
}

bool outer_opt_restarts(const struct outer_opt *o, const struct schedule *s, unsigned fragment,
                        uint64_t round)
{
    const struct outer_opt_row *row = outer_opt_row(o->kind);
    bool averaged = row->interpolates && round && schedule_last(s, fragment, round - 1);
    return row->momentum && (averaged || anneal_restarts(&o->anneal, s, fragment, round));
}

size_t outer_opt_bytes(const struct outer_opt *o)
{
    return sizeof(float) * ((size_t)1 + outer_opt_slabs(o));
}

void outer_opt_step(struct dev *d, const struct outer_opt *o, const struct outer_opt_state *s,
                    const float *mean, uint64_t round, size_t count)
{
    struct dev_outer_step a = {.theta = s->theta,
                               .mean = mean,
                               .k = {.lr = o->lr,
                                     .mu = o->mu,
                                     .fraction = 1.0f / (float)o->delay,
                                     .first = round % o->delay == 0,
                                     .last = MUTANT(CYCLE_SHIFTED)
                                                 ? round % o->delay == 0
                                                 : round % o->delay == o->delay - 1,
                                     .beta2 = o->beta2,
                                     .eps = o->eps,
                                     .interpolation = o->interpolation,
                                     .interpolation_next = o->ends ? 1 : o->interpolation},
                               .count = count};
    for (unsigned i = 0; i < OUTER_SLABS; i++) {
        ASSERT((i < outer_opt_slabs(o)) == (s->slab[i] != NULL));
        a.slab[i] = s->slab[i];
    }
    d->ops->outer_step(d, o->kind, &a);
}
