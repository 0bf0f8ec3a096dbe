/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SITE_MASKS_OWN_H
#define SITE_MASKS_OWN_H
/* What the files of secure aggregation at a site share (site_masks.c). With the site's mutex
 * locked; calls release it.
 */
#include "outer/masks/keys.h"
#include "outer/masks/seal_site.h"
#include "outer/site/site_masks.h"
#include "outer/site/site_own.h"

struct peer { /* another site, by its index */
    bool pinned;
    char name[WIRE_NAME_MAX];
    struct signer_key key;
};
struct site_masks {
    struct keys *keys;
    struct seal_site *seals;
    unsigned room;               /* indices */
    struct peer *peer;           /* [room] */
    struct signer_key *identity; /* [room]: of a context */
    uint64_t final[ROUND_FRAGMENTS_MAX];
    /* The memory has more than the file: none of it may leave the process. */
    bool keys_unstored, seals_unstored;
    /* Of the last exchange of public keys: */
    uint32_t looked;     /* version of the roster that this site had heard of; 0: none */
    struct set unpaired; /* sites that the newest setup makes a pair with */
    uint32_t paired;     /* the newest setup of which all pairs are stored */
};
struct masks_step { /* one call */
    struct wire_mask m;
    struct wire_mask_answer answer;
};

/* ---- site_masks.c ---- */
enum err site_masks_open(struct site *s) MUST; /* the first call reads the files */
enum err site_masks_peers_write(struct site *s) MUST;
/* Of pair keys that a call has changed, or one before it that could not store them: durable. */
enum err site_masks_keys_store(struct site *s) MUST;
enum err site_masks_keys_stored(struct site *s) MUST; /* only if something is not stored yet */
enum err site_masks_seals_stored(struct site *s, bool changed) MUST;
/* To the aggregator, until it is answered. *done: with the requested answer; else another answer
 * was handled, and the caller tries again. */
enum err site_masks_step(struct masks_step **x, enum wire_mask_step step, unsigned fragment,
                         uint64_t round) MUST;
enum err site_masks_call(struct site_slot *l, struct masks_step *x, bool *done) MUST;
/* What the aggregator wants of a round, and must not get: the site gives nothing away, says so and
 * asks again later. A lying aggregator cannot end a site that way. */
enum err site_masks_refused(struct site_slot *l, unsigned fragment, uint64_t round,
                            const char *step, enum seal_answer a) MUST;
enum err site_masks_err(const char *what, enum seal_answer a) MUST;

/* ---- site_masks_setup.c: pair keys with the other sites ---- */
/* Own statement to the aggregator, the others' from it. The pairs that this makes are stored. */
enum err site_masks_setup(struct site_slot *l, unsigned fragment) MUST;
/* Those of these sites that this one has no pair with, or an old one. */
struct set site_masks_missing(const struct site *s, const struct set *members);

/* ---- site_masks_seal.c ---- */
/* Compares seals/ with id/maskseals. Counts a record that a kill has kept from id/maskseals; logs a
 * missing one. Once, with the files read. */
enum err site_masks_kept(struct site *s) MUST;

/* ---- site_masks_round.c: which sites a round has, and the mask of a contribution ---- */
/* What this site knows for itself: the sites of its newest state, or, where the round is the first
 * one of the next version, these with one change. Waits while it does not know. */
enum err site_masks_context(struct site_slot *l, const struct site_announced_round *r,
                            struct seal_context *c) MUST;
/* Which sites the round has. *over: nothing of it is sent any more. */
enum err site_masks_ask(struct site_slot *l, struct site_announced_round *r, bool *over) MUST;

#endif
