/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same for every hash: comparison, text, CRC-32C, the system's random bytes. */
#include "kernels/base/digest.h"
#include <string.h>
#include <sys/random.h>
#include "kernels/base/err.h"

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool digest_zero(const struct digest *d)
{
    static const struct digest zero;
    return digest_equal(d, &zero);
}

void digest_hex(const struct digest *d, char out[65])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof d->bytes; i++) {
        out[2 * i] = digits[d->bytes[i] >> 4];
        out[2 * i + 1] = digits[d->bytes[i] & 15];
    }
    out[64] = 0;
}

bool digest_hex_read(struct digest *out, const char text[64])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        const char *high = memchr(digits, text[2 * i], 16),
                   *low = memchr(digits, text[2 * i + 1], 16);
        if (!high || !low)
            return false;
        out->bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
    }
    return true;
}

bool digest_is_hex(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdefABCDEF") == 64;
}

void digest_random(void *out, size_t size_bytes)
{
    uint8_t *at = out;
    while (size_bytes) {
        /* A signal cannot interrupt a read of up to 256 bytes. */
        size_t step = size_bytes < 256 ? size_bytes : 256;
        ASSERT(getrandom(at, step, 0) == (ssize_t)step);
        at += step;
        size_bytes -= step;
    }
}

/* Castagnoli's polynomial, reflected. */
#define CRC_STEP(c) ((c)&1 ? (c) >> 1 ^ 0x82F63B78u : (c) >> 1)
static uint32_t crc_bits(uint32_t c)
{
    for (int i = 0; i < 8; i++)
        c = CRC_STEP(c);
    return c;
}

static uint32_t crc_portable(uint32_t crc, const uint8_t *p, size_t n)
{
    /* Table by nibbles, filled at each call, so no initialisation is needed. */
    uint32_t table[16], base[16];
    for (uint32_t i = 0; i < 16; i++) {
        base[i] = crc_bits(i);
        table[i] = crc_bits(i << 4);
    }
    for (; n; n--, p++) {
        uint32_t index = (crc ^ *p) & 255;
        crc = crc >> 8 ^ base[index & 15] ^ table[index >> 4];
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *p,
                                                            size_t n)
{
    uint64_t c = crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = __builtin_ia32_crc32di(c, word);
    }
    for (; n; n--, p++)
        c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return (uint32_t)c;
}
#endif

uint32_t digest_crc32c(uint32_t crc, const void *data, size_t size_bytes)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, size_bytes);
#endif
    return ~crc_portable(~crc, data, size_bytes);
}
