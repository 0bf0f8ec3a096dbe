/* The answers to hello, poll, fetch, report and leave, and the checks before all of them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_identity.h"
#include "outer/aggregator/aggregator_masks.h"
#include "outer/config/identity.h"

enum {                /* lines of one site in LOG_LIMIT_MS */
       SAID_MAX = 20, /* it is bound, it has left */
       ADOPTED_MAX = 3000
};
enum { COMMITTING_RETRY_MS = 1000, NO_MEMORY_RETRY_MS = 1000 };
static const char no_memory[] = "no memory for it now";
enum { SNAPSHOTS_HELD = 2 /* of the largest fragment's size, all together */ };

/* ---- who calls ---- */

int aggregator_site(const struct aggregator *a, const char *name)
{
    for (unsigned i = 0; i < a->members.count; i++)
        if (strcmp(a->members.names[i], name) == 0)
            return (int)i;
    return -1;
}

const char *aggregator_revoked(void *self, const char *peer, const struct wire_certificate *c)
{
    const struct aggregator *a = self;
    return a->revocation ? revocation_why(a->revocation, peer, c) : NULL;
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

/* The refusals that need names; the first that applies. Returns the site or -1. */
static int caller_check(struct aggregator *a, const char *peer, enum roles_call call,
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
    } else if (head->aggregator != a->o->index) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX,
                 "this is aggregator %u, the call is for %" PRIu32
                 ": compare the order of site.aggregator "
                 "with serve.index",
                 a->o->index, head->aggregator);
    } else {
        return site;
    }
    return -1;
}

int aggregator_caller(struct aggregator *a, const char *peer, enum roles_call call,
                      const struct wire_head *head, enum round_outcome *outcome,
                      char text[WIRE_TEXT_MAX])
{
    int site = caller_check(a, peer, call, head, outcome, text);
    if (site >= 0 && !digest_equal(&head->config, &a->config)) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX, "other settings than this run's: say hello to learn which");
        site = -1;
    } else if (site >= 0 && head->roster_version > a->members.roster.version &&
               head->epoch >= a->start.epoch) {
        *outcome = ROUND_MISMATCH;
        snprintf(text, WIRE_TEXT_MAX, "roster: version %" PRIu32 " here, %" PRIu32 " there",
                 a->members.roster.version, head->roster_version);
        site = -1;
    } else if (site >= 0 && a->members.roster.version > 1 &&
               head->roster_version < a->members.roster.version && head->epoch == a->start.epoch) {
        *outcome = ROUND_REBIND;
        snprintf(text, WIRE_TEXT_MAX, "the roster has changed: say hello");
        site = -1;
    }
    if (site >= 0)
        aggregator_heard(a, (unsigned)site);
    return site;
}

struct round_event aggregator_event(enum round_event_kind kind, unsigned site,
                                    const struct wire_head *head)
{
    return (struct round_event){.kind = kind,
                                .site = site,
                                .incarnation = head->incarnation,
                                .instance = head->instance,
                                .epoch = head->epoch};
}

void aggregator_refused(struct aggregator *a, int site, const char *peer, const char *call,
                        enum round_outcome outcome, const char *text)
{
    char quoted[1024], from[256];
    unsigned repeats;
    const char *name = round_outcome_name(outcome), *who = peer ? peer : "";
    aggregator_metrics_refused(a, site, peer, outcome);
    if (!log_limit_pass(&a->limit, name, who, 1, aggregator_now(a), &repeats))
        return;
    const char *caller = log_quote(from, sizeof from, who);
    const char *why = log_quote(quoted, sizeof quoted, text);
    if (outcome == ROUND_REBIND) /* a call from before this process: it says hello next */
        log_event(LOG_INFO, "reconnect", "peer=%s after_s=%.1f cause=%s call=%s repeats=%u", caller,
                  (double)(site >= 0 ? a->site[site].silent_ms : 0) / 1e3, why, call, repeats);
    else
        log_event(LOG_WARN, "refused", "call=%s peer=%s answer=%s repeats=%u why=%s", call, caller,
                  name, repeats, why);
}

