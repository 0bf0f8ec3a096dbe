/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/seal.h"
#include <string.h>
#include "kernels/base/bytes.h"

const char *seal_answer_name(enum seal_answer a)
{
    static const char *const names[] = {
#define X(name, text) #name,
        SEAL_ANSWERS(X)
#undef X
    };
    return names[a];
}

const char *seal_answer_text(enum seal_answer a)
{
    static const char *const texts[] = {
#define X(name, text) text,
        SEAL_ANSWERS(X)
#undef X
    };
    return texts[a];
}

enum err seal_context_check(const struct seal_context *c)
{
    unsigned n = set_count(&c->members);
    ASSERT(c->sites <= SET_MAX && strlen(c->run) <= KEYS_RUN_MAX);
    if (n < 2 || c->colluding > n - 2)
        return err_set(
            ERR_CONFIG,
            "secure aggregation of %u sites against %u that work with the aggregator: at "
            "least two sites have to be honest: allow fewer, or have more sites",
            n, c->colluding);
    if (n == 2 && !c->two_sites)
        return err_set(ERR_CONFIG,
                       "secure aggregation of two sites hides nothing: each subtracts its own "
                       "values from the sum. Have a third site, or force it");
    return ERR_OK;
}

/* ---- the seal ---- */

static size_t set_bytes(unsigned sites)
{
    return (sites + 7) / 8;
}

void seal_set_write(struct bytes_writer *w, const struct set *s, unsigned sites)
{
    for (unsigned i = 0; i < set_bytes(sites); i++)
        bytes_put_u8(w, (uint8_t)(s->word[i / 8] >> i % 8 * 8));
}

/* False: a bit after the last site. */
bool seal_set_read(struct bytes_reader *r, struct set *s, unsigned sites)
{
    *s = (struct set){0};
    for (unsigned i = 0; i < set_bytes(sites); i++)
        s->word[i / 8] |= (uint64_t)bytes_get_u8(r) << i % 8 * 8;
    return sites % 64 == 0 || s->word[sites / 64] >> sites % 64 == 0;
}

size_t seal_bytes(const struct seal_context *c, const struct set *s)
{
    return 8 + 2 + strlen(c->run) + 32 + 4 + 4 + 8 + 4 + 8 + 4 + 2 * set_bytes(c->sites) +
           32 * (size_t)set_count(s);
}

/* What has to be equal on both sides. */
static void context_write(struct bytes_writer *w, const struct seal_context *c)
{
    bytes_put(w, "atollSQ1", 8);
    bytes_put_u16(w, (uint16_t)strlen(c->run));
    bytes_put(w, c->run, strlen(c->run));
    bytes_put(w, c->config.bytes, sizeof c->config.bytes);
    bytes_put_u32(w, c->roster_version);
    bytes_put_u32(w, c->sites);
}

size_t seal_write(const struct seal_context *c, const struct seal *s, uint8_t out[SEAL_BYTES_MAX])
{
    struct bytes_writer w = bytes_writer(out, SEAL_BYTES_MAX);
    context_write(&w, c);
    bytes_put_u64(&w, s->term);
    bytes_put_u32(&w, s->of.fragment);
    bytes_put_u64(&w, s->of.round);
    bytes_put_u32(&w, s->of.attempt);
    seal_set_write(&w, &s->of.u, c->sites);
    seal_set_write(&w, &s->s, c->sites);
    for (unsigned i = 0; i < c->sites; i++)
        if (set_has(&s->s, i))
            bytes_put(&w, s->payload[i].bytes, sizeof s->payload[i].bytes);
    ASSERT(!w.bad && bytes_size(&w) == seal_bytes(c, &s->s));
    return bytes_size(&w);
}

enum seal_answer seal_read(const struct seal_context *c, struct seal *s, const uint8_t *data,
                           size_t n)
{
    uint8_t wanted[8 + 2 + KEYS_RUN_MAX + 32 + 4 + 4];
    struct bytes_writer w = bytes_writer(wanted, sizeof wanted);
    struct bytes_reader r = bytes_reader(data, n);
    *s = (struct seal){.term = 0};
    context_write(&w, c);
    const uint8_t *context = bytes_view(&r, bytes_size(&w));
    if (!context || memcmp(context, wanted, 8) != 0)
        return SEAL_malformed;
    if (memcmp(context, wanted, bytes_size(&w)) != 0)
        return SEAL_other_run;
    s->term = bytes_get_u64(&r);
    s->of.fragment = bytes_get_u32(&r);
    s->of.round = bytes_get_u64(&r);
    s->of.attempt = bytes_get_u32(&r);
    bool sets = seal_set_read(&r, &s->of.u, c->sites);
    sets = seal_set_read(&r, &s->s, c->sites) && sets;
    if (r.bad || !sets || n != seal_bytes(c, &s->s))
        return SEAL_malformed;
    for (unsigned i = 0; i < c->sites; i++)
        if (set_has(&s->s, i))
            bytes_get(&r, s->payload[i].bytes, sizeof s->payload[i].bytes);
    return bytes_done(&r) ? SEAL_ok : SEAL_malformed;
}

