/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs over NCCL: one process for each GPU; the only file that includes nccl.h. Collectives in
 * stream order run on the legacy default stream, which CUDA orders after all work submitted earlier
 * to the device's stream and before all work submitted later. Asynchronous collectives run on a
 * stream of their own, after an event of the device's stream, hence after the gradients; the
 * device's stream does not wait for that event. An event of the legacy stream would be a barrier
 * for every stream of the process, once for each of them.
 *
 * A communicator that reports an error, or a collective that exceeds its deadline, means that
 * another rank is lost: ERR_LINK ends this rank, and watch.c the others; the site restarts and
 * rejoins its run.
 */
#include "inner/coll/coll_nccl.h"
#include "kernels/base/clock.h"
#include "kernels/cuda/host.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Device buffer for collectives of host values, a piece at a time. A fragment that the lead
 * broadcasts may have gigabytes; with 4 MiB the fixed cost of a collective, about 100 us, is a
 * tenth of the piece's time. */
enum { STAGING_BYTES = 4 << 20 };

/* Memory that NCCL itself allocates and registers with all ranks (symmetric windows, from 2.27 on):
 * collectives of it work in place, through the switch where there is one. The program also runs
 * with an older library, where these are not there. */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
enum { WINDOWS_MAX = 64 };
struct window {
    void *at; /* NULL: free */
    size_t bytes;
    ncclWindow_t window;
};
#endif

enum { TICKETS = 16 }; /* that have an event of their own; the stream keeps their order */

struct coll_nccl {
    struct coll coll; /* first */
    ncclComm_t comm;
    uint64_t begun;               /* tickets so far */
    cudaEvent_t tickets[TICKETS]; /* after ticket n: [n % TICKETS] */
    cudaEvent_t done, ready, recorded;
    cudaStream_t reduce_stream; /* asynchronous sums; higher priority than the device's stream */
    cudaStream_t device_stream; /* coll_follow; NULL: the legacy stream stands for all */
    bool on_legacy; /* a collective is there that no asynchronous one was told to wait for */
    char *staging;  /* device */
    int timeout_s;
    double longest_s; /* longest wait for a step; 0: none yet */
    bool broken;      /* the communicator is unusable; close aborts it */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    struct window windows[WINDOWS_MAX];
#endif
};

static struct coll_nccl *nccl_of(struct coll *c)
{
    return (struct coll_nccl *)c;
}

struct deadline {
    double end, asked;
};

static struct deadline deadline_in(double timeout_s)
{
    double now = clock_mono_s();
    return (struct deadline){now + timeout_s, now};
}

/* Called every few microseconds. After a gap of more than a second this process was stopped, other
 * ranks perhaps too: the deadline moves by the gap, so a suspended job continues when resumed. */
static bool passed(struct deadline *d)
{
    double now = clock_mono_s();
    if (now - d->asked > 1)
        d->end += now - d->asked;
    d->asked = now;
    return now > d->end;
}

static enum err broken(struct coll_nccl *n, const char *what, ncclResult_t r)
{
    const char *why = n->comm ? ncclGetLastError(n->comm) : NULL;
    n->broken = true;
    return err_set(ERR_LINK,
                   "rank %d of %d: %s: %s. %s; another rank of this site is gone, or its network: "
                   "the job ends and may be started again",
                   n->coll.rank, n->coll.size, what, ncclGetErrorString(r), why ? why : "");
}

static enum err too_late(struct coll_nccl *n, double timeout_s, const char *what)
{
    n->broken = true;
    return err_set(ERR_LINK,
                   "rank %d of %d: %s did not end within %.0f s; another rank of this site is "
                   "stopped, or its network is down: the job ends and may be started again",
                   n->coll.rank, n->coll.size, what, timeout_s);
}

static enum err cuda_failed(cudaError_t e, const char *what)
{
    return e == cudaSuccess ? ERR_OK
                            : err_set(ERR_INTERNAL, "CUDA: %s: %s", what, cudaGetErrorString(e));
}

/* Waits until the communicator has accepted the call (it was opened non-blocking): before that no
 * other call is allowed, and an event recorded now would not be ordered after it. The first
 * collective of a kind connects the ranks and waits for all of them. */
