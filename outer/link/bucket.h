/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BUCKET_H
#define BUCKET_H
/* Token bucket: `per_s` a second in the long run, and `burst` at once after a pause. Kept as the
 * time at which all that was taken is paid for (the generic cell rate algorithm, ITU-T I.371).
 * Pure: the caller reads the clock and locks. */
#include <stdbool.h>
#include <stdint.h>

struct bucket { /* zeroed: full */
    uint64_t paid_ns;
};

/* Takes one; false: none is left, and nothing is taken. per_s, burst: above 0. */
bool bucket_take(struct bucket *b, uint64_t now_ns, uint32_t per_s, uint32_t burst);

#endif
