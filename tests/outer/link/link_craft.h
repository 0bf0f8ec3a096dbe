/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINK_CRAFT_H
#define LINK_CRAFT_H
/* Certificates that `atoll cert` would never make, and TLS clients and servers that gRPC would
 * never be: OpenSSL by hand. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include "tests/outer/link/link_fake.h"

struct craft {
    const char *name;        /* NAME.pem and NAME.key in the scratch directory */
    const char *ca;          /* CA.pem and CA.key there */
    const char *san, *eku;   /* NULL: none */
    int64_t from_s, until_s; /* from now */
};

static inline X509 *craft_ca(const char *name, EVP_PKEY **key)
{
    char file[96];
    snprintf(file, sizeof file, "%s.pem", name);
    FILE *f = fopen(scratch(file), "r");
    assert_non_null(f);
    X509 *x = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    snprintf(file, sizeof file, "%s.key", name);
    f = fopen(scratch(file), "r");
    assert_non_null(f);
    *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    assert_true(x && *key);
    return x;
}

static inline void craft_add(X509 *x, int nid, const char *value)
{
    X509_EXTENSION *e = value ? X509V3_EXT_conf_nid(NULL, NULL, nid, value) : NULL;
    assert_true(!value || (e && X509_add_ext(x, e, -1) == 1));
    X509_EXTENSION_free(e);
}

static inline void craft(const struct craft *c)
{
    EVP_PKEY *ca_key, *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    X509 *ca = craft_ca(c->ca, &ca_key), *x = X509_new();
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 77);
    X509_gmtime_adj(X509_getm_notBefore(x), c->from_s);
    X509_gmtime_adj(X509_getm_notAfter(x), c->until_s);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"atoll://test/site/a", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(ca));
    craft_add(x, NID_subject_alt_name, c->san);
    craft_add(x, NID_ext_key_usage, c->eku);
    assert_true(X509_sign(x, ca_key, NULL) > 0);
    char file[96];
    snprintf(file, sizeof file, "%s.pem", c->name);
    FILE *f = fopen(scratch(file), "w");
    assert_true(f && PEM_write_X509(f, x) == 1 && fclose(f) == 0);
    snprintf(file, sizeof file, "%s.key", c->name);
    f = fopen(scratch(file), "w");
    assert_true(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                fchmod(fileno(f), 0600) == 0 && fclose(f) == 0);
    X509_free(x);
    X509_free(ca);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
}

/* A context that is not bound by the process's TLS 1.3. name NULL: shows no certificate. */
static inline SSL_CTX *craft_context(const SSL_METHOD *method, int lowest, int highest,
                                     const char *name)
{
    SSL_CTX *ctx = SSL_CTX_new(method);
    assert_non_null(ctx);
    SSL_CTX_clear_options(ctx, SSL_OP_NO_TLSv1_3 | SSL_OP_NO_TLSv1_2 | SSL_OP_NO_TLSv1_1 |
                                   SSL_OP_NO_TLSv1 | SSL_OP_NO_TICKET);
    assert_true(SSL_CTX_set_min_proto_version(ctx, lowest) &&
                SSL_CTX_set_max_proto_version(ctx, highest));
    if (name) {
        char file[96];
        snprintf(file, sizeof file, "%s.pem", name);
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, scratch(file), SSL_FILETYPE_PEM), 1);
        snprintf(file, sizeof file, "%s.key", name);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, scratch(file), SSL_FILETYPE_PEM), 1);
    }
    return ctx;
}

static inline int craft_connect(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 3};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static inline int craft_listen(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

#endif
