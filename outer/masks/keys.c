/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/keys.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

struct pair {
    uint32_t setup; /* in which it was made; 0: none */
    struct cipher_public key;
};
struct secrets {
    struct cipher_key own;    /* a_i */
    struct cipher_key pair[]; /* [sites][fragments] */
};
struct keys {
    struct keys_options o;
    char run[KEYS_RUN_MAX + 1];
    uint32_t setup;
    bool has_own;     /* the X25519 key is not wiped */
    struct set peers; /* of the newest setup */
    uint64_t first[KEYS_FRAGMENTS_MAX];
    struct cipher_public key; /* of `own` */
    struct pair *pair;        /* [sites] */
    uint64_t *round;          /* [sites][fragments]: of the pair key */
    struct secrets *secret;
};

const char *keys_answer_name(enum keys_answer a)
{
    static const char *const names[] = {
#define X(name, text) #name,
        KEYS_ANSWERS(X)
#undef X
    };
    return names[a];
}

const char *keys_answer_text(enum keys_answer a)
{
    static const char *const texts[] = {
#define X(name, text) text,
        KEYS_ANSWERS(X)
#undef X
    };
    return texts[a];
}

/* ---- memory ---- */

static size_t pairs(const struct keys *k)
{
    return (size_t)k->o.sites * k->o.fragments;
}

static size_t secret_bytes(const struct keys *k)
{
    return sizeof *k->secret + pairs(k) * sizeof k->secret->pair[0];
}

enum err keys_open(struct keys **out, const struct keys_options *o)
{
    struct keys *k = *out ? NULL : calloc(1, sizeof *k);
    ASSERT(!*out);
    ASSERT(strlen(o->run) <= KEYS_RUN_MAX);
    ASSERT(o->sites <= SET_MAX && o->site < o->sites);
    ASSERT(o->fragments >= 1 && o->fragments <= KEYS_FRAGMENTS_MAX);
    if (!k)
        return err_set(ERR_MEMORY, "the keys of secure aggregation");
    k->o = *o;
    memcpy(k->run, o->run, strlen(o->run));
    k->o.run = k->run;
    k->pair = calloc(o->sites, sizeof *k->pair);
    k->round = calloc(pairs(k), sizeof *k->round);
    k->secret = cipher_secret_alloc(secret_bytes(k));
    if (k->pair && k->round && k->secret) {
        *out = k;
        return ERR_OK;
    }
    keys_close(k);
    return err_set(ERR_MEMORY, "the keys of secure aggregation, %u sites and %u fragments",
                   o->sites, o->fragments);
}

void keys_close(struct keys *k)
{
    if (!k)
        return;
    if (k->secret)
        cipher_secret_free(k->secret, secret_bytes(k));
    free(k->round);
    free(k->pair);
    free(k);
}

static size_t at_pair(const struct keys *k, unsigned site, unsigned fragment)
{
    ASSERT(site < k->o.sites && fragment < k->o.fragments);
    return (size_t)site * k->o.fragments + fragment;
}

/* ---- statements ---- */

enum { SIGNED_MAX = 8 + 2 + KEYS_RUN_MAX + 4 + 4 + CIPHER_KEY_BYTES };

static size_t statement_signed(const char *run, const struct keys_statement *s,
                               uint8_t out[SIGNED_MAX])
{
    struct bytes_writer w = bytes_writer(out, SIGNED_MAX);
    bytes_put(&w, "atollSK1", 8);
    bytes_put_u16(&w, (uint16_t)strlen(run));
    bytes_put(&w, run, strlen(run));
    bytes_put_u32(&w, s->setup);
    bytes_put_u32(&w, s->site);
    bytes_put(&w, s->key.bytes, sizeof s->key.bytes);
    ASSERT(!w.bad);
    return bytes_size(&w);
}

void keys_statement_write(const struct keys_statement *s, uint8_t out[KEYS_STATEMENT_BYTES])
{
    struct bytes_writer w = bytes_writer(out, KEYS_STATEMENT_BYTES);
    bytes_put_u32(&w, s->setup);
    bytes_put_u32(&w, s->site);
    bytes_put(&w, s->key.bytes, sizeof s->key.bytes);
    bytes_put(&w, s->signature, sizeof s->signature);
    ASSERT(!w.bad && bytes_size(&w) == KEYS_STATEMENT_BYTES);
}

