/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_ACCEPT_H
#define LINK_ACCEPT_H
/* Connections to the aggregator's port from accept() to their first call. gRPC core 1.51 accepts
 * every connection, and stops listening for good when accept() fails, for example when descriptors
 * run out; core offers no other acceptor for TLS ports. So this file defines the process's
 * accept4(), which the dynamic linker uses instead of the C library's. On other ports accept4() is
 * the system call. On a watched port:
 * - pending connections are limited, in total and for each source address; one over the limit ends
 *   the oldest of its source or of all;
 * - a pending connection without a call ends after ACCEPT_PENDING_MS;
 * - accept() does not fail when descriptors run out: a reserved descriptor accepts the connection
 * and closes it. Process-wide, any thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum { ACCEPT_PENDING_MS = 10000 /* limit for handshake and first call */ };

/* Raises the soft limit of descriptors to the hard limit. */
void accept_raise_descriptors(void);
/* Watches a port. The limits derive from the process's present descriptor limit. */
void accept_watch(uint16_t port);
void accept_unwatch(uint16_t port);
/* A verified peer made a call on this connection (gRPC's spelling: ipv4:127.0.0.1:4711). */
void accept_known(uint16_t port, const char *peer);
/* Once a second: ends connections that are pending for too long; logs what was dropped, once a
 * minute at most. */
void accept_sweep(void);
unsigned accept_pending(uint16_t port);
/* True: core has called this accept4(). False after a connection: core uses another accept
 * function. */
bool accept_in_use(void);

#endif
