#ifndef EXCHANGE_H
#define EXCHANGE_H
/* What the configuration says of the exchange, as the outer loop's parts want it: the cut of the
 * model, which step sends what, the outer step. The one place where settings become these; every
 * process of a run (site, aggregator, evaluation) gets the same.
 */
#include "outer/fragment.h"
#include "outer/keys.h"
#include "outer/nesterov.h"
#include "outer/schedule.h"

struct exchange {
    struct fragments fragments;
    struct schedule schedule;
    struct nesterov outer; /* of the parameters */
};

/* Settings that passed keys_outer_check. ERR_CONFIG: the model cannot be cut so. */
enum err exchange_make(struct exchange *x, const struct settings *s, const struct outer_settings *o,
                       const struct table *t, struct arena *perm) MUST;

#endif
