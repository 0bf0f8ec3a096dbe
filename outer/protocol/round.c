/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol core: one event in, one update out. The order of checks is that of
 * docs/protocol.md 3.2; the first that applies wins. Identity of the caller (certificate, roster,
 * configuration) was checked before: those rows need names and texts, which the aggregator has. */
#include "outer/protocol/round.h"
#include "outer/protocol/majority.h"
#include "outer/protocol/mutant.h"
#include <string.h>
#include "kernels/base/err.h"

enum { ABORTS_MANY = 3 };

unsigned round_least(unsigned n, bool strict, const struct round_masks *masks)
{
    unsigned least = masks->on ? round_threshold(n, masks->colluding) : majority_of(n);
    return strict || least > n ? n : least;
}

static unsigned quorum_of(const struct round *r, unsigned n)
{
    return round_least(n, r->strict, &r->masks);
}

unsigned round_threshold(unsigned n, unsigned colluding)
{
    unsigned honest = colluding + 2, once = majority_of(n + colluding);
    if (MUTANT(THRESHOLD_MAJORITY))
        return majority_of(n);
    return honest > once ? honest : once;
}

static unsigned roster_least(const struct round_masks *m, bool strict)
{
    unsigned two = m->two_sites ? 2 : 3, least = m->colluding + 2 > two ? m->colluding + 2 : two;
    while (round_least(least, strict, m) < m->threshold)
        least++;
    return m->on ? least : 1;
}

struct round_leave round_leave(const struct round_masks *m, unsigned n, bool strict)
{
    struct round_leave l = {.least = round_least(n, strict, m), .roster = roster_least(m, strict)};
    l.away = n - l.least;
    l.remove = n > l.roster ? n - l.roster : 0;
    l.pairs = m->on && n > 2 && l.least == 2;
    return l;
}

/* The round in flight is of the newest roster, unless that begins with a later one. */
static void members_place(const struct round *r, struct round_fragment *f)
{
    if (f->round < f->first)
        return;
    f->members = r->members;
    f->n = set_count(&f->members);
    f->quorum = quorum_of(r, MUTANT(ROSTER_REMOVED) ? r->sites : f->n);
}

enum err round_init(struct round *r, const struct round_options *o, struct arena *perm)
{
    unsigned sites = o->sites, fragments = o->fragments;
    ASSERT(sites >= 1 && sites <= ROUND_SITES_MAX);
    ASSERT(fragments >= 1 && fragments <= ROUND_FRAGMENTS_MAX);
    memset(r, 0, sizeof *r);
    r->sites = sites;
    r->room = o->room > sites ? o->room : sites;
    ASSERT(r->room <= ROUND_SITES_MAX);
    r->fragments = fragments;
    r->strict = o->strict;
    r->masks = o->masks;
    r->quorum = quorum_of(r, sites);
    for (unsigned i = 0; i < sites; i++)
        set_put(&r->members, i, true);
    r->straggler_ms = o->straggler_ms;
    r->grace = o->grace;
    r->term = o->term;
    TRY_ALLOC(r->s = arena_array(perm, r->room, sizeof *r->s));
    for (unsigned i = 0; i < fragments; i++) {
        struct round_fragment *f = &r->f[i];
        f->deadline_ms = UINT64_MAX;
        TRY_ALLOC(f->entries = arena_array(perm, r->room, sizeof *f->entries));
        TRY_ALLOC(f->adopted = arena_array(perm, r->room, sizeof *f->adopted));
        members_place(r, f);
    }
    return ERR_OK;
}

void round_place(struct round *r, unsigned fragment, uint64_t round, const struct digest *manifest,
                 const struct digest *state)
{
    ASSERT(fragment < r->fragments);
    struct round_fragment *f = &r->f[fragment];
    f->round = round;
    f->parent = *manifest;
    f->state = *state;
    f->sealed = f->pins = false;
    f->deadline_ms = UINT64_MAX;
    f->disagree = f->counted = (struct set){0};
    f->count = 0;
    grace_committed(&f->grace);
    if (!MUTANT(ENTRIES_KEPT))
        memset(f->entries, 0, r->sites * sizeof *f->entries);
    members_place(r, f);
}

void round_pin(struct round *r, unsigned fragment, const struct set *s)
{
    ASSERT(fragment < r->fragments);
    r->f[fragment].pins = true;
    r->f[fragment].pinned = *s;
}

void round_roster(struct round *r, unsigned site, bool in, const uint64_t *first)
{
    ASSERT(site <= r->sites && site < r->room);
    r->sites += site == r->sites;
    set_put(&r->members, site, in);
    r->quorum = quorum_of(r, set_count(&r->members));
    for (unsigned i = 0; i < r->fragments; i++) {
        r->f[i].first = first[i];
        members_place(r, &r->f[i]);
    }
}

