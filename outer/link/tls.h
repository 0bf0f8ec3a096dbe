#ifndef TLS_H
#define TLS_H
/* TLS: the version forced on the whole process, key and certificate files read with their checks,
 * and the small authority behind `atoll cert`. tls.c is the only file that includes OpenSSL's SSL
 * and X.509. It opens no connection: gRPC does, and verifies with the same library. An identity is
 * exactly one URI in the certificate, atoll://run/role/name. Blocking file operations; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outer/link/link.h"

enum { TLS_NAME_MAX = 64, TLS_URI_MAX = 3 * TLS_NAME_MAX, TLS_PEM_MAX = 1 << 16 };

enum tls_role { TLS_SITE, TLS_AGGREGATOR, TLS_OPERATOR };

/* TLS 1.3 with two ciphers and without session tickets, for every connection of this process.
 * Before grpc_init(); loads its configuration from memory, deaf to OPENSSL_CONF. Tests that it
 * took: the setting is silent when it fails. ERR_UNSUPPORTED: do not start. */
enum err tls_force13(void) MUST;

/* Texts of a certificate, key and authority. Keys: regular file, not a link, of this user (or
 * root), closed to others. */
struct tls_pem {
    char *ca, *certificate, *key;
};
enum err tls_load(struct tls_pem *p, const struct link_tls *files) MUST;
void tls_forget(struct tls_pem *p);                    /* wipes the key; accepts a zeroed struct */
size_t tls_certificate_bytes(const struct tls_pem *p); /* DER of its first certificate, about */
/* Changes when one of the files is replaced. 0: one of them is missing. */
uint64_t tls_stamp(const struct link_tls *files);

/* What a process can know about its own files before it connects: signed by the authority, valid at
 * now_unix, made for this role and name, key and certificate belong together. ERR_DENIED with what,
 * where and what to do. Logs when it expires soon, as tls_log_expiry does. */
enum err tls_check(const struct link_tls *files, const char *run, enum tls_role role,
                   const char *name, int64_t now_unix, int64_t *days_left) MUST;

/* ERR_DENIED with the sentence of tls_check when the certificate of this file is not valid now. */
enum err tls_current(const char *path, int64_t now_unix) MUST;

bool tls_role_parse(enum tls_role *role, const char *name);

struct tls_validity {
    int64_t from_unix, until_unix;
};
/* Makes directory/ca.pem and ca.key (0600). ERR_INPUT when there is a ca.key already: it is never
 * replaced. */
enum err tls_authority(const char *directory, const char *run, bool ed25519,
                       struct tls_validity v) MUST;
struct tls_request {
    const char *directory; /* of ca.pem, ca.key and revoked.txt */
    const char *out; /* where NAME.pem and NAME.key go, and a copy of ca.pem when it is elsewhere */
    enum tls_role role;
    const char *name;
    const char *const *hosts; /* aggregator: DNS names and IP addresses it is dialled by */
    size_t host_count;
    bool ed25519; /* else P-256 */
    struct tls_validity validity;
};
/* Replaces both files by rename, the certificate last. */
enum err tls_issue(const struct tls_request *r) MUST;

struct tls_facts { /* what one certificate says; times in seconds since 1970 */
    char subject[256], issuer[256], serial[64];
    char key[32];          /* "P-256", "ED25519" */
    char uri[TLS_URI_MAX]; /* the first one */
    char hosts[1024];      /* DNS names and addresses, by blanks */
    unsigned uri_count;
    int64_t from_unix, until_unix;
    bool authority, client, server;
};
enum err tls_facts(struct tls_facts *f, const char *path) MUST;
enum err tls_facts_of(struct tls_facts *f, const char *pem, const char *whose) MUST;
/* ev=certificate_expires in the last 30 days: info, from 7 days on a warning, in the last day an
 * error; then ev=certificate_expired. */
void tls_log_expiry(const char *whose, const struct tls_facts *f, int64_t now_unix);

struct tls_question {
    const struct link_tls *files;
    const char *target;      /* host:port */
    const char *server_name; /* NULL or "": the host */
    uint32_t timeout_ms;     /* of connecting, and of each answer */
};
/* Who answers at the target: one connection, handshake only. ERR_OK: verified as gRPC would.
 * ERR_DENIED: what does not verify, and whose certificate it is. ERR_LINK: no TLS 1.3 answer. */
enum err tls_peer(const struct tls_question *q, struct tls_facts *f) MUST;

/* directory/revoked.txt: one URI per line, # starts a comment. The aggregator reads it when it
 * changes. */
enum err tls_revoke(const char *directory, const char *uri, bool *was_there) MUST;
enum err tls_revoked(const char *directory, const char *uri, bool *revoked) MUST;

#endif
