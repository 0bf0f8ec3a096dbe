/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SEAL_AGGREGATOR_H
#define SEAL_AGGREGATOR_H
/* The aggregator's side of one round of secure aggregation: which contributions are there, the
 * seal, the signatures, what is revealed, and then the masks to take off. One struct for each round
 * in flight. Pure but for the signer; no clock, no files.
 *
 * Order: announce; accept contributions; seal -> journal the bytes and the signature, durably ->
 * send; signatures; when `signed_all`, send them to the sites of S; reveals; when `revealed_all`,
 * sum the payloads of S (mask_sum), apply the terms (mask_apply), read the signed words. After a
 * restart seal_aggregator_restore continues with the journalled seal and no other: sites answer
 * again. A reveal is not verifiable: a site that gives a wrong seed spoils the round's sum.
 */
#include "outer/masks/seal.h"

enum seal_stage { SEAL_ANNOUNCED, SEAL_SEALED, SEAL_ABORTED };

struct seal_aggregator { /* open: its owner reads it; only the functions below write it */
    struct seal_announce of;
    enum seal_stage stage;
    struct set accepted; /* of U, with their digests in seal.payload */
    struct seal seal;
    uint8_t *bytes; /* of the seal */
    size_t size_bytes;
    uint8_t signature[SIGNER_BYTES];
    struct digest digest;
    struct set have_signature, have_reveal;
    struct seal_signature *signatures; /* [|S|], in site order: what is sent back */
    struct cipher_key *seeds;          /* [|S|][1 + |U without S|] */
    size_t seeds_each;
};

/* ok, or announce_...: what the sites would refuse too. Zeroed or closed before. */
enum seal_answer seal_aggregator_announce(struct seal_aggregator *r, const struct seal_context *c,
                                          const struct seal_announce *a) MUST;
void seal_aggregator_close(struct seal_aggregator *r); /* wipes; a zeroed one is fine */
/* The payload of a site is durable. again: the same; contribute_twice: another digest. */
enum seal_answer seal_aggregator_accept(struct seal_aggregator *r, unsigned site,
                                        const struct digest *payload) MUST;
/* S = all accepted so far. seal_set_too_small: fewer than the threshold. */
enum seal_answer seal_aggregator_seal(struct seal_aggregator *r, const struct seal_context *c,
                                      struct signer *signer, uint64_t term) MUST;
/* From the journal, in place of announce, accept and seal. */
enum seal_answer seal_aggregator_restore(struct seal_aggregator *r, const struct seal_context *c,
                                         const uint8_t *bytes, size_t n,
                                         const uint8_t signature[SIGNER_BYTES]) MUST;
enum seal_answer seal_aggregator_signature(struct seal_aggregator *r, const struct seal_context *c,
                                           struct signer *signer,
                                           const struct seal_signature *s) MUST;
bool seal_aggregator_signed(const struct seal_aggregator *r); /* all of S */
/* reveal_other_sites: not exactly the seeds of U without S. */
enum seal_answer seal_aggregator_reveal(struct seal_aggregator *r,
                                        const struct seal_reveal *v) MUST;
bool seal_aggregator_revealed(const struct seal_aggregator *r); /* all of S */
/* What is applied to the sum over S. Room: seal_aggregator_term_count. Valid until close. */
size_t seal_aggregator_term_count(const struct seal_aggregator *r);
void seal_aggregator_terms(const struct seal_aggregator *r, struct mask_term *terms);
void seal_aggregator_abort(struct seal_aggregator *r); /* what was revealed is wiped */

#endif