static void put_text(char out[WIRE_TEXT_MAX], const char *text)
{
    snprintf(out, WIRE_TEXT_MAX, "%s", text ? text : "");
}

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
        put_text(answer->text, "the configuration text is not the one its digest names");
    } else if (!digest_equal(&d, &a->config)) {
        answer->outcome = ROUND_MISMATCH;
        /* The site prints it, so "here" is the site. */
        enum err e = config_difference(theirs, a->o->canonical, &scratch, &difference);
        put_text(answer->text, e == ERR_OK ? difference : "the configuration differs");
        if (e == ERR_OK && strstr(difference, "run.initial"))
            snprintf(
                answer->text, sizeof answer->text,
                "%.1024s; run.initial is the digest of the parameters of step 0: import the "
                "same file at every site, and start the aggregator with run.from = a directory "
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

/* What we keep of a round below ours, for the core to compare. False: there is no memory to look; a
 * site that were told to join would lose its residual. */
static bool event_past(struct aggregator *a, struct round_event *e)
{
    struct manifest m;
    if (e->round >= a->core.f[e->fragment].round)
        return true;
    enum err err = outer_state_manifest(a->replica, e->fragment, e->round - (e->round > 0), &m);
    e->kept = err == ERR_OK;
    if (e->kept && e->round > 0) {
        e->our_parent = manifest_digest(&m);
        e->our_state = m.state_after;
    } else if (e->kept) { /* the initial state: the first manifest says what it was */
        e->our_state = m.state_before;
    }
    return err != ERR_MEMORY;
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
    e.has_state = m->has_state;
    if (m->has_state) {
        e.round = m->fragments[fragment].round;
        e.parent = m->fragments[fragment].manifest;
        e.state = m->fragments[fragment].state;
        if (!event_past(a, &e)) {
            answer->outcome = ROUND_FULL;
            put_text(answer->text, no_memory);
            return;
        }
    }
    aggregator_proofs(a, m, &e);
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
        put_text(answer->text, NULL);
}

static void hello_bind(struct aggregator *a, unsigned site, const struct wire_hello *m,
                       struct wire_hello_answer *answer)
{
    struct round_event e = aggregator_event(ROUND_BIND, site, &m->head);
    struct round_update u;
    unsigned repeats;
    bool again = a->core.s[site].bound && a->core.s[site].incarnation == m->head.incarnation;
    aggregator_step(a, &e, &u);
    a->site[site].status.left = false;
    answer->epoch = a->start.epoch;
    answer->instance = a->start.instance;
    answer->fragment_count = a->core.fragments;
    aggregator_announcement(a, &answer->announcement);
    answer->end_count = a->replica->schedule.end_count;
    for (uint32_t i = 0; i < answer->end_count; i++)
        answer->ends[i] = a->replica->schedule.ends[i];
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
    if (log_limit_pass(&a->limit, "site_bound", a->members.names[site], SAID_MAX, aggregator_now(a),
                       &repeats))
        log_event(again ? LOG_DEBUG : LOG_INFO, "site_bound",
                  "site=%s incarnation=%" PRIu64 " answer=%s", a->members.names[site],
                  m->head.incarnation, round_outcome_name(answer->outcome));
    enum err err = aggregator_finished(a, site);
    if (err != ERR_OK) {
        struct wire_answer failed = {0};
        aggregator_say_failed(a, err, &failed);
        answer->outcome = failed.outcome;
        put_text(answer->text, failed.text);
    }
}

static int hello_site(struct aggregator *a, const char *peer, const struct wire_hello *m,
                      struct wire_hello_answer *answer)
{
    int site = caller_check(a, peer, ROLES_HELLO, &m->head, &answer->outcome, answer->text);
    if (site < 0 || !hello_config(a, m, answer))
        return site;
    if (a->failed == ERR_STALE) { /* it ends in a moment */
        answer->outcome = ROUND_LOST_STATE;
        put_text(answer->text, a->why);
        return site;
    }
    if (a->failed != ERR_OK) { /* after another call failed, before the process ends */
        answer->outcome = ROUND_FULL;
        put_text(answer->text, a->why);
        return site;
    }
    if (m->has_state && m->fragment_count != a->core.fragments) {
        answer->outcome = ROUND_INVALID;
        put_text(answer->text, "other number of fragments than the configuration's");
        return site;
    }
    aggregator_heard(a, (unsigned)site);
    if (!aggregator_identify(a, (unsigned)site, m, answer))
        return site;
    aggregator_masks_hello(a, (unsigned)site, m);
    for (unsigned i = 0; i < a->core.fragments && a->failed == ERR_OK; i++)
        if (aggregator_serves(a, i))
            hello_fragment(a, (unsigned)site, m, i, answer);
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

static void say_no_memory(struct wire_answer *answer)
{
    answer->outcome = ROUND_FULL;
    answer->retry_ms = NO_MEMORY_RETRY_MS;
    put_text(answer->text, no_memory);
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
        put_text(answer->text, "no fragment of this aggregator");
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
    if (kind == ROUND_REPORT && !event_past(a, e)) {
        say_no_memory(answer);
        return -1;
    }
    aggregator_step(a, e, &u);
    answer->outcome = u.outcome;
    answer->round = u.round;
    answer->final = u.final;
    put_text(answer->text, u.text);
    return site;
}

/* A site that is told that a round is gone takes a snapshot and loses its residual: what cannot be
 * read is read a second time before. */
static enum err manifest_twice(struct aggregator *a, const struct wire_poll *m,
                               struct manifest *out)
{
    enum err e = outer_state_manifest(a->replica, m->fragment, m->round, out);
    if (e == ERR_CORRUPT)
        e = outer_state_manifest(a->replica, m->fragment, m->round, out);
    return e == ERR_OK ? aggregator_sign(a, out) : e;
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
        aggregator_masks_poll(a, m->fragment, (unsigned)site, out);
        aggregator_missing(a, m->fragment, answer->text, sizeof answer->text);
    } else if (err == ERR_MEMORY) {
        say_no_memory(answer);
    } else if (err != ERR_OK) {
        answer->outcome = ROUND_GONE;
        put_text(answer->text, "older than what is kept: take the snapshot");
    }
}

static struct source *source_find(struct aggregator *a, enum wire_what what, uint32_t fragment,
                                  uint64_t round)
{
    for (struct source *s = a->sources; s; s = s->next)
        if (s->what == what && s->fragment == fragment && s->round == round)
            return s;
    return NULL;
}

static enum err source_fill(struct aggregator *a, struct source *s)
{
    if (s->what == WIRE_AGGREGATE) {
        enum err e = outer_state_aggregate(a->replica, s->fragment, s->round, &s->map);
        if (e == ERR_CORRUPT)
            e = outer_state_aggregate(a->replica, s->fragment, s->round, &s->map);
        TRY(e);
        s->data = s->map.data;
        s->size_bytes = s->map.size_bytes;
        return ERR_OK;
    }
    s->size_bytes = outer_state_snapshot_bytes(a->replica, s->fragment);
    uint8_t *snapshot = arena_alloc(&s->arena, s->size_bytes);
    TRY_ALLOC(snapshot);
    s->data = snapshot;
    return outer_state_snapshot_write(a->replica, s->fragment, snapshot);
}

/* Snapshots that are held for slow readers while rounds go on are others each time. */
static enum err snapshots_limit(const struct aggregator *a, uint32_t fragment)
{
    size_t held = 0, largest = 0;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        size_t bytes = outer_state_snapshot_bytes(a->replica, f);
        largest = bytes > largest ? bytes : largest;
    }
    for (const struct source *s = a->sources; s; s = s->next)
        held += s->what == WIRE_SNAPSHOT ? s->size_bytes : 0;
    return held + outer_state_snapshot_bytes(a->replica, fragment) <= SNAPSHOTS_HELD * largest
               ? ERR_OK
               : err_set(ERR_MEMORY, "%zu bytes of snapshots are held for other sites", held);
}

/* The state's arrays are being copied over. A copy that was made before serves. */
static bool snapshot_changes(struct aggregator *a, const struct wire_fetch *m)
{
    return m->what == WIRE_SNAPSHOT && a->commit.stage == COMMIT_PASSING &&
           a->commit.fragment == m->fragment && !source_find(a, m->what, m->fragment, m->round);
}

static enum err source_open(struct aggregator *a, const struct wire_fetch *m, struct source **out)
{
    struct source *s = source_find(a, m->what, m->fragment, m->round);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s)
            return err_set(ERR_MEMORY, "no memory for a fetch");
        *s = (struct source){.what = m->what, .fragment = m->fragment, .round = m->round};
        enum err e = m->what == WIRE_SNAPSHOT ? snapshots_limit(a, m->fragment) : ERR_OK;
        if (e == ERR_OK)
            e = source_fill(a, s);
        if (e != ERR_OK) {
            arena_free(&s->arena);
            free(s);
            return e;
        }
        s->next = a->sources;
        a->sources = s;
    }
    s->readers++;
    *out = s;
    return ERR_OK;
}

