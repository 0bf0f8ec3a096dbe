/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RAW_TLS_H
#define RAW_TLS_H
/* What the link is compared with: TLS by the same OpenSSL on a blocking socket, nothing else. */
#include <openssl/ssl.h>
#include "outer/identity/tls.h"

/* Shakes hands on a connected socket, both sides with a certificate; any failure is a bug of the
 * bench. Free with SSL_free. */
SSL *raw_tls(const struct link_tls *files, int socket, bool server);

#endif
