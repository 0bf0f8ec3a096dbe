/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEAL_SITE_H
#define SEAL_SITE_H
/* A site's decisions in secure aggregation (docs/privacy-methods.md): which announced set it masks
 * with, which seal it signs, what it reveals. One seal signed and one answer for each (fragment,
 * round), for ever, over all attempts and terms; after an abort nothing. Pure but for signer and
 * keys; no clock, no files. A round is remembered until it is final; what is older is refused. Of
 * more than SEAL_ROUNDS_MAX rounds that are not final the oldest is forgotten, if it was aborted.
 *
 * A call that changes what is to be remembered says so (`persist`): the caller stores
 * seal_site_parts() under id/ with mode 0600 before the answer leaves the process. Storing it later
 * is an equivocation after a crash. The site's order in a round:
 *   seal_site_announced, seal_site_terms, mask_apply, seal_site_contribute -> store, with the
 *   payload in the outbox -> send; seal_site_sign -> store -> send; seal_site_reveal -> store ->
 *   send; seal_site_final, keys_final -> store.
 * The caller checks session and term of messages, and that the round is its current one.
 */
#include "outer/masks/seal_kept.h"

enum { SEAL_ROUNDS_MAX = 32 }; /* of a fragment that are not final */

struct seal_site; /* opaque: holds the seeds b */
enum err seal_site_open(struct seal_site **s, unsigned site, unsigned fragments) MUST;
void seal_site_close(struct seal_site *s); /* wipes; NULL is fine */

/* May this site mask for that set? again: it has. Changes nothing. */
enum seal_answer seal_site_announced(const struct seal_site *s, const struct seal_context *c,
                                     const struct seal_announce *a) MUST;
/* The masks of y = q + PRG(b) + sum of PRG(s_ij), j > i, - sum of PRG(s_ij), j < i. seeds: room for
 * |U|, in memory that the caller wipes; terms: the same room, |U| of them afterwards. */
enum seal_answer seal_site_terms(const struct seal_site *s, const struct keys *k,
                                 const struct seal_announce *a, const struct cipher_key *b,
                                 struct cipher_key *seeds, struct mask_term *terms) MUST;
/* y has this digest, and was made with b: 32 random bytes, other ones for each attempt. again: the
 * same digest as before. Another attempt replaces b: the seal of an older one is refused. */
enum seal_answer seal_site_contribute(struct seal_site *s, const struct seal_context *c,
                                      const struct seal_announce *a, const struct cipher_key *b,
                                      const struct digest *payload, bool *persist) MUST;
/* The aggregator's seal -> this site's signature. */
struct seal_signed { /* a seal as it travels */
    const uint8_t *bytes;
    size_t size_bytes;
    const uint8_t *signature; /* [SIGNER_BYTES], the aggregator's */
};
enum seal_answer seal_site_sign(struct seal_site *s, const struct seal_context *c,
                                struct signer *signer, const struct seal_signed *seal,
                                struct seal_signature *out, bool *persist) MUST;
/* All signatures of S, in any order -> b, and the seeds of U without S. out->seeds: room for |U|;
 * the caller wipes it. */
enum seal_answer seal_site_reveal(struct seal_site *s, const struct seal_context *c,
                                  struct signer *signer, const struct keys *k,
                                  const struct seal_signed *seal,
                                  const struct seal_signature *signatures, size_t count,
                                  struct seal_reveal *out, bool *persist) MUST;
/* The manifest of the round has an empty set, or an operator aborts it: b is wiped, and nothing of
 * the round is answered any more. ok: store. rounds_full: it cannot be remembered; nothing of this
 * round was masked here. */
enum seal_answer seal_site_abort(struct seal_site *s, unsigned fragment, uint64_t round) MUST;
/* Final: the round and those before are forgotten, and refused. */
void seal_site_final(struct seal_site *s, unsigned fragment, uint64_t round);

/* What seals/FRAGMENT has been given so far (seal_kept.h). The caller stores it. */
struct seal_chain seal_site_kept(const struct seal_site *s, unsigned fragment);
void seal_site_keep(struct seal_site *s, unsigned fragment, const struct seal_chain *kept);

/* A record of kind "maskseal": parts in `a` and in s, until s changes. */
enum err seal_site_parts(const struct seal_site *s, struct file_part **parts, size_t *count,
                         struct arena *a) MUST;
/* Into an opened s. ERR_MISMATCH: of another site or size; ERR_CORRUPT: then s is only closed. The
 * caller wipes the bytes. */
enum err seal_site_read(struct seal_site *s, const char *path, const void *data, size_t n) MUST;
/* For a reader of the records that were kept: what the file has of seal_site_kept(). *count:
 * fragments; 0: written by a program before there was any. ERR_CORRUPT; ERR_MISMATCH: of another
 * version. */
enum err seal_site_kept_read(struct seal_chain kept[KEYS_FRAGMENTS_MAX], unsigned *count,
                             const char *path, const void *data, size_t n) MUST;

#endif
