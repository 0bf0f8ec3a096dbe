/* SPDX-License-Identifier: Apache-2.0 */
/* The answers to hello, poll, report and leave. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_signs.h"
#include "outer/aggregator/aggregator_sums.h"
#include "outer/config/identity.h"

enum {                /* lines of one site in LOG_LIMIT_MS */
       SAID_MAX = 20, /* it is bound, it has left */
       ADOPTED_MAX = 3000
};

/* ---- hello ---- */

/* Configuration by name: only here does the text travel. True: equal. */
static bool hello_config(struct aggregator *a, const struct wire_hello *m,
                         struct wire_hello_answer *answer)
{
    struct arena scratch = arena_make(4 * WIRE_CONFIG_MAX);
    const char *theirs = m->config ? m->config : "";
    struct digest d = identity_digest(theirs);
    char *difference = NULL;
    bool equal = false;
    if (m->major != WIRE_MAJOR) {
        answer->outcome = ROUND_MISMATCH;
        snprintf(answer->text, sizeof answer->text, "protocol version: %d here, %" PRIu32 " there",
                 WIRE_MAJOR, m->major);
    } else if (!digest_equal(&d, &m->head.config)) {
        answer->outcome = ROUND_INVALID;
        aggregator_put_text(answer->text, "the configuration text is not the one its digest names");
    } else if (!digest_equal(&d, &a->start.config)) {
        answer->outcome = ROUND_MISMATCH;
        /* The site prints it, so "here" is the site. */
        enum err e = keys_difference(theirs, a->o->canonical, &scratch, &difference);
        aggregator_put_text(answer->text, e == ERR_OK ? difference : "the configuration differs");
        if (e == ERR_OK && strstr(difference, "run.initial"))
            snprintf(answer->text, sizeof answer->text,
                     "%.1024s; run.initial is the digest of the parameters of step 0: import the "
                     "same file at every site, and start the aggregator with run.init_from = a "
                     "directory "
                     "that atoll import made of it",
                     difference);
    } else if (strcmp(theirs, a->o->canonical) != 0) {
        answer->outcome = ROUND_MISMATCH;
        snprintf(answer->text, sizeof answer->text,
                 "train.steps: %" PRId64 " here, %" PRId64
                 " there; set the same value at the aggregator and at every site, and start them "
                 "again",
                 identity_steps(theirs), identity_steps(a->o->canonical));
    } else {
        equal = true;
    }
    arena_free(&scratch);
    return equal;
}

enum { HELLO_REFUSED = 5 };

/* The more a site has to do, the higher; refusals above all. */
static int hello_weight(enum round_outcome o)
{
    switch (o) {
    case ROUND_CURRENT:
        return 0;
    case ROUND_BEHIND:
        return 1;
    case ROUND_JOIN:
        return 2;
    case ROUND_DIVERGED:
        return 3;
    case ROUND_STEP_BACK:
        return 4;
    default:
        return HELLO_REFUSED;
    }
}

/* Versions before minor 1 do not know the answer. */
static enum round_outcome hello_known(enum round_outcome o, uint32_t minor)
{
    return o == ROUND_STEP_BACK && minor < 1 ? ROUND_CONFLICT : o;
}

static void hello_fragment(struct aggregator *a, unsigned site, const struct wire_hello *m,
                           unsigned fragment, struct wire_hello_answer *answer)
{
    struct round_event e = aggregator_event(ROUND_HELLO, site, &m->head);
    struct round_update u;
    e.fragment = fragment;
    e.hello.has_state = m->has_state;
    if (m->has_state) {
        e.round = m->fragments[fragment].round;
        e.parent = m->fragments[fragment].manifest;
        e.state = m->fragments[fragment].state;
        if (!aggregator_event_past(a, &e)) {
            answer->outcome = ROUND_FULL;
            aggregator_put_text(answer->text, AGGREGATOR_NO_MEMORY);
            return;
        }
    }
    a->signs->proofs(a, m, &e);
    aggregator_step(a, &e, &u);
    u.outcome = hello_known(u.outcome, m->minor);
    answer->fragments[fragment].step_back = u.outcome == ROUND_STEP_BACK;
    if (answer->outcome != ROUND_NONE && hello_weight(u.outcome) <= hello_weight(answer->outcome))
        return;
    answer->outcome = u.outcome;
    if (u.text)
        snprintf(answer->text, sizeof answer->text,
                 "fragment %u, round %" PRIu64 " here, %" PRIu64 " there: %s", fragment, u.round,
                 e.round, u.text);
    else
        aggregator_put_text(answer->text, NULL);
}

