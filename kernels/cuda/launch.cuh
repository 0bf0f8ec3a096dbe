/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LAUNCH_CUH
#define LAUNCH_CUH
/* How ops over rows choose a kernel: by the model's type and by how many values a thread moves at a
 * time, 16 bytes (VEC 4 or 8) where sizes and pointers allow, else one value (VEC 1). */
#include "kernels/cuda/tile.cuh"

enum { THREADS = 256 }; /* of a block, unless an op says otherwise */

/* run(T, VEC): the kernel for the model's type, 16 bytes at a time if `wide`. */
#define BY_TYPE(c, wide, run)                                                                      \
    do {                                                                                           \
        bool f32_ = (c)->dev.model_type == DTYPE_F32;                                              \
        if (f32_ && (wide))                                                                        \
            run(float, 4);                                                                         \
        else if (f32_)                                                                             \
            run(float, 1);                                                                         \
        else if (wide)                                                                             \
            run(uint16_t, 8);                                                                      \
        else                                                                                       \
            run(uint16_t, 1);                                                                      \
    } while (0)

/* Values of the model's type in 16 bytes. */
static inline size_t wide_count(const struct cuda *c)
{
    return c->dev.model_type == DTYPE_F32 ? 4 : 8;
}

/* Threads of a block for `work` items: whole warps, at most THREADS. */
static inline unsigned threads_for(size_t work)
{
    size_t threads = (work + WARP - 1) / WARP * WARP;
    return threads < THREADS ? (unsigned)threads : (unsigned)THREADS;
}

#endif
