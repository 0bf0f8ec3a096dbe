/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLIENT_HELLO_H
#define CLIENT_HELLO_H
/* Reads the first message of a TLS connection, which is in the clear (RFC 8446 4.1.2), so that a
 * relay forwards TLS to its own server only: the server's name (RFC 6066 3) and the protocols (RFC
 * 7301) that the client asks for. Pure; the bytes are a stranger's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum client_hello_state {
    CLIENT_HELLO_WHOLE,
    CLIENT_HELLO_SHORT, /* more bytes may complete it */
    CLIENT_HELLO_WRONG  /* no ClientHello of one record */
};
struct client_hello {
    char name[256]; /* "": the client names no server */
    bool h2;        /* HTTP/2 is among its protocols, as gRPC asks for it */
    bool tls13;     /* TLS 1.3 is among its versions */
};
enum client_hello_state client_hello_read(struct client_hello *h, const uint8_t *data, size_t n);

#endif
