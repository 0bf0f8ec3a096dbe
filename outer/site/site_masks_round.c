/* SPDX-License-Identifier: Apache-2.0 */
/* Which sites a masked round has, a pair key with each of them, and the mask of this site's
 * contribution (docs/privacy-methods.md, "Secure aggregation"). */
#include "outer/site/site_masks_own.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "outer/masks/masked.h"
#include "outer/protocol/mutant.h"

enum { SETUP_FIRST_MS = 100, SETUP_LAST_MS = 2000 }; /* between two looks for others' keys */

enum err site_masks_context(struct site_slot *l, const struct site_announced_round *r,
                            struct seal_context *c)
{
    struct site *s = l->site;
    struct site_masks *m = s->masks;
    struct roster now;
    TRY(site_members_known(l, r->of.fragment, &now));
    struct set more = set_without(&r->members, &now.members),
               less = set_without(&now.members, &r->members);
    bool next = r->roster_version == now.version + 1 && set_count(&more) + set_count(&less) == 1;
    *c = (struct seal_context){.run = s->o->run,
                               .config = s->own.config,
                               .roster_version = r->roster_version,
                               .sites = r->sites,
                               .members = next ? r->members : now.members,
                               .colluding = s->o->masks.colluding,
                               .two_sites = s->o->masks.two_sites,
                               .identity = m->identity};
    if (!next && r->roster_version != now.version)
        c->members = (struct set){0}; /* all sites are strangers */
    for (unsigned i = 0; i < m->room; i++)
        m->identity[i] = m->peer[i].key;
    s->o->signer->ops->key(s->o->signer, &m->identity[s->own.index]);
    c->aggregator = s->peer[r->of.fragment % site_peers(s)].key;
    return ERR_OK;
}

/* The roster that the run began with needs no question. */
static void round_first_roster(const struct site *s, struct site_announced_round *r)
{
    r->roster_version = 1;
    r->sites = s->o->site_count;
    r->of.u = (struct set){0};
    for (unsigned i = 0; i < s->o->site_count; i++)
        set_put(&r->of.u, i, true);
    r->members = r->of.u;
}

static bool announced_round_read(const struct site *s, const struct masks_step *x,
                                 struct site_announced_round *r)
{
    struct bytes_reader b = bytes_reader(x->answer.body, x->answer.body_bytes);
    r->roster_version = bytes_get_u32(&b);
    r->sites = bytes_get_u32(&b);
    return !b.bad && r->sites <= s->masks->room && seal_set_read(&b, &r->members, r->sites) &&
           seal_set_read(&b, &r->of.u, r->sites) && !bytes_left(&b);
}

/* Until the aggregator has said it. *over: the round is, and nothing of it is sent any more. */
static enum err announced_asked(struct site_slot *l, struct site_announced_round *r, bool *over)
{
    struct site *s = l->site;
    struct masks_step *x;
    bool done = false;
    *over = false;
    TRY(site_masks_step(&x, WIRE_MASK_ANNOUNCE, r->of.fragment, r->of.round));
    enum err e = ERR_OK;
    while (e == ERR_OK && !done && !*over) {
        e = site_masks_call(l, x, &done);
        *over = e == ERR_OK && !done && x->answer.answer.outcome == ROUND_BEHIND;
        if (e == ERR_OK && done && !announced_round_read(s, x, r)) {
            done = false;
            e = site_masks_refused(l, r->of.fragment, r->of.round, "mask", SEAL_malformed);
        }
    }
    free(x);
    return e;
}

enum err site_masks_ask(struct site_slot *l, struct site_announced_round *r, bool *over)
{
    const struct site *s = l->site;
    *over = false;
    round_first_roster(s, r);
    return s->members.version[r->of.fragment % site_peers(s)] < 2 ? ERR_OK
                                                                  : announced_asked(l, r, over);
}

/* ok, again: this site masks for these sites. *over: it was removed before this round, or it was
 * added, and in quorum mode rounds are made without it until all sites have pair keys with it. */
static enum err announced_check(struct site_slot *l, const struct site_announced_round *r,
                                enum seal_answer *answer, bool *over)
{
    const struct site *s = l->site;
    struct seal_context c;
    TRY(site_masks_context(l, r, &c));
    *answer = seal_site_announced(s->masks->seals, &c, &r->of);
    bool all = set_within(&c.members, &r->of.u), in = set_has(&c.members, s->own.index);
    if (s->o->strict && !all && *answer == SEAL_ok)
        *answer = SEAL_announce_too_small; /* there every sum has all sites */
    bool later =
        !s->o->strict && in && !set_has(&r->of.u, s->own.index); /* it was added, and waits */
    *over = set_within(&r->of.u, &c.members) && set_count(&c.members) && ((!in && all) || later);
    return ERR_OK;
}

