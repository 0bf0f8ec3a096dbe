/* Secure aggregation at a site (docs/privacy.md, "Secure aggregation"): pair keys with the other
 * sites, the mask of each contribution, the one seal of a round that this site signs, and what it
 * reveals for it. The decisions are pure (outer/privacy/seal_site.h); here they are stored before
 * the aggregator hears of them.
 *
 *   id/maskkeys   pair keys (keys.h)                          id/maskseals  what was decided of
 * each round (seal_site.h) id/peers      identity keys of the other sites, as seen first seals/F/t
 * seal and signatures of a round for which this site revealed its mask: kept for ever, so that a
 * person can prove later what left the site (atoll privacy verify) All are files of mode 0600. All
 * of it with the site's mutex locked. */
#include "outer/site/site_masks.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/privacy/masked.h"
#include "outer/privacy/seal_kept.h"
#include "outer/privacy/seal_site.h"
#include "outer/protocol/mutant.h"

enum {
    SETUP_FIRST_MS = 100,
    SETUP_LAST_MS = 2000,
    REFUSED_MS = 2000, /* until what was refused is asked for again */
    PENDING_MS = 50,   /* least time between two calls that both say pending */
    PATH_BYTES = 64
};
static const char keys_path[] = "id/maskkeys", seals_path[] = "id/maskseals",
                  peers_path[] = "id/peers";

struct peer { /* another site, by its index */
    bool pinned;
    char name[WIRE_NAME_MAX];
    struct signer_key key;
};
struct site_masks {
    struct keys *keys;
    struct seal_site *seals;
    unsigned room;               /* indices */
    struct peer *peer;           /* [room] */
    struct signer_key *identity; /* [room]: of a context */
    uint64_t final[ROUND_FRAGMENTS_MAX];
    /* What is in memory is ahead of the file: nothing of it may leave the process. */
    bool keys_unstored, seals_unstored;
    /* Of the last exchange of public keys: */
    uint32_t looked;     /* version of the roster that this site had heard of; 0: none */
    struct set unpaired; /* sites that the newest setup makes a pair with */
    uint32_t paired;     /* the newest setup of which all pairs are stored */
};

/* ---- files ---- */

struct peers {
    struct site_masks *m;
    uint32_t count;
};

static void peers_fields(struct record_cursor *c, void *self)
{
    struct peers *p = self;
    record_u32(c, &p->count);
    if (p->count > p->m->room)
        p->count = 0; /* what follows is then more than the record has fields */
    for (uint32_t i = 0; i < p->count; i++) {
        struct peer *to = &p->m->peer[i];
        const char *name = to->name;
        uint8_t pinned = to->pinned;
        struct digest key;
        memcpy(key.bytes, to->key.bytes, sizeof key.bytes);
        record_u8(c, &pinned);
        record_text(c, &name, WIRE_NAME_MAX - 1);
        record_digest(c, &key);
        if (!record_reading(c))
            continue;
        to->pinned = pinned;
        snprintf(to->name, sizeof to->name, "%s", name ? name : "");
        memcpy(to->key.bytes, key.bytes, sizeof key.bytes);
    }
}

static enum err peers_write(struct site *s)
{
    struct peers p = {s->masks, s->masks->room};
    struct record_form form = {"peers", peers_fields, &p};
    return store_write(s->env, peers_path, &form, NULL, 0);
}

static enum err peers_read(struct site *s)
{
    struct arena scratch = arena_make(0);
    struct peers p = {.m = s->masks};
    struct record_form form = {"peers", peers_fields, &p};
    struct record r;
    enum err e = store_read(s->env, peers_path, &form, 0, &r, &scratch);
    arena_free(&scratch);
    return e == ERR_INPUT ? ERR_OK : e;
}

enum err site_peer_keys(struct site_peer_key **out, size_t *count, const char *directory,
                        struct arena *a)
{
    struct site_masks m = {.room = ROUND_SITES_MAX};
    struct peers p = {.m = &m};
    const struct record_form form = {"peers", peers_fields, &p};
    struct record r;
    uint8_t *data;
    size_t n;
    char *path;
    *count = 0;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", directory, peers_path));
    TRY_ALLOC(m.peer = arena_array(a, m.room, sizeof *m.peer));
    TRY_ALLOC(*out = arena_array(a, m.room, sizeof **out));
    if (!file_exists(path))
        return ERR_OK;
    TRY(file_read(path, RECORD_HEAD_MAX, a, &data, &n));
    TRY(record_open(&r, &form, path, data, n, a));
    for (uint32_t i = 0; i < p.count; i++)
        if (m.peer[i].pinned) {
            struct site_peer_key *to = &(*out)[(*count)++];
            snprintf(to->name, sizeof to->name, "%s", m.peer[i].name);
            to->key = m.peer[i].key;
        }
    return ERR_OK;
}

typedef enum err parts_of(struct site_masks *m, struct file_part **parts, size_t *count,
                          struct arena *a);

static enum err keys_of(struct site_masks *m, struct file_part **parts, size_t *count,
                        struct arena *a)
{
    return keys_parts(m->keys, parts, count, a);
}

static enum err seals_of(struct site_masks *m, struct file_part **parts, size_t *count,
                         struct arena *a)
{
    return seal_site_parts(m->seals, parts, count, a);
}

static enum err secret_write(struct site *s, const char *path, parts_of *of)
{
    struct arena scratch = arena_make(0);
    struct file_part *parts;
    size_t count;
    enum err e = of(s->masks, &parts, &count, &scratch);
    if (e == ERR_OK)
        e = s->env->ops->write(s->env, path, parts, count);
    arena_free(&scratch);
    return e;
}

static enum err keys_store(struct site *s)
{
    s->masks->keys_unstored = true;
    TRY(secret_write(s, keys_path, keys_of));
    s->masks->keys_unstored = false;
    return ERR_OK;
}

