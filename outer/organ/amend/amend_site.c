/* SPDX-License-Identifier: Apache-2.0 */
/* Amended settings at a site (docs/protocol.md 3.17): each manifest carries the whole list. What a
 * list makes of the schedule is in force after borders that the site has not passed. */
#include <inttypes.h>
#include "kernels/base/log.h"
#include "outer/config/setting.h"
#include "outer/organ/amend/amend_organ.h"
#include "outer/protocol/mutant.h"
#include "outer/site/site_own.h"

static enum err amendments_take(struct site *s, const struct manifest *m)
{
    uint32_t known = s->replica->amendments.count;
    char quoted[2 * SETTING_SHOWN_MAX], shown[SETTING_SHOWN_MAX];
    if (m->amendments.count <= known)
        return ERR_OK;
    TRY(outer_state_amend(s->replica, &m->amendments));
    for (uint32_t i = known; i < m->amendments.count; i++)
        log_event(
            LOG_INFO, "amendment",
            "number=%" PRIu32 " setting=%s from_round=%" PRIu64 " fragment=%u round=%" PRIu64,
            i + 1,
            log_quote(quoted, sizeof quoted, setting_shown(m->amendments.list[i].text, shown)),
            m->amendments.list[i].round, m->fragment, m->round);
    return ERR_OK;
}

/* The manifest's amendments begin with the known ones, or the known ones with them, and a new one
 * is for a later round. One of another fragment than 0 may be in force from the manifest's round
 * on, so that the codec of the round follows from it. */
static enum err amend_site_check(void *self, struct site_slot *l, const struct manifest *m)
{
    struct site *s = l->site;
    const struct amendments *known = &s->replica->amendments;
    bool good = amendments_agree(&m->amendments, known);
    (void)self;
    for (uint32_t i = known->count; good && m->fragment == 0 && i < m->amendments.count; i++)
        good = m->amendments.list[i].round > m->round;
    if (good)
        return m->fragment ? amendments_take(s, m) : ERR_OK;
    return err_set(ERR_DISAGREE,
                   "fragment %u round %" PRIu64
                   ": the manifest carries other amendments than those before it (%" PRIu32
                   ", known: %" PRIu32 "), or one for a round that is over",
                   m->fragment, m->round, m->amendments.count, known->count);
}

static enum err amend_site_adopted(void *self, struct site_slot *l, const struct organ_adopted *x)
{
    (void)self;
    if (x->snapshot && MUTANT(AMENDED_MISSED))
        return ERR_OK;
    return amendments_take(l->site, x->manifest);
}

void amend_site_list(struct site *s, struct amendments *list)
{
    site_lock(s);
    *list = s->replica->amendments;
    site_unlock(s);
}

enum err amend_site_take(struct site *s, const struct amendments *list)
{
    site_lock(s);
    enum err e =
        list->count > s->replica->amendments.count ? outer_state_amend(s->replica, list) : ERR_OK;
    return site_unlocked(s, e);
}

struct organ_at_site amend_at_site(void)
{
    static const struct organ_site organ = {.name = "amend",
                                            .begin = organ_site_begin_nothing,
                                            .heard = organ_site_heard_nothing,
                                            .check = amend_site_check,
                                            .adopted = amend_site_adopted};
    return (struct organ_at_site){&organ, NULL};
}
