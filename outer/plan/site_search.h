/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_SEARCH_H
#define SITE_SEARCH_H
/* Settings of a site with the most tokens per second that fit the memory of a rank (Dash et al.
 * 2024, 2312.12705): micro-batch, recomputation, ZeRO, bucket. All of them are tried: a site has
 * fewer than the 80 points of a random search with local steps. Pure.
 */
#include "outer/plan/site_model.h"

struct site_choice {
    struct settings settings; /* the given ones with the four chosen */
    struct site_step step;    /* where no settings fit, of those that take least memory */
    unsigned tried;
};
/* The given settings alone. */
void site_search_given(struct site_choice *c, const struct settings *s, const struct table *t,
                       const struct site_machine *m, int ranks);
/* ranks must divide train.batch_tokens into whole sequences. */
void site_search(struct site_choice *best, const struct settings *s, const struct table *t,
                 const struct site_machine *m, int ranks);

#endif
