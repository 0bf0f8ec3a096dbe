/* SPDX-License-Identifier: Apache-2.0 */
/* Which sites the run has: an operator adds and removes them, one at a time. Journalled before it
 * takes effect; in force for each fragment from a later round than the one in flight on
 * (docs/protocol.md 3.6). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_sums.h"
#include "outer/organ/roster/roster_organ.h"
#include "outer/protocol/mutant.h"
#include "outer/protocol/site_name.h"

/* Its end at the aggregator. The rosters themselves, and the sites' names, are the aggregator's
 * (aggregator_members.c); under its lock, as all of it. */
struct roster_aggregator {
    struct aggregator *a;                     /* from `open` on */
    uint64_t first_read[ROUND_FRAGMENTS_MAX]; /* recovery: of the next change that is read */
};

static unsigned members_count(const struct aggregator *a)
{
    return set_count(&a->members.roster.members);
}

/* ---- one change ---- */

static struct journal_record change_record(const struct aggregator *a, const struct roster *r)
{
    struct journal_record x = {.kind = JOURNAL_ROSTER,
                               .fragment = r->count,
                               .site = r->change.site,
                               .digest = r->change.by,
                               .act = r->change.act,
                               .to = r->version};
    snprintf(x.name, sizeof x.name, "%s", a->members.names[r->change.site]);
    return x;
}

static struct journal_record first_record(unsigned fragment, uint64_t round)
{
    return (struct journal_record){.kind = JOURNAL_ROSTER, .fragment = fragment, .round = round};
}

/* ---- recovery ---- */

static enum err record_damaged(const struct journal_record *r)
{
    return err_set(ERR_CORRUPT,
                   "journal: a change of the roster (act %u, site %u, version %" PRIu64
                   ") that does not follow the ones before it",
                   r->act, r->site, r->to);
}

static enum err roster_open(void *self, struct aggregator *a)
{
    struct roster_aggregator *x = self;
    x->a = a;
    return ERR_OK;
}

static enum err roster_restore(void *self, const struct journal_record *r)
{
    static const uint64_t at_once[ROUND_FRAGMENTS_MAX];
    struct roster_aggregator *x = self;
    struct aggregator *a = x->a;
    bool in = r->act == MANIFEST_ADD;
    if (!r->act) {
        if (r->fragment >= a->core.fragments)
            return record_damaged(r);
        x->first_read[r->fragment] = r->round;
        return ERR_OK;
    }
    if (r->act > MANIFEST_REMOVE || r->site > a->members.count || r->site >= a->core.room ||
        r->site >= a->members.roster.initial + MANIFEST_ADDED_MAX || !site_name_good(r->name) ||
        (r->site < a->members.count && strcmp(r->name, a->members.names[r->site]) != 0) ||
        (r->to && (set_has(&a->members.roster.members, r->site) == in ||
                   r->to <= a->members.roster.version || r->to > UINT32_MAX ||
                   r->fragment > a->members.count + 1 || r->fragment <= r->site)))
        return record_damaged(r);
    aggregator_members_change(a, r, r->to && !MUTANT(ROSTER_RESTORED) ? x->first_read : at_once);
    if (r->to)
        memset(x->first_read, 0, sizeof x->first_read);
    return ERR_OK;
}

static size_t roster_records(void *self, struct journal_record *keep)
{
    const struct roster_aggregator *x = self;
    const struct aggregator *a = x->a;
    size_t n = 0;
    if (!keep)
        return (size_t)a->members.count + a->core.fragments + 2;
    const struct manifest_change *before = &a->members.former.change;
    struct set settled = a->members.former.members;
    if (a->members.roster.version < 2)
        return 0;
    if (before->act)
        set_put(&settled, before->site, before->act == MANIFEST_REMOVE);
    for (unsigned i = 0; i < a->members.former.count; i++) {
        bool in = set_has(&settled, i);
        if (in && i < a->members.roster.initial)
            continue;
        keep[n] = (struct journal_record){
            .kind = JOURNAL_ROSTER, .site = i, .act = in ? MANIFEST_ADD : MANIFEST_REMOVE};
        snprintf(keep[n].name, sizeof keep[n].name, "%s", a->members.names[i]);
        n++;
    }
    if (before->act)
        keep[n++] = change_record(a, &a->members.former);
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (aggregator_serves(a, i))
            keep[n++] = first_record(i, a->core.f[i].first);
    keep[n++] = change_record(a, &a->members.roster);
    return n;
}

