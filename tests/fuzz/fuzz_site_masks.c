/* SPDX-License-Identifier: Apache-2.0 */
/* What a lying aggregator says to a site about masks: a run of five sites, where site a has pair
 * keys with all others and has sent a contribution. Then steps, each of them four bytes and a body:
 * what, flags, size of the body. The body is that of the honest exchange, changed by the bytes
 * (xor), so that zeros are the exchange as it really is; or the bytes alone. It is read by the
 * site's own functions, as the answer of a call or in a poll.
 *
 * After any message: of a round the site signs one seal, and answers for that one alone, if it is
 * in it and enough others are; it tells seeds of sites that are not in it, and of no other. */
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"
#include "outer/config/identity.h"
#include "tests/sim/signer_sim.h"
#include "outer/site/site_masks_own.h"
#include "tests/fuzz/env_memory.h"
#include "tests/fuzz/fuzz.h"
#include "tests/outer/toy_replica.h"

enum { SITES = 5, COLLUDING = 1, STEPS_MAX = 12, SETUPS = 2 };
enum what { SETUP, ANNOUNCE, SIGN, REVEAL, ABORT, FINAL, WHATS };
enum { ALONE = 1, HOLDS = 2, POLLED = 4, OTHER_ROUND = 8, LATER = 16, BEHIND = 32 }; /* flags */
static const char *const names[SITES] = {"a", "b", "c", "d", "e"};
static const char canonical[] = "outer.every=4\nprivacy.secure=sum\n";

struct body {
    uint8_t bytes[WIRE_MASK_ANSWER_MAX];
    size_t size_bytes;
};
static struct {
    struct dev *cpu;
    struct codec_work *work;
    struct table table;
    struct fragments fragments;
    struct arena perm;
    struct env_memory state, files, base; /* of the replica; of the site; where each input begins */
    struct env_ops env_ops;
    struct outer_state replica;
    struct signer_sim aggregator, identity[SITES];
    struct signer_ops signer_ops;
    struct signer signer; /* of site a */
    struct link link;
    struct site *site;
    atomic_int stop;
    struct cipher_key b; /* of the contribution */
    struct body honest[REVEAL + 1][SETUPS];
    /* Of an input: */
    bool holds, answered; /* holds: every signature does; answered: nothing more is said */
    struct wire_mask_answer next;
    const struct body *last; /* that was told in this step */
    struct body told;
    struct digest signed_[2]; /* of rounds 0 and 1 */
} t;

/* ---- what the site is opened with ---- */

static uint64_t now_ms;

static uint64_t clock_now(struct env *w)
{
    (void)w;
    return now_ms;
}

static void clock_sleep(struct env *w, uint64_t ms)
{
    (void)w;
    now_ms += ms;
}

static void own_key(struct signer *self, struct signer_key *out)
{
    (void)self;
    t.identity[0].signer.ops->key(&t.identity[0].signer, out);
}

static enum err own_certificate(struct signer *self, uint8_t out[SIGNER_CERTIFICATE_MAX], size_t *n)
{
    (void)self;
    return t.identity[0].signer.ops->certificate(&t.identity[0].signer, out, n);
}

static enum err own_sign(struct signer *self, const void *data, size_t n,
                         uint8_t signature[SIGNER_BYTES])
{
    (void)self;
    return t.identity[0].signer.ops->sign(&t.identity[0].signer, data, n, signature);
}

/* No hello has told the site who the aggregator is. */
static bool any_verify(struct signer *self, const struct signer_key *key, const void *data,
                       size_t n, const uint8_t signature[SIGNER_BYTES])
{
    static const struct signer_key unknown;
    struct signer_key aggregator;
    struct signer *s = &t.aggregator.signer;
    (void)self;
    s->ops->key(s, &aggregator);
    bool is_unknown = memcmp(key, &unknown, sizeof unknown) == 0;
    return t.holds || s->ops->verify(s, is_unknown ? &aggregator : key, data, n, signature);
}

/* ---- what the site says ---- */

static void signature_check(const struct wire_mask *m)
{
    struct seal_signature x;
    struct digest *before = &t.signed_[m->round];
    ASSERT(m->round < 2 && seal_signature_read(&x, m->body, m->body_bytes) == SEAL_ok);
    ASSERT(x.site == 0);
    ASSERT(digest_zero(before) || digest_equal(before, &x.seal));
    *before = x.seal;
}

