/* A site's end of the outer loop. DiLoCo (2311.08105) Algorithm 1 is ticked off in site_round and
 * adopt: lines 11 to 16, with S1 to S11 of docs/protocol.md beside them.
 */
#include "outer/site.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/site_own.h"
#include "outer/mutant.h"

enum {
    HOLD_MS =
        2000, /* how long the aggregator may hold a poll: also how soon a stop request is seen */
    PENDING_MS = 50, /* least time between two polls that both say pending */
    FETCHES_MAX = 3, /* of an aggregate whose digest is wrong, before giving up */
    LAST_REPORT_MS =
        60000 /* how long a site tries to say that it has all; the aggregator may have ended */
};

static size_t largest_payload(const struct member_options *o)
{
    size_t most = 0;
    for (unsigned f = 0; f < o->fragments->count; f++)
        for (unsigned k = 0; k < CODEC_COUNT; k++) {
            const struct codec *c = codec_get((enum codec_kind)k);
            bool used = schedule_uses(&o->schedule, c->kind);
            size_t bytes = c->payload_bytes(c, o->fragments->f[f].elements);
            most = used && bytes > most ? bytes : most;
        }
    return most;
}

static size_t largest_elements(const struct member_options *o)
{
    size_t most = 0;
    for (unsigned f = 0; f < o->fragments->count; f++)
        most = o->fragments->f[f].elements > most ? o->fragments->f[f].elements : most;
    return most;
}

/* Aggregate of all sites, or a snapshot: all that members share. */
static size_t largest_download(const struct member_options *o, unsigned site_count)
{
    size_t elements = largest_elements(o);
    size_t most = elements * nesterov_bytes(&o->outer) + elements / DEV_BLOCK;
    for (unsigned k = 0; k < CODEC_COUNT; k++) {
        const struct codec *c = codec_get((enum codec_kind)k);
        bool used = schedule_uses(&o->schedule, c->kind);
        size_t bytes = c->aggregate_bytes(c, elements, site_count);
        most = used && bytes > most ? bytes : most;
    }
    return most;
}

size_t site_memory_bytes(const struct member_options *o, unsigned site_count)
{
    size_t floats = largest_elements(o) * (2 * sizeof(float) + (o->forgets ? sizeof(double) : 0));
    return floats + largest_payload(o) + largest_download(o, site_count);
}

enum err site_open(struct site **out, struct world *w, struct link *l, struct member *m,
                   const struct site_options *o, struct arena *perm)
{
    struct site *s;
    size_t elements = largest_elements(&m->o);
    ASSERT(m->o.residuals && o->site_count <= ROUND_SITES_MAX && o->index < o->site_count);
    ASSERT(m->o.forgets == (o->feedback < 1));
    *out = NULL;
    TRY_ALLOC(s = arena_alloc(perm, sizeof *s));
    *s = (struct site){.world = w,
                       .link = l,
                       .member = m,
                       .o = *o,
                       .config = digest_of(o->canonical, strlen(o->canonical))};
    TRY_ALLOC(s->payload = arena_alloc(perm, largest_payload(&m->o)));
    TRY_ALLOC(s->residual = arena_array(perm, elements, sizeof *s->residual));
    TRY_ALLOC(s->z = arena_array(perm, elements, sizeof *s->z));
    TRY_ALLOC(s->download = arena_alloc(perm, largest_download(&m->o, o->site_count)));
    if (m->o.forgets)
        TRY_ALLOC(s->forgotten = arena_array(perm, elements, sizeof *s->forgotten));
    *out = s;
    return site_identify(s);
}

void site_close(struct site *s)
{
    if (s)
        s->box.valid = false;
}

/* ---- S6: what a manifest must be ---- */

