/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/seal_site.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum stage { FREE, CONTRIBUTED, SIGNED, REVEALED, ABORTED, STAGES };

struct entry { /* what was decided for a round */
    uint32_t stage, attempt;
    uint64_t round;
    struct set u;
    struct digest payload, seal;
};
struct seal_site {
    unsigned site, fragments;
    uint64_t floor[KEYS_FRAGMENTS_MAX]; /* rounds below are final, or aborted long ago */
    struct entry *entry;                /* [fragments][SEAL_ROUNDS_MAX] */
    struct cipher_key *b;               /* of each entry */
    struct seal_chain kept[KEYS_FRAGMENTS_MAX];
};

static size_t entries(const struct seal_site *s)
{
    return (size_t)s->fragments * SEAL_ROUNDS_MAX;
}

enum err seal_site_open(struct seal_site **out, unsigned site, unsigned fragments)
{
    struct seal_site *s = *out ? NULL : calloc(1, sizeof *s);
    ASSERT(!*out);
    ASSERT(site < SET_MAX && fragments >= 1 && fragments <= KEYS_FRAGMENTS_MAX);
    if (!s)
        return err_set(ERR_MEMORY, "the seals of secure aggregation");
    s->site = site;
    s->fragments = fragments;
    s->entry = calloc(entries(s), sizeof *s->entry);
    s->b = s->entry ? cipher_secret_alloc(entries(s) * sizeof *s->b) : NULL;
    if (s->b) {
        *out = s;
        return ERR_OK;
    }
    seal_site_close(s);
    return err_set(ERR_MEMORY, "the seals of secure aggregation, %u fragments", fragments);
}

void seal_site_close(struct seal_site *s)
{
    if (!s)
        return;
    if (s->b)
        cipher_secret_free(s->b, entries(s) * sizeof *s->b);
    free(s->entry);
    free(s);
}

/* ---- entries ---- */

static struct entry *entry_find(const struct seal_site *s, uint32_t fragment, uint64_t round)
{
    struct entry *e = s->entry + (size_t)fragment * SEAL_ROUNDS_MAX;
    for (unsigned i = 0; i < SEAL_ROUNDS_MAX; i++)
        if (e[i].stage != FREE && e[i].round == round)
            return &e[i];
    return NULL;
}

static struct entry *entry_free(const struct seal_site *s, uint32_t fragment)
{
    struct entry *e = s->entry + (size_t)fragment * SEAL_ROUNDS_MAX;
    for (unsigned i = 0; i < SEAL_ROUNDS_MAX; i++)
        if (e[i].stage == FREE)
            return &e[i];
    return NULL;
}

/* Where none is free, that of the oldest round, if that was aborted. NULL: there is no room. */
static struct entry *entry_room(const struct seal_site *s, uint32_t fragment)
{
    struct entry *e = s->entry + (size_t)fragment * SEAL_ROUNDS_MAX, *oldest = e;
    if (entry_free(s, fragment))
        return entry_free(s, fragment);
    for (unsigned i = 1; i < SEAL_ROUNDS_MAX; i++)
        oldest = e[i].round < oldest->round ? &e[i] : oldest;
    return oldest->stage == ABORTED ? oldest : NULL;
}

static struct cipher_key *entry_b(const struct seal_site *s, const struct entry *e)
{
    return &s->b[e - s->entry];
}

static void entry_clear(struct seal_site *s, struct entry *e)
{
    cipher_wipe(entry_b(s, e), sizeof *s->b);
    *e = (struct entry){.stage = FREE};
}

/* A round that is forgotten is refused from then on, with all before it. */
static struct entry *entry_take(struct seal_site *s, uint32_t fragment)
{
    struct entry *e = entry_room(s, fragment);
    if (e && e->stage != FREE) {
        s->floor[fragment] = e->round + 1;
        entry_clear(s, e);
    }
    return e;
}

/* ---- announced and contributed ---- */

