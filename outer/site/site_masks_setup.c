/* SPDX-License-Identifier: Apache-2.0 */
/* Pair keys of secure aggregation (docs/privacy-methods.md): this site's public key of each setup
 * to the aggregator, the other sites' from it, each signed by its site's identity. */
#include "outer/site/site_masks_own.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/protocol/mutant.h"

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
    bool named = e->site < s->o->site_count ? strcmp(e->name, s->o->roster[e->site]) == 0
                                            : !name_taken(m, e->site, e->name);
    if (!named)
        return err_set(ERR_DENIED, "the aggregator names site %" PRIu32 " of the roster %s",
                       e->site, e->name);
    snprintf(uri, sizeof uri, "atoll://%s/site/%s", s->o->run, e->name);
    TRY(s->o->signer->ops->certified(s->o->signer, e->certificate, e->certificate_bytes, uri,
                                     &seen));
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
    enum err written = site_masks_peers_write(s);
    if (written != ERR_OK)
        *p = before;
    else
        log_event(before.pinned ? LOG_WARN : LOG_INFO, "peer_key", "peer=%s renewed=%d", e->name,
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

static bool setup_entry_read(struct bytes_reader *r, const struct setup *u, struct setup_entry *e)
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
    bool all = u->number < 2 || u->added == s->own.index;
    for (unsigned i = 0; set_has(&u->members, s->own.index) && i < s->masks->room; i++)
        set_put(&wanted, i,
                i != s->own.index && set_has(&u->members, i) && (all || i == u->added) &&
                    keys_setup_of(s->masks->keys, i) < u->number);
    return wanted;
}

struct set site_masks_missing(const struct site *s, const struct set *members)
{
    const struct site_masks *m = s->masks;
    struct set missing = {0};
    for (unsigned i = 0; i < m->room; i++)
        set_put(&missing, i,
                i != s->own.index && (set_has(members, i) || MUTANT(PAIR_WAITED)) &&
                    (!keys_has(m->keys, i) || set_has(&m->unpaired, i)));
    return missing;
}

/* ERR_DENIED: refused, and *answer says as what. */
static enum err setup_entry_take(struct site *s, const struct setup_entry *e, struct setup *u,
                                 const char **answer)
{
    struct site_masks *m = s->masks;
    bool had = keys_has(m->keys, e->site);
    if (e->site == s->own.index || e->statement.setup != keys_setup_number(m->keys))
        return ERR_OK; /* of a setup that this site is not in, or not any more */
    *answer = "identity";
    TRY(peer_pin(s, e, !had));
    enum keys_answer said = keys_pair(m->keys, s->o->signer, &m->peer[e->site].key, &e->statement);
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
    log_event(LOG_ERROR, "key_refused", "peer=%s answer=%s why=%s",
              log_quote(who, sizeof who, name), answer, log_quote(quoted, sizeof quoted, why));
    site_notice(l, "refuses the public key of site %s: %s", name, why);
    err_clear();
}

/* The statements of one answer. */
static enum err setup_read(struct site_slot *l, const struct masks_step *x, struct setup *u)
{
    struct bytes_reader r = bytes_reader(x->answer.body, x->answer.body_bytes);
    struct setup_entry entry;
    const char *answer;
    u->number = x->answer.number;
    u->malformed = !setup_head(l->site, &r, u);
    while (!u->malformed && bytes_left(&r)) {
        u->malformed = !setup_entry_read(&r, u, &entry);
        enum err e = u->malformed ? ERR_OK : setup_entry_take(l->site, &entry, u, &answer);
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
    return e == ERR_OK ? site_masks_keys_store(s) : e;
}

static enum err setup_state(struct site *s, struct masks_step *x, uint8_t own[KEYS_STATEMENT_BYTES])
{
    struct keys_statement statement;
    x->m.round = s->masks->paired;
    x->m.body_bytes = 0;
    TRY(site_masks_keys_stored(s));
    if (!keys_setup_number(s->masks->keys))
        return ERR_OK;
    TRY(keys_statement_own(s->masks->keys, s->o->signer, &statement));
    keys_statement_write(&statement, own);
    x->m.body = own;
    x->m.body_bytes = KEYS_STATEMENT_BYTES;
    return ERR_OK;
}

/* Own statement to the aggregator, the others' from it, all pages. *read: all of it was. */
static enum err setup_pages(struct site_slot *l, struct masks_step *x, struct setup *u, bool *read)
{
    uint8_t own[KEYS_STATEMENT_BYTES];
    bool done, more = true;
    *u = (struct setup){.number = 0};
    *read = false;
    x->m.first = 0;
    while (more) {
        TRY(setup_state(l->site, x, own));
        TRY(site_masks_call(l, x, &done));
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
    return site_masks_keys_store(s);
}

static enum err setup_once(struct site_slot *l, unsigned fragment)
{
    struct site *s = l->site;
    struct site_masks *m = s->masks;
    uint32_t version = s->members.version[fragment % site_peers(s)];
    struct setup u;
    struct masks_step *x;
    bool read;
    TRY(site_masks_step(&x, WIRE_MASK_SETUP, fragment, 0));
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
enum err site_masks_setup(struct site_slot *l, unsigned fragment)
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
