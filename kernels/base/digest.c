/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/digest.h"
#include <openssl/evp.h>
#include <pthread.h>
#include "kernels/base/err.h"

/* libcrypto fails here only without memory or without SHA-256: the process stops. */
static EVP_MD *sha256_md; /* lives as long as the process */

static void sha256_fetch(void)
{
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
    ASSERT(sha256_md);
}

/* Fetched once: calls with EVP_sha256() look the algorithm up each time, which costs more than the
 * digest of a short text. */
static const EVP_MD *sha256(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ASSERT(pthread_once(&once, sha256_fetch) == 0);
    return sha256_md;
}

struct digest digest_of(const void *data, size_t size_bytes)
{
    struct digest d;
    unsigned length = 0;
    ASSERT(EVP_Digest(size_bytes ? data : "", size_bytes, d.bytes, &length, sha256(), NULL) == 1);
    ASSERT(length == sizeof d.bytes);
    return d;
}

void digest_open(struct digest_stream *s)
{
    s->ctx = EVP_MD_CTX_new();
    ASSERT(s->ctx);
    ASSERT(EVP_DigestInit_ex(s->ctx, sha256(), NULL) == 1);
}

void digest_add(struct digest_stream *s, const void *data, size_t size_bytes)
{
    ASSERT(s->ctx);
    if (size_bytes)
        ASSERT(EVP_DigestUpdate(s->ctx, data, size_bytes) == 1);
}

struct digest digest_close(struct digest_stream *s)
{
    struct digest d;
    ASSERT(s->ctx);
    ASSERT(EVP_DigestFinal_ex(s->ctx, d.bytes, NULL) == 1);
    EVP_MD_CTX_free(s->ctx);
    s->ctx = NULL;
    return d;
}
