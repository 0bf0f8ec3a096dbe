/* SPDX-License-Identifier: Apache-2.0 */
/* The threaded executor: each stream is a thread that runs its work as soon as it is given. */
#include "tests/cuda/fake_cuda.h"

const int executor_gpus = 8;

static void *work(void *self)
{
    pthread_mutex_lock(&fake_lock);
    for (;;)
        if (!fake_step(self))
            pthread_cond_wait(&fake_changed, &fake_lock);
    return NULL;
}

void executor_start(cudaStream_t s)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, s) || pthread_detach(thread))
        fake_misuse("no thread for a stream");
}

void executor_until(cudaStream_t s, uint64_t done)
{
    while (s->done < done)
        pthread_cond_wait(&fake_changed, &fake_lock);
}

void executor_poll(cudaStream_t s)
{
    (void)s;
}
