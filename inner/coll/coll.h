/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLL_H
#define COLL_H
/* Collectives inside one site: self (one rank), mpi (CPU ranks), nccl (GPUs). Every rank calls in
 * the same order; a dead rank ends the site's job. All in place. Opened once per process. Sums are
 * outside the exact set, but repeatable for a fixed number of ranks. The launcher's environment
 * says how many ranks there are, never how to train.
 */
#include "kernels/dev.h"

struct coll;
enum { COLL_RANKS_MAX = 4096 };
enum { COLL_TAGS = 256 }; /* messages between two ranks: tags 0 .. COLL_TAGS - 1 */
/* A range of values that the ranks hold in parts. Rank r's part is values first[r] .. first[r + 1],
 * and whole[0] is value first[0]. Of this rank `part` holds its own; it may lie in `whole` at its
 * place. Buffers, and `first`, stay as they are until the ticket has been waited for. */
struct coll_parts {
    void *whole, *part;
    enum dtype type;
    const size_t *first; /* (ranks + 1) */
};
struct coll_ops {
    /* Begins an asynchronous sum of x (device memory) over the ranks, ordered after the work
     * submitted to the device so far and overlapping with what follows. x must not be touched until
     * reduce_wait. In bf16 each addition of two ranks' values is rounded. Sums run in the order of
     * their begin calls. */
    enum err (*reduce_begin)(struct coll *c, void *x, enum dtype type, size_t count);
    /* Never waits. MPI advances only inside its calls: call this often between begin and wait. */
    enum err (*progress)(struct coll *c);
    /* Orders the work submitted next after all sums begun so far; the host need not wait. */
    enum err (*reduce_wait)(struct coll *c);
    /* Begin to collect the parts of all ranks in p->whole of each, or to add up p->whole over the
     * ranks, of which each receives its part; what else is in p->whole is undefined then. Ordered
     * after the work submitted to the device so far, and overlapping with what follows; in the
     * order of the begin calls, sums of reduce_begin included. On CPU ranks the values are added in
     * the order of the ranks, in f32, and rounded once. One rank: nothing is copied. */
    enum err (*all_gather_begin)(struct coll *c, const struct coll_parts *p, uint64_t *ticket);
    enum err (*reduce_scatter_begin)(struct coll *c, const struct coll_parts *p, uint64_t *ticket);
    /* Orders the work submitted next after what has this ticket, and all that began before it. A
     * ticket may be waited for many times; 0 is no ticket, and done. */
    enum err (*ticket_wait)(struct coll *c, uint64_t ticket);
    /* Rank r contributes elements first[r] .. first[r + 1] of x, of unit_bytes each; every rank
     * receives all of x. Device memory, in the order of the device's stream. */
    enum err (*all_gather)(struct coll *c, void *x, size_t unit_bytes, const size_t *first);
    /* Elements first[r] .. first[r + 1] of `from`, of unit_bytes each, go to rank r. `to` receives
     * this rank's range of every rank, in rank order without gaps. The buffers do not overlap. One
     * rank: nothing is copied. Device memory, in the order of the device's stream. */
    enum err (*all_to_all)(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first);
    /* Point to point, host memory, CPU ranks only. Begins to send x, which must not be touched
     * until send_wait of its tag returns; the rank has at most one message of a tag under way, and
     * send_wait without one returns at once. recv waits for the message of `tag`; both sides name
     * the same number of bytes. */
    enum err (*send_begin)(struct coll *c, const void *x, size_t bytes, int to, int tag);
    enum err (*send_wait)(struct coll *c, int tag);
    enum err (*recv)(struct coll *c, void *x, size_t bytes, int from, int tag);
    /* Sum of few values of device memory, in the order of the device's stream; the host does not
     * wait. */
    enum err (*all_reduce)(struct coll *c, double *x, size_t count);
    /* An event after all work submitted to the device so far, and the host's wait for it. A lost
     * rank leaves collectives that never end, so a wait for anything after one must go through
     * event_wait, which notices a lost rank. */
    enum err (*event_record)(struct coll *c);
    enum err (*event_wait)(struct coll *c);
    enum err (*all_reduce_host)(struct coll *c, double *x, size_t count); /* few host values */
    /* Rank `from`'s bytes to every rank: in device memory, in host memory. */
    enum err (*broadcast)(struct coll *c, void *x, size_t bytes, int from);
    enum err (*broadcast_host)(struct coll *c, void *x, size_t bytes, int from);
    enum err (*barrier)(struct coll *c);
    /* Collectives that have a ticket come after what was submitted to this device, and what waits
     * for them is its work; NULL: after the work of every device of the process. The member is NULL
     * where there is nothing to know. */
    void (*follow)(struct coll *c, const struct dev *d);
    /* NULL: as dev_alloc, dev_free. */
    enum err (*alloc)(struct coll *c, struct dev *d, void **p, size_t bytes);
    void (*free)(struct coll *c, struct dev *d, void *p);
    void (*close)(struct coll *c);
    void (*abort)(struct coll *c, int exit_code);
};
struct coll { /* backends embed it first */
    const struct coll_ops *ops;
    const struct coll_ops *backend; /* called by the count of bytes; private to coll_count.c */
    /* Payload bytes that this rank has sent since it was opened, by the formulas of coll_count.c:
     * what algorithms with the least traffic send, without headers and repeats. */
    double up;
    int rank, size, local_rank;
    const char *kind;  /* "self", "mpi", "nccl" */
    const char *found; /* the matching row of the launcher table, for the log */
};

/* Chooses by launcher and device. ERR_UNSUPPORTED when several ranks are launched and this build
 * cannot join them. */
enum err coll_open(struct coll **c, const char *device_kind) MUST;
void coll_close(struct coll *c); /* NULL is fine */
/* Device memory that the collectives of all ranks read and write, zeroed: NCCL registers it, so
 * that they need no copies in between. The same number of bytes on every rank; all call in one
 * order. */
enum err coll_alloc(struct coll *c, struct dev *d, void **p, size_t bytes) MUST;
/* Whose work and memory the collectives are for; until the device closes, or another is named. */
void coll_follow(struct coll *c, const struct dev *d);
void coll_free(struct coll *c, struct dev *d, void *p); /* before coll_close; NULL is fine */
/* From now on c->up counts. coll_open calls it. */
void coll_count(struct coll *c);
/* After an error of this rank alone: ends the whole job with this exit code. With GPU ranks every
 * rank logs err_message(). With one rank it returns, and the caller ends the process. */
void coll_abort(struct coll *c, int exit_code);

/* Upper estimate of the device memory that one rank's collectives allocate outside of every slab,
 * for plans and the memory table: 0 for one rank; on CPUs sum_bytes, those of the largest
 * asynchronous sum. NCCL allocates part of it when the ranks connect, the rest at the first
 * collective of each kind. */
size_t coll_memory_bytes(const char *device_kind, int ranks, size_t sum_bytes);

/* The backends, for coll_open. */
enum err coll_self_open(struct coll **c) MUST;
enum err coll_mpi_open(struct coll **c) MUST; /* in builds with MPI */

#endif
