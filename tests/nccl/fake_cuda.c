/* The CUDA runtime: each stream is a thread with a queue. */
#include "tests/nccl/fake.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE_MAX = 4096, GPUS = 8 };
/* Set in the addresses of device memory: such an address is nowhere. */
static const uintptr_t device_bit = (uintptr_t)1 << 62;

struct job {
    void (*run)(void *self);
    void *self;
};
struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job queue[QUEUE_MAX]; /* a ring */
    size_t taken, given;
    bool ends;
    unsigned waited, used; /* for events of the legacy stream; of these, by collectives */
};
struct CUevent_st {
    _Atomic unsigned recorded, reached;
    bool legacy; /* last recorded there */
};
struct wait {
    struct CUevent_st *event;
    unsigned until;
};
static _Thread_local int device = -1;

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

int fake_device(void)
{
    return device;
}

void *fake_memory(const void *p)
{
    return (void *)((uintptr_t)p & ~device_bit);
}

/* ---- streams ------------------------------------------------------------------------------------
 */
static void *work(void *self)
{
    struct CUstream_st *s = self;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->taken == s->given && !s->ends)
            pthread_cond_wait(&s->changed, &s->lock);
        if (s->taken == s->given)
            break;
        struct job j = s->queue[s->taken % QUEUE_MAX];
        pthread_mutex_unlock(&s->lock);
        j.run(j.self);
        pthread_mutex_lock(&s->lock);
        s->taken++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static struct CUstream_st *stream_make(void)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s)
        fake_misuse("no memory for a stream");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s))
        fake_misuse("no thread for a stream");
    return s;
}

static struct CUstream_st *legacy;
static void legacy_make(void)
{
    legacy = stream_make();
}

static struct CUstream_st *stream_of(cudaStream_t s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, legacy_make);
    return s ? s : legacy;
}

void fake_enqueue(cudaStream_t stream, void (*run)(void *), void *self)
{
    struct CUstream_st *s = stream_of(stream);
    pthread_mutex_lock(&s->lock);
    if (s->given - s->taken == QUEUE_MAX)
        fake_misuse("more than %d jobs on a stream", QUEUE_MAX);
    s->queue[s->given++ % QUEUE_MAX] = (struct job){run, self};
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void fake_ordered(cudaStream_t s)
{
    if (!s)
        return;
    if (s->waited == s->used)
        fake_misuse("a collective on a second stream that has not waited for its data");
    s->used = s->waited;
}

static void drain(struct CUstream_st *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->taken < s->given)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *last, int *first)
{
    *last = 0;
    *first = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    if (flags != cudaStreamNonBlocking || priority != -5)
        fake_misuse(
            "a stream for sums that waits for the legacy one, or stands behind the device's");
    *s = stream_make();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free(s);
    return cudaSuccess;
}

/* ---- events -------------------------------------------------------------------------------------
 */
static void reach(void *self)
{
    struct wait *w = self;
    w->event->reached = w->until;
    free(w);
}

static void wait_until(void *self)
{
    struct wait *w = self;
    while (w->event->reached < w->until)
        usleep(20);
    free(w);
}

static struct wait *wait_make(struct CUevent_st *e)
{
    struct wait *w = malloc(sizeof *w);
    if (!w)
        fake_misuse("no memory for an event");
    *w = (struct wait){e, e->recorded};
    return w;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof **e);
    return *e ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    e->recorded++;
    e->legacy = !s;
    fake_enqueue(s, reach, wait_make(e));
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return e->reached < e->recorded ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    unsigned until = e->recorded;
    (void)flags;
    if (s)
        s->waited += e->legacy;
    fake_enqueue(s, wait_until, wait_make(e));
    /* All that the device gets next waits for the legacy stream; fake_device's ops cannot, so the
     * host does. */
    for (int tries = 0; !s && e->reached < until && !getenv("FAKE_HOST_AHEAD") && tries < 600000;
         tries++)
        usleep(100);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (e->reached == e->recorded) /* else the stream still has it, which CUDA allows */
        free(e);
    return cudaSuccess;
}

/* ---- devices and memory -------------------------------------------------------------------------
 */
cudaError_t cudaGetDeviceCount(int *count)
{
    const char *said = getenv("FAKE_GPUS");
    *count = said ? atoi(said) : GPUS;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int d)
{
    int count;
    cudaGetDeviceCount(&count);
    if (d < 0 || d >= count)
        return cudaErrorInvalidDevice;
    device = d;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    void *at = malloc(bytes);
    *p = at ? (void *)((uintptr_t)at | device_bit) : NULL;
    return at ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    if (p && !((uintptr_t)p & device_bit))
        fake_misuse("cudaFree of host memory");
    free(fake_memory(p));
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const void *device_side = kind == cudaMemcpyHostToDevice ? to : from;
    const void *host_side = kind == cudaMemcpyHostToDevice ? from : to;
    if (!((uintptr_t)device_side & device_bit) || ((uintptr_t)host_side & device_bit))
        fake_misuse("cudaMemcpy in the other direction");
    drain(stream_of(NULL));
    memcpy(fake_memory(to), fake_memory(from), bytes);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess              ? "no error"
           : e == cudaErrorInvalidDevice ? "invalid device"
                                         : "an error";
}
