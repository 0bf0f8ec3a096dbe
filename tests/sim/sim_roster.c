/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the roster (docs/protocol.md 3.6): an operator adds a site that the run did not begin
 * with, and removes one for good. When follows from the seed alone: the act is made as soon as
 * fragment 0 stands before a certain round, so that the run without faults has the same acts (I1).
 *
 * What must come of an act is said here once more, without the aggregator's word for it: from which
 * round of each fragment on the manifests must have the next version, and which sites they must
 * name. A process that dies in the middle of the act may have recorded it or not. So each try is a
 * possibility, and so is none at all; every manifest rules out those that it contradicts, and one
 * must remain.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/rng.h"
#include "tests/sim/sim_own.h"

enum { WAIT_MS = 500 };
static const char operator_name[] = "atoll://sim/operator/op";

void sim_roster_open(struct sim *s)
{
    struct sim_roster *r = &s->roster;
    uint64_t rounds = schedule_rounds(&s->schedule, 0), at = 0;
    r->initial = s->o.sites - s->o.joins;
    for (unsigned k = 0; k < SIM_CHANGES_MAX; k++) {
        struct sim_change *c = &r->change[r->count];
        const bool has[SIM_CHANGES_MAX] = {s->o.joins, s->o.leaves, s->o.leaves && s->o.returns};
        if (!has[k])
            continue;
        r->count++;
        bool at_once = k == 2 && s->o.leaning.silent;
        uint64_t later = at_once ? 0 : rng_below(s->o.seed, RNG_TEST, 20000 + k, rounds);
        c->act = k == 1 ? MANIFEST_REMOVE : MANIFEST_ADD;
        c->site = k ? (unsigned)rng_below(s->o.seed, RNG_TEST, 20010, r->initial) : r->initial;
        c->at = at = later / 2 > at ? later / 2 : at; /* in the first half: some rounds are left */
        c->tries = 1;                                 /* [0]: it has not taken effect */
        for (unsigned f = 0; f < SIM_FRAGMENTS_MAX; f++)
            c->first[0][f] = c->seen[f] = UINT64_MAX;
    }
}

static const struct sim_change *change_of(const struct sim_node *n, uint8_t act)
{
    const struct sim_roster *r = &n->sim->roster;
    for (unsigned k = 0; k < r->count; k++)
        if (r->change[k].act == act && r->change[k].site == n->index)
            return &r->change[k];
    return NULL;
}

/* Of a site that the run did not begin with. */
static const struct sim_change *joins_of(const struct sim_node *n)
{
    return n->index < n->sim->roster.initial ? NULL : change_of(n, MANIFEST_ADD);
}

/* Of a site that it began with. */
bool sim_roster_back(const struct sim_node *n)
{
    const struct sim_change *c =
        n->index < n->sim->roster.initial ? change_of(n, MANIFEST_ADD) : NULL;
    return c && !c->given_up;
}

static bool seen_all(const struct sim *s, const struct sim_change *c)
{
    for (unsigned f = 0; f < s->o.fragments; f++)
        if (c->seen[f] == UINT64_MAX)
            return false;
    return true;
}

unsigned sim_roster_index(const struct sim_node *n)
{
    return n->index < n->sim->roster.initial ? n->index : ROUND_SITES_MAX;
}

bool sim_roster_left(const struct sim_node *n)
{
    const struct sim_change *c = change_of(n, MANIFEST_REMOVE);
    return c && seen_all(n->sim, c) && !sim_roster_back(n);
}

bool sim_roster_denies(const struct sim_node *n)
{
    const struct sim_change *joins = joins_of(n), *leaves = change_of(n, MANIFEST_REMOVE);
    return (joins && !seen_all(n->sim, joins)) || (leaves && leaves->tries > 1);
}

bool sim_roster_never(const struct sim_node *n)
{
    const struct sim_change *c = joins_of(n);
    return c && c->given_up;
}

/* In quorum mode masked rounds continue without a site that was added, until all have its keys. */
bool sim_roster_waits(const struct sim *s, const struct set *members, const struct set *u)
{
    struct set more = set_without(members, u);
    bool added = false;
    for (unsigned k = 0; k < s->roster.count; k++)
        added |=
            s->roster.change[k].act == MANIFEST_ADD && set_has(&more, s->roster.change[k].site);
    return !s->o.strict && added && set_within(u, members) && set_count(&more) == 1;
}

