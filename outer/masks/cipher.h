/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CIPHER_H
#define CIPHER_H
/* The ciphers of secure aggregation: X25519 (RFC 7748), HKDF-SHA256 (RFC 5869) and the ChaCha20 key
 * stream (RFC 8439), by OpenSSL. cipher.c is the only file of outer/masks that includes OpenSSL.
 * Signatures are not here: identity keys sign through the seam outer/protocol/signer.h.
 *
 * Any thread; nothing blocks. The owner of a cipher_key wipes it.
 */
#include <stddef.h>
#include <stdint.h>
#include "kernels/base/err.h"

enum {
    CIPHER_KEY_BYTES = 32,
    CIPHER_BLOCK_BYTES = 64, /* of ChaCha20: the key stream can be entered at multiples of it */
    CIPHER_INFO_MAX = 256
};
#define CIPHER_STREAM_MAX                                                                          \
    (1ull << 38) /* bytes of one key's stream: the block counter has 32 bit                        \
                  */

struct cipher_key { /* secret */
    uint8_t bytes[CIPHER_KEY_BYTES];
};
struct cipher_public { /* u-coordinate of a point of Curve25519 */
    uint8_t bytes[CIPHER_KEY_BYTES];
};

/* Memory for secrets, zeroed: in OpenSSL's locked heap where the process has opened it (tls.c does,
 * before it reads the first key), else ordinary memory. NULL: err_set done. Free wipes it. */
void *cipher_secret_alloc(size_t bytes) MUST;
void cipher_secret_free(void *p, size_t bytes); /* NULL is fine */
void cipher_wipe(void *p, size_t bytes);

enum err cipher_x25519_public(struct cipher_public *out, const struct cipher_key *own) MUST;
/* The shared secret. ERR_DENIED: `other` is a point of low order, so the secret would be zero for
 * every key (RFC 7748, 6.1). */
enum err cipher_x25519(struct cipher_key *shared, const struct cipher_key *own,
                       const struct cipher_public *other) MUST;

/* RFC 5869, 2.2 and 2.3. expand: at most 255 * 32 bytes of output, CIPHER_INFO_MAX of info. */
void cipher_hkdf_extract(struct cipher_key *prk, const void *salt, size_t salt_bytes,
                         const void *ikm, size_t ikm_bytes);
void cipher_hkdf_expand(void *out, size_t out_bytes, const struct cipher_key *prk, const void *info,
                        size_t info_bytes);

struct cipher_stream { /* one key's stream, read front to back; nonce 0 */
    void *ctx;
};
/* from_block: the first block of CIPHER_BLOCK_BYTES. */
enum err cipher_stream_open(struct cipher_stream *s, const struct cipher_key *key,
                            uint32_t from_block) MUST;
void cipher_stream_read(struct cipher_stream *s, uint8_t *out, size_t bytes);
void cipher_stream_close(struct cipher_stream *s); /* wipes; a zeroed stream is fine */
/* The stream under any 12-byte nonce: for the vectors of RFC 8439. */
enum err cipher_stream_open_at(struct cipher_stream *s, const struct cipher_key *key,
                               uint32_t from_block, const uint8_t nonce[12]) MUST;

#endif