enum err keys_statement_read(struct keys_statement *s, const uint8_t *data, size_t n)
{
    struct bytes_reader r = bytes_reader(data, n);
    s->setup = bytes_get_u32(&r);
    s->site = bytes_get_u32(&r);
    bytes_get(&r, s->key.bytes, sizeof s->key.bytes);
    bytes_get(&r, s->signature, sizeof s->signature);
    if (!bytes_done(&r))
        return err_set(ERR_PROTO, "a statement of a mask key of %zu bytes: %d", n,
                       KEYS_STATEMENT_BYTES);
    return ERR_OK;
}

enum err keys_statement_own(const struct keys *k, struct signer *signer, struct keys_statement *out)
{
    uint8_t bytes[SIGNED_MAX];
    ASSERT(k->setup > 0);
    *out = (struct keys_statement){.setup = k->setup, .site = k->o.site, .key = k->key};
    return signer->ops->sign(signer, bytes, statement_signed(k->run, out, bytes), out->signature);
}

static bool statement_holds(const char *run, struct signer *signer,
                            const struct signer_key *identity, const struct keys_statement *s)
{
    uint8_t bytes[SIGNED_MAX];
    return signer->ops->verify(signer, identity, bytes, statement_signed(run, s, bytes),
                               s->signature);
}

enum keys_answer keys_statement_check(const char *run, struct signer *signer,
                                      const struct signer_key *identity,
                                      const struct keys_statement *s)
{
    const struct cipher_key any = {{1}};
    struct cipher_key shared;
    if (!statement_holds(run, signer, identity, s))
        return KEYS_pair_key_substituted;
    enum err e = cipher_x25519(&shared, &any, &s->key);
    return e == ERR_OK ? KEYS_ok : e == ERR_DENIED ? KEYS_x25519_low_order : KEYS_pair_no_memory;
}

/* ---- setup and pairs ---- */

static void pair_forget(struct keys *k, unsigned site)
{
    size_t first = at_pair(k, site, 0);
    cipher_wipe(&k->secret->pair[first], k->o.fragments * sizeof k->secret->pair[0]);
    memset(&k->round[first], 0, k->o.fragments * sizeof k->round[0]);
    k->pair[site] = (struct pair){0};
    set_put(&k->peers, site, false);
}

/* a_i is wiped with the last pair: with it every pair key could be recomputed. */
static void own_wipe(struct keys *k)
{
    for (unsigned i = 0; i < k->o.sites; i++)
        if (set_has(&k->peers, i) && k->pair[i].setup != k->setup)
            return;
    cipher_wipe(&k->secret->own, sizeof k->secret->own);
    k->has_own = false;
}

void keys_forget(struct keys *k, unsigned site)
{
    pair_forget(k, site);
    own_wipe(k);
}

enum err keys_setup(struct keys *k, uint32_t number, const struct set *peers,
                    const struct cipher_key *own, const uint64_t *first)
{
    ASSERT(number > k->setup);
    ASSERT(!set_has(peers, k->o.site));
    TRY(cipher_x25519_public(&k->key, own));
    for (unsigned i = 0; i < k->o.sites; i++)
        if (set_has(peers, i))
            pair_forget(k, i);
    k->peers = *peers;
    k->setup = number;
    k->secret->own = *own;
    k->has_own = true;
    memcpy(k->first, first, k->o.fragments * sizeof *first);
    return ERR_OK;
}

uint32_t keys_setup_number(const struct keys *k)
{
    return k->setup;
}

bool keys_complete(const struct keys *k)
{
    return k->setup > 0 && !k->has_own;
}

bool keys_has(const struct keys *k, unsigned site)
{
    return site < k->o.sites && k->pair[site].setup > 0;
}

uint32_t keys_setup_of(const struct keys *k, unsigned site)
{
    return site < k->o.sites ? k->pair[site].setup : 0;
}

