/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AGGREGATOR_MASKS_OWN_H
#define AGGREGATOR_MASKS_OWN_H
/* What the files of secure aggregation at the aggregator share (aggregator_masks.c). Under the lock
 * of the service.
 */
#include "outer/aggregator/aggregator_masks.h"
#include "outer/masks/seal_aggregator.h"

struct masks_site { /* what the aggregator passes on */
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t certificate_bytes; /* 0: no hello since the start */
    bool stated;
    uint8_t statement[KEYS_STATEMENT_BYTES];
};
struct masks_setup {        /* the file */
    uint32_t number, added; /* added: the site that it is for; of the first one: not used */
    uint32_t fragments, sites;
    uint64_t first[ROUND_FRAGMENTS_MAX]; /* rounds that its pairs begin with */
    uint64_t joins[ROUND_FRAGMENTS_MAX]; /* rounds before it are announced without the added site */
    uint32_t *paired;   /* [room] the newest setup of which each site has all pairs */
    uint32_t *stated;   /* [room] the newest setup that each site has stated a key in; 0: none */
    struct digest *key; /* [room] SHA-256 of that key */
};
struct aggregator_masks { /* a->part.sums */
    struct masks_setup setup;
    struct masks_site *site;      /* [sites of the core's room] */
    struct seal_aggregator *seal; /* [fragments] */
    bool setup_lost;
    bool *lost; /* [fragments]: what sites were told of the round is no longer stored */
    struct signer_key *identity; /* [room], of a context */
};

static inline struct aggregator_masks *masks_of(const struct aggregator *a)
{
    return a->part.sums;
}

/* ---- aggregator_masks.c: as the members of aggregator_sums.h ---- */
enum err aggregator_masks_open(void **kept, struct arena *perm) MUST;
void aggregator_masks_close(struct aggregator *a);
enum err aggregator_masks_read(struct aggregator *a, struct arena *perm) MUST;
uint64_t aggregator_masks_payload_bytes(const struct aggregator *a, unsigned fragment);
const char *aggregator_masks_header(const struct aggregator *a, const struct wire_contribution *m);
enum err aggregator_masks_ready(struct aggregator *a, unsigned fragment, bool *ready) MUST;
/* ERR_DIVERGED: the sum is none of integers in range. */
enum err aggregator_masks_sum(struct aggregator *a, unsigned fragment,
                              const struct codec_payload *payloads, unsigned count,
                              struct aggregate *g) MUST;
void aggregator_masks_over(struct aggregator *a, unsigned fragment);
/* ERR_DISAGREE: with this round AGGREGATOR_ABORTS_MAX rounds in a row are aborted, and the run
 * stops. A restart counts from 0: a person has as many rounds again to find the site. */
enum err aggregator_masks_committed(struct aggregator *a, const struct manifest *m) MUST;
size_t aggregator_masks_records(const struct aggregator *a, unsigned fragment,
                                struct journal_record *keep);
enum err aggregator_masks_restore(struct aggregator *a, const struct journal_record *r) MUST;
/* With a lost journal: seals that are found are those of the rounds in flight. */
enum err aggregator_masks_again(struct aggregator *a) MUST;
/* Rounds whose seal is lost are closed. */
enum err aggregator_masks_recovered(struct aggregator *a) MUST;
/* Of the round in flight. */
struct seal_context aggregator_masks_context(const struct aggregator *a, unsigned fragment);
bool aggregator_masks_sealed(const struct aggregator *a, unsigned fragment);

/* ---- aggregator_masks_setup.c ---- */
void aggregator_masks_hello(struct aggregator *a, unsigned site, const struct wire_hello *m);
/* A setup begins for the site that was added. */
enum err aggregator_masks_added(struct aggregator *a) MUST;
/* Once all sites have pair keys with the added one, later rounds are announced with it. */
enum err aggregator_masks_join(struct aggregator *a) MUST;
int aggregator_masks_apart(const struct aggregator *a);
const char *aggregator_masks_unpaired(const struct aggregator *a);
enum err aggregator_masks_setup_read(struct aggregator *a) MUST; /* at a start */
/* Has the site to state its key, or can it find all others'? */
bool aggregator_masks_setup_wants(const struct aggregator *a, unsigned site);
/* The call: a site's statement is taken, the others' are the answer. */
void aggregator_masks_setup(struct aggregator *a, unsigned site, const struct wire_mask *m,
                            struct wire_mask_answer *answer);

/* Sites of the round in flight that have stated no public key, so that no site can mask for them.
 * False: there is none. */
bool aggregator_masks_unstated(const struct aggregator *a, unsigned fragment, struct set *missing);
/* U: which sites mask for each other in the round in flight. */
struct set aggregator_masks_announced(const struct aggregator *a, unsigned fragment);

#endif
