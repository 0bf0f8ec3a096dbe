/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WATCH_H
#define WATCH_H
/* Rendezvous of a site's GPU ranks, and detection of a lost one. NCCL does not report a killed rank
 * or a dead host: over NVLink or shared memory the other ranks' kernels wait on the GPU for ever.
 * So every rank keeps one TCP connection to rank 0, which the kernel closes with the process; a
 * thread in each rank waits for that and ends the process. A rank that ends with an error sends the
 * reason first, so that the site's log names the cause.
 *
 * The connections carry no training data: NCCL's id from rank 0 at the start, then heartbeats. A
 * rank is lost when its connection breaks (dead process: at once; dead host: SILENT_HOST_S), or
 * when it has been silent for timeout_s (stopped, frozen). A process that was stopped itself, as in
 * a suspended job, restarts its count. Long computation or waiting for other sites is no silence:
 * the thread sends heartbeats. The port is open until all ranks have connected; unknown peers are
 * handled meanwhile and rejected, but ranks do not authenticate (docs/security.md).
 */
#include <stddef.h>
#include "kernels/base/err.h"

struct watch;
struct watch_options {
    int rank, size;
    const char *host; /* rank 0's */
    int port;
    int listener;    /* rank 0: of watch_listen */
    const char *job; /* the same string in all ranks of this job, different in other jobs */
    void *shared;    /* rank 0's bytes, received by the others */
    size_t shared_bytes;
    int timeout_s; /* until all ranks have connected; then of silence */
};

/* Rank 0: listens at this port; port 0: at a free one, which is returned. */
enum err watch_listen(int *listener, int *port) MUST;
/* Returns when all ranks have connected and the thread runs. ERR_LINK names the missing ranks. The
 * listener is closed in any case. */
enum err watch_open(struct watch **w, const struct watch_options *o) MUST;
void watch_close(struct watch *w); /* regular close: no rank ends. NULL is fine */
/* The other ranks log `why` and end with this exit code; the caller ends this rank. NULL is fine.
 */
void watch_abort(struct watch *w, int exit_code, const char *why);

#endif