static bool set_equal(const struct set *a, const struct set *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* What a site decided for the round already. */
static enum seal_answer announced_before(const struct entry *e, const struct seal_announce *a)
{
    if (e->stage == ABORTED)
        return SEAL_contribute_after_abort;
    if (a->attempt == e->attempt)
        return set_equal(&a->u, &e->u) ? SEAL_again : SEAL_announce_second;
    if (e->stage != CONTRIBUTED)
        return SEAL_contribute_after_seal;
    return a->attempt < e->attempt ? SEAL_round_old : SEAL_ok;
}

enum seal_answer seal_site_announced(const struct seal_site *s, const struct seal_context *c,
                                     const struct seal_announce *a)
{
    unsigned n = set_count(&c->members);
    if (a->fragment >= s->fragments)
        return SEAL_malformed;
    if (a->round < s->floor[a->fragment])
        return SEAL_round_old;
    if (!set_has(&a->u, s->site))
        return SEAL_announce_without_me;
    if (!set_within(&a->u, &c->members))
        return SEAL_announce_stranger;
    if (set_count(&a->u) < round_threshold(n, c->colluding))
        return SEAL_announce_too_small;
    if (n <= 2 && !c->two_sites)
        return SEAL_announce_two_sites;
    const struct entry *e = entry_find(s, a->fragment, a->round);
    if (e)
        return announced_before(e, a);
    return entry_room(s, a->fragment) ? SEAL_ok : SEAL_rounds_full;
}

enum seal_answer seal_site_terms(const struct seal_site *s, const struct keys *k,
                                 const struct seal_announce *a, const struct cipher_key *b,
                                 struct cipher_key *seeds, struct mask_term *terms)
{
    size_t n = 0;
    seeds[n] = *b;
    terms[n] = (struct mask_term){.seed = &seeds[n], .minus = false};
    n++;
    for (unsigned j = 0; j < SET_MAX; j++) {
        if (j == s->site || !set_has(&a->u, j))
            continue;
        if (keys_seed(k, &seeds[n], a->fragment, j, a->round, a->attempt) != KEYS_ok)
            return SEAL_reveal_no_key;
        terms[n] = (struct mask_term){.seed = &seeds[n], .minus = j < s->site};
        n++;
    }
    return SEAL_ok;
}

enum seal_answer seal_site_contribute(struct seal_site *s, const struct seal_context *c,
                                      const struct seal_announce *a, const struct cipher_key *b,
                                      const struct digest *payload, bool *persist)
{
    enum seal_answer answer = seal_site_announced(s, c, a);
    struct entry *e =
        answer == SEAL_ok || answer == SEAL_again ? entry_find(s, a->fragment, a->round) : NULL;
    *persist = false;
    if (answer == SEAL_again)
        return digest_equal(payload, &e->payload) ? SEAL_again : SEAL_contribute_twice;
    if (answer != SEAL_ok)
        return answer;
    e = e ? e : entry_take(s, a->fragment);
    *e = (struct entry){.stage = CONTRIBUTED,
                        .attempt = a->attempt,
                        .round = a->round,
                        .u = a->u,
                        .payload = *payload};
    *entry_b(s, e) = *b;
    *persist = true;
    return SEAL_ok;
}

/* ---- the seal ---- */

/* The seal's form and digest, who signed it, and the round that it is of. */
static enum seal_answer seal_open(const struct seal_site *s, const struct seal_context *c,
                                  struct signer *signer, const struct seal_signed *in,
                                  struct seal *seal, struct digest *d, struct entry **e)
{
    enum seal_answer answer = seal_read(c, seal, in->bytes, in->size_bytes);
    if (answer != SEAL_ok)
        return answer;
    if (!signer->ops->verify(signer, &c->aggregator, in->bytes, in->size_bytes, in->signature))
        return SEAL_seal_forged;
    if (seal->of.fragment >= s->fragments)
        return SEAL_malformed;
    if (seal->of.round < s->floor[seal->of.fragment])
        return SEAL_round_old;
    *d = digest_of(in->bytes, in->size_bytes);
    *e = entry_find(s, seal->of.fragment, seal->of.round);
    return *e ? SEAL_ok : SEAL_round_unknown;
}

/* The rules of a first seal. */
static enum seal_answer seal_accept(const struct seal_site *s, const struct seal_context *c,
                                    const struct seal *seal, const struct entry *e)
{
    if (!set_has(&seal->s, s->site))
        return SEAL_seal_without_me;
    if (seal->of.attempt != e->attempt)
        return SEAL_round_old;
    if (!set_equal(&seal->of.u, &e->u))
        return SEAL_seal_other_u;
    if (!set_within(&seal->s, &seal->of.u))
        return SEAL_seal_not_subset;
    if (set_count(&seal->s) < round_threshold(set_count(&c->members), c->colluding))
        return SEAL_seal_set_too_small;
    return digest_equal(&seal->payload[s->site], &e->payload) ? SEAL_ok : SEAL_seal_other_payload;
}

enum seal_answer seal_site_sign(struct seal_site *s, const struct seal_context *c,
                                struct signer *signer, const struct seal_signed *in,
                                struct seal_signature *out, bool *persist)
{
    struct seal seal;
    struct digest d;
    struct entry *e = NULL;
    *persist = false;
    enum seal_answer answer = seal_open(s, c, signer, in, &seal, &d, &e);
    if (answer != SEAL_ok)
        return answer;
    if (e->stage == ABORTED)
        return SEAL_seal_after_abort;
    bool again = e->stage != CONTRIBUTED;
    if (again && !digest_equal(&d, &e->seal))
        return SEAL_seal_second;
    answer = again ? SEAL_again : seal_accept(s, c, &seal, e);
    if (answer != SEAL_ok && answer != SEAL_again)
        return answer;
    if (seal_signature_make(out, signer, s->site, &d) != ERR_OK)
        return SEAL_no_memory;
    if (again)
        return SEAL_again;
    e->stage = SIGNED;
    e->seal = d;
    *persist = true;
    return SEAL_ok;
}

/* ---- the answer ---- */

/* Each site of S has signed; one signature for each, and no other. */
static bool signatures_hold(const struct seal_context *c, struct signer *signer,
                            const struct seal *seal, const struct digest *d,
                            const struct seal_signature *signatures, size_t count)
{
    struct set seen = {0};
    if (count != set_count(&seal->s))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct seal_signature *x = &signatures[i];
        if (x->site >= c->sites || !set_has(&seal->s, x->site) || set_has(&seen, x->site) ||
            !digest_equal(&x->seal, d) || !seal_signature_holds(x, signer, &c->identity[x->site]))
            return false;
        set_put(&seen, x->site, true);
    }
    return true;
}

