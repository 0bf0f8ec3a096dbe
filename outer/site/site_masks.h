#ifndef SITE_MASKS_H
#define SITE_MASKS_H
/* Secure aggregation at a site: site_masks.c. Everything returns at once where privacy.secure is
 * off. With the site's mutex locked; calls release it.
 */
#include "outer/site/site_own.h"

void site_masks_close(struct site *s);
/* There is a pair key with each site of the roster; waits for the others' public keys. */
enum err site_masks_ready(struct site_slot *l, unsigned fragment) MUST;
/* Which sites the round has. Before the contribution is made: it may call the aggregator. */
enum err site_masks_announced(struct site_slot *l, unsigned fragment, uint64_t round,
                              struct site_announced_round *r) MUST;
/* S2: l->payload -> l->masked, and b, announced and masked_bytes of the box. */
enum err site_masks_apply(struct site_slot *l, const struct site_announced_round *r,
                          const struct codec *c) MUST;
enum err site_masks_room(struct site_slot *l, size_t size) MUST; /* l->masked has so many bytes */
/* Durable on return: this site has masked the round with these bytes, and with no others. Before
 * they are sent. */
enum err site_masks_sending(struct site_slot *l) MUST;
/* What the poll of a round has asked for. */
enum err site_masks_answer(struct site_slot *l, unsigned fragment, uint64_t round,
                           enum wire_mask_step wants) MUST;
/* Durable: nothing is said of the aborted round any more. */
enum err site_masks_abort(struct site *s, unsigned fragment, uint64_t round) MUST;
void site_masks_forget(struct site *s, unsigned site); /* it was removed from the roster */
/* Rounds before `rounds` are final: their keys are wiped. */
void site_masks_final(struct site *s, unsigned fragment, uint64_t rounds);

#endif
