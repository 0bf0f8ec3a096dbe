/* Which sites the run has: an operator adds and removes them, one at a time. Journalled before it
 * takes effect; in force for each fragment from a later round than the one in flight on
 * (docs/protocol.md 3.6). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/log.h"
#include "outer/aggregator/aggregator_state.h"
#include "outer/masks/secure.h"
#include "outer/protocol/mutant.h"
#include "outer/protocol/site_name.h"

void aggregator_roster_open(struct aggregator *a)
{
    for (unsigned i = 0; i < a->site_count; i++)
        a->names[i] = a->o->sites[i];
    roster_begin(&a->roster, a->site_count);
    a->former = a->roster;
    a->known = a->site_count;
}

bool aggregator_roster_serves(const struct aggregator *a, unsigned site)
{
    bool serves = set_has(&a->roster.members, site);
    for (unsigned i = 0; i < a->core.fragments && !serves; i++)
        serves = aggregator_serves(a, i) && set_has(&a->core.f[i].members, site) &&
                 a->core.f[i].round < aggregator_rounds(a, i);
    return serves;
}

static unsigned members_count(const struct aggregator *a)
{
    return set_count(&a->roster.members);
}

/* ---- one change ---- */

/* A name is there before the count says so: other threads read both. */
static void name_put(struct aggregator *a, unsigned site, const char *name)
{
    if (site < a->site_count)
        return;
    char *to = a->added[site - a->roster.initial];
    snprintf(to, sizeof a->added[0], "%s", name);
    a->names[site] = to;
    a->site[site].status.loss = a->site[site].status.tokens_per_second = NAN;
    a->site_count = site + 1;
    a->known = site + 1;
}

/* A record of it is durable. */
static void change_apply(struct aggregator *a, const struct journal_record *r,
                         const uint64_t *first)
{
    bool in = r->act == MANIFEST_ADD;
    struct manifest_change c = {r->act, r->site, r->digest};
    name_put(a, r->site, r->name);
    if (r->to) {
        a->former = a->roster;
        roster_change(&a->roster, &c);
        a->roster.version = (uint32_t)r->to;
        a->roster.count = r->fragment;
    } else {
        set_put(&a->roster.members, r->site, in);
        a->roster.count = a->site_count;
    }
    round_roster(&a->core, r->site, in, first);
    if (in)
        a->site[r->site].finished = a->site[r->site].status.left = false;
    set_put(&a->touched, r->site, true);
}