static enum seal_answer seeds_reveal(const struct keys *k, const struct seal *seal,
                                     struct seal_reveal *out)
{
    struct set absent = set_without(&seal->of.u, &seal->s);
    out->count = 0;
    for (unsigned j = 0; j < SET_MAX; j++) {
        if (!set_has(&absent, j))
            continue;
        struct seal_seed *x = &out->seeds[out->count++];
        x->site = j;
        if (keys_seed(k, &x->seed, seal->of.fragment, j, seal->of.round, seal->of.attempt) !=
            KEYS_ok)
            return SEAL_reveal_no_key;
    }
    return SEAL_ok;
}

enum seal_answer seal_site_reveal(struct seal_site *s, const struct seal_context *c,
                                  struct signer *signer, const struct keys *k,
                                  const struct seal_signed *in,
                                  const struct seal_signature *signatures, size_t count,
                                  struct seal_reveal *out, bool *persist)
{
    struct seal seal;
    struct digest d;
    struct entry *e = NULL;
    *persist = false;
    enum seal_answer answer = seal_open(s, c, signer, in, &seal, &d, &e);
    if (answer != SEAL_ok)
        return answer;
    if (e->stage == ABORTED)
        return SEAL_reveal_after_abort;
    if (e->stage == CONTRIBUTED)
        return SEAL_reveal_unsigned;
    bool again = e->stage == REVEALED;
    if (!digest_equal(&d, &e->seal))
        return again ? SEAL_reveal_twice : SEAL_seal_second;
    if (!signatures_hold(c, signer, &seal, &d, signatures, count))
        return SEAL_seal_signature_missing;
    answer = seeds_reveal(k, &seal, out);
    if (answer != SEAL_ok)
        return answer;
    out->site = s->site;
    out->seal = d;
    out->b = *entry_b(s, e);
    e->stage = REVEALED;
    *persist = !again;
    return again ? SEAL_again : SEAL_ok;
}

