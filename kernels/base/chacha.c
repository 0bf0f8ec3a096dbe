/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/chacha.h"
#include <string.h>
#include "kernels/base/err.h"

enum { DOUBLE_ROUNDS = 10, BLOCK_WORDS = CHACHA_BLOCK_BYTES / 8 };

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t rotated(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

/* RFC 8439, 2.1. */
static void quarter_round(uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    *a += *b, *d = rotated(*d ^ *a, 16);
    *c += *d, *b = rotated(*b ^ *c, 12);
    *a += *b, *d = rotated(*d ^ *a, 8);
    *c += *d, *b = rotated(*b ^ *c, 7);
}

void chacha_block(const uint8_t key[CHACHA_KEY_BYTES], uint32_t counter,
                  const uint8_t nonce[CHACHA_NONCE_BYTES], uint8_t out[CHACHA_BLOCK_BYTES])
{
    uint32_t x[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, [12] = counter}, start[16];
    for (int i = 0; i < 8; i++)
        x[4 + i] = load_u32(key + 4 * i);
    for (int i = 0; i < 3; i++)
        x[13 + i] = load_u32(nonce + 4 * i);
    memcpy(start, x, sizeof x);
    for (int round = 0; round < DOUBLE_ROUNDS; round++) {
        for (int i = 0; i < 4; i++)
            quarter_round(&x[i], &x[4 + i], &x[8 + i], &x[12 + i]);
        for (int i = 0; i < 4; i++)
            quarter_round(&x[i], &x[4 + (i + 1) % 4], &x[8 + (i + 2) % 4], &x[12 + (i + 3) % 4]);
    }
    for (int i = 0; i < 16; i++)
        for (int b = 0; b < 4; b++)
            out[4 * i + b] = (uint8_t)((x[i] + start[i]) >> 8 * b);
}

struct chacha chacha_stream(const uint8_t key[CHACHA_KEY_BYTES], uint64_t number)
{
    struct chacha c = {.number = number, .used = BLOCK_WORDS};
    memcpy(c.key, key, sizeof c.key);
    return c;
}

static void refill_block(struct chacha *c)
{
    uint8_t nonce[CHACHA_NONCE_BYTES] = {0};
    for (int i = 0; i < 8; i++)
        nonce[4 + i] = (uint8_t)(c->number >> 8 * i);
    ASSERT(c->counter != UINT32_MAX);
    chacha_block(c->key, c->counter++, nonce, c->block);
    c->used = 0;
}

static void take_word(struct chacha *c)
{
    if (c->used == BLOCK_WORDS)
        refill_block(c);
    const uint8_t *p = c->block + 8 * c->used++;
    c->word = load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
    c->left = 64;
}

uint64_t chacha_bits_across(struct chacha *c, unsigned bits)
{
    ASSERT(bits >= 1 && bits <= 64 && bits >= c->left);
    unsigned have = c->left, need = bits - have;
    uint64_t low = have ? c->word : 0;
    c->left = 0;
    if (!need)
        return low;
    take_word(c);
    uint64_t high = need < 64 ? c->word & ((UINT64_C(1) << need) - 1) : c->word;
    c->word = need < 64 ? c->word >> need : 0;
    c->left -= need;
    return low | high << have;
}

uint64_t chacha_below(struct chacha *c, uint64_t n)
{
    unsigned bits = 1;
    uint64_t x;
    ASSERT(n > 0);
    while (bits < 64 && n > UINT64_C(1) << bits)
        bits++;
    do
        x = chacha_bits(c, bits);
    while (x >= n);
    return x;
}
