/* SPDX-License-Identifier: Apache-2.0 */
/* Renewal on a machine that does not have the authority's key: request, answer, put in place. */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include "kernels/base/file.h"
#include "outer/identity/tls_own.h"

static const char SIGNATURE[] = "ATOLL RENEWAL SIGNATURE", SIGNED[] = "atoll renewal 1\n";
enum { SIGNED_BYTES_MAX = 1 << 13, SIGNATURE_BYTES_MAX = 512 };

/* What the present key signs: the version, the time's line, the request. 0: too long. */
static size_t signed_text(uint8_t *out, const char *header, X509_REQ *request)
{
    uint8_t *der = NULL;
    size_t version = strlen(SIGNED), time = strlen(header);
    int n = i2d_X509_REQ(request, &der);
    bool ok = n > 0 && version + time + (size_t)n <= SIGNED_BYTES_MAX;
    if (ok) {
        memcpy(out, SIGNED, version);
        memcpy(out + version, header, time);
        memcpy(out + version + time, der, (size_t)n);
    }
    OPENSSL_free(der);
    return ok ? version + time + (size_t)n : 0;
}

static const EVP_MD *digest_for(EVP_PKEY *key)
{
    return EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();
}

static bool request_sign(X509_REQ *request, EVP_PKEY *next, const char *name)
{
    X509_NAME *subject = X509_REQ_get_subject_name(request);
    return X509_REQ_set_pubkey(request, next) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1,
                                      -1, 0) == 1 &&
           X509_REQ_sign(request, next, digest_for(next)) > 0;
}

static bool request_text(BIO *out, X509 *present, EVP_PKEY *key, X509_REQ *request,
                         int64_t now_unix)
{
    static uint8_t text[SIGNED_BYTES_MAX];
    uint8_t signature[SIGNATURE_BYTES_MAX];
    char header[32];
    size_t n = sizeof signature;
    snprintf(header, sizeof header, "Time: %lld\n", (long long)now_unix);
    size_t size = signed_text(text, header, request);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = size && ctx && EVP_DigestSignInit(ctx, NULL, digest_for(key), NULL, key) == 1 &&
              EVP_DigestSign(ctx, signature, &n, text, size) == 1 &&
              PEM_write_bio_X509(out, present) == 1 && PEM_write_bio_X509_REQ(out, request) == 1 &&
              PEM_write_bio(out, SIGNATURE, header, signature, (long)n) > 0;
    EVP_MD_CTX_free(ctx);
    return ok;
}

/* NAME.next.key before the request: an answer without its key would be lost. */
static enum err request_write(BIO *request, EVP_PKEY *next, const char *directory, const char *name)
{
    char path[4096];
    BIO *key = BIO_new(BIO_s_secmem());
    bool ok = key && PEM_write_bio_PKCS8PrivateKey(key, next, NULL, NULL, 0, NULL, NULL) == 1;
    enum err e = ok ? ERR_OK : tls_library_failed("write the next key");
    snprintf(path, sizeof path, "%s/%s.next.key", directory, name);
    if (e == ERR_OK)
        e = tls_bio_write(key, path, 0600);
    snprintf(path, sizeof path, "%s/%s.request", directory, name);
    if (e == ERR_OK)
        e = tls_bio_write(request, path, 0644);
    BIO_free(key);
    return e;
}

struct own_files {
    char ca[4096], certificate[4096], key[4096], next[4096], request[4096];
    struct link_tls tls;
};

static enum err own_files(struct own_files *f, const char *directory, const char *name)
{
    if (!tls_name_ok(name) || strlen(directory) > 2048)
        return err_set(ERR_CONFIG, "name '%s': 1 to 63 letters, digits, '-', '_' or '.'", name);
    snprintf(f->ca, sizeof f->ca, "%s/ca.pem", directory);
    snprintf(f->certificate, sizeof f->certificate, "%s/%s.pem", directory, name);
    snprintf(f->key, sizeof f->key, "%s/%s.key", directory, name);
    snprintf(f->next, sizeof f->next, "%s/%s.next.key", directory, name);
    snprintf(f->request, sizeof f->request, "%s/%s.request", directory, name);
    f->tls = (struct link_tls){f->ca, f->certificate, f->key};
    return ERR_OK;
}

static enum err own_check(const struct own_files *f, int64_t now_unix)
{
    struct tls_facts facts;
    struct tls_identity id;
    int64_t days;
    TRY(tls_facts(&facts, f->certificate));
    if (!tls_uri_parse(&id, facts.uri))
        return err_set(ERR_CONFIG, "%s: names no identity atoll://RUN/ROLE/NAME", f->certificate);
    return tls_check(&f->tls, id.run, id.role, id.name, now_unix, &days);
}

