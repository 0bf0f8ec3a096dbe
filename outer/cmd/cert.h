/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CERT_H
#define CERT_H
/* Acts of `atoll cert` that have files of their own, and what all acts share. */
#include "outer/identity/tls.h"

enum {
    CERT_DAY_S = 86400,
    CERT_SKEW_S = 300, /* tolerated clock difference of other machines */
    CERT_DAYS_MAX = 825
};
#define CERT_DAYS_MIN 0.0001 /* 9 s: tests of renewal */

/* From now on, less CERT_SKEW_S. */
struct tls_validity cert_validity(double days);
/* A PEM text of a file; "-": standard input. */
enum err cert_text_read(char out[TLS_PEM_MAX], const char *path) MUST;

/* ---- cert_revoke.c: a name or a certificate is withdrawn, a name gets another key ---- */
enum err cert_revoke(int argc, char **argv, struct arena *arena) MUST;
enum err cert_renew(int argc, char **argv, struct arena *arena) MUST;

/* ---- cert_renewal.c: short-lived certificates ----
 * The process's machine asks with a request that its present key has signed; the authority's
 * machine answers. No private key travels, and what carries request and answer need not be trusted
 * (docs/certificates.md 3). */
enum err cert_request(int argc, char **argv, struct arena *arena) MUST;
enum err cert_sign(int argc, char **argv, struct arena *arena) MUST;
enum err cert_install(int argc, char **argv, struct arena *arena) MUST;

#endif
