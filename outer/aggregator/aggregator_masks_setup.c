/* SPDX-License-Identifier: Apache-2.0 */
/* Pair keys of secure aggregation at the aggregator (docs/privacy-methods.md): it passes the sites'
 * public keys on.
 *
 * A setup is what makes pair keys: the first one of all sites, and one for each site that is added.
 * It has the number of the roster's version, which is durable (the file `setup`), since sites that
 * come to it at different times must come to the same one; and the next one begins once all sites
 * have said that they have the pairs of this one, which is durable, too. */
#include "outer/aggregator/aggregator_masks_own.h"
#include "outer/aggregator/aggregator_signs.h"
#include <inttypes.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"

static void setup_fields(struct record_cursor *c, void *self)
{
    struct masks_setup *m = self;
    uint32_t room = m->sites, fragments = m->fragments;
    record_u32(c, &m->number);
    record_u32(c, &m->added);
    record_u32(c, &m->fragments);
    record_u32(c, &m->sites);
    m->fragments = m->fragments < fragments ? m->fragments : fragments; /* then it is no record */
    m->sites = m->sites < room ? m->sites : room;
    for (uint32_t i = 0; i < m->fragments; i++) {
        record_u64(c, &m->first[i]);
        record_u64(c, &m->joins[i]);
    }
    for (uint32_t i = 0; i < m->sites; i++) {
        record_u32(c, &m->paired[i]);
        record_u32(c, &m->stated[i]);
        record_digest(c, &m->key[i]);
    }
}

static void setup_first(struct aggregator *a)
{
    struct masks_setup *m = &masks_of(a)->setup;
    *m = (struct masks_setup){.number = 1,
                              .fragments = a->core.fragments,
                              .sites = a->core.room,
                              .paired = m->paired,
                              .stated = m->stated,
                              .key = m->key};
    memset(m->paired, 0, m->sites * sizeof *m->paired);
    memset(m->stated, 0, m->sites * sizeof *m->stated);
    memset(m->key, 0, m->sites * sizeof *m->key);
}

/* Lost: the sites say again what they have. */
enum err aggregator_masks_setup_read(struct aggregator *a)
{
    struct masks_setup *m = &masks_of(a)->setup;
    struct arena scratch = arena_make(0);
    struct record_form form = {"setup", setup_fields, m};
    struct record r;
    setup_first(a);
    enum err e = store_read(a->env, AGGREGATOR_SETUP, &form, 0, &r, &scratch);
    arena_free(&scratch);
    m->sites = a->core.room; /* the sites may have become more */
    if (e == ERR_INPUT || e == ERR_CORRUPT)
        setup_first(a);
    masks_of(a)->setup_lost = e == ERR_CORRUPT || (e == ERR_INPUT && a->start.begun);
    if (masks_of(a)->setup_lost)
        log_event(LOG_WARN, "setup_lost", "file=%s", AGGREGATOR_SETUP);
    round_apart(&a->core, m->added, m->joins);
    return e == ERR_INPUT || e == ERR_CORRUPT ? ERR_OK : e;
}

static enum err setup_write(struct aggregator *a)
{
    struct record_form form = {"setup", setup_fields, &masks_of(a)->setup};
    return store_write(a->env, AGGREGATOR_SETUP, &form, NULL, 0);
}

/* The newest change of the roster added a site: its setup, if it is not the present one. What the
 * journal has is enough to find it again. */
enum err aggregator_masks_added(struct aggregator *a)
{
    struct masks_setup *m = &masks_of(a)->setup;
    if (a->members.roster.change.act != MANIFEST_ADD || a->members.roster.version <= m->number)
        return ERR_OK;
    m->number = a->members.roster.version;
    m->added = a->members.roster.change.site;
    for (unsigned f = 0; f < a->core.fragments; f++) {
        m->first[f] = a->core.f[f].first;
        m->joins[f] = a->o->strict ? m->first[f] : UINT64_MAX;
        masks_of(a)->lost[f] |= masks_of(a)->setup_lost && !a->o->strict && a->core.f[f].round;
    }
    round_apart(&a->core, m->added, m->joins);
    return setup_write(a);
}