static enum err accepted(struct coll_nccl *n, ncclResult_t r, double timeout_s, const char *what)
{
    const double spin_s = 20e-6; /* a sleep of 10 us takes about 60 */
    struct deadline d = deadline_in(timeout_s);
    double begin = d.asked;
    while (r == ncclInProgress && !passed(&d)) {
        if (d.asked - begin > spin_s)
            usleep(10);
        ncclResult_t asked = ncclCommGetAsyncError(n->comm, &r);
        if (asked != ncclSuccess)
            r = asked;
    }
    if (r == ncclInProgress)
        return too_late(n, timeout_s, what);
    return r == ncclSuccess ? ERR_OK : broken(n, what, r);
}

/* Asynchronous errors of the communicator, such as a lost rank. */
static enum err check_async(struct coll_nccl *n, const char *what)
{
    ncclResult_t r = ncclSuccess;
    ncclResult_t asked = ncclCommGetAsyncError(n->comm, &r);
    if (asked == ncclSuccess && (r == ncclSuccess || r == ncclInProgress))
        return ERR_OK;
    return broken(n, what, asked != ncclSuccess ? asked : r);
}

/* Waits until the device has reached the event, and fails when a rank is lost. A finite deadline is
 * only for collectives that all ranks begin at nearly the same time: the lead may be waiting for
 * another datacenter, and watch.c detects lost and silent ranks. */
static enum err wait_event(struct coll_nccl *n, cudaEvent_t event, double timeout_s,
                           const char *what)
{
    struct deadline d = deadline_in(timeout_s);
    for (;;) {
        cudaError_t e = cudaEventQuery(event);
        if (e != cudaErrorNotReady)
            return cuda_failed(e, what);
        TRY(check_async(n, what));
        if (passed(&d))
            return too_late(n, timeout_s, what);
        usleep(20);
    }
}

/* Waits until the device has finished all submitted work. */
static enum err wait_device(struct coll_nccl *n, double timeout_s, const char *what)
{
    TRY(cuda_failed(cudaEventRecord(n->done, NULL), "event"));
    return wait_event(n, n->done, timeout_s, what);
}

static enum err connected(const struct coll_nccl *n)
{
    return n->comm ? ERR_OK : err_set(ERR_LINK, "the ranks of this site are no longer connected");
}

static ncclDataType_t type_of(enum dtype type)
{
    return type == DTYPE_F32 ? ncclFloat : ncclBfloat16;
}

/* The stream of asynchronous collectives waits for the work submitted so far. */
static enum err after_device(struct coll_nccl *n)
{
    TRY(connected(n));
    TRY(cuda_failed(cudaEventRecord(n->ready, n->on_legacy ? NULL : n->device_stream), "event"));
    n->on_legacy = false;
    return cuda_failed(cudaStreamWaitEvent(n->reduce_stream, n->ready, 0), "event");
}

static enum err reduce_begin(struct coll *c, void *x, enum dtype type, size_t count)
{
    struct coll_nccl *n = nccl_of(c);
    ncclDataType_t as = type_of(type);
    TRY(after_device(n));
    return accepted(n, ncclAllReduce(x, x, count, as, ncclSum, n->comm, n->reduce_stream), INFINITY,
                    "all-reduce");
}

static enum err progress(struct coll *c) /* NCCL advances by itself: only errors are polled */
{
    struct coll_nccl *n = nccl_of(c);
    TRY(connected(n));
    return check_async(n, "a sum of gradients");
}

/* The device's stream waits, and with it what is put on the legacy stream later; the host does not.
 */
static enum err reduce_wait(struct coll *c)
{
    struct coll_nccl *n = nccl_of(c);
    TRY(connected(n));
    TRY(cuda_failed(cudaEventRecord(n->done, n->reduce_stream), "event"));
    return cuda_failed(cudaStreamWaitEvent(n->device_stream, n->done, 0), "event");
}

/* Collectives of a communicator run one after another, in one order on all ranks: what runs in
 * stream order comes after what has a ticket. */
static enum err after_tickets(struct coll_nccl *n)
{
    TRY(connected(n));
    n->on_legacy = true;
    if (!n->begun)
        return ERR_OK;
    return cuda_failed(cudaStreamWaitEvent(NULL, n->tickets[n->begun % TICKETS], 0), "event");
}

