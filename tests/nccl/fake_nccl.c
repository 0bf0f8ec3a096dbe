/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for NCCL under coll_nccl.c: ranks are processes that meet in a file of shared memory,
 * which has a seat for each. What NCCL forbids or would hang on ends the process with a sentence
 * (fake_misuse): a call while the last is in progress, after an abort, in another order than the
 * other ranks', on a second stream that has not waited for the data.
 *
 * A killed rank is silent, as over NVLink; with FAKE_NCCL_REPORTS in the environment its peers get
 * ncclRemoteError, as over sockets.
 */
#include "tests/cuda/fake_cuda.h"
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "kernels/base/bf16.h"

enum { SEATS = 8, CHUNK = 64 << 10, GROUP_MAX = 64, COMMS_MAX = 16 };
enum func {
    FUNC_ALL_REDUCE,
    FUNC_REDUCE,
    FUNC_BROADCAST,
    FUNC_EXCHANGE,
    FUNC_ALL_GATHER,
    FUNC_REDUCE_SCATTER,
    FUNCS
};

struct call { /* what must be equal in all ranks */
    enum func func;
    ncclDataType_t type;
    size_t count;
    int root;
};
struct seat {
    _Atomic unsigned arrived[2]; /* barriers passed: of the streams, of the launching threads */
    _Atomic int pid;
    int device;
    struct call call;
    size_t sends[SEATS]; /* bytes to each rank, of FUNC_EXCHANGE */
    size_t window;       /* bytes that it registers */
    unsigned char data[CHUNK];
};
struct shared {
    struct seat seats[SEATS];
};
struct ncclComm {
    struct shared *shared;
    int rank, size, device;
    char name[64];
    _Atomic int state, failed; /* ncclResult_t: of the last call; of the ranks, from then on */
    _Atomic bool aborted, dead;
    bool finalized, launching;
    _Atomic unsigned running; /* collectives on streams */
    bool connected[FUNCS];
    pthread_t launcher;
    int watched[SEATS]; /* pidfd of each rank, -1 */
};
struct message { /* with one other rank */
    const void *from;
    void *to;
    size_t from_bytes, to_bytes;
};
struct op {
    struct ncclComm *comm;
    struct call call;
    const void *from;
    void *to;
    cudaStream_t stream;
    struct message messages[SEATS]; /* FUNC_EXCHANGE: all sends and receives of a group */
};
struct batch {
    struct ncclComm *comm;
    size_t count;
    struct op ops[GROUP_MAX];
};

static struct ncclComm comms[COMMS_MAX]; /* never reused: a call on a dead one is found out */
static size_t comms_count;
static bool in_group;
static struct batch group;
static char last_error[200];

/* Memory of ncclMemAlloc, and the window of it. */
enum { WINDOWS_MAX = 64 };
static struct ncclWindow_vidmem {
    void *at;
    size_t bytes;
    struct ncclComm *comm; /* NULL: not registered */
} windows[WINDOWS_MAX];

static struct ncclWindow_vidmem *window_at(const void *at)
{
    for (size_t i = 0; i < WINDOWS_MAX; i++)
        if (windows[i].at == at)
            return &windows[i];
    return NULL;
}

static void left_open(void)
{
    for (size_t i = 0; i < WINDOWS_MAX; i++)
        if (windows[i].at)
            fake_misuse("memory of ncclMemAlloc is left at the end");
    for (size_t i = 0; i < comms_count; i++)
        if (!comms[i].dead)
            fake_misuse("a communicator is left open at the end");
}

/* ---- ranks --------------------------------------------------------------------------------------
 */
static bool peer_gone(struct ncclComm *c)
{
    if (!getenv("FAKE_NCCL_REPORTS"))
        return false;
    for (int r = 0; r < c->size; r++) {
        struct seat *s = &c->shared->seats[r];
        bool ended = false;
        if (c->watched[r] < 0 && s->pid) {
            c->watched[r] = (int)syscall(SYS_pidfd_open, (int)s->pid, 0);
            ended = c->watched[r] < 0 && errno == ESRCH;
        }
        struct pollfd p = {c->watched[r], POLLIN, 0};
        if (ended || poll(&p, 1, 0) == 1) {
            snprintf(last_error, sizeof last_error, "rank %d closed its connection", r);
            return true;
        }
    }
    return false;
}

