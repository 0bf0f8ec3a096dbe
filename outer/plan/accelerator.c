/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/plan/accelerator.h"
#include <stddef.h>
#include <string.h>

/* X(name, TFLOP/s dense, TB/s, GB, W, link GB/s one way, Hopper or newer, source) */
#define ACCELERATORS(X)                                                                            \
    X(v100, 125, 0.9, 32, 300, 150, false, "NVIDIA V100 SXM2 data sheet, fp16")                    \
    X(t4, 65, 0.32, 16, 70, 15.75, false, "NVIDIA T4 data sheet, fp16, PCIe 3.0 x16")              \
    X(a100, 312, 2.039, 80, 400, 300, false, "NVIDIA A100 SXM4 80 GB data sheet")                  \
    X(l40s, 362, 0.864, 48, 350, 31.5, false, "NVIDIA L40S data sheet, PCIe 4.0 x16")              \
    X(h100, 989, 3.35, 80, 700, 450, true, "NVIDIA H100 SXM5 data sheet")                          \
    X(h200, 989, 4.8, 141, 700, 450, true, "NVIDIA H200 SXM data sheet")                           \
    X(b200, 2250, 7.7, 180, 1000, 900, true, "NVIDIA HGX B200 data sheet")

static const struct accelerator table[] = {
#define X(name, tflops, tb, gb, watts, link, shares, source)                                       \
    {#name, 1e12 * (tflops), 1e12 * (tb), 1e9 * (gb), watts, 1e9 * (link), shares, source},
    ACCELERATORS(X)
#undef X
};

const struct accelerator *accelerator_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const char *accelerator_names(void)
{
#define X(name, ...) ", " #name
    return &(ACCELERATORS(X))[2];
#undef X
}
