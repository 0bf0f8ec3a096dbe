/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEAL_KEPT_H
#define SEAL_KEPT_H
/* What a site keeps of a round for which it has revealed its mask: a record (record.h) of kind
 * "kept" in seals/FRAGMENT/ROUND, written before the mask is revealed and never removed. With it
 * the site proves later what left it: a masked payload with this digest, summed with those of the
 * sealed sites and of no others (atoll privacy verify). It holds no secret. Sections: the seal, the
 * aggregator's signature, the signatures of the sealed sites, their identity keys in the order of
 * the sites, and the records of the fragment before this one: how many, and a digest that chains
 * them. id/maskseals has the same of all of them (seal_site.h), so a record that is missing is
 * noticed, wherever it stood. Records of programs before 28 November 2026 have no such section;
 * they stand before the first one that has, and count.
 */
#include "outer/masks/seal.h"

struct seal_kept {
    const char *run;
    uint32_t fragment, roster_version, sites, colluding; /* sites: indices */
    uint32_t site;                                       /* index of the one whose record this is */
    uint64_t round, unix_ms;
    uint64_t payload_bytes;                /* of the masked payload */
    uint64_t charged;                      /* steps of the site's privacy budget by then */
    struct digest config, aggregator, own; /* the last two: public identity keys */
};
enum {
    SEAL_KEPT_SEAL,
    SEAL_KEPT_SIGNATURE,
    SEAL_KEPT_SIGNATURES,
    SEAL_KEPT_KEYS,
    SEAL_KEPT_CHAIN,
    SEAL_KEPT_COUNT
};

struct seal_chain {      /* of a fragment's records, in their order */
    uint64_t number;     /* of them */
    struct digest chain; /* zeros before the first one that has a chain */
};
enum { SEAL_CHAIN_BYTES = 8 + 32 };
void seal_chain_write(const struct seal_chain *c, uint8_t out[SEAL_CHAIN_BYTES]);
/* With one more: SHA-256 of "atollSC1", the chain so far, u32 fragment, u64 round, seal digest. */
struct seal_chain seal_chain_next(const struct seal_chain *c, uint32_t fragment, uint64_t round,
                                  const struct digest *seal);
/* Of the records before this one. False: the record has none, or it is damaged. */
bool seal_kept_chain(const struct record *r, struct seal_chain *before);

enum { /* of a record's sections */
       SEAL_KEPT_BYTES_MAX =
           SEAL_BYTES_MAX + SIGNER_BYTES + SET_MAX * (SEAL_SIGNATURE_BYTES + 32) + SEAL_CHAIN_BYTES
};
void seal_kept_fields(struct record_cursor *c, void *record); /* of record_form "kept" */
/* Is this what was released: a seal of the round, signed by the aggregator and by all sealed sites,
 * this site among them, and at least as many as the threshold says? why: the first rule that does
 * not hold. verify: of Ed25519. payload: the digest of this site's masked payload. */
typedef bool seal_verify(const struct signer_key *key, const void *data, size_t n,
                         const uint8_t signature[SIGNER_BYTES]);
bool seal_kept_holds(const struct seal_kept *k, const struct record *r, seal_verify *verify,
                     struct seal *seal, struct digest *payload, const char **why);

#endif
