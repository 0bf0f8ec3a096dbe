/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/signals.h"
#include <stddef.h>

void signals_block(sigset_t *before)
{
#define STAYS(number) sigdelset(&all, number);
    sigset_t all;
    sigfillset(&all);
    SIGNALS_OF_CRASH(STAYS)
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void signals_restore(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
