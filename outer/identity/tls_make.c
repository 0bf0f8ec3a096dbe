/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: making. The small authority of `atoll cert`. */
#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/stat.h>
#include "kernels/base/file.h"
#include "outer/identity/revocation.h"
#include "outer/identity/tls_own.h"

/* P-256: clients built on BoringSSL, gRPC's Python package among them, offer no Ed25519. */
EVP_PKEY *tls_key_make(bool ed25519)
{
    tls_secure_heap();
    return ed25519 ? EVP_PKEY_Q_keygen(NULL, NULL, "ED25519") : EVP_EC_gen("P-256");
}

static bool serial_make(X509 *x)
{
    BIGNUM *n = BN_new(); /* 127 random bits, positive: RFC 5280 allows 20 bytes */
    bool ok = n && BN_rand(n, 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return ok;
}

static bool extension_add(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = extension && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return ok;
}

struct making {
    EVP_PKEY *key, *ca_key;
    X509 *x, *ca; /* self-signed authority: ca == x */
};

static void making_free(struct making *m)
{
    if (m->ca != m->x)
        X509_free(m->ca);
    if (m->ca_key != m->key)
        EVP_PKEY_free(m->ca_key);
    X509_free(m->x);
    EVP_PKEY_free(m->key);
}

static bool certificate_begin(struct making *m, const char *common_name, struct tls_validity v)
{
    X509_NAME *name = X509_get_subject_name(m->x);
    return X509_set_version(m->x, X509_VERSION_3) == 1 && serial_make(m->x) &&
           X509_set_pubkey(m->x, m->key) == 1 &&
           ASN1_TIME_set(X509_getm_notBefore(m->x), (time_t)v.from_unix) &&
           ASN1_TIME_set(X509_getm_notAfter(m->x), (time_t)v.until_unix) &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common_name,
                                      -1, -1, 0) == 1 &&
           X509_set_issuer_name(m->x, X509_get_subject_name(m->ca)) == 1;
}

static bool certificate_sign(struct making *m)
{
    const EVP_MD *md = EVP_PKEY_is_a(m->ca_key, "ED25519")
                           ? NULL
                           : EVP_sha256(); /* Ed25519 includes its own hash */
    return X509_sign(m->x, m->ca_key, md) > 0;
}

/* A directory of keys is its owner's alone, under any umask. */
static enum err keys_mkdirs(const char *directory)
{
    mode_t before = umask(0077);
    enum err e = file_mkdirs(directory);
    umask(before);
    return e;
}

enum err tls_bio_write(BIO *bio, const char *path, unsigned mode)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    struct file_part part = {data, (size_t)n};
    return file_write(path, &part, 1, mode);
}

static enum err certificate_write(const struct making *m, const char *directory, const char *name)
{
    char path[4096];
    BIO *certificate = BIO_new(BIO_s_mem());
    bool ok = certificate && PEM_write_bio_X509(certificate, m->x) == 1;
    snprintf(path, sizeof path, "%s/%s.pem", directory, name);
    enum err e =
        ok ? tls_bio_write(certificate, path, 0644) : tls_library_failed("write a certificate");
    BIO_free(certificate);
    return e;
}

/* The certificate's text as the answer to a request. */
static enum err answer_write(const struct making *m, char *answer)
{
    BIO *certificate = BIO_new(BIO_s_mem());
    char *data = NULL;
    bool ok = certificate && PEM_write_bio_X509(certificate, m->x) == 1;
    long n = ok ? BIO_get_mem_data(certificate, &data) : 0;
    ok = ok && n > 0 && n < TLS_PEM_MAX;
    if (ok) {
        memcpy(answer, data, (size_t)n);
        answer[n] = 0;
    }
    BIO_free(certificate);
    return ok ? ERR_OK : tls_library_failed("write the certificate");
}

