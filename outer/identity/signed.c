/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/identity/signed.h"
#include <stdio.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { MAGIC_BYTES = 8, MANIFEST_MAX = 256, ANNOUNCEMENT_MAX = 128 };

static void text_put(struct bytes_writer *w, const char *text)
{
    size_t n = strlen(text);
    bytes_put_u16(w, (uint16_t)n);
    bytes_put(w, text, n);
}

static void digest_put(struct bytes_writer *w, const struct digest *d)
{
    bytes_put(w, d->bytes, sizeof d->bytes);
}

/* ---- header of a contribution ---- */

/* "2" with the steps that are charged at its end, "1" of a site without a privacy budget. */
static const char header_magic[2][MAGIC_BYTES + 1] = {"atollSH1", "atollSH2"};

static size_t header_bytes(const struct wire_contribution *m, uint8_t out[SIGNED_HEADER_MAX])
{
    struct bytes_writer w = bytes_writer(out, SIGNED_HEADER_MAX);
    bytes_put(&w, header_magic[m->charged > 0], MAGIC_BYTES);
    text_put(&w, m->head.run);
    text_put(&w, m->head.site);
    digest_put(&w, &m->head.config);
    bytes_put_u32(&w, m->head.roster_version);
    bytes_put_u64(&w, m->head.term);
    bytes_put_u64(&w, m->head.incarnation);
    bytes_put_u64(&w, m->head.instance);
    bytes_put_u32(&w, m->head.aggregator);
    bytes_put_u32(&w, m->fragment);
    bytes_put_u64(&w, m->round);
    bytes_put_u32(&w, m->codec);
    bytes_put_u64(&w, m->payload_bytes);
    digest_put(&w, &m->payload);
    digest_put(&w, &m->parent);
    digest_put(&w, &m->grid);
    bytes_put_f32(&w, m->weight);
    bytes_put_u64(&w, m->data_cursor);
    bytes_put_u64(&w, m->max_local_steps_offline);
    bytes_put_u8(&w, m->residual_ratio);
    if (m->charged)
        bytes_put_u64(&w, m->charged);
    ASSERT(!w.bad);
    return bytes_size(&w);
}

enum err signed_header_sign(struct signer *s, struct wire_contribution *m)
{
    uint8_t bytes[SIGNED_HEADER_MAX];
    size_t n = header_bytes(m, bytes);
    return s->ops->sign(s, bytes, n, m->signature);
}

bool signed_header_holds(struct signer *s, const struct signer_key *key,
                         const struct wire_contribution *m)
{
    uint8_t bytes[SIGNED_HEADER_MAX];
    size_t n = header_bytes(m, bytes);
    return s->ops->verify(s, key, bytes, n, m->signature);
}

size_t signed_header_write(const struct wire_contribution *m, uint8_t out[SIGNED_HEADER_MAX])
{
    size_t n = header_bytes(m, out);
    ASSERT(n + sizeof m->signature <= SIGNED_HEADER_MAX);
    memcpy(out + n, m->signature, sizeof m->signature);
    return n + sizeof m->signature;
}

static void text_get(struct bytes_reader *r, char *out, size_t capacity)
{
    size_t n = bytes_get_u16(r);
    const uint8_t *at = n < capacity ? bytes_view(r, n) : NULL;
    r->bad |= !at || memchr(at, 0, n);
    if (!r->bad)
        memcpy(out, at, n);
}

static void digest_get(struct bytes_reader *r, struct digest *d)
{
    bytes_get(r, d->bytes, sizeof d->bytes);
}

enum err signed_header_read(struct wire_contribution *m, const uint8_t *data, size_t n)
{
    char magic[MAGIC_BYTES];
    struct bytes_reader r = bytes_reader(data, n);
    *m = (struct wire_contribution){.fragment = 0};
    bytes_get(&r, magic, sizeof magic);
    bool charged = memcmp(magic, header_magic[1], sizeof magic) == 0;
    r.bad |= !charged && memcmp(magic, header_magic[0], sizeof magic) != 0;
    text_get(&r, m->head.run, sizeof m->head.run);
    text_get(&r, m->head.site, sizeof m->head.site);
    digest_get(&r, &m->head.config);
    m->head.roster_version = bytes_get_u32(&r);
    m->head.term = bytes_get_u64(&r);
    m->head.incarnation = bytes_get_u64(&r);
    m->head.instance = bytes_get_u64(&r);
    m->head.aggregator = bytes_get_u32(&r);
    m->fragment = bytes_get_u32(&r);
    m->round = bytes_get_u64(&r);
    m->codec = bytes_get_u32(&r);
    m->payload_bytes = bytes_get_u64(&r);
    digest_get(&r, &m->payload);
    digest_get(&r, &m->parent);
    digest_get(&r, &m->grid);
    m->weight = bytes_get_f32(&r);
    m->data_cursor = bytes_get_u64(&r);
    m->max_local_steps_offline = bytes_get_u64(&r);
    m->residual_ratio = bytes_get_u8(&r);
    m->charged = charged ? bytes_get_u64(&r) : 0;
    r.bad |= charged && !m->charged;
    bytes_get(&r, m->signature, sizeof m->signature);
    return bytes_done(&r) ? ERR_OK : err_set(ERR_PROTO, "a signed header is malformed");
}

/* ---- manifest ---- */

struct manifest_facts { /* that are signed */
    const char *run;
    uint32_t fragment;
    uint64_t round;
    struct digest body;
    uint64_t term, instance, unix_ms;
};

