/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
/* A stand-in for the CUDA runtime, for machines without a GPU. fake_cuda.c implements the runtime's
 * functions: devices, memory, copies, streams, graphs, events. A program links it with one executor
 * and one kind of device memory. Misuse of CUDA or NCCL ends the process with a sentence.
 *
 * Deferred executor (executor_deferred.c): the work of a stream runs when the host waits for it,
 * which is the latest time that a GPU may choose. It finds a host that reads results, frees memory
 * or changes inputs too early, and streams without order. One thread, so kernels may be fibers.
 *
 * Threaded executor (tests/nccl/executor_threads.c): each stream is a thread that runs its work at
 * once, so a collective can block in one stream on another process. It finds wrong results when the
 * host or a stream does not wait for a collective, and deadlocks; sanitizers see its threads.
 *
 * Environment: FAKE_GPUS: number of devices (default: the executor's). FAKE_HOST_AHEAD: the host
 * does not wait in cudaStreamWaitEvent(NULL, ..). FAKE_NCCL_REPORTS: fake_nccl.c.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

void fake_misuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
int fake_device(void); /* the calling thread's device, -1: none was set */
/* Adds run(copy of *self) to the stream (NULL: the legacy stream). A captured stream records it.
 * Events' times advance by 1 + us microseconds. */
void fake_enqueue(cudaStream_t s, void (*run)(void *self), const void *self, size_t bytes,
                  double us);
/* Before a collective: a stream other than the legacy one must not block on it, must have the
 * highest priority, and must have waited since the last one for an event of the legacy stream, or
 * of a stream that waits for that one; of the legacy stream itself if a collective was put there
 * meanwhile, and then alone, once a device has a stream of its own (fake_device_stream). */
void fake_ordered(cudaStream_t s);
/* A stream as the device's: the first call makes it. */
cudaStream_t fake_device_stream(void);

/* ---- executor. fake_lock is held at each call. ---- */
struct fake_job;
struct fake_queue {
    struct fake_job *first, **last;
};
struct CUstream_st {
    struct CUstream_st *next;
    struct fake_queue waiting;
    uint64_t given, done; /* jobs so far */
    uint64_t joined;      /* of given, those that the legacy stream waits for */
    struct CUgraph_st *recording;
    bool spoilt; /* the recording, by a call that a capture does not allow */
    unsigned flags;
    int priority;
    unsigned waited, used; /* for events of the device's work; of these, by collectives */
    unsigned legacy;       /* collectives of the legacy stream that it has waited for */
};
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;                 /* a job was given or is done */
extern const int executor_gpus;                     /* number of devices */
void executor_start(cudaStream_t s);                /* a new stream */
void executor_until(cudaStream_t s, uint64_t done); /* returns when s->done >= done */
void executor_poll(cudaStream_t s);                 /* the host asked; does not block */
bool fake_step(cudaStream_t s); /* for executors: runs the first job, unlocked; false: none */

/* ---- memory: emulate_memory.cc (guarded, with shadow memory), emulate_module.cc (plain),
 * tests/nccl/memory_tagged.c (device addresses that the host cannot use) ---- */
enum fake_place { FAKE_PAGEABLE, FAKE_PINNED, FAKE_DEVICE };
void *fake_take(size_t bytes, bool device); /* filled with NaN; NULL: no memory */
void fake_give(void *p);
enum fake_place fake_where(const void *p);
void *fake_at(const void *p, size_t bytes); /* address for the CPU; misuse: beyond the allocation */
void fake_open(bool yes); /* the device works; else the host must not touch device memory */
/* more 1: a copy was given, -1: it is done. In between the host must not touch pinned memory. */
void fake_copying(const void *from, const void *to, int more);

#ifdef __cplusplus
}
#endif
#endif
