#ifndef PHILOX_H
#define PHILOX_H
/* Philox4x32-10, written once for C and CUDA C. Salmon, Moraes, Dror, Shaw: Parallel random numbers:
 * as easy as 1, 2, 3 (SC 2011), 10 rounds; multipliers and Weyl constants from there. Counter words:
 * index (2), stream (2); key: seed. Integers only: the same bits everywhere. */
#include "kernels/scalar/bf16.h"

SCALAR void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