void round_aborts(struct round *r, unsigned fragment, unsigned aborts)
{
    r->f[fragment].aborts = aborts;
}

void round_term(struct round *r, uint64_t term)
{
    r->term = term;
}

void round_pace(struct round *r, uint64_t straggler_ms, double overlap)
{
    r->straggler_ms = straggler_ms;
    r->grace.overlap = overlap;
}

void round_apart(struct round *r, unsigned site, const uint64_t *until)
{
    r->apart = site;
    for (unsigned i = 0; i < r->fragments; i++)
        r->f[i].apart = until[i];
}

bool round_roster_final(const struct round *r, unsigned *fragment)
{
    unsigned n = set_count(&r->members);
    for (unsigned i = 0; i < r->fragments; i++) {
        const struct round_fragment *f = &r->f[i];
        unsigned have = 0;
        for (unsigned k = 0; f->first && k < r->sites; k++)
            have += set_has(&r->members, k) && f->adopted[k] > f->first;
        bool enough = majority_has(have, n) || MUTANT_HALF(HALF_ROSTER, have, n);
        if (f->first && (f->round <= f->first || !enough)) {
            *fragment = i;
            return false;
        }
    }
    return true;
}

/* The count goes along, so that an event costs the same with two sites as with a thousand. */
static void counted_put(struct round_fragment *f, unsigned site, bool in)
{
    f->count += (unsigned)in - (unsigned)set_has(&f->counted, site);
    set_put(&f->counted, site, in);
}

static void update_answer(struct round_update *u, enum round_outcome outcome, const char *text)
{
    u->outcome = outcome;
    u->text = text;
}

static void update_alarm(struct round_update *u, enum round_outcome outcome, const char *text)
{
    update_answer(u, outcome, text);
    u->alarm = true;
}

/* Files that are older than the last commit must not be served (docs/protocol.md 3.4). */
static void update_halt(struct round_update *u, const char *text)
{
    update_alarm(u, ROUND_LOST_STATE, text);
    u->halt = true;
}

/* Is this the process that speaks for the site? True: the checks continue. */
static bool step_process(const struct round *r, const struct round_event *e, struct round_update *u)
{
    const struct round_site *s = &r->s[e->site];
    if (e->term > r->term)
        update_alarm(u, ROUND_CONFLICT,
                     "the site has seen a later term than this aggregator's: started from "
                     "an older copy of its directory?");
    else if (s->known && e->incarnation < s->incarnation)
        update_answer(u, ROUND_SUPERSEDED, "a newer process of this site is bound");
    else if (s->known && e->incarnation == s->incarnation && e->instance != s->instance &&
             !MUTANT(TWIN_SERVED))
        update_alarm(u, ROUND_CONFLICT, "another process with this site's name is bound");
    else
        return true;
    return false;
}

/* The same for all that is no hello: only the bound process of this term is served. */
static bool step_bound(const struct round *r, const struct round_event *e, struct round_update *u)
{
    const struct round_site *s = &r->s[e->site];
    if (e->term < r->term)
        update_answer(u, ROUND_REBIND, "the aggregator has started anew: say hello");
    else if (e->term > r->term) /* a hello has the place for it */
        update_alarm(u, ROUND_REBIND, "the site has seen a later term: say hello, and show it");
    else if (!step_process(r, e, u))
        return false;
    else if (!s->bound || e->incarnation > s->incarnation)
        update_answer(u, ROUND_REBIND, "say hello first");
    else
        return true;
    return false;
}

/* A13. Of the roster of the round in flight; that of the round before differs in one site at most,
 * and majorities of both share a site. */
static void final_count(const struct round *r, struct round_fragment *f, uint64_t state)
{
    unsigned have = 0;
    for (unsigned k = 0; k < r->sites; k++)
        have += set_has(&f->members, k) && f->adopted[k] >= state;
    if (majority_has(have, f->n) || MUTANT(FINAL_EARLY) || MUTANT_HALF(HALF_FINAL, have, f->n))
        f->final = state;
}

/* The site has our state of that round, as it says. */
static void adopted_put(const struct round *r, struct round_fragment *f,
                        const struct round_event *e)
{
    set_put(&f->disagree, e->site, false);
    if (e->round <= f->adopted[e->site])
        return;
    f->adopted[e->site] = e->round;
    if (e->round > f->final)
        final_count(r, f, e->round);
    if (e->round == f->round)
        grace_adopted(&f->grace, e->now_ms, f->quorum);
}

