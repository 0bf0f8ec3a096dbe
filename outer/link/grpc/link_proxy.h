/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_PROXY_H
#define LINK_PROXY_H
/* A site's way to the aggregator through a proxy. gRPC knows HTTP CONNECT without usable errors,
 * and no SOCKS5; so it dials a Unix socket of this process, and a forwarder (outer/link/forward.h)
 * opens the connection through the proxy (outer/link/dial.h) and carries the bytes. TLS runs
 * inside, end to end. The socket has an abstract random name, and connections of other processes
 * are refused.
 */
#include "outer/link/dial.h"
#include "outer/link/grpc/link_socket.h"

struct link_proxy;

enum err link_proxy_open(struct link_proxy **p, const char *target,
                         const struct dial_proxy *proxy) MUST;
/* What gRPC dials in place of the target. */
const char *link_proxy_address(const struct link_proxy *p);
/* True: the last attempt to connect failed; `text` says why. *e: ERR_LINK, or ERR_DENIED. */
bool link_proxy_failed(struct link_proxy *p, char *text, size_t size, enum err *e);
/* For link_sockets: is this socket one of its connections to the proxy? */
bool link_proxy_owns(void *p, uint64_t cookie, struct dial_bytes *dialogue);
void link_proxy_close(struct link_proxy *p); /* after the channels; NULL is fine */

#endif
