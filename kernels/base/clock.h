/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLOCK_H
#define CLOCK_H
/* The clocks of this machine, and condition variables that wait by the monotonic one. No other file
 * reads a clock (tests/structure/clocks.sh checks it). Deadlines, reports and log lines
 * use the values; nothing that a run computes depends on them. The outer loop reads its time from
 * the environment (outer/store/env.h), whose real implementation calls these functions. Any thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Since an unknown start, never set back. */
uint64_t clock_mono_ns(void);
uint64_t clock_mono_ms(void);
bool clock_mono_there(void); /* does this system have it? */
double clock_mono_s(void);
double clock_processor_s(void); /* of all threads of this process */
/* Since 1970-01-01 00:00 UTC; an operator may set it. */
uint64_t clock_wall_ms(void);
int64_t clock_wall_s(void);

/* pthread_cond_init(), with deadlines in monotonic time. */
void clock_cond_init(pthread_cond_t *cond);
/* pthread_cond_timedwait() until clock_mono_ms() reaches until_ms; `mutex`: locked. */
int clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ms);

#endif