/* False: this communicator was aborted, or a rank is gone. */
static bool barrier(struct ncclComm *c, int which)
{
    unsigned mine = ++c->shared->seats[c->rank].arrived[which];
    for (int r = 0; r < c->size; r++)
        for (unsigned tries = 1; c->shared->seats[r].arrived[which] < mine; tries++) {
            if (c->aborted || c->failed)
                return false;
            if (tries % 256 == 0 && peer_gone(c)) {
                c->failed = ncclRemoteError;
                return false;
            }
            usleep(tries < 50 ? 10 : 200);
        }
    return !c->aborted && !c->failed;
}

static bool same_calls(struct ncclComm *c)
{
    const struct call *mine = &c->shared->seats[c->rank].call;
    for (int r = 0; r < c->size; r++) {
        const struct call *theirs = &c->shared->seats[r].call;
        if (theirs->func != mine->func || theirs->type != mine->type ||
            theirs->count != mine->count || theirs->root != mine->root)
            return false;
    }
    return true;
}

/* ---- arithmetic ---------------------------------------------------------------------------------
 */
static size_t width(ncclDataType_t type)
{
    return type == ncclDouble ? 8 : type == ncclFloat ? 4 : type == ncclBfloat16 ? 2 : 1;
}

static void add(void *to, const void *from, ncclDataType_t type, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (type == ncclDouble)
            ((double *)to)[i] += ((const double *)from)[i];
        else if (type == ncclFloat)
            ((float *)to)[i] += ((const float *)from)[i];
        else
            ((uint16_t *)to)[i] = bf16_round(bf16_float(((uint16_t *)to)[i]) +
                                             bf16_float(((const uint16_t *)from)[i]));
}

/* The order of additions differs from chunk to chunk, as a ring's does; it is the same in all
 * ranks. */
static void chunk(const struct op *o, size_t index, void *to, const void *from, size_t bytes)
{
    const struct ncclComm *c = o->comm;
    const struct call *call = &o->call;
    struct seat *seats = c->shared->seats;
    bool copies = call->func == FUNC_BROADCAST || call->func == FUNC_ALL_GATHER;
    int first = copies ? call->root : (int)(index % (size_t)c->size);
    memcpy(seats[c->rank].data, from, bytes);
    if (!barrier(o->comm, 0))
        return;
    if (call->func == FUNC_REDUCE_SCATTER && c->rank != call->root) {
        (void)barrier(o->comm, 0);
        return;
    }
    memcpy(to, seats[first].data, bytes);
    for (int i = 1; i < c->size && !copies; i++)
        add(to, seats[(first + i) % c->size].data, call->type, bytes / width(call->type));
    if (call->func == FUNC_REDUCE && c->rank != call->root)
        memset(to, 0xff, bytes); /* undefined: NaN */
    (void)barrier(o->comm, 0);
}

/* From rank `sender` to rank `receiver`, through the sender's seat; all ranks pass its barriers. */
static void deliver(const struct op *o, int sender, int receiver)
{
    struct ncclComm *c = o->comm;
    struct seat *seat = &c->shared->seats[sender];
    const struct message *in = &o->messages[sender], *out = &o->messages[receiver];
    size_t bytes = seat->sends[receiver];
    if (c->rank == receiver && in->to_bytes != bytes)
        fake_misuse("a send and its receive differ in size: NCCL would hang");
    for (size_t at = 0; at < bytes && !c->aborted && !c->failed; at += CHUNK) {
        size_t size = bytes - at < CHUNK ? bytes - at : CHUNK;
        if (c->rank == sender)
            memcpy(seat->data, (const char *)fake_at(out->from, bytes) + at, size);
        if (barrier(c, 0) && c->rank == receiver)
            memcpy((char *)fake_at(in->to, bytes) + at, seat->data, size);
        (void)barrier(c, 0);
    }
}