/* Our record at the site's round: of the present, or of the past as the caller found it. */
static void step_standing(struct round *r, const struct round_event *e, const struct digest *parent,
                          const struct digest *state, enum round_outcome same,
                          struct round_update *u)
{
    if (!digest_equal(&e->parent, parent))
        update_alarm(u, ROUND_CONFLICT, "same round, other history");
    else if (digest_equal(&e->state, state)) {
        if (!MUTANT(HELLO_UNTOLD))
            adopted_put(r, &r->f[e->fragment], e);
        update_answer(u, same, NULL);
    } else if (e->round == 0)
        update_alarm(u, ROUND_MISMATCH, "other initial parameters: other seed, model or build");
    else
        update_alarm(u, ROUND_DIVERGED, "same manifest, other state digest");
}

static void step_hello(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    if (e->proves.term) {
        update_halt(u,
                    "another process of this aggregator has begun a later term, as a site proves: "
                    "this one works on a copy of its directory, or on an older state of it");
        return;
    }
    if (!step_process(r, e, u))
        return;
    if (!e->hello.has_state)
        update_answer(u, ROUND_JOIN, NULL);
    else if (MUTANT(FINAL_GIVEN_UP) && e->proves.round)
        update_answer(u, ROUND_STEP_BACK, NULL);
    else if (e->round > f->round && e->proves.round)
        update_halt(u, "a later round than this aggregator has committed, as a site proves: "
                       "serve.dir is an older state than the sites'");
    else if (e->round == f->round && e->proves.round && e->proves.later &&
             !digest_equal(&e->parent, &f->parent))
        update_halt(u, "another history of the same rounds, of a later term, as a site proves: "
                       "serve.dir is a copy, or an older state");
    else if (e->round > f->round)
        update_alarm(u, ROUND_CONFLICT,
                     "the site claims a later round than this aggregator has committed");
    else if (e->proves.older && !r->strict)
        update_alarm(
            u, ROUND_STEP_BACK,
            "the site's last round is of an earlier term, and was committed otherwise here: the "
            "site gives it up");
    else if (e->round == f->round)
        step_standing(r, e, &f->parent, &f->state, ROUND_CURRENT, u);
    else if (e->past.kept)
        step_standing(r, e, &e->past.parent, &e->past.state, ROUND_BEHIND, u);
    else
        update_answer(u, ROUND_JOIN, "further behind than what is kept");
}

/* From here on the site's contributions that were journalled before this start count: the site is
 * bound to this term, and will refuse a commit of an earlier one (docs/protocol.md 3.3, 3.4). */
static void step_bind(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_site *s = &r->s[e->site];
    if (!step_process(r, e, u))
        return;
    *s = (struct round_site){true, true, e->incarnation, e->instance};
    for (unsigned i = 0; i < r->fragments; i++)
        if (!(e->hello.elsewhere >> i & 1))
            counted_put(&r->f[i], e->site, r->f[i].entries[e->site].accepted);
    update_answer(u, ROUND_CURRENT, NULL);
}

/* Is a contribution's round the round in flight, on our parent? False: the answer says why not. */
static bool step_round(const struct round_fragment *f, const struct round_event *e,
                       struct round_update *u)
{
    if (e->round < f->round)
        update_answer(u, ROUND_BEHIND, "that round is committed");
    else if (e->round > f->round)
        update_alarm(u, ROUND_CONFLICT, "a later round than this aggregator has committed");
    else if (!digest_equal(&e->parent, &f->parent) && !MUTANT(PARENT_BELIEVED))
        update_alarm(u, ROUND_CONFLICT, "same round, other history");
    else if (e->offer.grid_differs)
        update_alarm(u, ROUND_MISMATCH, "encoded on another grid than the round's");
    else
        return true;
    return false;
}

/* Is this site's contribution to the round still open? True: the checks continue. */
static bool step_entry(const struct round_fragment *f, const struct round_event *e,
                       struct round_update *u)
{
    const struct round_entry *entry = &f->entries[e->site];
    if (!set_has(&f->members, e->site))
        update_answer(u, ROUND_EARLY, "the site is not in the roster of this round");
    else if (entry->accepted && digest_equal(&entry->payload, &e->offer.payload))
        update_answer(u, ROUND_RECEIPT, NULL);
    else if (entry->accepted)
        update_alarm(u, ROUND_CONFLICT,
                     "another contribution of this site is accepted for this round");
    else if (f->sealed || (f->pins && !set_has(&f->pinned, e->site)))
        update_answer(u, ROUND_LATE, "sealed without this site: the manifest follows");
    else
        return true;
    return false;
}

