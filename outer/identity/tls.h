/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_H
#define TLS_H
/* TLS: the version forced on the whole process, key and certificate files read with their checks,
 * the small authority of `atoll cert`, and identity keys. Only the files tls*.c include
 * OpenSSL's SSL and X.509. They open no connection: gRPC does, and verifies with the same library.
 * An identity is exactly one URI in the certificate, atoll://run/role/name. Blocking file
 * operations; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outer/link/link.h"
#include "outer/protocol/signer.h"

enum {
    TLS_NAME_MAX = 64,
    TLS_URI_MAX = 3 * TLS_NAME_MAX,
    TLS_PEM_MAX = 1 << 16,
    TLS_DATE_MAX = 32
};

enum tls_role { TLS_SITE, TLS_AGGREGATOR, TLS_OPERATOR, TLS_OBSERVER };

/* TLS 1.3 with two ciphers and without session tickets, for every connection of this process.
 * Before grpc_init(); loads its configuration from memory and ignores OPENSSL_CONF. OpenSSL reports
 * no error when the setting has no effect, so the function tests the effect. ERR_UNSUPPORTED: the
 * process must not start. */
enum err tls_force13(void) MUST;

/* PEM texts of the authority's certificate, the process's certificate and its key. The key's file:
 * regular, no symbolic link, owned by this user or root, no access for others. The key's text, and
 * what OpenSSL makes of it, lie in locked memory that no core dump contains, if the limit of locked
 * memory allows it (ev=keys_not_locked). gRPC keeps a copy of the text in ordinary memory. */
struct tls_pem {
    char *ca, *certificate, *key;
};
enum err tls_load(struct tls_pem *p, const struct link_tls *files) MUST;
void tls_forget(struct tls_pem *p); /* wipes the key; accepts a zeroed struct */
size_t
tls_certificate_bytes(const struct tls_pem *p); /* approximate DER size of its certificates */
/* A number that changes when one of the files is replaced. 0: a file is missing. */
uint64_t tls_stamp(const struct link_tls *files);

/* Checks a process's own files before it connects: an authority of ca.pem signed the certificate
 * (intermediate ones may follow it in its file), it is
 * valid at now_unix, it names this run, role and name, and the key fits. ERR_DENIED: the text names
 * the file, the defect and the remedy. Logs a near expiry with tls_log_expiry. */
enum err tls_check(const struct link_tls *files, const char *run, enum tls_role role,
                   const char *name, int64_t now_unix, int64_t *days_left) MUST;
/* The same of a process that runs: whole days that the certificate stays valid; negative: it has
 * expired, or it is not valid. No error is left. */
int64_t tls_days(const struct link_tls *files, const char *run, enum tls_role role,
                 const char *name, int64_t now_unix);

/* The same of a process that has no run and no role, such as a probe: whether the three files are
 * valid and belong together. */
enum err tls_usable(const struct link_tls *files, int64_t now_unix) MUST;

/* ERR_DENIED with tls_check's text when the file's certificate is not valid at now_unix. */
enum err tls_current(const char *path, int64_t now_unix) MUST;

/* True: processes of this role sign, so their certificates come with an identity key. */
bool tls_role_signs(enum tls_role role);
bool tls_role_parse(enum tls_role *role, const char *name);
struct tls_identity { /* atoll://run/role/name */
    char run[TLS_NAME_MAX], name[TLS_NAME_MAX];
    enum tls_role role;
};
bool tls_uri_parse(struct tls_identity *id, const char *uri); /* false: it is none */

struct tls_facts { /* contents of one certificate; times in seconds since 1970 */
    char subject[256], issuer[256], serial[64];
    struct digest sha256;  /* of the DER bytes */
    char key[32];          /* "P-256", "ED25519" */
    char uri[TLS_URI_MAX]; /* the first URI */
    char hosts[1024];      /* DNS names and addresses, separated by blanks */
    unsigned uri_count;
    int64_t from_unix, until_unix;
    bool authority, client, server, identity;
};

struct tls_validity {
    int64_t from_unix, until_unix;
};
/* Makes directory/ca.pem and ca.key (0600). ERR_INPUT when there is a ca.key already: it is never
 * replaced. */
enum err tls_authority(const char *directory, const char *run, bool ed25519,
                       struct tls_validity v) MUST;
/* A new key and certificate for the authority of the directory. ca.pem then holds the new one and
 * all former ones, so that certificates of both verify; the former key is lost. */
