/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_SIGNS_H
#define AGGREGATOR_SIGNS_H
/* What the aggregator signs, and what it checks of what sites have signed: with the identity of its
 * signer (aggregator_identity.c), or nothing (aggregator_unsigned.c). aggregator.c chooses one by
 * its options. Every member is set. Under the lock of the service, but for header_keep. */
#include "outer/aggregator/aggregator_state.h"

struct aggregator_signs {
    enum err (*open)(void **kept, struct arena *perm); /* kept: a->part.signs */
    enum err (*read)(struct aggregator *a);            /* the pinned keys, at a start */
    enum err (*again)(struct aggregator *a);           /* rewritten from memory */
    /* A manifest that is made, or of the disk: signed where its signature is none of this
     * identity's (made before there were signatures, or with another key). */
    enum err (*sign)(struct aggregator *a, struct manifest *m);
    /* The key that this site shows at hello is certified, and is the one that was seen first: else
     * the refusal is in the answer. The first one is durable on return. */
    bool (*identify)(struct aggregator *a, unsigned site, const struct wire_hello *m,
                     struct wire_hello_answer *answer);
    /* What of a hello about `e->fragment` is proved, into the event. */
    void (*proofs)(struct aggregator *a, const struct wire_hello *m, struct round_event *e);
    /* Of the term, signed; an error halts. */
    void (*announcement)(struct aggregator *a, struct wire_announcement *out);
    /* False: it is not signed with the site's pinned key. */
    bool (*header_signed)(const struct aggregator *a, unsigned site,
                          const struct wire_contribution *m);
    /* The signed header is durable next to the payload before the payload's ACCEPT is journalled.
     */
    enum err (*header_keep)(struct aggregator *a, const struct wire_contribution *m,
                            const char *payload_path);
    /* ERR_CORRUPT: a journalled contribution whose kept header is missing or does not hold. */
    enum err (*header_kept)(struct aggregator *a, const struct journal_record *r,
                            const char *payload_path);
    /* The key that this site signs with; false: not seen yet, and out is zero. */
    bool (*key)(const struct aggregator *a, unsigned site, struct signer_key *out);
};
extern const struct aggregator_signs aggregator_signs_nothing;

#endif
