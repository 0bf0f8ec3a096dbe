#ifndef CERT_REVOKE_H
#define CERT_REVOKE_H
/* `atoll cert revoke` and `atoll cert renew`: a name, or one certificate of it, is withdrawn, and
 * the name gets another key. issued.txt beside ca.key records what the authority has issued, so
 * that certificates can be revoked whose files are elsewhere.
 */
#include "outer/identity/tls.h"

enum {
    CERT_DAY_S = 86400,
    CERT_SKEW_S = 300, /* tolerated clock difference of other machines */
    CERT_DAYS_MAX = 825,
    CERT_HOSTS_MAX = 64
};
#define CERT_DAYS_MIN 0.0001 /* 9 s: tests of renewal */

/* From now on, less CERT_SKEW_S. */
struct tls_validity cert_validity(double days);
const char *cert_date(char out[32], int64_t unix_s);
/* After tls_issue: puts what it made on record in issued.txt, and returns the TLS certificate's
 * facts. */
enum err cert_issued(const struct tls_request *r, struct tls_facts *leaf) MUST;
/* One certificate of `dir`. */
enum err cert_issued_add(const char *dir, const struct tls_facts *f) MUST;
/* Splits tls_facts.hosts at its blanks, in place, into at most CERT_HOSTS_MAX. */
size_t cert_hosts(char *text, const char **list);
/* The name or this certificate is on the list of the directory. */
bool cert_is_revoked(const char *dir, const struct tls_facts *f);
enum err cert_revoke(int argc, char **argv, struct arena *arena) MUST;
enum err cert_renew(int argc, char **argv, struct arena *arena) MUST;

#endif