/* Ends the group of calls that began with ncclGroupStart; r: the first failure in it. */
static enum err group_end(struct coll_nccl *n, ncclResult_t r, const char *what)
{
    ncclResult_t end = ncclGroupEnd();
    return accepted(n, r == ncclSuccess || r == ncclInProgress ? end : r, INFINITY, what);
}

/* ncclAllGather requires parts of equal size; a group of broadcasts runs as one operation. */
static enum err all_gather(struct coll *c, void *x, size_t unit_bytes, const size_t *first)
{
    struct coll_nccl *n = nccl_of(c);
    ncclResult_t r = ncclSuccess;
    TRY(after_tickets(n));
    ncclGroupStart();
    for (int i = 0; i < c->size && (r == ncclSuccess || r == ncclInProgress); i++) {
        char *at = (char *)x + first[i] * unit_bytes;
        r = ncclBroadcast(at, at, (first[i + 1] - first[i]) * unit_bytes, ncclUint8, i, n->comm,
                          NULL);
    }
    return group_end(n, r, "all-gather");
}

static size_t part_count(const struct coll_parts *p, int rank)
{
    return p->first[rank + 1] - p->first[rank];
}

static char *part_at(const struct coll_parts *p, int rank)
{
    return (char *)p->whole + (p->first[rank] - p->first[0]) * dtype_size(p->type);
}

/* What one call of NCCL takes. */
static bool parts_are_equal(const struct coll *c, const struct coll_parts *p)
{
    for (int r = 1; r < c->size; r++)
        if (part_count(p, r) != part_count(p, 0))
            return false;
    return true;
}

static enum err ticket_of(struct coll_nccl *n, uint64_t *ticket)
{
    *ticket = ++n->begun;
    return cuda_failed(cudaEventRecord(n->tickets[n->begun % TICKETS], n->reduce_stream), "event");
}

static bool went_on(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

static ncclResult_t gather_parts(struct coll_nccl *n, const struct coll_parts *p)
{
    ncclResult_t r = ncclSuccess;
    for (int i = 0; i < n->coll.size && went_on(r); i++)
        if (part_count(p, i))
            r = ncclBroadcast(i == n->coll.rank ? p->part : part_at(p, i), part_at(p, i),
                              part_count(p, i), type_of(p->type), i, n->comm, n->reduce_stream);
    return r;
}

static ncclResult_t scatter_parts(struct coll_nccl *n, const struct coll_parts *p)
{
    ncclResult_t r = ncclSuccess;
    for (int i = 0; i < n->coll.size && went_on(r); i++)
        if (part_count(p, i))
            r = ncclReduce(part_at(p, i), i == n->coll.rank ? p->part : part_at(p, i),
                           part_count(p, i), type_of(p->type), ncclSum, i, n->comm,
                           n->reduce_stream);
    return r;
}

static enum err all_gather_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    struct coll_nccl *n = nccl_of(c);
    const char *what = "all-gather of parts";
    TRY(after_device(n));
    if (parts_are_equal(c, p)) {
        TRY(accepted(n,
                     ncclAllGather(p->part, p->whole, part_count(p, 0), type_of(p->type), n->comm,
                                   n->reduce_stream),
                     INFINITY, what));
    } else {
        ncclGroupStart();
        TRY(group_end(n, gather_parts(n, p), what));
    }
    return ticket_of(n, ticket);
}

static enum err reduce_scatter_begin(struct coll *c, const struct coll_parts *p, uint64_t *ticket)
{
    struct coll_nccl *n = nccl_of(c);
    const char *what = "reduce-scatter of parts";
    TRY(after_device(n));
    if (parts_are_equal(c, p)) {
        TRY(accepted(n,
                     ncclReduceScatter(p->whole, p->part, part_count(p, 0), type_of(p->type),
                                       ncclSum, n->comm, n->reduce_stream),
                     INFINITY, what));
    } else {
        ncclGroupStart();
        TRY(group_end(n, scatter_parts(n, p), what));
    }
    return ticket_of(n, ticket);
}

/* The event of an old ticket is that of a newer one by now, after which it is done. */
static enum err ticket_wait(struct coll *c, uint64_t ticket)
{
    struct coll_nccl *n = nccl_of(c);
    TRY(connected(n));
    if (!ticket)
        return ERR_OK;
    return cuda_failed(cudaStreamWaitEvent(n->device_stream, n->tickets[ticket % TICKETS], 0),
                       "event");
}