static enum err seals_store(struct site *s)
{
    s->masks->seals_unstored = true;
    TRY(secret_write(s, seals_path, seals_of));
    s->masks->seals_unstored = false;
    return ERR_OK;
}

/* What a call has changed, or one before it, which could not store it. */
static enum err seals_stored(struct site *s, bool changed)
{
    return changed || s->masks->seals_unstored ? seals_store(s) : ERR_OK;
}

static enum err keys_stored(struct site *s)
{
    return s->masks->keys_unstored && !MUTANT(KEYS_OWED) ? keys_store(s) : ERR_OK;
}

/* *found: the file was there. */
static enum err secret_read(struct site *s, const char *path, bool keys, bool *found)
{
    enum { MOST = 64 << 20 };
    struct site_masks *m = s->masks;
    struct arena scratch = arena_make(0);
    uint8_t *data;
    size_t n = 0;
    *found = s->env->ops->exists(s->env, path);
    enum err e = *found ? s->env->ops->read(s->env, path, MOST, &scratch, &data, &n) : ERR_OK;
    if (e == ERR_OK && *found) {
        e = keys ? keys_read(m->keys, path, data, n) : seal_site_read(m->seals, path, data, n);
        cipher_wipe(data, n);
    }
    arena_free(&scratch);
    return e;
}

/* Without the record of what was signed, a second seal could be signed. The other way round there
 * is nothing to give away: a crash came between the two, or the keys are lost, and the site has to
 * get new ones with a new version of the roster. */
static enum err files_read(struct site *s)
{
    bool keys, seals;
    TRY(peers_read(s));
    TRY(secret_read(s, keys_path, true, &keys));
    TRY(secret_read(s, seals_path, false, &seals));
    if (keys && !seals)
        return err_set(ERR_CORRUPT,
                       "%s/%s: missing: which seals this site has signed is not known any more; "
                       "start it with an empty directory, and let an operator remove and add it",
                       s->env->root, seals_path);
    if (seals)
        return ERR_OK;
    TRY(seals_store(s));
    return keys_store(s);
}

static enum err masks_open(struct site *s)
{
    struct keys_options o = {.run = s->o.run,
                             .site = s->o.index,
                             .sites = s->o.site_count + MANIFEST_ADDED_MAX,
                             .fragments = s->replica->fragments->count,
                             .config = s->config};
    struct site_masks *m = s->masks;
    if (!s->o.masks.on || (m && m->keys))
        return ERR_OK;
    if (s->o.index >= ROUND_SITES_MAX)
        return err_set(ERR_INTERNAL, "masks before the first hello of an added site");
    if (!m) {
        TRY_ALLOC(m = s->masks = calloc(1, sizeof *m));
        m->room = o.sites < ROUND_SITES_MAX ? o.sites : ROUND_SITES_MAX;
        m->peer = calloc(m->room, sizeof *m->peer);
        m->identity = calloc(m->room, sizeof *m->identity);
        TRY_ALLOC(m->peer && m->identity ? m->peer : NULL);
    }
    o.sites = m->room;
    TRY(seal_site_open(&m->seals, s->o.index, o.fragments));
    TRY(keys_open(&m->keys, &o));
    enum err e = files_read(s);
    if (e != ERR_OK) { /* the next call reads them again */
        seal_site_close(m->seals);
        keys_close(m->keys);
        m->seals = NULL;
        m->keys = NULL;
    }
    return e;
}

void site_masks_close(struct site *s)
{
    struct site_masks *m = s->masks;
    if (!m)
        return;
    keys_close(m->keys);
    seal_site_close(m->seals);
    free(m->peer);
    free(m->identity);
    free(m);
    s->masks = NULL;
}

/* ---- calls ---- */

struct step { /* one call */
    struct wire_mask m;
    struct wire_mask_answer answer;
};

/* What the aggregator wants of a round, and must not get: the site gives nothing away, says so and
 * asks again later. A lying aggregator cannot end a site that way. */
static enum err step_refused(struct site_slot *l, unsigned fragment, uint64_t round,
                             const char *step, enum seal_answer a)
{
    char quoted[256];
    const char *why = seal_answer_text(a);
    if (a == SEAL_no_memory)
        return err_set(ERR_MEMORY, "no memory to %s round %" PRIu64, step, round);
    log_event(LOG_ERROR, "seal_refused", "fragment=%u round=%" PRIu64 " step=%s answer=%s why=%s",
              fragment, round, step, seal_answer_name(a), log_quote(quoted, sizeof quoted, why));
    site_notice(l, "does not %s round %" PRIu64 ": %s", step, round, why);
    return site_sleep(l, REFUSED_MS);
}

/* Until it is answered. *done: with what was asked for; else what came instead was dealt with, and
 * the caller looks again. */
static enum err step_call(struct site_slot *l, struct step *x, bool *done)
{
    struct site *s = l->site;
    bool again;
    *done = false;
    x->m.head = site_head(l, x->m.fragment);
    x->answer.answer = (struct wire_answer){.outcome = ROUND_NONE};
    x->answer.body_bytes = 0;
    site_unlock(s);
    enum err e = s->link->ops->mask(s->link, &x->m, &x->answer);
    site_lock(s);
    TRY(site_called(l, e, &again));
    if (again)
        return ERR_OK;
    enum round_outcome o = x->answer.answer.outcome;
    if (o == ROUND_NONE) {
        *done = true;
        return ERR_OK;
    }
    if (o == ROUND_BEHIND)
        return ERR_OK;
    if (o == ROUND_PENDING)
        return site_sleep(l, PENDING_MS);
    return site_react(l, &x->answer.answer);
}

static enum err step_open(struct step **x, enum wire_mask_step step, unsigned fragment,
                          uint64_t round)
{
    *x = calloc(1, sizeof **x);
    TRY_ALLOC(*x);
    (*x)->m = (struct wire_mask){.step = step, .fragment = fragment, .round = round};
    return ERR_OK;
}