static struct journal_record change_record(const struct aggregator *a, const struct roster *r)
{
    struct journal_record x = {.kind = JOURNAL_ROSTER,
                               .fragment = r->count,
                               .site = r->change.site,
                               .digest = r->change.by,
                               .act = r->change.act,
                               .to = r->version};
    snprintf(x.name, sizeof x.name, "%s", a->names[r->change.site]);
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

enum err aggregator_roster_restore(struct aggregator *a, const struct journal_record *r)
{
    static const uint64_t at_once[ROUND_FRAGMENTS_MAX];
    bool in = r->act == MANIFEST_ADD;
    if (!r->act) {
        if (r->fragment >= a->core.fragments)
            return record_damaged(r);
        a->first_read[r->fragment] = r->round;
        return ERR_OK;
    }
    if (r->act > MANIFEST_REMOVE || r->site > a->site_count || r->site >= a->core.room ||
        r->site >= a->roster.initial + MANIFEST_ADDED_MAX || !site_name_good(r->name) ||
        (r->site < a->site_count && strcmp(r->name, a->names[r->site]) != 0) ||
        (r->to &&
         (set_has(&a->roster.members, r->site) == in || r->to <= a->roster.version ||
          r->to > UINT32_MAX || r->fragment > a->site_count + 1 || r->fragment <= r->site)))
        return record_damaged(r);
    change_apply(a, r, r->to && !MUTANT(ROSTER_RESTORED) ? a->first_read : at_once);
    if (r->to)
        memset(a->first_read, 0, sizeof a->first_read);
    return ERR_OK;
}

size_t aggregator_roster_records(const struct aggregator *a, struct journal_record *keep)
{
    size_t n = 0;
    const struct manifest_change *before = &a->former.change;
    struct set settled = a->former.members;
    if (a->roster.version < 2)
        return 0;
    if (before->act)
        set_put(&settled, before->site, before->act == MANIFEST_REMOVE);
    for (unsigned i = 0; i < a->former.count; i++) {
        bool in = set_has(&settled, i);
        if (in && i < a->roster.initial)
            continue;
        keep[n] = (struct journal_record){
            .kind = JOURNAL_ROSTER, .site = i, .act = in ? MANIFEST_ADD : MANIFEST_REMOVE};
        snprintf(keep[n].name, sizeof keep[n].name, "%s", a->names[i]);
        n++;
    }
    if (before->act)
        keep[n++] = change_record(a, &a->former);
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (aggregator_serves(a, i))
            keep[n++] = first_record(i, a->core.f[i].first);
    keep[n++] = change_record(a, &a->roster);
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

/* A fragment whose newest manifest is of the version before takes its round in flight under the
 * new one: what was accepted for it is lost with the journal. */
static void again_take(struct aggregator *a, const struct manifest *m, const uint64_t *first)
{
    struct roster r;
    roster_of(&r, a->roster.initial, m);
    for (unsigned i = 0; i < r.count; i++) {
        if (i >= a->site_count)
            name_put(a, i, m->names[i - r.initial]);
        round_roster(&a->core, i, set_has(&r.members, i), first);
        set_put(&a->touched, i, true);
    }
    a->roster = a->former = r;
    a->former.version--;
    a->former.change = (struct manifest_change){0};
    set_put(&a->former.members, r.change.site, r.change.act == MANIFEST_REMOVE);
}

enum err aggregator_roster_again(struct aggregator *a)
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
    if (m.initial != a->roster.initial || m.initial + m.added > a->core.room)
        return err_set(ERR_CORRUPT,
                       "%s/%s is missing, and the manifests are of a run that began with %u sites, "
                       "not %u: restore the file, or start with the configuration of then",
                       a->env->root, AGGREGATOR_JOURNAL, m.initial, a->roster.initial);
    again_take(a, &m, first);
    log_event(LOG_WARN, "roster_found",
              "version=%u sites=%u text=\"the journal is lost: the roster is that of the newest "
              "manifests; a change that no round was committed under is lost with it\"",
              version, members_count(a));
    return ERR_OK;
}

enum err aggregator_roster_check(struct aggregator *a)
{
    struct manifest m;
    for (unsigned i = 0; i < a->core.fragments; i++)
        if (manifest_last(a, i, &m) == ERR_OK && m.roster_version > a->roster.version)
            return err_set(ERR_CORRUPT,
                           "%s/%s: it says that the roster is of version %u, and a round of "
                           "version %u is committed: restored from an older copy?",
                           a->env->root, AGGREGATOR_JOURNAL, a->roster.version, m.roster_version);
    return ERR_OK;
}

/* ---- what others are told ---- */

void aggregator_roster_manifest(const struct aggregator *a, unsigned fragment, struct manifest *m)
{
    const struct round_fragment *f = &a->core.f[fragment];
    roster_put(f->round >= f->first ? &a->roster : &a->former, m);
    for (uint32_t i = 0; i < m->added; i++) {
        memset(m->names[i], 0, sizeof m->names[i]);
        snprintf(m->names[i], sizeof m->names[i], "%s", a->names[m->initial + i]);
    }
}

void aggregator_roster_hello(const struct aggregator *a, unsigned site,
                             struct wire_hello_answer *answer)
{
    const struct manifest_change *c = &a->roster.change;
    if (a->roster.version < 2)
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
    aggregator_text_add(&t, "version=%u sites=%u quorum=%u state=%s\n", a->roster.version,
                        members_count(a), a->core.quorum, final ? "final" : "pending");
    for (unsigned i = 0; !final && i < a->core.fragments; i++)
        if (aggregator_serves(a, i))
            aggregator_text_add(&t, "fragment=%u round=%" PRIu64 " first=%" PRIu64 "\n", i,
                                a->core.f[i].round, a->core.f[i].first);
    for (unsigned i = 0; i < a->site_count; i++) {
        bool in = set_has(&a->roster.members, i);
        aggregator_text_add(&t, "site=%s index=%u %s\n", a->names[i], i,
                            in                               ? "in"
                            : aggregator_roster_serves(a, i) ? "leaving"
                                                             : "removed");
    }
    answer->outcome = ROUND_CURRENT;
}

/* The first round of each fragment under a change now: behind the one in flight. And due at a later
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
    if (site < 0 && a->site_count >= a->core.room)
        aggregator_say(answer, ROUND_INVALID,
                       "the roster is full: a run has at most %u sites, removed ones too",
                       a->core.room);
    else if (site < 0 && a->site_count - a->roster.initial >= MANIFEST_ADDED_MAX)
        aggregator_say(
            answer, ROUND_INVALID,
            "%d sites were added to this run, no more are possible: go on as a new run with "
            "run.from",
            MANIFEST_ADDED_MAX);
    else if (again && !a->replica->o.compresses_downlink)
        aggregator_say(
            answer, ROUND_INVALID,
            "from %u sites on this run would compress the downlink "
            "(outer.downlink_compression_from), and it began without: go on as a new run with "
            "run.from",
            n);
    else
        return true;
    return false;
}

/* With secure aggregation: rounds go on without a site that was added, until all have pair keys
 * with it. Without another one, too, they would have too few. */
static bool removal_waits(const struct aggregator *a, int site)
{
    int apart = aggregator_masks_apart(a);
    unsigned left = members_count(a) - 1, least = round_least(left, a->o->strict, &a->o->masks),
             most = aggregator_masks_least(a);
    return apart >= 0 && apart != site && left - 1 < (least > most ? least : most);
}

/* Is this a change that may be made now? */
static bool change_may(const struct aggregator *a, const struct wire_operate *m, int site,
                       struct wire_answer *answer)
{
    bool add = m->act == WIRE_ROSTER_ADD,
         in = site >= 0 && set_has(&a->roster.members, (unsigned)site);
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
    else if (!add && members_count(a) - 1 < aggregator_masks_least(a))
        aggregator_say(answer, ROUND_INVALID,
                       "without site %s the run has %u sites, and secure aggregation needs %u, so "
                       "that every sum has as many as is promised (privacy.threshold): add another "
                       "site first (atoll operator roster add)",
                       m->site, members_count(a) - 1, aggregator_masks_least(a));
    else if (m->version != (uint64_t)a->roster.version + 1)
        aggregator_say(
            answer, ROUND_INVALID,
            "the roster is of version %u now: look at it (atoll operator roster list), and call "
            "again",
            a->roster.version);
    else if (!round_roster_final(&a->core, &waits))
        aggregator_say(
            answer, ROUND_PENDING,
            "one change at a time: version %u (%s %s) is not final, since fragment %u is in round "
            "%" PRIu64 " and the version begins with round %" PRIu64
            ", which more than half of the sites must have; call again then",
            a->roster.version, a->names[a->roster.change.site],
            a->roster.change.act == MANIFEST_ADD ? "added" : "removed", waits,
            a->core.f[waits].round, a->core.f[waits].first);
    else if (!add && removal_waits(a, site))
        aggregator_say(
            answer, ROUND_PENDING,
            "without site %s too few sites mask for each other, since site %s, which was "
            "added, has not the pair keys of the others: start it, or remove it, and "
            "call again",
            m->site, a->names[aggregator_masks_apart(a)]);
    else if (add && aggregator_masks_unpaired(a))
        aggregator_say(answer, ROUND_PENDING,
                       "site %s has not the pair keys of the roster of now: start it, or remove "
                       "it, and call again",
                       aggregator_masks_unpaired(a));
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
    if (a->o->count > 1)
        snprintf(others, sizeof others,
                 "; this is aggregator %u of %u: each of them has to be told", a->o->index,
                 a->o->count);
    aggregator_say(
        answer, ROUND_CURRENT, "roster version %u: site %s %s, %s%s%s", a->roster.version, m->site,
        m->act == WIRE_ROSTER_ADD ? "is added" : "is removed", firsts,
        m->act == WIRE_ROSTER_ADD
            ? "; it needs its certificate (atoll cert issue --role site) and is started as any site"
            : "; the rounds before still wait for it, unless it is stopped: atoll operator abort",
        others);
}

static enum err change_make(struct aggregator *a, const char *peer, const struct wire_operate *m,
                            unsigned site, const uint64_t *first)
{
    struct journal_record r = {.kind = JOURNAL_ROSTER,
                               .fragment = site < a->site_count ? a->site_count : site + 1,
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
    change_apply(a, &r, first);
    return aggregator_masks_added(a);
}

enum err aggregator_roster_operate(struct aggregator *a, const char *peer,
                                   const struct wire_operate *m, struct wire_answer *answer)
{
    int site = aggregator_site(a, m->site);
    uint8_t act = m->act == WIRE_ROSTER_ADD ? MANIFEST_ADD : MANIFEST_REMOVE;
    uint64_t first[ROUND_FRAGMENTS_MAX];
    unsigned none;
    if (m->act == WIRE_ROSTER_LIST) {
        roster_list(a, answer);
        return ERR_OK;
    }
    bool again = site >= 0 && m->version == a->roster.version && a->roster.change.act == act &&
                 a->roster.change.site == (uint32_t)site;
    if (!again && !change_may(a, m, site, answer))
        return ERR_OK;
    if (!again && !firsts_find(a, first, &none)) {
        aggregator_say(answer, ROUND_INVALID, "fragment %u has no round left to begin with", none);
        return ERR_OK;
    }
    if (!again)
        TRY(change_make(a, peer, m, site >= 0 ? (unsigned)site : a->site_count, first));
    change_say(a, m, answer);
    return ERR_OK;
}