static void reveal_check(const struct wire_mask *m)
{
    static struct seal_seed seeds[SET_MAX];
    static struct seal seal;
    struct seal_reveal v = {.seeds = seeds};
    struct bytes_reader r = bytes_reader(t.last->bytes, t.last->size_bytes);
    size_t n = bytes_get_u32(&r);
    const uint8_t *bytes = bytes_view(&r, n);
    struct seal_context c = {
        .run = "fuzz", .config = identity_digest(canonical), .roster_version = 1, .sites = SITES};
    ASSERT(m->round == 0 && seal_reveal_read(&v, m->body, m->body_bytes) == SEAL_ok);
    struct digest shown = digest_of(bytes, n);
    ASSERT(v.site == 0 && digest_equal(&v.seal, &t.signed_[0]) && digest_equal(&v.seal, &shown));
    ASSERT(memcmp(&v.b, &t.b, sizeof t.b) == 0);
    ASSERT(seal_read(&c, &seal, bytes, n) == SEAL_ok);
    ASSERT(set_has(&seal.s, 0) && set_count(&seal.s) >= round_threshold(SITES, COLLUDING));
    struct set absent = set_without(&seal.of.u, &seal.s);
    ASSERT(v.count == set_count(&absent));
    for (uint32_t i = 0; i < v.count; i++)
        ASSERT(v.seeds[i].site < SITES && set_has(&absent, v.seeds[i].site));
}

static enum err link_mask(struct link *l, const struct wire_mask *m, struct wire_mask_answer *out)
{
    (void)l;
    if (m->body_bytes && m->step == WIRE_MASK_SIGN)
        signature_check(m);
    else if (m->body_bytes && m->step == WIRE_MASK_REVEAL)
        reveal_check(m);
    if (t.answered) {
        atomic_store(&t.stop, 1);
        return err_set(ERR_LINK, "nothing more is said");
    }
    t.answered = true;
    *out = t.next;
    return ERR_OK;
}

static const struct link_ops link_only_mask = {.mask = link_mask};

/* ---- the honest exchange ---- */

static void statement_put(struct bytes_writer *w, unsigned site, uint32_t setup)
{
    struct keys *k = NULL;
    struct keys_statement s;
    uint8_t bytes[KEYS_STATEMENT_BYTES], certificate[SIGNER_CERTIFICATE_MAX];
    struct cipher_key own;
    struct set others = {0};
    struct signer *signer = &t.identity[site].signer;
    size_t n;
    memset(&own, (int)(16 * setup + site), sizeof own);
    set_put(&others, 0, true);
    ASSERT(keys_open(&k, &(struct keys_options){"fuzz", site, SITES, 1, {{0}}}) == ERR_OK);
    ASSERT(keys_setup(k, setup, &others, &own, &(uint64_t){0}) == ERR_OK);
    ASSERT(keys_statement_own(k, signer, &s) == ERR_OK);
    ASSERT(signer->ops->certificate(signer, certificate, &n) == ERR_OK);
    keys_statement_write(&s, bytes);
    bytes_put_u32(w, site);
    bytes_put_u8(w, (uint8_t)strlen(names[site]));
    bytes_put(w, names[site], strlen(names[site]));
    bytes_put_u32(w, (uint32_t)n);
    bytes_put(w, certificate, n);
    bytes_put(w, bytes, sizeof bytes);
    keys_close(k);
}

static struct set all_sites(unsigned count)
{
    struct set s = {0};
    for (unsigned i = 0; i < count; i++)
        set_put(&s, i, true);
    return s;
}

static void setup_tell(struct body *to, uint32_t setup)
{
    struct bytes_writer w = bytes_writer(to->bytes, sizeof to->bytes);
    const struct set members = all_sites(SITES);
    bytes_put_u32(&w, SITES);
    seal_set_write(&w, &members, SITES);
    bytes_put_u32(&w, 1); /* b was added: of the first setup not used */
    bytes_put_u32(&w, 1);
    bytes_put_u64(&w, 0);
    for (unsigned i = 1; i < SITES; i++)
        statement_put(&w, i, setup);
    ASSERT(!w.bad);
    to->size_bytes = bytes_size(&w);
}

/* Version 2: e is gone. */
static void announce_tell(struct body *to, uint32_t version)
{
    struct bytes_writer w = bytes_writer(to->bytes, sizeof to->bytes);
    const struct set u = all_sites(version == 2 ? SITES - 1 : SITES);
    bytes_put_u32(&w, version);
    bytes_put_u32(&w, SITES);
    seal_set_write(&w, &u, SITES);
    to->size_bytes = bytes_size(&w);
}

