/* SPDX-License-Identifier: Apache-2.0 */
/* One call to the aggregator, and what each answer means at a site (docs/protocol.md 3.2). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "outer/site/site_identity.h"
#include "outer/site/site_own.h"
#include "outer/site/site_repair.h"
#include "outer/protocol/mutant.h"

enum {
    BACKOFF_FIRST_MS = 200,
    BACKOFF_LAST_MS = 5000, /* a site is back within seconds of its aggregator */
    FULL_WAIT_MS = 30000,   /* until the aggregator's disk has room, where it does not say */
    SLICE_MS = 200,         /* how soon a stop request is seen */
    IDENTITY_NAME_MAX = 63,
    MINOR_ELSEWHERE = 3 /* of the protocol: a site may be several processes */
};
static const char identity_file[] = "id/site";

struct identity { /* id/site: whose directory it is, and what the site's processes have seen */
    struct site *s;
    const char *name;
};

void site_notice(struct site_slot *l, const char *format, ...)
{
    struct site *s = l->site;
    char text[512];
    va_list args;
    if (!s->o->notice)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!l->thread)
        s->o->notice(s->o->notice_self, text);
    else
        site_slot_notice(l, text);
}

static bool site_stopping(const struct site *s)
{
    return s->inflight.closing ||
           (s->o->stop && atomic_load_explicit(s->o->stop, memory_order_relaxed));
}

void site_unlock(struct site *s)
{
    s->env->ops->unlock(s->env, s->mutex);
}

void site_lock(struct site *s)
{
    s->env->ops->lock(s->env, s->mutex);
}

enum err site_sleep(struct site_slot *l, uint64_t ms)
{
    struct site *s = l->site;
    uint64_t now = s->env->ops->now_ms(s->env), end = now + ms;
    while (!site_stopping(s) && now < end) {
        uint64_t left = end - now;
        bool sliced = (s->o->stop || l->thread) && left > SLICE_MS;
        site_unlock(s);
        s->env->ops->sleep_ms(s->env, sliced ? SLICE_MS : left);
        site_lock(s);
        now = s->env->ops->now_ms(s->env);
    }
    return site_stopping(s) ? err_set(ERR_STOPPED, "stopped while waiting for the aggregator")
                            : ERR_OK;
}

/* Doubles from call to call; a random half of it keeps sites from coming back in step. */
static uint64_t backoff_ms(struct site_slot *l)
{
    struct site *s = l->site;
    uint64_t most = s->o->straggler_ms / 2;
    most = most < BACKOFF_FIRST_MS  ? BACKOFF_FIRST_MS
           : most > BACKOFF_LAST_MS ? BACKOFF_LAST_MS
                                    : most;
    unsigned doublings = l->outage.failures < 16 ? l->outage.failures : 16;
    uint64_t ms = (uint64_t)BACKOFF_FIRST_MS << doublings;
    ms = ms < most ? ms : most;
    return ms / 2 + rng_below(s->o->seed, RNG_JITTER, s->call.jitter++, ms / 2 + 1);
}

/* reason: what the link or the aggregator said, if anything. */
static enum err back_off(struct site_slot *l, const char *why, const char *reason)
{
    struct site *s = l->site;
    uint64_t now = s->env->ops->now_ms(s->env), ms = backoff_ms(l);
    if (!l->outage.failures++) {
        l->outage.since_ms = now;
        snprintf(l->outage.cause, sizeof l->outage.cause, "%s%s%s", why, *reason ? ": " : "",
                 reason);
    }
    site_notice(l, "%s for %" PRIu64 " s, retrying in %.1f s%s%s", why,
                (now - l->outage.since_ms) / 1000, (double)ms / 1000, *reason ? ": " : "", reason);
    return site_sleep(l, ms);
}

void site_outage_clear(struct site_slot *l)
{
    l->outage.failures = 0;
}