/* "c, d", as far as there is room; of an added site that has not come the name is not known. */
static void masking_names_text(const struct site *s, const struct set *sites, char *out,
                               size_t size)
{
    size_t used = 0;
    *out = 0;
    for (unsigned i = 0; i < s->masks->room && used + 1 < size; i++) {
        const struct peer *p = &s->masks->peer[i];
        const char *name = i < s->o->site_count ? s->o->roster[i]
                           : p->pinned          ? p->name
                                                : "an added site";
        if (!set_has(sites, i))
            continue;
        int n = snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
        used = n < 0 || used + (size_t)n >= size ? size - 1 : used + (size_t)n;
    }
}

/* A pair with each site of the round; or the round is over meanwhile. A new version of the roster
 * may have brought a site that this one had an old pair with. */
static enum err pairs_wait(struct site_slot *l, const struct site_announced_round *r, bool *over)
{
    struct site *s = l->site;
    struct site_announced_round now = *r;
    uint64_t pause = SETUP_FIRST_MS;
    bool looks = r->roster_version > 1 && s->masks->looked < r->roster_version;
    struct set missing = site_masks_missing(s, &r->of.u);
    char names[256];
    for (unsigned i = 0; !*over && (looks || set_count(&missing)); i++) {
        if (i) {
            masking_names_text(s, &missing, names, sizeof names);
            site_notice(l, "waiting for the public keys of %s (secure aggregation)", names);
            TRY(site_sleep(l, pause));
            pause = 2 * pause < SETUP_LAST_MS ? 2 * pause : SETUP_LAST_MS;
        }
        TRY(site_masks_setup(l, r->of.fragment));
        looks = false;
        missing = site_masks_missing(s, &r->of.u);
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
        if (i != s->own.index && set_has(&r->of.u, i))
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
    if (!s->o->masks.on)
        return ERR_OK;
    TRY(site_masks_open(s));
    while (answer != SEAL_ok && !over) {
        TRY(site_masks_ask(l, r, &over));
        if (!over)
            TRY(announced_check(l, r, &answer, &over));
        if (!over && (answer == SEAL_ok || answer == SEAL_again)) {
            TRY(pairs_wait(l, r, &over));
            answer = over ? answer : pairs_reach(s, r);
        }
        if (!over && answer != SEAL_ok)
            TRY(site_masks_refused(l, fragment, round, "mask", answer));
    }
    if (over)
        r->of.u = (struct set){0};
    return site_masks_keys_stored(s);
}

/* ---- the mask ---- */

enum err site_masks_room(struct site_slot *l, size_t size)
{
    return site_buffer_grow(&l->masked, arena_make(0), size, "a masked contribution");
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
                         : site_masks_err("the masks of the round", a);
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
    TRY(site_masks_context(l, r, &context));
    enum seal_answer a = seal_site_announced(s->masks->seals, &context, &r->of);
    if (a != SEAL_ok && a != SEAL_again) /* again: made, and lost before it was stored */
        return site_masks_err("the sites of the round", a);
    TRY(masked_layout(&layout, c, s->replica->fragments->f[f].elements, set_count(&r->of.u)));
    TRY(site_masks_room(l, layout.size_bytes));
    masked_pack(l->masked.bytes, &layout, c, l->payload.bytes, s->replica->dev->threads);
    s->env->ops->random(s->env, &l->box.b, sizeof l->box.b);
    if (MUTANT(MASK_OWN_KEPT))
        memset(&l->box.b, 1, sizeof l->box.b);
    TRY(masks_apply(s, r, &l->box.b, l->masked.bytes, &layout));
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
    *may = !s->o->masks.on || b->masked_bytes || MUTANT(CLEAR_SENT);
    if (!b->masked_bytes)
        return ERR_OK;
    TRY(site_masks_open(s));
    TRY(site_masks_context(l, &b->announced, &c));
    enum seal_answer a = seal_site_contribute(s->masks->seals, &c, &b->announced.of, &b->b,
                                              &b->made.payload, &persist);
    *may = a == SEAL_ok || a == SEAL_again;
    if (!*may)
        return site_masks_refused(l, b->fragment, b->round, "send", a);
    return site_masks_seals_stored(s, persist);
}