/* Of a, b, c, d; of another term: a second seal. */
static void seal_tell(struct body *sign, struct body *reveal, uint64_t term)
{
    static struct seal s;
    uint8_t bytes[SEAL_BYTES_MAX + SIGNER_BYTES], one[SEAL_SIGNATURE_BYTES];
    const struct seal_context c = {
        .run = "fuzz", .config = identity_digest(canonical), .roster_version = 1, .sites = SITES};
    struct signer *by = &t.aggregator.signer;
    struct bytes_writer w = bytes_writer(reveal->bytes, sizeof reveal->bytes);
    s = (struct seal){.of = {.u = all_sites(SITES)}, .term = term, .s = all_sites(SITES - 1)};
    for (unsigned i = 0; i < SITES - 1; i++)
        s.payload[i] = i ? digest_of(names[i], 1) : t.site->own.main->box.made.payload;
    size_t n = seal_write(&c, &s, bytes);
    ASSERT(by->ops->sign(by, bytes, n, bytes + n) == ERR_OK);
    memcpy(sign->bytes, bytes, n + SIGNER_BYTES);
    sign->size_bytes = n + SIGNER_BYTES;
    struct digest d = digest_of(bytes, n);
    bytes_put_u32(&w, (uint32_t)n);
    bytes_put(&w, bytes, n + SIGNER_BYTES);
    for (unsigned i = 0; i < SITES - 1; i++) {
        struct seal_signature x;
        ASSERT(seal_signature_make(&x, &t.identity[i].signer, i, &d) == ERR_OK);
        seal_signature_write(&x, one);
        bytes_put(&w, one, sizeof one);
    }
    ASSERT(!w.bad);
    reveal->size_bytes = bytes_size(&w);
}

static void tell(const struct body *b, uint32_t number)
{
    t.next.answer = (struct wire_answer){.outcome = ROUND_NONE};
    t.next.number = number;
    t.next.body_bytes = b->size_bytes;
    memcpy(t.next.body, b->bytes, b->size_bytes);
    t.answered = false;
    t.last = b;
    atomic_store(&t.stop, 0);
}

/* ---- the site ---- */

static void site_make(void)
{
    struct site_options o = {.run = "fuzz",
                             .name = names[0],
                             .site_count = SITES,
                             .canonical = canonical,
                             .strict = true,
                             .error_feedback_decay = 1,
                             .straggler_ms = 1000,
                             .seed = 1,
                             .stop = &t.stop,
                             .masks = {.on = true, .colluding = COLLUDING},
                             .roster = names,
                             .signer = &t.signer};
    t.env_ops = memory_ops;
    t.env_ops.now_ms = clock_now;
    t.env_ops.sleep_ms = clock_sleep;
    memory_open(&t.files);
    t.files.env.ops = &t.env_ops;
    signer_sim_open(&t.aggregator, "fuzz", "aggregator", "x");
    for (unsigned i = 0; i < SITES; i++)
        signer_sim_open(&t.identity[i], "fuzz", "site", names[i]);
    t.signer_ops = *t.aggregator.signer.ops;
    t.signer_ops.key = own_key;
    t.signer_ops.certificate = own_certificate;
    t.signer_ops.sign = own_sign;
    t.signer_ops.verify = any_verify;
    t.signer.ops = &t.signer_ops;
    t.link.ops = &link_only_mask;
    ASSERT(site_open(&t.site, &t.files.env, &t.link, &t.replica, &o, &t.perm) == ERR_OK);
}

/* Pair keys with all, and a contribution to round 0. */
static void site_contributes(void)
{
    struct site_slot *l = t.site->own.main;
    struct site_announced_round r;
    const struct codec *c = codec_get(outer_state_codec(&t.replica, 0));
    size_t n;
    bool may = false;
    ASSERT(site_masks_begin(t.site) == ERR_OK);
    while (!t.site->masks->paired) {
        tell(&t.honest[SETUP][0], 1);
        enum err e = site_masks_setup(l, 0);
        ASSERT(e == ERR_OK || e == ERR_STOPPED);
    }
    atomic_store(&t.stop, 0);
    ASSERT(site_masks_announced(l, 0, 0, &r) == ERR_OK);
    uint8_t *payload = toy_payload(&t.replica, t.work, 0, 0, &n);
    memcpy(l->payload.bytes, payload, n);
    free(payload);
    ASSERT(site_masks_apply(l, &r, c) == ERR_OK);
    l->box.valid = true;
    l->box.made.payload_bytes = l->box.masked_bytes;
    l->box.made.payload = digest_of(l->masked.bytes, l->box.masked_bytes);
    ASSERT(site_masks_sending(l, &may) == ERR_OK && may);
    t.b = l->box.b;
}

