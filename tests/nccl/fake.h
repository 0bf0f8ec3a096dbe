#ifndef FAKE_H
#define FAKE_H
/* A stand-in for the CUDA runtime and NCCL behind coll_nccl.c, for machines without a GPU: streams
 * are threads, ranks are processes that meet in shared memory. What NCCL forbids or would hang on
 * ends the process with a sentence (fake_misuse): a call while the last is in progress, after an
 * abort, in another order than the other ranks', on a second stream that has not waited for the
 * data.
 *
 * A killed rank is silent, as over NVLink; with FAKE_NCCL_REPORTS in the environment its peers get
 * ncclRemoteError, as over sockets. FAKE_GPUS: how many this host shows, 8 unless it is set.
 * FAKE_HOST_AHEAD: the host does not wait where a GPU would.
 */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdnoreturn.h>

noreturn void fake_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fake_device(void); /* this thread's, -1: none was set */
void *fake_memory(
    const void *p); /* device memory of cudaMalloc, which the host cannot touch, or any other */
/* run(self) behind all that the stream was given. */
void fake_enqueue(cudaStream_t s, void (*run)(void *self), void *self);
/* A collective is about to go to this stream: unless it is the legacy one, it must have waited for
 * an event of the legacy stream since the last. */
void fake_ordered(cudaStream_t s);

#endif