/* Of this run at all: enough for a snapshot, whose chain begins there. */
static enum err manifest_ours(const struct site *s, unsigned fragment, uint64_t round,
                              const struct manifest *m)
{
    bool ours = !strcmp(m->run, s->o.run) && digest_equal(&m->config, &s->config) &&
                m->fragment == fragment && m->round == round && m->site_count == s->o.site_count;
    unsigned least = s->o.strict ? s->o.site_count : s->o.site_count / 2 + 1;
    if (!ours)
        return err_set(ERR_PROTO,
                       "fragment %u round %llu: the aggregator sent the manifest of something else",
                       fragment, (unsigned long long)round);
    if (manifest_included(m) < least)
        return err_set(
            ERR_DISAGREE, "fragment %u round %llu: %u of %u sites included, at least %u must be",
            fragment, (unsigned long long)round, manifest_included(m), s->o.site_count, least);
    return ERR_OK;
}

/* The next one of our chain, with the codec and the size that configuration and state imply. */
static enum err manifest_next(const struct site *s, unsigned fragment, const struct manifest *m)
{
    const struct member_state *state = &s->member->state[fragment];
    size_t n = s->member->fragments->f[fragment].elements;
    enum codec_kind kind = member_codec(s->member, fragment);
    const struct codec *c = codec_get(kind);
    TRY(manifest_ours(s, fragment, state->round, m));
    if (!digest_equal(&m->parent, &state->manifest))
        return err_set(ERR_DISAGREE,
                       "fragment %u round %llu: the manifest has another parent than ours",
                       fragment, (unsigned long long)m->round);
    if (m->codec != kind || m->aggregate_bytes != c->aggregate_bytes(c, n, manifest_included(m)))
        return err_set(
            ERR_PROTO,
            "fragment %u round %llu: codec %u, aggregate of %llu bytes: not what this state implies",
            fragment, (unsigned long long)m->round, m->codec,
            (unsigned long long)m->aggregate_bytes);
    return ERR_OK;
}

/* ---- fetching ---- */

/* Until complete; ROUND_GONE is left to the caller. */
static enum err fetch(struct site *s, enum wire_what what, unsigned fragment, uint64_t round,
                      size_t size, bool *gone)
{
    uint64_t start = s->world->ops->now_ms(s->world), offset = 0;
    for (;;) {
        struct wire_fetch m = {.head = site_head(s),
                               .what = what,
                               .fragment = fragment,
                               .round = round,
                               .offset = offset};
        struct wire_answer a = {.outcome = ROUND_NONE};
        bool again;
        TRY(site_called(s, s->link->ops->fetch(s->link, &m, s->download, size, &a), &again));
        offset = again ? a.offset : 0; /* what came before the cut is good: go on behind it */
        *gone = !again && a.outcome == ROUND_GONE;
        if (!again && (*gone || a.outcome == ROUND_NONE))
            break;
        if (!again)
            TRY(site_react(s, &a));
    }
    s->times.fetch_ms += (double)(s->world->ops->now_ms(s->world) - start);
    return ERR_OK;
}

static enum err poll(struct site *s, unsigned fragment, uint64_t round, uint32_t hold_ms,
                     struct wire_poll_answer *a)
{
    for (;;) {
        struct wire_poll m = {.head = site_head(s), .fragment = fragment, .round = round};
        bool again;
        *a = (struct wire_poll_answer){.answer.outcome = ROUND_NONE};
        TRY(site_called(s, s->link->ops->poll(s->link, &m, hold_ms, a), &again));
        if (again)
            continue;
        enum round_outcome o = a->answer.outcome;
        if (o == ROUND_COMMIT || o == ROUND_PENDING || o == ROUND_GONE) {
            if (a->answer.round > s->round_there[fragment]) {
                s->round_there[fragment] = a->answer.round;
                if (!MUTANT(ACCEPTED_STALE)) /* it was of the round before */
                    s->accepted_there[fragment] = (struct digest){0};
            }
            return ERR_OK;
        }
        bool rebind = o == ROUND_REBIND;
        TRY(site_react(s, &a->answer));
        if (rebind) /* its memory of our contribution may have changed: the caller looks */
            return ERR_OK;
    }
}

/* State `round` as bytes. own: keeps what is in the spare's residual; else it starts at zero. *done
 * false: the aggregator has gone on in the meantime. */
