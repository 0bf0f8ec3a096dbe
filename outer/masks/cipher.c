/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/masks/cipher.h"
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "kernels/base/handover.h"

/* ---- secrets in memory ---- */

/* The heap is under OpenSSL's lock, which ThreadSanitizer does not see. */
static char secret_heap;

void *cipher_secret_alloc(size_t bytes)
{
    void *p = OPENSSL_secure_zalloc(bytes);
    HANDOVER_TAKE(&secret_heap);
    if (!p)
        (void)err_set(ERR_MEMORY,
                      "%zu bytes of locked memory for the keys of secure aggregation: "
                      "fewer sites or fragments, or a larger locked heap",
                      bytes);
    return p;
}

void cipher_secret_free(void *p, size_t bytes)
{
    HANDOVER_GIVE(&secret_heap);
    OPENSSL_secure_clear_free(p, bytes);
}

void cipher_wipe(void *p, size_t bytes)
{
    OPENSSL_cleanse(p, bytes);
}

/* ---- algorithms: looked up once, since a look-up costs more than an HMAC ---- */

static EVP_KDF *hkdf_kdf;
static EVP_CIPHER *chacha20_cipher; /* both live as long as the process */

static void algorithms_fetch(void)
{
    hkdf_kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    chacha20_cipher = EVP_CIPHER_fetch(NULL, "ChaCha20", NULL);
    ASSERT(hkdf_kdf);
    ASSERT(chacha20_cipher);
}

static void algorithms(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ASSERT(pthread_once(&once, algorithms_fetch) == 0);
}

/* ---- X25519 ---- */

static EVP_PKEY *x25519_own(const struct cipher_key *own)
{
    return EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, own->bytes, sizeof own->bytes);
}

enum err cipher_x25519_public(struct cipher_public *out, const struct cipher_key *own)
{
    EVP_PKEY *key = x25519_own(own);
    size_t n = sizeof out->bytes;
    bool ok = key && EVP_PKEY_get_raw_public_key(key, out->bytes, &n) == 1;
    EVP_PKEY_free(key);
    ERR_clear_error();
    return ok ? ERR_OK : err_set(ERR_MEMORY, "X25519: OpenSSL has no memory");
}

static bool all_zero(const uint8_t *p, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++)
        any = (uint8_t)(any | p[i]);
    return any == 0;
}

/* OpenSSL's derive fails on a zero secret; our own check holds for any OpenSSL. */
enum err cipher_x25519(struct cipher_key *shared, const struct cipher_key *own,
                       const struct cipher_public *other)
{
    EVP_PKEY *key = x25519_own(own), *peer = EVP_PKEY_new_raw_public_key(
                                         EVP_PKEY_X25519, NULL, other->bytes, sizeof other->bytes);
    EVP_PKEY_CTX *ctx = key ? EVP_PKEY_CTX_new(key, NULL) : NULL;
    size_t n = sizeof shared->bytes;
    bool ready = peer && ctx && EVP_PKEY_derive_init(ctx) == 1 &&
                 EVP_PKEY_derive_set_peer_ex(ctx, peer, 0) == 1;
    bool ok = ready && EVP_PKEY_derive(ctx, shared->bytes, &n) == 1 &&
              !all_zero(shared->bytes, sizeof shared->bytes);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(key);
    ERR_clear_error();
    if (ok)
        return ERR_OK;
    cipher_wipe(shared, sizeof *shared);
    return ready ? err_set(ERR_DENIED, "x25519_low_order: the public key is a point of low order")
                 : err_set(ERR_MEMORY, "X25519: OpenSSL has no memory");
}

/* ---- HKDF ---- */

static void hkdf_run(void *out, size_t out_bytes, const OSSL_PARAM *params)
{
    algorithms();
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(hkdf_kdf);
    ASSERT(ctx); /* as in digest.c: fails only without memory */
    ASSERT(EVP_KDF_derive(ctx, out, out_bytes, params) == 1);
    EVP_KDF_CTX_free(ctx);
}

/* OSSL_PARAM takes no pointer to const, and does not write there. */
static OSSL_PARAM octets(const char *name, const void *data, size_t n)
{
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)(n ? data : ""), n);
}

void cipher_hkdf_extract(struct cipher_key *prk, const void *salt, size_t salt_bytes,
                         const void *ikm, size_t ikm_bytes)
{
    int mode = EVP_KDF_HKDF_MODE_EXTRACT_ONLY;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        octets(OSSL_KDF_PARAM_SALT, salt, salt_bytes), octets(OSSL_KDF_PARAM_KEY, ikm, ikm_bytes),
        OSSL_PARAM_construct_end()};
    hkdf_run(prk->bytes, sizeof prk->bytes, params);
}

void cipher_hkdf_expand(void *out, size_t out_bytes, const struct cipher_key *prk, const void *info,
                        size_t info_bytes)
{
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    ASSERT(info_bytes <= CIPHER_INFO_MAX);
    ASSERT(out_bytes > 0 && out_bytes <= 255 * sizeof prk->bytes);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        octets(OSSL_KDF_PARAM_KEY, prk->bytes, sizeof prk->bytes),
        octets(OSSL_KDF_PARAM_INFO, info, info_bytes), OSSL_PARAM_construct_end()};
    hkdf_run(out, out_bytes, params);
}

/* ---- ChaCha20 ---- */

/* OpenSSL's IV is the block counter, little-endian, and the nonce after it. */
enum err cipher_stream_open_at(struct cipher_stream *s, const struct cipher_key *key,
                               uint32_t from_block, const uint8_t nonce[12])
{
    uint8_t iv[16] = {(uint8_t)from_block, (uint8_t)(from_block >> 8), (uint8_t)(from_block >> 16),
                      (uint8_t)(from_block >> 24)};
    memcpy(iv + 4, nonce, 12);
    algorithms();
    s->ctx = EVP_CIPHER_CTX_new();
    if (s->ctx && EVP_EncryptInit_ex2(s->ctx, chacha20_cipher, key->bytes, iv, NULL) == 1)
        return ERR_OK;
    cipher_stream_close(s);
    return err_set(ERR_MEMORY, "ChaCha20: OpenSSL has no memory");
}

enum err cipher_stream_open(struct cipher_stream *s, const struct cipher_key *key,
                            uint32_t from_block)
{
    static const uint8_t nonce[12];
    return cipher_stream_open_at(s, key, from_block, nonce);
}

void cipher_stream_read(struct cipher_stream *s, uint8_t *out, size_t bytes)
{
    int n = 0;
    ASSERT(s->ctx);
    ASSERT(bytes <= INT_MAX);
    memset(out, 0, bytes); /* what is encrypted: the key stream itself comes out */
    ASSERT(EVP_EncryptUpdate(s->ctx, out, &n, out, (int)bytes) == 1);
    ASSERT((size_t)n == bytes);
}

void cipher_stream_close(struct cipher_stream *s)
{
    EVP_CIPHER_CTX_free(s->ctx); /* cleanses the key */
    s->ctx = NULL;
}
