/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COUNTED_H
#define COUNTED_H
/* Whose data is in the outer state: for each site the rounds that include it and its tokens when it
 * was last included. An aggregator counts from its manifests and writes each round's part into
 * metrics.jsonl (`cursors`); after a restart, and in the report, it is counted from there. Which
 * sites are missing at the end is a question to the manifests (counted_short), which are durable.
 */
#include "outer/record/jsonl.h"
#include "outer/store/outer_state.h"

struct counted_site {
    uint64_t rounds; /* that include the site, of all fragments */
    uint64_t tokens; /* of the site, when it was last included */
    bool ends;       /* is in the newest round of each fragment */
};
struct counted {
    uint64_t rounds;                    /* committed, of all fragments */
    uint64_t next[ROUND_FRAGMENTS_MAX]; /* newest round + 1; 0: none yet */
    struct set newest[ROUND_FRAGMENTS_MAX];
    uint64_t site_rounds[ROUND_SITES_MAX], site_tokens[ROUND_SITES_MAX];
};

enum { COUNTED_TEXT_MAX = 32 * ROUND_SITES_MAX };
/* "0:4096,2:8192": index and tokens of each site that the manifest includes. */
void counted_text(const struct manifest *m, char out[COUNTED_TEXT_MAX]);
/* One round; one that was counted before is not counted again. */
void counted_add(struct counted *s, unsigned fragment, uint64_t round, const char *text);
/* The same from a record of kind "round"; others are left out. */
void counted_record(struct counted *s, const struct jsonl_row *row);
struct counted_site counted_of(const struct counted *s, unsigned site);
uint64_t counted_tokens(const struct counted *s); /* of all sites */

struct counted_last {       /* of the last rounds of fragments */
    struct set missing;     /* sites that one of them does not include */
    struct manifest newest; /* the one of the newest roster; no sites: there was no round */
};
/* Adds those of fragments index, index + count, ..., as far as this process holds them. */
enum err counted_last(struct counted_last *c, struct outer_state *m, unsigned index,
                      unsigned count) MUST;
/* Adds what another process of the site has counted. */
void counted_join(struct counted_last *c, const struct counted_last *other);
/* What missing sites trained since they were last included is in no state. ERR_SHORT names them;
 * `names`: outer.sites. A fragment without a round counts as complete. */
enum err counted_short(const struct counted_last *c, const char *const *names) MUST;

#endif
