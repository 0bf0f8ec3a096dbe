/* SPDX-License-Identifier: Apache-2.0 */
/* Signs with a scale on the CPU (dev.h, exact set). A range's squares are added in blocks of 256,
 * blocks in runs of DEV_RUN, runs in order: the bits are the same at every thread count.
 */
#include "kernels/cpu/exact.h"
#include <stdbool.h>
#include <string.h>
#include "kernels/scalar/signs.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* z of the block of values i .. i + n, zeros after it and where it is masked. */
static void read_block(float z[DEV_BLOCK], const struct dev_sign_encode *a, size_t i, size_t n)
{
    const float *x = a->x + i, *error = a->error ? a->error + i : NULL,
                *mask = a->mask ? a->mask + i : NULL;
    for (size_t k = n; k < DEV_BLOCK; k++)
        z[k] = 0;
    if (error)
        for (size_t k = 0; k < n; k++)
            z[k] = x[k] + error[k];
    else
        memcpy(z, x, n * sizeof *z);
    for (size_t k = 0; mask && k < n; k++)
        z[k] = mask[k] != 0 ? z[k] : 0.0f;
}

/* How many of the values i .. i + n are not masked. */
static unsigned count_block(const struct dev_sign_encode *a, size_t i, size_t n)
{
    unsigned used = a->mask ? 0 : (unsigned)n;
    for (size_t k = 0; a->mask && k < n; k++)
        used += a->mask[i + k] != 0;
    return used;
}

static struct dev_sign_sum run_sum(const struct dev_sign_encode *a, size_t begin, size_t end)
{
    struct dev_sign_sum sum = {0, 0};
    float z[DEV_BLOCK];
    for (size_t i = begin; i < end; i += DEV_BLOCK) {
        size_t n = smaller(end - i, DEV_BLOCK);
        read_block(z, a, i, n);
        sum.count += count_block(a, i, n);
        sum.squares += exact_block_squares(z, NULL);
    }
    return sum;
}

/* Eight bytes, each 0 or 1, as the bits of one: the product moves byte j to bit 56 + j. */
static uint8_t pack(const uint8_t set[8])
{
    uint64_t eight = 0;
    for (unsigned j = 0; j < 8; j++)
        eight |= (uint64_t)set[j] << 8 * j;
    return (uint8_t)(eight * 0x0102040810204080u >> 56);
}

static void encode_block(uint8_t *bits, const struct dev_sign_encode *a, size_t i, size_t n,
                         float scale)
{
    float z[DEV_BLOCK], *error = a->error ? a->error + i : NULL;
    const float *mask = a->mask ? a->mask + i : NULL;
    uint8_t set[DEV_BLOCK];
    read_block(z, a, i, n);
    for (size_t k = 0; k < DEV_BLOCK; k++)
        set[k] = z[k] >= 0;
    for (size_t k = 0; k < n; k += 8)
        bits[(i + k) / 8] = pack(set + k);
    for (size_t k = 0; error && k < n; k++)
        error[k] = z[k] - (z[k] >= 0 ? scale : -scale);
    for (size_t k = 0; error && mask && k < n; k++)
        error[k] = mask[k] != 0 ? error[k] : 0.0f;
}

static void encode_range(struct dev *d, uint8_t *bits, const struct dev_sign_encode *a, size_t r)
{
    size_t begin = a->ranges[r].offset, end = begin + a->ranges[r].count,
           runs = (end - begin + DEV_RUN - 1) / DEV_RUN;
    struct dev_sign_sum sum = {0, 0};
#pragma omp parallel for num_threads(d->threads) schedule(static) if (runs > 1)
    for (size_t i = 0; i < runs; i++)
        a->sums[i] = run_sum(a, begin + i * DEV_RUN, smaller(end, begin + (i + 1) * DEV_RUN));
    for (size_t i = 0; i < runs; i++) {
        sum.squares += a->sums[i].squares;
        sum.count += a->sums[i].count;
    }
    a->scales[r] = sign_scale(sum.squares, sum.count);
#pragma omp parallel for num_threads(d->threads) schedule(static) if (runs > 1)
    for (size_t i = begin; i < end; i += DEV_BLOCK)
        encode_block(bits, a, i, smaller(end - i, DEV_BLOCK), a->scales[r]);
}

void LEVEL_NAME(cpu_sign_encode)(struct dev *d, uint8_t *bits, const struct dev_sign_encode *a)
{
    for (size_t r = 0; r < a->n && !sign_stopped(a->stop); r++)
        encode_range(d, bits, a, r);
}

/* One byte for each bit of a block: 0 where the bit is. */
static void unpack(uint8_t set[DEV_BLOCK], const uint8_t *bits, size_t n)
{
    for (size_t k = 0; k < n; k += 8)
        for (unsigned j = 0; j < 8; j++)
            set[k + j] = bits[k / 8] & (uint8_t)(1u << j);
}

/* The first part begins the sum: 0 + value, since a scale of 0 has values of -0. */
static void add_part(float sum[DEV_BLOCK], const uint8_t set[DEV_BLOCK], size_t n, float scale,
                     bool first)
{
    if (first)
        for (size_t k = 0; k < n; k++)
            sum[k] = 0.0f + sign_value(set[k] != 0, scale);
    else
        for (size_t k = 0; k < n; k++)
            sum[k] += sign_value(set[k] != 0, scale);
}

static void decode_block(float *x, const struct dev_sign_decode *a, size_t r, size_t i, size_t n)
{
    float *out = x + i, parts = (float)a->parts;
    const float *mask = a->mask ? a->mask + i : NULL;
    uint8_t set[DEV_BLOCK];
    for (size_t p = 0; p < a->parts; p++) {
        unpack(set, a->bits + p * a->bits_stride + i / 8, n);
        add_part(out, set, n, a->scales[p * a->scales_stride + r], p == 0);
    }
    for (size_t k = 0; a->parts > 1 && k < n; k++)
        out[k] /= parts;
    for (size_t k = 0; mask && k < n; k++)
        out[k] = mask[k] != 0 ? out[k] : 0.0f;
}

void LEVEL_NAME(cpu_sign_decode)(struct dev *d, float *x, const struct dev_sign_decode *a)
{
    for (size_t r = 0; r < a->n && !sign_stopped(a->stop); r++) {
        size_t begin = a->ranges[r].offset, end = begin + a->ranges[r].count;
#pragma omp parallel for num_threads(d->threads) schedule(static) if (end - begin > DEV_RUN)
        for (size_t i = begin; i < end; i += DEV_BLOCK)
            decode_block(x, a, r, i, smaller(end - i, DEV_BLOCK));
    }
}
