#ifndef PACE_H
#define PACE_H
/* How fast bytes may go: a token bucket as a clock that runs ahead. Pure; the caller knows the
 * time, waits, and locks. */
#include <stddef.h>
#include <stdint.h>

struct pace {
    uint64_t bytes_per_s; /* 0: as fast as it goes */
    uint64_t free_ns;     /* when all that was let through will have gone at that rate */
};

/* How long from now_ns until these bytes may go; they are booked. After a pause nothing is saved
 * up. */
uint64_t pace_wait_ns(struct pace *p, uint64_t now_ns, size_t bytes);
/* Bytes of one message: an eighth of a second of the rate, 16 KiB to `most`, so that small calls
 * fit in between. */
size_t pace_chunk_bytes(const struct pace *p, size_t most);

#endif
