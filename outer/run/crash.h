/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CRASH_H
#define CRASH_H
/* A crash tells where. After crash_report() a process that gets SIGSEGV, SIGBUS, SIGILL, SIGFPE or
 * SIGABRT writes the signal, the version and the addresses of its stack to standard error, then
 * ends by that signal: exit status and core file are the same as before. Nothing is allocated
 * then, since the heap may be what is broken. Sanitizers report crashes themselves: nothing is
 * installed there.
 */
void crash_report(void);

#endif
