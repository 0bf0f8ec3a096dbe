/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_EXCHANGE_H
#define TEST_EXCHANGE_H
/* One blocking round of a site: local becomes the theta to continue with. */
#include <string.h>
#include "outer/site/site.h"

static inline enum err exchange(struct site *s, const struct outer_state *m,
                                const struct site_submission *w, float *local)
{
    size_t bytes = m->fragments->f[w->fragment].elements * sizeof *local;
    struct site_completion done;
    const float *theta;
    float *to;
    TRY(site_acquire(s, w->fragment, &to));
    m->dev->ops->copy(m->dev, to, local, bytes);
    site_submit(s, w);
    TRY(site_reap(s, w->fragment, &theta, &done));
    m->dev->ops->copy(m->dev, local, theta, bytes);
    return dev_sync(m->dev);
}

#endif
