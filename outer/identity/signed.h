/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIGNED_H
#define SIGNED_H
/* What is signed, as canonical bytes (docs/protocol.md 6.1): little-endian, fields in this order,
 * a text as u16 length and its bytes.
 *
 *   header        "atollSH1", run, site, config[32], u32 roster version, u64 term,
 *                 u64 incarnation, u64 instance, u32 aggregator, u32 fragment, u64 round,
 *                 u32 codec, u64 payload bytes, payload[32], parent[32], grid[32], f32 weight,
 *                 u64 data cursor, u64 max local steps offline, u8 residual ratio;
 *                 "atollSH2" with u64 charged steps after it, where that is not 0
 *   manifest      "atollSM1", run, u32 fragment, u64 round, digest of the body[32], u64 term,
 *                 u64 instance, u64 unix_ms
 *   announcement  "atollSE1", run, u32 aggregator, u64 term, u64 instance; it travels with the
 *                 u16 length and the bytes of the aggregator's certificate and the signature after
 *
 * Pure but for the signer that is passed in.
 */
#include "outer/protocol/signer.h"
#include "outer/wire/wire.h"

/* Fills in m->signature. */
enum err signed_header_sign(struct signer *s, struct wire_contribution *m) MUST;
bool signed_header_holds(struct signer *s, const struct signer_key *key,
                         const struct wire_contribution *m);

enum { SIGNED_HEADER_MAX = 512 };
/* The header as it was signed, and the signature after it: bytes written. */
size_t signed_header_write(const struct wire_contribution *m, uint8_t out[SIGNED_HEADER_MAX]);
/* ERR_PROTO: malformed. The signature is not checked. */
enum err signed_header_read(struct wire_contribution *m, const uint8_t *data, size_t n) MUST;

/* Fills in m->signature; the rest of the manifest is final. */
enum err signed_manifest_sign(struct signer *s, struct manifest *m) MUST;
bool signed_manifest_holds(struct signer *s, const struct signer_key *key,
                           const struct manifest *m);
/* What of a manifest proves that it was signed, without its body. */
struct wire_proof signed_manifest_proof(const struct manifest *m);
/* Was the manifest `digest` of state `round` (so of round - 1) signed with this key? */
bool signed_proof_holds(struct signer *s, const struct signer_key *key, const char *run,
                        uint32_t fragment, const struct wire_fragment_state *state);

struct signed_announcement { /* of a term */
    char run[WIRE_NAME_MAX];
    uint32_t aggregator;
    uint64_t term, instance;
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t certificate_bytes;
    uint8_t signature[SIGNER_BYTES];
};
/* Fills in certificate and signature, and writes all of it. */
enum err signed_announcement_make(struct signer *s, struct signed_announcement *a,
                                  struct wire_announcement *out) MUST;
/* Parsed only; ERR_PROTO: malformed. */
enum err signed_announcement_read(struct signed_announcement *a,
                                  const struct wire_announcement *in) MUST;
/* Its certificate is of an aggregator of `run`, and the signature is by its key. ERR_DENIED. */
enum err signed_announcement_check(struct signer *s, const struct signed_announcement *a,
                                   const char *run, struct signer_identity *by) MUST;

#endif