static enum err snapshot(struct site *s, unsigned fragment, uint64_t round, bool own, bool *done)
{
    struct wire_poll_answer a;
    size_t size = member_snapshot_bytes(s->member, fragment);
    bool gone;
    ASSERT(round > 0);
    *done = false;
    TRY(poll(s, fragment, round - 1, 0, &a));
    if (a.answer.outcome != ROUND_COMMIT)
        return ERR_OK;
    TRY(manifest_ours(s, fragment, round - 1, &a.manifest));
    TRY(fetch(s, WIRE_SNAPSHOT, fragment, round, size, &gone));
    if (gone)
        return ERR_OK;
    enum err e = member_snapshot_adopt(s->member, fragment, &a.manifest, s->download, size, own);
    if (e == ERR_PROTO) /* never loaded; asked for again */
        return ERR_OK;
    *done = e == ERR_OK;
    return e;
}

/* Too far behind for aggregates: the newest state there is. */
static enum err leap(struct site *s, unsigned fragment)
{
    for (bool done = false; !done;) {
        site_notice(s, "fetching a snapshot of fragment %u", fragment);
        TRY(site_hello(s, true));
        if (s->round_there[fragment] == 0)
            return err_set(ERR_PROTO, "the aggregator has neither round 0 nor anything after it");
        TRY(snapshot(s, fragment, s->round_there[fragment], false, &done));
    }
    return site_outbox_prune(s, fragment);
}

/* ---- adopting a round ---- */

/* Our outer state is wrong although its inputs were right, twice: the aggregator's bytes replace
 * it, the residual is our own. */
static enum err heal(struct site *s, unsigned fragment, uint64_t round)
{
    bool done = false;
    log_event(LOG_WARN, "healing", "fragment=%u round=%llu", fragment, (unsigned long long)round);
    site_notice(s, "outer state of fragment %u differs from the aggregator's, replacing it",
                fragment);
    for (int i = 0; i < FETCHES_MAX && !done; i++)
        TRY(snapshot(s, fragment, round, true, &done));
    return done ? ERR_OK
                : err_set(ERR_DISAGREE,
                          "fragment %u: state %llu differs and no snapshot of it could be had",
                          fragment, (unsigned long long)round);
}

/* S7: the outer step, once more from the stored state when its digest is not the manifest's. */
static enum err apply(struct site *s, unsigned fragment, struct manifest *m)
{
    enum err e = member_apply(s->member, fragment, m, false, s->download, m->aggregate_bytes);
    if (e != ERR_DISAGREE)
        return e;
    log_event(LOG_WARN, "state_differs", "fragment=%u round=%llu", fragment,
              (unsigned long long)m->round);
    TRY(member_load(s->member));
    return member_apply(s->member, fragment, m, false, s->download, m->aggregate_bytes);
}

static enum err adopt(struct site *s, unsigned fragment, struct manifest *m)
{
    enum err e = ERR_PROTO;
    TRY(manifest_next(s, fragment, m)); /* S6 */
    for (int i = 0; i < FETCHES_MAX && e == ERR_PROTO; i++) {
        bool gone;
        TRY(fetch(s, WIRE_AGGREGATE, fragment, m->round, m->aggregate_bytes, &gone));
        if (gone)
            return leap(s, fragment);
        e = apply(s, fragment, m); /* line 14; S7 */
    }
    uint64_t start = s->world->ops->now_ms(s->world);
    if (e == ERR_DISAGREE && m->round == 0)
        return err_set(ERR_MISMATCH,
                       "fragment %u: other initial parameters than the run's: other seed or build",
                       fragment);
    if (e != ERR_OK && e != ERR_DISAGREE)
        return e;
    TRY(site_outbox_settle(s, fragment, m)); /* S8 */
    if (e == ERR_DISAGREE)
        TRY(heal(s, fragment, m->round + 1));
    else
        TRY(member_commit(s->member, fragment, m, s->download,
                          m->aggregate_bytes)); /* S9, commit point */
    s->times.apply_ms += (double)(s->world->ops->now_ms(s->world) - start);
    return site_outbox_prune(s, fragment);
}

