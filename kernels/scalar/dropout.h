/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DROPOUT_H
#define DROPOUT_H
/* The mask of dropout (Srivastava et al. 2014), written once for C and CUDA C: 16 random bits for
 * each element out of Philox, a function of (seed, step, row, place, column) alone, so that every
 * device, rank and micro-batch has the same mask and backward computes it again. Integers
 * only: the same bits everywhere. */
#include "kernels/base/philox.h"
#include "kernels/base/rng.h"

enum { DROPOUT_EACH = 8 }; /* elements out of one call */

/* Elements whose 16 bits are below this become 0: the rate in steps of 2^-16. */
SCALAR uint32_t dropout_below(float rate)
{
    return (uint32_t)(int32_t)(rate * 65536.0f + 0.5f);
}

/* 1 / (1 - rate) of the rounded rate. */
SCALAR float dropout_scale(uint32_t below)
{
    return 65536.0f / (float)(int32_t)(65536 - below);
}

/* key: step << 32 | row; place: below 2^16; group: column / DROPOUT_EACH, below 2^16. */
SCALAR uint64_t dropout_stream(uint64_t key)
{
    return RNG_DROPOUT | (key >> 32) << 32;
}

SCALAR uint64_t dropout_index(uint64_t key, uint32_t place, uint32_t group)
{
    return key << 32 | (uint64_t)place << 16 | group;
}

/* The 16 bits of element i of a group: two to a word, low half first. */
SCALAR uint32_t dropout_bits(const uint32_t words[4], uint32_t i)
{
    return words[i / 2] >> (i % 2 * 16) & 0xffff;
}

#endif
