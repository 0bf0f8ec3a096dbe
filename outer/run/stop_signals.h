/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STOP_SIGNALS_H
#define STOP_SIGNALS_H
/* The signals that ask `atoll train` and `atoll serve` to store their work and to end with exit
 * code 75: SIGINT, SIGTERM, SIGUSR1, and SIGHUP unless it was ignored at the start, as under nohup.
 * They are for sigwait(): the caller blocks them. Linux keeps a blocked signal even when it is
 * ignored, hence the look at the start. Any thread.
 */
#include <signal.h>

void stop_signals(sigset_t *s);

#endif