struct set aggregator_masks_announced(const struct aggregator *a, unsigned fragment)
{
    const struct masks_setup *m = &masks_of(a)->setup;
    struct set u = a->core.f[fragment].members;
    if (m->number > 1 && a->core.f[fragment].round < m->joins[fragment] && !MUTANT(JOINED_UNPAIRED))
        set_put(&u, m->added, false);
    return u;
}

/* Is this site's key in the newest setup known? */
static bool stated_now(const struct aggregator *a, unsigned site)
{
    const struct masks_site *s = &masks_of(a)->site[site];
    struct keys_statement x;
    return s->stated && s->certificate_bytes &&
           keys_statement_read(&x, s->statement, sizeof s->statement) == ERR_OK &&
           x.setup == masks_of(a)->setup.number;
}

/* Sites of all rounds in flight. */
static struct set sites_served(const struct aggregator *a)
{
    struct set sites = {0};
    for (unsigned i = 0; i < a->members.count; i++)
        set_put(&sites, i, aggregator_serves_site(a, i));
    return sites;
}

/* Sites that this setup makes a pair of `site` with. */
static struct set pair_partners(const struct aggregator *a, unsigned site)
{
    const struct masks_setup *m = &masks_of(a)->setup;
    struct set others = sites_served(a);
    bool all = m->number < 2 || m->added == site;
    for (unsigned i = 0; i < a->members.count; i++)
        set_put(&others, i, set_has(&others, i) && i != site && (all || i == m->added));
    return others;
}

static bool any_unpaired(const struct aggregator *a, const struct set *sites)
{
    for (unsigned i = 0; i < a->members.count; i++)
        if (set_has(sites, i) && masks_of(a)->setup.paired[i] < masks_of(a)->setup.number)
            return true;
    return false;
}

/* Has the site to state its key, or can it find all others'? */
bool aggregator_masks_setup_wants(const struct aggregator *a, unsigned site)
{
    struct set others = pair_partners(a, site);
    if (masks_of(a)->setup.paired[site] >= masks_of(a)->setup.number)
        return !stated_now(a, site) && any_unpaired(a, &others);
    if (!stated_now(a, site))
        return set_count(&others);
    for (unsigned i = 0; i < a->members.count; i++)
        if (set_has(&others, i) && !stated_now(a, i))
            return false;
    return true;
}

static const char *site_unpaired(const struct aggregator *a)
{
    for (unsigned i = 0; i < a->members.count && !MUTANT(ADDED_UNPAIRED); i++) {
        struct set others = pair_partners(a, i);
        if (set_has(&a->members.roster.members, i) && set_count(&others) &&
            masks_of(a)->setup.paired[i] < masks_of(a)->setup.number)
            return a->members.names[i];
    }
    return NULL;
}

bool aggregator_masks_unstated(const struct aggregator *a, unsigned fragment, struct set *missing)
{
    const struct masks_setup *m = &masks_of(a)->setup;
    const struct set u = aggregator_masks_announced(a, fragment);
    struct set unstated = {0};
    for (unsigned i = 0; i < a->members.count; i++) {
        struct set others = pair_partners(a, i);
        set_put(&unstated, i,
                set_has(&u, i) && set_count(&others) && m->stated[i] < m->number &&
                    m->paired[i] < m->number);
    }
    if (set_count(&unstated))
        *missing = unstated;
    return set_count(&unstated);
}

/* The rounds do not wait for it, so that nothing else says its name. */
static void apart_log(struct aggregator *a)
{
    enum { LINES = 1 };
    const struct masks_setup *m = &masks_of(a)->setup;
    const char *name = a->members.names[m->added];
    bool stated = m->stated[m->added] >= m->number;
    unsigned repeats;
    if (set_has(&a->members.roster.members, m->added) && a->core.f[0].round >= m->first[0] &&
        aggregator_line_passes(a, "apart", name, LINES, &repeats))
        log_event(
            LOG_WARN, "waiting",
            "missing=%s owes=\"public key\" setup=%" PRIu32
            " text=\"the rounds continue without site %s, which was added, until all sites have "
            "pair keys with it; %s\"",
            name, m->number, name, stated ? "some have not come since" : "it has not come yet");
}

