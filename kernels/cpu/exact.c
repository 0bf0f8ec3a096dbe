/* The exact set on the CPU (dev.h): formulas from kernels/scalar, loops here. A value depends on
 * its own block of 256 alone, in a fixed order, so neither the thread count nor the vector width
 * changes a bit. `omp simd` says that outputs alias inputs at the same index at most. Of the device
 * only `threads` is used.
 */
#include "kernels/cpu/exact.h"
#include "kernels/scalar/grid.h"
#include "kernels/base/rng.h"
#include "kernels/scalar/outer.h"
#include "kernels/scalar/philox.h"

enum {
    BITS_MAX = 18,
    BITS_PAIR = 16,
    GROUP = 8
}; /* 8 values begin and end on a byte at any width */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packed streams are little-endian");
_Static_assert(DEV_GRID_EMPTY == GRID_EMPTY, "one value for an empty block");

void LEVEL_NAME(cpu_delta)(struct dev *d, float *z, const float *outer, const float *local,
                           const float *residual, float weight, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        z[i] = outer_delta(outer[i], local[i], residual[i], weight);
}

/* Sum of squares in double of z, or of z - less: lane j takes z[j], z[16 + j], ... in order; then 8 +
 * 8, 4 + 4, 2 + 2, 1 + 1 lanes. */
static inline double block_squares(const float *z, const float *less)
{
    enum { LANES = 16 };
    double lane[LANES] = {0};
    for (size_t i = 0; i < DEV_BLOCK; i += LANES)
#pragma omp simd
        for (size_t j = 0; j < LANES; j++) {
            double x = (double)(less ? z[i + j] - less[i + j] : z[i + j]);
            lane[j] += x * x;
        }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

void LEVEL_NAME(cpu_block_code)(struct dev *d, uint8_t *code, const float *z, size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++)
        code[b] = grid_code(block_squares(z + b * DEV_BLOCK, NULL));
}

void LEVEL_NAME(cpu_quantise)(struct dev *d, int32_t *q, float *residual, const float *z,
                              const struct dev_grid *g)
{
    float q_max = (float)g->q_max;
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < g->count / DEV_BLOCK; b++) {
        float step = grid_step(g->exponent[b]), inverse = grid_inverse(g->exponent[b]);
        size_t end = (b + 1) * DEV_BLOCK;
#pragma omp simd
        for (size_t i = b * DEV_BLOCK; i < end; i++) {
            float whole = grid_round(z[i], inverse, q_max);
            q[i] = (int32_t)whole;
            residual[i] = z[i] - whole * step;
        }
    }
}

void LEVEL_NAME(cpu_dequantise)(struct dev *d, float *z, const int32_t *q, const struct dev_grid *g,
                                float divisor)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < g->count / DEV_BLOCK; b++) {
        float step = grid_step(g->exponent[b]);
        size_t end = (b + 1) * DEV_BLOCK;
#pragma omp simd
        for (size_t i = b * DEV_BLOCK; i < end; i++)
            z[i] = (float)q[i] * step / divisor;
    }
}

void LEVEL_NAME(cpu_round_bf16)(struct dev *d, uint16_t *h, float *residual, const float *z,
                                size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++) {
        uint16_t rounded = grid_bf16(z[i]);
        h[i] = rounded;
        residual[i] = z[i] - bf16_float(rounded);
    }
}

void LEVEL_NAME(cpu_round_stochastic)(struct dev *d, uint16_t *h, const float *z,
                                      const struct dev_random *r, size_t count)
{
    ASSERT(r->first % 8 == 0);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i += 8) {
        uint32_t bits[4];
        philox(r->seed, RNG_ROUND | r->step << 32, (r->first + i) / 8, bits);
        for (size_t k = 0; k < 8 && i + k < count; k++)
            h[i + k] = bf16_stochastic(z[i + k], bits[k / 2] >> k % 2 * 16 & 0xffff);
    }
}

void LEVEL_NAME(cpu_widen_bf16)(struct dev *d, float *z, const uint16_t *h, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        z[i] = bf16_float(h[i]);
}

