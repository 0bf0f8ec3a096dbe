/* SPDX-License-Identifier: Apache-2.0 */
/* Identity keys of files: signing and checking with OpenSSL. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/clock.h"
#include "outer/identity/tls_own.h"

enum { PATH_BYTES = 4096 };

struct tls_signer {
    struct signer signer;
    char ca[PATH_BYTES], certificate_path[PATH_BYTES], key_path[PATH_BYTES], uri[TLS_URI_MAX];
    pthread_mutex_t mutex; /* guards what follows: files may be replaced while it is used */
    uint64_t stamp;
    EVP_PKEY *key;
    struct signer_key public;
    uint8_t certificate[SIGNER_CERTIFICATE_MAX];
    size_t certificate_bytes;
};

/* ---- one certificate ---- */

/* An identity's, followed by intermediate authorities, DER. */
static enum err der_parse(const uint8_t *der, size_t n, STACK_OF(X509) * *out)
{
    STACK_OF(X509) *list = *out = sk_X509_new_null();
    const unsigned char *at = der, *end = der + n;
    bool ok = list && n;
    while (ok && at < end) {
        X509 *x = d2i_X509(NULL, &at, end - at);
        ok = x && sk_X509_push(list, x) > 0;
        if (x && !ok)
            X509_free(x);
    }
    ERR_clear_error();
    if (ok)
        return ERR_OK;
    sk_X509_pop_free(list, X509_free);
    *out = NULL;
    return err_set(ERR_DENIED, "no identity certificate (%zu bytes)", n);
}

static enum err key_out(const X509 *x, struct signer_key *key)
{
    EVP_PKEY *p = X509_get0_pubkey(x);
    size_t n = sizeof key->bytes;
    bool ok = p && EVP_PKEY_is_a(p, "ED25519") &&
              EVP_PKEY_get_raw_public_key(p, key->bytes, &n) == 1 && n == sizeof key->bytes;
    ERR_clear_error();
    return ok ? ERR_OK : err_set(ERR_DENIED, "the key of an identity is Ed25519, this one is not");
}

static enum err identity_check(STACK_OF(X509) * chain, STACK_OF(X509) * roots, const char *uri,
                               struct signer_identity *out)
{
    struct tls_facts f;
    tls_facts_out(&f, sk_X509_value(chain, 0));
    if (!f.identity || f.authority)
        return err_set(ERR_DENIED,
                       "the certificate of %s is not for identities: atoll cert issue "
                       "makes NAME.identity.pem",
                       uri);
    if (f.uri_count != 1 || strcmp(f.uri, uri) != 0)
        return err_set(ERR_DENIED, "the identity certificate is of %s, and must be of %s",
                       f.uri_count == 1 ? f.uri : "none or several URIs", uri);
    const char *why = roots ? tls_chain_defect(chain, roots, clock_wall_s()) : NULL;
    if (why)
        return err_set(ERR_DENIED, "the identity certificate of %s does not verify: %s", uri, why);
    out->certificate = f.sha256;
    return key_out(sk_X509_value(chain, 0), &out->key);
}

static enum err roots_read(const struct tls_signer *s, STACK_OF(X509) * *roots)
{
    char *text = NULL;
    TRY(tls_pem_read(s->ca, false, &text));
    enum err e = tls_certificates_parse(text, s->ca, roots);
    tls_wipe(&text);
    return e;
}

static enum err signer_certified(struct signer *self, const uint8_t *certificate, size_t n,
                                 const char *uri, struct signer_identity *out)
{
    struct tls_signer *s = (struct tls_signer *)self;
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    TRY(der_parse(certificate, n, &chain));
    enum err e = *s->ca ? roots_read(s, &roots) : ERR_OK; /* a reader may have none */
    if (e == ERR_OK)
        e = identity_check(chain, roots, uri, out);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    return e;
}

/* ---- its own files ---- */

static enum err certificate_out(struct tls_signer *s, STACK_OF(X509) * chain)
{
    s->certificate_bytes = 0;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        unsigned char *at = s->certificate + s->certificate_bytes;
        int n = i2d_X509(sk_X509_value(chain, i), NULL);
        if (n <= 0 || (size_t)n > sizeof s->certificate - s->certificate_bytes)
            return err_set(ERR_INPUT, "%s: more than %d bytes of certificates", s->certificate_path,
                           SIGNER_CERTIFICATE_MAX);
        s->certificate_bytes += (size_t)i2d_X509(sk_X509_value(chain, i), &at);
    }
    return ERR_OK;
}

static enum err own_load(struct tls_signer *s)
{
    char *text = NULL, *key_text = NULL;
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    EVP_PKEY *key = NULL;
    struct signer_identity own;
    TRY(tls_pem_read(s->certificate_path, false, &text));
    enum err e = tls_certificates_parse(text, s->certificate_path, &chain);
    tls_wipe(&text);
    if (e == ERR_OK)
        e = tls_pem_read(s->key_path, true, &key_text);
    if (e == ERR_OK)
        e = tls_key_parse(key_text, s->key_path, &key);
    tls_wipe(&key_text);
    if (e == ERR_OK)
        e = roots_read(s, &roots);
    if (e == ERR_OK) {
        e = identity_check(chain, roots, s->uri, &own);
        e = e == ERR_OK ? e : err_add(e, "%s: ", s->certificate_path);
    }
    if (e == ERR_OK && X509_check_private_key(sk_X509_value(chain, 0), key) != 1)
        e = err_set(ERR_DENIED,
                    "%s: this key does not belong to %s: copy both files of one "
                    "atoll cert issue",
                    s->key_path, s->certificate_path);
    if (e == ERR_OK)
        e = certificate_out(s, chain);
    if (e == ERR_OK) {
        EVP_PKEY_free(s->key);
        s->key = key;
        s->public = own.key;
        key = NULL;
    }
    EVP_PKEY_free(key);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    ERR_clear_error();
    return e;
}

