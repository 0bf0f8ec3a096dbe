#ifndef COLL_H
#define COLL_H
/* Collectives inside one site: self (one rank), mpi (CPU ranks), nccl (GPUs). Every rank calls in
 * the same order; a dead rank ends the site's job. All in place. Opened once per process; fast set,
 * but repeatable for a fixed number of ranks. The launcher's environment says how many ranks there
 * are, never how to train.
 */
#include "kernels/dev.h"

struct coll;
enum { COLL_ALL = -1 };
struct coll_ops {
    /* Begins a sum over the ranks, behind what the device was given so far; x (device memory) is
     * the call's until finish. In bf16 each addition of two ranks' values is rounded. owner: the
     * rank that gets the sum, what the others' x then holds is undefined; or COLL_ALL. Sums run in
     * the order of their starts, beside what the device is given next. */
    enum err (*start)(struct coll *c, void *x, enum dtype type, size_t count, int owner);
    /* Never waits. MPI advances only inside its calls, so whoever has started something calls this
     * now and then. */
    enum err (*progress)(struct coll *c);
    /* What the device is given next finds all that was started done; the host need not wait. */
    enum err (*finish)(struct coll *c);
    /* Rank r brings x[first[r] .. first[r + 1]) of device memory, everybody gets all of x, behind
     * what the device was given so far and in front of what it gets next. */
    enum err (*gather)(struct coll *c, float *x, const size_t *first);
    /* x: few values of device memory. Behind what the device was given so far, in front of what it
     * gets next; the host does not wait. */
    enum err (*sum)(struct coll *c, double *x, size_t count);
    /* A place behind all that the device was given so far, and: until the device is there. A rank
     * that is gone leaves collectives that never end: who waits for anything behind one waits here
     * first. */
    enum err (*mark)(struct coll *c);
    enum err (*wait)(struct coll *c);
    enum err (*sum_host)(struct coll *c, double *x, size_t count); /* few host values */
    enum err (*broadcast)(struct coll *c, void *x, size_t bytes);  /* from rank 0, device memory */
    enum err (*broadcast_host)(struct coll *c, void *x, size_t bytes);
    enum err (*barrier)(struct coll *c);
    void (*close)(struct coll *c);
    void (*abort)(struct coll *c, int exit_code);
};
struct coll { /* backends embed it first */
    const struct coll_ops *ops;
    int rank, size, local_rank;
    const char *kind;  /* "self", "mpi", "nccl" */
    const char *found; /* which row of the launcher table matched, for the log */
};

/* Chooses by launcher and device. ERR_UNSUPPORTED when several ranks are launched and this build
 * cannot join them. */
enum err coll_open(struct coll **c, const char *device_kind) MUST;
void coll_close(struct coll *c); /* NULL is fine */
/* This rank must end and the others cannot know: ends the whole job with this exit code, and says
 * err_message() in every rank's log where the ranks are GPUs. A site of one rank just returns, and
 * so does its caller. */
void coll_abort(struct coll *c, int exit_code);

/* Device memory that the collectives of so many ranks take at most, of one rank and outside of
 * every slab: 0 on CPUs and for one rank. An estimate, for plans and the start-up table. NCCL takes
 * part of it as it joins, the rest with the first collective of each kind. */
size_t coll_memory_bytes(const char *device_kind, int ranks);

/* The backends; coll_open calls the one it chose. */
enum err coll_self_open(struct coll **c) MUST;
enum err coll_mpi_open(struct coll **c) MUST; /* in builds with MPI */

#endif
