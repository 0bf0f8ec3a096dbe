/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU: stream, memory, events, graphs, the first failure. Besides
 * inner/coll/coll_nccl.c the only C file that includes CUDA headers (tests/cuda/headers.sh).
 *
 * copy() to the host returns when the bytes are there; to the device it returns when the source may
 * change, which for pinned memory means that the copy is done. Everything else is asynchronous.
 */
#include "kernels/cuda/clear.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn.h"
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the GPU of `c` current in this thread; a new thread of a site starts with GPU 0. False: the
 * runtime refused. */
static bool set_device(const struct cuda *c)
{
    static _Thread_local int current = -1;
    if (current != c->index)
        current = cudaSetDevice(c->index) == cudaSuccess ? c->index : -1;
    return current == c->index;
}

void cuda_set_device(const struct cuda *c)
{
    (void)set_device(c); /* the next call of the runtime fails and reports it */
}

static cudaStream_t stream(const struct cuda *c)
{
    cuda_set_device(c);
    return (cudaStream_t)c->dev.stream;
}

void cuda_fail(struct cuda *c, enum err e)
{
    if (c->dev.failed)
        return;
    c->dev.failed = e;
    snprintf(c->message, sizeof c->message, "%s", err_message());
}

/* What the runtime says when the hardware failed or left the bus; the rest is a bug of ours. */
static bool is_gone(cudaError_t e)
{
    static const int codes[] = {
        46,  /* cudaErrorDevicesUnavailable */
        100, /* cudaErrorNoDevice */
        214, /* cudaErrorECCUncorrectable */
        220, /* cudaErrorNvlinkUncorrectable */
        714, /* cudaErrorHardwareStackError */
        719, /* cudaErrorLaunchFailure */
        721, /* cudaErrorContained */
        999, /* cudaErrorUnknown */
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if ((int)e == codes[i])
            return true;
    return false;
}

/* Records a failed call of the runtime; true: the call succeeded. */
static bool check(struct cuda *c, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return true;
    cuda_fail(c, err_set(e == cudaErrorMemoryAllocation ? ERR_MEMORY
                         : is_gone(e)                   ? ERR_DEVICE
                                                        : ERR_INTERNAL,
                         "CUDA: %s: %s (%d)", what, cudaGetErrorString(e), (int)e));
    return false;
}

void cuda_check_launch(struct cuda *c, const char *kernel)
{
    c->submitted++;
    check(c, cudaGetLastError(), kernel);
}

double cuda_ms(struct cuda *c, void (*run)(void *), void *self)
{
    cudaEvent_t begin = NULL, end = NULL;
    double best = INFINITY;
    cuda_set_device(c);
    bool fine = check(c, cudaEventCreate(&begin), "an event") &&
                check(c, cudaEventCreate(&end), "an event");
    for (int i = 0; i < 4 && fine; i++) {
        float ms = 0;
        cudaEventRecord(begin, (cudaStream_t)c->dev.stream);
        run(self);
        cudaEventRecord(end, (cudaStream_t)c->dev.stream);
        fine = check(c, cudaEventSynchronize(end), "a kernel") &&
               check(c, cudaEventElapsedTime(&ms, begin, end), "timing");
        if (i > 0 && (double)ms < best) /* the first run creates plans and fills caches */
            best = (double)ms;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

static enum err no_memory(size_t bytes, const char *what)
{
    size_t left = 0, all = 0;
    cudaGetLastError(); /* the refused allocation is not a failure of the device */
    cudaMemGetInfo(&left, &all);
    return err_set(ERR_MEMORY,
                   "no %zu MiB of GPU memory for %s: %zu of %zu MiB are left; use a smaller "
                   "train.micro_batch_tokens",
                   bytes >> 20, what, left >> 20, all >> 20);
}

void *cuda_scratch(struct cuda *c, enum cuda_slot slot, size_t bytes)
{
    if (bytes <= c->memory.scratch_bytes[slot])
        return c->memory.scratch[slot];
    cuda_set_device(c);
    cudaFree(c->memory.scratch[slot]); /* waits for the kernels that use it */
    c->graphs.memory++;
    c->memory.scratch[slot] = NULL;
    c->dev.used_bytes -= c->memory.scratch_bytes[slot];
    c->memory.scratch_bytes[slot] = 0;
    size_t rounded =
        (bytes + 0xfffff) &
        ~(size_t)0xfffff; /* whole MiB: small changes of a shape cause no new allocation */
    if (cudaMalloc(&c->memory.scratch[slot], rounded) != cudaSuccess) {
        c->memory.scratch[slot] = NULL;
        cuda_fail(c, no_memory(rounded, "the ops' scratch"));
        return NULL;
    }
    c->memory.scratch_bytes[slot] = rounded;
    c->dev.used_bytes += rounded;
    return c->memory.scratch[slot];
}

void cuda_scratch_free(struct cuda *c)
{
    for (int i = 0; i < CUDA_SLOTS; i++)
        cudaFree(c->memory.scratch[i]);
    free(c->table.host);
}

/* The host waits until nothing is left to do. */
static void drain(struct cuda *c, const char *what)
{
    c->dev.sync_count++;
    check(c, cudaStreamSynchronize(stream(c)), what);
}

static void graph_destroy(struct cuda_graph *g)
{
    if (g->run)
        cudaGraphExecDestroy((cudaGraphExec_t)g->run);
    g->run = NULL;
}

void cuda_gpu_drain(struct cuda *c)
{
    if (c->dev.stream)
        cudaStreamSynchronize(stream(c));
    for (size_t i = 0; i < c->graphs.count; i++)
        graph_destroy(&c->graphs.list[i]);
    for (unsigned i = 0; i < c->dev.events; i++)
        if (c->events.event[i])
            cudaEventDestroy((cudaEvent_t)c->events.event[i]);
}

void cuda_gpu_close(struct cuda *c)
{
    cuda_scratch_free(c);
    free(c->memory.slabs);
    if (c->dev.stream)
        cudaStreamDestroy(stream(c));
}

/* Room for one more slab in the list. */
static enum err slab_room(struct cuda_memory *s)
{
    if (s->count < s->room)
        return ERR_OK;
    size_t room = s->room ? 2 * s->room : 64;
    struct cuda_slab *list = realloc(s->slabs, room * sizeof *list);
    if (!list)
        return err_set(ERR_MEMORY, "no memory for the list of %zu device allocations", room);
    s->slabs = list;
    s->room = room;
    return ERR_OK;
}

enum err cuda_dev_alloc(struct dev *d, void **p, size_t bytes)
{
    struct cuda *c = cuda_of(d);
    *p = NULL;
    TRY(slab_room(&c->memory));
    cuda_set_device(c);
    if (cudaMalloc(p, bytes) != cudaSuccess) {
        *p = NULL;
        return no_memory(bytes, "a slab");
    }
    check(c, cudaMemsetAsync(*p, 0, bytes, stream(c)), "zeroing memory");
    c->memory.slabs[c->memory.count++] = (struct cuda_slab){*p, bytes};
    d->used_bytes += bytes;
    return ERR_OK;
}

void cuda_dev_free(struct dev *d, void *p)
{
    struct cuda *c = cuda_of(d);
    cuda_set_device(c);
    cudaFree(p);
    c->graphs.memory++;
    for (size_t i = 0; p && i < c->memory.count; i++)
        if (c->memory.slabs[i].at == p) {
            d->used_bytes -= c->memory.slabs[i].bytes;
            c->memory.slabs[i] = c->memory.slabs[--c->memory.count];
            return;
        }
}

enum err cuda_dev_host_alloc(struct dev *d, void **p, size_t bytes)
{
    cuda_set_device(cuda_of(d));
    if (cudaHostAlloc(p, bytes, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError(); /* the refused allocation is not a failure of the device */
        *p = NULL;
        return err_set(ERR_MEMORY, "no %zu MiB of pinned memory on this machine", bytes >> 20);
    }
    clear_bytes(*p, bytes, cuda_of(d)->gpu.clearing);
    return ERR_OK;
}

void cuda_dev_host_free(struct dev *d, void *p)
{
    cuda_set_device(cuda_of(d));
    cudaFreeHost(p);
}

static enum cudaMemoryType where(const void *p)
{
    struct cudaPointerAttributes a;
    return cudaPointerGetAttributes(&a, p) == cudaSuccess ? a.type : cudaMemoryTypeUnregistered;
}

static bool on_host(const void *p)
{
    return where(p) == cudaMemoryTypeUnregistered || where(p) == cudaMemoryTypeHost;
}

void cuda_dev_copy(struct dev *d, void *to, const void *from, size_t bytes)
{
    struct cuda *c = cuda_of(d);
    if (!bytes || !check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream(c)), "copy"))
        return;
    c->submitted++;
    if (on_host(to) || where(from) == cudaMemoryTypeHost)
        drain(c, "copy");
}

/* The host does not wait with pinned memory; with other memory (a bug) the copy is correct and
 * slower. */
void cuda_dev_copy_async(struct dev *d, void *to, const void *from, size_t bytes)
{
    struct cuda *c = cuda_of(d);
    if (bytes)
        check(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream(c)), "copy");
    c->submitted++;
}

void cuda_dev_zero(struct dev *d, void *p, size_t bytes)
{
    if (bytes)
        check(cuda_of(d), cudaMemsetAsync(p, 0, bytes, stream(cuda_of(d))), "zero");
    cuda_of(d)->submitted++;
}

enum err cuda_dev_sync(struct dev *d)
{
    struct cuda *c = cuda_of(d);
    drain(c, "a kernel");
    return d->failed ? err_set(d->failed, "%s", c->message) : ERR_OK;
}

/* ---- events ---- */
void cuda_dev_event_record(struct dev *d, unsigned event)
{
    struct cuda *c = cuda_of(d);
    cudaEvent_t e = c->events.event[event];
    cuda_set_device(c);
    if (!e && check(c, cudaEventCreate(&e), "an event"))
        c->events.event[event] = e;
    if (e)
        check(c, cudaEventRecord(e, stream(c)), "an event");
    c->events.submitted[event] = c->submitted;
}

/* The device is idle after a wait for the last submitted work, until the host submits more. */
enum err cuda_dev_event_wait(struct dev *d, unsigned event)
{
    struct cuda *c = cuda_of(d);
    cudaEvent_t e = c->events.event[event];
    cuda_set_device(c);
    d->sync_count += e && c->events.submitted[event] == c->submitted;
    if (e)
        check(c, cudaEventSynchronize(e), "a kernel");
    return d->failed ? err_set(d->failed, "%s", c->message) : ERR_OK;
}

double cuda_dev_event_seconds(struct dev *d, unsigned from, unsigned to)
{
    struct cuda *c = cuda_of(d);
    float ms = 0;
    if (c->events.event[from] && c->events.event[to])
        check(c,
              cudaEventElapsedTime(&ms, (cudaEvent_t)c->events.event[from],
                                   (cudaEvent_t)c->events.event[to]),
              "time of an event");
    return 1e-3 * (double)ms;
}

/* ---- graphs ----
 *
 * A step of GPT-2 124M launches about 300 kernels of 5 to 500 us; a graph saves the host time of
 * each launch and the gaps after short kernels. The first run of a sequence calls its ops, because
 * it creates the plans of the matrix products and allocates scratch memory, which cannot be
 * captured; the second run is captured. Freed memory invalidates all graphs.
 */
static struct cuda_graph *graph_find(struct cuda *c, const struct dev_graph *r, bool *new)
{
    *new = false;
    for (size_t i = 0; i < c->graphs.count; i++)
        if (c->graphs.list[i].owner == r->owner && c->graphs.list[i].key == r->key)
            return &c->graphs.list[i];
    if (c->graphs.count == CUDA_GRAPHS_MAX)
        return NULL;
    struct cuda_graph *g = &c->graphs.list[c->graphs.count++];
    *g = (struct cuda_graph){.owner = r->owner, .key = r->key, .memory = c->graphs.memory};
    *new = true;
    return g;
}

/* Captures the sequence without running it. A refusal is no failure of the device. */
static void graph_capture(struct cuda *c, struct cuda_graph *g, const struct dev_graph *r)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t run = NULL;
    enum err failed = c->dev.failed;
    uint64_t memory = c->graphs.memory;
    if (cudaStreamBeginCapture(stream(c), cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
        c->graphs.capturing = true;
        r->run(r->self);
        c->graphs.capturing = false;
        if (cudaStreamEndCapture(stream(c), &graph) == cudaSuccess && c->graphs.memory == memory &&
            !c->dev.failed && cudaGraphInstantiate(&run, graph, 0) == cudaSuccess)
            g->run = run;
    }
    if (graph)
        cudaGraphDestroy(graph);
    g->refused = !g->run;
    g->memory = c->graphs.memory;
    if (g->refused) {
        cudaGetLastError();
        c->dev.failed = failed;
    }
}

size_t cuda_dev_memory_free(struct dev *d)
{
    size_t left = 0, all = 0;
    cuda_set_device(cuda_of(d));
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

void cuda_dev_graph_run(struct dev *d, const struct dev_graph *r)
{
    struct cuda *c = cuda_of(d);
    bool new = true;
    struct cuda_graph *g = d->graphs && !d->failed ? graph_find(c, r, &new) : NULL;
    if (g && !new &&
        g->memory != c->graphs.memory) { /* run the ops once more, then capture again */
        graph_destroy(g);
        g->memory = c->graphs.memory;
        new = true;
    }
    if (g && !new && !g->run && !g->refused)
        graph_capture(c, g, r);
    c->submitted++;
    if (g && g->run)
        check(c, cudaGraphLaunch((cudaGraphExec_t)g->run, stream(c)), "a graph");
    else
        r->run(r->self);
}

/* Why there is no GPU `index`, in the operator's words. */
static enum err find_gpu(int index)
{
    int count = 0, driver = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    if (driver == 0)
        return err_set(ERR_UNSUPPORTED,
                       "no NVIDIA driver on this machine (libcuda.so.1 is not there): install the "
                       "driver, or use --device.kind cpu");
    if (e == cudaErrorInsufficientDriver)
        return err_set(ERR_UNSUPPORTED,
                       "the NVIDIA driver is too old: it does CUDA %d.%d, this build is CUDA "
                       "%d.%d; install a newer driver, "
                       "build with a toolkit of CUDA %d, or use --device.kind cpu",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                       CUDART_VERSION % 1000 / 10, driver / 1000);
    if (e != cudaSuccess)
        return err_set(ERR_UNSUPPORTED,
                       "no usable GPU: %s (the driver does CUDA %d.%d): see nvidia-smi and "
                       "CUDA_VISIBLE_DEVICES, or use --device.kind cpu",
                       cudaGetErrorString(e), driver / 1000, driver % 1000 / 10);
    if (index >= count)
        return err_set(ERR_UNSUPPORTED,
                       "GPU %d is not there: this machine shows %d (one rank for each GPU)", index,
                       count);
    return ERR_OK;
}

/* low_priority: a stream that yields to the other device of the GPU and does not take part in the
 * waits of the default stream. A plain stream already has the least priority (0), so the other
 * stream gets a higher one; the stream of the collectives may have a higher one still. */
static cudaError_t stream_make(cudaStream_t *s, bool beside)
{
    int least = 0, most = 0;
    cudaDeviceGetStreamPriorityRange(&least, &most); /* lower numbers go first: 0 to -5 */
    if (beside)
        return cudaStreamCreateWithPriority(s, cudaStreamNonBlocking, least);
    return cudaStreamCreateWithPriority(s, cudaStreamDefault, least > most ? least - 1 : least);
}

static enum err narrow_choose(struct cuda *c, const struct dev_emulation *e,
                              const struct cudaDeviceProp *p)
{
    if (e->accumulator || e->fp8 == DEV_FP8_E5M2)
        return err_set(ERR_UNSUPPORTED, "a GPU has no narrow accumulators and no products of two "
                                        "E5M2; use device.matmul_precision = fp8_hybrid");
    c->gpu.fp8 = e->fp8 == DEV_FP8_HYBRID;
    if (c->gpu.fp8 && p->major * 10 + p->minor < 89)
        return err_set(
            ERR_UNSUPPORTED,
            "%s has compute capability %d.%d; device.matmul_precision = fp8_hybrid needs 8.9; "
            "use device.matmul_precision = model",
            p->name, p->major, p->minor);
    return ERR_OK;
}

enum err cuda_gpu_open(struct cuda *c, const struct dev_options *o)
{
    struct cudaDeviceProp p;
    size_t left = 0, all = 0;
    cudaStream_t s;
    TRY(find_gpu(c->index));
    if (!set_device(c) || cudaGetDeviceProperties(&p, c->index) != cudaSuccess ||
        cudaMemGetInfo(&left, &all) != cudaSuccess ||
        stream_make(&s, o->low_priority) != cudaSuccess)
        return err_set(ERR_UNSUPPORTED, "GPU %d cannot be opened: %s", c->index,
                       cudaGetErrorString(cudaGetLastError()));
    c->dev.stream = s;
    c->gpu.processors = p.multiProcessorCount;
    c->gpu.clearing = clear_threads(o->threads);
    c->gpu.shared_bytes = p.sharedMemPerMultiprocessor;
    c->dev.memory_bytes = left;
    if (p.major < 8)
        return err_set(ERR_UNSUPPORTED, "%s has compute capability %d.%d; bf16 needs 8.0", p.name,
                       p.major, p.minor);
    TRY(narrow_choose(c, &o->emulation, &p));
    snprintf(c->dev.note, sizeof c->dev.note,
             "cuda gpu=%d name=\"%.60s\" sm=%d%d processors=%d type=%s", c->index, p.name, p.major,
             p.minor, c->gpu.processors, c->dev.model_type == DTYPE_F32 ? "f32" : "bf16");
    return ERR_OK;
}

void cuda_describe(cuda_fact *fact, void *self)
{
    int driver = 0, runtime = 0, count = 0;
    char library[40], text[512];
    struct cudnn *dnn;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaError_t e = cudaGetDeviceCount(&count);
    snprintf(text, sizeof text, "%d.%d", runtime / 1000, runtime % 1000 / 10);
    fact(self, "cuda.toolkit", false, text);
    cuda_matmul_version(library, sizeof library);
    fact(self, "cuda.gemm", false, library);
    bool found = cudnn_open(&dnn) == ERR_OK;
    snprintf(text, sizeof text, "%.400s%s", found ? cudnn_version(dnn) : err_message(),
             found ? "" : "; attention is our own");
    fact(self, "cuda.cudnn", !found, text);
    cudnn_close(dnn);
    if (!driver)
        return;
    snprintf(text, sizeof text, "does CUDA %d.%d", driver / 1000, driver % 1000 / 10);
    fact(self, "cuda.driver", false, text);
    snprintf(text, sizeof text, "%d%s%s", e == cudaSuccess ? count : 0,
             e == cudaSuccess ? "" : ": ", e == cudaSuccess ? "" : cudaGetErrorString(e));
    fact(self, "cuda.gpus", false, text);
    for (int i = 0; i < count && e == cudaSuccess; i++) {
        struct cudaDeviceProp p;
        char name[24];
        if (cudaGetDeviceProperties(&p, i) != cudaSuccess)
            continue;
        snprintf(name, sizeof name, "cuda.gpu%d", i);
        snprintf(text, sizeof text, "%s, sm_%d%d, %zu MiB", p.name, p.major, p.minor,
                 p.totalGlobalMem >> 20);
        fact(self, name, false, text);
    }
}