/* One question about the round we stand before; at most one state further. */
static enum err advance(struct site *s, unsigned fragment, uint32_t hold_ms)
{
    struct wire_poll_answer a;
    uint64_t start = s->world->ops->now_ms(s->world);
    TRY(poll(s, fragment, s->member->state[fragment].round, hold_ms, &a));
    uint64_t now = s->world->ops->now_ms(s->world);
    s->times.wait_ms += (double)(now - start);
    if (a.answer.outcome == ROUND_COMMIT)
        return adopt(s, fragment, &a.manifest);
    if (a.answer.outcome == ROUND_GONE)
        return leap(s, fragment);
    if (a.answer.outcome == ROUND_PENDING && *a.answer.text)
        site_notice(s, "waiting for %s", a.answer.text);
    return now - start < PENDING_MS ? site_wait(s, PENDING_MS) : ERR_OK;
}

static enum err catch_up(struct site *s, unsigned fragment)
{
    while (s->member->state[fragment].round < s->round_there[fragment])
        TRY(advance(s, fragment, 0));
    return ERR_OK;
}

/* ---- start, part by part ---- */

/* After a hello: same round, other digest. */
static enum err compare(struct site *s, unsigned fragment)
{
    const struct member_state *state = &s->member->state[fragment];
    if (s->round_there[fragment] != state->round ||
        digest_equal(&s->state_there[fragment], &state->digest))
        return ERR_OK;
    if (state->round == 0)
        return err_set(ERR_MISMATCH,
                       "fragment %u: other initial parameters than the run's: other seed or build",
                       fragment);
    size_t n = s->member->fragments->f[fragment].elements;
    memcpy(s->member->spare.residual, state->residual, n * sizeof *state->residual);
    if (state->forgotten)
        memcpy(s->member->spare.forgotten, state->forgotten, n * sizeof *state->forgotten);
    return heal(s, fragment, state->round);
}

/* The others may be waiting for bytes that are stored here: they go before the steps are repeated.
 */
static enum err resend(struct site *s, unsigned fragment)
{
    TRY(site_outbox_load(s, fragment, s->member->state[fragment].round));
    return s->box.valid ? site_outbox_send(s) : ERR_OK;
}

/* ---- the round ---- */

static enum err theta_to(struct site *s, unsigned fragment, uint64_t round, float *local)
{
    enum err e = MUTANT(REPLAY_NEWEST) ? ERR_INPUT
                                       : member_load_theta(s->member, fragment, round, local);
    if (e == ERR_INPUT) /* not kept: after a leap there was none */
        return member_load_theta(s->member, fragment, s->member->state[fragment].round, local);
    return e;
}

/* What is stored is sent; what was accepted from this site but is no longer stored is never made a
 * second time. */
static enum err contribution(struct site *s, unsigned fragment, const float *local, float weight,
                             uint64_t data_cursor)
{
    uint64_t round = s->member->state[fragment].round;
    TRY(site_outbox_load(s, fragment, round));
    if (s->box.valid)
        return ERR_OK;
    if (s->round_there[fragment] == round && !digest_zero(&s->accepted_there[fragment])) {
        log_event(LOG_WARN, "outbox_lost", "fragment=%u round=%llu", fragment,
                  (unsigned long long)round);
        return ERR_OK;
    }
    return site_outbox_make(s, fragment, local, weight, data_cursor);
}

enum err site_round(struct site *s, unsigned fragment, uint64_t round, float *local, float weight,
                    uint64_t data_cursor)
{
    const struct member_state *state = &s->member->state[fragment];
    if (state->round > round)
        return theta_to(s, fragment, round + 1, local);
    if (state->round < round)
        return err_set(ERR_INTERNAL, "fragment %u: round %llu is due before round %llu", fragment,
                       (unsigned long long)round, (unsigned long long)state->round);
    s->times = (struct site_times){0};
    TRY(contribution(s, fragment, local, weight, data_cursor)); /* lines 11, 12; S1 to S3 */
    while (state->round == round) {
        bool here = s->box.valid && s->box.fragment == fragment && s->box.round == round;
        if (here && !s->box.received && s->round_there[fragment] <= round)
            TRY(site_outbox_send(s)); /* S4, S5 */
        else
            TRY(advance(s, fragment, HOLD_MS)); /* S6 to S9 */
    }
    TRY(catch_up(s, fragment));
    return theta_to(s, fragment, state->round, local); /* line 15; S10 */
}

