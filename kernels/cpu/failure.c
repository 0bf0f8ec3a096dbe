/* SPDX-License-Identifier: Apache-2.0 */
/* The first failure of a device, which dev_sync returns. */
#include "kernels/cpu/cpu.h"
#include <stdio.h>

void cpu_fail(struct dev *d, enum err e)
{
    if (d->failed)
        return;
    d->failed = e;
    snprintf(cpu_of(d)->message, sizeof cpu_of(d)->message, "%s", err_message());
}