static void follow(struct coll *c, const struct dev *d)
{
    nccl_of(c)->device_stream = d ? d->stream : NULL;
}

static enum err all_to_all(struct coll *c, void *to, const void *from, size_t unit_bytes,
                           const size_t *first)
{
    struct coll_nccl *n = nccl_of(c);
    size_t mine = (first[c->rank + 1] - first[c->rank]) * unit_bytes;
    ncclResult_t r = ncclSuccess;
    TRY(after_tickets(n));
    ncclGroupStart();
    for (int i = 0; i < c->size && (r == ncclSuccess || r == ncclInProgress); i++) {
        r = ncclSend((const char *)from + first[i] * unit_bytes,
                     (first[i + 1] - first[i]) * unit_bytes, ncclUint8, i, n->comm, NULL);
        if (r == ncclSuccess || r == ncclInProgress)
            r = ncclRecv((char *)to + (size_t)i * mine, mine, ncclUint8, i, n->comm, NULL);
    }
    return group_end(n, r, "all-to-all");
}

static enum err send_begin(struct coll *c, const void *x, size_t bytes, int to, int tag)
{
    (void)c, (void)x, (void)bytes, (void)to, (void)tag;
    return err_set(ERR_UNSUPPORTED,
                   "no messages between two GPU ranks: train.modules runs on CPU ranks over MPI");
}

static enum err send_wait(struct coll *c, int tag)
{
    (void)c, (void)tag;
    return ERR_OK;
}

static enum err recv_bytes(struct coll *c, void *x, size_t bytes, int from, int tag)
{
    return send_begin(c, x, bytes, from, tag);
}

static enum err all_reduce(struct coll *c, double *x, size_t count)
{
    struct coll_nccl *n = nccl_of(c);
    TRY(after_tickets(n));
    return accepted(n, ncclAllReduce(x, x, count, ncclDouble, ncclSum, n->comm, NULL), INFINITY,
                    "all-reduce");
}

static enum err event_record(struct coll *c)
{
    struct coll_nccl *n = nccl_of(c);
    TRY(connected(n));
    return cuda_failed(cudaEventRecord(n->recorded, NULL), "event");
}

/* A step may take minutes, so the deadline follows from the longest wait before. */
static enum err event_wait(struct coll *c)
{
    struct coll_nccl *n = nccl_of(c);
    double begin = clock_mono_s(),
           limit = n->longest_s > 0 ? n->timeout_s + 10 * n->longest_s : INFINITY;
    TRY(connected(n));
    TRY(wait_event(n, n->recorded, limit, "a step"));
    if (clock_mono_s() - begin > n->longest_s)
        n->longest_s = clock_mono_s() - begin;
    return ERR_OK;
}

