/* An operator's calls: status, abort, quarantine, readmit. Authorised at each call, journalled
 * before they take effect (docs/protocol.md 3.13). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"
#include "outer/protocol/roles.h"

static void say(struct wire_answer *answer, enum round_outcome outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void say(struct wire_answer *answer, enum round_outcome outcome, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(answer->text, sizeof answer->text, format, list);
    va_end(list);
    answer->outcome = outcome;
}

/* ---- status ---- */

struct text {
    char *out;
    size_t used, size;
};

static void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_add(struct text *t, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = t->used < t->size ? vsnprintf(t->out + t->used, t->size - t->used, format, list) : 0;
    va_end(list);
    t->used += n > 0 ? (size_t)n : 0;
}

static void status_site(const struct aggregator *a, unsigned site, struct text *t)
{
    const struct aggregator_site *s = &a->site[site];
    uint64_t now_ms = aggregator_now(a);
    text_add(t, "site=%s state=%s", a->o.sites[site],
             aggregator_quarantined(a, site) ? "quarantine"
             : s->finished                   ? "finished"
             : s->status.left                ? "left"
             : a->core.s[site].bound         ? "bound"
                                             : "away");
    if (s->status.heard_ms)
        text_add(t, " heard_s=%" PRIu64, (now_ms - s->status.heard_ms) / 1000);
    if (s->strikes)
        text_add(t, " bad=%u/%u", s->strikes, a->o.strikes_max);
    text_add(t, "\n");
}

/* What fits: the sites in quarantine first. */
static void operate_status(const struct aggregator *a, const struct wire_operate *m,
                           struct wire_answer *answer)
{
    struct text t = {answer->text, 0, sizeof answer->text};
    const struct round_fragment *f = &a->core.f[m->fragment];
    char missing[256];
    (void)aggregator_missing(a, m->fragment, missing, sizeof missing);
    text_add(&t, "fragment=%u round=%" PRIu64 " of=%" PRIu64 " in=%u missing=%s\n", m->fragment,
             f->round, aggregator_rounds(a, m->fragment), f->count, missing);
    if (!m->fragment)
        text_add(&t, "epoch=%" PRIu64 " mode=%s sites=%u quorum=%u fragments=%u\n", a->epoch,
                 a->o.strict ? "strict" : "quorum", a->o.site_count, a->core.quorum,
                 a->core.fragments);
    for (int in = 1; !m->fragment && in >= 0; in--)
        for (unsigned i = 0; i < a->o.site_count; i++)
            if (aggregator_quarantined(a, i) == in)
                status_site(a, i, &t);
    answer->outcome = ROUND_CURRENT;
}

/* ---- acts ---- */

static enum err act_journal(struct aggregator *a, const char *peer, const struct wire_operate *m,
                            unsigned site)
{
    struct journal_record r = {.kind = JOURNAL_OPERATOR,
                               .fragment = m->fragment,
                               .round = m->round,
                               .digest = digest_of(peer, strlen(peer)),
                               .site = site,
                               .act = (uint8_t)m->act};
    TRY(journal_append(&a->journal, &r));
    log_event(LOG_WARN, "operator", "act=%s by=%s fragment=%u round=%" PRIu64 " site=%s",
              roles_call_name(aggregator_act_call(m->act)), peer, m->fragment, m->round, m->site);
    return ERR_OK;
}

/* The round in flight is closed with an empty set: at the next work(). */
static void order(struct aggregator *a, unsigned fragment, const struct digest *by)
{
    struct round_event e = {
        .kind = ROUND_CLOSE, .fragment = fragment, .round = a->core.f[fragment].round};
    struct round_update u;
    a->fragment[fragment].ordered = true;
    a->fragment[fragment].ordered_by = *by;
    aggregator_step(a, &e, &u);
}

void aggregator_order_restore(struct aggregator *a, const struct journal_record *r)
{
    if (r->act == WIRE_ABORT && r->round == a->core.f[r->fragment].round)
        order(a, r->fragment, &r->digest);
}

static bool any_accepted(const struct aggregator *a, unsigned fragment)
{
    bool any = false;
    for (unsigned i = 0; i < a->o.site_count; i++)
        any |= a->core.f[fragment].entries[i].accepted;
    return any;
}

