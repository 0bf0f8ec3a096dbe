/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORWARD_H
#define FORWARD_H
/* Carries byte streams between pairs of sockets: each accepted connection gets one of its own to
 * where the owner dials, and what arrives at one end leaves at the other. It never looks at the
 * bytes, but for the first ones where the owner wants to see them. Used by the emulated network's
 * relay (outer/wan/relay.h), by `atoll relay`, and by a link that dials through a proxy.
 *
 * One thread runs the loop and never blocks; `dialers` further threads open the connections,
 * because a proxy or a name may take seconds. Bounded: connections, bytes held for each, time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

enum forward_first { FORWARD_PASS, FORWARD_MORE, FORWARD_REFUSE };
enum forward_why {                /* why a connection ended, or was none */
                   FORWARD_ENDED, /* both ends have closed */
                   FORWARD_BROKEN,
                   FORWARD_IDLE,
                   FORWARD_FULL,     /* connections_max, or no memory */
                   FORWARD_SOURCE,   /* source_max */
                   FORWARD_UNWANTED, /* accepts() or first() refused it */
                   FORWARD_SLOW,     /* its first bytes did not come in time */
                   FORWARD_NO_DIAL,  /* dial() failed */
                   FORWARD_STOPPED,
                   FORWARD_WHYS
};
enum { FORWARD_SOURCE_TEXT = 48 };
enum { FORWARD_UP, FORWARD_DOWN }; /* from the accepted end, and to it */

struct forward_way { /* one direction of a connection; shape() may change the defaults */
    void *user;      /* of due() and delivered() */
    size_t window_bytes, piece_bytes; /* held at most; read at a time */
    uint64_t bytes;                   /* delivered */
};
struct forward_dialled {
    int fd; /* not blocking; may still be connecting */
    void *user;
};
struct forward_end { /* what became of a connection */
    enum forward_why why;
    const char *source; /* address of the accepted end; "-": it has none */
    void *user;         /* of dial; NULL where it was not called */
    uint64_t up, down;  /* bytes delivered */
    uint64_t lasted_ms;
};
struct forward_listener {
    int fd; /* not blocking, listening; closed by its owner */
    unsigned index;
};
struct forward_options {
    void *self;
    const struct forward_listener *listeners; /* borrowed */
    size_t listener_count;
    unsigned connections_max; /* 0: no limit */
    unsigned source_max;      /* of one source address; 0: no limit */
    unsigned dialers;         /* 0: dial() is called in the loop and must not block */
    uint32_t first_ms;        /* time for the first bytes */
    uint32_t idle_ms;         /* a connection without a byte ends; 0: never */
    uint32_t half_ms;         /* the same when one end has closed; 0: never */
    /* The loop calls the next ones; any of them but dial may be NULL. */
    bool (*accepts)(void *self, int fd, const char *source); /* false: closed at once */
    enum forward_first (*first)(void *self, const char *source, const uint8_t *data, size_t n);
    /* A dialer's thread; stop becomes readable when the loop ends. */
    enum err (*dial)(void *self, unsigned listener, int stop, struct forward_dialled *out);
    void (*shape)(void *self, unsigned listener, struct forward_way *up, struct forward_way *down);
    int64_t (*due)(void *user, int64_t now_ns,
                   size_t n); /* when these bytes are delivered; NULL: now */
    void (*delivered)(void *user, size_t n);
    void (*ended)(void *self,
                  const struct forward_end *end);   /* its sockets are closed afterwards */
    void (*tick)(void *self, unsigned connections); /* about once a second */
};
struct forward;

extern const char *const forward_why_names[FORWARD_WHYS];

/* Copies the options. */
enum err forward_open(struct forward **f, const struct forward_options *o) MUST;
void forward_run(struct forward *f);   /* until forward_stop */
void forward_stop(struct forward *f);  /* any thread; also in a signal's handler */
void forward_close(struct forward *f); /* after forward_run has returned; NULL is fine */

/* A listening socket, not blocking, on address (host:port; port 0 picks one). ERR_BUSY: in use. */
enum err forward_listen(int *fd, const char *address, int *port) MUST;

#endif