static enum err all_reduce_piece(struct coll_nccl *n, double *x, size_t count)
{
    TRY(cuda_failed(cudaMemcpy(n->staging, x, count * sizeof *x, cudaMemcpyHostToDevice), "copy"));
    TRY(accepted(n,
                 ncclAllReduce(n->staging, n->staging, count, ncclDouble, ncclSum, n->comm, NULL),
                 INFINITY, "all-reduce"));
    TRY(wait_device(n, INFINITY, "all-reduce of host values"));
    return cuda_failed(cudaMemcpy(x, n->staging, count * sizeof *x, cudaMemcpyDeviceToHost),
                       "copy");
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static enum err all_reduce_host(struct coll *c, double *x, size_t count)
{
    const size_t most = STAGING_BYTES / sizeof *x;
    TRY(after_tickets(nccl_of(c)));
    for (size_t at = 0; at < count; at += most)
        TRY(all_reduce_piece(nccl_of(c), x + at, smaller(count - at, most)));
    return ERR_OK;
}

static enum err broadcast(struct coll *c, void *x, size_t bytes, int from)
{
    struct coll_nccl *n = nccl_of(c);
    TRY(after_tickets(n));
    TRY(accepted(n, ncclBroadcast(x, x, bytes, ncclUint8, from, n->comm, NULL), INFINITY,
                 "broadcast"));
    return wait_device(n, INFINITY, "broadcast");
}

static enum err broadcast_host(struct coll *c, void *x, size_t bytes, int from)
{
    struct coll_nccl *n = nccl_of(c);
    bool mine = c->rank == from;
    TRY(after_tickets(n));
    for (size_t at = 0; at < bytes; at += STAGING_BYTES) {
        char *part = (char *)x + at;
        size_t size = smaller(bytes - at, STAGING_BYTES);
        if (mine)
            TRY(cuda_failed(cudaMemcpy(n->staging, part, size, cudaMemcpyHostToDevice), "copy"));
        TRY(broadcast(c, n->staging, size, from));
        if (!mine)
            TRY(cuda_failed(cudaMemcpy(part, n->staging, size, cudaMemcpyDeviceToHost), "copy"));
    }
    return ERR_OK;
}

static enum err barrier(struct coll *c)
{
    double nothing = 0;
    return all_reduce_host(c, &nothing, 1);
}

/* ---- registered memory ---- */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static struct window *window_of(struct coll_nccl *n, const void *at)
{
    for (int i = 0; i < WINDOWS_MAX; i++)
        if (n->windows[i].at == at)
            return &n->windows[i];
    return NULL;
}

static bool has_windows(void)
{
    return ncclMemAlloc && ncclMemFree && ncclCommWindowRegister && ncclCommWindowDeregister;
}

static enum err alloc(struct coll *c, struct dev *d, void **p, size_t bytes)
{
    struct coll_nccl *n = nccl_of(c);
    struct window *w = has_windows() ? window_of(n, NULL) : NULL;
    TRY(connected(n));
    if (!w)
        return d->ops->alloc(d, p, bytes);
    if (ncclMemAlloc(p, bytes) != ncclSuccess) {
        *p = NULL;
        return err_set(ERR_MEMORY, "no %zu MiB of GPU memory that NCCL can register", bytes >> 20);
    }
    w->at = *p;
    w->bytes = bytes;
    d->ops->zero(d, *p, bytes);
    d->used_bytes += bytes;
    return accepted(n,
                    ncclCommWindowRegister(n->comm, *p, bytes, &w->window, NCCL_WIN_COLL_SYMMETRIC),
                    INFINITY, "registering memory");
}

/* The device is done with it. A communicator that is broken has nothing to deregister from. */
static void give(struct coll *c, struct dev *d, void *p)
{
    struct coll_nccl *n = nccl_of(c);
    struct window *w = window_of(n, p);
    if (!w) {
        d->ops->free(d, p);
        return;
    }
    enum err e = n->comm && !n->broken ? accepted(n, ncclCommWindowDeregister(n->comm, w->window),
                                                  n->timeout_s, "giving registered memory back")
                                       : ERR_OK;
    d->used_bytes -= w->bytes;
    *w = (struct window){.at = NULL};
    if (!e)
        ncclMemFree(p);
}
#endif

/* ncclCommDestroy requires that ncclCommFinalize has completed, which a non-blocking communicator
 * reports later. If it fails, kernels may still wait for other ranks, and cudaFree would wait for
 * them: abort ends these kernels. */
static void finalize(struct coll_nccl *n)
{
    if (!n->comm)
        return;
    if (!n->broken &&
        accepted(n, ncclCommFinalize(n->comm), n->timeout_s, "leaving the other ranks") == ERR_OK)
        ncclCommDestroy(n->comm);
    else
        ncclCommAbort(n->comm);
}

static void close_nccl(struct coll *c)
{
    struct coll_nccl *n = nccl_of(c);
    finalize(n);
    if (n->done)
        cudaEventDestroy(n->done);
    if (n->ready)
        cudaEventDestroy(n->ready);
    if (n->recorded)
        cudaEventDestroy(n->recorded);
    for (int i = 0; i < TICKETS; i++)
        if (n->tickets[i])
            cudaEventDestroy(n->tickets[i]);
    if (n->reduce_stream)
        cudaStreamDestroy(n->reduce_stream);
    cudaFree(n->staging);
    free(n);
}

/* Neither waits nor frees: the system does that, even while a kernel waits for a lost rank. The
 * launcher sees the exit code. */
static void abort_nccl(struct coll *c, int exit_code)
{
    (void)c;
    _exit(exit_code);
}

/* With one visible GPU for each rank (Slurm's --gpus-per-task) its index is 0. */
static enum err choose_gpu(struct coll_nccl *n, int local_rank)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess)
        return err_set(ERR_UNSUPPORTED, "rank %d: no usable GPU: %s: see nvidia-smi", n->coll.rank,
                       cudaGetErrorString(e));
    n->coll.local_rank = count == 1 ? 0 : local_rank;
    if (n->coll.local_rank >= count)
        return err_set(
            ERR_UNSUPPORTED,
            "rank %d is number %d on its host, which shows %d GPUs: one rank for each GPU",
            n->coll.rank, local_rank, count);
    return cuda_failed(cudaSetDevice(n->coll.local_rank), "choosing the GPU of this rank");
}