/* The newest manifest of a fragment. ERR_INPUT: it has none yet. */
static enum err manifest_last(const struct aggregator *a, unsigned fragment, struct manifest *m)
{
    uint64_t round = a->core.f[fragment].round;
    if (!round || !aggregator_serves(a, fragment))
        return err_set(ERR_INPUT, "no round yet");
    return outer_state_manifest(a->replica, fragment, round - 1, m);
}

static enum err roster_again(struct aggregator *a)
{
    uint64_t first[ROUND_FRAGMENTS_MAX] = {0};
    uint32_t version = 1;
    struct manifest m;
    unsigned newest = 0;
    for (unsigned i = 0; i < a->core.fragments; i++) {
        enum err e = manifest_last(a, i, &m);
        if (e == ERR_INPUT && !a->core.f[i].round)
            continue;
        TRY(e);
        if (m.roster_version > version) {
            version = m.roster_version;
            newest = i;
        }
    }
    if (version < 2)
        return ERR_OK;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (manifest_last(a, i, &m) != ERR_OK || m.roster_version < version)
            first[i] = a->core.f[i].round;
    TRY(manifest_last(a, newest, &m));
    if (m.initial != a->members.roster.initial || m.initial + m.added > a->core.room)
        return err_set(ERR_CORRUPT,
                       "%s/%s is missing, and the manifests are of a run that began with %u sites, "
                       "not %u: restore the file, or start with the configuration of that time",
                       a->env->root, AGGREGATOR_JOURNAL, m.initial, a->members.roster.initial);
    aggregator_members_take(a, &m, first);
    log_event(LOG_WARN, "roster_found",
              "version=%u sites=%u text=\"the journal is lost: the roster is that of the newest "
              "manifests; a change that no round was committed under is lost with it\"",
              version, members_count(a));
    return ERR_OK;
}

/* ERR_CORRUPT: a round is committed under a later roster than the journal knows. */
static enum err roster_recovered(void *self)
{
    struct roster_aggregator *x = self;
    struct aggregator *a = x->a;
    struct manifest m;
    if (a->start.journal_lost)
        TRY(roster_again(a));
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (manifest_last(a, i, &m) == ERR_OK && m.roster_version > a->members.roster.version)
            return err_set(ERR_CORRUPT,
                           "%s/%s: it says that the roster is of version %u, and a round of "
                           "version %u is committed: restored from an older copy?",
                           a->env->root, AGGREGATOR_JOURNAL, a->members.roster.version,
                           m.roster_version);
    return ERR_OK;
}

/* ---- a site is bound ---- */

static void roster_bound(void *self, unsigned site, struct wire_hello_answer *answer)
{
    const struct roster_aggregator *x = self;
    const struct aggregator *a = x->a;
    const struct manifest_change *c = &a->members.roster.change;
    if (a->members.roster.version < 2)
        return;
    answer->site = site;
    answer->sites = members_count(a);
    for (unsigned i = 0; c->act == MANIFEST_ADD && c->site == site && i < a->core.fragments; i++)
        answer->fragments[i].first = a->core.f[i].first;
}

/* ---- an operator's acts ---- */

