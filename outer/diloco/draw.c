/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/diloco/draw.h"
#include <math.h>
#include "kernels/base/rng.h"

static size_t blocks_drawn(const struct draw *d, size_t blocks)
{
    size_t n = (size_t)ceil(d->share * (double)blocks);
    return n < 1 ? 1 : n < blocks ? n : blocks;
}

size_t draw_values(const struct draw *d, size_t elements)
{
    return blocks_drawn(d, elements / DEV_BLOCK) * DEV_BLOCK;
}

size_t draw_ranges_max(size_t elements)
{
    return elements / DEV_BLOCK / 2 + 1;
}

/* Selection sampling (Fan, Muller & Rezucha 1962): a block is drawn with the probability (blocks
 * still to draw) / (blocks still to come). */
size_t draw_ranges(const struct draw *d, uint64_t round, size_t elements, bool drawn,
                   struct dev_range *out)
{
    size_t blocks = elements / DEV_BLOCK, wanted = blocks_drawn(d, blocks), n = 0;
    bool before = false;
    for (size_t b = 0; b < blocks; b++) {
        bool in = rng_below(d->seed, RNG_DRAW + (round << 32), b, blocks - b) < wanted;
        wanted -= in;
        if (in == drawn && before)
            out[n - 1].count += DEV_BLOCK;
        else if (in == drawn)
            out[n++] = (struct dev_range){b * DEV_BLOCK, DEV_BLOCK};
        before = in == drawn;
    }
    return n;
}
