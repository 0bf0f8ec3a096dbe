/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/pace.h"

enum { LEAST_BYTES = 16384 };

uint64_t pace_wait_ns(struct pace *p, uint64_t now_ns, size_t bytes)
{
    if (!p->bytes_per_s)
        return 0;
    uint64_t start_ns = p->free_ns > now_ns ? p->free_ns : now_ns;
    p->free_ns = start_ns + (uint64_t)((double)bytes * 1e9 / (double)p->bytes_per_s);
    return start_ns - now_ns;
}

size_t pace_chunk_bytes(const struct pace *p, size_t most)
{
    uint64_t bytes = p->bytes_per_s / 8;
    if (!p->bytes_per_s || bytes > most)
        return most;
    return bytes < LEAST_BYTES ? LEAST_BYTES : (size_t)bytes;
}