enum err tls_renewal_request(const char *directory, const char *name, int64_t now_unix)
{
    struct own_files f;
    struct tls_pem pem;
    X509 *present = NULL;
    EVP_PKEY *key = NULL, *next = NULL;
    TRY(own_files(&f, directory, name));
    TRY(own_check(&f, now_unix));
    TRY(tls_load(&pem, &f.tls));
    X509_REQ *request = X509_REQ_new();
    BIO *text = BIO_new(BIO_s_mem());
    enum err e = tls_certificate_parse(pem.certificate, f.certificate, &present);
    if (e == ERR_OK)
        e = tls_key_parse(pem.key, f.key, &key);
    if (e == ERR_OK)
        next = tls_key_make(EVP_PKEY_is_a(key, "ED25519"));
    if (e == ERR_OK && !(next && request && text && request_sign(request, next, name) &&
                         request_text(text, present, key, request, now_unix)))
        e = tls_library_failed("make the request");
    if (e == ERR_OK)
        e = request_write(text, next, directory, name);
    tls_forget(&pem);
    BIO_free(text);
    X509_REQ_free(request);
    EVP_PKEY_free(next);
    EVP_PKEY_free(key);
    X509_free(present);
    return e;
}

struct request_parts {
    X509 *present;
    X509_REQ *request;
    char *name, *header; /* of the last block */
    uint8_t *signature;
    long signature_bytes;
};

static void request_free(struct request_parts *p)
{
    X509_free(p->present);
    X509_REQ_free(p->request);
    OPENSSL_free(p->name);
    OPENSSL_free(p->header);
    OPENSSL_free(p->signature);
}

static enum err request_parse(struct request_parts *p, const char *text)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    *p = (struct request_parts){0};
    bool ok = bio && (p->present = PEM_read_bio_X509(bio, NULL, tls_no_pass_phrase, NULL)) &&
              (p->request = PEM_read_bio_X509_REQ(bio, NULL, tls_no_pass_phrase, NULL)) &&
              PEM_read_bio(bio, &p->name, &p->header, &p->signature, &p->signature_bytes) == 1 &&
              strcmp(p->name, SIGNATURE) == 0;
    BIO_free(bio);
    ERR_clear_error();
    return ok ? ERR_OK : err_set(ERR_INPUT, "this is no request: atoll cert request makes one");
}

/* Both keys have signed: the present one says who asks, the next one that its owner has it. */
static enum err signatures_check(const struct request_parts *p)
{
    static uint8_t text[SIGNED_BYTES_MAX];
    EVP_PKEY *key = X509_get0_pubkey(p->present), *next = X509_REQ_get0_pubkey(p->request);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t n = signed_text(text, p->header, p->request);
    bool own = n && ctx && key &&
               EVP_DigestVerifyInit(ctx, NULL, digest_for(key), NULL, key) == 1 &&
               EVP_DigestVerify(ctx, p->signature, (size_t)p->signature_bytes, text, n) == 1;
    bool has = next && X509_REQ_verify(p->request, next) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    if (!own)
        return err_set(ERR_DENIED, "the request is not signed by the key of its certificate");
    if (!has)
        return err_set(ERR_DENIED, "the request is not signed by the key that it asks for");
    return ERR_OK;
}

static enum err time_check(const char *header, int64_t now_unix)
{
    long long made = 0;
    if (sscanf(header, "Time: %lld", &made) != 1)
        return err_set(ERR_INPUT, "the request does not say when it was made");
    if (made > now_unix + TLS_REQUEST_AGE_S || made < now_unix - TLS_REQUEST_AGE_S)
        return err_set(ERR_DENIED,
                       "the request was made %lld s from now, at most %d are allowed: make a new "
                       "one, or check the clocks",
                       made - (long long)now_unix, TLS_REQUEST_AGE_S);
    return ERR_OK;
}

/* The run of an authority's directory, by its certificate. */
static enum err run_of(char run[TLS_NAME_MAX], X509 *ca, const char *path)
{
    struct tls_facts f;
    int end = 0;
    tls_facts_out(&f, ca);
    if (sscanf(f.uri, "atoll://%63[^/]/authority%n", run, &end) != 1 || end == 0 || f.uri[end] != 0)
        return err_set(ERR_INPUT, "%s: not made by atoll cert authority: it names no run", path);
    return ERR_OK;
}