void aggregator_fetch(void *self, const char *peer, const struct wire_fetch *m,
                      struct link_content *out, struct wire_answer *answer)
{
    struct aggregator *a = self;
    struct round_event e = {.kind = ROUND_FETCH, .fragment = m->fragment, .round = m->round};
    struct source *s = NULL;
    *out = (struct link_content){0};
    int site = aggregator_call_step(a, peer, &m->head, ROLES_FETCH, &e, answer);
    if (site < 0 || answer->outcome != ROUND_NONE)
        return;
    bool there = m->what == WIRE_AGGREGATE
                     ? m->round < answer->round
                     : m->round == answer->round || source_find(a, m->what, m->fragment, m->round);
    bool changing = there && snapshot_changes(a, m);
    enum err err = changing ? ERR_BUSY : there ? source_open(a, m, &s) : ERR_INPUT;
    if (err == ERR_BUSY) {
        answer->outcome = ROUND_FULL;
        answer->retry_ms = COMMITTING_RETRY_MS;
        put_text(answer->text, "the state is being replaced by the next one");
    } else if (err == ERR_MEMORY) {
        say_no_memory(answer);
    } else if (err != ERR_OK) { /* a damaged one is as good as gone: a snapshot serves as well */
        answer->outcome = ROUND_GONE;
        put_text(answer->text,
                 there ? err_message() : "not what is kept: poll for the present round");
    } else if (m->offset > s->size_bytes || m->size_bytes > s->size_bytes - m->offset) {
        aggregator_fetched(a, s);
        answer->outcome = ROUND_INVALID;
        put_text(answer->text, "a part behind the end");
    } else {
        out->data = s->data;
        out->size_bytes = s->size_bytes;
        out->source = s;
        uint64_t bytes = m->size_bytes ? m->size_bytes : s->size_bytes - m->offset;
        a->payload_down += bytes;
        a->site[site].metrics.payload_down += bytes;
    }
}

void aggregator_fetched(void *self, void *source)
{
    struct aggregator *a = self;
    struct source *s = source;
    ASSERT(s->readers > 0);
    if (--s->readers)
        return;
    for (struct source **at = &a->sources; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (s->what == WIRE_AGGREGATE)
        a->env->ops->unmap(a->env, &s->map);
    arena_free(&s->arena);
    free(s);
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
    if (!log_limit_pass(&a->limit, "adopted", a->members.names[site], ADOPTED_MAX,
                        aggregator_now(a), &repeats))
        return;
    if (a->o->adopted)
        a->o->adopted(a->o->self, (unsigned)site, m);
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
    if (log_limit_pass(&a->limit, "site_left", a->members.names[site], SAID_MAX, aggregator_now(a),
                       &repeats))
        log_event(LOG_INFO, "site_left", "site=%s why=%s", a->members.names[site],
                  log_quote(quoted, sizeof quoted, m->text));
}