static void step_offer(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    struct round_entry *entry = &f->entries[e->site];
    if (!step_bound(r, e, u) || !step_round(f, e, u) || !step_entry(f, e, u))
        return;
    if (e->offer.payload_bytes < 1 || e->offer.payload_bytes > e->offer.payload_max)
        update_answer(u, ROUND_INVALID, "declared length is beyond what the configuration allows");
    else if (entry->offered && !digest_equal(&entry->payload, &e->offer.payload) &&
             e->incarnation <= entry->incarnation)
        update_alarm(u, ROUND_CONFLICT, "the same process offered other bytes for this round");
    else {
        entry->offered = true;
        entry->payload = e->offer.payload;
        entry->incarnation = e->incarnation;
        update_answer(u, ROUND_RESUME, NULL);
    }
}

static void entry_accept(struct round_entry *entry, const struct round_event *e)
{
    entry->accepted = true;
    entry->payload = e->offer.payload;
    entry->payload_bytes = e->offer.payload_bytes;
    entry->incarnation = e->incarnation;
    entry->weight = e->offer.weight;
    entry->norm = e->offer.norm;
    entry->data_cursor = e->offer.data_cursor;
    entry->charged = e->offer.charged;
    entry->residual_ratio = e->offer.residual_ratio;
}

/* Everything is asked again: the round may have been sealed or committed while the bytes came. */
static void step_stored(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    struct round_entry *entry = &f->entries[e->site];
    if (!step_bound(r, e, u) || !step_round(f, e, u) || !step_entry(f, e, u))
        return;
    entry_accept(entry, e);
    counted_put(f, e->site, true);
    u->accept = true;
    update_answer(u, ROUND_RECEIPT, NULL);
}

static void step_restored(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    if (e->round != f->round || f->entries[e->site].accepted || !set_has(&f->members, e->site))
        return;
    entry_accept(&f->entries[e->site], e);
    counted_put(f, e->site, MUTANT(COUNTED_UNHEARD));
    update_answer(u, ROUND_RECEIPT, NULL);
}

/* It does not count, and the round is open again. The site has to say hello, and sees there that
 * nothing of it is accepted: it sends again what it keeps until the commit. */
static void step_lost(struct round *r, const struct round_event *e)
{
    struct round_fragment *f = &r->f[e->fragment];
    ASSERT(e->round == f->round && f->entries[e->site].accepted);
    f->entries[e->site] = (struct round_entry){0};
    counted_put(f, e->site, false);
    grace_contribution_lost(&f->grace);
    f->sealed = false;
    f->deadline_ms = UINT64_MAX;
    r->s[e->site].bound = false;
}

static void step_committed(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    ASSERT(f->sealed);
    ASSERT(e->round == f->round + 1);
    ASSERT(!e->aborted || digest_equal(&e->state, &f->state));
    round_place(r, e->fragment, e->round, &e->parent, &e->state);
    f->aborts = e->aborted ? f->aborts + 1 : 0;
    if (e->aborted) {
        u->alarm = true;
        u->text = f->aborts < ABORTS_MANY
                      ? "the round was aborted: its work stays in the sites' residuals"
                      : "again aborted, and several times before: the run makes no progress; see "
                        "the runbook";
    }
}

static void step_poll(const struct round *r, const struct round_event *e, struct round_update *u)
{
    const struct round_fragment *f = &r->f[e->fragment];
    if (!step_bound(r, e, u))
        return;
    if (e->round > f->round)
        update_alarm(u, ROUND_CONFLICT, "a later round than this aggregator has committed");
    else
        update_answer(u, e->round < f->round ? ROUND_COMMIT : ROUND_PENDING, NULL);
}

/* More than half of the configured sites agree against us: it is our memory or disk that is wrong.
 */
static void step_disagree(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    update_alarm(u, ROUND_DIVERGED, "another state digest for this round");
    if (e->round != f->round)
        return;
    if (!digest_equal(&e->state,
                      &f->other)) { /* they count only as long as they agree with one another */
        f->other = e->state;
        f->disagree = (struct set){0};
    }
    set_put(&f->disagree, e->site, true);
    unsigned others = set_count(&f->disagree);
    u->halt = majority_has(others, f->n) || MUTANT_HALF(HALF_HALTS, others, f->n);
}

