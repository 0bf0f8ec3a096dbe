/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/clock.h"
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t clock_mono_ms(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

bool clock_mono_there(void)
{
    struct timespec t;
    return clock_getres(CLOCK_MONOTONIC, &t) == 0 && clock_gettime(CLOCK_MONOTONIC, &t) == 0;
}

double clock_processor_s(void)
{
    return (double)clock_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9;
}

double clock_mono_s(void)
{
    return (double)clock_ns(CLOCK_MONOTONIC) * 1e-9;
}

uint64_t clock_wall_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000;
}

int64_t clock_wall_s(void)
{
    return (int64_t)(clock_ns(CLOCK_REALTIME) / 1000000000);
}

void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ms)
{
    struct timespec t = {(time_t)(until_ms / 1000), (long)(until_ms % 1000) * 1000000};
    return pthread_cond_timedwait(cond, mutex, &t);
}