static void pair_derive(struct keys *k, unsigned site, const struct cipher_key *shared)
{
    struct cipher_key prk;
    uint32_t low = site < k->o.site ? site : k->o.site, high = site < k->o.site ? k->o.site : site;
    cipher_hkdf_extract(&prk, k->run, strlen(k->run), shared->bytes, sizeof shared->bytes);
    for (unsigned f = 0; f < k->o.fragments; f++) {
        uint8_t info[32];
        size_t at = at_pair(k, site, f);
        struct bytes_writer w = bytes_writer(info, sizeof info);
        bytes_put(&w, "atoll/pair", 10);
        bytes_put_u32(&w, f);
        bytes_put_u32(&w, low);
        bytes_put_u32(&w, high);
        cipher_hkdf_expand(k->secret->pair[at].bytes, CIPHER_KEY_BYTES, &prk, info, bytes_size(&w));
        k->round[at] = k->first[f];
    }
    cipher_wipe(&prk, sizeof prk);
}

enum keys_answer keys_pair(struct keys *k, struct signer *signer, const struct signer_key *identity,
                           const struct keys_statement *s)
{
    struct cipher_key shared;
    if (s->site >= k->o.sites || !set_has(&k->peers, s->site))
        return KEYS_pair_unknown_site;
    if (s->setup != k->setup)
        return KEYS_pair_other_setup;
    if (!statement_holds(k->run, signer, identity, s))
        return KEYS_pair_key_substituted;
    struct pair *p = &k->pair[s->site];
    if (p->setup) /* paired in this setup: keys_setup has forgotten the former one */
        return memcmp(p->key.bytes, s->key.bytes, sizeof s->key.bytes) == 0
                   ? KEYS_ok
                   : KEYS_pair_key_substituted;
    ASSERT(k->has_own);
    enum err e = cipher_x25519(&shared, &k->secret->own, &s->key);
    if (e != ERR_OK)
        return e == ERR_DENIED ? KEYS_x25519_low_order : KEYS_pair_no_memory;
    pair_derive(k, s->site, &shared);
    cipher_wipe(&shared, sizeof shared);
    *p = (struct pair){k->setup, s->key};
    own_wipe(k);
    return KEYS_ok;
}

/* ---- rounds ---- */

static void ratchet(struct cipher_key *key, uint64_t round)
{
    struct cipher_key next;
    uint8_t info[16];
    struct bytes_writer w = bytes_writer(info, sizeof info);
    bytes_put(&w, "ratchet", 7);
    bytes_put_u64(&w, round);
    cipher_hkdf_expand(next.bytes, sizeof next.bytes, key, info, bytes_size(&w));
    *key = next;
    cipher_wipe(&next, sizeof next);
}

enum keys_answer keys_seed(const struct keys *k, struct cipher_key *seed, unsigned fragment,
                           unsigned site, uint64_t round, uint32_t attempt)
{
    uint8_t info[4 + 8 + 4 + sizeof(struct digest)];
    if (!keys_has(k, site))
        return KEYS_pair_missing;
    size_t at = at_pair(k, site, fragment);
    if (round < k->round[at])
        return KEYS_pair_ratcheted;
    if (round - k->round[at] > KEYS_AHEAD_MAX)
        return KEYS_pair_too_far;
    struct cipher_key key = k->secret->pair[at];
    for (uint64_t t = k->round[at]; t < round; t++)
        ratchet(&key, t);
    struct bytes_writer w = bytes_writer(info, sizeof info);
    bytes_put(&w, "mask", 4);
    bytes_put_u64(&w, round);
    bytes_put_u32(&w, attempt);
    bytes_put(&w, k->o.config.bytes, sizeof k->o.config.bytes);
    cipher_hkdf_expand(seed->bytes, sizeof seed->bytes, &key, info, bytes_size(&w));
    cipher_wipe(&key, sizeof key);
    return KEYS_ok;
}

void keys_final(struct keys *k, unsigned fragment, uint64_t round)
{
    for (unsigned i = 0; i < k->o.sites; i++) {
        size_t at = at_pair(k, i, fragment);
        for (; keys_has(k, i) && k->round[at] <= round; k->round[at]++)
            ratchet(&k->secret->pair[at], k->round[at]);
    }
}

/* ---- on disk ---- */

enum { SECTION_SECRETS, SECTION_PAIRS, SECTION_ROUNDS, SECTIONS };

struct keys_head { /* the fields of the record */
    const char *run;
    uint32_t site, sites, fragments, setup;
    struct digest config, key;
    bool has_own;
    struct set peers;
    uint64_t first[KEYS_FRAGMENTS_MAX];
};

