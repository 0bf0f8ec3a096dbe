/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DROPOUT_CUH
#define DROPOUT_CUH
/* dev_dropout inside a kernel: the factors of VEC neighbouring values of a row, the bits that
 * kernels/cpu/rows.c makes. */
#include "kernels/cuda/tile.cuh"
#include "kernels/scalar/dropout.h"

struct drop { /* of one row */
    uint64_t seed, key;
    uint32_t place, below;
    float kept;
};

static __device__ __forceinline__ struct drop drop_of(const struct dev_dropout &a, size_t row)
{
    struct drop d;
    d.seed = a.seed;
    d.place = a.place;
    d.below = dropout_below(a.rate);
    d.key = d.below ? a.keys[row] : 0;
    d.kept = dropout_scale(d.below) * (a.scale ? *a.scale : 1.0f);
    return d;
}

/* v (VEC), from `column` on, a multiple of VEC. */
template <int VEC>
static __device__ __forceinline__ void drop_apply(float *v, const struct drop &d, uint32_t column)
{
    uint32_t words[4] = {0, 0, 0, 0};
    if (d.below)
        philox(d.seed, dropout_stream(d.key), dropout_index(d.key, d.place, column / DROPOUT_EACH),
               words);
#pragma unroll
    for (int k = 0; k < VEC; k++) {
        bool cut = d.below && dropout_bits(words, column % DROPOUT_EACH + k) < d.below;
        v[k] *= cut ? 0.0f : d.kept;
    }
}

#endif
