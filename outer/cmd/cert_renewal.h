/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CERT_RENEWAL_H
#define CERT_RENEWAL_H
/* `atoll cert request`, `sign` and `install`: short-lived certificates. The process's machine asks
 * with a request that its present key has signed; the authority's machine answers. No private key
 * travels, and what carries request and answer need not be trusted (docs/certificates.md 3).
 */
#include "kernels/base/arena.h"
#include "outer/identity/tls.h"

enum err cert_request(int argc, char **argv, struct arena *arena) MUST;
enum err cert_sign(int argc, char **argv, struct arena *arena) MUST;
enum err cert_install(int argc, char **argv, struct arena *arena) MUST;
/* A PEM text of a file; "-": standard input. */
enum err cert_text_read(char out[TLS_PEM_MAX], const char *path) MUST;

#endif
