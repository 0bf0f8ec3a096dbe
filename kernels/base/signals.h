/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIGNALS_H
#define SIGNALS_H
/* Threads that are created between signals_block() and signals_restore() get no signals: the
 * program's own threads handle them. The signals of a crash stay, else the kernel would end the
 * process without its report (outer/run/crash.h). Of the calling thread; any thread.
 */
#include <signal.h>

#define SIGNALS_OF_CRASH(X) X(SIGSEGV) X(SIGBUS) X(SIGILL) X(SIGFPE) X(SIGABRT)

void signals_block(sigset_t *before);
void signals_restore(const sigset_t *before);

#endif
