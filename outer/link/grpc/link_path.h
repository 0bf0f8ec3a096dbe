/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_PATH_H
#define LINK_PATH_H
/* Private to outer/link/grpc: what one end sends to one peer, measured and set. It reads this end's
 * sockets (outer/link/grpc/link_socket.h), lets outer/link/path.h choose, asks the kernel for BBR
 * and sets the sockets' pace (SO_MAX_PACING_RATE). The caller's lock guards the struct.
 */
#include <pthread.h>
#include "outer/link/grpc/link_socket.h"
#include "outer/link/path.h"

/* Metadata of a download: what the site lets the aggregator do with the sockets, and the number of
 * connections that the aggregator chose for the next one. */
#define LINK_PATH_KEY     "atoll-path"
#define LINK_PATH_BBR     "bbr"    /* measure, pace, ask for BBR */
#define LINK_PATH_KERNEL  "kernel" /* measure and pace */
#define LINK_PATH_STREAMS "atoll-streams"

struct link_path {
    struct path path;
    bool bbr;                  /* asks the kernel for it */
    bool begun;                /* a transfer was begun and is not learnt from */
    bool drains;               /* its last bytes are not yet acknowledged */
    uint64_t begin_ns, end_ns; /* of its bytes */
    uint64_t ended_ns;         /* the last call ended */
    unsigned running;          /* transfers at this time */
    double most;               /* largest rate of this transfer so far, bytes per second */
    uint64_t since_ns;         /* the rate's next interval, at least a round trip, begins there */
    double since_bytes;        /* delivered then */
    uint64_t end_bytes;        /* sent at end_ns */
    struct path_choice told;   /* the choice that was logged last */
};

/* fixed: the configured number of connections; 0: chosen, with the host's settings. */
void link_path_open(struct link_path *p, unsigned fixed, bool bbr);
/* A transfer begins: learns from the one before, chooses, sets the sockets of `site` (NULL: all).
 * Logs a changed choice; `direction`, "up" or "down", and `peer` are for the log. */
void link_path_begin(struct link_path *p, struct link_sockets *s, const char *site,
                     const char *direction, const char *peer);
/* During it, and until all of it is acknowledged: reads the sockets. False: nothing is under way.
 */
bool link_path_look(struct link_path *p, struct link_sockets *s, const char *site);
void link_path_end(struct link_path *p);

/* A thread that looks every few milliseconds while there is something to see. */
struct link_watch {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the flags */
    pthread_cond_t cond;
    bool runs, stop, due;
    bool (*look)(void *self); /* false: not again before link_watch_wake */
    void *self;
};
enum err link_watch_open(struct link_watch *w, bool (*look)(void *self), void *self) MUST;
void link_watch_wake(struct link_watch *w);  /* a transfer begins */
void link_watch_close(struct link_watch *w); /* a zeroed one is fine */

#endif