/* ---- the end of a round ---- */

enum seal_answer seal_site_abort(struct seal_site *s, unsigned fragment, uint64_t round)
{
    ASSERT(fragment < s->fragments);
    if (round < s->floor[fragment])
        return SEAL_round_old;
    struct entry *e = entry_find(s, fragment, round);
    if (e && e->stage == ABORTED)
        return SEAL_again;
    e = e ? e : entry_take(s, fragment);
    if (!e)
        return SEAL_rounds_full;
    entry_clear(s, e);
    *e = (struct entry){.stage = ABORTED, .round = round};
    return SEAL_ok;
}

void seal_site_final(struct seal_site *s, unsigned fragment, uint64_t round)
{
    ASSERT(fragment < s->fragments);
    struct entry *e = s->entry + (size_t)fragment * SEAL_ROUNDS_MAX;
    for (unsigned i = 0; i < SEAL_ROUNDS_MAX; i++)
        if (e[i].stage != FREE && e[i].round <= round)
            entry_clear(s, &e[i]);
    if (s->floor[fragment] <= round)
        s->floor[fragment] = round + 1;
}

struct seal_chain seal_site_kept(const struct seal_site *s, unsigned fragment)
{
    return s->kept[fragment];
}

void seal_site_keep(struct seal_site *s, unsigned fragment, const struct seal_chain *kept)
{
    s->kept[fragment] = *kept;
}

/* ---- on disk ---- */

enum { SECTION_SEEDS, SECTION_ENTRIES, SECTION_KEPT, SECTIONS }; /* formerly without the last */
_Static_assert(sizeof(struct entry) == 4 + 4 + 8 + sizeof(struct set) + 64,
               "entries are a section");

struct seal_head { /* the fields of the record */
    uint32_t site, fragments;
    uint64_t floor[KEYS_FRAGMENTS_MAX];
};

static void seal_visit(struct record_cursor *c, void *self)
{
    struct seal_head *h = self;
    record_u32(c, &h->site);
    record_u32(c, &h->fragments);
    for (unsigned f = 0; f < KEYS_FRAGMENTS_MAX; f++)
        record_u64(c, &h->floor[f]);
}

static void seal_sections(const struct seal_site *s, uint8_t *kept, struct file_part out[SECTIONS])
{
    out[SECTION_SEEDS] = (struct file_part){s->b, entries(s) * sizeof *s->b};
    out[SECTION_ENTRIES] = (struct file_part){s->entry, entries(s) * sizeof *s->entry};
    out[SECTION_KEPT] = (struct file_part){kept, (size_t)s->fragments * SEAL_CHAIN_BYTES};
}

enum err seal_site_parts(const struct seal_site *s, struct file_part **parts, size_t *count,
                         struct arena *a)
{
    struct seal_head h = {.site = s->site, .fragments = s->fragments};
    struct file_part *lasting = arena_array(a, SECTIONS, sizeof *lasting);
    uint8_t *kept = arena_array(a, s->fragments, SEAL_CHAIN_BYTES);
    struct record_section sections[SECTIONS];
    TRY_ALLOC(lasting);
    TRY_ALLOC(kept);
    memcpy(h.floor, s->floor, sizeof h.floor);
    for (unsigned f = 0; f < s->fragments; f++)
        seal_chain_write(&s->kept[f], kept + (size_t)f * SEAL_CHAIN_BYTES);
    seal_sections(s, kept, lasting);
    for (unsigned i = 0; i < SECTIONS; i++)
        sections[i] = (struct record_section){.parts = &lasting[i], .part_count = 1};
    return record_make(&(struct record_form){"maskseal", seal_visit, &h}, sections, SECTIONS, parts,
                       count, a);
}