enum err site_unreachable(struct site *s, unsigned fragment, uint64_t round, uint64_t extra_steps,
                          bool *unreachable)
{
    *unreachable = false;
    s->extra_steps[fragment] = extra_steps;
    if (s->o.strict || s->member->state[fragment].round != round)
        return ERR_OK;
    TRY(site_outbox_load(s, fragment, round));
    if (s->box.valid)
        return ERR_OK;
    enum err e = site_hello_once(s, true);
    *unreachable = e == ERR_LINK;
    return e == ERR_LINK ? ERR_OK : e;
}

/* ---- report, start, leave ---- */

static bool ended(const struct site *s, unsigned fragment)
{
    return s->member->state[fragment].round >= schedule_rounds(&s->member->schedule, fragment);
}

/* S11. */
enum err site_report(struct site *s, unsigned fragment, int64_t step, double loss,
                     double tokens_per_second, uint64_t tokens)
{
    const struct member_state *state = &s->member->state[fragment];
    uint64_t start = s->world->ops->now_ms(s->world);
    for (;;) {
        struct link_counters bytes;
        struct wire_answer a = {.outcome = ROUND_NONE};
        s->link->ops->counters(s->link, &bytes);
        struct wire_report m = {.head = site_head(s),
                                .fragment = fragment,
                                .round = state->round,
                                .state = state->digest,
                                .step = step,
                                .loss = loss,
                                .tokens_per_second = tokens_per_second,
                                .tokens = tokens,
                                .bytes_up = bytes.messages_up,
                                .bytes_down = bytes.messages_down};
        enum err e = s->link->ops->report(s->link, &m, &a);
        if (e == ERR_LINK && !ended(s, fragment))
            return ERR_OK;
        if (e == ERR_LINK && s->world->ops->now_ms(s->world) - start > LAST_REPORT_MS) {
            log_event(LOG_WARN, "unreported", "fragment=%u round=%llu", fragment,
                      (unsigned long long)state->round);
            return ERR_OK;
        }
        bool again;
        TRY(site_called(s, e, &again));
        if (again)
            continue;
        if (a.outcome == ROUND_CURRENT || a.outcome == ROUND_BEHIND)
            return ERR_OK;
        if (a.outcome == ROUND_DIVERGED)
            return err_set(
                ERR_DISAGREE,
                "fragment %u: our state %llu is not the aggregator's; a restart heals it", fragment,
                (unsigned long long)state->round);
        TRY(site_react(s, &a));
    }
}

/* What was adopted without a step of the trainer: nobody else would tell, and the aggregator's run
 * ends only when every site has told it of the last round. */
static enum err report_standing(struct site *s, unsigned fragment)
{
    uint64_t round = s->member->state[fragment].round;
    if (round == 0 || MUTANT(STANDING_UNTOLD))
        return ERR_OK;
    return site_report(s, fragment, schedule_step(&s->member->schedule, fragment, round - 1), NAN,
                       NAN, 0);
}

enum err site_start(struct site *s, const float *initial_slab)
{
    bool found = member_found(s->member);
    if (found)
        TRY(member_load(s->member));
    TRY(site_hello(s, found));
    if (!found)
        TRY(member_begin(s->member, initial_slab));
    for (unsigned f = 0; f < s->member->fragments->count; f++) {
        TRY(compare(s, f));
        TRY(catch_up(s, f));
        TRY(resend(s, f));
        TRY(report_standing(s, f));
    }
    return ERR_OK;
}

enum err site_leave(struct site *s, const char *why)
{
    struct wire_leave m = {.head = site_head(s)};
    struct wire_answer a;
    snprintf(m.text, sizeof m.text, "%s", why);
    enum err e = s->link->ops->leave(s->link, &m, &a);
    return e == ERR_LINK ? ERR_OK : e;
}

struct site_times site_last(const struct site *s)
{
    return s->times;
}
