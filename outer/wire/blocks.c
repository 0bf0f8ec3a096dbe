/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/wire/blocks.h"
#include <string.h>
#include "kernels/base/err.h"

static uint64_t block_bytes_for(uint64_t total)
{
    uint64_t least = total / BLOCKS_MAX + (total % BLOCKS_MAX != 0);
    return (least / BLOCKS_UNIT + (least % BLOCKS_UNIT != 0)) * BLOCKS_UNIT;
}

void blocks_make(struct blocks *b, uint64_t total)
{
    memset(b, 0, sizeof *b);
    b->total = total;
    if (total)
        b->count = (uint32_t)((total - 1) / block_bytes_for(total) + 1);
}

uint64_t blocks_start(const struct blocks *b, uint32_t k)
{
    return k * block_bytes_for(b->total);
}

uint64_t blocks_bytes(const struct blocks *b, uint32_t k)
{
    uint64_t each = block_bytes_for(b->total), start = k * each;
    return b->total - start < each ? b->total - start : each;
}

uint64_t blocks_sum(const struct blocks *b)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < b->count; k++)
        sum += b->stored[k];
    return sum;
}

uint64_t blocks_first(const struct blocks *b)
{
    for (uint32_t k = 0; k < b->count; k++)
        if (b->stored[k] < blocks_bytes(b, k))
            return blocks_start(b, k) + b->stored[k];
    return b->total;
}

void blocks_fill(struct blocks *b, uint64_t end)
{
    for (uint32_t k = 0; k < b->count && blocks_start(b, k) < end; k++) {
        uint64_t bytes = blocks_bytes(b, k), there = end - blocks_start(b, k);
        there = there < bytes ? there : bytes;
        b->stored[k] = there > b->stored[k] ? there : b->stored[k];
    }
}

bool blocks_valid(const struct blocks *b)
{
    struct blocks same;
    blocks_make(&same, b->total);
    bool valid = b->count == same.count;
    for (uint32_t k = 0; valid && k < b->count; k++)
        valid = b->stored[k] <= blocks_bytes(b, k);
    return valid;
}

uint32_t blocks_at(const struct blocks *b, uint64_t offset)
{
    ASSERT(offset < b->total);
    return (uint32_t)(offset / block_bytes_for(b->total));
}

enum blocks_fit blocks_fits(const struct blocks *b, uint64_t offset, uint64_t n)
{
    bool fresh = true, known = true;
    if (n == 0 || offset > b->total || n > b->total - offset)
        return BLOCKS_GAP;
    for (uint64_t at = offset, left = n; left;) {
        uint32_t k = blocks_at(b, at);
        uint64_t inside = at - blocks_start(b, k), room = blocks_bytes(b, k) - inside;
        uint64_t piece = left < room ? left : room;
        fresh = fresh && b->stored[k] == inside;
        known = known && b->stored[k] >= inside + piece;
        at += piece;
        left -= piece;
    }
    return known ? BLOCKS_KNOWN : fresh ? BLOCKS_NEW : BLOCKS_GAP;
}

void blocks_add(struct blocks *b, uint64_t offset, uint64_t n)
{
    ASSERT(blocks_fits(b, offset, n) == BLOCKS_NEW);
    while (n) {
        uint32_t k = blocks_at(b, offset);
        uint64_t room = blocks_bytes(b, k) - b->stored[k], piece = n < room ? n : room;
        b->stored[k] += piece;
        offset += piece;
        n -= piece;
    }
}