static enum err open_parts(struct coll_nccl *n, const struct coll_nccl_options *o)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int lowest = 0, highest = 0;
    _Static_assert(sizeof id.internal == COLL_NCCL_ID_BYTES, "an id of NCCL");
    config.blocking = 0;
#ifdef NCCL_CTA_POLICY_EFFICIENCY
    config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY; /* products run next to collectives */
#endif
    TRY(choose_gpu(n, o->local_rank));
    TRY(cuda_failed(cudaEventCreateWithFlags(&n->done, cudaEventDisableTiming), "event"));
    TRY(cuda_failed(cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming), "event"));
    TRY(cuda_failed(cudaEventCreateWithFlags(&n->recorded, cudaEventDisableTiming), "event"));
    for (int i = 0; i < TICKETS; i++)
        TRY(cuda_failed(cudaEventCreateWithFlags(&n->tickets[i], cudaEventDisableTiming), "event"));
    TRY(cuda_failed(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "stream"));
    TRY(cuda_failed(cudaStreamCreateWithPriority(&n->reduce_stream, cudaStreamNonBlocking, highest),
                    "stream"));
    TRY(cuda_failed(cudaMalloc((void **)&n->staging, STAGING_BYTES), "staging memory"));
    memcpy(id.internal, o->id, sizeof id.internal);
    return accepted(n, ncclCommInitRankConfig(&n->comm, o->size, id, o->rank, &config),
                    n->timeout_s, "joining the other ranks");
}

static enum err new_id(unsigned char out[COLL_NCCL_ID_BYTES])
{
    ncclUniqueId id;
    ncclResult_t r = ncclGetUniqueId(&id);
    if (r != ncclSuccess)
        return err_set(ERR_LINK, "NCCL has no address for the other ranks: %s",
                       ncclGetErrorString(r));
    memcpy(out, id.internal, COLL_NCCL_ID_BYTES);
    return ERR_OK;
}

static enum err open_nccl(struct coll **c, const struct coll_nccl_options *o)
{
    static const struct coll_ops ops = {
        .reduce_begin = reduce_begin,
        .progress = progress,
        .reduce_wait = reduce_wait,
        .all_gather_begin = all_gather_begin,
        .reduce_scatter_begin = reduce_scatter_begin,
        .ticket_wait = ticket_wait,
        .all_gather = all_gather,
        .all_to_all = all_to_all,
        .send_begin = send_begin,
        .send_wait = send_wait,
        .recv = recv_bytes,
        .all_reduce = all_reduce,
        .event_record = event_record,
        .event_wait = event_wait,
        .all_reduce_host = all_reduce_host,
        .broadcast = broadcast,
        .broadcast_host = broadcast_host,
        .barrier = barrier,
        .follow = follow,
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
        .alloc = alloc,
        .free = give,
#endif
        .close = close_nccl,
        .abort = abort_nccl
    };
    struct coll_nccl *n = calloc(1, sizeof *n);
    *c = NULL;
    if (!n)
        return err_set(ERR_MEMORY, "no memory for the collectives");
    n->coll = (struct coll){.ops = &ops, .rank = o->rank, .size = o->size, .kind = "nccl"};
    n->timeout_s = o->timeout_s;
    enum err e = open_parts(n, o);
    if (e)
        close_nccl(&n->coll);
    else
        *c = &n->coll;
    return e;
}

__attribute__((visibility("default"))) const struct coll_nccl_module *
atoll_nccl_module(const struct cuda_host *host);

const struct coll_nccl_module *atoll_nccl_module(const struct cuda_host *host)
{
    static const struct coll_nccl_module module = {sizeof(struct coll), new_id, open_nccl};
    host_set(host);
    return &module;
}