enum err site_called(struct site_slot *l, enum err e, bool *again)
{
    struct site *s = l->site;
    *again = e == ERR_LINK;
    if (site_stopping(s))
        return err_set(ERR_STOPPED, "stopped while talking to the aggregator");
    if (e == ERR_LINK)
        return back_off(l, "aggregator unreachable", err_message());
    if (e == ERR_OK && l->outage.failures) {
        char quoted[2 * sizeof l->outage.cause];
        log_event(LOG_INFO, "reconnect", "peer=aggregator%u after_s=%.1f why=%s", l->peer,
                  (double)(s->env->ops->now_ms(s->env) - l->outage.since_ms) / 1e3,
                  log_quote(quoted, sizeof quoted, l->outage.cause));
        site_notice(l, "aggregator reached again");
    }
    site_outage_clear(l);
    return e;
}

unsigned site_peers(const struct site *s)
{
    return s->o->aggregators ? s->o->aggregators : 1;
}

static struct wire_head head_to(const struct site *s, unsigned peer)
{
    struct wire_head h = {.config = s->own.config,
                          .roster_version = s->members.version[peer],
                          .term = s->peer[peer].term,
                          .incarnation = s->call.incarnation,
                          .instance = s->call.instance,
                          .aggregator = peer};
    snprintf(h.run, sizeof h.run, "%s", s->o->run);
    snprintf(h.site, sizeof h.site, "%s", s->o->name);
    return h;
}

struct wire_head site_head(struct site_slot *l, unsigned fragment)
{
    l->peer = fragment % site_peers(l->site);
    return head_to(l->site, l->peer);
}

/* ---- id/site ---- */

static void identity_fields(struct record_cursor *c, void *self)
{
    struct identity *id = self;
    record_text(c, &id->name, IDENTITY_NAME_MAX);
    record_u64(c, &id->s->call.incarnation);
    for (unsigned p = 0; p < WIRE_AGGREGATORS_MAX; p++) {
        record_u64(c, &id->s->peer[p].term);
        record_u64(c, &id->s->peer[p].instance);
    }
    record_u64(c, &id->s->call.steps.steps);
    record_u32(c, &id->s->call.steps.count);
    for (unsigned i = 0; i < SCHEDULE_ENDS_MAX; i++)
        record_u64(c, &id->s->call.steps.former[i]);
}

enum { IDENTITY_PATH_BYTES = 40 };

static void identity_path(char out[IDENTITY_PATH_BYTES], const struct site *s)
{
    if (site_joint(s))
        snprintf(out, IDENTITY_PATH_BYTES, "id/rank.%u.site", s->replica->o.shards.rank);
    else
        snprintf(out, IDENTITY_PATH_BYTES, "%s", identity_file);
}

static enum err identity_write(struct site *s)
{
    char path[IDENTITY_PATH_BYTES];
    struct identity id = {s, s->o->name};
    struct record_form form = {"site", identity_fields, &id};
    identity_path(path, s);
    return store_write(s->env, path, &form, NULL, 0);
}

enum err site_id_again(struct site *s, const char *path)
{
    char own[IDENTITY_PATH_BYTES];
    unsigned rank = 0, peer = WIRE_AGGREGATORS_MAX;
    identity_path(own, s);
    if (strcmp(path, own) == 0)
        return identity_write(s);
    if (sscanf(path, "id/announced.%u", &peer) != 1)
        (void)sscanf(path, "id/rank.%u.announced.%u", &rank, &peer);
    return rank == s->replica->o.shards.rank
               ? site_identity_again(s, peer)
               : err_set(ERR_CORRUPT, "of a rank that this site no longer has");
}

static struct schedule_former ends_of(const struct site_steps *x)
{
    struct schedule_former e = {.count = x->count};
    for (unsigned i = 0; i < e.count && i < SCHEDULE_ENDS_MAX; i++)
        e.steps[i] = (int64_t)x->former[i];
    return e;
}

enum err site_seen(struct env *w, unsigned aggregator, struct site_seen *out)
{
    struct arena scratch = arena_make(0);
    struct identity id = {arena_alloc(&scratch, sizeof *id.s), ""};
    struct record_form form = {"site", identity_fields, &id};
    struct record r;
    enum err e = ERR_MEMORY;
    ASSERT(aggregator < WIRE_AGGREGATORS_MAX);
    *out = (struct site_seen){.term = 0};
    if (id.s)
        e = store_read(w, identity_file, &form, 0, &r, &scratch);
    if (e == ERR_OK) {
        snprintf(out->name, sizeof out->name, "%s", id.name);
        uint64_t bound = id.s->peer[aggregator].term,
                 signed_there = site_announced_term(w, aggregator);
        out->term = bound > signed_there ? bound : signed_there; /* killed between the two */
        out->steps = id.s->call.steps.steps;
        out->ends = ends_of(&id.s->call.steps);
        if (out->ends.count > SCHEDULE_ENDS_MAX)
            e = err_set(ERR_CORRUPT, "%s/%s: damaged", w->root, identity_file);
    }
    arena_free(&scratch);
    return e;
}

