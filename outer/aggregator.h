#ifndef AGGREGATOR_H
#define AGGREGATOR_H
/* The aggregator: a link_service over the pure round core, the journal, the spool and a member's outer state. It has no
 * thread and no socket of its own: the link calls it. What is acknowledged is durable; the rename of CURRENT is the
 * one commit point; a restart reads the directory and goes on (protocol 3.5).
 */
#include "outer/link/link.h"
#include "outer/member.h"

struct aggregator_options {
    const char *run;
    const char *const *sites;    /* roster, in configuration order: site index = position */
    unsigned site_count;
    const char *canonical;       /* pinned keys; its digest is the configuration digest */
    bool strict;
    uint64_t straggler_ms;
    const char *revoked_path;    /* list of refused identities, one URI per line, read again when it changes; NULL: none */
};
struct aggregator; /* opaque */

/* The member is open and loaded or begun. New epoch; reads the journal, cuts a torn tail, keeps verified ACCEPTs. */
enum err aggregator_open(struct aggregator **a, struct world *w, struct member *m,
                         const struct aggregator_options *o, struct arena *perm) MUST;
struct link_service aggregator_service(struct aggregator *a);
void aggregator_close(struct aggregator *a);
/* True when every fragment has had its last scheduled round and every site has reported it (or left). */
bool aggregator_done(const struct aggregator *a);
enum err aggregator_failed(const struct aggregator *a); /* why it halted: ERR_OK when it did not */

#endif
