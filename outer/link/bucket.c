/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/link/bucket.h"

bool bucket_take(struct bucket *b, uint64_t now_ns, uint32_t per_s, uint32_t burst)
{
    const uint64_t each_ns = 1000000000u / per_s;
    uint64_t start_ns = b->paid_ns > now_ns ? b->paid_ns : now_ns;
    if (start_ns - now_ns + each_ns > each_ns * burst)
        return false;
    b->paid_ns = start_ns + each_ns;
    return true;
}