/* The key first. */
static enum err pair_write(const struct making *m, const char *directory, const char *name)
{
    char path[4096];
    BIO *key = BIO_new(BIO_s_secmem());
    bool ok = key && PEM_write_bio_PKCS8PrivateKey(key, m->key, NULL, NULL, 0, NULL, NULL) == 1;
    enum err e = ok ? keys_mkdirs(directory) : tls_library_failed("write a key");
    snprintf(path, sizeof path, "%s/%s.key", directory, name);
    if (e == ERR_OK)
        e = tls_bio_write(key, path, 0600);
    BIO_free(key);
    return e == ERR_OK ? certificate_write(m, directory, name) : e;
}

static bool authority_sign(struct making *m, const char *common_name, const char *run,
                           struct tls_validity v)
{
    char uri[TLS_URI_MAX];
    snprintf(uri, sizeof uri, "URI:atoll://%s/authority", run);
    return m->key && m->x && certificate_begin(m, common_name, v) &&
           extension_add(m->x, m->x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           extension_add(m->x, m->x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           extension_add(m->x, m->x, NID_subject_key_identifier, "hash") &&
           extension_add(m->x, m->x, NID_subject_alt_name, uri) && certificate_sign(m);
}

static struct making authority_begin(bool ed25519)
{
    struct making m = {.key = tls_key_make(ed25519), .x = X509_new()};
    m.ca = m.x;
    m.ca_key = m.key;
    return m;
}

enum err tls_authority(const char *directory, const char *run, bool ed25519, struct tls_validity v)
{
    char path[4096], common_name[2 * TLS_NAME_MAX];
    if (!tls_name_ok(run))
        return err_set(ERR_CONFIG, "run name '%s': 1 to 63 letters, digits, '-', '_' or '.'", run);
    snprintf(path, sizeof path, "%s/ca.key", directory);
    if (file_exists(path))
        return err_set(ERR_INPUT,
                       "%s: there is an authority already; all issued certificates depend on it: "
                       "use another directory, "
                       "or remove the file first",
                       path);
    struct making m = authority_begin(ed25519);
    snprintf(common_name, sizeof common_name, "atoll %.58s",
             run); /* X.520: a common name has at most 64 characters */
    enum err e = authority_sign(&m, common_name, run, v)
                     ? pair_write(&m, directory, "ca")
                     : tls_library_failed("make the authority's certificate");
    making_free(&m);
    return e;
}

/* The certificate in ca.pem that ca.key belongs to; during a roll there are several. */
static enum err authority_match(struct making *m, const char *text, const char *path)
{
    STACK_OF(X509) *roots = NULL;
    TRY(tls_certificates_parse(text, path, &roots));
    for (int i = 0; i < sk_X509_num(roots) && !m->ca; i++) {
        X509 *x = sk_X509_value(roots, i);
        if (X509_check_private_key(x, m->ca_key) == 1 && X509_up_ref(x) == 1)
            m->ca = x;
    }
    sk_X509_pop_free(roots, X509_free);
    ERR_clear_error();
    return m->ca ? ERR_OK
                 : err_set(ERR_INPUT, "%s: the key next to it belongs to none of its certificates",
                           path);
}

static enum err authority_key_read(struct making *m, const char *directory)
{
    char path[4096], *text = NULL;
    snprintf(path, sizeof path, "%s/ca.key", directory);
    TRY(tls_pem_read(path, true, &text));
    enum err e = tls_key_parse(text, path, &m->ca_key);
    tls_wipe(&text);
    return e;
}

/* *bundle: the text of ca.pem, for tls_wipe(); NULL: not wanted. */
static enum err authority_read(struct making *m, const char *directory, char run[TLS_NAME_MAX],
                               char **bundle)
{
    char path[4096], *text = NULL;
    struct tls_facts f;
    int end = 0;
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    TRY(tls_pem_read(path, false, &text));
    enum err e = authority_key_read(m, directory);
    if (e == ERR_OK)
        e = authority_match(m, text, path);
    if (e == ERR_OK) {
        tls_facts_out(&f, m->ca);
        if (sscanf(f.uri, "atoll://%63[^/]/authority%n", run, &end) != 1 || end == 0 ||
            f.uri[end] != 0 || !tls_name_ok(run))
            e = err_set(ERR_INPUT, "%s: not made by atoll cert authority: it names no run", path);
    }
    if (e == ERR_OK && bundle)
        *bundle = text;
    else
        tls_wipe(&text);
    return e;
}

/* ca.pem first: in between, ca.key still belongs to one of its certificates. */
static enum err roll_write(const struct making *m, const char *directory, const char *bundle)
{
    char path[4096];
    BIO *key = BIO_new(BIO_s_secmem()), *certificate = BIO_new(BIO_s_mem());
    bool ok = key && certificate &&
              PEM_write_bio_PKCS8PrivateKey(key, m->key, NULL, NULL, 0, NULL, NULL) == 1 &&
              PEM_write_bio_X509(certificate, m->x) == 1 && BIO_puts(certificate, bundle) > 0;
    enum err e = ok ? ERR_OK : tls_library_failed("write key and certificate");
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    if (e == ERR_OK)
        e = tls_bio_write(certificate, path, 0644);
    snprintf(path, sizeof path, "%s/ca.key", directory);
    if (e == ERR_OK)
        e = tls_bio_write(key, path, 0600);
    BIO_free(key);
    BIO_free(certificate);
    return e;
}

enum err tls_authority_roll(const char *directory, struct tls_validity v)
{
    char run[TLS_NAME_MAX], common_name[2 * TLS_NAME_MAX], day[16] = "", *bundle = NULL;
    struct making old = {0};
    struct tm tm;
    time_t from = (time_t)v.from_unix;
    enum err e = authority_read(&old, directory, run, &bundle);
    if (e == ERR_OK) {
        struct making m = authority_begin(EVP_PKEY_is_a(old.ca_key, "ED25519"));
        if (gmtime_r(&from, &tm))
            strftime(day, sizeof day, " %Y%m%d", &tm);
        snprintf(common_name, sizeof common_name, "atoll %.48s%s", run, day);
        e = authority_sign(&m, common_name, run, v)
                ? roll_write(&m, directory, bundle)
                : tls_library_failed("make the authority's certificate");
        making_free(&m);
    }
    tls_wipe(&bundle);
    making_free(&old);
    return e;
}

enum err tls_authority_retire(const char *directory)
{
    char run[TLS_NAME_MAX], path[4096];
    struct making m = {0};
    enum err e = authority_read(&m, directory, run, NULL);
    BIO *certificate = e == ERR_OK ? BIO_new(BIO_s_mem()) : NULL;
    if (e == ERR_OK && !(certificate && PEM_write_bio_X509(certificate, m.ca) == 1))
        e = tls_library_failed("write a certificate");
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    if (e == ERR_OK)
        e = tls_bio_write(certificate, path, 0644);
    BIO_free(certificate);
    making_free(&m);
    return e;
}

/* "URI:atoll://run/role/name,DNS:host,IP:address". Hosts cannot contain a comma, so a host cannot
 * add a second name. */
static enum err names_text(char *out, size_t size, const struct tls_request *r, const char *uri)
{
    size_t n = (size_t)snprintf(out, size, "URI:%s", uri);
    for (size_t i = 0; i < r->host_count; i++) {
        const char *host = r->hosts[i];
        struct in6_addr address;
        bool ip =
            inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
        if (!ip && (!tls_name_ok(host) || strchr(host, '_')))
            return err_set(ERR_CONFIG, "--host %s: neither an IP address nor a DNS name", host);
        n += (size_t)snprintf(out + n, size - n, ",%s:%s", ip ? "IP" : "DNS", host);
        if (n >= size)
            return err_set(ERR_CONFIG, "too many hosts for one certificate");
    }
    return ERR_OK;
}

/* An aggregator is also a client of its own port, to check that the port answers. Its URI has the
 * aggregator's role, so its own calls never count as a site's. */
static enum err leaf_make(struct making *m, const struct tls_request *r, const char *run,
                          const char *uri)
{
    char names[2048];
    TRY(names_text(names, sizeof names, r, uri));
    if (tls_time_out(X509_get0_notAfter(m->ca)) < r->validity.until_unix)
        return err_set(ERR_CONFIG,
                       "the authority of run %s expires before that: use fewer --days, or make a "
                       "new authority",
                       run);
    if (r->renewal && EVP_PKEY_up_ref(r->renewal->key) == 1)
        m->key = r->renewal->key;
    else if (!r->renewal)
        m->key = tls_key_make(r->ed25519);
    m->x = X509_new();
    bool ok = m->key && m->x && certificate_begin(m, r->name, r->validity) &&
              extension_add(m->x, m->ca, NID_basic_constraints, "critical,CA:FALSE") &&
              extension_add(m->x, m->ca, NID_key_usage, "critical,digitalSignature") &&
              extension_add(m->x, m->ca, NID_ext_key_usage,
                            r->role == TLS_AGGREGATOR ? "serverAuth,clientAuth" : "clientAuth") &&
              extension_add(m->x, m->ca, NID_authority_key_identifier, "keyid:always") &&
              extension_add(m->x, m->ca, NID_subject_alt_name, names) && certificate_sign(m);
    return ok ? ERR_OK : tls_library_failed("make the certificate");
}

/* ---- identity ---- */

/* The certificate of the identity that was issued before, if its key stays in use; *x NULL: it does
 * not. A revoked one does not. */
static enum err identity_find(const struct tls_request *r, const char *uri, X509 **x)
{
    char path[4096], hex[65], entry[REVOCATION_ENTRY_MAX], *text = NULL;
    struct tls_facts f;
    STACK_OF(X509) *list = NULL;
    bool revoked = false;
    *x = NULL;
    snprintf(path, sizeof path, "%s/%s.identity.pem", r->identity ? r->identity : r->out, r->name);
    if (r->identity_new || !file_exists(path))
        return ERR_OK;
    TRY(tls_pem_read(path, false, &text));
    enum err e = tls_certificates_parse(text, path, &list);
    tls_wipe(&text);
    TRY(e);
    tls_facts_out(&f, sk_X509_value(list, 0));
    digest_hex(&f.sha256, hex);
    snprintf(entry, sizeof entry, "sha256:%s", hex);
    e = revocation_listed(r->directory, entry, &revoked);
    bool fits = f.identity && f.uri_count == 1 && strcmp(f.uri, uri) == 0;
    if (e == ERR_OK && !fits)
        e = err_set(ERR_INPUT, "%s: is not the identity of %s: remove it, or name the right one",
                    path, uri);
    if (e == ERR_OK && !revoked && X509_up_ref(sk_X509_value(list, 0)) == 1)
        *x = sk_X509_value(list, 0);
    sk_X509_pop_free(list, X509_free);
    return e;
}

/* Content commitment alone, and an extended usage of its own: neither end of TLS takes it. */
static enum err identity_sign(struct making *m, const struct tls_request *r, const char *uri)
{
    char name[TLS_URI_MAX + 8];
    struct tls_validity v = {r->validity.from_unix, tls_time_out(X509_get0_notAfter(m->ca))};
    snprintf(name, sizeof name, "URI:%s", uri);
    m->x = X509_new();
    bool ok = m->key && m->x && certificate_begin(m, r->name, v) &&
              extension_add(m->x, m->ca, NID_basic_constraints, "critical,CA:FALSE") &&
              extension_add(m->x, m->ca, NID_key_usage, "critical,nonRepudiation") &&
              extension_add(m->x, m->ca, NID_ext_key_usage, "critical," TLS_IDENTITY_USAGE) &&
              extension_add(m->x, m->ca, NID_authority_key_identifier, "keyid:always") &&
              extension_add(m->x, m->ca, NID_subject_alt_name, name) && certificate_sign(m);
    return ok ? ERR_OK : tls_library_failed("make the identity certificate");
}

/* The private key of an identity that stays in use, where it is at hand. */
static enum err identity_key_copy(const struct tls_request *r)
{
    char from[4096], to[4096], *text = NULL;
    snprintf(from, sizeof from, "%s/%s.identity.key", r->identity ? r->identity : r->out, r->name);
    snprintf(to, sizeof to, "%s/%s.identity.key", r->out, r->name);
    if (strcmp(from, to) == 0 || !file_exists(from))
        return ERR_OK;
    TRY(keys_mkdirs(r->out));
    TRY(tls_pem_read(from, true, &text));
    struct file_part part = {text, strlen(text)};
    enum err e = file_write(to, &part, 1, 0600);
    tls_wipe(&text);
    return e;
}

static enum err identity_make(const struct making *leaf, const struct tls_request *r,
                              const char *uri)
{
    char file[TLS_NAME_MAX + 16];
    struct making m = {.ca = leaf->ca, .ca_key = leaf->ca_key};
    X509 *before = NULL;
    snprintf(file, sizeof file, "%s.identity", r->name);
    enum err e = identity_find(r, uri, &before);
    if (e == ERR_OK)
        m.key = before ? X509_get_pubkey(before) : tls_key_make(true);
    if (e == ERR_OK)
        e = identity_sign(&m, r, uri);
    if (e == ERR_OK && before) {
        e = identity_key_copy(r);
        e = e == ERR_OK ? keys_mkdirs(r->out) : e;
        e = e == ERR_OK ? certificate_write(&m, r->out, file) : e;
    } else if (e == ERR_OK) {
        e = pair_write(&m, r->out, file);
    }
    X509_free(before);
    X509_free(m.x);
    EVP_PKEY_free(m.key);
    return e;
}

/* A separate output directory, to be copied to a site, also gets the authority's certificate, never
 * its key. */
static enum err authority_copy(const struct tls_request *r)
{
    char from[4096], to[4096], *text = NULL;
    snprintf(from, sizeof from, "%s/ca.pem", r->directory);
    snprintf(to, sizeof to, "%s/ca.pem", r->out);
    TRY(tls_pem_read(from, false, &text));
    struct file_part part = {text, strlen(text)};
    enum err e = file_write(to, &part, 1, 0644);
    tls_wipe(&text);
    return e;
}

enum err tls_issue(const struct tls_request *r)
{
    char run[TLS_NAME_MAX], uri[TLS_URI_MAX];
    size_t n = strlen(r->name), end = strlen(".identity");
    if (!tls_name_ok(r->name) || strcmp(r->name, "ca") == 0 ||
        (n > end && strcmp(r->name + n - end, ".identity") == 0))
        return err_set(ERR_CONFIG,
                       "name '%s': 1 to 63 letters, digits, '-', '_' or '.', not 'ca', and not "
                       "with .identity at its end",
                       r->name);
    if (r->role == TLS_AGGREGATOR && r->host_count == 0)
        return err_set(ERR_CONFIG,
                       "an aggregator needs --host: the DNS names and addresses that sites dial");
    struct making m = {0};
    bool revoked = false;
    enum err e = authority_read(&m, r->directory, run, NULL);
    if (e == ERR_OK) {
        tls_uri_make(uri, run, r->role, r->name);
        e = revocation_listed(r->directory, uri, &revoked);
    }
    if (e == ERR_OK && revoked)
        e = err_set(
            ERR_CONFIG,
            "%s is in %s/revoked.txt and would be refused: use another name, or remove that line",
            uri, r->directory);
    if (e == ERR_OK)
        e = leaf_make(&m, r, run, uri);
    if (e == ERR_OK && !r->renewal && tls_role_signs(r->role))
        e = identity_make(&m, r, uri);
    if (e == ERR_OK && r->renewal)
        e = answer_write(&m, r->answer);
    else if (e == ERR_OK)
        e = pair_write(&m, r->out, r->name);
    if (e == ERR_OK && !r->renewal && strcmp(r->out, r->directory) != 0)
        e = authority_copy(r);
    making_free(&m);
    return e;
}
