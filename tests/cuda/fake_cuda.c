/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the CUDA runtime: fake_cuda.h. */
#include "tests/cuda/fake_cuda.h"
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_job {
    struct fake_job *next;
    void (*run)(void *self);
    size_t bytes;
    alignas(max_align_t) unsigned char self[];
};
struct CUgraph_st { /* a cudaGraphExec_t is one too: nothing changes a graph after its capture */
    struct fake_queue nodes;
    int users;
};
struct CUevent_st {
    cudaStream_t stream; /* NULL: never recorded */
    uint64_t number;     /* reached when the stream has done this number */
    double us;           /* of the clock */
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
static cudaStream_t device_stream;
static unsigned legacy_collectives;
static cudaStream_t streams, legacy; /* a stream that is destroyed stays: events may refer to it */
static double clock_us;
static _Thread_local int device = -1;
static _Thread_local cudaError_t last_error;

void fake_misuse(const char *format, ...)
{
    va_list a;
    va_start(a, format);
    fputs("MISUSE of CUDA or NCCL: ", stderr);
    vfprintf(stderr, format, a);
    fputc('\n', stderr);
    va_end(a);
    abort();
}

static void *take(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p)
        fake_misuse("no memory for the stand-in");
    return p;
}

static cudaError_t failed(cudaError_t e)
{
    last_error = e;
    return e;
}

/* ---- errors and devices ---- */
const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess                         ? "no error"
           : e == cudaErrorInvalidValue             ? "invalid argument"
           : e == cudaErrorMemoryAllocation         ? "out of memory"
           : e == cudaErrorInvalidDevice            ? "invalid device ordinal"
           : e == cudaErrorNotReady                 ? "device not ready"
           : e == cudaErrorStreamCaptureUnsupported ? "operation not permitted during capture"
           : e == cudaErrorUnknown                  ? "unknown error"
           : e == cudaErrorStreamCaptureInvalidated ? "an earlier error ended the capture"
                                                    : "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