static void base_make(void)
{
    struct outer_state_options o = {.fragments = &t.fragments,
                                    .schedule = schedule_streaming(40, 4, 1, 1, CODEC_INT4),
                                    .residuals = true,
                                    .keep = OUTER_STATES_MIN};
    float *slab;
    toy_quiet();
    t.perm = arena_make(0);
    o.schedule.full_precision = CODEC_FIXED;
    o.schedule.masked_sites = SITES;
    toy_whole(&t.table, &t.fragments, &slab, &t.cpu, &t.work, &t.perm);
    memory_open(&t.state);
    ASSERT(toy_replica(&t.replica, &t.state.env, t.cpu, o, slab, &t.perm) == ERR_OK);
    site_make();
    for (uint32_t setup = 1; setup <= SETUPS; setup++) {
        setup_tell(&t.honest[SETUP][setup - 1], setup);
        announce_tell(&t.honest[ANNOUNCE][setup - 1], setup);
    }
    site_contributes();
    for (unsigned i = 0; i < SETUPS; i++)
        seal_tell(&t.honest[SIGN][i], &t.honest[REVEAL][i], 1 + i);
    memory_copy(&t.base, &t.files);
}

/* ---- an input ---- */

static void site_again(void)
{
    uint64_t drawn = t.files.drawn;
    site_masks_close(t.site);
    memory_close(&t.files);
    memory_copy(&t.files, &t.base);
    t.files.env.ops = &t.env_ops;
    t.files.drawn = drawn;
    memset(t.signed_, 0, sizeof t.signed_);
    t.holds = false;
    atomic_store(&t.stop, 0);
    ASSERT(site_masks_begin(t.site) == ERR_OK);
}

static void body_make(enum what what, unsigned flags, const uint8_t *data, size_t n)
{
    const struct body *honest = &t.honest[what][(flags & LATER) != 0];
    t.told.size_bytes = 0;
    if (!(flags & ALONE))
        t.told = *honest;
    if (flags & ALONE || n > t.told.size_bytes) {
        memset(t.told.bytes + t.told.size_bytes, 0, n - t.told.size_bytes);
        t.told.size_bytes = n;
    }
    for (size_t i = 0; i < n; i++)
        t.told.bytes[i] ^= data[i];
}

static void asked(enum what what, unsigned flags)
{
    static struct wire_poll_answer poll;
    poll.wants = what == SIGN ? WIRE_MASK_SIGN : WIRE_MASK_REVEAL;
    poll.body_bytes = 0;
    if (flags & POLLED) {
        poll.body_bytes = t.told.size_bytes;
        memcpy(poll.body, t.told.bytes, poll.body_bytes);
        t.answered = true;
    }
    (void)!site_masks_answer(t.site->own.main, 0, (flags & OTHER_ROUND) != 0, &poll);
}

static void step(enum what what, unsigned flags, const uint8_t *data, size_t n)
{
    uint64_t round = (flags & OTHER_ROUND) != 0;
    struct site_announced_round r;
    if (what == ABORT) {
        (void)!site_masks_abort(t.site, 0, round);
        return;
    }
    if (what == FINAL) {
        site_masks_final(t.site, 0, round + 1);
        return;
    }
    body_make(what, flags, data, n);
    tell(&t.told, what == SETUP ? 1 + ((flags & LATER) != 0) : 0);
    t.next.answer.outcome = flags & BEHIND ? ROUND_BEHIND : ROUND_NONE;
    t.holds = flags & HOLDS;
    t.site->members.version[0] = what == ANNOUNCE ? 2 : 1;
    if (what == SETUP)
        (void)!site_masks_setup(t.site->own.main, 0);
    else if (what == ANNOUNCE)
        (void)!site_masks_announced(t.site->own.main, 0, round, &r);
    else
        asked(what, flags);
    err_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static bool made;
    struct bytes_reader r = bytes_reader(data, size_bytes);
    if (!made)
        base_make();
    made = true;
    site_again();
    for (unsigned i = 0; i < STEPS_MAX && bytes_left(&r) >= 4; i++) {
        enum what what = (enum what)(bytes_get_u8(&r) % WHATS);
        unsigned flags = bytes_get_u8(&r);
        size_t n = bytes_get_u16(&r);
        n = n < bytes_left(&r) ? n : bytes_left(&r);
        n = n < WIRE_MASK_ANSWER_MAX ? n : WIRE_MASK_ANSWER_MAX;
        step(what, flags, bytes_view(&r, n), n);
    }
    return 0;
}