/* Replaced files that do not fit together (yet) leave the former ones in use. */
static void own_renew(struct tls_signer *s)
{
    struct link_tls files = {s->ca, s->certificate_path, s->key_path};
    uint64_t now = tls_stamp(&files);
    if (now == 0 || now == s->stamp)
        return;
    if (own_load(s) == ERR_OK)
        s->stamp = now;
    else
        err_clear();
}

static enum err signer_certificate(struct signer *self, uint8_t out[SIGNER_CERTIFICATE_MAX],
                                   size_t *n)
{
    struct tls_signer *s = (struct tls_signer *)self;
    pthread_mutex_lock(&s->mutex);
    own_renew(s);
    memcpy(out, s->certificate, s->certificate_bytes);
    *n = s->certificate_bytes;
    pthread_mutex_unlock(&s->mutex);
    return ERR_OK;
}

static void signer_key(struct signer *self, struct signer_key *out)
{
    struct tls_signer *s = (struct tls_signer *)self;
    pthread_mutex_lock(&s->mutex);
    *out = s->public;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- signatures: RFC 8032, pure Ed25519 ---- */

static enum err signer_sign(struct signer *self, const void *data, size_t n,
                            uint8_t signature[SIGNER_BYTES])
{
    struct tls_signer *s = (struct tls_signer *)self;
    size_t size = SIGNER_BYTES;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    pthread_mutex_lock(&s->mutex);
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, s->key) == 1 &&
              EVP_DigestSign(ctx, signature, &size, data, n) == 1 && size == SIGNER_BYTES;
    pthread_mutex_unlock(&s->mutex);
    EVP_MD_CTX_free(ctx);
    return ok ? ERR_OK : tls_library_failed("sign");
}

bool tls_signature_holds(const struct signer_key *key, const void *data, size_t n,
                         const uint8_t signature[SIGNER_BYTES])
{
    EVP_PKEY *p =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->bytes, sizeof key->bytes);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool holds = p && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, p) == 1 &&
                 EVP_DigestVerify(ctx, signature, SIGNER_BYTES, data, n) == 1;
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(p);
    ERR_clear_error();
    return holds;
}

static bool signer_verify(struct signer *self, const struct signer_key *key, const void *data,
                          size_t n, const uint8_t signature[SIGNER_BYTES])
{
    (void)self;
    return tls_signature_holds(key, data, n, signature);
}

static void signer_close(struct signer *self)
{
    struct tls_signer *s = (struct tls_signer *)self;
    EVP_PKEY_free(s->key);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static const struct signer_ops ops = {signer_key,       signer_certificate, signer_sign,
                                      signer_certified, signer_verify,      signer_close};

enum err tls_signer_open(struct signer **out, const struct link_tls *files, const char *uri)
{
    size_t n = strlen(files->certificate);
    struct tls_signer *s = *out ? NULL : calloc(1, sizeof *s);
    ASSERT(!*out);
    TRY_ALLOC(s);
    ASSERT(n > 4 && n + 16 < PATH_BYTES && strlen(files->ca) < PATH_BYTES);
    s->signer.ops = &ops;
    snprintf(s->ca, sizeof s->ca, "%s", files->ca);
    snprintf(s->certificate_path, sizeof s->certificate_path, "%.*s.identity.pem", (int)n - 4,
             files->certificate);
    snprintf(s->key_path, sizeof s->key_path, "%.*s.identity.key", (int)n - 4, files->certificate);
    snprintf(s->uri, sizeof s->uri, "%s", uri);
    pthread_mutex_init(&s->mutex, NULL);
    struct link_tls own = {s->ca, s->certificate_path, s->key_path};
    s->stamp = tls_stamp(&own);
    enum err e = own_load(s);
    if (e != ERR_OK)
        signer_close(&s->signer);
    else
        *out = &s->signer;
    return e;
}

enum err tls_reader_open(struct signer **out, const char *ca)
{
    STACK_OF(X509) *roots = NULL;
    ASSERT(!*out);
    if (ca && strlen(ca) >= PATH_BYTES)
        return err_set(ERR_INPUT, "the path of the certificate authority has %zu bytes; at most %d",
                       strlen(ca), PATH_BYTES - 1);
    struct tls_signer *s = calloc(1, sizeof *s);
    TRY_ALLOC(s);
    s->signer.ops = &ops;
    snprintf(s->ca, sizeof s->ca, "%s", ca ? ca : "");
    pthread_mutex_init(&s->mutex, NULL);
    enum err e = ca ? roots_read(s, &roots) : ERR_OK; /* a wrong file is said now */
    sk_X509_pop_free(roots, X509_free);
    if (e != ERR_OK)
        signer_close(&s->signer);
    else
        *out = &s->signer;
    return e;
}