enum err tls_authority_roll(const char *directory, struct tls_validity v) MUST;
/* ca.pem keeps only the certificate that ca.key belongs to. */
enum err tls_authority_retire(const char *directory) MUST;
struct tls_renewal;
struct tls_request {
    const char *directory; /* directory of ca.pem, ca.key and revoked.txt */
    const char *out; /* directory for NAME.pem and NAME.key; also gets a copy of ca.pem when it
                        differs from `directory` */
    enum tls_role role;
    const char *name;
    const char *const *hosts; /* aggregator: DNS names and IP addresses that sites dial */
    size_t host_count;
    bool ed25519; /* else P-256 */
    struct tls_validity validity;
    /* Directory of NAME.identity.pem and .key, as they were issued before; NULL: `out`. */
    const char *identity;
    bool identity_new;                 /* make another identity key, even where there is one */
    const struct tls_renewal *renewal; /* its key and name; only the certificate is made, as
                                          answer. NULL: a new key is made, and both are files */
    char *answer;                      /* TLS_PEM_MAX */
};
/* Replaces both files by rename, the certificate last. The name may have had certificates before.
 * Before them, for a site or an aggregator, NAME.identity.pem in `out`, valid as long as the
 * authority is: for the key of the identity certificate that there is (whose private key is copied
 * where it lies next to it), or, where there is none or it is revoked, for a new one in
 * NAME.identity.key. ERR_CONFIG: the name is revoked. */
enum err tls_issue(const struct tls_request *r) MUST;

/* The identity key of the process whose TLS files these are: NAME.identity.pem and
 * NAME.identity.key next to NAME.pem, of `uri`, by an authority of files->ca. The signer copies the
 * paths. ERR_INPUT, ERR_DENIED: the text names file and remedy. Close with ops->close. */
enum err tls_signer_open(struct signer **s, const struct link_tls *files, const char *uri) MUST;
/* One that checks alone and has no key. ca: file of the authorities; NULL: the key of any identity
 * certificate of the URI is believed, because the caller has it from a file that is. */
enum err tls_reader_open(struct signer **s, const char *ca) MUST;
/* signer_ops.verify, for a reader that has no identity of its own. */
bool tls_signature_holds(const struct signer_key *key, const void *data, size_t n,
                         const uint8_t signature[SIGNER_BYTES]);

/* A renewal on a machine that does not have the authority's key. The process makes its next key
 * and a request; the authority's machine answers with a certificate. A request is PEM text of three
 * blocks: the present certificate, a PKCS#10 request of the next key, and the signature of the
 * present key over time and request. So how it travels need not be secret or authenticated, and a
 * request gives no other process a certificate. */
enum { TLS_REQUEST_AGE_S = 86400 };
struct tls_renewal {
    struct tls_facts present; /* verified: of this authority and run, valid now */
    struct tls_identity id;
    struct evp_pkey_st *key; /* the next key's public half */
};
/* directory/NAME.pem and NAME.key are the present ones. Makes NAME.next.key (0600) and
 * NAME.request. */
enum err tls_renewal_request(const char *directory, const char *name, int64_t now_unix) MUST;
/* On the authority's machine; then tls_issue with `renewal`. Does not look at revoked.txt.
 * ERR_DENIED: forged, expired, of another authority, or made more than TLS_REQUEST_AGE_S ago. */
enum err tls_renewal_open(struct tls_renewal *w, const char *text, const char *directory,
                          int64_t now_unix) MUST;
void tls_renewal_close(struct tls_renewal *w); /* accepts a zeroed struct */
/* `answer`: the authority's PEM text. Checks it against ca.pem, the present certificate's name and
 * NAME.next.key, then replaces NAME.key and NAME.pem by rename, and removes NAME.next.key and the
 * request. Repeated after a crash in between it finishes. */
enum err tls_renewal_install(const char *directory, const char *name, const char *answer,
                             int64_t now_unix) MUST;

enum err tls_facts(struct tls_facts *f, const char *path) MUST;
enum err tls_facts_of(struct tls_facts *f, const char *pem, const char *whose) MUST;
/* A time of tls_facts as people are told it, in UTC to the minute; returns out. */
const char *tls_date(char out[TLS_DATE_MAX], int64_t unix_s);
/* ev=certificate_expires in the last 30 days (at most half of its life): info, from 7 days (a
 * quarter) on a warning, in the last day (a twelfth) an error; then ev=certificate_expired. */
void tls_log_expiry(const char *whose, const struct tls_facts *f, int64_t now_unix);

struct tls_question {
    const struct link_tls *files;
    const char *target;             /* host:port */
    const char *server_name;        /* NULL or "": the host */
    const struct dial_proxy *proxy; /* NULL or zeroed: none */
    uint32_t timeout_ms;            /* limit of the connection, and of each answer */
};
/* Reads the certificate of the process that answers at the target: one connection, handshake only.
 * ERR_OK: it verifies by gRPC's rules. ERR_DENIED: the text says what does not verify and names the
 * certificate. ERR_LINK: no TLS 1.3 answer. */
enum err tls_peer(const struct tls_question *q, struct tls_facts *f) MUST;

#endif
