/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/stop_signals.h"
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool hangup_ignored; /* at the start of the process */

/* Before the constructors of shared libraries: UCX, which Open MPI 5 links, takes SIGHUP in one,
 * and what nohup has said of it is lost. A system call, since a sanitizer has not begun by then. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void hangup_look(void)
{
    struct { /* as the kernel has it; the mask is 8 bytes */
        void (*handler)(int);
        unsigned long more[7];
    } old = {SIG_DFL, {0}};
    hangup_ignored = syscall(SYS_rt_sigaction, SIGHUP, (void *)0, &old, (size_t)8) == 0 &&
                     old.handler == SIG_IGN;
}
__attribute__((section(".preinit_array"), used)) static void (*const look)(void) = hangup_look;

void stop_signals(sigset_t *s)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    sigemptyset(s);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(s, numbers[i]);
    if (hangup_ignored)
        signal(SIGHUP, SIG_IGN);
    else
        sigaddset(s, SIGHUP);
}