/* "fragment 0 from round 5 on, fragment 1 from round 4 on", as far as there is room. */
static void firsts_text(const struct aggregator *a, const uint64_t *first, char *out, size_t size)
{
    struct aggregator_text t = {out, 0, size};
    *out = 0;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (aggregator_serves(a, i))
            aggregator_text_add(&t, "%sfragment %u from round %" PRIu64 " on", t.used ? ", " : "",
                                i, first[i]);
}

static void roster_list(const struct aggregator *a, struct wire_answer *answer)
{
    struct aggregator_text t = {answer->text, 0, sizeof answer->text};
    unsigned waits;
    bool final = round_roster_final(&a->core, &waits);
    aggregator_text_add(&t, "version=%u sites=%u quorum=%u state=%s\n", a->members.roster.version,
                        members_count(a), a->core.quorum, final ? "final" : "pending");
    for (unsigned i = 0; !final && i < a->core.fragments; i++)
        if (aggregator_serves(a, i))
            aggregator_text_add(&t, "fragment=%u round=%" PRIu64 " first=%" PRIu64 "\n", i,
                                a->core.f[i].round, a->core.f[i].first);
    for (unsigned i = 0; i < a->members.count; i++) {
        bool in = set_has(&a->members.roster.members, i);
        aggregator_text_add(&t, "site=%s index=%u %s\n", a->members.names[i], i,
                            in                             ? "in"
                            : aggregator_serves_site(a, i) ? "leaving"
                                                           : "removed");
    }
    answer->outcome = ROUND_CURRENT;
}

/* The first round of each fragment under a change now: after the one in flight. And due at a later
 * step than all rounds in flight, so that a site that joins can wait for their commits before its
 * first step, and no site waits for it meanwhile. False: fragment *none has no such round. */
static bool firsts_find(const struct aggregator *a, uint64_t *first, unsigned *none)
{
    const struct schedule *s = &a->replica->schedule;
    int64_t last = 0;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (a->core.f[i].round < aggregator_rounds(a, i)) {
            int64_t step = schedule_step(s, i, a->core.f[i].round);
            last = step > last ? step : last;
        }
    for (unsigned i = 0; i < a->core.fragments; i++) {
        uint64_t rounds = aggregator_rounds(a, i);
        first[i] = 0;
        if (!aggregator_serves(a, i))
            continue;
        first[i] = a->core.f[i].round + !MUTANT(ROSTER_AT_ONCE);
        while (!MUTANT(ROSTER_AT_ONCE) && first[i] < rounds &&
               schedule_step(s, i, first[i]) <= last)
            first[i]++;
        *none = i;
        if (first[i] >= rounds)
            return false;
    }
    return true;
}

/* Could the run have begun with one site more? */
static bool add_may(const struct aggregator *a, int site, struct wire_answer *answer)
{
    const struct schedule *s = &a->replica->schedule;
    unsigned n = members_count(a) + 1;
    bool again = schedule_compresses_any(s, n);
    if (site < 0 && a->members.count >= a->core.room)
        aggregator_say(answer, ROUND_INVALID,
                       "the roster is full: a run has at most %u sites, removed ones too",
                       a->core.room);
    else if (site < 0 && a->members.count - a->members.roster.initial >= MANIFEST_ADDED_MAX)
        aggregator_say(
            answer, ROUND_INVALID,
            "%d sites were added to this run, no more are possible: continue as a new run with "
            "run.init_from",
            MANIFEST_ADDED_MAX);
    else if (again && !a->replica->o.compresses_downlink)
        aggregator_say(
            answer, ROUND_INVALID,
            "from %u sites on this run would compress the downlink "
            "(outer.downlink_compression_from), and it began without: continue as a new run with "
            "run.init_from",
            n);
    else
        return true;
    return false;
}

/* Sites that a roster must have, so that every sum of secure aggregation has as many as is
 * promised.
 */
static unsigned sites_least(const struct aggregator *a)
{
    return round_leave(&a->o->masks, a->core.sites, a->o->strict).roster;
}

