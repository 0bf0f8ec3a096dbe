/* SPDX-License-Identifier: Apache-2.0 */
/* The scratch memory of the ops. */
#include "kernels/cpu/cpu.h"
#include <stdlib.h>

void *cpu_scratch(struct cpu *c, int slot, size_t bytes)
{
    if (bytes <= c->scratch_bytes[slot])
        return c->scratch[slot];
    free(c->scratch[slot]);
    c->scratch_bytes[slot] = (bytes + 4095) / 4096 * 4096;
    c->scratch[slot] = aligned_alloc(4096, c->scratch_bytes[slot]);
    if (!c->scratch[slot]) {
        c->scratch_bytes[slot] = 0;
        cpu_fail(&c->dev, err_set(ERR_MEMORY,
                                  "no %zu MiB for the scratch memory of the CPU ops; use a "
                                  "smaller batch or fewer threads",
                                  bytes >> 20));
    }
    return c->scratch[slot];
}