/* After the rounds in flight, which are announced without it. */
enum err aggregator_masks_join(struct aggregator *a)
{
    struct masks_setup *m = &masks_of(a)->setup;
    uint64_t before[ROUND_FRAGMENTS_MAX];
    if (m->number < 2 || m->joins[0] != UINT64_MAX)
        return ERR_OK;
    if (site_unpaired(a)) {
        apart_log(a);
        return ERR_OK;
    }
    memcpy(before, m->joins, sizeof before);
    for (unsigned f = 0; f < a->core.fragments; f++) {
        uint64_t next = a->core.f[f].round + !MUTANT(JOINED_AT_ONCE);
        m->joins[f] = next > m->first[f] ? next : m->first[f];
    }
    enum err e = setup_write(a);
    if (e != ERR_OK)
        memcpy(m->joins, before, sizeof before);
    round_apart(&a->core, m->added, m->joins);
    return e;
}

int aggregator_masks_apart(const struct aggregator *a)
{
    const struct masks_setup *m = &masks_of(a)->setup;
    for (unsigned f = 0; m->number > 1 && f < a->core.fragments; f++)
        if (a->core.f[f].round < m->joins[f] && a->core.f[f].round < aggregator_rounds(a, f) &&
            set_has(&a->members.roster.members, m->added) && !a->o->strict)
            return (int)m->added;
    return -1;
}

const char *aggregator_masks_unpaired(const struct aggregator *a)
{
    int apart = aggregator_masks_apart(a);
    if (apart >= 0 && !MUTANT(ADDED_UNPAIRED))
        return a->members.names[apart];
    return site_unpaired(a);
}

void aggregator_masks_hello(struct aggregator *a, unsigned site, const struct wire_hello *m)
{
    if (site >= a->core.room)
        return;
    struct masks_site *s = &masks_of(a)->site[site];
    memcpy(s->certificate, m->identity, m->identity_bytes);
    s->certificate_bytes = m->identity_bytes;
}

/* u32 indices, set of the sites of all rounds in flight, u32 the added one, u32 fragments, u64
 * first round of its pairs in each; then as many of these sites from `first` on as there is room
 * for. */
static void setup_list(const struct aggregator *a, uint32_t first, struct wire_mask_answer *answer)
{
    struct bytes_writer w = bytes_writer(answer->body, sizeof answer->body);
    unsigned sites = a->members.count;
    bytes_put_u32(&w, sites);
    const struct set in = sites_served(a);
    seal_set_write(&w, &in, sites);
    bytes_put_u32(&w, masks_of(a)->setup.added);
    bytes_put_u32(&w, a->core.fragments);
    for (unsigned f = 0; f < a->core.fragments; f++)
        bytes_put_u64(&w, MUTANT(SETUP_FIRST) ? a->core.f[f].first : masks_of(a)->setup.first[f]);
    answer->answer.outcome = ROUND_NONE;
    answer->number = MUTANT(SETUP_VERSION) ? a->members.roster.version : masks_of(a)->setup.number;
    for (uint32_t i = first; i < sites; i++) {
        const struct masks_site *s = &masks_of(a)->site[i];
        size_t name = strlen(a->members.names[i]);
        if (!set_has(&in, i) || !s->stated || !s->certificate_bytes)
            continue;
        if (bytes_size(&w) + 4 + 1 + name + 4 + s->certificate_bytes + KEYS_STATEMENT_BYTES >
            sizeof answer->body) {
            answer->answer.offset = i;
            break;
        }
        bytes_put_u32(&w, i);
        bytes_put_u8(&w, (uint8_t)name);
        bytes_put(&w, a->members.names[i], name);
        bytes_put_u32(&w, (uint32_t)s->certificate_bytes);
        bytes_put(&w, s->certificate, s->certificate_bytes);
        bytes_put(&w, s->statement, KEYS_STATEMENT_BYTES);
    }
    ASSERT(!w.bad);
    answer->body_bytes = bytes_size(&w);
}

