#ifndef AGGREGATOR_MASKS_H
#define AGGREGATOR_MASKS_H
/* Secure aggregation at the aggregator: aggregator_masks.c and its parts. Nothing happens without
 * a->part.masks. */
#include "outer/aggregator/aggregator_state.h"

struct masks_sum {
    uint8_t *data; /* room for aggregate_max */
    size_t size_bytes;
};
enum err aggregator_masks_open(struct aggregator_masks **out, struct arena *perm) MUST;
enum err aggregator_masks_read(struct aggregator *a, struct arena *perm) MUST; /* at a start */
void aggregator_masks_close(struct aggregator *a);
/* Of a masked contribution to the round in flight; 0: they are in the clear. */
uint64_t aggregator_masks_payload_bytes(const struct aggregator *a, unsigned fragment);
/* Why a header is refused; NULL: it is not. */
const char *aggregator_masks_header(const struct aggregator *a, const struct wire_contribution *m);
void aggregator_masks_hello(struct aggregator *a, unsigned site, const struct wire_hello *m);
void aggregator_mask(void *self, const char *peer, const struct wire_mask *m,
                     struct wire_mask_answer *answer);
/* What a poll of this site asks it for, and what goes with it. */
void aggregator_masks_poll(const struct aggregator *a, unsigned fragment, unsigned site,
                           struct wire_poll_answer *out);
/* A sealed round: the sites that have not signed, or revealed, and what they owe; else NULL, and
 * *missing is left. */
const char *aggregator_masks_missing(const struct aggregator *a, unsigned fragment,
                                     struct set *missing);
/* Of a sealed fragment: the seal is made, and may the commit begin? */
enum err aggregator_masks_ready(struct aggregator *a, unsigned fragment, bool *ready) MUST;
/* Without the lock. ERR_DIVERGED: the sum is none of integers in range. */
enum err aggregator_masks_sum(struct aggregator *a, unsigned fragment,
                              const struct codec_payload *payloads, unsigned count,
                              struct masks_sum *out, struct arena *scratch) MUST;
/* The added site that rounds of the newest roster are announced without; -1: none. */
int aggregator_masks_apart(const struct aggregator *a);
/* Once all sites have pair keys with the added one, later rounds are announced with it. */
enum err aggregator_masks_join(struct aggregator *a) MUST;
/* ERR_DISAGREE: with this round MASKED_ABORTS_MAX rounds in a row are aborted, and the run stops. A
 * restart counts from 0: a person has as many rounds again to find the site. */
enum { MASKED_ABORTS_MAX = 32 };
enum err aggregator_masks_aborted(const struct aggregator *a, const struct manifest *m) MUST;
void aggregator_masks_over(struct aggregator *a, unsigned fragment); /* committed: wiped */
/* The SEAL record of the round in flight; returns how many: 0 or 1. */
size_t aggregator_masks_record(const struct aggregator *a, unsigned fragment,
                               struct journal_record *keep);
enum err aggregator_masks_restore(struct aggregator *a, const struct journal_record *r) MUST;
/* With a lost journal: seals that are found are those of the rounds in flight. */
enum err aggregator_masks_again(struct aggregator *a) MUST;
/* Rounds whose seal is lost are closed. */
enum err aggregator_masks_recovered(struct aggregator *a) MUST;
/* A setup begins for the site that was added. */
enum err aggregator_masks_added(struct aggregator *a) MUST;
/* A site that has not all pairs of the newest setup; NULL: there is none. */
const char *aggregator_masks_unpaired(const struct aggregator *a);

#endif