static void exchange(const struct op *o)
{
    struct ncclComm *c = o->comm;
    for (int r = 0; r < c->size; r++)
        c->shared->seats[c->rank].sends[r] = o->messages[r].from_bytes;
    (void)barrier(c, 0);
    for (int sender = 0; sender < c->size; sender++)
        for (int receiver = 0; receiver < c->size; receiver++)
            deliver(o, sender, receiver);
}

static void chunks(const struct op *o)
{
    const struct ncclComm *c = o->comm;
    size_t bytes = o->call.count * width(o->call.type);
    for (size_t at = 0, i = 0; o->from && at < bytes && !c->aborted && !c->failed; at += CHUNK, i++)
        chunk(o, i, (char *)fake_at(o->to, bytes) + at, (const char *)fake_at(o->from, bytes) + at,
              bytes - at < CHUNK ? bytes - at : CHUNK);
}

/* Part after part: of each rank to all, or of all to each rank. */
static void parts(const struct op *o)
{
    size_t bytes = o->call.count * width(o->call.type);
    for (int r = 0; r < o->comm->size; r++) {
        struct op one = *o;
        one.call.root = r;
        if (o->call.func == FUNC_REDUCE_SCATTER) {
            one.from = (const char *)o->from + (size_t)r * bytes;
        } else {
            one.to = (char *)o->to + (size_t)r * bytes;
            one.from = r == o->comm->rank ? o->from : one.to;
        }
        chunks(&one);
    }
}

static void run(void *self)
{
    struct op *o = self;
    struct ncclComm *c = o->comm;
    bool in_parts = o->call.func == FUNC_ALL_GATHER || o->call.func == FUNC_REDUCE_SCATTER;
    c->shared->seats[c->rank].call = o->call;
    if (barrier(c, 0)) {
        if (!same_calls(c))
            fake_misuse("the ranks' calls differ: NCCL would hang");
        (void)barrier(c, 0);
    }
    if (o->call.func == FUNC_EXCHANGE && !c->aborted && !c->failed)
        exchange(o);
    if (in_parts)
        parts(o);
    else
        chunks(o);
    while (c->failed && !c->aborted) /* as a kernel does that waits for a rank that is gone */
        usleep(200);
    c->running--;
}

/* ---- calls --------------------------------------------------------------------------------------
 */
static void settle(struct ncclComm *c)
{
    if (c->launching)
        pthread_join(c->launcher, NULL);
    c->launching = false;
}

/* In the background: the state of the communicator is ncclInProgress until it is done. */
static ncclResult_t begin(struct ncclComm *c, void *(*job)(void *), void *self)
{
    settle(c);
    c->state = ncclInProgress;
    c->launching = true;
    if (pthread_create(&c->launcher, NULL, job, self))
        fake_misuse("no thread for a call");
    return ncclInProgress;
}

static void usable(const struct ncclComm *c, const char *what)
{
    if (c->dead || c->aborted)
        fake_misuse("%s on a communicator that was aborted or destroyed", what);
    if (c->state == ncclInProgress)
        fake_misuse("%s while the last call is in progress", what);
}

static void *launch(void *self)
{
    struct batch *b = self;
    struct ncclComm *c = b->comm;
    struct timespec now;
    bool legacy = false;
    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep((unsigned)(now.tv_nsec / 1000 % 300));
    for (size_t i = 0; i < b->count; i++) {
        const struct op *o = &b->ops[i];
        enum func f = o->call.func;
        if (!c->connected[f] && !barrier(c, 1)) /* connecting takes all ranks */
            break;
        c->connected[f] = true;
        c->running++;
        legacy |= !o->stream;
        fake_enqueue(o->stream, run, o, sizeof *o, 0);
    }
    while (legacy && c->running &&
           !c->aborted) /* fake_device's ops cannot wait for the legacy stream */
        usleep(20);
    c->state = c->failed;
    free(b);
    return NULL;
}

