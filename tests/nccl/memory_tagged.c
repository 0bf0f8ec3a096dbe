/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory with a bit set in its addresses, which makes them invalid for the CPU. */
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake_cuda.h"

static const uintptr_t device_bit = (uintptr_t)1 << 62;

void *fake_take(size_t bytes, bool device)
{
    void *p = malloc(bytes);
    if (!p)
        return NULL;
    memset(p, 0xff, bytes);
    return device ? (void *)((uintptr_t)p | device_bit) : p;
}

void fake_give(void *p)
{
    if (p && fake_where(p) != FAKE_DEVICE)
        fake_misuse("cudaFree of host memory");
    free(fake_at(p, 0));
}

enum fake_place fake_where(const void *p)
{
    return (uintptr_t)p & device_bit ? FAKE_DEVICE : FAKE_PAGEABLE;
}

void *fake_at(const void *p, size_t bytes)
{
    (void)bytes;
    return (void *)((uintptr_t)p & ~device_bit);
}

void fake_open(bool yes)
{
    (void)yes;
}

void fake_copying(const void *from, const void *to, int more)
{
    (void)from, (void)to, (void)more;
}
