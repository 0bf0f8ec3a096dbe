/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TLS_OWN_H
#define TLS_OWN_H
/* Inside the unit tls, with OpenSSL's types: tls.c (protocol version, files, checks, the peer),
 * tls_make.c (the authority), tls_signer.c (identity keys), tls_renewal.c (requests).
 */
#include <openssl/bio.h>
#include <openssl/x509.h>
#include "outer/identity/tls.h"

/* What an identity certificate is for, as its one extended key usage: nothing that TLS knows. Under
 * 2.25 a number needs no registration (ITU-T X.667): this one is a random UUID. */
#define TLS_IDENTITY_USAGE "2.25.103663696423702430817410141174864858794"

void tls_secure_heap(void); /* before a private key is read or made */
void tls_wipe(char **text); /* of tls_pem_read */
enum err tls_pem_read(const char *path, bool secret, char **text) MUST;
enum err tls_library_failed(const char *what); /* with OpenSSL's reason */
bool tls_name_ok(const char *name);
void tls_uri_make(char out[TLS_URI_MAX], const char *run, enum tls_role role, const char *name);
/* All certificates of the text, in its order; at least one. Free with sk_X509_pop_free. */
enum err tls_certificates_parse(const char *text, const char *path, STACK_OF(X509) * *out) MUST;
/* In place of OpenSSL's own, which asks at the terminal and waits for ever. */
int tls_no_pass_phrase(char *out, int size, int writes, void *self);
enum err tls_key_parse(const char *text, const char *path, EVP_PKEY **key) MUST;
/* Why the first of the chain does not verify; NULL: it does. The others may stand between. */
const char *tls_chain_defect(STACK_OF(X509) * chain, STACK_OF(X509) * roots, int64_t now_unix);
int64_t tls_time_out(const ASN1_TIME *t); /* seconds since 1970 */
void tls_facts_out(struct tls_facts *f, X509 *x);
void tls_key_out(struct tls_facts *f, EVP_PKEY *key);                              /* its kind */
enum err tls_certificate_parse(const char *text, const char *path, X509 **x) MUST; /* the first */
/* What a process finds out about its own files: ERR_DENIED with file, defect and remedy. */
enum err tls_facts_check(const struct tls_facts *f, const char *path, const char *uri,
                         enum tls_role role, int64_t now_unix) MUST;
enum err tls_chain_check(STACK_OF(X509) * chain, STACK_OF(X509) * roots,
                         const struct link_tls *files, int64_t now_unix) MUST;
enum err tls_pair_check(X509 *leaf, const char *key_text, const struct link_tls *files) MUST;
EVP_PKEY *tls_key_make(bool ed25519);
enum err tls_bio_write(BIO *bio, const char *path, unsigned mode) MUST; /* file_write */

#endif