/* With secure aggregation: rounds continue without a site that was added, until all have pair keys
 * with it. Without another one, too, they would have too few. */
static bool removal_waits(const struct aggregator *a, int site)
{
    int apart = a->sums->apart(a);
    unsigned left = members_count(a) - 1, least = round_least(left, a->o->strict, &a->o->masks),
             most = sites_least(a);
    return apart >= 0 && apart != site && left - 1 < (least > most ? least : most);
}

/* Is this a change that may be made now? */
static bool change_may(const struct aggregator *a, const struct wire_operate *m, int site,
                       struct wire_answer *answer)
{
    bool add = m->act == WIRE_ROSTER_ADD,
         in = site >= 0 && set_has(&a->members.roster.members, (unsigned)site);
    unsigned waits;
    if (add && !site_name_good(m->site))
        aggregator_say(answer, ROUND_INVALID, "a site's name has 1 to %d letters, digits, - and _",
                       SITE_NAME_MAX);
    else if (add && in)
        aggregator_say(answer, ROUND_INVALID, "site %s is in the roster already", m->site);
    else if (!add && !in)
        aggregator_say(answer, ROUND_INVALID,
                       "site %s is not in the roster: atoll operator roster list", m->site);
    else if (!add && members_count(a) == 1)
        aggregator_say(answer, ROUND_INVALID, "%s is the last site of the run", m->site);
    else if (!add && members_count(a) - 1 < sites_least(a))
        aggregator_say(answer, ROUND_INVALID,
                       "without site %s the run has %u sites, and secure aggregation needs %u, so "
                       "that every sum has as many as is promised (privacy.threshold): add another "
                       "site first (atoll operator roster add)",
                       m->site, members_count(a) - 1, sites_least(a));
    else if (m->version != (uint64_t)a->members.roster.version + 1)
        aggregator_say(
            answer, ROUND_INVALID,
            "the roster is of version %u now: look at it (atoll operator roster list), and call "
            "again",
            a->members.roster.version);
    else if (!round_roster_final(&a->core, &waits))
        aggregator_say(
            answer, ROUND_PENDING,
            "one change at a time: version %u (%s %s) is not final, since fragment %u is in round "
            "%" PRIu64 " and the version begins with round %" PRIu64
            ", which more than half of the sites must have; call again then",
            a->members.roster.version, a->members.names[a->members.roster.change.site],
            a->members.roster.change.act == MANIFEST_ADD ? "added" : "removed", waits,
            a->core.f[waits].round, a->core.f[waits].first);
    else if (!add && removal_waits(a, site))
        aggregator_say(
            answer, ROUND_PENDING,
            "without site %s too few sites mask for each other, since site %s, which was "
            "added, has not the pair keys of the others: start it, or remove it, and "
            "call again",
            m->site, a->members.names[a->sums->apart(a)]);
    else if (add && a->sums->unpaired(a))
        aggregator_say(answer, ROUND_PENDING,
                       "site %s has not the pair keys of the roster of now: start it, or remove "
                       "it, and call again",
                       a->sums->unpaired(a));
    else
        return !add || add_may(a, site, answer);
    return false;
}

static void change_say(const struct aggregator *a, const struct wire_operate *m,
                       struct wire_answer *answer)
{
    char firsts[512], others[160] = "";
    uint64_t first[ROUND_FRAGMENTS_MAX];
    for (unsigned i = 0; i < a->core.fragments; i++)
        first[i] = a->core.f[i].first;
    firsts_text(a, first, firsts, sizeof firsts);
    if (a->o->place.count > 1)
        snprintf(others, sizeof others,
                 "; this is aggregator %u of %u: each of them has to be told", a->o->place.index,
                 a->o->place.count);
    aggregator_say(
        answer, ROUND_CURRENT, "roster version %u: site %s %s, %s%s%s", a->members.roster.version,
        m->site, m->act == WIRE_ROSTER_ADD ? "is added" : "is removed", firsts,
        m->act == WIRE_ROSTER_ADD
            ? "; it needs its certificate (atoll cert issue --role site) and is started as any site"
            : "; the rounds before still wait for it, unless it is stopped: atoll operator abort",
        others);
}