static enum err operate_abort(struct aggregator *a, const char *peer, const struct wire_operate *m,
                              struct wire_answer *answer)
{
    char hex[65];
    const struct round_fragment *f = &a->core.f[m->fragment];
    digest_hex(&f->parent, hex);
    if (m->round < f->round)
        say(answer, ROUND_BEHIND, "round %" PRIu64 " is over; the last manifest is %.16s", m->round,
            hex);
    else if (m->round > f->round || m->round >= aggregator_rounds(a, m->fragment))
        say(answer, ROUND_INVALID, "round %" PRIu64 " has not begun", m->round);
    else if (a->fragment[m->fragment].ordered)
        say(answer, ROUND_CURRENT, "round %" PRIu64 " is being aborted", m->round);
    else if (!any_accepted(a, m->fragment))
        say(answer, ROUND_INVALID,
            "no contribution to round %" PRIu64 " is here: there is nothing to abort", m->round);
    else {
        struct digest by = digest_of(peer, strlen(peer));
        TRY(act_journal(a, peer, m, 0));
        order(a, m->fragment, &by);
        say(answer, ROUND_CURRENT, "round %" PRIu64 " of fragment %u is aborted", m->round,
            m->fragment);
    }
    return ERR_OK;
}

static enum err operate_quarantine(struct aggregator *a, const char *peer,
                                   const struct wire_operate *m, struct wire_answer *answer)
{
    int site = aggregator_site(a, m->site);
    bool in = m->act == WIRE_QUARANTINE;
    if (site < 0) {
        say(answer, ROUND_INVALID, "%s is not one of outer.sites", m->site);
        return ERR_OK;
    }
    if (aggregator_quarantined(a, (unsigned)site) != in) {
        TRY(act_journal(a, peer, m, (unsigned)site));
        TRY(aggregator_quarantine(a, (unsigned)site, in, "an operator's act"));
    }
    say(answer, ROUND_CURRENT, "site %s is %s", m->site,
        in ? "in quarantine" : "not in quarantine: start it");
    return ERR_OK;
}

static enum err operate(struct aggregator *a, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer)
{
    if (m->act == WIRE_ABORT)
        return operate_abort(a, peer, m, answer);
    if (m->act != WIRE_STATUS)
        return operate_quarantine(a, peer, m, answer);
    operate_status(a, m, answer);
    return ERR_OK;
}

enum roles_call aggregator_act_call(enum wire_act act)
{
    static const enum roles_call call[] = {[WIRE_STATUS] = ROLES_STATUS,
                                           [WIRE_ABORT] = ROLES_ABORT,
                                           [WIRE_QUARANTINE] = ROLES_QUARANTINE,
                                           [WIRE_READMIT] = ROLES_READMIT};
    ASSERT((size_t)act < sizeof call / sizeof *call);
    return call[act];
}

void aggregator_operate(void *self, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer)
{
    struct aggregator *a = self;
    enum roles_call call = aggregator_act_call(m->act);
    const char *revoked;
    enum err e = ERR_OK;
    memset(answer, 0, sizeof *answer);
    if (!roles_may(roles_of(peer, a->o.run), call))
        say(answer, ROUND_DENIED,
            "the certificate says %s, this call needs an operator's of run %s",
            peer && *peer ? peer : "nothing", a->o.run);
    else if ((revoked = aggregator_revoked(a, peer, &m->certificate)))
        say(answer, ROUND_EXCLUDED, "%s: %s", peer, revoked);
    else if (m->fragment >= a->core.fragments || !aggregator_serves(a, m->fragment))
        say(answer, ROUND_INVALID, "fragment %u is not of this aggregator", m->fragment);
    else
        e = operate(a, peer, m, answer);
    if (e != ERR_OK)
        aggregator_say_failed(a, e, answer);
    if (m->fragment < a->core.fragments)
        answer->round = a->core.f[m->fragment].round;
    if (answer->outcome != ROUND_CURRENT)
        aggregator_refused(a, -1, peer, roles_call_name(call), answer->outcome, answer->text);
}