static void step_report(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    if (!step_bound(r, e, u))
        return;
    bool now = e->round == f->round;
    if (e->round > f->round) {
        update_alarm(u, ROUND_CONFLICT,
                     "the site claims a later round than this aggregator has committed");
        return;
    }
    if ((now || e->past.kept) && !digest_equal(&e->state, now ? &f->state : &e->past.state)) {
        step_disagree(r, e, u);
        return;
    }
    adopted_put(r, f, e);
    update_answer(u, now ? ROUND_CURRENT : ROUND_BEHIND, NULL);
}

static void step_leave(struct round *r, const struct round_event *e, struct round_update *u)
{
    if (!step_bound(r, e, u))
        return;
    r->s[e->site].bound = false;
    update_answer(u, ROUND_CURRENT, NULL);
}

/* Where it is sealed already its commit is pending, and becomes this one. */
static void step_close(struct round *r, const struct round_event *e, struct round_update *u)
{
    struct round_fragment *f = &r->f[e->fragment];
    ASSERT(e->round == f->round);
    f->sealed = u->seal = true;
    u->seal_fragment = e->fragment;
    u->seal_set = (struct set){0};
}

/* Is every site in that can be? */
static bool all_in(const struct round *r, const struct round_fragment *f)
{
    unsigned n = f->count;
    for (unsigned w = 0; n < f->n && w < SET_WORDS; w++)
        n += (unsigned)__builtin_popcountll(r->excluded.word[w] & f->members.word[w] &
                                            ~f->counted.word[w]);
    bool apart = f->round < f->apart && set_has(&f->members, r->apart) &&
                 !set_has(&f->counted, r->apart) && !set_has(&r->excluded, r->apart);
    return n + apart == f->n;
}

/* Seals at most one fragment, starts deadlines, and says when to look again. */
static void step_time(struct round *r, uint64_t now_ms, struct round_update *u)
{
    u->wake_ms = UINT64_MAX;
    for (unsigned i = 0; i < r->fragments; i++) {
        struct round_fragment *f = &r->f[i];
        unsigned n = f->sealed ? 0 : f->count;
        if (!n)
            continue;
        if (!r->strict && f->deadline_ms == UINT64_MAX)
            f->deadline_ms = now_ms + r->straggler_ms;
        unsigned least = MUTANT(MAJORITY_OF_LIVE) && !r->strict ? n : f->quorum;
        least -= MUTANT_HALF(HALF_SEALED, n, f->n);
        grace_contribution(&f->grace, now_ms, n >= f->quorum);
        uint64_t grace = r->strict ? UINT64_MAX : grace_until(&f->grace, &r->grace);
        uint64_t until = grace < f->deadline_ms ? grace : f->deadline_ms;
        bool ready = f->pins ? set_within(&f->pinned, &f->counted)
                             : n >= least && (now_ms >= until || all_in(r, f));
        uint64_t look = ready ? now_ms : until > now_ms ? until : UINT64_MAX;
        if (ready && !u->seal) {
            grace_sealed(&f->grace, now_ms);
            f->sealed = u->seal = true;
            u->seal_fragment = i;
            u->seal_set = f->pins ? f->pinned : f->counted;
        } else if (look < u->wake_ms) {
            u->wake_ms = look;
        }
    }
}

void round_step(struct round *r, const struct round_event *e, struct round_update *u)
{
    ASSERT(e->site < r->sites);
    ASSERT(e->fragment < r->fragments);
    *u = (struct round_update){.outcome = ROUND_NONE};
    switch (e->kind) {
    case ROUND_HELLO:
        step_hello(r, e, u);
        break;
    case ROUND_BIND:
        step_bind(r, e, u);
        break;
    case ROUND_OFFER:
        step_offer(r, e, u);
        break;
    case ROUND_STORED:
        step_stored(r, e, u);
        break;
    case ROUND_RESTORED:
        step_restored(r, e, u);
        break;
    case ROUND_LOST:
        step_lost(r, e);
        break;
    case ROUND_COMMITTED:
        step_committed(r, e, u);
        break;
    case ROUND_POLL:
        step_poll(r, e, u);
        break;
    case ROUND_FETCH:
        (void)step_bound(r, e, u); /* NONE: it may */
        break;
    case ROUND_REPORT:
        step_report(r, e, u);
        break;
    case ROUND_LEAVE:
        step_leave(r, e, u);
        break;
    case ROUND_EXCLUDE:
    case ROUND_READMIT:
        set_put(&r->excluded, e->site, e->kind == ROUND_EXCLUDE);
        r->s[e->site].bound = false;
        break;
    case ROUND_CLOSE:
        step_close(r, e, u);
        break;
    case ROUND_TICK:
        break;
    }
    u->round = r->f[e->fragment].round;
    u->final = r->f[e->fragment].final;
    step_time(r, e->now_ms, u);
}
