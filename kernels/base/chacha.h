/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CHACHA_H
#define CHACHA_H
/* ChaCha20 (RFC 8439, 2.3) as a source of secret random numbers: a stream is a function of (key,
 * number): the holder of the key can repeat it, and no one else can. For sampling and
 * noise of privacy; rng.h, whose key is the run's public seed, is for everything else. Constant
 * time: no branch and no address depends on the key. One thread per stream.
 */
#include <stdint.h>

enum { CHACHA_KEY_BYTES = 32, CHACHA_NONCE_BYTES = 12, CHACHA_BLOCK_BYTES = 64 };

/* RFC 8439, 2.3: one block of key stream. */
void chacha_block(const uint8_t key[CHACHA_KEY_BYTES], uint32_t counter,
                  const uint8_t nonce[CHACHA_NONCE_BYTES], uint8_t out[CHACHA_BLOCK_BYTES]);

struct chacha {
    uint8_t key[CHACHA_KEY_BYTES];
    uint64_t number;  /* of the stream: the nonce */
    uint32_t counter; /* next block; a stream has 2^32 blocks, 256 GiB */
    unsigned used;    /* words of `block` that have been taken */
    unsigned left;    /* bits of `word`, the last one taken, that have not been used */
    uint64_t word;
    uint8_t block[CHACHA_BLOCK_BYTES];
};
struct chacha chacha_stream(const uint8_t key[CHACHA_KEY_BYTES], uint64_t number);
/* Where the word at hand has too few bits. */
uint64_t chacha_bits_across(struct chacha *c, unsigned bits);
/* The next `bits` of the stream, 1 <= bits <= 64. */
static inline uint64_t chacha_bits(struct chacha *c, unsigned bits)
{
    if (bits >= c->left)
        return chacha_bits_across(c, bits);
    uint64_t x = c->word & ((UINT64_C(1) << bits) - 1);
    c->word >>= bits;
    c->left -= bits;
    return x;
}
/* Uniform in [0, n), exact, n > 0. */
uint64_t chacha_below(struct chacha *c, uint64_t n);

#endif
