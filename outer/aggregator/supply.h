/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SUPPLY_H
#define SUPPLY_H
/* The service of an aggregator that has lost its directory (docs/protocol.md 3.5): it answers the
 * hello of each site with `supply`, takes the parts that the site sends, and everything else with
 * `rebind` or `full`. It knows no round and commits nothing: outer/run/serve_rebuild.c makes the
 * directory of these files, and checks signatures and histories.
 *
 * Files, in the aggregator's directory, each durable under its name and of the digest that the site
 * announced:
 *   supply/SITE/parts/F.T.state, .manifest, .aggregate
 *   supply/SITE/run/id/site, id/announced.N    as in a site's run.dir
 *
 * A part's size is bounded by configuration and kind before anything is stored; a site has at most
 * the parts of outer.history_rounds rounds of each fragment. Threads: as of any link_service.
 */
#include "outer/link/link.h"
#include "outer/protocol/signer.h"
#include "outer/store/outer_state.h"

struct supply_options {
    const char *run;
    const char *const *sites; /* outer.sites */
    unsigned site_count;
    const char *canonical; /* as aggregator_options.canonical */
    bool strict;
    uint64_t straggler_ms;                   /* quorum: how long it waits for further sites once
                                                more than half of them are here */
    unsigned index, count;                   /* of several aggregators; 0, 0: alone */
    const struct outer_state_options *state; /* of a replica of the run */
    struct signer *signer;
    const char *revoked_path, *revoked_copy; /* as in aggregator_options */
};
struct supply; /* opaque */

extern const char SUPPLY_DIRECTORY[]; /* "supply" */

/* env: the aggregator's. Removes what an earlier attempt has left. */
enum err supply_open(struct supply **s, struct env *env, const struct supply_options *o,
                     struct arena *perm) MUST;
void supply_close(struct supply *s); /* NULL is fine */
/* Its work() stops the server once enough sites are here: in strict mode all, else more than half,
 * and then all or straggler_ms later. Of the newest roster that a manifest names. A site without a
 * state is here when it has said hello; it is not one of more than half. */
struct link_service supply_service(struct supply *s);
bool supply_enough(const struct supply *s); /* once the server has stopped */
/* Sites that have sent all of theirs, by number; NULL: no more. */
const char *supply_site(const struct supply *s, unsigned number);
/* "SITE/parts/F.T.KIND" in SUPPLY_DIRECTORY. */
enum { SUPPLY_PATH_MAX = 192 };
void supply_path(char out[SUPPLY_PATH_MAX], const char *site, enum wire_supply kind,
                 unsigned fragment, uint64_t round);

#endif
