/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVE_REBUILD_H
#define SERVE_REBUILD_H
/* The directory of a lost aggregator, rebuilt from what the sites have (docs/protocol.md 3.5):
 * from their directories (atoll serve --rebuild; their processes have ended, or these are copies),
 * or from what they send (--rebuild-from-sites; outer/aggregator/supply.h).
 */
#include "outer/aggregator/supply.h"
#include "outer/config/run.h"
#include "outer/site/site.h"

struct rebuild_history { /* of one fragment: its newest manifest, and the digests of the kept ones
                          */
    uint64_t round;      /* of the state; 0: none */
    struct digest newest, *kept; /* kept[round % room], valid from `first` */
    uint64_t first, room;
};
struct rebuild_site {
    const char *path;
    struct env *env;     /* open, so that no site starts in it meanwhile */
    const char *sent_by; /* the site whose parts are to be put into it; NULL: none */
    struct site_seen seen;
    uint64_t term; /* the highest that an aggregator of the run has signed there; 0: none */
    enum err out;  /* why it was left out; ERR_OK: it was not */
    struct rebuild_history *history; /* [fragments]; NULL: it has not begun */
};
struct serve_rebuild {
    struct rebuild_site site[ROUND_SITES_MAX];
    unsigned count;
    char why[1024]; /* of those that were left out */
};

/* No directory is believed alone: each is checked by itself, and one that is damaged, not this
 * run's, not signed by an aggregator of the run, or of another history than the others' is left out
 * by name (ev=left_out). The rest counts while it is more than half of the newest roster.
 *
 * directories: separated by commas. Which sites they are of, and what those have seen. Writes the
 * settings into `env`, the aggregator's, which must not have begun. ERR_CONFIG, ERR_INPUT: a
 * directory is missing, no site's, or given twice; ERR_BUSY: in use. */
enum err serve_rebuild_claim(struct serve_rebuild *b, struct env *env, struct run *run,
                             const char *directories) MUST;
/* ERR_CONFIG: this directory has begun, there is nothing to rebuild. */
enum err serve_rebuild_empty(struct env *env) MUST;
/* The same from the sites that have sent all of theirs. */
enum err serve_rebuild_supplied(struct serve_rebuild *b, struct env *env, struct run *run,
                                const struct supply *supply) MUST;
/* Gives the replica, at round 0, the newest state of each fragment that it serves, with the
 * manifests and aggregates that are kept; then the term. The newest manifest must be signed by
 * an aggregator that its site has accepted, or by `signer`, and the others be its chain of parents.
 * Without more than half of the newest roster: ERR_CONFIG where fewer directories were given;
 * else ERR_DENIED, or the one error for which directories were left out. */
enum err serve_rebuild_states(struct serve_rebuild *b, struct outer_state *replica, struct run *run,
                              struct signer *signer) MUST;
void serve_rebuild_close(struct serve_rebuild *b); /* a zeroed one is fine */

#endif
