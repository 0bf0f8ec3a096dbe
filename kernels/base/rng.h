/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNG_H
#define RNG_H
/* Counter-based random numbers: value = f(seed, stream, index), so there is no state to save and
 * any thread can compute any number. Philox4x32-10 (Salmon et al. 2011, Random123), verified
 * against its published vectors. Streams are named here so that no two uses share one.
 */
#include <stdint.h>

enum rng_stream {
    RNG_INIT = 1,    /* index = element number in the parameter slab + draw << 48 */
    RNG_SHUFFLE = 2, /* data order */
    RNG_SAMPLE = 3,  /* text generation */
    RNG_SIM = 4,     /* simulator faults */
    RNG_JITTER = 5,  /* retry back-off */
    RNG_TEST = 6,
    RNG_PARTITION = 7,  /* random fragments */
    RNG_WAN = 8,        /* emulated network: + direction << 32; index = packet */
    RNG_WAN_JITTER = 9, /* + direction << 32; index = time slot */
    RNG_ROUND = 10,     /* bf16 copies of parameters: + step << 32; index = element / 8 */
    RNG_CODEC = 11,     /* + site << 8, + fragment << 18, + round << 32; index = element / 4 */
    RNG_EXAMPLE = 12,   /* layout of an example of masked text: + window << 8; index = draw / 4 */
    RNG_MASK = 13,      /* its masks: + window << 8; index = draw / 4 */
    RNG_MASTER = 15,    /* master weights of few bits: + step << 32; index = element / 4 */
    RNG_DRAW = 16,      /* values of a round (SPARTA): + round << 32; index = block of 256 */
    RNG_MIXTURE = 17,   /* data order of a source: + source << 8 */
    RNG_DROPOUT = 14    /* + step << 32; index = row << 32 | place << 16 | column / 8 */
};

void rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform in [0, n), n > 0: multiply-shift of 64 bits, bias below 2^-32 for n < 2^32. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
double rng_unit(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 53 bits */
float rng_normal(uint64_t seed, uint64_t stream,
                 uint64_t index); /* Box-Muller in double, then rounded */

#endif
