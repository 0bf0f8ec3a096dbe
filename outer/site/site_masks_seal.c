/* SPDX-License-Identifier: Apache-2.0 */
/* The seal of a masked round at a site: it signs one, and reveals its own mask for that one
 * (docs/privacy-methods.md, "Secure aggregation"). */
#include "outer/site/site_masks_own.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/masks/seal_kept.h"
#include "outer/protocol/mutant.h"

enum { ASKED_MS = 100, PATH_BYTES = 64 }; /* ASKED_MS: after a setup that the poll asked for */

/* Is it a seal of the requested round? Its evidence is filed under that round. */
static enum seal_answer seal_of_round(const struct seal_context *c, const struct seal_signed *in,
                                      const struct site_announced_round *r)
{
    struct seal seal;
    enum seal_answer a = seal_read(c, &seal, in->bytes, in->size_bytes);
    bool other = seal.of.fragment != r->of.fragment || seal.of.round != r->of.round;
    return a == SEAL_ok && other ? SEAL_seal_other_round : a;
}

static enum err seal_sign(struct site_slot *l, struct masks_step *x,
                          const struct site_announced_round *r)
{
    struct site *s = l->site;
    struct seal_context c;
    struct seal_signature own;
    uint8_t bytes[SEAL_SIGNATURE_BYTES];
    bool persist = false, done;
    size_t n = x->answer.body_bytes;
    TRY(site_masks_context(l, r, &c));
    struct seal_signed seal = {x->answer.body, n - SIGNER_BYTES, x->answer.body + n - SIGNER_BYTES};
    enum seal_answer a = n > SIGNER_BYTES ? seal_of_round(&c, &seal, r) : SEAL_malformed;
    if (a == SEAL_ok)
        a = seal_site_sign(s->masks->seals, &c, s->o->signer, &seal, &own, &persist);
    if (a != SEAL_ok && a != SEAL_again)
        return site_masks_refused(l, r->of.fragment, r->of.round, "sign", a);
    if (!MUTANT(SEAL_UNSTORED))
        TRY(site_masks_seals_stored(s, persist));
    seal_signature_write(&own, bytes);
    x->m.body = bytes;
    x->m.body_bytes = sizeof bytes;
    enum err e = site_masks_call(l, x, &done);
    x->m.body_bytes = 0;
    return e;
}

struct answered { /* a REVEAL's answer */
    struct seal_signed seal;
    struct seal_signature *signatures; /* [ROUND_SITES_MAX] */
    size_t count;
    const uint8_t *bytes; /* of the signatures */
};

static bool answered_read(struct answered *to, const struct masks_step *x)
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

/* seals/F/t: evidence of bytes that are about to be sent. *kept: it was not there. */
static enum err seal_keep(struct site_slot *l, const struct seal_context *context,
                          const struct site_announced_round *r, const struct answered *got,
                          bool *kept_now)
{
    struct site *s = l->site;
    const struct site_box *b = &l->box;
    unsigned f = r->of.fragment;
    bool here = b->valid && b->fragment == f && b->round == r->of.round;
    uint64_t charged = here ? b->made.charged : s->charged;
    char path[PATH_BYTES];
    const struct codec *c = codec_get(outer_state_codec(s->replica, f));
    struct seal_kept kept = {.run = s->o->run,
                             .fragment = f,
                             .round = r->of.round,
                             .unix_ms = s->env->ops->unix_ms(s->env),
                             .roster_version = r->roster_version,
                             .sites = r->sites,
                             .colluding = s->o->masks.colluding,
                             .site = s->own.index,
                             .payload_bytes = codec_words_bytes(
                                 c, s->replica->fragments->f[f].elements, set_count(&r->of.u)),
                             .charged = charged,
                             .config = s->own.config};
    struct signer_key own, keys[ROUND_SITES_MAX];
    const struct digest seal = digest_of(got->seal.bytes, got->seal.size_bytes);
    const struct seal_chain before = seal_site_kept(s->masks->seals, f),
                            with = seal_chain_next(&before, f, r->of.round, &seal);
    uint8_t chain[SEAL_CHAIN_BYTES];
    struct file_part parts[SEAL_KEPT_COUNT] = {
        [SEAL_KEPT_SEAL] = {got->seal.bytes, got->seal.size_bytes},
        [SEAL_KEPT_SIGNATURE] = {got->seal.signature, SIGNER_BYTES},
        [SEAL_KEPT_SIGNATURES] = {got->bytes, got->count * SEAL_SIGNATURE_BYTES},
        [SEAL_KEPT_KEYS] = {keys, sealed_keys(context, got, keys) * sizeof *keys},
        [SEAL_KEPT_CHAIN] = {chain, sizeof chain}};
    struct record_section sections[SEAL_KEPT_COUNT];
    for (unsigned i = 0; i < SEAL_KEPT_COUNT; i++)
        sections[i] = (struct record_section){.parts = &parts[i], .part_count = 1};
    const struct signer_key *aggregator = &s->peer[f % site_peers(s)].key;
    s->o->signer->ops->key(s->o->signer, &own);
    memcpy(kept.aggregator.bytes, aggregator->bytes, sizeof aggregator->bytes);
    memcpy(kept.own.bytes, own.bytes, sizeof own.bytes);
    snprintf(path, sizeof path, "seals/%u/%" PRIu64, f, r->of.round);
    if (s->env->ops->exists(s->env, path))
        return ERR_OK;
    struct record_form form = {"kept", seal_kept_fields, &kept};
    seal_chain_write(&before, chain);
    TRY(store_write(s->env, path, &form, sections, SEAL_KEPT_COUNT));
    seal_site_keep(s->masks->seals, f, &with);
    *kept_now = true;
    return ERR_OK;
}

