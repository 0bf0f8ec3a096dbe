/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROLES_H
#define ROLES_H
/* Who may call what: one table of roles and calls, asked at each call (docs/protocol.md 3.13). The
 * role is part of the certificate's URI, atoll://run/role/name. That a site calls as itself, is in
 * the roster and not in quarantine is checked after it. Pure.
 */
#include <stdbool.h>

#define ROLES_LIST(X)                                                                              \
    X(ROLES_SITE, site)                                                                            \
    X(ROLES_AGGREGATOR, aggregator) X(ROLES_OPERATOR, operator) X(ROLES_OBSERVER, observer)
enum roles_role {
#define X(value, name) value,
    ROLES_LIST(X)
#undef X
        ROLES_OTHER, /* another run, an unknown role, no certificate */
    ROLES_COUNT
};

/* X(value, name, who may: bits, 1 << role) */
#define ROLES_BIT(role) (1u << (role))
#define ROLES_CALLS(X)                                                                             \
    X(ROLES_HELLO, hello, ROLES_BIT(ROLES_SITE))                                                   \
    X(ROLES_CONTRIBUTE, contribute, ROLES_BIT(ROLES_SITE))                                         \
    X(ROLES_POLL, poll, ROLES_BIT(ROLES_SITE))                                                     \
    X(ROLES_FETCH, fetch, ROLES_BIT(ROLES_SITE))                                                   \
    X(ROLES_REPORT, report, ROLES_BIT(ROLES_SITE))                                                 \
    X(ROLES_LEAVE, leave, ROLES_BIT(ROLES_SITE))                                                   \
    X(ROLES_MASK, mask, ROLES_BIT(ROLES_SITE))                                                     \
    X(ROLES_STATUS, status, ROLES_BIT(ROLES_OPERATOR))                                             \
    X(ROLES_ABORT, abort, ROLES_BIT(ROLES_OPERATOR))                                               \
    X(ROLES_QUARANTINE, quarantine, ROLES_BIT(ROLES_OPERATOR))                                     \
    X(ROLES_READMIT, readmit, ROLES_BIT(ROLES_OPERATOR))                                           \
    X(ROLES_ROLLBACK, rollback, ROLES_BIT(ROLES_OPERATOR))                                         \
    X(ROLES_ROSTER, roster, ROLES_BIT(ROLES_OPERATOR))                                             \
    X(ROLES_SET, set, ROLES_BIT(ROLES_OPERATOR))                                                   \
    X(ROLES_METRICS, metrics,                                                                      \
      ROLES_BIT(ROLES_SITE) | ROLES_BIT(ROLES_OPERATOR) | ROLES_BIT(ROLES_OBSERVER))               \
    X(ROLES_RECORDS, records, ROLES_BIT(ROLES_OPERATOR) | ROLES_BIT(ROLES_OBSERVER))
enum roles_call {
#define X(value, name, who) value,
    ROLES_CALLS(X)
#undef X
        ROLES_CALLS_COUNT
};

/* peer: verified URI of the caller, may be NULL. */
enum roles_role roles_of(const char *peer, const char *run);
bool roles_may(enum roles_role role, enum roles_call call);
const char *roles_call_name(enum roles_call call);

#endif
