/* SPDX-License-Identifier: Apache-2.0 */
/* The names in a certificate: the bytes are the value of its subjectAltName extension. Compared
 * with a reader of DER of its own: how many URIs there are, and what the first one says. OpenSSL
 * also takes forms that DER does not have (indefinite lengths); these are not compared. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include "outer/identity/tls.h"
#include "tests/fuzz/fuzz.h"

struct slow {
    unsigned uris;
    char first[TLS_URI_MAX]; /* "" where it has a zero byte or is too long */
};

/* Length of the element after its tag; false: not one that DER allows, or it does not fit. */
static bool der_length(const uint8_t **at, const uint8_t *end, size_t *n)
{
    if (*at == end)
        return false;
    uint8_t first = *(*at)++;
    *n = first & 0x7f;
    if (first & 0x80) {
        unsigned count = first & 0x7f;
        if (count == 0 || count > 3 || (size_t)(end - *at) < count)
            return false;
        for (*n = 0; count--; (*at)++)
            *n = *n << 8 | **at;
    }
    return *n <= (size_t)(end - *at);
}

/* GeneralNames: a sequence of names; a URI has the context tag 6. False: not as simple as that. */
static bool slow_read(struct slow *s, const uint8_t *data, size_t size)
{
    const uint8_t *at = data + 1, *end = data + size;
    size_t n;
    *s = (struct slow){.uris = 0};
    if (size < 2 || data[0] != 0x30 || !der_length(&at, end, &n))
        return false;
    end = at + n;
    while (at < end) {
        uint8_t tag = *at++;
        if ((tag & 0x1f) == 0x1f || tag == 0xa6 || !der_length(&at, end, &n))
            return false;
        if (tag == 0x86 && s->uris++ == 0 && n < TLS_URI_MAX && !memchr(at, 0, n))
            memcpy(s->first, at, n);
        at += n;
    }
    return true;
}

static char *certificate_with(const uint8_t *data, size_t size, EVP_PKEY *key)
{
    X509 *x = X509_new();
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    ASSERT(x && value && ASN1_OCTET_STRING_set(value, data, (int)size) == 1);
    X509_EXTENSION *e = X509_EXTENSION_create_by_NID(NULL, NID_subject_alt_name, 0, value);
    X509_set_version(x, X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 60);
    ASSERT(e && X509_add_ext(x, e, -1) == 1 && X509_set_pubkey(x, key) == 1 &&
           X509_sign(x, key, NULL) > 0);
    BIO *b = BIO_new(BIO_s_mem());
    char *text, *copy;
    ASSERT(b && PEM_write_bio_X509(b, x) == 1);
    long n = BIO_get_mem_data(b, &text);
    copy = strndup(text, (size_t)n);
    ASSERT(copy);
    BIO_free(b);
    X509_EXTENSION_free(e);
    ASN1_OCTET_STRING_free(value);
    X509_free(x);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    static EVP_PKEY *key;
    struct tls_facts f;
    struct slow s;
    if (!key)
        key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    ASSERT(key);
    if (size_bytes > 30000) /* a certificate of TLS_PEM_MAX */
        return 0;
    char *pem = certificate_with(data, size_bytes, key);
    if (tls_facts_of(&f, pem, "fuzz") == ERR_OK && f.uri_count && slow_read(&s, data, size_bytes))
        ASSERT(f.uri_count == s.uris && strcmp(f.uri, s.first) == 0);
    free(pem);
    return 0;
}
