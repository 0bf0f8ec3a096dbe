/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PHILOX_H
#define PHILOX_H
/* Philox4x32-10, written once for C and CUDA C. Salmon, Moraes, Dror, Shaw: Parallel random
 * numbers: as easy as 1, 2, 3 (SC 2011), 10 rounds; multipliers and Weyl constants of the paper.
 * Counter words: index (2), stream (2); key: seed. Integers only: the same bits everywhere. */
#include "kernels/base/bf16.h"

/* Holds 32 bits. 64-bit type when vector lanes multiply 64 bits: the products then need no
 * widening. */
#ifdef __AVX512DQ__
typedef uint64_t philox_word;
#else
typedef uint32_t philox_word;
#endif
enum { PHILOX_ROUNDS = 10 };

struct philox_key {
    philox_word k0, k1;
};

SCALAR struct philox_key philox_key(uint64_t seed, int round)
{
    struct philox_key k = {(uint32_t)seed + (uint32_t)round * 0x9E3779B9u,
                           (uint32_t)(seed >> 32) + (uint32_t)round * 0xBB67AE85u};
    return k;
}

/* One round, in place. The words are passed by address, so that a loop can run over four arrays. */
SCALAR void philox_round(philox_word *c0, philox_word *c1, philox_word *c2, philox_word *c3,
                         struct philox_key k)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * *c0, p1 = (uint64_t)0xCD9E8D57u * *c2;
    *c0 = (philox_word)(p1 >> 32) ^ *c1 ^ k.k0;
    *c1 = (uint32_t)p1;
    *c2 = (philox_word)(p0 >> 32) ^ *c3 ^ k.k1;
    *c3 = (uint32_t)p0;
}

SCALAR void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    philox_word c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    philox_word c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++)
        philox_round(&c0, &c1, &c2, &c3, philox_key(seed, round));
    out[0] = (uint32_t)c0;
    out[1] = (uint32_t)c1;
    out[2] = (uint32_t)c2;
    out[3] = (uint32_t)c3;
}

#endif