static void hello_bind(struct aggregator *a, unsigned site, const struct wire_hello *m,
                       struct wire_hello_answer *answer)
{
    struct round_event e = aggregator_event(ROUND_BIND, site, &m->head);
    struct round_update u;
    unsigned repeats;
    bool again = a->core.s[site].bound && a->core.s[site].incarnation == m->head.incarnation;
    for (uint32_t i = 0; i < m->fragment_count; i++)
        e.hello.elsewhere |= (uint64_t)m->fragments[i].elsewhere << i;
    aggregator_step(a, &e, &u);
    a->site[site].status.left = false;
    answer->term = a->start.term;
    answer->instance = a->start.instance;
    answer->fragment_count = a->core.fragments;
    a->signs->announcement(a, &answer->announcement);
    answer->end_count = a->replica->schedule.ends.count;
    for (uint32_t i = 0; i < answer->end_count; i++)
        answer->ends[i] = a->replica->schedule.ends.steps[i];
    for (unsigned i = 0; i < a->core.fragments; i++) {
        const struct round_fragment *f = &a->core.f[i];
        struct wire_fragment_state *to = &answer->fragments[i];
        *to = (struct wire_fragment_state){.round = f->round,
                                           .state = f->state,
                                           .manifest = f->parent,
                                           .sealed = f->sealed,
                                           .final = f->final,
                                           .step_back = to->step_back};
        if (f->entries[site].accepted)
            to->accepted = f->entries[site].payload;
    }
    aggregator_organs_bound(a, site, answer);
    if (aggregator_line_passes(a, "site_bound", a->members.names[site], SAID_MAX, &repeats))
        log_event(again ? LOG_DEBUG : LOG_INFO, "site_bound",
                  "site=%s incarnation=%" PRIu64 " answer=%s", a->members.names[site],
                  m->head.incarnation, round_outcome_name(answer->outcome));
    enum err err = aggregator_finished(a, site);
    if (err != ERR_OK) {
        struct wire_answer failed = {0};
        aggregator_say_failed(a, err, &failed);
        answer->outcome = failed.outcome;
        aggregator_put_text(answer->text, failed.text);
    }
}

static int hello_site(struct aggregator *a, const char *peer, const struct wire_hello *m,
                      struct wire_hello_answer *answer)
{
    int site =
        aggregator_caller_check(a, peer, ROLES_HELLO, &m->head, &answer->outcome, answer->text);
    if (site < 0 || !hello_config(a, m, answer))
        return site;
    if (a->state.failed == ERR_STALE) { /* it ends in a moment */
        answer->outcome = ROUND_LOST_STATE;
        aggregator_put_text(answer->text, a->state.why);
        return site;
    }
    if (a->state.failed != ERR_OK) { /* after another call failed, before the process ends */
        answer->outcome = ROUND_FULL;
        aggregator_put_text(answer->text, a->state.why);
        return site;
    }
    if ((m->has_state || m->fragment_count) && m->fragment_count != a->core.fragments) {
        answer->outcome = ROUND_INVALID;
        aggregator_put_text(answer->text, "other number of fragments than the configuration's");
        return site;
    }
    aggregator_heard(a, (unsigned)site);
    if (!a->signs->identify(a, (unsigned)site, m, answer))
        return site;
    a->sums->hello(a, (unsigned)site, m);
    for (unsigned i = 0; i < a->core.fragments && a->state.failed == ERR_OK; i++)
        if (aggregator_serves(a, i) && !m->fragments[i].elsewhere)
            hello_fragment(a, (unsigned)site, m, i, answer);
    if (answer->outcome == ROUND_NONE && a->state.failed == ERR_OK)
        answer->outcome = ROUND_CURRENT; /* all of its fragments are elsewhere */
    if (hello_weight(answer->outcome) < HELLO_REFUSED)
        hello_bind(a, (unsigned)site, m, answer);
    return site;
}

void aggregator_hello(void *self, const char *peer, const struct wire_hello *m,
                      struct wire_hello_answer *answer)
{
    struct aggregator *a = self;
    memset(answer, 0, sizeof *answer);
    answer->minor = WIRE_MINOR;
    answer->roster_version = a->members.roster.version;
    if (a->members.roster.version > 1) /* a refusal has it, too: else it is no message */
        answer->sites = set_count(&a->members.roster.members);
    int site = hello_site(a, peer, m, answer);
    if (hello_weight(answer->outcome) == HELLO_REFUSED)
        aggregator_refused(a, site, peer, "hello", answer->outcome, answer->text);
}

/* ---- the other calls ---- */

/* A site that is told that a round is gone takes a snapshot and loses its residual: what cannot be
 * read is read a second time before. */
