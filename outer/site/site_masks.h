/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_MASKS_H
#define SITE_MASKS_H
/* Secure aggregation at a site: site_masks.c. Everything returns at once where privacy.secure is
 * off. With the site's mutex locked; calls release it.
 */
#include "outer/site/site.h"

struct site_announced_round;
struct site_slot;

/* The other sites' public identity keys that the site of this run directory has accepted (secure
 * aggregation), also while it runs. No file: none. ERR_CORRUPT. */
struct site_peer_key {
    char name[WIRE_NAME_MAX];
    struct signer_key key;
};
enum err site_peer_keys(struct site_peer_key **out, size_t *count, const char *directory,
                        struct arena *a) MUST;

void site_masks_close(struct site *s);
/* At a start, after hello: the files are there; keys of rounds that are final are wiped. */
enum err site_masks_begin(struct site *s) MUST;
/* Which sites the round has; with each of them there is a pair key. Before the contribution is
 * made: it calls the aggregator, and waits for the others' public keys. No sites: the round is
 * committed, or has not this site, and nothing of it is ever sent. */
enum err site_masks_announced(struct site_slot *l, unsigned fragment, uint64_t round,
                              struct site_announced_round *r) MUST;
/* S2: l->payload -> l->masked, and b, announced and masked_bytes of the box. */
enum err site_masks_apply(struct site_slot *l, const struct site_announced_round *r,
                          const struct codec *c) MUST;
enum err site_masks_room(struct site_slot *l,
                         size_t size) MUST; /* l->masked has room for `size` bytes */
/* Durable on return: this site has masked the round with these bytes, and with no others. Before
 * they are sent. *may false: nothing is sent to this round, and its manifest is waited for. */
enum err site_masks_sending(struct site_slot *l, bool *may) MUST;
/* What the poll of a round has asked for. */
enum err site_masks_answer(struct site_slot *l, unsigned fragment, uint64_t round,
                           const struct wire_poll_answer *asked) MUST;
/* Durable: nothing is said of the aborted round any more. */
enum err site_masks_abort(struct site *s, unsigned fragment, uint64_t round) MUST;
/* The manifest is adopted: pairs with sites that are in no round any more are wiped. */
enum err site_masks_adopted(struct site *s, const struct manifest *m) MUST;
/* Rounds before `rounds` are final: their keys are wiped. */
void site_masks_final(struct site *s, unsigned fragment, uint64_t rounds);

#endif
