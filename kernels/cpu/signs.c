/* Signs with a scale on the CPU (dev.h, exact set). A range's squares are added in blocks of 256,
 * blocks in runs of DEV_RUN, runs in order: the bits are the same at every thread count.
 */
#include "kernels/cpu/exact.h"
#include <stdbool.h>
#include "kernels/scalar/signs.h"

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* z of the block of values i .. i + n, zeros behind it and where it is masked; returns how many
 * values are not masked. */
static size_t read_block(float z[DEV_BLOCK], const struct dev_sign_encode *a, size_t i, size_t n)
{
    const float *x = a->x + i, *error = a->error ? a->error + i : NULL,
                *mask = a->mask ? a->mask + i : NULL;
    size_t used = 0;
    for (size_t k = 0; k < n; k++)
        z[k] = error ? x[k] + error[k] : x[k];
    for (size_t k = n; k < DEV_BLOCK; k++)
        z[k] = 0;
    for (size_t k = 0; mask && k < n; k++) {
        z[k] = mask[k] != 0 ? z[k] : 0.0f;
        used += mask[k] != 0;
    }
    return mask ? used : n;
}

static struct dev_sign_sum run_sum(const struct dev_sign_encode *a, size_t begin, size_t end)
{
    struct dev_sign_sum sum = {0, 0};
    float z[DEV_BLOCK];
    for (size_t i = begin; i < end; i += DEV_BLOCK) {
        sum.count += (double)read_block(z, a, i, smaller(end - i, DEV_BLOCK));
        sum.squares += exact_block_squares(z, NULL);
    }
    return sum;
}

static void encode_block(uint8_t *bits, const struct dev_sign_encode *a, size_t i, size_t n,
                         float scale)
{
    float z[DEV_BLOCK];
    (void)read_block(z, a, i, n);
    for (size_t k = 0; k < n; k += 8) {
        unsigned byte = 0;
        for (size_t j = 0; j < 8; j++)
            byte |= (unsigned)(z[k + j] >= 0) << j;
        bits[(i + k) / 8] = (uint8_t)byte;
    }
    for (size_t k = 0; a->error && k < n; k++) {
        float rest = z[k] - (z[k] >= 0 ? scale : -scale);
        a->error[i + k] = !a->mask || a->mask[i + k] != 0 ? rest : 0.0f;
    }
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

static void decode_block(float *x, const struct dev_sign_decode *a, size_t r, size_t i, size_t n)
{
    float sum[DEV_BLOCK] = {0};
    for (size_t p = 0; p < a->parts; p++) {
        const uint8_t *bits = a->bits + p * a->bits_stride + i / 8;
        float scale = a->scales[p * a->scales_stride + r];
        for (size_t k = 0; k < n; k += 8)
            for (unsigned j = 0; j < 8; j++)
                sum[k + j] += sign_value((unsigned)bits[k / 8] >> j & 1u, scale);
    }
    for (size_t k = 0; k < n; k++)
        x[i + k] = !a->mask || a->mask[i + k] != 0 ? sum[k] / (float)a->parts : 0.0f;
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
