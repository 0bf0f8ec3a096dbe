/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BITS_H
#define BITS_H
/* Words of 1 to 64 bits in a bit stream, from the low bit of each byte on: word i has the bits
 * i * bits to (i + 1) * bits - 1. On the host. A multiple of 64 words fills whole 8 bytes, so a
 * stream can be written and read in pieces of such counts: from word `first` (a multiple of 64) on,
 * the bytes are words + first / 8 * bits.
 */
#include <stddef.h>
#include <stdint.h>

enum { BITS_MAX = 64 };

/* Of unsigned numbers up to `largest`. */
static inline unsigned bits_of(uint64_t largest)
{
    unsigned bits = 0;
    while (bits < BITS_MAX && largest >> bits)
        bits++;
    return bits;
}

/* q modulo 2^bits. The last 8 bytes are written whole. */
void bits_pack(uint8_t *words, const int64_t *q, size_t count, unsigned bits);
/* The words as signed numbers. */
void bits_unpack(int64_t *q, const uint8_t *words, size_t count, unsigned bits);

#endif
