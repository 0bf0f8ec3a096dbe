/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/seal_kept.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

/* ---- the chain ---- */

void seal_chain_write(const struct seal_chain *c, uint8_t out[SEAL_CHAIN_BYTES])
{
    struct bytes_writer w = bytes_writer(out, SEAL_CHAIN_BYTES);
    bytes_put_u64(&w, c->number);
    bytes_put(&w, c->chain.bytes, sizeof c->chain.bytes);
}

struct seal_chain seal_chain_next(const struct seal_chain *c, uint32_t fragment, uint64_t round,
                                  const struct digest *seal)
{
    uint8_t bytes[8 + 32 + 4 + 8 + 32];
    struct bytes_writer w = bytes_writer(bytes, sizeof bytes);
    bytes_put(&w, "atollSC1", 8);
    bytes_put(&w, c->chain.bytes, sizeof c->chain.bytes);
    bytes_put_u32(&w, fragment);
    bytes_put_u64(&w, round);
    bytes_put(&w, seal->bytes, sizeof seal->bytes);
    return (struct seal_chain){c->number + 1, digest_of(bytes, bytes_size(&w))};
}

bool seal_kept_chain(const struct record *r, struct seal_chain *before)
{
    *before = (struct seal_chain){0};
    if (r->section_count != SEAL_KEPT_COUNT || !record_intact(r, SEAL_KEPT_CHAIN) ||
        r->sections[SEAL_KEPT_CHAIN].size_bytes != SEAL_CHAIN_BYTES)
        return false;
    struct bytes_reader b = bytes_reader(r->sections[SEAL_KEPT_CHAIN].data, SEAL_CHAIN_BYTES);
    before->number = bytes_get_u64(&b);
    bytes_get(&b, before->chain.bytes, sizeof before->chain.bytes);
    return true;
}

/* ---- a record ---- */

void seal_kept_fields(struct record_cursor *c, void *record)
{
    struct seal_kept *k = record;
    record_text(c, &k->run, KEYS_RUN_MAX);
    record_u32(c, &k->fragment);
    record_u64(c, &k->round);
    record_u64(c, &k->unix_ms);
    record_u32(c, &k->roster_version);
    record_u32(c, &k->sites);
    record_u32(c, &k->colluding);
    record_u32(c, &k->site);
    record_u64(c, &k->payload_bytes);
    record_u64(c, &k->charged);
    record_digest(c, &k->config);
    record_digest(c, &k->aggregator);
    record_digest(c, &k->own);
}

static struct signer_key key_of(const void *bytes)
{
    struct signer_key key;
    memcpy(key.bytes, bytes, sizeof key.bytes);
    return key;
}

/* The sealed sites' signatures, each by its key, in the order of the sites. */
static const char *signatures_check(const struct seal_kept *k, const struct record *r,
                                    seal_verify *verify, const struct seal *seal,
                                    const struct digest *digest)
{
    const uint8_t *at = r->sections[SEAL_KEPT_SIGNATURES].data;
    const uint8_t *keys = r->sections[SEAL_KEPT_KEYS].data;
    size_t n = set_count(&seal->s);
    if (r->sections[SEAL_KEPT_SIGNATURES].size_bytes != n * SEAL_SIGNATURE_BYTES ||
        r->sections[SEAL_KEPT_KEYS].size_bytes != n * sizeof(struct signer_key))
        return "not one signature and one key for each sealed site";
    for (unsigned i = 0; i < k->sites; i++) {
        struct seal_signature s;
        if (!set_has(&seal->s, i))
            continue;
        struct signer_key key = key_of(keys);
        uint8_t signed_bytes[SEAL_STATEMENT_BYTES];
        if (seal_signature_read(&s, at, SEAL_SIGNATURE_BYTES) != SEAL_ok || s.site != i ||
            !digest_equal(&s.seal, digest))
            return "a signature of another site, or of another seal";
        seal_statement(signed_bytes, i, digest);
        if (!verify(&key, signed_bytes, sizeof signed_bytes, s.signature))
            return "the signature of a sealed site does not hold";
        if (i == k->site && memcmp(&key, &k->own, sizeof key) != 0)
            return "another key than this site's";
        at += SEAL_SIGNATURE_BYTES;
        keys += sizeof key;
    }
    return NULL;
}

static const char *seal_check(const struct seal_kept *k, const struct record *r,
                              seal_verify *verify, struct seal *seal)
{
    const struct record_view *bytes = &r->sections[SEAL_KEPT_SEAL];
    struct signer_key aggregator = key_of(k->aggregator.bytes);
    struct seal_context c = {
        .run = k->run, .config = k->config, .roster_version = k->roster_version, .sites = k->sites};
    struct digest digest = digest_of(bytes->data, bytes->size_bytes);
    if (k->sites > SET_MAX || seal_read(&c, seal, bytes->data, bytes->size_bytes) != SEAL_ok)
        return "the seal is of another run, configuration or roster";
    if (seal->of.fragment != k->fragment || seal->of.round != k->round)
        return "the seal is of another round";
    if (!verify(&aggregator, bytes->data, bytes->size_bytes, r->sections[SEAL_KEPT_SIGNATURE].data))
        return "the aggregator has not signed the seal";
    if (!set_has(&seal->s, k->site) || !set_within(&seal->s, &seal->of.u))
        return "the site is not in the sealed set, or that has sites that were not announced";
    if (set_count(&seal->s) < round_threshold(set_count(&seal->of.u), k->colluding))
        return "fewer sites than a sum needs";
    return signatures_check(k, r, verify, seal, &digest);
}

bool seal_kept_holds(const struct seal_kept *k, const struct record *r, seal_verify *verify,
                     struct seal *seal, struct digest *payload, const char **why)
{
    struct seal_chain before;
    bool former = r->section_count == SEAL_KEPT_CHAIN; /* it has no chain */
    *why = NULL;
    if ((r->section_count != SEAL_KEPT_COUNT && !former) ||
        r->sections[SEAL_KEPT_SIGNATURE].size_bytes != SIGNER_BYTES)
        *why = "its sections are not those of a seal";
    for (size_t i = 0; !*why && i < SEAL_KEPT_CHAIN; i++)
        if (!record_intact(r, i))
            *why = "damaged";
    if (!*why && !former && !seal_kept_chain(r, &before))
        *why = "damaged";
    if (!*why)
        *why = seal_check(k, r, verify, seal);
    if (!*why)
        *payload = seal->payload[k->site];
    return !*why;
}
