#ifndef WATCH_H
#define WATCH_H
/* How GPU ranks of a site meet, and how they learn that one of them is gone. A rank that is killed,
 * or whose host dies, says nothing to NCCL: its peers' kernels wait for it on the GPU for ever
 * where the data goes over NVLink or shared memory. So every rank keeps one TCP connection to rank
 * 0, which the kernel closes with the process; a thread in each rank waits for that, and ends the
 * process. Whoever ends with an error says why first, so that the site's log names the cause.
 *
 * No data goes this way: rank 0's few bytes at the start (NCCL's id), then beats. A rank counts as
 * gone when its connection breaks (a dead process: at once; a dead host: SILENT_HOST_S), or when it
 * has been silent for timeout_s (stopped, frozen; whoever was stopped itself, as all are in a
 * suspended job, counts anew). It may compute or wait for other sites as long as it likes: the
 * thread beats. The port is open until all ranks are there: strangers who come are heard beside
 * them and sent away, but nobody proves who he is (docs/security.md).
 */
#include <stddef.h>
#include "kernels/base/err.h"

struct watch;
struct watch_options {
    int rank, size;
    const char *host; /* rank 0's */
    int port;
    int listener;    /* rank 0: of watch_listen */
    const char *job; /* the same string in all ranks of this job, another in others */
    void *shared;    /* rank 0's bytes, which the others get */
    size_t shared_bytes;
    int timeout_s; /* for all ranks to come; then of silence */
};

/* Rank 0: listens at this port, or with 0 at one that it says. */
enum err watch_listen(int *listener, int *port) MUST;
/* All ranks are there, and the thread watches. ERR_LINK says which are missing. The listener is
 * closed in any case. */
enum err watch_open(struct watch **w, const struct watch_options *o) MUST;
void watch_close(struct watch *w); /* in good order: nobody ends for it. NULL is fine */
/* The others end with this exit code and log the sentence; this rank's caller does it itself. NULL
 * is fine. */
void watch_abort(struct watch *w, int exit_code, const char *why);

#endif