/* Stages that exist, rounds that are not final. */
static bool entries_hold(const struct seal_site *s, const struct seal_head *h)
{
    for (size_t i = 0; i < entries(s); i++) {
        const struct entry *e = &s->entry[i];
        if (e->stage >= STAGES || (e->stage != FREE && e->round < h->floor[i / SEAL_ROUNDS_MAX]))
            return false;
    }
    return true;
}

/* False: the section is not what a program writes. */
static bool kept_take(struct seal_chain kept[KEYS_FRAGMENTS_MAX], unsigned fragments,
                      const struct record *r)
{
    if (!record_intact(r, SECTION_KEPT) ||
        r->sections[SECTION_KEPT].size_bytes != (size_t)fragments * SEAL_CHAIN_BYTES)
        return false;
    struct bytes_reader b =
        bytes_reader(r->sections[SECTION_KEPT].data, r->sections[SECTION_KEPT].size_bytes);
    for (unsigned f = 0; f < fragments; f++) {
        kept[f].number = bytes_get_u64(&b);
        bytes_get(&b, kept[f].chain.bytes, sizeof kept[f].chain.bytes);
    }
    return true;
}

enum err seal_site_kept_read(struct seal_chain kept[KEYS_FRAGMENTS_MAX], unsigned *count,
                             const char *path, const void *data, size_t n)
{
    struct arena scratch = arena_make(1 << 20);
    struct seal_head h = {0};
    struct record r;
    *count = 0;
    enum err e =
        record_open(&r, &(struct record_form){"maskseal", seal_visit, &h}, path, data, n, &scratch);
    bool has = e == ERR_OK && r.section_count == SECTIONS;
    if (has && (h.fragments > KEYS_FRAGMENTS_MAX || !kept_take(kept, h.fragments, &r)))
        e = err_set(ERR_CORRUPT, "%s: damaged", path);
    if (e == ERR_OK && has)
        *count = h.fragments;
    arena_free(&scratch);
    return e;
}

enum err seal_site_read(struct seal_site *s, const char *path, const void *data, size_t n)
{
    struct arena scratch = arena_make(1 << 20);
    struct seal_head h = {0};
    struct record r;
    struct file_part to[SECTIONS];
    seal_sections(s, NULL, to);
    enum err e =
        record_open(&r, &(struct record_form){"maskseal", seal_visit, &h}, path, data, n, &scratch);
    if (e == ERR_OK && (h.site != s->site || h.fragments != s->fragments))
        e = err_set(ERR_MISMATCH, "%s: seals of site %u, %u fragments; this is site %u, %u", path,
                    h.site, h.fragments, s->site, s->fragments);
    bool has_kept = e == ERR_OK && r.section_count == SECTIONS;
    bool whole = e == ERR_OK && (has_kept || r.section_count == SECTION_KEPT) &&
                 record_intact(&r, SECTION_SEEDS) &&
                 record_take(&r, SECTION_ENTRIES, &to[SECTION_ENTRIES], 1) &&
                 record_take(&r, SECTION_SEEDS, &to[SECTION_SEEDS], 1) && entries_hold(s, &h) &&
                 (!has_kept || kept_take(s->kept, s->fragments, &r));
    if (e == ERR_OK && !whole)
        e = err_set(ERR_CORRUPT, "%s: damaged", path);
    if (e == ERR_OK)
        memcpy(s->floor, h.floor, sizeof h.floor);
    arena_free(&scratch);
    return e;
}