/* ---- a site's signature ---- */

void seal_statement(uint8_t out[SEAL_STATEMENT_BYTES], uint32_t site, const struct digest *seal)
{
    struct bytes_writer w = bytes_writer(out, SEAL_STATEMENT_BYTES);
    bytes_put(&w, "atollSX1", 8);
    bytes_put_u32(&w, site);
    bytes_put(&w, seal->bytes, sizeof seal->bytes);
}

enum err seal_signature_make(struct seal_signature *out, struct signer *signer, uint32_t site,
                             const struct digest *seal)
{
    uint8_t bytes[SEAL_STATEMENT_BYTES];
    *out = (struct seal_signature){.site = site, .seal = *seal};
    seal_statement(bytes, site, seal);
    return signer->ops->sign(signer, bytes, sizeof bytes, out->signature);
}

bool seal_signature_holds(const struct seal_signature *s, struct signer *signer,
                          const struct signer_key *identity)
{
    uint8_t bytes[SEAL_STATEMENT_BYTES];
    seal_statement(bytes, s->site, &s->seal);
    return signer->ops->verify(signer, identity, bytes, sizeof bytes, s->signature);
}

void seal_signature_write(const struct seal_signature *s, uint8_t out[SEAL_SIGNATURE_BYTES])
{
    struct bytes_writer w = bytes_writer(out, SEAL_SIGNATURE_BYTES);
    bytes_put_u32(&w, s->site);
    bytes_put(&w, s->seal.bytes, sizeof s->seal.bytes);
    bytes_put(&w, s->signature, sizeof s->signature);
}

enum seal_answer seal_signature_read(struct seal_signature *s, const uint8_t *data, size_t n)
{
    struct bytes_reader r = bytes_reader(data, n);
    s->site = bytes_get_u32(&r);
    bytes_get(&r, s->seal.bytes, sizeof s->seal.bytes);
    bytes_get(&r, s->signature, sizeof s->signature);
    return bytes_done(&r) ? SEAL_ok : SEAL_malformed;
}

/* ---- what a site reveals ---- */

enum { REVEAL_HEAD = 8 + 4 + 32 + CIPHER_KEY_BYTES + 4, REVEAL_SEED = 4 + CIPHER_KEY_BYTES };

size_t seal_reveal_bytes(uint32_t count)
{
    return REVEAL_HEAD + (size_t)REVEAL_SEED * count;
}

void seal_reveal_write(const struct seal_reveal *v, uint8_t *out)
{
    struct bytes_writer w = bytes_writer(out, seal_reveal_bytes(v->count));
    bytes_put(&w, "atollSR1", 8);
    bytes_put_u32(&w, v->site);
    bytes_put(&w, v->seal.bytes, sizeof v->seal.bytes);
    bytes_put(&w, v->b.bytes, sizeof v->b.bytes);
    bytes_put_u32(&w, v->count);
    for (uint32_t i = 0; i < v->count; i++) {
        bytes_put_u32(&w, v->seeds[i].site);
        bytes_put(&w, v->seeds[i].seed.bytes, sizeof v->seeds[i].seed.bytes);
    }
    ASSERT(!w.bad);
}

enum seal_answer seal_reveal_read(struct seal_reveal *v, const uint8_t *data, size_t n)
{
    struct bytes_reader r = bytes_reader(data, n);
    const uint8_t *magic = bytes_view(&r, 8);
    v->site = bytes_get_u32(&r);
    bytes_get(&r, v->seal.bytes, sizeof v->seal.bytes);
    bytes_get(&r, v->b.bytes, sizeof v->b.bytes);
    v->count = bytes_get_u32(&r);
    if (!magic || memcmp(magic, "atollSR1", 8) != 0 || r.bad || v->count > SET_MAX ||
        n != seal_reveal_bytes(v->count))
        return SEAL_malformed;
    for (uint32_t i = 0; i < v->count; i++) {
        v->seeds[i].site = bytes_get_u32(&r);
        bytes_get(&r, v->seeds[i].seed.bytes, sizeof v->seeds[i].seed.bytes);
        if (v->seeds[i].site >= SET_MAX || (i && v->seeds[i].site <= v->seeds[i - 1].site))
            return SEAL_malformed;
    }
    return bytes_done(&r) ? SEAL_ok : SEAL_malformed;
}