/* The schedule gets the former values of train.steps. */
static enum err ends_set(struct site *s)
{
    const struct schedule_former ends = ends_of(&s->call.steps);
    s->call.ends_known = true;
    return outer_state_ends(s->replica, &ends);
}

/* ---- several processes of one site ---- */

/* What rank R of a former start has seen: this process may hold its fragments now. */
static enum err rank_seen(struct site *s, const char *name, struct site *scratch_site)
{
    struct arena scratch = arena_make(0);
    struct identity id = {scratch_site, ""};
    struct record_form form = {"site", identity_fields, &id};
    struct record r;
    char path[IDENTITY_PATH_BYTES];
    snprintf(path, sizeof path, "id/%s", name);
    enum err e = store_read(s->env, path, &form, 0, &r, &scratch);
    arena_free(&scratch);
    TRY(e);
    for (unsigned p = 0; p < WIRE_AGGREGATORS_MAX; p++)
        if (scratch_site->peer[p].term > s->peer[p].term) {
            s->peer[p].term = scratch_site->peer[p].term;
            s->peer[p].instance = scratch_site->peer[p].instance;
        }
    return ERR_OK;
}

static enum err ranks_seen(struct site *s)
{
    struct arena scratch = arena_make(0);
    char **names = NULL, rest;
    size_t count = 0;
    unsigned rank;
    struct site *seen = arena_alloc(&scratch, sizeof *seen);
    enum err e = !seen ? ERR_MEMORY
                 : s->env->ops->exists(s->env, "id")
                     ? s->env->ops->list(s->env, "id", &scratch, &names, &count)
                     : ERR_OK;
    for (size_t i = 0; e == ERR_OK && i < count; i++)
        if (sscanf(names[i], "rank.%u.sit%c", &rank, &rest) == 2 && rest == 'e')
            e = rank_seen(s, names[i], seen);
    arena_free(&scratch);
    return e;
}

struct site_process site_process_of(const struct site *s)
{
    struct site_process p = {.incarnation = s->call.incarnation,
                             .instance = s->call.instance,
                             .steps = s->call.steps.steps,
                             .former_count = s->call.steps.count};
    for (unsigned i = 0; i < WIRE_AGGREGATORS_MAX; i++) {
        p.term[i] = s->peer[i].term;
        p.term_instance[i] = s->peer[i].instance;
    }
    memcpy(p.former, s->call.steps.former, sizeof p.former);
    return p;
}

/* Of the lead's process. The terms are durable in its files. */
static enum err identify_joint(struct site *s)
{
    const struct site_process *p = s->o->joint;
    s->call.incarnation = p->incarnation;
    s->call.instance = p->instance;
    s->call.steps.steps = p->steps;
    s->call.steps.count = p->former_count;
    memcpy(s->call.steps.former, p->former, sizeof p->former);
    for (unsigned i = 0; i < WIRE_AGGREGATORS_MAX; i++) {
        s->peer[i].term = p->term[i];
        s->peer[i].instance = p->term_instance[i];
    }
    return s->call.steps.steps == (uint64_t)s->replica->o.schedule.steps ? ends_set(s) : ERR_OK;
}

/* Residual, stored contribution and incarnation are one site's: another one that took them up would
 * send the first one's work a second time. */