/* ---- pair keys ---- */

static bool name_taken(const struct site_masks *m, uint32_t site, const char *name)
{
    for (unsigned i = 0; i < m->room; i++)
        if (i != site && m->peer[i].pinned && strcmp(m->peer[i].name, name) == 0)
            return true;
    return false;
}

struct setup { /* what the aggregator says of the newest one */
    uint32_t number, sites, fragments;
    uint32_t added;     /* the site that it is for; of the first one, which is for all: not used */
    struct set members; /* sites of all rounds in flight */
    uint64_t first[ROUND_FRAGMENTS_MAX];
    bool malformed, changed; /* changed: there is a pair more */
};
struct setup_entry { /* a site, its certificate, what it states */
    uint32_t site;
    char name[WIRE_NAME_MAX];
    const uint8_t *certificate;
    size_t certificate_bytes;
    struct keys_statement statement;
};

/* The certificate is of the site that the roster has at this index; its key is the first one that
 * was seen, unless the site was added again. ERR_DENIED: it is not. */
static enum err peer_pin(struct site *s, const struct setup_entry *e, bool renewed)
{
    struct site_masks *m = s->masks;
    struct peer *p = &m->peer[e->site];
    struct signer_identity seen;
    char uri[3 * WIRE_NAME_MAX];
    bool named = e->site < s->o.site_count ? strcmp(e->name, s->o.roster[e->site]) == 0
                                           : !name_taken(m, e->site, e->name);
    if (!named)
        return err_set(ERR_DENIED, "the aggregator names site %" PRIu32 " of the roster %s",
                       e->site, e->name);
    snprintf(uri, sizeof uri, "atoll://%s/site/%s", s->o.run, e->name);
    TRY(s->o.signer->ops->certified(s->o.signer, e->certificate, e->certificate_bytes, uri, &seen));
    bool same = p->pinned && memcmp(&p->key, &seen.key, sizeof seen.key) == 0;
    if (same)
        return ERR_OK;
    if (p->pinned && !renewed)
        return err_set(ERR_DENIED,
                       "site %s shows another identity key than before: an operator has to remove "
                       "and add it",
                       e->name);
    struct peer before = *p;
    p->pinned = true;
    snprintf(p->name, sizeof p->name, "%s", e->name);
    p->key = seen.key;
    enum err written = peers_write(s);
    if (written != ERR_OK)
        *p = before;
    else
        log_event(before.pinned ? LOG_WARN : LOG_INFO, "peer_key", "site=%s renewed=%d", e->name,
                  before.pinned);
    return written;
}

/* False: malformed. */
static bool setup_head(const struct site *s, struct bytes_reader *r, struct setup *u)
{
    u->sites = bytes_get_u32(r);
    if (r->bad || u->sites > s->masks->room || !seal_set_read(r, &u->members, u->sites))
        return false;
    u->added = bytes_get_u32(r);
    u->fragments = bytes_get_u32(r);
    if (r->bad || u->fragments != s->replica->fragments->count)
        return false;
    for (uint32_t f = 0; f < u->fragments; f++)
        u->first[f] = bytes_get_u64(r);
    return !r->bad;
}

static bool entry_read(struct bytes_reader *r, const struct setup *u, struct setup_entry *e)
{
    e->site = bytes_get_u32(r);
    size_t n = bytes_get_u8(r);
    const uint8_t *name = bytes_view(r, n);
    e->certificate_bytes = bytes_get_u32(r);
    e->certificate = bytes_view(r, e->certificate_bytes);
    const uint8_t *said = bytes_view(r, KEYS_STATEMENT_BYTES);
    memset(e->name, 0, sizeof e->name);
    if (r->bad || n >= sizeof e->name || e->certificate_bytes > SIGNER_CERTIFICATE_MAX ||
        e->site >= u->sites ||
        keys_statement_read(&e->statement, said, KEYS_STATEMENT_BYTES) != ERR_OK)
        return false;
    memcpy(e->name, name, n);
    return e->statement.site == e->site;
}

/* Sites that this one needs a pair with by this setup: the added one with all others. */
static struct set setup_wanted(const struct site *s, const struct setup *u)
{
    struct set wanted = {0};
    bool all = u->number < 2 || u->added == s->o.index;
    for (unsigned i = 0; set_has(&u->members, s->o.index) && i < s->masks->room; i++)
        set_put(&wanted, i,
                i != s->o.index && set_has(&u->members, i) && (all || i == u->added) &&
                    keys_setup_of(s->masks->keys, i) < u->number);
    return wanted;
}

/* Those of these sites that this one has no pair with, or an old one. */
static struct set peers_missing(const struct site *s, const struct set *members)
{
    const struct site_masks *m = s->masks;
    struct set missing = {0};
    for (unsigned i = 0; i < m->room; i++)
        set_put(&missing, i,
                i != s->o.index && (set_has(members, i) || MUTANT(PAIR_WAITED)) &&
                    (!keys_has(m->keys, i) || set_has(&m->unpaired, i)));
    return missing;
}

/* ERR_DENIED: refused, and *answer says as what. */
static enum err entry_take(struct site *s, const struct setup_entry *e, struct setup *u,
                           const char **answer)
{
    struct site_masks *m = s->masks;
    bool had = keys_has(m->keys, e->site);
    if (e->site == s->o.index || e->statement.setup != keys_setup_number(m->keys))
        return ERR_OK; /* of a setup that this site is not in, or not any more */
    *answer = "identity";
    TRY(peer_pin(s, e, !had));
    enum keys_answer said = keys_pair(m->keys, s->o.signer, &m->peer[e->site].key, &e->statement);
    *answer = keys_answer_name(said);
    if (said == KEYS_pair_no_memory)
        return err_set(ERR_MEMORY, "%s", keys_answer_text(said));
    if (said == KEYS_pair_unknown_site) /* it is in no need of this site's key, nor this of its */
        return ERR_OK;
    if (said != KEYS_ok)
        return err_set(ERR_DENIED, "%s", keys_answer_text(said));
    u->changed = u->changed || !had;
    return ERR_OK;
}

