/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients are summed as bf16 copies: half the bytes cross the network. */
#include "inner/coll/reduce.h"

static size_t bytes(size_t elements)
{
    return elements * dtype_size(DTYPE_BF16);
}

/* round_bf16 leaves the rounding error in the gradients; unpack overwrites it. */
static void *pack(struct grad_reduce *r, size_t from, size_t to)
{
    uint16_t *copy = r->memory;
    float *x = r->grads + from;
    r->dev->ops->round_bf16(r->dev, copy + from, x, x, to - from);
    return copy + from;
}

static void unpack(struct grad_reduce *r, size_t from, size_t to)
{
    const uint16_t *copy = r->memory;
    r->dev->ops->bf16_to_f32(r->dev, r->grads + from, copy + from, to - from);
}

const struct reducer reducer_bf16 = {
    .name = "bf16", .type = DTYPE_BF16, .bytes = bytes, .pack = pack, .unpack = unpack};
