#ifndef SYNC_CONFIG_H
#define SYNC_CONFIG_H
/* What the configuration says of the exchange, as the outer loop's parts want it: the cut of the
 * model, which step sends what, the outer step. The one place where settings become these; every
 * process of a run (site, aggregator, evaluation) gets the same.
 */
#include "outer/diloco/fragment.h"
#include "outer/config/keys.h"
#include "outer/diloco/outer_opt.h"
#include "outer/diloco/schedule.h"

struct sync_config {
    struct fragments fragments;
    struct schedule schedule;
    struct outer_opt outer; /* of the parameters */
};

/* The outer optimizer of these settings; outer.lr = 0: the rate of the table (tuning.h). */
enum err sync_config_optimizer(struct outer_opt *o, const struct outer_settings *s) MUST;
/* Settings that passed keys_outer_check. ERR_CONFIG: the model cannot be cut so. */
enum err sync_config_make(struct sync_config *x, const struct settings *s,
                          const struct outer_settings *o, const struct table *t,
                          struct arena *perm) MUST;

#endif