/* The newest record of those that are named: how many there are with it. false: it cannot be read,
 * or it is of a program before records had numbers. */
static enum err kept_newest(const struct site *s, unsigned fragment, char **names, size_t count,
                            struct seal_chain *out, bool *numbered, struct arena *a)
{
    struct seal_kept k = {.run = ""};
    struct record_form form = {"kept", seal_kept_fields, &k};
    struct record file;
    struct seal_chain before;
    char path[PATH_BYTES];
    uint64_t newest = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t round = strtoull(names[i], NULL, 10);
        newest = round > newest ? round : newest;
    }
    snprintf(path, sizeof path, "seals/%u/%" PRIu64, fragment, newest);
    *numbered = false;
    enum err e = store_read(s->env, path, &form, SEAL_KEPT_BYTES_MAX, &file, a);
    if (e == ERR_CORRUPT || e == ERR_MISMATCH || e == ERR_INPUT)
        return ERR_OK; /* atoll privacy verify names it */
    TRY(e);
    *numbered = seal_kept_chain(&file, &before);
    struct digest seal =
        digest_of(file.sections[SEAL_KEPT_SEAL].data, file.sections[SEAL_KEPT_SEAL].size_bytes);
    *out = seal_chain_next(&before, fragment, newest, &seal);
    return ERR_OK;
}

static enum err kept_look(struct site *s, unsigned fragment, struct arena *a)
{
    char path[PATH_BYTES], **names = NULL;
    size_t count = 0;
    struct seal_chain at = seal_site_kept(s->masks->seals, fragment), here;
    bool numbered = false;
    snprintf(path, sizeof path, "seals/%u", fragment);
    if (s->env->ops->exists(s->env, path))
        TRY(s->env->ops->list(s->env, path, a, &names, &count));
    if (count)
        TRY(kept_newest(s, fragment, names, count, &here, &numbered, a));
    if (!numbered && !at.number) /* of a former program */
        at.number = count;
    if (numbered && here.number > at.number) /* killed before id/maskseals had it */
        at = here;
    seal_site_keep(s->masks->seals, fragment, &at);
    if (count < at.number)
        log_event(LOG_ERROR, "seals_missing",
                  "dir=%s/%s here=%zu kept=%" PRIu64
                  " why=\"evidence of what left this site is not here\" what=\"put the missing "
                  "records back from a copy; atoll privacy verify says which\"",
                  s->env->root, path, count, at.number);
    return ERR_OK;
}

enum err site_masks_kept(struct site *s)
{
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    for (unsigned f = 0; e == ERR_OK && f < s->replica->fragments->count; f++)
        e = kept_look(s, f, &scratch);
    arena_free(&scratch);
    return e;
}

static enum err reveal_send(struct site_slot *l, struct masks_step *x, const struct seal_reveal *v)
{
    bool done;
    size_t n = seal_reveal_bytes(v->count);
    uint8_t *bytes = n <= WIRE_MASK_REQUEST_MAX ? malloc(n) : NULL;
    if (!bytes)
        return err_set(ERR_MEMORY, "no memory to answer for %u absent sites", v->count);
    seal_reveal_write(v, bytes);
    x->m.body = bytes;
    x->m.body_bytes = n;
    enum err e = site_masks_call(l, x, &done);
    x->m.body_bytes = 0;
    cipher_wipe(bytes, n);
    free(bytes);
    return e;
}

static enum err seal_reveal(struct site_slot *l, struct masks_step *x,
                            const struct site_announced_round *r, struct answered *got,
                            struct seal_seed *seeds)
{
    struct site *s = l->site;
    struct seal_context c;
    struct seal_reveal v = {.seeds = seeds};
    bool persist = false;
    TRY(site_masks_context(l, r, &c));
    enum seal_answer a = answered_read(got, x) ? seal_of_round(&c, &got->seal, r) : SEAL_malformed;
    if (a == SEAL_ok)
        a = seal_site_reveal(s->masks->seals, &c, s->o->signer, s->masks->keys, &got->seal,
                             got->signatures, got->count, &v, &persist);
    if (a != SEAL_ok && a != SEAL_again)
        return site_masks_refused(l, r->of.fragment, r->of.round, "reveal", a);
    bool kept = false;
    enum err e = MUTANT(SEAL_UNKEPT) ? ERR_OK : seal_keep(l, &c, r, got, &kept);
    if (e == ERR_OK)
        e = site_masks_seals_stored(s, persist || kept);
    if (e == ERR_OK)
        e = reveal_send(l, x, &v);
    cipher_wipe(&v, sizeof v);
    return e;
}

static enum err reveal_open(struct site_slot *l, struct masks_step *x,
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
    struct masks_step *x;
    bool done, over;
    bool known = wants == WIRE_MASK_SIGN || wants == WIRE_MASK_REVEAL || wants == WIRE_MASK_SETUP;
    if (!s->o->masks.on || !known)
        return site_masks_refused(l, fragment, round, "answer", SEAL_malformed);
    TRY(site_masks_open(s));
    if (wants == WIRE_MASK_SETUP) { /* others may wait for this site's key */
        TRY(site_masks_setup(l, fragment));
        return site_sleep(l, ASKED_MS);
    }
    TRY(site_masks_ask(l, &r, &over));
    if (over)
        return ERR_OK;
    TRY(site_masks_step(&x, wants, fragment, round));
    done = asked->body_bytes > 0; /* it came with the poll's answer */
    x->answer.body_bytes = asked->body_bytes;
    memcpy(x->answer.body, asked->body, asked->body_bytes);
    enum err e = done ? ERR_OK : site_masks_call(l, x, &done);
    if (e == ERR_OK && done)
        e = wants == WIRE_MASK_SIGN ? seal_sign(l, x, &r) : reveal_open(l, x, &r);
    free(x);
    return e;
}