/* Without the pair the site waits, and asks again. */
static void key_refused(struct site_slot *l, const char *name, const char *answer, const char *why)
{
    char who[2 * WIRE_NAME_MAX], quoted[512];
    log_event(LOG_ERROR, "key_refused", "site=%s answer=%s why=%s",
              log_quote(who, sizeof who, name), answer, log_quote(quoted, sizeof quoted, why));
    site_notice(l, "refuses the public key of site %s: %s", name, why);
    err_clear();
}

/* The statements of one answer. */
static enum err setup_read(struct site_slot *l, const struct step *x, struct setup *u)
{
    struct bytes_reader r = bytes_reader(x->answer.body, x->answer.body_bytes);
    struct setup_entry entry;
    const char *answer;
    u->number = x->answer.number;
    u->malformed = !setup_head(l->site, &r, u);
    while (!u->malformed && bytes_left(&r)) {
        u->malformed = !entry_read(&r, u, &entry);
        enum err e = u->malformed ? ERR_OK : entry_take(l->site, &entry, u, &answer);
        if (e == ERR_DENIED)
            key_refused(l, entry.name, answer, err_message());
        else
            TRY(e);
    }
    if (u->malformed)
        key_refused(l, "?", "malformed", "the list of the sites' public keys is malformed");
    return ERR_OK;
}

/* It begins once its number is known: each site has one key in each of them. */
static enum err setup_begin(struct site *s, const struct setup *u)
{
    struct site_masks *m = s->masks;
    struct set wanted = setup_wanted(s, u);
    struct cipher_key own;
    if (!set_count(&wanted) || keys_setup_number(m->keys) >= u->number)
        return ERR_OK;
    s->env->ops->random(s->env, &own, sizeof own);
    enum err e = keys_setup(m->keys, u->number, &wanted, &own, u->first);
    cipher_wipe(&own, sizeof own);
    return e == ERR_OK ? keys_store(s) : e;
}

static enum err setup_state(struct site *s, struct step *x, uint8_t own[KEYS_STATEMENT_BYTES])
{
    struct keys_statement statement;
    x->m.round = s->masks->paired;
    x->m.body_bytes = 0;
    TRY(keys_stored(s));
    if (!keys_setup_number(s->masks->keys))
        return ERR_OK;
    TRY(keys_statement_own(s->masks->keys, s->o.signer, &statement));
    keys_statement_write(&statement, own);
    x->m.body = own;
    x->m.body_bytes = KEYS_STATEMENT_BYTES;
    return ERR_OK;
}

/* Own statement to the aggregator, the others' from it, all pages. *read: all of it was. */
static enum err setup_pages(struct site_slot *l, struct step *x, struct setup *u, bool *read)
{
    uint8_t own[KEYS_STATEMENT_BYTES];
    bool done, more = true;
    *u = (struct setup){.number = 0};
    *read = false;
    x->m.first = 0;
    while (more) {
        TRY(setup_state(l->site, x, own));
        TRY(step_call(l, x, &done));
        if (!done)
            return ERR_OK;
        TRY(setup_read(l, x, u));
        uint64_t next = x->answer.answer.offset;
        more = !u->malformed && next > x->m.first && next < u->sites;
        x->m.first = (uint32_t)next;
    }
    *read = !u->malformed;
    return ERR_OK;
}

/* New pairs begin with their setup's first round, which may be final by now. */
static enum err pairs_store(struct site *s)
{
    struct site_masks *m = s->masks;
    for (unsigned f = 0; f < s->replica->fragments->count; f++)
        if (m->final[f] && !MUTANT(PAIR_BEGUN))
            keys_final(m->keys, f, m->final[f] - 1);
    return keys_store(s);
}

static enum err setup_once(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    struct site_masks *m = s->masks;
    uint32_t version = s->roster_version[fragment % site_peers(s)];
    struct setup u;
    struct step *x;
    bool read;
    TRY(step_open(&x, WIRE_MASK_SETUP, fragment, 0));
    enum err e = setup_pages(l, x, &u, &read);
    free(x);
    TRY(e);
    if (u.changed)
        TRY(pairs_store(s));
    if (!read)
        return ERR_OK;
    TRY(setup_begin(s, &u));
    m->looked = version;
    m->unpaired = setup_wanted(s, &u);
    if (set_count(&m->unpaired) || u.number <= m->paired)
        return ERR_OK;
    m->paired = u.number;
    log_event(LOG_INFO, "pair_keys", "setup=%" PRIu32, u.number);
    return ERR_OK;
}

/* What the first one begins, or finds, is said in the next. */
static enum err setup_exchange(struct site_slot *l, unsigned fragment)
{
    const struct site_masks *m = l->site->masks;
    uint32_t begun, paired;
    do {
        begun = keys_setup_number(m->keys);
        paired = m->paired;
        TRY(setup_once(l, fragment));
    } while (keys_setup_number(m->keys) != begun || m->paired != paired);
    return ERR_OK;
}

/* ---- which sites a round has ---- */

/* What this site knows for itself: the sites of its newest state, or, where the round is the first
 * one of the next version, these with one change. */
