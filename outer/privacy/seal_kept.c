#include "outer/privacy/seal_kept.h"
#include <stdlib.h>
#include <string.h>

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
    *why = NULL;
    if (r->section_count != SEAL_KEPT_COUNT ||
        r->sections[SEAL_KEPT_SIGNATURE].size_bytes != SIGNER_BYTES)
        *why = "its sections are not those of a seal";
    for (size_t i = 0; !*why && i < SEAL_KEPT_COUNT; i++)
        if (!record_intact(r, i))
            *why = "damaged";
    if (!*why)
        *why = seal_check(k, r, verify, seal);
    if (!*why)
        *payload = seal->payload[k->site];
    return !*why;
}
