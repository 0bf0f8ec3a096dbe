/* SPDX-License-Identifier: Apache-2.0 */
/* An operator's calls: status, abort, quarantine, readmit, rollback, roster, set. Authorised at
 * each call, journalled before they take effect (docs/protocol.md 3.13). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/config/identity.h"
#include "outer/protocol/roles.h"

enum { ACTS_MAX = 16 }; /* lines of one operator and act in a window of the limiter */

/* ---- status ---- */

static void status_site(const struct aggregator *a, unsigned site, struct aggregator_text *t)
{
    const struct aggregator_site *s = &a->site[site];
    uint64_t now_ms = aggregator_now(a);
    aggregator_text_add(t, "site=%s state=%s", a->members.names[site],
                        aggregator_site_state(a, site));
    if (s->status.heard_ms)
        aggregator_text_add(t, " heard_s=%" PRIu64, (now_ms - s->status.heard_ms) / 1000);
    unsigned bad = aggregator_strikes(a, site);
    if (bad)
        aggregator_text_add(t, " bad=%u/%u", bad, a->o->bounds.strikes_max);
    aggregator_text_add(t, "\n");
}

/* What fits: the sites in quarantine first. */
static void operate_status(const struct aggregator *a, const struct wire_operate *m,
                           struct wire_answer *answer)
{
    struct aggregator_text t = {answer->text, 0, sizeof answer->text};
    const struct round_fragment *f = &a->core.f[m->fragment];
    char missing[256];
    (void)aggregator_missing(a, m->fragment, missing, sizeof missing);
    aggregator_text_add(&t, "fragment=%u round=%" PRIu64 " of=%" PRIu64 " in=%u missing=%s\n",
                        m->fragment, f->round, aggregator_rounds(a, m->fragment), f->count,
                        missing);
    if (!m->fragment)
        aggregator_text_add(&t, "term=%" PRIu64 " mode=%s sites=%u quorum=%u fragments=%u\n",
                            a->start.term, a->o->strict ? "strict" : "quorum",
                            set_count(&a->members.roster.members), a->core.quorum,
                            a->core.fragments);
    for (int in = 1; !m->fragment && in >= 0; in--)
        for (unsigned i = 0; i < a->members.count; i++)
            if (aggregator_quarantined(a, i) == in)
                status_site(a, i, &t);
    answer->outcome = ROUND_CURRENT;
}

static void operate_records(struct aggregator *a, const struct wire_operate *m,
                            struct wire_answer *answer)
{
    enum err e = a->o->tell.records ? a->o->tell.records(a->o->tell.self, m->to, answer->text,
                                                         sizeof answer->text, &answer->offset)
                                    : err_set(ERR_INPUT, "this aggregator keeps no records");
    if (e == ERR_OK)
        answer->outcome = ROUND_CURRENT;
    else
        aggregator_say(answer, ROUND_INVALID, "%s", err_message());
    err_clear();
}

/* ---- acts ---- */

static enum err act_journal(struct aggregator *a, const char *peer, const struct wire_operate *m,
                            unsigned site, struct journal_record *r)
{
    unsigned repeats;
    *r = (struct journal_record){.kind = JOURNAL_OPERATOR,
                                 .fragment = m->fragment,
                                 .round = m->round,
                                 .digest = digest_of(peer, strlen(peer)),
                                 .site = site,
                                 .act = (uint8_t)m->act,
                                 .to = m->to};
    TRY(journal_append(&a->journal, r));
    const char *act = roles_call_name(aggregator_act_call(m->act));
    if (aggregator_line_passes(a, act, peer, ACTS_MAX, &repeats))
        log_event(LOG_WARN, "operator",
                  "act=%s by=%s fragment=%u round=%" PRIu64 " site=%s repeats=%u", act, peer,
                  m->fragment, m->round, m->site, repeats);
    return ERR_OK;
}

/* The round in flight is closed with an empty set: at the next work(). */
static void round_order(struct aggregator *a, const struct journal_record *r)
{
    struct aggregator_fragment *f = &a->fragment[r->fragment];
    struct round_event e = {
        .kind = ROUND_CLOSE, .fragment = r->fragment, .round = a->core.f[r->fragment].round};
    struct round_update u;
    f->ordered = true;
    f->ordered_by = r->digest;
    f->rolls_back = r->act == WIRE_ROLLBACK;
    f->rolls_to = r->to;
    aggregator_step(a, &e, &u);
}