static ncclResult_t batch_begin(const struct batch *b)
{
    struct batch *copy = malloc(sizeof *copy);
    if (!copy)
        fake_misuse("no memory for a call");
    *copy = *b;
    return begin(b->comm, launch, copy);
}

static ncclResult_t call(const struct op *o)
{
    usable(o->comm, "a collective");
    if (o->comm->failed || o->call.count == 0)
        return (ncclResult_t)o->comm->failed;
    if (!in_group || !group.count) /* a group is one operation */
        fake_ordered(o->stream);
    if (!in_group)
        return batch_begin(&(struct batch){o->comm, 1, {*o}});
    if (group.count == GROUP_MAX)
        fake_misuse("more than %d calls in a group", GROUP_MAX);
    group.comm = o->comm;
    group.ops[group.count++] = *o;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return call(&(struct op){comm, {FUNC_ALL_REDUCE, type, count, 0}, from, to, stream, {{0}}});
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return call(&(struct op){comm, {FUNC_REDUCE, type, count, root}, from, to, stream, {{0}}});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(&(struct op){comm, {FUNC_BROADCAST, type, count, root}, from, to, stream, {{0}}});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(&(struct op){comm, {FUNC_ALL_GATHER, type, count, 0}, from, to, stream, {{0}}});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    (void)op;
    return call(&(struct op){comm, {FUNC_REDUCE_SCATTER, type, count, 0}, from, to, stream, {{0}}});
}

/* ---- registered memory --------------------------------------------------------------------------
 */
ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
    struct ncclWindow_vidmem *w = window_at(NULL);
    if (!w)
        fake_misuse("more than %d allocations", WINDOWS_MAX);
    *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(*p, 0xff, bytes);
    *w = (struct ncclWindow_vidmem){.at = *p, .bytes = bytes};
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
    struct ncclWindow_vidmem *w = window_at(p);
    if (!p || !w)
        fake_misuse("ncclMemFree of memory that ncclMemAlloc did not give");
    if (w->comm)
        fake_misuse("ncclMemFree of registered memory");
    free(p);
    *w = (struct ncclWindow_vidmem){.at = NULL};
    return ncclSuccess;
}

static void *register_all(void *self)
{
    struct ncclWindow_vidmem *w = self;
    struct ncclComm *c = w->comm;
    c->shared->seats[c->rank].window = w->bytes;
    if (barrier(c, 1)) {
        for (int r = 0; r < c->size; r++)
            if (c->shared->seats[r].window != w->bytes)
                fake_misuse("a symmetric window has one size on all ranks: %zu here, %zu at rank "
                            "%d",
                            w->bytes, c->shared->seats[r].window, r);
        (void)barrier(c, 1);
    }
    c->state = c->failed;
    return NULL;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *window,
                                    int flags)
{
    struct ncclWindow_vidmem *w = window_at(p);
    usable(comm, "ncclCommWindowRegister");
    if (!p || !w || w->bytes != bytes || flags != NCCL_WIN_COLL_SYMMETRIC)
        fake_misuse("a window of memory that ncclMemAlloc did not give");
    w->comm = comm;
    *window = w;
    return begin(comm, register_all, w);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    usable(comm, "ncclCommWindowDeregister");
    if (!window || window->comm != comm)
        fake_misuse("a window that is not registered");
    window->comm = NULL;
    return ncclSuccess;
}

/* The exchange of this group. */
static struct message *message(ncclComm_t comm, int peer, cudaStream_t stream)
{
    const struct op *last = &group.ops[group.count - (group.count > 0)];
    if (!in_group)
        fake_misuse("a send or receive outside a group waits for its other half");
    if (!group.count || last->call.func != FUNC_EXCHANGE)
        (void)call(
            &(struct op){.comm = comm, .call = {FUNC_EXCHANGE, ncclUint8, 1, 0}, .stream = stream});
    return &group.ops[group.count - 1].messages[peer];
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    struct message *m = message(comm, peer, stream);
    m->from = from;
    m->from_bytes = count * width(type);
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    struct message *m = message(comm, peer, stream);
    m->to = to;
    m->to_bytes = count * width(type);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void); /* the real header has () */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    in_group = true;
    group.count = 0;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!in_group)
        fake_misuse("the end of no group");
    in_group = false;
    return group.count ? batch_begin(&group) : ncclSuccess;
}