enum err site_identify(struct site *s)
{
    struct arena scratch = arena_make(0);
    struct identity id = {s, ""};
    struct record_form form = {"site", identity_fields, &id};
    struct record r;
    if (site_joint(s))
        return identify_joint(s);
    if (s->env->ops->exists(s->env, "run.cfg"))
        return err_set(ERR_CONFIG, "run.dir is an aggregator's directory; give site %s its own",
                       s->o->name);
    enum err e = store_read(s->env, identity_file, &form, 0, &r, &scratch);
    if (e == ERR_INPUT && !store_begun(s->env))
        e = ERR_OK; /* a new directory */
    else if (e == ERR_INPUT)
        e = err_set(ERR_CORRUPT,
                    "%s/%s: missing, and this directory has begun: restore it, or move the "
                    "directory away and start again: the site rejoins by snapshot",
                    s->env->root, identity_file);
    else if (e == ERR_OK && strcmp(id.name, s->o->name) != 0)
        e = err_set(ERR_CONFIG, "run.dir is the directory of site %s; give site %s its own",
                    id.name, s->o->name);
    arena_free(&scratch);
    TRY(e);
    TRY(ranks_seen(s));
    if (s->call.steps.steps == (uint64_t)s->replica->o.schedule.steps)
        TRY(ends_set(s));
    s->call.incarnation++;
    s->env->ops->random(s->env, &s->call.instance, sizeof s->call.instance);
    return identity_write(s);
}

/* ---- train.steps and its former values ---- */

/* Of the same run? The list must begin with the one that was told before. */
static bool steps_follow(const struct site_steps *old, const struct site_steps *new)
{
    bool follows = old->count <= new->count && old->steps <= new->steps;
    bool grown = old->steps == 0 || old->steps == new->steps;
    for (unsigned i = 0; follows && i < old->count; i++)
        follows = old->former[i] == new->former[i];
    for (unsigned i = old->count; i < new->count; i++)
        grown = grown || new->former[i] == old->steps;
    return follows && grown && (old->steps != new->steps || old->count == new->count);
}

static enum err steps_heard(struct site *s, const struct wire_hello_answer *a)
{
    struct site_steps now = {(uint64_t)s->replica->o.schedule.steps, .count = a->end_count};
    for (unsigned i = 0; i < a->end_count; i++)
        now.former[i] = (uint64_t)a->ends[i];
    if (!steps_follow(&s->call.steps, &now) ||
        (now.count && now.former[now.count - 1] >= now.steps))
        return err_set(ERR_DISAGREE,
                       "the aggregator and this site have other former values of train.steps on "
                       "record: the aggregator's run.cfg was lost or is of another run; restore "
                       "serve.dir/run.cfg");
    s->call.steps = now;
    return ends_set(s);
}

/* ---- hello ---- */

/* One aggregator per term, and never an earlier term: durable before anything is said under it.
 */
static enum err term_bind(struct site *s, struct site_peer *p, const struct wire_hello_answer *a)
{
    bool other = a->instance != p->instance && !MUTANT(INSTANCE_BELIEVED);
    if (a->term < p->term || (a->term == p->term && other))
        return err_set(ERR_DISAGREE,
                       "the aggregator says term %" PRIu64 ", instance %" PRIx64 "; term %" PRIu64
                       ", instance %" PRIx64 " was seen: "
                       "a second aggregator, or one started from an older copy of its directory",
                       a->term, a->instance, p->term, p->instance);
    if (a->term == p->term)
        return ERR_OK;
    struct site_peer before = *p;
    p->term = a->term;
    p->instance = a->instance;
    enum err e = identity_write(s);
    if (e != ERR_OK) /* a full disk: the next hello begins where this one did */
        *p = before;
    else
        log_event(LOG_INFO, "bound", "term=%" PRIu64, p->term);
    return e;
}

void site_polled(struct site *s, unsigned fragment, uint64_t round)
{
    if (round <= s->there.round[fragment])
        return;
    s->there.round[fragment] = round;
    if (!MUTANT(ACCEPTED_STALE)) /* it was of the round before */
        s->there.accepted[fragment] = (struct digest){0};
}

static void heard_of(struct site_box *b, unsigned fragment, const struct wire_fragment_state *there)
{
    if (b->fragment == fragment)
        b->received = there->round == b->round && digest_equal(&there->accepted, &b->made.payload);
}

static enum err organs_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a)
{
    const struct organs_at_site *o = &s->o->organs;
    for (unsigned i = 0; i < o->count; i++)
        TRY(o->at[i].organ->heard(o->at[i].self, s, peer, a));
    return ERR_OK;
}

