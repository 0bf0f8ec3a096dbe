/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_IDENTITY_H
#define SITE_IDENTITY_H
/* What a site signs, and what it checks of what an aggregator has signed. All of it does nothing
 * without o.signer. */
#include "outer/site/site.h"

/* Identity keys of aggregator number `aggregator` that the site of this directory has accepted, the
 * present one first. Their certificates are checked again. Returns how many. */
enum { SITE_KEYS_MAX = 8 };
struct site_seen_key {
    struct signer_key key;
    uint64_t first, last; /* terms: in each of them the aggregator has announced this key to the
                             site. The key may have been in use in others, too */
};
unsigned site_seen_keys(struct env *w, unsigned aggregator, const char *run, struct signer *signer,
                        struct site_seen_key keys[SITE_KEYS_MAX]);

/* The newest term that an aggregator has signed here, whether the site had bound to it or not; 0:
 * none. */
uint64_t site_announced_term(struct env *w, unsigned aggregator);

enum err site_identity_open(struct site *s, struct arena *perm) MUST;
/* The site's identity, the highest announcement of this aggregator, and the signatures of the
 * manifests that the site's states come from. */
enum err site_identity_show(struct site *s, unsigned peer, struct wire_hello *m) MUST;
/* The term of this answer is signed by an aggregator of the run: kept, durable on return, before
 * the site binds to it. ERR_DENIED: it is not. */
enum err site_identity_heard(struct site *s, unsigned peer, const struct wire_hello_answer *a) MUST;
enum err site_identity_again(struct site *s, unsigned peer) MUST; /* id/announced.N, from memory */
enum err site_identity_sign(struct site *s, struct wire_contribution *m) MUST;
/* S6. ERR_DENIED: not signed by the aggregator, or of a term after the one that the site is bound
 * to, or of another instance of it. */
enum err site_identity_check(struct site *s, const struct manifest *m) MUST;
bool site_identity_signed(const struct site *s, const struct manifest *m); /* by the known key */

#endif
