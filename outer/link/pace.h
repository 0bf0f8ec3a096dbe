/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PACE_H
#define PACE_H
/* Rate limit: a token bucket without burst, kept as the time at which the sent bytes have passed.
 * Pure: the caller reads the clock, waits and locks. */
#include <stddef.h>
#include <stdint.h>

struct pace {
    uint64_t bytes_per_s; /* 0: no limit */
    uint64_t free_ns;     /* time at which all admitted bytes have passed at that rate */
};

/* Admits `bytes` and returns the wait from now_ns until they may be sent, ns. A pause accumulates
 * no credit. */
uint64_t pace_wait_ns(struct pace *p, uint64_t now_ns, size_t bytes);
/* Bytes of one message: an eighth of a second at that rate, from 16 KiB to `most`, so that small
 * calls fit between messages. */
size_t pace_chunk_bytes(const struct pace *p, size_t most);

#endif