/* The site comes once fragment 0 has that many rounds: in half of the quorum runs with masks, where
 * the others must continue meanwhile; up to all rounds. */
static uint64_t rounds_missed(const struct sim *s)
{
    uint64_t rounds = schedule_rounds(&s->schedule, 0);
    bool misses = s->o.masked && !s->o.strict && rng_below(s->o.seed, RNG_TEST, 20012, 2);
    return misses ? rng_below(s->o.seed, RNG_TEST, 20013, rounds + 1) : 0;
}

void sim_roster_wait(const struct sim_node *n)
{
    const struct sim *s = n->sim;
    const struct sim_change *c = joins_of(n);
    bool early = rng_below(n->sim->o.seed, RNG_TEST, 20011, 4) == 0;
    while (c && !early && !c->made && !c->given_up)
        sim_sleep(&n->sim->clock, n->sim->clock.now_ms + WAIT_MS, NULL);
    while (c && !c->given_up && s->aggregator[0].committed[0] < rounds_missed(s))
        sim_sleep(&n->sim->clock, n->sim->clock.now_ms + WAIT_MS, NULL);
}

/* ---- what the manifests must say ---- */

/* The first try that no manifest contradicts; c->tries: there is none. */
static unsigned try_left(const struct sim_change *c)
{
    unsigned k = 0;
    while (k < c->tries && c->out[k])
        k++;
    return k;
}

static bool in_force(const struct sim_change *c, unsigned f, uint64_t round)
{
    unsigned k = try_left(c);
    return k < c->tries && c->first[k][f] <= round;
}

unsigned sim_roster_members(const struct sim *s, unsigned f, uint64_t round,
                            unsigned members[SIM_SITES_MAX])
{
    bool in[SIM_SITES_MAX] = {false};
    unsigned n = 0;
    for (unsigned i = 0; i < s->roster.initial; i++)
        in[i] = true;
    for (unsigned k = 0; k < s->roster.count; k++)
        if (in_force(&s->roster.change[k], f, round))
            in[s->roster.change[k].site] = s->roster.change[k].act == MANIFEST_ADD;
    for (unsigned i = 0; i < s->o.sites; i++)
        if (in[i])
            members[n++] = i;
    return n;
}

static void added_check(struct sim *s, const struct manifest *m)
{
    const struct sim_roster *r = &s->roster;
    bool any = r->count && r->change[0].act == MANIFEST_ADD && !r->change[0].given_up;
    if (m->roster_version < 2)
        return;
    if (m->initial != r->initial || m->added != any)
        sim_violate(s, "fragment %u round %" PRIu64 ": %u sites at the beginning, %u added",
                    m->fragment, m->round, m->initial, m->added);
    else if (any && strcmp(m->names[0], s->names[r->initial]) != 0)
        sim_violate(s, "fragment %u round %" PRIu64 ": the added site is called %s", m->fragment,
                    m->round, m->names[0]);
}

void sim_roster_saw(struct sim *s, const struct manifest *m)
{
    unsigned f = m->fragment;
    uint32_t version = 1;
    for (unsigned k = 0; k < s->roster.count; k++)
        version += in_force(&s->roster.change[k], f, m->round);
    for (unsigned k = 0; k < s->roster.count; k++) { /* one at most has more than one try left */
        struct sim_change *c = &s->roster.change[k];
        uint32_t others = version - in_force(c, f, m->round);
        for (unsigned i = 0; i < c->tries; i++)
            c->out[i] |= others + (c->first[i][f] <= m->round) != m->roster_version;
        version = others + in_force(c, f, m->round);
        if (in_force(c, f, m->round) && m->round < c->seen[f])
            c->seen[f] = m->round;
    }
    if (version != m->roster_version)
        sim_violate(s,
                    "fragment %u round %" PRIu64 ": the roster is of version %u, and must be of %u",
                    f, m->round, m->roster_version, version);
    added_check(s, m);
}

