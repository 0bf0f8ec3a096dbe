/* SPDX-License-Identifier: Apache-2.0 */
/* The state of each site as one word, and which sites have the last outer state: the run is over
 * when all have it. */
#include <string.h>
#include "outer/aggregator/aggregator_state.h"

const char *aggregator_site_state(const struct aggregator *a, unsigned site)
{
    const struct aggregator_site *s = &a->site[site];
    return !aggregator_serves_site(a, site)  ? "removed"
           : aggregator_quarantined(a, site) ? "quarantine"
           : s->finished                     ? "finished"
           : s->status.left                  ? "left"
           : a->core.s[site].bound           ? "bound"
                                             : "away";
}

bool aggregator_owes_report(const struct aggregator *a, unsigned site)
{
    return set_has(&a->core.members, site) && !a->site[site].finished &&
           !a->site[site].status.left && !aggregator_quarantined(a, site);
}

bool aggregator_all_done(const struct aggregator *a)
{
    if (!aggregator_last_committed(a))
        return false;
    for (unsigned i = 0; i < a->members.count; i++)
        if (aggregator_owes_report(a, i))
            return false;
    return true;
}

/* Has it said so, since this process began, of every fragment? */
static bool has_last(const struct aggregator *a, unsigned site)
{
    bool has = aggregator_last_committed(a);
    for (unsigned i = 0; i < a->core.fragments; i++)
        has = has && (!aggregator_serves(a, i) || a->core.f[i].adopted[site] == a->core.f[i].round);
    return has;
}

enum err aggregator_finished(struct aggregator *a, unsigned site)
{
    struct file_part lines[2 * ROUND_SITES_MAX];
    size_t n = 0;
    if (a->site[site].finished || !has_last(a, site))
        return ERR_OK;
    for (unsigned i = 0; i < a->members.count; i++)
        if (a->site[i].finished || i == site) {
            lines[n++] = (struct file_part){a->members.names[i], strlen(a->members.names[i])};
            lines[n++] = (struct file_part){"\n", 1};
        }
    TRY(a->env->ops->write(a->env, AGGREGATOR_FINISHED, lines, n));
    a->site[site].finished = true;
    return ERR_OK;
}

enum err aggregator_finished_read(struct aggregator *a)
{
    struct arena scratch = arena_make(0);
    uint8_t *text;
    size_t n;
    if (!aggregator_last_committed(a) || !a->env->ops->exists(a->env, AGGREGATOR_FINISHED))
        return ERR_OK;
    enum err e = a->env->ops->read(a->env, AGGREGATOR_FINISHED, ROUND_SITES_MAX * WIRE_NAME_MAX,
                                   &scratch, &text, &n);
    char *rest, *name = e == ERR_OK ? strtok_r((char *)text, "\n", &rest) : NULL;
    for (; name; name = strtok_r(NULL, "\n", &rest))
        for (unsigned i = 0; i < a->members.count; i++)
            a->site[i].finished |= strcmp(a->members.names[i], name) == 0;
    arena_free(&scratch);
    return e;
}
