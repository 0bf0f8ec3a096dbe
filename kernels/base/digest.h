/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DIGEST_H
#define DIGEST_H
/* SHA-256 (OpenSSL libcrypto; besides it only outer/identity/tls*.c and outer/masks/cipher.c
 * include OpenSSL) and CRC-32C (own, table or SSE4.2). Digests name states, payloads, manifests and
 * configurations.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest {
    uint8_t bytes[32];
};
struct digest_stream { /* incremental digest */
    void *ctx;
};

struct digest digest_of(const void *data, size_t size_bytes);
void digest_open(struct digest_stream *s);
void digest_add(struct digest_stream *s, const void *data, size_t size_bytes);
struct digest digest_close(struct digest_stream *s); /* s may be opened again */
bool digest_equal(const struct digest *a, const struct digest *b);
bool digest_zero(const struct digest *d);
void digest_hex(const struct digest *d, char out[65]);
bool digest_hex_read(struct digest *out, const char text[64]); /* what digest_hex writes */
bool digest_is_hex(const char *text);             /* exactly 64 hexadecimal characters */
void digest_random(void *out, size_t size_bytes); /* operating system's random bytes */

/* crc of "123456789" = 0xe3069283; pass 0 first, then the previous result. */
uint32_t digest_crc32c(uint32_t crc, const void *data, size_t size_bytes);

#endif