/* The journal is lost (docs/protocol.md 3.6): a change that some fragments have reached is taken up
 * by the others with their round in flight; another one has to be repeated. */
void sim_roster_lost(struct sim_aggregator *a)
{
    struct sim *s = a->sim;
    for (unsigned k = 0; k < s->roster.count; k++) {
        struct sim_change *c = &s->roster.change[k];
        bool any = false;
        for (unsigned f = 0; f < s->o.fragments; f++)
            any |= c->seen[f] != UINT64_MAX;
        memset(c->out, true, sizeof c->out);
        c->made = any;
        c->tries = 1 + any;
        c->out[any] = false;
        for (unsigned f = 0; any && f < s->o.fragments; f++)
            c->first[1][f] = c->seen[f] != UINT64_MAX ? c->seen[f] : a->committed[f];
    }
}

/* ---- the acts ---- */

/* The first round of each fragment under a change that is made now: after the one in flight, and
 * due at a later step than every round in flight. False: a fragment has no such round. */
static bool firsts_expect(const struct sim *s, const uint64_t *round, uint64_t *first)
{
    int64_t last = 0;
    bool all = true;
    for (unsigned f = 0; f < s->o.fragments; f++)
        if (round[f] < schedule_rounds(&s->schedule, f) &&
            schedule_step(&s->schedule, f, round[f]) > last)
            last = schedule_step(&s->schedule, f, round[f]);
    for (unsigned f = 0; f < s->o.fragments; f++) {
        uint64_t rounds = schedule_rounds(&s->schedule, f);
        for (first[f] = round[f] + 1; first[f] < rounds; first[f]++)
            if (schedule_step(&s->schedule, f, first[f]) > last)
                break;
        all = all && first[f] < rounds;
    }
    return all;
}

/* The last site cannot leave; a run that began without compression of the downlink cannot get as
 * many sites as need it. */
static bool sites_fit(const struct sim *s, const struct sim_change *c)
{
    const struct outer_state_options o = sim_member_options(s, false);
    unsigned sites = s->roster.initial;
    for (unsigned k = 0; k < s->roster.count; k++)
        if (s->roster.change[k].made)
            sites += s->roster.change[k].act == MANIFEST_ADD ? 1 : -1u;
    unsigned least = !s->o.masked ? 1 : s->o.colluding > 1 ? s->o.colluding + 2 : 3;
    if (c->act == MANIFEST_REMOVE)
        return sites > least;
    return o.compresses_downlink || !schedule_compresses_any(&s->schedule, sites + 1);
}

static void operate(struct sim_aggregator *a, const struct wire_operate *m,
                    struct wire_answer *answer)
{
    a->sim->acting = true; /* the work() of this call looks here again */
    *answer = (struct wire_answer){.outcome = ROUND_NONE};
    a->server.service.operate(a->server.service.self, operator_name, m, answer);
    if (m->act != WIRE_ROSTER_LIST)
        link_sim_work(&a->server);
    a->sim->acting = false;
}

/* The list of a change that is not final names the first rounds. */
static void firsts_compare(struct sim_aggregator *a, struct sim_change *c)
{
    const struct wire_operate m = {.act = WIRE_ROSTER_LIST};
    struct wire_answer answer;
    unsigned f;
    uint64_t first;
    if (!a->server.up || a->server.stopped || a->env.disk.dead)
        return;
    operate(a, &m, &answer);
    for (const char *at = strstr(answer.text, "\nfragment="); at;
         at = strstr(at + 1, "\nfragment="))
        if (sscanf(at, "\nfragment=%u round=%*u first=%20" SCNu64, &f, &first) == 2)
            for (unsigned k = 0; k < c->tries; k++)
                c->out[k] |= c->first[k][f] != first;
    if (try_left(c) == c->tries)
        sim_violate(a->sim, "the roster changes from other rounds on: %s", answer.text);
}

/* All rounds are there: what is pending stays so. */
static bool run_over(const struct sim *s, const struct sim_aggregator *a)
{
    bool over = true;
    for (unsigned f = 0; f < s->o.fragments; f++)
        over = over && a->committed[f] == schedule_rounds(&s->schedule, f);
    return over;
}