/* One block. A group of 8 values is `bits` bytes: two words of 4 values are joined and stored as 16
 * bytes, of which the next group overwrites what is too much; so it goes to a padded buffer first.
 * `bits` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void block_pack(uint8_t *out, const int32_t *q,
                                                             int32_t bias, const unsigned bits)
{
    uint8_t stream[DEV_BLOCK * BITS_PAIR / 8 + 16];
    for (size_t g = 0; g < DEV_BLOCK / GROUP; g++) {
        uint64_t low = 0, high = 0;
        for (unsigned i = 0; i < GROUP / 2; i++) {
            low |= (uint64_t)(uint32_t)(q[g * GROUP + i] + bias) << i * bits;
            high |= (uint64_t)(uint32_t)(q[g * GROUP + 4 + i] + bias) << i * bits;
        }
        uint64_t words[2] = {low, high};
        if (bits < BITS_PAIR) {
            words[0] = low | high << 4 * bits;
            words[1] = high >> (64 - 4 * bits);
        }
        memcpy(stream + g * bits, words, sizeof words);
    }
    memcpy(out, stream, DEV_BLOCK / GROUP * bits);
}

/* Wider than the two words hold: value by value, of which the next overwrites what is too much. */
static inline __attribute__((always_inline)) void block_pack_wide(uint8_t *out, const int32_t *q,
                                                                  int32_t bias, const unsigned bits)
{
    uint8_t stream[DEV_BLOCK * BITS_MAX / 8 + 4] = {0};
    for (size_t i = 0; i < DEV_BLOCK; i++) {
        uint32_t word;
        memcpy(&word, stream + i * bits / 8, sizeof word);
        word |= (uint32_t)(q[i] + bias) << i * bits % 8;
        memcpy(stream + i * bits / 8, &word, sizeof word);
    }
    memcpy(out, stream, DEV_BLOCK / GROUP * bits);
}

/* One block. Value i of a group starts at bit i*bits; a load of 4 bytes from there holds it whole.
 */
static inline __attribute__((always_inline)) void
block_unpack(int32_t *q, const uint8_t *in, int32_t bias, const unsigned bits, const bool add)
{
    uint8_t stream[DEV_BLOCK * BITS_MAX / 8 + 4];
    memcpy(stream, in, DEV_BLOCK / GROUP * bits);
    memset(stream + DEV_BLOCK / GROUP * bits, 0, 4);
    for (size_t g = 0; g < DEV_BLOCK / GROUP; g++)
        for (unsigned i = 0; i < GROUP; i++) {
            uint32_t word;
            memcpy(&word, stream + g * bits + i * bits / 8, sizeof word);
            int32_t value = (int32_t)(word >> i * bits % 8 & ((1u << bits) - 1)) - bias;
            q[g * GROUP + i] = add ? q[g * GROUP + i] + value : value;
        }
}

/* The widths, so that shifts and offsets are constants in each loop. */
#define WIDTHS(X)                                                                                  \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16)
#define WIDTHS_WIDE(X) X(17) X(18)

void LEVEL_NAME(cpu_pack)(struct dev *d, uint8_t *out, const int32_t *q, int32_t bias,
                          unsigned bits, size_t count)
{
    ASSERT(bits >= 1 && bits <= BITS_MAX);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++)
        switch (bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_pack(out + b * (DEV_BLOCK / 8) * width, q + b * DEV_BLOCK, bias, width);             \
        break;
            WIDTHS(X)
#undef X
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_pack_wide(out + b * (DEV_BLOCK / 8) * width, q + b * DEV_BLOCK, bias, width);        \
        break;
            WIDTHS_WIDE(X)
#undef X
        }
}

void LEVEL_NAME(cpu_unpack)(struct dev *d, int32_t *q, const uint8_t *in, int32_t bias,
                            unsigned bits, bool add, size_t count)
{
    ASSERT(bits >= 1 && bits <= BITS_MAX);
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t b = 0; b < count / DEV_BLOCK; b++)
        switch (bits) {
#define X(width)                                                                                   \
    case width:                                                                                    \
        block_unpack(q + b * DEV_BLOCK, in + b * (DEV_BLOCK / 8) * width, bias, width, add);       \
        break;
            WIDTHS(X)
            WIDTHS_WIDE(X)
#undef X
        }
}

