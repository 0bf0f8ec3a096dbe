/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels around the attention of cuDNN: its tables of sequences, its layout of the log-sum-exp,
 * and the comparison of its results with ours. All are memory-bound and short compared with
 * attention: for T tokens they access T values for each head.
 */
#include "kernels/cuda/tile.cuh"

enum { THREADS = 256, COMPARE_BLOCKS = 256 };

/* Lengths (batch) and offsets (3, batch + 1) of `sequences` <= batch sequences; the rest are empty
 * ones at the end. `rows`: elements of a token in qkv, in out, in the statistics. */
static __global__ void tables(int32_t *lengths, int32_t *offsets, const int32_t *cu, int sequences,
                              int batch, int4 rows)
{
    int i = (int)thread_index();
    if (i > batch)
        return;
    int begin = cu[i < sequences ? i : sequences], n = batch + 1;
    offsets[i] = begin * rows.x;
    offsets[n + i] = begin * rows.y;
    offsets[2 * n + i] = begin * rows.z;
    if (i < batch)
        lengths[i] = i < sequences ? cu[i + 1] - begin : 0;
}

extern "C" void cuda_attention_tables(struct cuda *c, int32_t *lengths, int32_t *offsets,
                                      const struct dev_attention *a, size_t batch)
{
    int4 rows = make_int4((int)((a->NH + 2 * a->KVH) * a->HD), (int)(a->NH * a->HD), (int)a->NH, 0);
    LAUNCH(c, tables, blocks_for(batch + 1, THREADS), THREADS, 0, lengths, offsets, a->cu_seqlens,
           (int)a->sequences, (int)batch, rows);
}

/* ours (NH, T) and the library's: dense (T / S, NH, S), ragged (S 0) (T, NH). */
static __global__ void statistics(float *to, const float *from, int T, int NH, int S, int ours_to)
{
    size_t i = thread_index();
    if (i >= (size_t)T * NH)
        return;
    size_t t = i % T, head = i / T;
    size_t theirs = S ? (t / S * NH + head) * S + t % S : t * NH + head;
    if (ours_to)
        to[theirs] = from[i];
    else
        to[i] = from[theirs];
}

extern "C" void cuda_attention_statistics(struct cuda *c, float *to, const float *from,
                                          const struct dev_attention *a, size_t S, bool ours_to)
{
    LAUNCH(c, statistics, blocks_for(a->T * a->NH, THREADS), THREADS, 0, to, from, (int)a->T,
           (int)a->NH, (int)S, (int)ours_to);
}

/* partial (blocks, 2): largest |x - y| and largest |x| of columns first .. first + columns of
 * (rows, stride); infinite where a value of either is not finite. */
template <typename T> static __global__ void difference(float *partial, const struct cuda_compare c)
{
    const T *x = (const T *)c.x, *y = (const T *)c.y;
    __shared__ float shared[2][THREADS];
    float most[2] = {0, 0};
    for (size_t i = thread_index(); i < c.rows * c.columns; i += (size_t)gridDim.x * THREADS) {
        size_t at = i / c.columns * c.stride + c.first + i % c.columns;
        float a = widen(x[at]), b = widen(y[at]), d = fabsf(a - b);
        most[0] = d <= 3e38f ? fmaxf(most[0], d) : INFINITY; /* NaN, too */
        most[1] = fmaxf(most[1], fabsf(a));
    }
    shared[0][threadIdx.x] = most[0];
    shared[1][threadIdx.x] = most[1];
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            for (int k = 0; k < 2; k++)
                shared[k][threadIdx.x] =
                    fmaxf(shared[k][threadIdx.x], shared[k][threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        for (int k = 0; k < 2; k++)
            partial[2 * blockIdx.x + k] = shared[k][0];
}

extern "C" int cuda_attention_difference(struct cuda *c, float *partial,
                                         const struct cuda_compare *a)
{
    if (a->type == DTYPE_F32)
        LAUNCH(c, difference<float>, COMPARE_BLOCKS, THREADS, 0, partial, *a);
    else
        LAUNCH(c, difference<uint16_t>, COMPARE_BLOCKS, THREADS, 0, partial, *a);
    return COMPARE_BLOCKS;
}
