/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of 4096 values on the CPU (dev.h, exact set): L1 norms and the largest values. Chunks are
 * independent: the bits are the same at every thread count.
 */
#include "kernels/cpu/exact.h"
#include "kernels/scalar/chunks.h"

static size_t chunk_size(size_t at, size_t count)
{
    return count - at < DEV_CHUNK ? count - at : DEV_CHUNK;
}

static double norm_of(const float *z, size_t n)
{
    enum { LANES = 16 };
    double lane[LANES] = {0}, sum = 0;
    for (size_t i = 0; i < n; i += LANES)
#pragma omp simd
        for (size_t j = 0; j < LANES; j++)
            lane[j] += (double)float_of_bits(float_bits(z[i + j]) & 0x7fffffffu);
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

void LEVEL_NAME(cpu_chunk_l1)(struct dev *d, double *norms, const float *z, size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += DEV_CHUNK)
        norms[i / DEV_CHUNK] = norm_of(z + i, chunk_size(i, count));
}

static size_t count_from(const int32_t *size, size_t n, int32_t bound)
{
    int32_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += size[i] >= bound;
    return (size_t)count;
}

/* A bound with at least k at or above it: the smallest of k maxima over disjoint groups. */
static int32_t low_bound(const int32_t *size, size_t n, size_t k)
{
    int32_t most[DEV_CHUNK_MOST] = {0}, least = INT32_MAX;
    for (size_t i = 0; i < n; i += k)
        for (size_t j = 0; j < k; j++)
            most[j] = size[i + j] > most[j] ? size[i + j] : most[j];
    for (size_t j = 0; j < k; j++)
        least = most[j] < least ? most[j] : least;
    return least;
}

/* The k-th largest of n: the largest bound with k at or above it. */
static int32_t kth_largest(const int32_t *size, size_t n, size_t k, int32_t low)
{
    int64_t high = (int64_t)INT32_MAX + 1, at = low; /* count_from(at) >= k > count_from(high) */
    while (high - at > 1) {
        int64_t middle = (at + high) / 2;
        if (count_from(size, n, (int32_t)middle) >= k)
            at = middle;
        else
            high = middle;
    }
    return (int32_t)at;
}

/* Indices of the k largest, ascending. */
static void largest(uint16_t *index, const float *z, size_t n, size_t k)
{
    int32_t size[DEV_CHUNK], some[DEV_CHUNK];
    uint16_t where[DEV_CHUNK];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        size[i] = chunk_magnitude(z[i]);
    int32_t low = low_bound(size, n, k);
    for (size_t i = 0; i < n; i++) { /* without a branch: one in ten is kept */
        where[kept] = (uint16_t)i;
        some[kept] = size[i];
        kept += size[i] >= low;
    }
    int32_t bound = kth_largest(some, kept, k, low);
    size_t equal = k - count_from(some, kept, bound + (bound < INT32_MAX)), got = 0;
    for (size_t i = 0; i < kept && got < k; i++) {
        bool take = some[i] > bound || (some[i] == bound && equal);
        equal -= take && some[i] == bound;
        index[got] = where[i];
        got += take;
    }
    ASSERT(got == k);
}

/* residual: z on entry, z less the decoded values on return. */
static void chunk_encode(struct dev_chunk *c, float *residual, size_t n)
{
    float value[DEV_CHUNK_MOST];
    size_t k = n / DEV_CHUNK_SHARE;
    largest(c->value, residual, n, k);
    for (size_t i = 0; i < k; i++) {
        value[i] = residual[c->value[i]];
        if (chunk_magnitude(value[i]) >= (int32_t)CHUNK_INFINITE) { /* larger than the rest */
            c->value[0] = c->value[i];
            c->upper = DEV_CHUNK_BAD;
            return;
        }
    }
    struct chunk_levels l = chunk_levels(&(struct chunk_sizes){value, 1, k});
    c->upper = l.upper;
    c->less = l.less;
    for (size_t i = 0; l.upper && i < k; i++) {
        uint16_t two = chunk_two(value[i], &l);
        residual[c->value[i]] -= chunk_value(two, l.upper, l.less);
        c->value[i] = (uint16_t)(c->value[i] + two * DEV_CHUNK);
    }
}

void LEVEL_NAME(cpu_chunk_topk)(struct dev *d, struct dev_chunk *made, float *residual,
                                const float *z, size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += DEV_CHUNK) {
        size_t n = chunk_size(i, count);
        if (residual != z)
            memcpy(residual + i, z + i, n * sizeof *z);
        chunk_encode(&made[i / DEV_CHUNK], residual + i, n);
    }
}

void LEVEL_NAME(cpu_chunk_add)(struct dev *d, float *z, const struct dev_chunk *chunks,
                               size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += DEV_CHUNK) {
        const struct dev_chunk *c = &chunks[i / DEV_CHUNK];
        size_t k = chunk_size(i, count) / DEV_CHUNK_SHARE;
        for (size_t j = 0; c->upper && j < k; j++)
            z[i + c->value[j] % DEV_CHUNK] +=
                chunk_value(c->value[j] / DEV_CHUNK, c->upper, c->less);
    }
}