static enum err change_make(struct aggregator *a, const char *peer, const struct wire_operate *m,
                            unsigned site, const uint64_t *first)
{
    struct journal_record r = {.kind = JOURNAL_ROSTER,
                               .fragment = site < a->members.count ? a->members.count : site + 1,
                               .site = site,
                               .digest = digest_of(peer, strlen(peer)),
                               .act = m->act == WIRE_ROSTER_ADD ? MANIFEST_ADD : MANIFEST_REMOVE,
                               .to = m->version};
    snprintf(r.name, sizeof r.name, "%s", m->site);
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (aggregator_serves(a, i)) {
            struct journal_record f = first_record(i, first[i]);
            TRY(journal_append(&a->journal, &f));
        }
    if (!MUTANT(ROSTER_UNRECORDED))
        TRY(journal_append(&a->journal, &r)); /* what counts */
    log_event(LOG_WARN, "operator", "act=%s by=%s site=%s version=%" PRIu64,
              m->act == WIRE_ROSTER_ADD ? "roster_add" : "roster_remove", peer, m->site,
              m->version);
    aggregator_members_change(a, &r, first);
    return a->sums->added(a);
}

static enum err change_act(struct aggregator *a, const char *peer, const struct wire_operate *m,
                           struct wire_answer *answer)
{
    int site = aggregator_site(a, m->site);
    uint8_t act = m->act == WIRE_ROSTER_ADD ? MANIFEST_ADD : MANIFEST_REMOVE;
    uint64_t first[ROUND_FRAGMENTS_MAX];
    unsigned none;
    bool again = site >= 0 && m->version == a->members.roster.version &&
                 a->members.roster.change.act == act &&
                 a->members.roster.change.site == (uint32_t)site;
    if (!again && !change_may(a, m, site, answer))
        return ERR_OK;
    if (!again && !firsts_find(a, first, &none)) {
        aggregator_say(answer, ROUND_INVALID, "fragment %u has no round left to begin with", none);
        return ERR_OK;
    }
    if (!again)
        TRY(change_make(a, peer, m, site >= 0 ? (unsigned)site : a->members.count, first));
    change_say(a, m, answer);
    return ERR_OK;
}

static enum err roster_operate(void *self, const char *peer, const struct wire_operate *m,
                               struct wire_answer *answer)
{
    const struct roster_aggregator *x = self;
    enum err e = ERR_OK;
    if (m->act == WIRE_ROSTER_LIST)
        roster_list(x->a, answer);
    else
        e = change_act(x->a, peer, m, answer);
    answer->round = x->a->members.roster.version;
    return e;
}

enum err roster_at_aggregator(struct organ_at_aggregator *out, struct arena *perm)
{
    static const struct organ_aggregator organ = {
        .name = "roster",
        .kinds = 1u << JOURNAL_ROSTER,
        .acts = 1u << WIRE_ROSTER_LIST | 1u << WIRE_ROSTER_ADD | 1u << WIRE_ROSTER_REMOVE,
        .reads_spool = false,
        .open = roster_open,
        .restore = roster_restore,
        .recovered = roster_recovered,
        .begin = organ_begin_nothing,
        .records = roster_records,
        .bound = roster_bound,
        .work = organ_work_nothing,
        .sealed = organ_sealed_nothing,
        .manifest = organ_manifest_nothing,
        .operate = roster_operate,
        .committed = organ_committed_nothing};
    struct roster_aggregator *x;
    TRY_ALLOC(x = arena_alloc(perm, sizeof *x));
    *out = (struct organ_at_aggregator){&organ, x};
    return ERR_OK;
}
