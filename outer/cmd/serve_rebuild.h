#ifndef SERVE_REBUILD_H
#define SERVE_REBUILD_H
/* The directory of a lost aggregator, made again from what the sites have (docs/protocol.md 3.5):
 * from their directories (atoll serve --rebuild; their processes have ended, or these are copies),
 * or from what they send (--rebuild-from-sites; outer/aggregator/supply.h).
 */
#include "outer/aggregator/supply.h"
#include "outer/config/run.h"
#include "outer/site/site.h"

struct serve_rebuild {
    struct {
        const char *path;
        struct env *env;     /* open, so that no site starts in it meanwhile */
        const char *sent_by; /* the site whose parts are to be put into it; NULL: none */
        struct site_seen seen;
    } site[ROUND_SITES_MAX];
    unsigned count;
};

/* directories: separated by commas. Which sites they are of, and what those have seen. Writes the
 * settings into `env`, the aggregator's, which must not have begun. ERR_CONFIG, ERR_INPUT name what
 * is wrong: a directory that is missing or no site's, two of one site. */
enum err serve_rebuild_claim(struct serve_rebuild *b, struct env *env, struct run *run,
                             const char *directories) MUST;
/* ERR_CONFIG: this directory has begun, there is nothing to rebuild. */
enum err serve_rebuild_empty(struct env *env) MUST;
/* The same from the sites that have sent all of theirs. */
enum err serve_rebuild_supplied(struct serve_rebuild *b, struct env *env, struct run *run,
                                const struct supply *supply) MUST;
/* Gives the replica, at round 0, the newest state of each fragment that it serves, with the
 * manifests and aggregates that are kept; then the epoch. The newest manifest must be signed by
 * an aggregator that its site has accepted, or by `signer`, and the others be its chain of parents.
 * ERR_CONFIG: fewer than a majority of the newest roster in the manifests. ERR_DISAGREE: the
 * directories hold different histories; ERR_DENIED: a signature does not hold. */
enum err serve_rebuild_states(const struct serve_rebuild *b, struct outer_state *replica,
                              struct run *run, struct signer *signer) MUST;
void serve_rebuild_close(struct serve_rebuild *b); /* a zeroed one is fine */

#endif