/* ---- communicators ------------------------------------------------------------------------------
 */
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static unsigned made;
    struct timespec now;
    if (getenv("NCCL_COMM_ID"))
        fake_misuse("an inherited NCCL_COMM_ID joins this job to another");
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/atoll-fake-nccl-%ld-%u-%ld", (long)getpid(),
             made++, now.tv_nsec);
    return ncclSuccess;
}

static bool seats_open(struct ncclComm *c)
{
    int fd = shm_open(c->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *c->shared))
        return false;
    c->shared = mmap(NULL, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return c->shared != MAP_FAILED;
}

static void *join(void *self)
{
    struct ncclComm *c = self;
    if (!seats_open(c))
        fake_misuse("no shared memory at %s", c->name);
    struct seat *mine = &c->shared->seats[c->rank];
    mine->device = c->device;
    mine->pid = (int)getpid();
    bool all = barrier(c, 1);
    if (c->rank == 0)
        shm_unlink(c->name);
    for (int r = 0; all && r < c->size; r++)
        if (r != c->rank && c->shared->seats[r].device == c->device && !c->failed) {
            snprintf(last_error, sizeof last_error,
                     "Duplicate GPU detected: rank %d and rank %d both on device %d", c->rank, r,
                     c->device);
            c->failed = ncclInvalidUsage;
        }
    c->state = c->failed;
    return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *c = &comms[comms_count++];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"); /* one number */
    if (comms_count == 1)
        atexit(left_open);
    if (config->blocking != 0)
        fake_misuse("a communicator that blocks cannot be watched");
    if (fake_device() < 0)
        fake_misuse("no GPU was chosen for this rank");
    if (size > SEATS || comms_count == COMMS_MAX)
        fake_misuse("more ranks or communicators than this has");
    c->rank = rank;
    c->size = size;
    c->device = fake_device() + (visible ? atoi(visible) : 0);
    for (int r = 0; r < SEATS; r++)
        c->watched[r] = -1;
    snprintf(c->name, sizeof c->name, "%.60s", id.internal);
    *comm = c;
    return begin(c, join, c);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
    if (c->dead || c->aborted)
        fake_misuse("a question to a communicator that was aborted or destroyed");
    *error = (ncclResult_t)(c->failed ? c->failed : c->state);
    return ncclSuccess;
}

static void *finalize(void *self)
{
    struct ncclComm *c = self;
    while (c->running && !c->aborted)
        usleep(100);
    c->finalized = true;
    c->state = c->failed;
    return NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    usable(c, "ncclCommFinalize");
    return c->failed ? (ncclResult_t)c->failed : begin(c, finalize, c);
}

static void bury(ncclComm_t c)
{
    settle(c);
    while (c->running)
        usleep(100);
    if (c->shared && c->shared != MAP_FAILED)
        munmap(c->shared, sizeof *c->shared);
    for (int r = 0; r < SEATS; r++)
        if (c->watched[r] >= 0)
            close(c->watched[r]);
    c->dead = true;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    usable(c, "ncclCommDestroy");
    if (!c->finalized)
        fake_misuse("ncclCommDestroy before the end of ncclCommFinalize");
    bury(c);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    if (c->dead || c->aborted)
        fake_misuse("ncclCommAbort of a communicator that was aborted or destroyed");
    c->aborted = true;
    bury(c);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return (unsigned)r < sizeof names / sizeof *names ? names[r] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return last_error;
}

/* For fake_device.c. */
__attribute__((visibility("default"))) void *fake_stream(void);
void *fake_stream(void)
{
    return fake_device_stream();
}