static size_t manifest_bytes(const struct manifest_facts *f, uint8_t out[MANIFEST_MAX])
{
    struct bytes_writer w = bytes_writer(out, MANIFEST_MAX);
    bytes_put(&w, "atollSM1", MAGIC_BYTES);
    text_put(&w, f->run);
    bytes_put_u32(&w, f->fragment);
    bytes_put_u64(&w, f->round);
    digest_put(&w, &f->body);
    bytes_put_u64(&w, f->term);
    bytes_put_u64(&w, f->instance);
    bytes_put_u64(&w, f->unix_ms);
    ASSERT(!w.bad);
    return bytes_size(&w);
}

static struct manifest_facts facts_of(const struct manifest *m)
{
    return (struct manifest_facts){m->run,  m->fragment, m->round,  manifest_digest(m),
                                   m->term, m->instance, m->unix_ms};
}

enum err signed_manifest_sign(struct signer *s, struct manifest *m)
{
    uint8_t bytes[MANIFEST_MAX];
    struct manifest_facts f = facts_of(m);
    size_t n = manifest_bytes(&f, bytes);
    return s->ops->sign(s, bytes, n, m->signature);
}

bool signed_manifest_holds(struct signer *s, const struct signer_key *key, const struct manifest *m)
{
    uint8_t bytes[MANIFEST_MAX];
    struct manifest_facts f = facts_of(m);
    size_t n = manifest_bytes(&f, bytes);
    return s->ops->verify(s, key, bytes, n, m->signature);
}

struct wire_proof signed_manifest_proof(const struct manifest *m)
{
    struct wire_proof p = {true, m->term, m->instance, m->unix_ms, {0}};
    memcpy(p.signature, m->signature, sizeof p.signature);
    return p;
}

bool signed_proof_holds(struct signer *s, const struct signer_key *key, const char *run,
                        uint32_t fragment, const struct wire_fragment_state *state)
{
    uint8_t bytes[MANIFEST_MAX];
    const struct wire_proof *p = &state->proof;
    if (!p->there || state->round == 0)
        return false;
    struct manifest_facts f = {run,     fragment,    state->round - 1, state->manifest,
                               p->term, p->instance, p->unix_ms};
    size_t n = manifest_bytes(&f, bytes);
    return s->ops->verify(s, key, bytes, n, p->signature);
}

/* ---- announcement of a term ---- */

static void announcement_put(struct bytes_writer *w, const struct signed_announcement *a)
{
    bytes_put(w, "atollSE1", MAGIC_BYTES);
    text_put(w, a->run);
    bytes_put_u32(w, a->aggregator);
    bytes_put_u64(w, a->term);
    bytes_put_u64(w, a->instance);
}

enum err signed_announcement_make(struct signer *s, struct signed_announcement *a,
                                  struct wire_announcement *out)
{
    struct bytes_writer w = bytes_writer(out->bytes, sizeof out->bytes);
    announcement_put(&w, a);
    TRY(s->ops->certificate(s, a->certificate, &a->certificate_bytes));
    TRY(s->ops->sign(s, out->bytes, bytes_size(&w), a->signature));
    bytes_put_u16(&w, (uint16_t)a->certificate_bytes);
    bytes_put(&w, a->certificate, a->certificate_bytes);
    bytes_put(&w, a->signature, sizeof a->signature);
    ASSERT(!w.bad);
    out->size_bytes = bytes_size(&w);
    return ERR_OK;
}

enum err signed_announcement_read(struct signed_announcement *a, const struct wire_announcement *in)
{
    char magic[MAGIC_BYTES];
    struct bytes_reader r = bytes_reader(in->bytes, in->size_bytes);
    *a = (struct signed_announcement){.term = 0};
    bytes_get(&r, magic, sizeof magic);
    r.bad |= memcmp(magic, "atollSE1", sizeof magic) != 0;
    text_get(&r, a->run, sizeof a->run);
    a->aggregator = bytes_get_u32(&r);
    a->term = bytes_get_u64(&r);
    a->instance = bytes_get_u64(&r);
    a->certificate_bytes = bytes_get_u16(&r);
    r.bad |= a->certificate_bytes > sizeof a->certificate;
    if (!r.bad)
        bytes_get(&r, a->certificate, a->certificate_bytes);
    bytes_get(&r, a->signature, sizeof a->signature);
    return bytes_done(&r) ? ERR_OK : err_set(ERR_PROTO, "the announcement of a term is malformed");
}

enum err signed_announcement_check(struct signer *s, const struct signed_announcement *a,
                                   const char *run, struct signer_identity *by)
{
    uint8_t bytes[ANNOUNCEMENT_MAX];
    char uri[3 * WIRE_NAME_MAX];
    struct bytes_writer w = bytes_writer(bytes, sizeof bytes);
    snprintf(uri, sizeof uri, "atoll://%s/aggregator/aggregator", run);
    TRY(s->ops->certified(s, a->certificate, a->certificate_bytes, uri, by));
    announcement_put(&w, a);
    ASSERT(!w.bad);
    if (strcmp(a->run, run) != 0)
        return err_set(ERR_DENIED, "the announcement is of run %s", a->run);
    return s->ops->verify(s, &by->key, bytes, bytes_size(&w), a->signature)
               ? ERR_OK
               : err_set(ERR_DENIED, "the signature of term %llu does not hold",
                         (unsigned long long)a->term);
}