static enum err context_of(struct site *s, const struct site_announced_round *r,
                           struct seal_context *c)
{
    struct site_masks *m = s->masks;
    struct roster now;
    bool known;
    TRY(site_roster_now(s, r->of.fragment, &now, &known));
    struct set more = set_without(&r->of.u, &now.members),
               less = set_without(&now.members, &r->of.u);
    bool next =
        known && r->roster_version == now.version + 1 && set_count(&more) + set_count(&less) == 1;
    *c = (struct seal_context){.run = s->o.run,
                               .config = s->config,
                               .roster_version = r->roster_version,
                               .sites = r->sites,
                               .members = next ? r->of.u : now.members,
                               .colluding = s->o.masks.colluding,
                               .two_sites = s->o.masks.two_sites,
                               .identity = m->identity};
    if (!known || (!next && r->roster_version != now.version))
        c->members = (struct set){0}; /* all sites are strangers */
    for (unsigned i = 0; i < m->room; i++)
        m->identity[i] = m->peer[i].key;
    s->o.signer->ops->key(s->o.signer, &m->identity[s->o.index]);
    site_identity_key(s, r->of.fragment % site_peers(s), &c->aggregator);
    return ERR_OK;
}

/* The roster that the run began with needs no question. */
static void round_first_roster(const struct site *s, struct site_announced_round *r)
{
    r->roster_version = 1;
    r->sites = s->o.site_count;
    r->of.u = (struct set){0};
    for (unsigned i = 0; i < s->o.site_count; i++)
        set_put(&r->of.u, i, true);
}

static bool announced_read(const struct site *s, const struct step *x,
                           struct site_announced_round *r)
{
    struct bytes_reader b = bytes_reader(x->answer.body, x->answer.body_bytes);
    r->roster_version = bytes_get_u32(&b);
    r->sites = bytes_get_u32(&b);
    return !b.bad && r->sites <= s->masks->room && seal_set_read(&b, &r->of.u, r->sites) &&
           !bytes_left(&b);
}

/* Until the aggregator has said it. *over: the round is, and nothing of it is sent any more. */
static enum err announced_asked(struct site_slot *l, struct site_announced_round *r, bool *over)
{
    struct site *s = l->site;
    struct step *x;
    bool done = false;
    *over = false;
    TRY(step_open(&x, WIRE_MASK_ANNOUNCE, r->of.fragment, r->of.round));
    enum err e = ERR_OK;
    while (e == ERR_OK && !done && !*over) {
        e = step_call(l, x, &done);
        *over = e == ERR_OK && !done && x->answer.answer.outcome == ROUND_BEHIND;
        if (e == ERR_OK && done && !announced_read(s, x, r)) {
            done = false;
            e = step_refused(l, r->of.fragment, r->of.round, "mask", SEAL_malformed);
        }
    }
    free(x);
    return e;
}

static enum err announced_ask(struct site_slot *l, struct site_announced_round *r, bool *over)
{
    const struct site *s = l->site;
    *over = false;
    round_first_roster(s, r);
    return s->roster_version[r->of.fragment % site_peers(s)] < 2 ? ERR_OK
                                                                 : announced_asked(l, r, over);
}

/* ok, again: this site masks for these sites. *over: it was removed before this round. */
static enum err announced_check(struct site *s, const struct site_announced_round *r,
                                enum seal_answer *answer, bool *over)
{
    struct seal_context c;
    TRY(context_of(s, r, &c));
    *answer = seal_site_announced(s->masks->seals, &c, &r->of);
    *over = set_count(&c.members) && !set_has(&c.members, s->o.index) &&
            set_within(&c.members, &r->of.u) && set_within(&r->of.u, &c.members);
    return ERR_OK;
}

/* A pair with each site of the round; or the round is over meanwhile. A new version of the roster
 * may have brought a site that this one had an old pair with. */
static enum err pairs_wait(struct site_slot *l, const struct site_announced_round *r, bool *over)
{
    struct site *s = l->site;
    struct site_announced_round now = *r;
    uint64_t pause = SETUP_FIRST_MS;
    bool looks = r->roster_version > 1 && s->masks->looked < r->roster_version;
    struct set missing = peers_missing(s, &r->of.u);
    for (unsigned i = 0; !*over && (looks || set_count(&missing)); i++) {
        if (i) {
            site_notice(l, "waiting for the public keys of %u other sites (secure aggregation)",
                        set_count(&missing));
            TRY(site_sleep(l, pause));
            pause = 2 * pause < SETUP_LAST_MS ? 2 * pause : SETUP_LAST_MS;
        }
        TRY(setup_exchange(l, r->of.fragment));
        looks = false;
        missing = peers_missing(s, &r->of.u);
        if (set_count(&missing))
            TRY(announced_asked(l, &now, over));
    }
    return ERR_OK;
}

/* Pairs that begin with a later round, or are wiped, mask nothing. */
static enum seal_answer pairs_reach(const struct site *s, const struct site_announced_round *r)
{
    struct cipher_key seed = {{0}};
    enum keys_answer a = KEYS_ok;
    for (unsigned i = 0; i < s->masks->room && a == KEYS_ok; i++)
        if (i != s->o.index && set_has(&r->of.u, i))
            a = keys_seed(s->masks->keys, &seed, r->of.fragment, i, r->of.round, r->of.attempt);
    cipher_wipe(&seed, sizeof seed);
    return a == KEYS_ok ? SEAL_ok : SEAL_reveal_no_key;
}

enum err site_masks_announced(struct site_slot *l, unsigned fragment, uint64_t round,
                              struct site_announced_round *r)
{
    struct site *s = l->site;
    enum seal_answer answer = SEAL_malformed;
    bool over = false;
    *r = (struct site_announced_round){.of = {.fragment = fragment, .round = round}};
    if (!s->o.masks.on)
        return ERR_OK;
    TRY(masks_open(s));
    while (answer != SEAL_ok && !over) {
        TRY(announced_ask(l, r, &over));
        if (!over)
            TRY(announced_check(s, r, &answer, &over));
        if (!over && (answer == SEAL_ok || answer == SEAL_again)) {
            TRY(pairs_wait(l, r, &over));
            answer = over ? answer : pairs_reach(s, r);
        }
        if (!over && answer != SEAL_ok)
            TRY(step_refused(l, fragment, round, "mask", answer));
    }
    if (over)
        r->of.u = (struct set){0};
    return keys_stored(s);
}

