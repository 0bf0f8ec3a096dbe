/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIAL_H
#define DIAL_H
/* Opens one TCP connection, directly or through a proxy: HTTP CONNECT (RFC 9110 9.3.6) or SOCKS5
 * (RFC 1928, user and password by RFC 1929). The proxy looks up the name of the target. What
 * travels over the connection afterwards, TLS with the target's own name, the proxy only carries.
 * Blocks until the deadline; any thread.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"
#include "outer/link/address.h"

enum { DIAL_HOST_MAX = ADDRESS_HOST_MAX, DIAL_SECRET_MAX = 256, DIAL_TIMEOUT_MS = 15000 };
enum dial_kind { DIAL_DIRECT, DIAL_CONNECT, DIAL_SOCKS5 };

struct dial_proxy { /* zeroed: none */
    enum dial_kind kind;
    char host[DIAL_HOST_MAX], port[8];
    char user[DIAL_SECRET_MAX], password[DIAL_SECRET_MAX];
    char shown[DIAL_HOST_MAX + 32]; /* for messages: scheme, host and port, without the user */
};
/* http://[user:password@]HOST:PORT or socks5://...; "" or NULL: no proxy. %XX in user and password
 * stands for a byte. No message quotes the password. */
enum err dial_proxy_parse(struct dial_proxy *p, const char *url) MUST;
/* User and password of a file with one line, user:password, which only its owner may read. "" or
 * NULL: nothing to do. */
enum err dial_proxy_credentials(struct dial_proxy *p, const char *path) MUST;
void dial_proxy_forget(struct dial_proxy *p); /* wipes the password */

struct dial_question {
    const char *target;             /* host:port */
    const struct dial_proxy *proxy; /* NULL or zeroed: none */
    uint32_t timeout_ms;            /* of everything together */
    int stop; /* a descriptor that becomes readable when the caller gives up; 0: none */
};
struct dial_bytes { /* of the dialogue with the proxy */
    uint64_t sent, received;
};
/* *fd: a connected socket, not blocking, close-on-exec, without Nagle's delay. ERR_LINK: try again
 * later. ERR_DENIED: the proxy does not let this user or this target through; a person has to
 * change something. The text names the proxy and its answer. bytes may be NULL. */
enum err dial_connect(int *fd, const struct dial_question *q, struct dial_bytes *bytes) MUST;

#endif
