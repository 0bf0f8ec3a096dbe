#ifndef RELEASED_H
#define RELEASED_H
/* What left a site under secure aggregation, and whether it can be proved: of the records that the
 * site made at the time (seals/F/t, outer/privacy/seal_kept.h), the manifests that it still has and
 * its list of charges. Keys are wiped round by round, so no mask is made again: what is proved is
 * which masked bytes were summed with which sites' bytes. Reads only.
 */
#include "outer/privacy/seal_kept.h"
#include "outer/store/env.h"

enum { RELEASED_WHY_MAX = 256 };
struct released_round {
    uint32_t fragment;
    uint64_t round, unix_ms, payload_bytes, charged;
    unsigned summed, announced; /* sites of the sum; of the round */
    struct digest seal, payload;
    bool manifest; /* the manifest is still here, and names these bytes */
    struct digest aggregator;
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
};
/* ERR_INPUT: the directory has no records of secure aggregation. */
enum err released_read(struct released *r, const char *dir, seal_verify *verify,
                       struct arena *a) MUST;
/* Two sites of a run: the same seal for the same round, and the payload that the other one has as
 * its own. Adds what differs to b->why. */
enum err released_compare(const struct released *a, struct released *b, struct arena *arena) MUST;

#endif
