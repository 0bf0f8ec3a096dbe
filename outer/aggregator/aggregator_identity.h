#ifndef AGGREGATOR_IDENTITY_H
#define AGGREGATOR_IDENTITY_H
/* What the aggregator signs, and what it checks of what sites have signed. All of it does nothing
 * without a->o->signer; but for aggregator_header_keep under the aggregator's lock. */
#include "outer/aggregator/aggregator_state.h"

enum err aggregator_identity_open(struct aggregator_identity **out, struct arena *perm) MUST;
enum err aggregator_identities_read(struct aggregator *a) MUST;  /* the pinned keys, at a start */
enum err aggregator_identities_again(struct aggregator *a) MUST; /* written anew, from memory */
/* A manifest that is made, or of the disk: signed where its signature is none of this identity's
 * (made before there were signatures, or with another key). */
enum err aggregator_sign(struct aggregator *a, struct manifest *m) MUST;
/* The key that this site shows at hello is certified, and is the one that was seen first: else the
 * refusal is in the answer. The first one is durable on return. */
bool aggregator_identify(struct aggregator *a, unsigned site, const struct wire_hello *m,
                         struct wire_hello_answer *answer);
/* What of a hello about `e->fragment` is proved, into the event. */
void aggregator_proofs(struct aggregator *a, const struct wire_hello *m, struct round_event *e);
/* Of the epoch, signed; an error halts. */
void aggregator_announcement(struct aggregator *a, struct wire_announcement *out);
/* False: it is not signed with the site's pinned key. */
bool aggregator_header_signed(const struct aggregator *a, unsigned site,
                              const struct wire_contribution *m);
/* The signed header lies beside the payload, durable, before the payload's ACCEPT is journalled. */
enum err aggregator_header_keep(struct aggregator *a, const struct wire_contribution *m,
                                const char *payload_path) MUST;
/* ERR_CORRUPT: a journalled contribution whose kept header is missing or does not hold. */
enum err aggregator_header_kept(struct aggregator *a, const struct journal_record *r,
                                const char *payload_path) MUST;

bool aggregator_identity_key(const struct aggregator *a, unsigned site,
                             struct signer_key *out); /* false: not seen yet; out is zero */

#endif
