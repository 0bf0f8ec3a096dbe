/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RELEASED_H
#define RELEASED_H
/* What left a site under secure aggregation, and whether it can be proved: of the records that the
 * site made at the time (seals/F/t, outer/masks/seal_kept.h), the manifests that it still has and
 * its list of charges. A record that is not there proves nothing: records are numbered and chained,
 * and id/maskseals says how many there are; and each round from 0 to the newest one is asked for,
 * and one in which a manifest or another site's seal has this site, or which no manifest says to
 * have been without it, is not proved. Keys are wiped round by round, so no mask is recomputed:
 * what is proved is which masked bytes were summed with which sites' bytes. Reads only.
 */
#include "outer/masks/seal_kept.h"
#include "outer/record/json_write.h"
#include "outer/store/env.h"

enum { RELEASED_WHY_MAX = 256 };
struct released_round {
    uint32_t fragment;
    uint64_t round, unix_ms, payload_bytes, charged;
    unsigned summed, announced; /* sites of the sum; of the round */
    struct digest seal, payload;
    bool manifest; /* the manifest is still here, and names these bytes */
    struct digest aggregator;
    struct set sealed; /* of the sum */
    bool numbered;     /* the record says how many were before it */
    struct seal_chain before;
};
struct released {
    char run[64], site[64];
    const char *dir;
    uint32_t index; /* of the site */
    struct digest own;
    struct released_round *round; /* [count], by fragment and round */
    size_t count;
    uint64_t bytes;   /* of all masked payloads */
    size_t failed;    /* records and manifests that prove nothing, or the contrary */
    size_t aborted;   /* contributions to rounds that were aborted: sent, and never unmasked */
    const char **why; /* [failed] */
    size_t unknown;   /* rounds before the first record, of which nothing here says more */
    size_t former;    /* records of programs before there were numbers */
    struct released_span {
        uint64_t rounds; /* committed ones, by the newest manifest; 0: no state of this fragment */
        uint8_t *said;   /* [rounds] enum released_said: by manifests and by other sites' seals */
    } span[ROUND_FRAGMENTS_MAX];
};
enum released_said { RELEASED_UNSAID, RELEASED_OUT, RELEASED_IN, RELEASED_TOLD };
/* ERR_INPUT: the directory has no records of secure aggregation. */
enum err released_read(struct released *r, const char *dir, seal_verify *verify,
                       struct arena *a) MUST;
/* Two sites of a run: the same seal for the same round, and what its sealed set says of the other
 * site. Adds what differs to b->why, and what is missing to that of its site. */
enum err released_compare(struct released *a, struct released *b, struct arena *arena) MUST;
/* After all compares: the rounds without a record. */
enum err released_finish(struct released *r, struct arena *arena) MUST;

struct released_sum {                    /* over the rounds of a site */
    uint64_t first_ms, last_ms, charged; /* Unix; most charged steps that a payload names */
    size_t manifests;                    /* rounds whose manifest is still here */
    unsigned least, most;                /* sites of a sum */
};
/* Without rounds: zeros. */
void released_sum(struct released_sum *out, const struct released *r);
struct released_budget { /* was each step charged before its payload was sent, within the cap? */
    bool none;           /* no record-level privacy inside this site; else... */
    bool unproved;  /* ...the charges cannot be read, and the thread's message says why; else: */
    uint64_t named; /* most charged steps that a payload names */
    int64_t steps;  /* charged */
    double epsilon, delta, cap; /* epsilon 0 when unclaimed; cap 0: none */
    const char *unclaimed;      /* why no epsilon can be claimed; NULL: it can */
    bool charged, within;
};
enum err released_budget(struct released_budget *b, const struct released *r, struct arena *a) MUST;
/* On standard output, w: as one JSON object: what left the site, whether that was charged, what is
 * not proved. Adds the number of statements that are not proved. */
enum err released_print(const struct released *r, struct json_write *w, struct arena *a,
                        size_t *failed) MUST;

#endif
