/* The CUDA runtime that dev_cuda.c and the launches of the .cu files call when they are emulated.
 * What a stream is given waits until the host waits for it, the latest that a GPU might do it: a
 * host that frees or changes too early what the device still needs, reads too early what it writes,
 * or forgets that two streams are in no order, gets wrong bytes here. Pageable memory is read at
 * the call, as CUDA does. Between its calls device memory is closed to the host, and so is pinned
 * memory that a copy is under way for. A stream that is captured records; what cannot be recorded
 * spoils the recording, as on a GPU.
 */
#include "tests/cuda/include/cuda_runtime_api.h"
#include <deque>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda/tile.cuh"
#include "tests/cuda/emulate_memory.h"
extern "C" {
#include "tests/cuda/fake_cudnn.h"
}

typedef std::function<void()> work;
struct queued {
    uint64_t number;
    work run;
};
struct CUgraph_st {
    std::vector<work> nodes;
};
struct CUgraphExec_st {
    std::vector<work> nodes;
};
struct CUstream_st {
    std::deque<queued> waiting;
    uint64_t last; /* number of the last thing given */
    CUgraph_st *recording;
    bool spoilt;
};
struct CUevent_st {
    CUstream_st *stream; /* NULL: never recorded */
    uint64_t number;
    double us; /* of the clock */
};

static std::vector<CUstream_st *> streams;
static uint64_t given;
static double clock_us; /* an operation is a microsecond; fake_cudnn.c has its own time */
static cudaError_t last_error;

static cudaError_t failed(cudaError_t e)
{
    last_error = e;
    return e;
}

void emulate_later(void *stream, const std::function<void()> &run)
{
    CUstream_st *s = (CUstream_st *)stream;
    clock_us += 1;
    if (!s) {
        emulate_open();
        run();
        emulate_close();
    } else if (s->recording) {
        s->recording->nodes.push_back(run);
    } else {
        s->waiting.push_back({s->last = ++given, run});
    }
}

/* All up to this number. */
static void run_until(CUstream_st *s, uint64_t number)
{
    if (s->waiting.empty() || s->waiting.front().number > number)
        return;
    emulate_open();
    while (!s->waiting.empty() && s->waiting.front().number <= number) {
        work run = s->waiting.front().run;
        s->waiting.pop_front();
        run();
    }
    emulate_close();
}

static void run_all(void)
{
    for (CUstream_st *s : streams)
        run_until(s, given);
}

/* A call that a recording does not allow: the recording is spoilt and the call fails. */
static bool recording(void)
{
    bool any = false;
    for (CUstream_st *s : streams)
        if (s->recording)
            s->spoilt = any = true;
    return any;
}

extern "C" {
const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess ? "no error" : "an emulated failure";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : failed(cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated");
    p->totalGlobalMem = (size_t)64 << 30;
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

/* ---- memory ---- */
cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *left = *all = (size_t)64 << 30;
    return cudaSuccess;
}

/* Filled with NaN: only what is written is defined. */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    if (recording())
        return failed(cudaErrorStreamCaptureUnsupported);
    *p = emulate_take(bytes, true);
    emulate_open();
    memset(*p, 0xff, bytes);
    emulate_close();
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p && recording())
        return failed(cudaErrorStreamCaptureUnsupported);
    run_all();
    emulate_give(p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    if (recording())
        return failed(cudaErrorStreamCaptureUnsupported);
    *p = emulate_take(bytes, false);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    run_all();
    emulate_give(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    static const enum cudaMemoryType type[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost,
                                               cudaMemoryTypeDevice};
    *a = {};
    a->type = type[emulate_where(p)];
    return cudaSuccess;
}

static void move(void *to, const void *from, size_t bytes)
{
    emulate_within(to, bytes);
    emulate_within(from, bytes);
    memmove(to, from, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t s)
{
    bool waits = emulate_where(to) == EMULATE_PAGEABLE;
    if ((waits || emulate_where(from) == EMULATE_PAGEABLE) && recording())
        return failed(cudaErrorStreamCaptureUnsupported);
    if (emulate_where(from) == EMULATE_PAGEABLE) { /* staged: the source may change at once */
        std::vector<char> held((const char *)from, (const char *)from + bytes);
        emulate_later(s, [=] { move(to, held.data(), bytes); });
    } else {
        emulate_later(s, [=] {
            move(to, from, bytes);
            emulate_arrived(from, to);
        });
        emulate_under_way(from, to);
    }
    if (waits)
        run_until(s, given);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t s)
{
    emulate_later(s, [=] {
        emulate_within(p, bytes);
        memset(p, byte, bytes);
    });
    return cudaSuccess;
}

/* ---- streams ---- */
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *most)
{
    *least = 0;
    *most = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int priority)
{
    if (priority > 0 || priority < -5)
        return failed(cudaErrorInvalidValue);
    *s = new CUstream_st();
    streams.push_back(*s);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    run_until(s, given);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == s)
            streams.erase(streams.begin() + (long)i);
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (s->recording) {
        s->spoilt = true;
        return failed(cudaErrorStreamCaptureUnsupported);
    }
    run_until(s, given);
    return cudaSuccess;
}

/* ---- graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    s->recording = new CUgraph_st();
    s->spoilt = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    *graph = s->spoilt ? NULL : s->recording;
    if (s->spoilt)
        delete s->recording;
    s->recording = NULL;
    return s->spoilt ? failed(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *run, cudaGraph_t graph, unsigned long long)
{
    *run = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t run, cudaStream_t s)
{
    for (const work &node : run->nodes)
        emulate_later(s, node);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t run)
{
    delete run;
    return cudaSuccess;
}

/* ---- events ---- */
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    return cudaEventCreate(e);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    *e = {s, s->last, clock_us};
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    if (e->stream)
        run_until(e->stream, e->number);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    if (!e->stream || e->stream->waiting.empty() || e->stream->waiting.front().number > e->number)
        return cudaSuccess;
    run_until(e->stream, e->stream->waiting.front().number);
    return cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = 1e-3f * (float)(to->us - from->us);
    return cudaSuccess;
}

/* ---- the device under test ---- */
void *cuda_scratch_unchecked(struct cuda *c, enum cuda_slot slot, size_t bytes); /* dev_cuda.c's */

/* Whoever asks again has lost what was there, and may touch no more than he asked for. */
void *cuda_scratch(struct cuda *c, enum cuda_slot slot, size_t bytes)
{
    void *p = cuda_scratch_unchecked(c, slot, bytes);
    if (p)
        emulate_later(c->stream, [=] {
            emulate_limit(p, bytes);
            if (slot != CUDA_SLOT_TABLE)
                memset(p, 0xff, bytes);
        });
    return p;
}

void emulate_call(void *stream, void (*run)(const void *), const void *self, size_t bytes,
                  double us)
{
    std::vector<char> held((const char *)self, (const char *)self + bytes);
    clock_us += us;
    emulate_later(stream, [=] { run(held.data()); });
}
}
