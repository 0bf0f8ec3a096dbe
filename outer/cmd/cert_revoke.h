/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CERT_REVOKE_H
#define CERT_REVOKE_H
/* `atoll cert revoke` and `atoll cert renew`: a name, or one certificate of it, is withdrawn, and
 * the name gets another key (outer/identity/authority.h).
 */
#include "outer/identity/tls.h"

enum {
    CERT_DAY_S = 86400,
    CERT_SKEW_S = 300, /* tolerated clock difference of other machines */
    CERT_DAYS_MAX = 825
};
#define CERT_DAYS_MIN 0.0001 /* 9 s: tests of renewal */

/* From now on, less CERT_SKEW_S. */
struct tls_validity cert_validity(double days);
enum err cert_revoke(int argc, char **argv, struct arena *arena) MUST;
enum err cert_renew(int argc, char **argv, struct arena *arena) MUST;

#endif