/* ---- the mask ---- */

static enum err answer_err(const char *what, enum seal_answer a)
{
    if (a == SEAL_no_memory)
        return err_set(ERR_MEMORY, "no memory for %s", what);
    return err_set(ERR_DISAGREE, "%s: %s: %s", what, seal_answer_name(a), seal_answer_text(a));
}

static enum err masked_room(struct site_slot *l, size_t size)
{
    if (size <= l->masked_room)
        return ERR_OK;
    arena_free(&l->masks);
    l->masks = arena_make(0);
    l->masked = arena_alloc(&l->masks, size);
    l->masked_room = l->masked ? size : 0;
    return l->masked
               ? ERR_OK
               : err_set(ERR_MEMORY, "no memory for a masked contribution of %zu bytes", size);
}

enum err site_masks_room(struct site_slot *l, size_t size)
{
    return masked_room(l, size);
}

static enum err masks_apply(struct site *s, const struct site_announced_round *r,
                            const struct cipher_key *b, uint8_t *words,
                            const struct mask_layout *layout)
{
    unsigned n = set_count(&r->of.u);
    struct cipher_key *seeds = cipher_secret_alloc(n * sizeof *seeds);
    struct mask_term *terms = calloc(n, sizeof *terms);
    enum err e = seeds && terms ? ERR_OK : err_set(ERR_MEMORY, "no memory for the masks");
    if (e == ERR_OK) {
        enum seal_answer a =
            seal_site_terms(s->masks->seals, s->masks->keys, &r->of, b, seeds, terms);
        n = MUTANT(MASK_PAIRS_LEFT) ? 1 : n;
        e = a == SEAL_ok ? mask_apply(words, layout, terms, n, s->replica->dev->threads)
                         : answer_err("the masks of the round", a);
    }
    free(terms);
    if (seeds)
        cipher_secret_free(seeds, set_count(&r->of.u) * sizeof *seeds);
    return e;
}

enum err site_masks_apply(struct site_slot *l, const struct site_announced_round *r,
                          const struct codec *c)
{
    struct site *s = l->site;
    unsigned f = r->of.fragment;
    struct seal_context context;
    struct mask_layout layout;
    if (!set_count(&r->of.u))
        return ERR_OK; /* never to be sent */
    TRY(context_of(s, r, &context));
    enum seal_answer a = seal_site_announced(s->masks->seals, &context, &r->of);
    if (a != SEAL_ok && a != SEAL_again) /* again: made, and lost before it was stored */
        return answer_err("the sites of the round", a);
    TRY(masked_layout(&layout, c, s->replica->fragments->f[f].elements, set_count(&r->of.u)));
    TRY(masked_room(l, layout.size_bytes));
    masked_pack(l->masked, &layout, c, l->payload, s->replica->dev->threads);
    s->env->ops->random(s->env, &l->box.b, sizeof l->box.b);
    if (MUTANT(MASK_OWN_KEPT))
        memset(&l->box.b, 1, sizeof l->box.b);
    TRY(masks_apply(s, r, &l->box.b, l->masked, &layout));
    l->box.masked_bytes = layout.size_bytes;
    l->box.announced = *r;
    return ERR_OK;
}

enum err site_masks_sending(struct site_slot *l, bool *may)
{
    struct site *s = l->site;
    const struct site_box *b = &l->box;
    struct seal_context c;
    bool persist;
    *may = !s->o.masks.on || b->masked_bytes || MUTANT(CLEAR_SENT);
    if (!b->masked_bytes)
        return ERR_OK;
    TRY(masks_open(s));
    TRY(context_of(s, &b->announced, &c));
    enum seal_answer a =
        seal_site_contribute(s->masks->seals, &c, &b->announced.of, &b->b, &b->payload, &persist);
    *may = a == SEAL_ok || a == SEAL_again;
    if (!*may)
        return step_refused(l, b->fragment, b->round, "send", a);
    return seals_stored(s, persist);
}

/* ---- seal and reveal ---- */

/* Is it a seal of the round that was asked about? What is kept of it is filed under that round. */
static enum seal_answer seal_of_round(const struct seal_context *c, const struct seal_signed *in,
                                      const struct site_announced_round *r)
{
    struct seal seal;
    enum seal_answer a = seal_read(c, &seal, in->bytes, in->size_bytes);
    bool other = seal.of.fragment != r->of.fragment || seal.of.round != r->of.round;
    return a == SEAL_ok && other ? SEAL_seal_other_round : a;
}

static enum err seal_sign(struct site_slot *l, struct step *x, const struct site_announced_round *r)
{
    struct site *s = l->site;
    struct seal_context c;
    struct seal_signature own;
    uint8_t bytes[SEAL_SIGNATURE_BYTES];
    bool persist = false, done;
    size_t n = x->answer.body_bytes;
    TRY(context_of(s, r, &c));
    struct seal_signed seal = {x->answer.body, n - SIGNER_BYTES, x->answer.body + n - SIGNER_BYTES};
    enum seal_answer a = n > SIGNER_BYTES ? seal_of_round(&c, &seal, r) : SEAL_malformed;
    if (a == SEAL_ok)
        a = seal_site_sign(s->masks->seals, &c, s->o.signer, &seal, &own, &persist);
    if (a != SEAL_ok && a != SEAL_again)
        return step_refused(l, r->of.fragment, r->of.round, "sign", a);
    if (!MUTANT(SEAL_UNSTORED))
        TRY(seals_stored(s, persist));
    seal_signature_write(&own, bytes);
    x->m.body = bytes;
    x->m.body_bytes = sizeof bytes;
    enum err e = step_call(l, x, &done);
    x->m.body_bytes = 0;
    return e;
}