static void keys_visit(struct record_cursor *c, void *self)
{
    struct keys_head *h = self;
    record_text(c, &h->run, KEYS_RUN_MAX);
    record_digest(c, &h->config);
    record_u32(c, &h->site);
    record_u32(c, &h->sites);
    record_u32(c, &h->fragments);
    record_u32(c, &h->setup);
    record_bool(c, &h->has_own);
    record_digest(c, &h->key);
    for (unsigned i = 0; i < SET_WORDS; i++)
        record_u64(c, &h->peers.word[i]);
    for (unsigned f = 0; f < KEYS_FRAGMENTS_MAX; f++)
        record_u64(c, &h->first[f]);
}

static struct keys_head keys_head_of(const struct keys *k)
{
    struct keys_head h = {.run = k->run,
                          .site = k->o.site,
                          .sites = k->o.sites,
                          .fragments = k->o.fragments,
                          .setup = k->setup,
                          .config = k->o.config,
                          .has_own = k->has_own,
                          .peers = k->peers};
    memcpy(h.key.bytes, k->key.bytes, sizeof h.key.bytes);
    memcpy(h.first, k->first, sizeof h.first);
    return h;
}

static void sections_of(const struct keys *k, struct file_part out[SECTIONS])
{
    out[SECTION_SECRETS] = (struct file_part){k->secret, secret_bytes(k)};
    out[SECTION_PAIRS] = (struct file_part){k->pair, k->o.sites * sizeof *k->pair};
    out[SECTION_ROUNDS] = (struct file_part){k->round, pairs(k) * sizeof *k->round};
}

_Static_assert(sizeof(struct pair) == 36 && sizeof(struct secrets) == 32, "they are sections");

enum err keys_parts(const struct keys *k, struct file_part **parts, size_t *count, struct arena *a)
{
    struct keys_head h = keys_head_of(k);
    struct file_part part[SECTIONS];
    struct file_part *lasting = arena_array(a, SECTIONS, sizeof *lasting);
    struct record_section sections[SECTIONS];
    TRY_ALLOC(lasting);
    sections_of(k, part);
    for (unsigned i = 0; i < SECTIONS; i++) {
        lasting[i] = part[i];
        sections[i] = (struct record_section){.parts = &lasting[i], .part_count = 1};
    }
    return record_make(&(struct record_form){"maskkeys", keys_visit, &h}, sections, SECTIONS, parts,
                       count, a);
}

static enum err keys_head_check(const struct keys *k, const struct keys_head *h, const char *path)
{
    if (strcmp(h->run, k->run) != 0 || !digest_equal(&h->config, &k->o.config))
        return err_set(ERR_MISMATCH, "%s: mask keys of another run or configuration", path);
    if (h->site != k->o.site || h->sites != k->o.sites || h->fragments != k->o.fragments)
        return err_set(
            ERR_MISMATCH, "%s: mask keys of site %u of %u, %u fragments; this is site %u of %u, %u",
            path, h->site, h->sites, h->fragments, k->o.site, k->o.sites, k->o.fragments);
    return ERR_OK;
}

enum err keys_read(struct keys *k, const char *path, const void *data, size_t n)
{
    struct arena scratch = arena_make(1 << 20);
    struct keys_head h = {0};
    struct record r;
    struct file_part to[SECTIONS];
    sections_of(k, to);
    enum err e =
        record_open(&r, &(struct record_form){"maskkeys", keys_visit, &h}, path, data, n, &scratch);
    if (e == ERR_OK)
        e = keys_head_check(k, &h, path);
    bool whole = e == ERR_OK && r.section_count == SECTIONS;
    for (unsigned i = 0; whole && i < SECTIONS; i++)
        whole = r.sections[i].size_bytes == to[i].size_bytes && record_intact(&r, i);
    for (unsigned i = 0; whole && i < SECTIONS; i++)
        whole = record_take(&r, i, &to[i], 1);
    if (e == ERR_OK && !whole)
        e = err_set(ERR_CORRUPT, "%s: damaged", path);
    if (e == ERR_OK) {
        k->setup = h.setup;
        k->has_own = h.has_own;
        k->peers = h.peers;
        memcpy(k->first, h.first, sizeof h.first);
        memcpy(k->key.bytes, h.key.bytes, sizeof h.key.bytes);
    }
    arena_free(&scratch);
    return e;
}