/* A site that is removed and has contributed to the last round before that; then it is added again
 * before it can hear of either. */
void sim_roster_receipt(struct sim_node *n, unsigned f, uint64_t round)
{
    enum { SILENT_MAX_MS = 100000 };
    struct sim *s = n->sim;
    const struct sim_change *c = change_of(n, MANIFEST_REMOVE);
    bool last = c && c->made && c->tries > 1 && round + 1 == c->first[c->tries - 1][f];
    if (!last || s->clock.now_ms >= s->calm_ms ||
        !sim_strikes(&s->clock, 0.9, "is out of reach from now on", n->name))
        return;
    n->net.part_from_ms = s->clock.now_ms;
    n->net.part_until_ms = s->clock.now_ms + SILENT_MAX_MS;
}

static void heard_again(struct sim *s, const struct sim_change *c)
{
    struct sim_node *n = &s->node[c->site];
    if (s->o.leaning.silent && c->act == MANIFEST_ADD && c->site < s->roster.initial)
        n->net.part_until_ms = s->clock.now_ms;
}

static void answered(struct sim_aggregator *a, struct sim_change *c, bool possible,
                     const struct wire_answer *answer)
{
    struct sim *s = a->sim;
    switch (answer->outcome) {
    case ROUND_CURRENT:
        c->made = c->out[0] = true;
        heard_again(s, c);
        firsts_compare(a, c);
        break;
    case ROUND_PENDING: /* the change before it is not final; this one is not on record */
        c->tries = 1;
        c->given_up = run_over(s, a);
        break;
    case ROUND_INVALID:
        if (possible)
            sim_violate(s, "the operator's change of the roster is refused: %s", answer->text);
        c->tries = 1;
        c->given_up = true;
        if (c->act == MANIFEST_REMOVE && c + 1 < s->roster.change + s->roster.count)
            c[1].given_up = true; /* it is there */
        break;
    default: /* a full disk, or the process has ended: once more, later */
        break;
    }
}

static struct sim_change *change_next(struct sim *s)
{
    for (unsigned k = 0; k < s->roster.count; k++)
        if (!s->roster.change[k].made && !s->roster.change[k].given_up)
            return &s->roster.change[k];
    return NULL;
}

static uint64_t version_next(const struct sim *s)
{
    uint64_t version = 2;
    for (unsigned k = 0; k < s->roster.count; k++)
        version += s->roster.change[k].made;
    return version;
}

void sim_roster_acts(struct sim_aggregator *a)
{
    static struct aggregator_status now;
    struct sim *s = a->sim;
    struct sim_change *c = change_next(s);
    struct wire_answer answer;
    if (s->acting || !c || a->committed[0] < c->at || a->server.stopped || a->env.disk.dead)
        return;
    aggregator_status(a->process, &now);
    unsigned last = c->tries - 1;
    uint64_t *first = c->first[last + 1];
    bool possible = firsts_expect(s, now.round, first) && sites_fit(s, c);
    bool again = memcmp(first, c->first[last], sizeof c->first[0]) == 0 && !c->out[last];
    if (c->tries + 1 == SIM_TRIES_MAX)
        return;
    if (possible && !again) {
        c->out[c->tries] = false;
        c->tries++;
    }
    struct wire_operate m = {.act = c->act == MANIFEST_ADD ? WIRE_ROSTER_ADD : WIRE_ROSTER_REMOVE,
                             .version = version_next(s)};
    snprintf(m.site, sizeof m.site, "%s", s->names[c->site]);
    operate(a, &m, &answer);
    answered(a, c, possible, &answer);
}

void sim_roster_end(const struct sim *s)
{
    struct sim_result *r = s->r;
    for (unsigned k = 0; k < s->roster.count; k++) {
        const struct sim_change *c = &s->roster.change[k];
        unsigned left = try_left(c);
        bool took_effect = left && left < c->tries;
        r->changes += took_effect;
        memset(r->first[k], 0, sizeof r->first[k]);
        for (unsigned f = 0; took_effect && f < s->o.fragments; f++)
            r->first[k][f] = c->first[left][f];
    }
}