/* Any outcome: an older program reads a fragment that is elsewhere as one at round 0. */
static enum err elsewhere_known(const struct site *s, const struct wire_hello_answer *a)
{
    if (s->replica->o.shards.ranks <= 1 || a->minor >= MINOR_ELSEWHERE)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "site.outer_state = sharded: the aggregator's program is older and takes a "
                   "site for one process; update it first (atoll serve), or start with "
                   "site.outer_state = lead");
}

static enum err hello_heard(struct site *s, unsigned peer, const struct wire_hello *said,
                            const struct wire_hello_answer *a)
{
    unsigned count = s->replica->fragments->count;
    if (a->fragment_count != count)
        return err_set(ERR_PROTO, "the aggregator has %u fragments, this site %u",
                       a->fragment_count, count);
    TRY(site_identity_heard(s, peer, a));
    TRY(steps_heard(s, a)); /* a new term stores it: train.steps grows at a start only */
    TRY(term_bind(s, &s->peer[peer], a));
    s->call.heard = true;
    TRY(organs_heard(s, peer, a));
    for (unsigned f = peer; f < count; f += site_peers(s)) {
        if (!site_holds(s, f))
            continue;
        const struct wire_fragment_state *there = &a->fragments[f];
        s->there.round[f] = there->round;
        s->there.state[f] = there->state;
        s->there.accepted[f] = there->accepted;
        if (there->step_back)
            TRY(site_step_back_asked(s, f, &said->fragments[f]));
        else /* rounds that are final there are of our history too */
            site_final(s, f, there->final);
        heard_of(&s->own.main->box, f, there);
        for (unsigned i = 0; i < s->inflight.slots; i++)
            heard_of(&s->inflight.slot[i].box, f, there);
    }
    return ERR_OK;
}

static enum err answer_error(enum round_outcome o, const char *text)
{
    static const struct {
        enum round_outcome outcome;
        enum err e;
    } table[] = {
        {ROUND_DENIED, ERR_DENIED},     {ROUND_EXCLUDED, ERR_DENIED},
        {ROUND_INVALID, ERR_PROTO},     {ROUND_MISMATCH, ERR_MISMATCH},
        {ROUND_CONFLICT, ERR_DISAGREE}, {ROUND_SUPERSEDED, ERR_BUSY},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].outcome == o)
            return err_set(table[i].e, "the aggregator answers %s: %s", round_outcome_name(o),
                           text);
    return err_set(ERR_PROTO, "the aggregator answers %s (%d), which does not fit: %s",
                   round_outcome_name(o), (int)o, text);
}

/* After a lost directory the site began again at number 1, and the aggregator still knows the site
 * by its former process's number. One refusal is the pause in which a person can see that the
 * former process is gone; the next start is beyond its number (or the one after, if a disk was lost
 * before). */
static enum err incarnation_raise(struct site *s, enum round_outcome o, const char *text)
{
    if (s->call.incarnation < UINT32_MAX)
        s->call.incarnation <<= 16;
    TRY(identity_write(s));
    return err_set(
        o == ROUND_CONFLICT ? ERR_TAKEN : ERR_BUSY,
        "the aggregator answers %s: %s; this directory is new, and the process of site %s "
        "before it may still be counted as connected. See that it has ended, wait a few seconds "
        "and "
        "start again, until this directory is taken: one that still runs is then told to stop",
        round_outcome_name(o), text, s->o->name);
}