void aggregator_order_restore(struct aggregator *a, const struct journal_record *r)
{
    if ((r->act == WIRE_ABORT || r->act == WIRE_ROLLBACK) &&
        r->round == a->core.f[r->fragment].round)
        round_order(a, r);
}

static bool any_accepted(const struct aggregator *a, unsigned fragment)
{
    bool any = false;
    for (unsigned i = 0; i < a->members.count; i++)
        any |= a->core.f[fragment].entries[i].accepted;
    return any;
}

/* Why not to this state; true: it may. */
static bool rollback_may(struct aggregator *a, const struct wire_operate *m,
                         struct wire_answer *answer)
{
    const struct schedule *s = &a->replica->schedule;
    unsigned delay = a->replica->o.outer.delay;
    if (m->to >= m->round)
        aggregator_say(answer, ROUND_INVALID,
                       "state %" PRIu64 " is not an earlier one than %" PRIu64, m->to, m->round);
    else if (s->overlap > 0 || s->stages.count)
        aggregator_say(answer, ROUND_INVALID, "a run with %s cannot be rolled back: %s",
                       s->overlap > 0 ? "outer.overlap_steps above 0" : "train.stages",
                       s->overlap > 0 ? "the sites have trained on" : "the model has grown since");
    else if (delay > 1 && (m->round + 1 - m->to) % delay)
        aggregator_say(answer, ROUND_INVALID,
                       "outer.nesterov_period = %u: only to a state that is a multiple of %u "
                       "rounds before %" PRIu64,
                       delay, delay, m->round + 1);
    else if (!outer_state_kept(a->replica, m->fragment, m->to))
        aggregator_say(answer, ROUND_GONE,
                       "state %" PRIu64 " is not kept: serve.keep_states says how many are", m->to);
    else
        return true;
    return false;
}

/* The act that closes the round, asked for once more: its answer was lost. */
static bool is_ordered(const struct aggregator_fragment *f, const struct wire_operate *m)
{
    return f->rolls_back == (m->act == WIRE_ROLLBACK) && (!f->rolls_back || f->rolls_to == m->to);
}

static enum err operate_close(struct aggregator *a, const char *peer, const struct wire_operate *m,
                              struct wire_answer *answer)
{
    char hex[65];
    const struct round_fragment *f = &a->core.f[m->fragment];
    struct journal_record r;
    digest_hex(&f->parent, hex);
    if (m->round < f->round)
        aggregator_say(answer, ROUND_BEHIND,
                       "round %" PRIu64 " is over; the last manifest is %.16s", m->round, hex);
    else if (m->round > f->round || m->round >= aggregator_rounds(a, m->fragment))
        aggregator_say(answer, ROUND_INVALID, "round %" PRIu64 " has not begun", m->round);
    else if (aggregator_commit_passes(a, m->fragment))
        aggregator_say(answer, ROUND_FULL, "round %" PRIu64 " is being committed", m->round);
    else if (a->fragment[m->fragment].ordered && is_ordered(&a->fragment[m->fragment], m))
        aggregator_say(answer, ROUND_CURRENT, "round %" PRIu64 " is being closed", m->round);
    else if (a->fragment[m->fragment].ordered)
        aggregator_say(answer, ROUND_FULL,
                       "round %" PRIu64 " is being closed by another act: this one has done "
                       "nothing; ask again in the next round",
                       m->round);
    else if (!any_accepted(a, m->fragment) && a->fragment[m->fragment].asked <= f->round)
        aggregator_say(answer, ROUND_FULL, "no contribution to round %" PRIu64 " is here yet",
                       m->round);
    else if (m->act == WIRE_ABORT || rollback_may(a, m, answer)) {
        TRY(act_journal(a, peer, m, 0, &r));
        round_order(a, &r);
        if (m->act == WIRE_ABORT)
            aggregator_say(answer, ROUND_CURRENT, "round %" PRIu64 " of fragment %u is aborted",
                           m->round, m->fragment);
        else
            aggregator_say(answer, ROUND_CURRENT,
                           "round %" PRIu64 " of fragment %u brings back state %" PRIu64, m->round,
                           m->fragment, m->to);
    }
    return ERR_OK;
}

