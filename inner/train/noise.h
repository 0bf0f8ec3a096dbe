#ifndef NOISE_H
#define NOISE_H
/* The noise of a private step, on a grid: the clipped sum is rounded to whole multiples of `grid`,
 * a discrete Gaussian of whole multiples is added, and the product becomes f32 again, which is
 * post-processing. */
#include "inner/model/table.h"
#include "kernels/base/digest.h"
#include "kernels/base/chacha.h"

struct noise_scale {
    double grid;        /* a power of two, at most 2^-24 of the noise's standard deviation */
    uint64_t sigma;     /* of the noise, in multiples of grid, rounded up */
    double sensitivity; /* how far one record moves the rounded sum, L2 */
};
/* Noise multiplier z and clip C of `elements` values. Rounding moves each of two neighbouring sums
 * by grid / 2 at most, and what f32 arithmetic adds to a clipped gradient is taken as 2^-13 of C
 * (measured: below 1e-5 of it, tests/inner/model/test_clip.c), so that the sensitivity is
 * C (1 + 2^-13) + grid sqrt(elements). sigma grid >= z sensitivity. */
struct noise_scale noise_scale_of(double z, double clip, size_t elements);
/* Adds noise to every element of the tensors; gaps and padding stay 0. The stream is a function of
 * the key and of the rounded sum: another sum never meets the same noise. Any number of threads:
 * the same result. */
void noise_add(float *slab, const struct table *t, const struct noise_scale *n,
               const uint8_t key[CHACHA_KEY_BYTES], int threads);

#endif
