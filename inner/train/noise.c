#include "inner/train/noise.h"
#include <math.h>
#include <string.h>
#include "kernels/base/gauss.h"

enum { GRID_BITS = 24, SUM_BLOCK = 1024 }; /* values */
#define SUM_MAX 0x1p61                     /* of a rounded value */

struct noise_scale noise_scale_of(double z, double clip, size_t elements)
{
    struct noise_scale n = {.grid = exp2(floor(log2(z * clip)) - GRID_BITS)};
    n.sensitivity = clip * (1 + 0x1p-13) + n.grid * sqrt((double)elements);
    n.sigma = (uint64_t)ceil(z * n.sensitivity / n.grid);
    return n;
}

/* A value that is not finite, or beyond the grid, counts as 0: clipped records cannot make one. */
static int64_t on_grid(float x, double grid)
{
    double v = (double)x / grid;
    return fabs(v) < SUM_MAX ? llrint(v) : 0;
}

static size_t values_of(const struct tensor *x)
{
    return (size_t)(x->shape[0] * x->shape[1]);
}

static struct digest rounded_digest(const float *slab, const struct table *t,
                                    const struct noise_scale *n,
                                    const uint8_t key[CHACHA_KEY_BYTES])
{
    struct digest_stream s;
    int64_t block[SUM_BLOCK];
    digest_open(&s);
    digest_add(&s, key, CHACHA_KEY_BYTES);
    for (size_t i = 0; i < t->count; i++) {
        const float *x = slab + t->tensors[i].offset;
        for (size_t at = 0, count = values_of(&t->tensors[i]); at < count; at += SUM_BLOCK) {
            size_t some = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
            for (size_t k = 0; k < some; k++)
                block[k] = on_grid(x[at + k], n->grid);
            digest_add(&s, block, some * sizeof *block);
        }
    }
    return digest_close(&s);
}

/* One block of a tensor, from a stream of its own: the result is that of any number of threads. */
static void noise_block(float *x, size_t count, const struct noise_scale *n,
                        const uint8_t key[CHACHA_KEY_BYTES], uint64_t number)
{
    struct chacha stream = chacha_stream(key, number);
    for (size_t k = 0; k < count; k++)
        x[k] =
            (float)((double)(on_grid(x[k], n->grid) + gauss_sample(&stream, n->sigma)) * n->grid);
}

void noise_add(float *slab, const struct table *t, const struct noise_scale *n,
               const uint8_t key[CHACHA_KEY_BYTES], int threads)
{
    struct digest own = rounded_digest(slab, t, n, key);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        size_t count = values_of(x), blocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size_t b = 0; b < blocks; b++) {
            size_t at = b * SUM_BLOCK, some = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
            noise_block(slab + x->offset + at, some, n, own.bytes, x->offset + at);
        }
    }
}
