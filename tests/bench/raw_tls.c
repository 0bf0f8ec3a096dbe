/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/raw_tls.h"
#include "kernels/base/err.h"

SSL *raw_tls(const struct link_tls *files, int socket, bool server)
{
    SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    ASSERT(ctx && SSL_CTX_use_certificate_file(ctx, files->certificate, SSL_FILETYPE_PEM) == 1);
    ASSERT(SSL_CTX_use_PrivateKey_file(ctx, files->key, SSL_FILETYPE_PEM) == 1);
    ASSERT(SSL_CTX_load_verify_locations(ctx, files->ca, NULL) == 1);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL *s = SSL_new(ctx);
    SSL_CTX_free(ctx);
    ASSERT(s && SSL_set_fd(s, socket) == 1);
    ASSERT((server ? SSL_accept(s) : SSL_connect(s)) == 1);
    return s;
}