struct answered { /* a REVEAL's answer */
    struct seal_signed seal;
    struct seal_signature *signatures; /* [ROUND_SITES_MAX] */
    size_t count;
    const uint8_t *bytes; /* of the signatures */
};

static bool answered_read(struct answered *to, const struct step *x)
{
    struct bytes_reader r = bytes_reader(x->answer.body, x->answer.body_bytes);
    size_t n = bytes_get_u32(&r);
    to->seal.bytes = bytes_view(&r, n);
    to->seal.size_bytes = n;
    to->seal.signature = bytes_view(&r, SIGNER_BYTES);
    size_t left = r.bad ? 1 : bytes_left(&r);
    if (left % SEAL_SIGNATURE_BYTES || left / SEAL_SIGNATURE_BYTES > ROUND_SITES_MAX)
        return false;
    to->count = left / SEAL_SIGNATURE_BYTES;
    to->bytes = bytes_view(&r, left);
    for (size_t i = 0; i < to->count; i++)
        if (seal_signature_read(&to->signatures[i], to->bytes + i * SEAL_SIGNATURE_BYTES,
                                SEAL_SIGNATURE_BYTES) != SEAL_ok)
            return false;
    return true;
}

/* The identity keys of the sealed sites, in the order of the sites. */
static size_t sealed_keys(const struct seal_context *c, const struct answered *got,
                          struct signer_key keys[ROUND_SITES_MAX])
{
    struct seal seal;
    size_t n = 0;
    if (seal_read(c, &seal, got->seal.bytes, got->seal.size_bytes) != SEAL_ok)
        return 0; /* it was read before: never */
    for (unsigned i = 0; i < c->sites; i++)
        if (set_has(&seal.s, i))
            keys[n++] = c->identity[i];
    return n;
}

/* seals/F/t: evidence of what is about to leave. */
static enum err seal_keep(struct site_slot *l, const struct seal_context *context,
                          const struct site_announced_round *r, const struct answered *got)
{
    struct site *s = l->site;
    const struct site_box *b = &l->box;
    unsigned f = r->of.fragment;
    bool here = b->valid && b->fragment == f && b->round == r->of.round;
    uint64_t charged = here ? b->charged : s->charged;
    char path[PATH_BYTES];
    const struct codec *c = codec_get(outer_state_codec(s->replica, f));
    struct seal_kept kept = {.run = s->o.run,
                             .fragment = f,
                             .round = r->of.round,
                             .unix_ms = s->env->ops->unix_ms(s->env),
                             .roster_version = r->roster_version,
                             .sites = r->sites,
                             .colluding = s->o.masks.colluding,
                             .site = s->o.index,
                             .payload_bytes = codec_words_bytes(
                                 c, s->replica->fragments->f[f].elements, set_count(&r->of.u)),
                             .charged = charged,
                             .config = s->config};
    struct signer_key aggregator, own, keys[ROUND_SITES_MAX];
    struct file_part parts[SEAL_KEPT_COUNT] = {
        [SEAL_KEPT_SEAL] = {got->seal.bytes, got->seal.size_bytes},
        [SEAL_KEPT_SIGNATURE] = {got->seal.signature, SIGNER_BYTES},
        [SEAL_KEPT_SIGNATURES] = {got->bytes, got->count * SEAL_SIGNATURE_BYTES},
        [SEAL_KEPT_KEYS] = {keys, sealed_keys(context, got, keys) * sizeof *keys}};
    struct record_section sections[SEAL_KEPT_COUNT];
    for (unsigned i = 0; i < SEAL_KEPT_COUNT; i++)
        sections[i] = (struct record_section){.parts = &parts[i], .part_count = 1};
    site_identity_key(s, f % site_peers(s), &aggregator);
    s->o.signer->ops->key(s->o.signer, &own);
    memcpy(kept.aggregator.bytes, aggregator.bytes, sizeof aggregator.bytes);
    memcpy(kept.own.bytes, own.bytes, sizeof own.bytes);
    snprintf(path, sizeof path, "seals/%u/%" PRIu64, f, r->of.round);
    if (s->env->ops->exists(s->env, path))
        return ERR_OK;
    struct record_form form = {"kept", seal_kept_fields, &kept};
    return store_write(s->env, path, &form, sections, SEAL_KEPT_COUNT);
}

static enum err reveal_send(struct site_slot *l, struct step *x, const struct seal_reveal *v)
{
    bool done;
    size_t n = seal_reveal_bytes(v->count);
    uint8_t *bytes = n <= WIRE_MASK_REQUEST_MAX ? malloc(n) : NULL;
    if (!bytes)
        return err_set(ERR_MEMORY, "no memory to answer for %u absent sites", v->count);
    seal_reveal_write(v, bytes);
    x->m.body = bytes;
    x->m.body_bytes = n;
    enum err e = step_call(l, x, &done);
    x->m.body_bytes = 0;
    cipher_wipe(bytes, n);
    free(bytes);
    return e;
}

static enum err seal_reveal(struct site_slot *l, struct step *x,
                            const struct site_announced_round *r, struct answered *got,
                            struct seal_seed *seeds)
{
    struct site *s = l->site;
    struct seal_context c;
    struct seal_reveal v = {.seeds = seeds};
    bool persist = false;
    TRY(context_of(s, r, &c));
    enum seal_answer a = answered_read(got, x) ? seal_of_round(&c, &got->seal, r) : SEAL_malformed;
    if (a == SEAL_ok)
        a = seal_site_reveal(s->masks->seals, &c, s->o.signer, s->masks->keys, &got->seal,
                             got->signatures, got->count, &v, &persist);
    if (a != SEAL_ok && a != SEAL_again)
        return step_refused(l, r->of.fragment, r->of.round, "reveal", a);
    enum err e = MUTANT(SEAL_UNKEPT) ? ERR_OK : seal_keep(l, &c, r, got);
    if (e == ERR_OK)
        e = seals_stored(s, persist);
    if (e == ERR_OK)
        e = reveal_send(l, x, &v);
    cipher_wipe(&v, sizeof v);
    return e;
}