int fake_device(void)
{
    return device;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *said = getenv("FAKE_GPUS");
    *count = said ? atoi(said) : executor_gpus;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    int count;
    cudaGetDeviceCount(&count);
    if (d < 0 || d >= count)
        return failed(cudaErrorInvalidDevice);
    device = d;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d)
{
    (void)d;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated");
    p->totalGlobalMem = (size_t)64 << 30;
    p->sharedMemPerMultiprocessor = 100 * 1024; /* the least of all GPUs that are supported */
    p->major = 9;
    p->multiProcessorCount = 3; /* few, so that small tests run persistent loops more than once */
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- streams ---- */
static void push(struct fake_queue *q, void (*run)(void *), const void *self, size_t bytes)
{
    struct fake_job *j = take(sizeof *j + bytes);
    j->run = run;
    j->bytes = bytes;
    memcpy(j->self, self, bytes);
    if (q->first)
        *q->last = j;
    else
        q->first = j;
    q->last = &j->next;
}

static cudaStream_t stream_make(unsigned flags, int priority)
{
    cudaStream_t s = take(sizeof *s);
    s->flags = flags;
    s->priority = priority;
    s->next = streams;
    streams = s;
    executor_start(s);
    return s;
}

static cudaStream_t stream_of(cudaStream_t s)
{
    if (!s && !legacy)
        legacy = stream_make(cudaStreamDefault, 0);
    return s ? s : legacy;
}

static void wait_run(void *self)
{
    cudaEventSynchronize(self); /* the copy of the event as it was at the call */
}

/* What is put on the legacy stream comes after what streams that are not "non-blocking" were given.
 */
static void after_blocking(cudaStream_t s)
{
    for (cudaStream_t x = s == legacy ? streams : NULL; x; x = x->next)
        if (x != s && x->flags == cudaStreamDefault && x->given != x->joined) {
            const struct CUevent_st e = {x, x->given, clock_us};
            push(&s->waiting, wait_run, &e, sizeof e);
            s->given++;
            x->joined = x->given;
            pthread_cond_broadcast(&fake_changed);
        }
}

void fake_enqueue(cudaStream_t stream, void (*run)(void *), const void *self, size_t bytes,
                  double us)
{
    pthread_mutex_lock(&fake_lock);
    cudaStream_t s = stream_of(stream);
    clock_us += 1 + us;
    after_blocking(s);
    push(s->recording ? &s->recording->nodes : &s->waiting, run, self, bytes);
    s->given += !s->recording;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

bool fake_step(cudaStream_t s)
{
    struct fake_job *j = s->waiting.first;
    if (!j)
        return false;
    s->waiting.first = j->next;
    pthread_mutex_unlock(&fake_lock);
    j->run(j->self);
    free(j);
    pthread_mutex_lock(&fake_lock);
    s->done++;
    pthread_cond_broadcast(&fake_changed);
    return true;
}

static void until(cudaStream_t s, uint64_t done)
{
    pthread_mutex_lock(&fake_lock);
    executor_until(s, done);
    pthread_mutex_unlock(&fake_lock);
}

static void until_all(void)
{
    pthread_mutex_lock(&fake_lock);
    for (cudaStream_t s = streams; s; s = s->next)
        executor_until(s, s->given);
    pthread_mutex_unlock(&fake_lock);
}

/* At a call that no capture allows: is there a capture? It is spoilt. */
static bool spoils(void)
{
    bool any = false;
    pthread_mutex_lock(&fake_lock);
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->recording)
            s->spoilt = any = true;
    pthread_mutex_unlock(&fake_lock);
    return any;
}

void fake_ordered(cudaStream_t s)
{
    if (!s) {
        legacy_collectives++;
        return;
    }
    if (s->flags != cudaStreamNonBlocking || s->priority != -5)
        fake_misuse("a collective on a stream that waits for the legacy one, or has no priority");
    if (s->waited == s->used)
        fake_misuse("a collective on a second stream that has not waited for its data");
    if (s->legacy != legacy_collectives)
        fake_misuse("a collective on a second stream does not wait for those of the legacy one");
    s->used = s->waited;
}

cudaStream_t fake_device_stream(void)
{
    if (!device_stream && cudaStreamCreateWithPriority(&device_stream, cudaStreamDefault, 0))
        fake_misuse("no stream for the device");
    return device_stream;
}

/* s waits for an event of `from`. */
static void waits(cudaStream_t s, cudaStream_t from)
{
    bool on_legacy = from && from == legacy;
    if (on_legacy && device_stream && s->legacy == legacy_collectives)
        fake_misuse("a collective waits for every stream, where the device's is known");
    if (on_legacy)
        s->legacy = legacy_collectives;
    s->waited += on_legacy || (from && from->flags == cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most)
{
    *least = 0;
    *most = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    if (priority > 0 || priority < -5)
        return failed(cudaErrorInvalidValue);
    pthread_mutex_lock(&fake_lock);
    *s = stream_make(flags, priority);
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

/* FAKE_GPU_GONE=N: the GPU leaves the bus before the N-th wait for it, and does not come back. */
static bool is_gone(void)
{
    static _Atomic long waits;
    const char *said = getenv("FAKE_GPU_GONE");
    return said && ++waits >= atol(said);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (is_gone())
        return failed(cudaErrorUnknown);
    pthread_mutex_lock(&fake_lock);
    cudaStream_t s = stream_of(stream);
    bool recording = s->recording;
    s->spoilt |= recording;
    if (!recording)
        executor_until(s, s->given);
    pthread_mutex_unlock(&fake_lock);
    return recording ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    return cudaStreamSynchronize(s);
}

/* ---- memory ---- */
cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *left = *all = (size_t)64 << 30;
    return cudaSuccess;
}

static cudaError_t memory_take(void **p, size_t bytes, bool on_device)
{
    if (spoils())
        return failed(cudaErrorStreamCaptureUnsupported);
    *p = fake_take(bytes, on_device);
    return *p ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}

static cudaError_t memory_give(void *p)
{
    if (!p)
        return cudaSuccess;
    if (spoils())
        return failed(cudaErrorStreamCaptureUnsupported);
    until_all();
    fake_give(p);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    return memory_take(p, bytes, true);
}

cudaError_t cudaFree(void *p)
{
    return memory_give(p);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return memory_take(p, bytes, false);
}

cudaError_t cudaFreeHost(void *p)
{
    return memory_give(p);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    static const enum cudaMemoryType type[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost,
                                               cudaMemoryTypeDevice};
    memset(a, 0, sizeof *a);
    a->type = type[fake_where(p)];
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    void *staged; /* pageable memory is read at the call, as CUDA does */
};

static void copy_run(void *self)
{
    struct copy *c = self;
    memmove(fake_at(c->to, c->bytes), c->staged ? c->staged : fake_at(c->from, c->bytes), c->bytes);
    if (!c->staged)
        fake_copying(c->from, c->to, -1);
    free(c->staged);
}

static void direction(const void *to, const void *from, enum cudaMemcpyKind kind)
{
    bool to_device = fake_where(to) == FAKE_DEVICE, from_device = fake_where(from) == FAKE_DEVICE;
    if ((kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
        (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)))
        fake_misuse("a copy in the other direction");
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    bool waits = fake_where(to) == FAKE_PAGEABLE, staged = fake_where(from) == FAKE_PAGEABLE;
    struct copy c = {.to = to, .from = from, .bytes = bytes};
    direction(to, from, kind);
    if ((waits || staged) && spoils())
        return failed(cudaErrorStreamCaptureUnsupported);
    if (staged)
        c.staged = memcpy(take(bytes + 1), from, bytes);
    else
        fake_copying(from, to, 1);
    fake_enqueue(s, copy_run, &c, sizeof c, 0);
    return waits ? cudaStreamSynchronize(s) : cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e = cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return e == cudaSuccess ? cudaStreamSynchronize(NULL) : e;
}

struct fill {
    void *p;
    int byte;
    size_t bytes;
};

static void fill_run(void *self)
{
    const struct fill *f = self;
    memset(fake_at(f->p, f->bytes), f->byte, f->bytes);
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t s)
{
    fake_enqueue(s, fill_run, &(struct fill){p, byte, bytes}, sizeof(struct fill), 0);
    return cudaSuccess;
}

/* ---- graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    pthread_mutex_lock(&fake_lock);
    s->recording = take(sizeof *s->recording);
    s->recording->users = 1;
    s->spoilt = false;
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    pthread_mutex_lock(&fake_lock);
    *graph = s->recording;
    s->recording = NULL;
    pthread_mutex_unlock(&fake_lock);
    if (!s->spoilt)
        return cudaSuccess;
    cudaGraphDestroy(*graph);
    *graph = NULL;
    return failed(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    graph->users++;
    *run = (cudaGraphExec_t)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t s)
{
    for (struct fake_job *j = ((cudaGraph_t)run)->nodes.first; j; j = j->next)
        fake_enqueue(s, j->run, j->self, j->bytes, 0);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (--graph->users)
        return cudaSuccess;
    for (struct fake_job *j = graph->nodes.first, *next; j; j = next) {
        next = j->next;
        free(j);
    }
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run)
{
    return cudaGraphDestroy((cudaGraph_t)run);
}

/* ---- events ---- */
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = take(sizeof **e);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    return cudaEventCreate(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream)
{
    pthread_mutex_lock(&fake_lock);
    cudaStream_t s = stream_of(stream);
    after_blocking(s);
    *e = (struct CUevent_st){s, s->given, clock_us};
    pthread_mutex_unlock(&fake_lock);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (e->stream)
        until(e->stream, e->number);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    pthread_mutex_lock(&fake_lock);
    bool reached = !e->stream || e->stream->done >= e->number;
    if (!reached)
        executor_poll(e->stream);
    pthread_mutex_unlock(&fake_lock);
    return reached ? cudaSuccess : cudaErrorNotReady;
}

/* After a wait of the legacy stream, or of the device's, the device's work waits too. The program's
 * device may be the CPU (fake_device.c), which no stream delays, so the host waits here. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    bool own = !s || s->flags == cudaStreamDefault;
    if (!own)
        waits(s, e->stream);
    fake_enqueue(s, wait_run, e, sizeof *e, 0);
    for (int tries = 0; own && !getenv("FAKE_HOST_AHEAD") && tries < 600000 &&
                        cudaEventQuery(e) == cudaErrorNotReady;
         tries++)
        usleep(100);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = 1e-3f * (float)(to->us - from->us);
    return cudaSuccess;
}