static enum err manifest_twice(struct aggregator *a, const struct wire_poll *m,
                               struct manifest *out)
{
    enum err e = outer_state_manifest(a->replica, m->fragment, m->round, out);
    if (e == ERR_CORRUPT)
        e = outer_state_manifest(a->replica, m->fragment, m->round, out);
    return e == ERR_OK ? a->signs->sign(a, out) : e;
}

void aggregator_poll(void *self, const char *peer, const struct wire_poll *m,
                     struct wire_poll_answer *out)
{
    struct aggregator *a = self;
    struct wire_answer *answer = &out->answer;
    struct round_event e = {.kind = ROUND_POLL, .fragment = m->fragment, .round = m->round};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_POLL, &e, answer);
    out->wants = WIRE_MASK_NONE;
    out->body_bytes = 0;
    if (site < 0)
        return;
    enum err err = answer->outcome == ROUND_COMMIT ? manifest_twice(a, m, &out->manifest) : ERR_OK;
    if (answer->outcome == ROUND_PENDING) {
        a->sums->poll(a, m->fragment, (unsigned)site, out);
        aggregator_missing(a, m->fragment, answer->text, sizeof answer->text);
    } else if (err == ERR_MEMORY) {
        aggregator_say_no_memory(answer);
    } else if (err != ERR_OK) {
        answer->outcome = ROUND_GONE;
        aggregator_put_text(answer->text, "no longer kept: take the snapshot");
    }
}

void aggregator_report(void *self, const char *peer, const struct wire_report *m,
                       struct wire_answer *answer)
{
    struct aggregator *a = self;
    unsigned repeats;
    struct round_event e = {
        .kind = ROUND_REPORT, .fragment = m->fragment, .round = m->round, .state = m->state};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_REPORT, &e, answer);
    if (site < 0 || (answer->outcome != ROUND_CURRENT && answer->outcome != ROUND_BEHIND))
        return;
    enum err err = aggregator_finished(a, (unsigned)site);
    if (err != ERR_OK) {
        aggregator_say_failed(a, err, answer);
        return;
    }
    answer->clock_ms = a->env->ops->unix_ms(a->env);
    struct aggregator_site_status *s = &a->site[site].status;
    s->step = m->step;
    s->loss = m->loss;
    s->tokens_per_second = m->tokens_per_second;
    s->tokens = m->tokens;
    s->bytes_up = m->bytes_up;
    s->bytes_down = m->bytes_down;
    if (!aggregator_line_passes(a, "adopted", a->members.names[site], ADOPTED_MAX, &repeats))
        return;
    if (a->o->tell.adopted)
        a->o->tell.adopted(a->o->tell.self, (unsigned)site, m);
    /* m->round: the state; the round before it led there, as in ev=accept and ev=commit */
    log_event(LOG_DETAIL, "adopted",
              "site=%s fragment=%u round=%" PRIu64 " step=%" PRId64
              " loss=%.4f tokens_per_s=%.0f tokens=%" PRIu64 " up=%" PRIu64 " down=%" PRIu64,
              a->members.names[site], m->fragment, m->round ? m->round - 1 : 0, m->step, m->loss,
              m->tokens_per_second, m->tokens, m->bytes_up, m->bytes_down);
}

void aggregator_leave(void *self, const char *peer, const struct wire_leave *m,
                      struct wire_answer *answer)
{
    struct aggregator *a = self;
    char quoted[512];
    unsigned repeats;
    struct round_event e = {.kind = ROUND_LEAVE};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_LEAVE, &e, answer);
    if (site < 0 || answer->outcome != ROUND_CURRENT)
        return;
    a->site[site].status.left = true;
    if (aggregator_line_passes(a, "site_left", a->members.names[site], SAID_MAX, &repeats))
        log_event(LOG_INFO, "site_left", "site=%s why=%s", a->members.names[site],
                  log_quote(quoted, sizeof quoted, m->text));
}

void aggregator_mask(void *self, const char *peer, const struct wire_mask *m,
                     struct wire_mask_answer *answer)
{
    struct aggregator *a = self;
    struct round_event e = {.kind = ROUND_FETCH, .fragment = m->fragment, .round = m->round};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_MASK, &e, &answer->answer);
    answer->body_bytes = 0;
    answer->number = 0;
    if (site < 0 || answer->answer.outcome != ROUND_NONE)
        return;
    a->sums->mask(a, (unsigned)site, m, answer);
    enum round_outcome o = answer->answer.outcome;
    if (o == ROUND_INVALID || o == ROUND_DENIED)
        aggregator_refused(a, site, peer, roles_call_name(ROLES_MASK), o, answer->answer.text);
}
