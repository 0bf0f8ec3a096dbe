#ifndef LINK_ACCEPT_H
#define LINK_ACCEPT_H
/* Connections to the aggregator's port from accept() to their first call. gRPC core 1.51 accepts
 * whatever comes, and stops listening for good when accept() fails, as it does when descriptors run
 * out; it offers no other acceptor for TLS ports. So this file defines the process's accept4(), and
 * the dynamic linker gives it to core in place of the C library's. For all but watched ports it is
 * the system call. For a watched port
 *   - pending connections are limited, in all and for each source address: one too many ends the
 *     oldest, of its source or of all;
 *   - one that made no call in time ends;
 *   - accept() never fails for want of descriptors: a spare one takes the connection and drops it.
 * Process-wide, any thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum { ACCEPT_PENDING_MS = 10000 /* for handshake and first call */ };

/* The soft limit of descriptors becomes the hard one. */
void accept_raise_descriptors(void);
/* Limits follow from the descriptors that this process may have now. */
void accept_watch(uint16_t port);
void accept_unwatch(uint16_t port);
/* A verified peer made a call on this connection (gRPC's spelling: ipv4:127.0.0.1:4711). */
void accept_known(uint16_t port, const char *peer);
/* Once a second: ends connections that are pending for too long; logs what was dropped, once a
 * minute at most. */
void accept_sweep(void);
unsigned accept_pending(uint16_t port);
/* Core came through here: false after a connection means that it has another accept(). */
bool accept_in_use(void);

#endif