static enum err reveal_open(struct site_slot *l, struct step *x,
                            const struct site_announced_round *r)
{
    struct answered got = {.signatures = calloc(ROUND_SITES_MAX, sizeof *got.signatures)};
    struct seal_seed *seeds = cipher_secret_alloc(SET_MAX * sizeof *seeds);
    enum err e = got.signatures && seeds ? seal_reveal(l, x, r, &got, seeds)
                                         : err_set(ERR_MEMORY, "no memory to answer for a seal");
    if (seeds)
        cipher_secret_free(seeds, SET_MAX * sizeof *seeds);
    free(got.signatures);
    return e;
}

enum err site_masks_answer(struct site_slot *l, unsigned fragment, uint64_t round,
                           const struct wire_poll_answer *asked)
{
    enum wire_mask_step wants = asked->wants;
    struct site *s = l->site;
    struct site_announced_round r = {.of = {.fragment = fragment, .round = round}};
    struct step *x;
    bool done, over;
    bool known = wants == WIRE_MASK_SIGN || wants == WIRE_MASK_REVEAL || wants == WIRE_MASK_SETUP;
    if (!s->o.masks.on || !known)
        return step_refused(l, fragment, round, "answer", SEAL_malformed);
    TRY(masks_open(s));
    if (wants == WIRE_MASK_SETUP) { /* others may wait for this site's key */
        TRY(setup_exchange(l, fragment));
        return site_sleep(l, SETUP_FIRST_MS);
    }
    TRY(announced_ask(l, &r, &over));
    if (over)
        return ERR_OK;
    TRY(step_open(&x, wants, fragment, round));
    done = asked->body_bytes > 0; /* it came with the poll's answer */
    x->answer.body_bytes = asked->body_bytes;
    memcpy(x->answer.body, asked->body, asked->body_bytes);
    enum err e = done ? ERR_OK : step_call(l, x, &done);
    if (e == ERR_OK && done)
        e = wants == WIRE_MASK_SIGN ? seal_sign(l, x, &r) : reveal_open(l, x, &r);
    free(x);
    return e;
}

/* ---- the end of a round ---- */

enum err site_masks_abort(struct site *s, unsigned fragment, uint64_t round)
{
    if (!s->o.masks.on)
        return ERR_OK;
    TRY(masks_open(s));
    enum seal_answer a = seal_site_abort(s->masks->seals, fragment, round);
    if (a == SEAL_rounds_full || a == SEAL_round_old || a == SEAL_again)
        return seals_stored(s, false);
    return a == SEAL_ok ? seals_store(s) : answer_err("an aborted round", a);
}

/* What is not stored is tried again, as often as something is final. */
static void keys_wiped(struct site *s, enum err e)
{
    char quoted[512];
    if (e == ERR_OK)
        return;
    log_event(LOG_WARN, "keys_not_wiped", "dir=%s why=%s", s->env->root,
              log_quote(quoted, sizeof quoted, err_message()));
    err_clear();
}

/* Is it in a round that is not over? A pair that is newer than these rosters is for a round to
 * come. */
static bool pair_over(const struct site *s, unsigned site, const struct roster *r, unsigned count)
{
    bool in = false, own = false;
    uint32_t version = 0;
    for (unsigned f = 0; f < count; f++) {
        in = (in && !MUTANT(PAIR_DROPPED)) || set_has(&r[f].members, site);
        own = own || set_has(&r[f].members, s->o.index);
        version = r[f].version > version ? r[f].version : version;
    }
    return keys_has(s->masks->keys, site) && (!in || !own) &&
           keys_setup_of(s->masks->keys, site) <= version;
}

/* A pair with a site that was removed is wiped once no fragment has a round of both any more. */
enum err site_masks_roster(struct site *s)
{
    struct site_masks *m = s->masks;
    unsigned count = s->replica->fragments->count;
    struct roster *r = m && m->keys ? calloc(count, sizeof *r) : NULL;
    bool known = r != NULL, any = false;
    enum err e = ERR_OK;
    for (unsigned f = 0; f < count && known && e == ERR_OK; f++)
        e = site_roster_now(s, f, &r[f], &known);
    for (unsigned i = 0; i < (e == ERR_OK && known ? m->room : 0); i++)
        if (pair_over(s, i, r, count)) {
            keys_forget(m->keys, i);
            any = true;
        }
    free(r);
    if (any)
        keys_wiped(s, keys_store(s));
    return e;
}

void site_masks_final(struct site *s, unsigned fragment, uint64_t rounds)
{
    struct site_masks *m = s->masks;
    if (!m || !m->keys)
        return;
    bool later = rounds > m->final[fragment];
    bool owed = (m->keys_unstored || m->seals_unstored);
    if (later) {
        m->final[fragment] = rounds;
        seal_site_final(m->seals, fragment, rounds - 1);
        if (!MUTANT(KEYS_KEPT))
            keys_final(m->keys, fragment, rounds - !MUTANT(KEYS_AHEAD));
    }
    enum err e = later || owed ? seals_store(s) : ERR_OK;
    if (later || owed) {
        m->keys_unstored = true;
        e = e == ERR_OK ? keys_store(s) : e;
    }
    keys_wiped(s, e);
}

enum err site_masks_begin(struct site *s)
{
    if (!s->o.masks.on || s->o.index >= ROUND_SITES_MAX)
        return ERR_OK;
    TRY(masks_open(s));
    for (unsigned f = 0; f < s->replica->fragments->count; f++)
        site_masks_final(s, f, s->final[f]);
    return site_masks_roster(s);
}
