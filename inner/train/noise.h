/* SPDX-License-Identifier: Apache-2.0 */
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
 * C (1 + 2^-13) + grid sqrt(elements). sigma grid >= z sensitivity.
 *
 * With `bands` > 1 a record moves `bands` of the correlated sums, which together are its column of
 * C (kernels/scalar/banded.h) times that; the rounding in noise_chain_step adds grid sqrt(elements)
 * to each. So the sensitivity is |c| (C (1 + 2^-13) + grid sqrt(elements)) + grid sqrt(bands
 * elements).
 */
struct noise_scale noise_scale_of(double z, double clip, size_t elements, uint64_t bands);
/* Adds noise to every element of the tensors; gaps and padding stay 0. The stream is a function of
 * the key and of the rounded sum: another sum never meets the same noise. Any number of threads:
 * the same result. */
void noise_add(float *slab, const struct table *t, const struct noise_scale *n,
               const uint8_t key[CHACHA_KEY_BYTES], int threads);

/* Correlated noise: what is added to the sums of the steps of a chain is C^-1 z, z independent. By
 * forward substitution, e_n = z_n - round(sum over i in 1..bands-1 of c_i e_(n-i)), in whole steps
 * of the grid. For given sums, e and z follow from each other, so that the released sums have the
 * probabilities of z: those of independent noise on the correlated sums C x, but for the rounding.
 *
 * e of the last bands - 1 steps stays in memory and on no disk: after a restart the chain is made
 * again from its keys. One thread calls; all of `threads` work. */
struct noise_chain {
    const struct table *table; /* borrowed */
    size_t bands;
    double *c;      /* (bands) */
    int32_t *past;  /* (bands - 1, elements): e of step n at n mod (bands - 1) */
    uint64_t begin; /* number of the chain's first step */
    uint64_t next;  /* number of the step to be made; begin: none is made */
};
size_t noise_chain_bytes(size_t elements, uint64_t bands);
enum err noise_chain_open(struct noise_chain *x, const struct table *t, uint64_t bands,
                          struct arena *perm) MUST;
void noise_chain_begin(struct noise_chain *x, uint64_t number);
/* Makes the noise of the next step, and adds it to the slab; NULL: it was added before. key: of the
 * step. Any number of threads: the same result. */
void noise_chain_step(struct noise_chain *x, float *slab, const struct noise_scale *n,
                      const uint8_t key[CHACHA_KEY_BYTES], int threads);

#endif