/* Of a later setup than the aggregator's: the file was lost, and the site knows more. False:
 * answered. */
static bool paired_take(struct aggregator *a, unsigned site, const struct wire_mask *m,
                        struct wire_mask_answer *answer)
{
    struct masks_setup *u = &masks_of(a)->setup;
    uint32_t before = u->paired[site];
    if (m->round <= before || m->round > a->members.roster.version)
        return true;
    u->paired[site] = (uint32_t)m->round;
    enum err e = setup_write(a);
    if (e == ERR_OK)
        e = aggregator_masks_join(a);
    if (e == ERR_OK)
        return true;
    u->paired[site] = before;
    aggregator_say_failed(a, e, &answer->answer);
    return false;
}

/* Of a statement that another site has signed, or whose key makes no secret. */
static const char *statement_wrong(const struct aggregator *a, unsigned site,
                                   const struct keys_statement *s)
{
    struct signer_key identity;
    enum keys_answer said = KEYS_pair_key_substituted;
    if (a->signs->key(a, site, &identity))
        said = keys_statement_check(a->o->run, a->o->signer, &identity, s);
    return said == KEYS_pair_key_substituted
               ? "key_signed_by_other: this site's identity has not signed its public key"
           : said == KEYS_x25519_low_order
               ? "key_of_low_order: the public key is a point of low order"
               : NULL;
}

/* The first key of a site in a setup is durable before another site sees it. A second one is of a
 * directory that was lost: the others have pairs with the first one, and no sum with this site
 * would lose its masks. False: answered. */
static bool statement_keep(struct aggregator *a, const struct keys_statement *s,
                           struct wire_answer *answer)
{
    struct masks_setup *u = &masks_of(a)->setup;
    const uint32_t before = u->stated[s->site];
    const struct digest key_before = u->key[s->site],
                        key = digest_of(s->key.bytes, sizeof s->key.bytes);
    if (s->setup == before && !digest_equal(&key, &key_before)) {
        aggregator_say(answer, ROUND_DENIED,
                       "key_second: this site had another public key for the same roster, and the "
                       "other sites have pair keys with that one. Its directory is new, or an "
                       "older copy: an operator has to remove and add it (atoll operator roster)");
        return false;
    }
    if (s->setup <= before)
        return true;
    u->stated[s->site] = s->setup;
    u->key[s->site] = key;
    enum err e = setup_write(a);
    if (e == ERR_OK)
        return true;
    u->stated[s->site] = before;
    u->key[s->site] = key_before;
    aggregator_say_failed(a, e, answer);
    return false;
}

/* False: answered. */
static bool statement_take(struct aggregator *a, unsigned site, const struct wire_mask *m,
                           struct wire_mask_answer *answer)
{
    const struct masks_setup *u = &masks_of(a)->setup;
    struct masks_site *to = &masks_of(a)->site[site];
    struct keys_statement s;
    bool reads = keys_statement_read(&s, m->body, m->body_bytes) == ERR_OK && s.site == site;
    const char *why =
        reads ? statement_wrong(a, site, &s) : "no statement of this site's public key";
    bool renews = !why && u->number > 1 && u->added == site && s.setup < u->number;
    if (renews) /* it was added again, and is about to begin the setup that makes new pairs */
        return true;
    if (why)
        aggregator_say(&answer->answer, ROUND_INVALID, "%s", why);
    if (why || !statement_keep(a, &s, &answer->answer))
        return false;
    memcpy(to->statement, m->body, sizeof to->statement);
    to->stated = true;
    return true;
}

void aggregator_masks_setup(struct aggregator *a, unsigned site, const struct wire_mask *m,
                            struct wire_mask_answer *answer)
{
    if (m->body_bytes && !statement_take(a, site, m, answer))
        return;
    if (paired_take(a, site, m, answer))
        setup_list(a, m->first, answer);
}