static enum err operate_quarantine(struct aggregator *a, const char *peer,
                                   const struct wire_operate *m, struct wire_answer *answer)
{
    int site = aggregator_site(a, m->site);
    bool in = m->act == WIRE_QUARANTINE;
    if (site < 0) {
        aggregator_say(answer, ROUND_INVALID, "%s is not one of outer.sites", m->site);
        return ERR_OK;
    }
    if (aggregator_quarantined(a, (unsigned)site) != in) {
        struct journal_record r;
        TRY(act_journal(a, peer, m, (unsigned)site, &r));
        TRY(aggregator_quarantine(a, (unsigned)site, in, "an operator's act"));
    }
    aggregator_say(answer, ROUND_CURRENT, "site %s is %s", m->site,
                   in ? "in quarantine" : "not in quarantine: start it");
    return ERR_OK;
}

static enum err act_answer(struct aggregator *a, const char *peer, const struct wire_operate *m,
                           struct wire_answer *answer)
{
    if (m->act == WIRE_ABORT || m->act == WIRE_ROLLBACK)
        return operate_close(a, peer, m, answer);
    if (m->act == WIRE_QUARANTINE || m->act == WIRE_READMIT)
        return operate_quarantine(a, peer, m, answer);
    if (m->act == WIRE_RECORDS)
        operate_records(a, m, answer);
    else if (m->act == WIRE_METRICS)
        aggregator_metrics_operate(a, peer, m, answer);
    else
        operate_status(a, m, answer);
    return ERR_OK;
}

/* A commit does so too; acts alone, while a round waits, would make the journal grow. */
static enum err journal_shorten(struct aggregator *a)
{
    enum err e = journal_long(&a->journal, a->o->files.journal_bytes_max)
                     ? aggregator_journal_again(a)
                     : ERR_OK;
    if (e == ERR_FULL) /* the act is journalled; the next one tries again */
        err_clear();
    return e == ERR_FULL ? ERR_OK : e;
}

enum roles_call aggregator_act_call(enum wire_act act)
{
    static const enum roles_call call[] = {
        [WIRE_STATUS] = ROLES_STATUS,         [WIRE_ABORT] = ROLES_ABORT,
        [WIRE_QUARANTINE] = ROLES_QUARANTINE, [WIRE_READMIT] = ROLES_READMIT,
        [WIRE_ROLLBACK] = ROLES_ROLLBACK,     [WIRE_ROSTER_LIST] = ROLES_ROSTER,
        [WIRE_ROSTER_ADD] = ROLES_ROSTER,     [WIRE_ROSTER_REMOVE] = ROLES_ROSTER,
        [WIRE_METRICS] = ROLES_METRICS,       [WIRE_RECORDS] = ROLES_RECORDS,
        [WIRE_SET_LIST] = ROLES_SET,          [WIRE_SET] = ROLES_SET};
    ASSERT((size_t)act < sizeof call / sizeof *call);
    return call[act];
}

void aggregator_operate(void *self, const char *peer, const struct wire_operate *m,
                        struct wire_answer *answer)
{
    struct aggregator *a = self;
    const struct organ_at_aggregator *of = aggregator_organ_of(a, m->act);
    enum roles_call call = aggregator_act_call(m->act);
    const char *revoked;
    enum err e = ERR_OK;
    memset(answer, 0, sizeof *answer);
    if (!roles_may(roles_of(peer, a->o->run), call))
        aggregator_say(answer, ROUND_DENIED,
                       "the certificate says %s, this call needs an operator's%s of run %s",
                       peer && *peer ? peer : "nothing",
                       call == ROLES_METRICS   ? ", an observer's or a site's"
                       : call == ROLES_RECORDS ? " or an observer's"
                                               : "",
                       a->o->run);
    else if ((revoked = aggregator_revoked(a, peer, &m->certificate)))
        aggregator_say(answer, ROUND_EXCLUDED, "%s: %s", peer, revoked);
    else if (!of && m->act != WIRE_METRICS && m->act != WIRE_RECORDS &&
             (m->fragment >= a->core.fragments || !aggregator_serves(a, m->fragment)))
        aggregator_say(answer, ROUND_INVALID, "fragment %u is not of this aggregator", m->fragment);
    else
        e = of ? of->organ->operate(of->self, peer, m, answer) : act_answer(a, peer, m, answer);
    if (e == ERR_OK)
        e = journal_shorten(a);
    if (e != ERR_OK)
        aggregator_say_failed(a, e, answer);
    if (!of && m->fragment < a->core.fragments)
        answer->round = a->core.f[m->fragment].round;
    if (answer->outcome != ROUND_CURRENT)
        aggregator_refused(a, -1, peer, roles_call_name(call), answer->outcome, answer->text);
}
