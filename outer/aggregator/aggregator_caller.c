/* SPDX-License-Identifier: Apache-2.0 */
/* The checks before every call: certificate, roster, revocation, run, configuration; and the answer
 * of the core to a call about one fragment. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"

const char *aggregator_revoked(void *self, const char *peer, const struct wire_certificate *c)
{
    const struct aggregator *a = self;
    return a->part.revocation ? revocation_why(a->part.revocation, peer, c) : NULL;
}

bool aggregator_known(void *self, const char *peer)
{
    const struct aggregator *a = self;
    char prefix[3 * WIRE_NAME_MAX];
    int n = snprintf(prefix, sizeof prefix, "atoll://%s/site/", a->o->run);
    if (strncmp(peer, prefix, (size_t)n) != 0)
        return false;
    bool found = false;
    for (unsigned i = 0, count = a->members.count; i < count && !found; i++)
        found = strcmp(a->members.names[i], peer + n) == 0;
    return found;
}

int aggregator_caller_check(struct aggregator *a, const char *peer, enum roles_call call,
                            const struct wire_head *head, enum round_outcome *outcome,
                            char text[WIRE_TEXT_MAX])
{
    char expected[3 * WIRE_NAME_MAX];
    const char *revoked;
    snprintf(expected, sizeof expected, "atoll://%s/site/%s", a->o->run, head->site);
    int site = aggregator_site(a, head->site);
    if (!roles_may(roles_of(peer, a->o->run), call) || strcmp(peer, expected) != 0) {
        *outcome = ROUND_DENIED;
        snprintf(text, WIRE_TEXT_MAX, "the certificate says %s, this call needs %s",
                 peer && *peer ? peer : "nothing", expected);
    } else if (site < 0) {
        *outcome = ROUND_EXCLUDED;
        snprintf(text, WIRE_TEXT_MAX,
                 "%s is not one of outer.sites, and no operator has added it: atoll operator "
                 "roster add %s",
                 head->site, head->site);
    } else if ((revoked = aggregator_revoked(a, peer, &head->certificate))) {
        *outcome = ROUND_EXCLUDED;
        snprintf(text, WIRE_TEXT_MAX, "%s: %s", peer, revoked);
    } else if (aggregator_quarantined(a, (unsigned)site)) {
        *outcome = ROUND_EXCLUDED;
        aggregator_quarantine_text(a, (unsigned)site, text);
    } else if (!aggregator_serves_site(a, (unsigned)site)) {
        *outcome = ROUND_EXCLUDED;
        snprintf(text, WIRE_TEXT_MAX,
                 "%s was removed from the roster by an operator, and the rounds that it was in are "
                 "over: its part in the run has ended. To bring it back: atoll operator roster "
                 "add %s",
                 head->site, head->site);
    } else if (strcmp(head->run, a->o->run) != 0) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX, "run.name: %s here, %s there", a->o->run, head->run);
    } else if (head->aggregator != a->o->place.index) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX,
                 "this is aggregator %u, the call is for %" PRIu32
                 ": compare the order of site.aggregator "
                 "with serve.index",
                 a->o->place.index, head->aggregator);
    } else {
        return site;
    }
    return -1;
}

int aggregator_caller(struct aggregator *a, const char *peer, enum roles_call call,
                      const struct wire_head *head, enum round_outcome *outcome,
                      char text[WIRE_TEXT_MAX])
{
    int site = aggregator_caller_check(a, peer, call, head, outcome, text);
    if (site >= 0 && !digest_equal(&head->config, &a->start.config)) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX, "other settings than this run's: say hello to learn which");
        site = -1;
    } else if (site >= 0 && head->roster_version > a->members.roster.version &&
               head->term >= a->start.term) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX, "roster: version %" PRIu32 " here, %" PRIu32 " there",
                 a->members.roster.version, head->roster_version);
        site = -1;
    } else if (site >= 0 && a->members.roster.version > 1 &&
               head->roster_version < a->members.roster.version && head->term == a->start.term) {
        *outcome = ROUND_REBIND;
        snprintf(text, WIRE_TEXT_MAX, "the roster has changed: say hello");
        site = -1;
    }
    if (site >= 0)
        aggregator_heard(a, (unsigned)site);
    return site;
}

void aggregator_refused(struct aggregator *a, int site, const char *peer, const char *call,
                        enum round_outcome outcome, const char *text)
{
    char quoted[1024], from[256];
    unsigned repeats;
    const char *name = round_outcome_name(outcome), *who = peer ? peer : "";
    aggregator_metrics_refused(a, site, peer, outcome);
    if (!aggregator_line_passes(a, name, who, 1, &repeats))
        return;
    const char *caller = log_quote(from, sizeof from, who);
    const char *why = log_quote(quoted, sizeof quoted, text);
    if (outcome == ROUND_REBIND) /* a call from before this process: it says hello next */
        log_event(LOG_INFO, "reconnect", "peer=%s after_s=%.1f why=%s call=%s repeats=%u", caller,
                  (double)(site >= 0 ? a->site[site].silent_ms : 0) / 1e3, why, call, repeats);
    else
        log_event(LOG_WARN, "refused", "call=%s peer=%s answer=%s repeats=%u why=%s", call, caller,
                  name, repeats, why);
}

bool aggregator_event_past(struct aggregator *a, struct round_event *e)
{
    struct manifest m;
    if (e->round >= a->core.f[e->fragment].round)
        return true;
    enum err err = outer_state_manifest(a->replica, e->fragment, e->round - (e->round > 0), &m);
    e->past.kept = err == ERR_OK;
    if (e->past.kept && e->round > 0) {
        e->past.parent = manifest_digest(&m);
        e->past.state = m.state_after;
    } else if (e->past.kept) { /* the initial state: the first manifest says what it was */
        e->past.state = m.state_before;
    }
    return err != ERR_MEMORY;
}

int aggregator_call_step(struct aggregator *a, const char *peer, const struct wire_head *head,
                         enum roles_call call, struct round_event *e, struct wire_answer *answer)
{
    enum round_event_kind kind = e->kind;
    struct round_event given = *e;
    struct round_update u;
    memset(answer, 0, sizeof *answer);
    int site = aggregator_caller(a, peer, call, head, &answer->outcome, answer->text);
    if (site >= 0 && (given.fragment >= a->core.fragments ||
                      (given.kind != ROUND_LEAVE && !aggregator_serves(a, given.fragment)))) {
        answer->outcome = ROUND_INVALID;
        aggregator_put_text(answer->text, "no fragment of this aggregator");
        site = -1;
    }
    if (site < 0) {
        aggregator_refused(a, -1, peer, roles_call_name(call), answer->outcome, answer->text);
        return -1;
    }
    *e = aggregator_event(kind, (unsigned)site, head);
    e->fragment = given.fragment;
    e->round = given.round;
    e->state = given.state;
    if (kind == ROUND_REPORT && !aggregator_event_past(a, e)) {
        aggregator_say_no_memory(answer);
        return -1;
    }
    aggregator_step(a, e, &u);
    answer->outcome = u.outcome;
    answer->round = u.round;
    answer->final = u.final;
    aggregator_put_text(answer->text, u.text);
    return site;
}
