/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AUTHORITY_H
#define AUTHORITY_H
/* What the operator of a certificate authority does with its directory (ca.pem, ca.key, issued.txt,
 * revoked.txt): issues, renews and revokes, and keeps on record what was issued, so that
 * certificates can be revoked whose files are elsewhere. Blocking file operations; one thread.
 * Errors: ERR_CONFIG, ERR_INPUT, ERR_DENIED with a text that names the file and the remedy.
 */
#include "kernels/base/arena.h"
#include "outer/identity/tls.h"

enum { AUTHORITY_HOSTS_MAX = 64 };

/* ---- issue ---- */
/* tls_issue, and what it made on record in issued.txt. leaf: the TLS certificate's facts. */
enum err authority_issue(const struct tls_request *r, struct tls_facts *leaf) MUST;

struct authority_renewal {
    const char *directory, *out, *file; /* file: the old certificate */
    struct tls_validity validity;
    bool replace;                   /* the identity key, too */
    struct tls_identity id;         /* found: the name and role of all of these */
    struct tls_facts old, identity; /* identity: before the renewal; uri_count 0: no file of it */
};
/* A new key and certificate with the name, role and hosts of r->file, on record. The identity key
 * next to the file, or else in the directory, stays unless r->replace. Revokes nothing. */
enum err authority_renew(struct authority_renewal *r, struct tls_facts *leaf) MUST;

/* Answers a request (tls_renewal_request) with a certificate in `answer`, which is on record before
 * it is given out. ERR_DENIED: the present certificate is revoked, or as tls_renewal_open. */
enum err authority_answer(char answer[TLS_PEM_MAX], const char *request, const char *directory,
                          struct tls_validity v, int64_t now_unix) MUST;

/* ---- revoke ---- */
struct authority_told { /* called after each entry of revoked.txt; note: NULL, or whose it is */
    void (*entry)(void *self, const char *entry, const char *note, bool was_there);
    void *self;
};
/* what: a name (atoll://RUN/ROLE/NAME), a certificate's file, sha256:HEX or serial:HEX. issued: of
 * a name, every certificate that was issued so far instead of the name. unseen: the directory holds
 * no certificate of the name, which is revoked anyway. */
enum err authority_revoke(const char *directory, const char *what, bool issued,
                          const struct authority_told *told, bool *unseen,
                          struct arena *arena) MUST;
enum err authority_revoke_certificate(const char *directory, const struct tls_facts *f,
                                      const struct authority_told *told) MUST;
/* The name or this certificate is on the list of the directory. */
bool authority_revoked(const char *directory, const struct tls_facts *f);

/* Calls each for every certificate file of the directory, in the order of file_list; stops at an
 * error of it. */
enum err authority_certificates(const char *directory, struct arena *arena,
                                enum err (*each)(void *self, const char *file,
                                                 const struct tls_facts *f),
                                void *self) MUST;

#endif
