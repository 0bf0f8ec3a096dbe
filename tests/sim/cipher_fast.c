/* SPDX-License-Identifier: Apache-2.0 */
/* outer/masks/cipher.h for programs that run hundreds of schedules a second: a key agreement in
 * the integers modulo the prime 2^61 - 1, key streams by splitmix64's finaliser (Steele et al.
 * 2014), and HKDF by the digest of the program (digest_fast.c). It protects nothing, and has what
 * the protocol counts on: both sides derive the same secret, other keys give other bytes, and a
 * stream can be entered at each block. A program that lists this file does not take
 * outer/masks/cipher.c, whose X25519 took a third of a masked run. test_points, test_memory, the
 * tests of outer/masks and the processes of the end-to-end tests run the same code with OpenSSL.
 */
#include <stdlib.h>
#include <string.h>
#include "kernels/base/digest.h"
#include "outer/masks/cipher.h"

enum { GENERATOR = 37, WORD_BYTES = 8, HKDF_ROOM = CIPHER_KEY_BYTES + CIPHER_INFO_MAX + 1 };
static const uint64_t prime = (1ull << 61) - 1;
__extension__ typedef unsigned __int128 wide;

void *cipher_secret_alloc(size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p)
        (void)err_set(ERR_MEMORY, "%zu bytes for keys", bytes);
    return p;
}

void cipher_secret_free(void *p, size_t bytes)
{
    (void)bytes;
    free(p);
}

void cipher_wipe(void *p, size_t bytes)
{
    memset(p, 0, bytes);
}

/* ---- the key agreement ---- */

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t power(uint64_t base, uint64_t exponent)
{
    uint64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1)
            result = (uint64_t)((wide)result * base % prime);
        base = (uint64_t)((wide)base * base % prime);
    }
    return result;
}

/* All bytes of a key count. */
static uint64_t exponent_of(const struct cipher_key *own)
{
    uint64_t word[CIPHER_KEY_BYTES / WORD_BYTES], x = 0;
    memcpy(word, own->bytes, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        x = mixed(x ^ word[i]) + 0x9e3779b97f4a7c15u;
    return x % prime;
}

static void spread(uint8_t out[CIPHER_KEY_BYTES], uint64_t x)
{
    for (uint64_t i = 0; i < CIPHER_KEY_BYTES / WORD_BYTES; i++) {
        uint64_t word = i ? mixed(x + i * 0x9e3779b97f4a7c15u) : x;
        memcpy(out + i * WORD_BYTES, &word, sizeof word);
    }
}

enum err cipher_x25519_public(struct cipher_public *out, const struct cipher_key *own)
{
    spread(out->bytes, power(GENERATOR, exponent_of(own)));
    return ERR_OK;
}

enum err cipher_x25519(struct cipher_key *shared, const struct cipher_key *own,
                       const struct cipher_public *other)
{
    uint64_t point;
    memcpy(&point, other->bytes, sizeof point);
    point %= prime;
    if (point < 2)
        return err_set(ERR_DENIED, "x25519_low_order: the public key is a point of low order");
    spread(shared->bytes, power(point, exponent_of(own)));
    return ERR_OK;
}

/* ---- HKDF ---- */

void cipher_hkdf_extract(struct cipher_key *prk, const void *salt, size_t salt_bytes,
                         const void *ikm, size_t ikm_bytes)
{
    struct digest d[2] = {digest_of(salt, salt_bytes), digest_of(ikm, ikm_bytes)};
    struct digest both = digest_of(d, sizeof d);
    memcpy(prk->bytes, both.bytes, sizeof prk->bytes);
}

void cipher_hkdf_expand(void *out, size_t out_bytes, const struct cipher_key *prk, const void *info,
                        size_t info_bytes)
{
    uint8_t from[HKDF_ROOM], *to = out;
    ASSERT(info_bytes <= CIPHER_INFO_MAX);
    ASSERT(out_bytes > 0 && out_bytes <= 255 * sizeof prk->bytes);
    memcpy(from, prk->bytes, sizeof prk->bytes);
    if (info_bytes)
        memcpy(from + sizeof prk->bytes, info, info_bytes);
    for (size_t at = 0; at < out_bytes; at += CIPHER_KEY_BYTES) {
        size_t n = out_bytes - at < CIPHER_KEY_BYTES ? out_bytes - at : CIPHER_KEY_BYTES;
        from[sizeof prk->bytes + info_bytes] = (uint8_t)(at / CIPHER_KEY_BYTES + 1);
        struct digest d = digest_of(from, sizeof prk->bytes + info_bytes + 1);
        memcpy(to + at, d.bytes, n);
    }
}

/* ---- the key stream ---- */

struct fast_stream {
    uint64_t key, at; /* at: bytes read, from the first block on */
};

enum err cipher_stream_open_at(struct cipher_stream *s, const struct cipher_key *key,
                               uint32_t from_block, const uint8_t nonce[12])
{
    uint64_t word;
    struct fast_stream *f = malloc(sizeof *f);
    if (!f)
        return err_set(ERR_MEMORY, "a key stream");
    memcpy(&word, nonce, sizeof word);
    *f = (struct fast_stream){mixed(exponent_of(key) ^ word),
                              (uint64_t)from_block * CIPHER_BLOCK_BYTES};
    s->ctx = f;
    return ERR_OK;
}

enum err cipher_stream_open(struct cipher_stream *s, const struct cipher_key *key,
                            uint32_t from_block)
{
    static const uint8_t nonce[12];
    return cipher_stream_open_at(s, key, from_block, nonce);
}

void cipher_stream_read(struct cipher_stream *s, uint8_t *out, size_t bytes)
{
    struct fast_stream *f = s->ctx;
    ASSERT(f);
    while (bytes) {
        size_t skip = f->at % WORD_BYTES, n = WORD_BYTES - skip;
        uint64_t word = mixed(f->key + f->at / WORD_BYTES * 0x9e3779b97f4a7c15u);
        n = n < bytes ? n : bytes;
        memcpy(out, (uint8_t *)&word + skip, n);
        f->at += n;
        out += n;
        bytes -= n;
    }
}

void cipher_stream_close(struct cipher_stream *s)
{
    free(s->ctx);
    s->ctx = NULL;
}