static enum err present_check(struct tls_renewal *w, X509 *present, const char *directory,
                              int64_t now_unix)
{
    char ca[4096], run[TLS_NAME_MAX], uri[TLS_URI_MAX], *text = NULL;
    STACK_OF(X509) *chain = sk_X509_new_null(), *roots = NULL;
    snprintf(ca, sizeof ca, "%s/ca.pem", directory);
    struct link_tls files = {.ca = ca, .certificate = "the request's certificate"};
    tls_facts_out(&w->present, present);
    enum err e = tls_pem_read(ca, false, &text);
    if (e == ERR_OK)
        e = tls_certificates_parse(text, ca, &roots);
    if (e == ERR_OK)
        e = run_of(run, sk_X509_value(roots, 0), ca);
    if (e == ERR_OK && !(chain && X509_up_ref(present) == 1 && sk_X509_push(chain, present) > 0))
        e = tls_library_failed("read the request");
    if (e == ERR_OK && !tls_uri_parse(&w->id, w->present.uri))
        e = err_set(ERR_DENIED, "the request's certificate names no identity");
    if (e == ERR_OK) {
        tls_uri_make(uri, run, w->id.role, w->id.name);
        e = tls_facts_check(&w->present, files.certificate, uri, w->id.role, now_unix);
    }
    if (e == ERR_OK)
        e = tls_chain_check(chain, roots, &files, now_unix);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    tls_wipe(&text);
    return e;
}

enum err tls_renewal_open(struct tls_renewal *w, const char *text, const char *directory,
                          int64_t now_unix)
{
    struct request_parts p;
    struct tls_facts next = {0};
    *w = (struct tls_renewal){0};
    enum err e = request_parse(&p, text);
    if (e == ERR_OK)
        e = present_check(w, p.present, directory, now_unix);
    if (e == ERR_OK)
        e = signatures_check(&p);
    if (e == ERR_OK)
        e = time_check(p.header, now_unix);
    if (e == ERR_OK) {
        tls_key_out(&next, X509_REQ_get0_pubkey(p.request));
        if (strcmp(next.key, "P-256") != 0 && strcmp(next.key, "ED25519") != 0)
            e = err_set(ERR_DENIED, "the request is for a key of kind %s: P-256 or ED25519",
                        next.key);
    }
    if (e == ERR_OK)
        w->key = X509_REQ_get_pubkey(p.request);
    request_free(&p);
    return e;
}

void tls_renewal_close(struct tls_renewal *w)
{
    EVP_PKEY_free(w->key);
    w->key = NULL;
}

/* The answer next to ca.pem and the next key: whose it is, whether it verifies, whether it fits. */
static enum err answer_check(const struct own_files *f, const char *answer,
                             const struct tls_facts *present, int64_t now_unix)
{
    struct link_tls files = {f->ca, "the answer", f->next};
    struct tls_identity id;
    char *ca = NULL, *key_text = NULL;
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    enum err e = tls_certificates_parse(answer, files.certificate, &chain);
    if (e == ERR_OK)
        e = tls_pem_read(f->ca, false, &ca);
    if (e == ERR_OK)
        e = tls_certificates_parse(ca, f->ca, &roots);
    if (e == ERR_OK)
        e = tls_pem_read(f->next, true, &key_text);
    if (e == ERR_OK && !tls_uri_parse(&id, present->uri))
        e = err_set(ERR_CONFIG, "%s: names no identity atoll://RUN/ROLE/NAME", f->certificate);
    if (e == ERR_OK) {
        struct tls_facts facts;
        tls_facts_out(&facts, sk_X509_value(chain, 0));
        e = tls_facts_check(&facts, files.certificate, present->uri, id.role, now_unix);
    }
    if (e == ERR_OK)
        e = tls_chain_check(chain, roots, &files, now_unix);
    if (e == ERR_OK)
        e = tls_pair_check(sk_X509_value(chain, 0), key_text, &files);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    tls_wipe(&ca);
    tls_wipe(&key_text);
    return e;
}

static enum err key_replace(const struct own_files *f)
{
    char *text = NULL;
    TRY(tls_pem_read(f->next, true, &text));
    struct file_part part = {text, strlen(text)};
    enum err e = file_write(f->key, &part, 1, 0600);
    tls_wipe(&text);
    return e;
}

enum err tls_renewal_install(const char *directory, const char *name, const char *answer,
                             int64_t now_unix)
{
    struct own_files f;
    struct tls_facts present;
    TRY(own_files(&f, directory, name));
    TRY(tls_facts(&present, f.certificate));
    if (!file_exists(f.next))
        return err_set(ERR_INPUT, "%s is not there: atoll cert request makes it, and the request",
                       f.next);
    TRY(answer_check(&f, answer, &present, now_unix));
    TRY(key_replace(&f));
    struct file_part part = {answer, strlen(answer)};
    TRY(file_write(f.certificate, &part, 1, 0644));
    TRY(file_remove(f.next)); /* last: until then the whole can be repeated */
    return file_remove(f.request);
}