enum err site_hello_once(struct site_slot *l, bool has_state)
{
    struct site *s = l->site;
    unsigned peer = l->peer;
    struct wire_hello m = {.head = head_to(s, peer),
                           .major = WIRE_MAJOR,
                           .minor = WIRE_MINOR,
                           .config = s->o->canonical,
                           .has_state = has_state,
                           .fragment_count = s->replica->fragments->count};
    struct wire_hello_answer a = {.outcome = ROUND_NONE};
    for (unsigned f = 0; f < m.fragment_count; f++) {
        const struct outer_state_fragment *state = &s->replica->state[f];
        m.fragments[f].elsewhere = !site_holds(s, f);
        if (!has_state || m.fragments[f].elsewhere)
            continue;
        m.fragments[f] = (struct wire_fragment_state){
            .round = state->round, .state = state->digest, .manifest = state->manifest};
    }
    TRY(site_identity_show(s, peer, &m));
    site_unlock(s);
    enum err e = s->own.link->ops->hello(s->own.link, &m, &a);
    site_lock(s);
    TRY(e);
    if (s->peer[peer].term !=
        m.head.term) /* the answers crossed: this one may be of an aggregator that ended */
        return err_set(ERR_LINK, "another round of this site was answered first");
    TRY(elsewhere_known(s, &a));
    switch (a.outcome) {
    case ROUND_CURRENT:
    case ROUND_BEHIND:
    case ROUND_JOIN:
    case ROUND_DIVERGED:
    case ROUND_STEP_BACK:
        return hello_heard(s, peer, &m, &a);
    case ROUND_CONFLICT:
    case ROUND_SUPERSEDED:
        return has_state ? answer_error(a.outcome, a.text)
                         : incarnation_raise(s, a.outcome, a.text);
    case ROUND_SUPPLY:
        if (s->replica->o.shards.ranks > 1)
            return err_set(ERR_UNSUPPORTED,
                           "the aggregator has lost its directory and is rebuilt from the sites, "
                           "and this process holds a part of the states: start this site with "
                           "site.outer_state = lead until the aggregator is back");
        return has_state ? site_supply(l) : answer_error(a.outcome, a.text);
    case ROUND_LOST_STATE: /* it has halted; an operator brings it back */
    case ROUND_FULL:
        return err_set(ERR_LINK, "the aggregator answers %s: %s", round_outcome_name(a.outcome),
                       a.text);
    default:
        return answer_error(a.outcome, a.text);
    }
}

enum err site_hello(struct site_slot *l, bool has_state)
{
    for (bool again = true; again;)
        TRY(site_called(l, site_hello_once(l, has_state), &again));
    return ERR_OK;
}

enum err site_react(struct site_slot *l, const struct wire_answer *a)
{
    switch (a->outcome) {
    case ROUND_REBIND:
        return site_hello(l, true);
    case ROUND_SUPERSEDED: /* by another stream of ours, or by a newer process: hello tells */
        if (MUTANT(SUPERSEDED_FATAL))
            return answer_error(a->outcome, a->text);
        TRY(back_off(l, "another stream of this site is being served", ""));
        return site_hello(l, true);
    case ROUND_FULL:
        site_notice(l, "the aggregator cannot take it yet (%s), retrying in %.1f s", a->text,
                    a->retry_ms / 1000.0);
        return site_sleep(l, a->retry_ms ? a->retry_ms : FULL_WAIT_MS);
    case ROUND_RESUME: /* the stream ended before the last byte was good: offer again */
        return back_off(l, "contribution incomplete", a->text);
    case ROUND_EARLY:
        return back_off(l, "not yet in this round", a->text);
    case ROUND_LOST_STATE:
        return back_off(l, "aggregator has lost state and halted", a->text);
    default:
        return answer_error(a->outcome, a->text);
    }
}

enum err site_manifest_ask(struct site_slot *l, unsigned fragment, uint64_t round,
                           struct manifest *m)
{
    struct site *s = l->site;
    struct wire_poll ask = {.head = site_head(l, fragment), .fragment = fragment, .round = round};
    struct wire_poll_answer a = {.answer = {.outcome = ROUND_NONE}};
    struct digest wanted, got;
    TRY(outer_state_manifest_digest(s->replica, fragment, round, &wanted));
    manifest_clear(&a.manifest);
    site_unlock(s);
    enum err e = s->own.link->ops->poll(s->own.link, &ask, 0, &a);
    site_lock(s);
    TRY(e);
    if (a.answer.outcome != ROUND_COMMIT)
        return err_set(ERR_LINK, "the aggregator answers %s to the question for it",
                       round_outcome_name(a.answer.outcome));
    got = manifest_digest(&a.manifest);
    if (!digest_equal(&got, &wanted))
        return err_set(ERR_PROTO, "the aggregator's manifest of the round is another one");
    TRY(site_identity_check(s, &a.manifest));
    *m = a.manifest;
    return ERR_OK;
}
