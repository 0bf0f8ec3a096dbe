/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/noise.h"
#include <math.h>
#include <string.h>
#include "kernels/base/gauss.h"
#include "kernels/scalar/banded.h"

enum { GRID_BITS = 24, SUM_BLOCK = 1024 }; /* values */
#define SUM_MAX 0x1p61                     /* of a rounded value */

struct noise_scale noise_scale_of(double z, double clip, size_t elements, uint64_t bands)
{
    struct noise_scale n = {.grid = exp2(floor(log2(z * clip)) - GRID_BITS)};
    double rounding = n.grid * sqrt((double)elements);
    n.sensitivity = clip * (1 + 0x1p-13) + rounding;
    if (bands > 1)
        n.sensitivity = banded_column((int64_t)bands) * n.sensitivity +
                        rounding * sqrt((double)bands) * (1 + 0x1p-8);
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

/* ---- correlated noise ---- */
size_t noise_chain_bytes(size_t elements, uint64_t bands)
{
    return (bands - 1) * elements * sizeof(int32_t);
}

enum err noise_chain_open(struct noise_chain *x, const struct table *t, uint64_t bands,
                          struct arena *perm)
{
    *x = (struct noise_chain){.table = t, .bands = bands};
    TRY_ALLOC(x->c = arena_array(perm, bands, sizeof *x->c));
    TRY_ALLOC(x->past = arena_array(perm, (bands - 1) * t->elements, sizeof *x->past));
    banded_coefficients(x->c, (int64_t)bands);
    return ERR_OK;
}

void noise_chain_begin(struct noise_chain *x, uint64_t number)
{
    x->begin = x->next = number;
}

static int32_t *chain_past(const struct noise_chain *x, uint64_t number)
{
    return x->past + number % (x->bands - 1) * x->table->elements;
}

/* e has a standard deviation below 1.2 sigma, and sigma is below 2^27: it passes 2^31 with a
 * probability below 2^-130. */
static int64_t cut(int64_t e)
{
    return e < INT32_MIN ? INT32_MIN : e > INT32_MAX ? INT32_MAX : e;
}

/* One block of a tensor, from a stream of its own. */
static void chain_block(const struct noise_chain *x, float *slab, size_t at, size_t count,
                        const struct noise_scale *n, const uint8_t key[CHACHA_KEY_BYTES])
{
    struct chacha stream = chacha_stream(key, at);
    double before[SUM_BLOCK] = {0};
    uint64_t steps = x->next - x->begin;
    for (size_t i = 1; i < x->bands && i <= steps; i++) {
        const int32_t *past = chain_past(x, x->next - i) + at;
        for (size_t k = 0; k < count; k++)
            before[k] += x->c[i] * (double)past[k];
    }
    int32_t *own = chain_past(x, x->next) + at;
    for (size_t k = 0; k < count; k++) {
        int64_t e = cut(gauss_sample(&stream, n->sigma) - llrint(before[k]));
        own[k] = (int32_t)e;
        if (slab)
            slab[at + k] = (float)((double)(on_grid(slab[at + k], n->grid) + e) * n->grid);
    }
}

void noise_chain_step(struct noise_chain *x, float *slab, const struct noise_scale *n,
                      const uint8_t key[CHACHA_KEY_BYTES], int threads)
{
    for (size_t i = 0; i < x->table->count; i++) {
        const struct tensor *tensor = &x->table->tensors[i];
        size_t count = values_of(tensor), blocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (size_t b = 0; b < blocks; b++) {
            size_t at = b * SUM_BLOCK, some = count - at < SUM_BLOCK ? count - at : SUM_BLOCK;
            chain_block(x, slab, tensor->offset + at, some, n, key);
        }
    }
    x->next++;
}