void LEVEL_NAME(cpu_outer_step)(struct dev *d, float *theta, float *momentum, const float *mean,
                                float lr, float mu, size_t count)
{
    if (!momentum) {
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < count; i++)
            theta[i] = outer_sgd(theta[i], mean[i], lr);
        return;
    }
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++) {
        float buf = outer_momentum(momentum[i], mean[i], mu);
        momentum[i] = buf;
        theta[i] = outer_nesterov(theta[i], buf, mean[i], lr, mu);
    }
}

void LEVEL_NAME(cpu_outer_delayed)(struct dev *d, const struct dev_delayed *o)
{
    float *theta = o->theta, *momentum = o->momentum, *gathered = o->gathered;
    const float *mean = o->mean;
    float lr = o->lr, mu = o->mu, share = o->share;
    bool first = o->first;
    if (!o->last) {
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < o->count; i++) {
            float x = share * mean[i];
            gathered[i] = outer_gather(gathered[i], x, first);
            theta[i] = outer_sgd(theta[i], x, lr);
        }
        return;
    }
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < o->count; i++) {
        float x = share * mean[i];
        gathered[i] = outer_gather(gathered[i], x, first);
        momentum[i] = outer_momentum(momentum[i], gathered[i], mu);
        theta[i] = outer_nesterov(theta[i], momentum[i], x, lr, mu);
    }
}

void LEVEL_NAME(cpu_accumulate)(struct dev *d, float *acc, const float *x, float scale,
                                size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        acc[i] = outer_accumulate(acc[i], x[i], scale);
}

void LEVEL_NAME(cpu_divide)(struct dev *d, float *x, float divisor, size_t count)
{
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        x[i] = x[i] / divisor;
}

void LEVEL_NAME(cpu_exceeds)(struct dev *d, uint32_t *over, const int32_t *q, int32_t limit,
                             size_t count)
{
    uint32_t any = 0;
#pragma omp parallel for num_threads(d->threads) schedule(static) reduction(| : any)
    for (size_t i = 0; i < count; i++)
        any |= (uint32_t)(q[i] > limit) | (uint32_t)(q[i] < -limit);
    *over |= any;
}

void LEVEL_NAME(cpu_squares)(struct dev *d, double *sums, const float *a, const float *b,
                             size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t r = 0; r < (count + DEV_RUN - 1) / DEV_RUN; r++) {
        size_t end = (r + 1) * DEV_RUN < count ? (r + 1) * DEV_RUN : count;
        double sum = 0;
        for (size_t i = r * DEV_RUN; i < end; i += DEV_BLOCK)
            sum += block_squares(a + i, b ? b + i : NULL);
        sums[r] = sum;
    }
}

void LEVEL_NAME(cpu_apart)(struct dev *d, uint32_t *apart, const float *sent, const float *kept,
                           const float *z, float slack, size_t count)
{
    uint32_t any = 0;
#pragma omp parallel for simd num_threads(d->threads) schedule(static) reduction(| : any)
    for (size_t i = 0; i < count; i++)
        any |= (uint32_t)!outer_adds_up(sent[i], kept[i], z[i], slack);
    *apart |= any;
}

void LEVEL_NAME(cpu_sample)(struct dev *d, float *out, const float *x, size_t stride, size_t count)
{
#pragma omp parallel for num_threads(d->threads) schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = x[i * stride];
}

void LEVEL_NAME(cpu_collect)(struct dev *d, float *out, const float *slab,
                             const struct dev_range *ranges, size_t n)
{
    for (size_t r = 0; r < n; out += ranges[r++].count) {
        const float *x = slab + ranges[r].offset;
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < ranges[r].count; i++)
            out[i] = x[i];
    }
}

void LEVEL_NAME(cpu_blend)(struct dev *d, float *slab, const float *in, const struct dev_blend *b)
{
    float alpha = b->alpha, beta = 1 - alpha;
    bool positive = b->positive;
    for (size_t r = 0; r < b->n; in += b->ranges[r++].count) {
        float *x = slab + b->ranges[r].offset;
#pragma omp parallel for simd num_threads(d->threads) schedule(static)
        for (size_t i = 0; i < b->ranges[r].count; i++)
            x[i] = outer_blend(x[i], in[i], alpha, beta, positive);
    }
}

#ifdef ISA
void LEVEL_NAME(cpu_exact)(struct dev_ops *ops)
{
#define X(name, arguments) ops->name = LEVEL_NAME(cpu_##name);
    DEV_OPS_EXACT(X)
#undef X
}
#endif
