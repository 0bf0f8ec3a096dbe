/* Amended settings at a site (docs/protocol.md 3.17): each manifest carries the whole list. What a
 * list makes of the schedule is in force behind borders that the site has not passed. */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/config/amend.h"
#include "outer/site/site_own.h"

enum err site_amend_check(const struct site *s, const struct manifest *m)
{
    const struct amendments *known = &s->replica->amendments;
    bool good = amendments_agree(&m->amendments, known);
    for (uint32_t i = known->count; good && m->fragment == 0 && i < m->amendments.count; i++)
        good = m->amendments.list[i].round > m->round;
    if (good)
        return ERR_OK;
    return err_set(ERR_DISAGREE,
                   "fragment %u round %" PRIu64
                   ": the manifest carries other amendments than those before it (%" PRIu32
                   ", known: %" PRIu32 "), or one for a round that is over",
                   m->fragment, m->round, m->amendments.count, known->count);
}

enum err site_amend_take(struct site *s, const struct manifest *m)
{
    uint32_t known = s->replica->amendments.count;
    char quoted[2 * AMENDMENT_TEXT_MAX];
    if (m->amendments.count <= known)
        return ERR_OK;
    TRY(outer_state_amend(s->replica, &m->amendments));
    for (uint32_t i = known; i < m->amendments.count; i++)
        log_event(LOG_INFO, "amendment",
                  "number=%" PRIu32 " setting=%s from_round=%" PRIu64 " fragment=%u round=%" PRIu64,
                  i + 1, log_quote(quoted, sizeof quoted, m->amendments.list[i].text),
                  m->amendments.list[i].round, m->fragment, m->round);
    return ERR_OK;
}

uint32_t site_amendment_count(struct site *s)
{
    site_lock(s);
    uint32_t count = s->replica->amendments.count;
    site_unlock(s);
    return count;
}

void site_amendments(struct site *s, struct amendments *list)
{
    site_lock(s);
    *list = s->replica->amendments;
    site_unlock(s);
}
