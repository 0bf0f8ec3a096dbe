/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/identity/tls_own.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/conf.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/file.h"
#include "kernels/base/handover.h"
#include "kernels/base/log.h"

enum { DAY_S = 86400 };

/* gRPC 1.51 resets MinProtocol and lets TLS 1.2 in; it does not touch Protocol. Tickets are off
 * because a resumed handshake presents no certificate. Both lines are needed: either one alone
 * still sends tickets or still resumes. */
static const char CONFIGURATION[] =
    "openssl_conf = atoll\n"
    "[atoll]\n"
    "ssl_conf = ssl\n"
    "[ssl]\n"
    "system_default = tls\n"
    "[tls]\n"
    "Protocol = -ALL,TLSv1.3\n"
    "Ciphersuites = TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256\n"
    "Options = -SessionTicket\n"
    "NumTickets = 0\n";

enum err tls_force13(void)
{
    BIO *text = BIO_new_mem_buf(CONFIGURATION, -1);
    CONF *conf = NCONF_new(NULL);
    long line = 0;
    bool ok = OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) == 1 && text && conf &&
              NCONF_load_bio(conf, text, &line) == 1 && CONF_modules_load(conf, NULL, 0) == 1;
    NCONF_free(conf);
    BIO_free(text);
    SSL_CTX *probe = ok ? SSL_CTX_new(TLS_method()) : NULL; /* created as gRPC creates its own */
    ok = probe && (SSL_CTX_get_options(probe) & SSL_OP_NO_TLSv1_2) &&
         (SSL_CTX_get_options(probe) & SSL_OP_NO_TLSv1_1) && SSL_CTX_get_num_tickets(probe) == 0;
    SSL_CTX_free(probe);
    if (!ok)
        return err_set(
            ERR_UNSUPPORTED,
            "this OpenSSL (%s) does not let TLS be limited to version 1.3: refusing to start",
            OpenSSL_version(OPENSSL_VERSION));
    return ERR_OK;
}

/* ---- keys in memory ---- */

/* For the keys that are loaded, and what OpenSSL keeps of each handshake and thread while it lasts
 * (some 2 KiB). */
enum { SECURE_BYTES = 4 << 20, SECURE_PIECE = 32 };

static pthread_once_t secure_heap = PTHREAD_ONCE_INIT;

static void secure_heap_open(void)
{
    if (CRYPTO_secure_malloc_init(SECURE_BYTES, SECURE_PIECE) != 1)
        log_event(LOG_INFO, "keys_not_locked",
                  "why=\"%d KiB of memory cannot be locked: keys may be written to swap\" "
                  "do=\"raise the limit: ulimit -l, LimitMEMLOCK\"",
                  SECURE_BYTES >> 10);
}

void tls_secure_heap(void)
{
    pthread_once(&secure_heap, secure_heap_open);
}

static char *text_alloc(size_t size, bool secret)
{
    if (!secret)
        return calloc(1, size);
    tls_secure_heap();
    char *text = OPENSSL_secure_zalloc(size);
    HANDOVER_TAKE(&secure_heap); /* another thread may have had this piece of it */
    return text;
}

void tls_wipe(char **text)
{
    if (*text && CRYPTO_secure_allocated(*text)) {
        size_t n = strlen(*text);
        HANDOVER_GIVE(&secure_heap);
        OPENSSL_secure_clear_free(*text, n);
    } else if (*text) {
        explicit_bzero(*text, strlen(*text));
        free(*text);
    }
    *text = NULL;
}

/* ---- files ---- */

/* Who can write there can put another key, or another authority, in its place. */
static enum err place_check(const char *path, const struct stat *st)
{
    char dir[4096];
    struct stat there;
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + (slash == path) : 1,
             slash ? path : ".");
    if (st->st_mode & S_IWOTH)
        return err_set(ERR_DENIED, "%s: any user can write it (mode %03o): chmod 600 it", path,
                       st->st_mode & 0777);
    if (stat(dir, &there) == 0 && (there.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
        return err_set(ERR_DENIED,
                       "%s: any user can write in the directory of %s (mode %03o): chmod 700 it",
                       dir, path, there.st_mode & 0777);
    return ERR_OK;
}

static enum err pem_read_open(int fd, const char *path, bool secret, char **text)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT, "%s: not a regular file", path);
    if (secret)
        TRY(file_secret(path, &st, "the key"));
    TRY(place_check(path, &st));
    if (st.st_size == 0 || st.st_size >= TLS_PEM_MAX)
        return err_set(ERR_INPUT, "%s: %lld bytes are not a PEM file", path, (long long)st.st_size);
    size_t size = (size_t)st.st_size;
    char *p = text_alloc(size + 1, secret);
    if (!p)
        return err_set(ERR_MEMORY, "%zu bytes for %s", size, path);
    ssize_t got = read(fd, p, size);
    if (got != st.st_size || memchr(p, 0, size)) {
        tls_wipe(&p);
        return err_set(ERR_INPUT, "%s: cannot be read as PEM text", path);
    }
    *text = p;
    return ERR_OK;
}

/* The command that creates a file of this name. */
static const char *maker_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool authority = strcmp(name, "ca.pem") == 0 || strcmp(name, "ca.key") == 0;
    return authority                    ? "atoll cert authority"
           : strstr(name, ".identity.") ? "atoll cert renew NAME.pem"
                                        : "atoll cert issue";
}

enum err tls_pem_read(const char *path, bool secret, char **text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (secret ? O_NOFOLLOW : 0));
    if (fd < 0 && errno == ELOOP)
        return err_set(ERR_DENIED, "%s: the key is a symbolic link: name the file itself", path);
    if (fd < 0)
        return err_set(ERR_INPUT, "%s: cannot open: %s (%s makes it)", path, strerror(errno),
                       maker_of(path));
    enum err e = pem_read_open(fd, path, secret, text);
    close(fd);
    return e;
}

enum err tls_load(struct tls_pem *p, const struct link_tls *files)
{
    *p = (struct tls_pem){0};
    enum err e = tls_pem_read(files->ca, false, &p->ca);
    if (e == ERR_OK)
        e = tls_pem_read(files->certificate, false, &p->certificate);
    if (e == ERR_OK)
        e = tls_pem_read(files->key, true, &p->key);
    if (e != ERR_OK)
        tls_forget(p);
    return e;
}

void tls_forget(struct tls_pem *p)
{
    tls_wipe(&p->ca);
    tls_wipe(&p->certificate);
    tls_wipe(&p->key);
}

/* Base64 between two lines of dashes: four characters for three bytes, a line break after 64. */
size_t tls_certificate_bytes(const struct tls_pem *p)
{
    size_t bytes = 0;
    for (const char *at = p->certificate; (at = strstr(at, "-----BEGIN"));) {
        const char *begin = strchr(at, '\n'), *end = begin ? strstr(begin, "-----END") : NULL;
        bytes += end ? (size_t)(end - begin) * 48 / 65 : 0;
        at = end ? end : at + 1;
    }
    return bytes;
}

/* FNV-1a over the fields of stat() that a rename changes. */
uint64_t tls_stamp(const struct link_tls *files)
{
    const char *paths[] = {files->ca, files->certificate, files->key};
    uint64_t stamp = 0xcbf29ce484222325;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct stat st;
        if (stat(paths[i], &st) != 0)
            return 0;
        uint64_t words[] = {st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                            (uint64_t)st.st_mtim.tv_nsec};
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            stamp = (stamp ^ words[k]) * 0x100000001b3;
    }
    return stamp;
}

/* ---- names ---- */

/* A run's or a site's name: 1 to 63 letters, digits, '-', '_', '.'. */
bool tls_name_ok(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = strlen(name);
    return n > 0 && n < TLS_NAME_MAX && strspn(name, allowed) == n && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static const char *const roles[] = {
    [TLS_SITE] = "site",
    [TLS_AGGREGATOR] = "aggregator",
    [TLS_OPERATOR] = "operator",
    [TLS_OBSERVER] = "observer",
};

static const char *role_name(enum tls_role role)
{
    ASSERT(role < sizeof roles / sizeof *roles);
    return roles[role];
}

bool tls_role_signs(enum tls_role role)
{
    return role == TLS_SITE || role == TLS_AGGREGATOR;
}

bool tls_role_parse(enum tls_role *role, const char *name)
{
    for (unsigned i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i], name) == 0) {
            *role = (enum tls_role)i;
            return true;
        }
    return false;
}

void tls_uri_make(char out[TLS_URI_MAX], const char *run, enum tls_role role, const char *name)
{
    int n = snprintf(out, TLS_URI_MAX, "atoll://%s/%s/%s", run, role_name(role), name);
    ASSERT(n > 0 && n < TLS_URI_MAX);
}

bool tls_uri_parse(struct tls_identity *id, const char *uri)
{
    char role[TLS_NAME_MAX];
    int end = 0;
    return sscanf(uri, "atoll://%63[^/]/%63[^/]/%63[^/]%n", id->run, role, id->name, &end) == 3 &&
           uri[end] == 0 && tls_name_ok(id->run) && tls_name_ok(id->name) &&
           tls_role_parse(&id->role, role);
}

/* ---- certificates: reading ---- */

enum err tls_library_failed(const char *what)
{
    char text[256] = "no reason given";
    unsigned long code = ERR_get_error();
    if (code)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return err_set(ERR_INTERNAL, "cannot %s: %s", what, text);
}

enum err tls_certificate_parse(const char *text, const char *path, X509 **x)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    *x = bio ? PEM_read_bio_X509(bio, NULL, tls_no_pass_phrase, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return *x ? ERR_OK : err_set(ERR_INPUT, "%s: holds no certificate in PEM form", path);
}

/* All certificates of the text, in its order; at least one. */
enum err tls_certificates_parse(const char *text, const char *path, STACK_OF(X509) * *out)
{
    STACK_OF(X509) *list = *out = sk_X509_new_null();
    BIO *bio = BIO_new_mem_buf(text, -1);
    bool ok = list && bio;
    for (X509 *x; ok && (x = PEM_read_bio_X509(bio, NULL, tls_no_pass_phrase, NULL));)
        if (sk_X509_push(list, x) <= 0) {
            X509_free(x);
            ok = false;
        }
    /* What is no certificate ends the list: only the end of the text may. */
    ok = ok && ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE && sk_X509_num(list);
    BIO_free(bio);
    ERR_clear_error();
    if (ok)
        return ERR_OK;
    sk_X509_pop_free(list, X509_free);
    *out = NULL;
    return err_set(ERR_INPUT, "%s: holds no certificate in PEM form, or a damaged one", path);
}

static enum err certificate_read(const char *path, X509 **x)
{
    char *text = NULL;
    TRY(tls_pem_read(path, false, &text));
    enum err e = tls_certificate_parse(text, path, x);
    tls_wipe(&text);
    return e;
}

int tls_no_pass_phrase(char *out, int size, int writes, void *self)
{
    (void)out, (void)size, (void)writes, (void)self;
    return -1;
}

enum err tls_key_parse(const char *text, const char *path, EVP_PKEY **key)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, tls_no_pass_phrase, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    if (!*key && (strstr(text, "BEGIN ENCRYPTED PRIVATE KEY") || strstr(text, "ENCRYPTED\n")))
        return err_set(ERR_INPUT,
                       "%s: the key is encrypted with a pass phrase, which atoll does not ask for: "
                       "write it without one (openssl pkey -in KEY -out NEW; chmod 600 NEW)",
                       path);
    return *key ? ERR_OK : err_set(ERR_INPUT, "%s: holds no private key in PEM form", path);
}

int64_t tls_time_out(const ASN1_TIME *t)
{
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0, seconds = 0;
    if (epoch)
        ASN1_TIME_diff(&days, &seconds, epoch, t);
    ASN1_TIME_free(epoch);
    return (int64_t)days * 86400 + seconds;
}

static void host_add(struct tls_facts *f, const char *host)
{
    size_t n = strlen(f->hosts);
    snprintf(f->hosts + n, sizeof f->hosts - n, "%s%s", n ? " " : "", host);
}

static void address_add(struct tls_facts *f, const ASN1_OCTET_STRING *ip)
{
    char text[INET6_ADDRSTRLEN] = "?";
    int n = ASN1_STRING_length(ip);
    inet_ntop(n == 16 ? AF_INET6 : AF_INET, ASN1_STRING_get0_data(ip), text, sizeof text);
    if (n == 4 || n == 16)
        host_add(f, text);
}

/* A URI that holds a NUL or exceeds TLS_URI_MAX is counted and not stored, so it equals no
 * identity. */
static void names_out(struct tls_facts *f, X509 *x)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        if (g->type == GEN_IPADD) {
            address_add(f, g->d.iPAddress);
            continue;
        }
        if (g->type != GEN_URI && g->type != GEN_DNS)
            continue;
        const char *s = (const char *)ASN1_STRING_get0_data(g->d.ia5);
        size_t n = (size_t)ASN1_STRING_length(g->d.ia5);
        bool plain = n < TLS_URI_MAX && !memchr(s, 0, n);
        if (g->type == GEN_DNS && plain)
            host_add(f, s);
        if (g->type == GEN_URI && f->uri_count++ == 0 && plain)
            memcpy(f->uri, s, n);
    }
    GENERAL_NAMES_free(names);
}

void tls_key_out(struct tls_facts *f, EVP_PKEY *key)
{
    char curve[32] = "";
    if (key && EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1)
        snprintf(f->key, sizeof f->key, "%s", strcmp(curve, "prime256v1") == 0 ? "P-256" : curve);
    else
        snprintf(f->key, sizeof f->key, "%s", key ? EVP_PKEY_get0_type_name(key) : "?");
}

/* Its one extended usage is that of an identity. */
static bool usage_identity(X509 *x)
{
    EXTENDED_KEY_USAGE *list = X509_get_ext_d2i(x, NID_ext_key_usage, NULL, NULL);
    ASN1_OBJECT *wanted = OBJ_txt2obj(TLS_IDENTITY_USAGE, 1);
    bool is = list && wanted && sk_ASN1_OBJECT_num(list) == 1 &&
              OBJ_cmp(sk_ASN1_OBJECT_value(list, 0), wanted) == 0;
    ASN1_OBJECT_free(wanted);
    EXTENDED_KEY_USAGE_free(list);
    return is;
}

void tls_facts_out(struct tls_facts *f, X509 *x)
{
    *f = (struct tls_facts){0};
    X509_NAME_oneline(X509_get_subject_name(x), f->subject, sizeof f->subject);
    X509_NAME_oneline(X509_get_issuer_name(x), f->issuer, sizeof f->issuer);
    BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL);
    char *hex = serial ? BN_bn2hex(serial) : NULL;
    snprintf(f->serial, sizeof f->serial, "%s", hex ? hex : "?");
    OPENSSL_free(hex);
    BN_free(serial);
    X509_digest(x, EVP_sha256(), f->sha256.bytes, NULL);
    names_out(f, x);
    f->from_unix = tls_time_out(X509_get0_notBefore(x));
    f->until_unix = tls_time_out(X509_get0_notAfter(x));
    tls_key_out(f, X509_get0_pubkey(x));
    f->authority = X509_check_ca(x) > 0;
    f->client = X509_check_purpose(x, X509_PURPOSE_SSL_CLIENT, 0) > 0;
    f->server = X509_check_purpose(x, X509_PURPOSE_SSL_SERVER, 0) > 0;
    f->identity = usage_identity(x);
}

enum err tls_facts_of(struct tls_facts *f, const char *pem, const char *whose)
{
    X509 *x = NULL;
    TRY(tls_certificate_parse(pem, whose, &x));
    tls_facts_out(f, x);
    X509_free(x);
    return ERR_OK;
}

enum err tls_facts(struct tls_facts *f, const char *path)
{
    X509 *x = NULL;
    TRY(certificate_read(path, &x));
    tls_facts_out(f, x);
    X509_free(x);
    return ERR_OK;
}

/* ---- a process's own files ---- */

const char *tls_date(char out[TLS_DATE_MAX], int64_t unix_s)
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || strftime(out, TLS_DATE_MAX, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(out, TLS_DATE_MAX, "?");
    return out;
}

static enum err validity_check(const struct tls_facts *f, const char *path, int64_t now_unix)
{
    char when[TLS_DATE_MAX];
    tls_date(when, now_unix < f->from_unix ? f->from_unix : f->until_unix);
    if (now_unix < f->from_unix)
        return err_set(ERR_DENIED,
                       "%s: the certificate is valid only from %s on: check this machine's clock",
                       path, when);
    if (now_unix >= f->until_unix)
        return err_set(ERR_DENIED,
                       "%s: the certificate expired at %s: issue a new one with atoll cert issue",
                       path, when);
    return ERR_OK;
}

enum err tls_current(const char *path, int64_t now_unix)
{
    struct tls_facts f;
    TRY(tls_facts(&f, path));
    return validity_check(&f, path, now_unix);
}

/* A certificate of a week that is renewed every day never warns. */
static int64_t expiry_near(int64_t days_s, int64_t share_s)
{
    return days_s < share_s ? days_s : share_s;
}

void tls_log_expiry(const char *whose, const struct tls_facts *f, int64_t now_unix)
{
    char when[TLS_DATE_MAX], quoted[512];
    int64_t left_s = f->until_unix - now_unix, life_s = f->until_unix - f->from_unix;
    if (left_s >= expiry_near(30 * DAY_S, life_s / 2))
        return;
    tls_date(when, f->until_unix);
    log_event(left_s < expiry_near(DAY_S, life_s / 12)      ? LOG_ERROR
              : left_s < expiry_near(7 * DAY_S, life_s / 4) ? LOG_WARN
                                                            : LOG_INFO,
              left_s > 0 ? "certificate_expires" : "certificate_expired",
              "of=%s until=\"%s\" days=%lld do=\"atoll cert issue\"",
              log_quote(quoted, sizeof quoted, whose), when, (long long)(left_s / DAY_S));
}

enum err tls_facts_check(const struct tls_facts *f, const char *path, const char *uri,
                         enum tls_role role, int64_t now_unix)
{
    TRY(validity_check(f, path, now_unix));
    if (f->uri_count != 1)
        return err_set(ERR_DENIED,
                       "%s: the certificate names %u URIs, an identity is exactly one: issue it "
                       "with atoll cert issue",
                       path, f->uri_count);
    if (!uri)
        return ERR_OK;
    if (strcmp(f->uri, uri) != 0)
        return err_set(ERR_DENIED,
                       "%s: the certificate is for %s, this process is %s: use the certificate "
                       "of this role and name, or issue one",
                       path, f->uri, uri);
    if (role == TLS_AGGREGATOR ? !f->server : !f->client)
        return err_set(ERR_DENIED,
                       "%s: the certificate's extended key usage does not let it be a %s: issue it "
                       "with atoll cert issue",
                       path, role_name(role));
    return ERR_OK;
}

/* The leaf's file may hold intermediate authorities after it; ca.pem may hold several roots. */
const char *tls_chain_defect(STACK_OF(X509) * chain, STACK_OF(X509) * roots, int64_t now_unix)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    bool ready = store && ctx;
    for (int i = 0; ready && i < sk_X509_num(roots); i++)
        ready = X509_STORE_add_cert(store, sk_X509_value(roots, i)) == 1;
    ready = ready && X509_STORE_CTX_init(ctx, store, sk_X509_value(chain, 0), chain) == 1;
    if (ready)
        X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), (time_t)now_unix);
    bool good = ready && X509_verify_cert(ctx) == 1;
    const char *why = good    ? NULL
                      : ready ? X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx))
                              : "out of memory";
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    ERR_clear_error();
    return why;
}

enum err tls_chain_check(STACK_OF(X509) * chain, STACK_OF(X509) * roots,
                         const struct link_tls *files, int64_t now_unix)
{
    const char *why = tls_chain_defect(chain, roots, now_unix);
    return !why ? ERR_OK
                : err_set(ERR_DENIED,
                          "%s: not certified by the authority in %s (%s): use the ca.pem of the "
                          "same run",
                          files->certificate, files->ca, why);
}

enum err tls_pair_check(X509 *leaf, const char *key_text, const struct link_tls *files)
{
    EVP_PKEY *key = NULL;
    TRY(tls_key_parse(key_text, files->key, &key));
    bool match = X509_check_private_key(leaf, key) == 1;
    EVP_PKEY_free(key);
    ERR_clear_error();
    return match
               ? ERR_OK
               : err_set(
                     ERR_DENIED,
                     "%s: this key does not belong to %s: copy both files of one atoll cert issue",
                     files->key, files->certificate);
}

static enum err files_check(STACK_OF(X509) * chain, STACK_OF(X509) * roots,
                            const struct tls_pem *pem, const struct link_tls *files,
                            int64_t now_unix)
{
    TRY(tls_chain_check(chain, roots, files, now_unix));
    return tls_pair_check(sk_X509_value(chain, 0), pem->key, files);
}

/* uri: the identity that the certificate has; NULL: any. */
static enum err loaded_check(struct tls_facts *f, const struct link_tls *files, const char *uri,
                             enum tls_role role, int64_t now_unix)
{
    struct tls_pem pem;
    TRY(tls_load(&pem, files));
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    enum err e = tls_certificates_parse(pem.certificate, files->certificate, &chain);
    if (e == ERR_OK)
        e = tls_certificates_parse(pem.ca, files->ca, &roots);
    if (e == ERR_OK) {
        tls_facts_out(f, sk_X509_value(chain, 0));
        e = tls_facts_check(f, files->certificate, uri, role, now_unix);
    }
    if (e == ERR_OK)
        e = files_check(chain, roots, &pem, files, now_unix);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    tls_forget(&pem);
    return e;
}

enum err tls_check(const struct link_tls *files, const char *run, enum tls_role role,
                   const char *name, int64_t now_unix, int64_t *days_left)
{
    struct tls_facts f = {.until_unix = now_unix};
    char uri[TLS_URI_MAX];
    tls_uri_make(uri, run, role, name);
    enum err e = loaded_check(&f, files, uri, role, now_unix);
    *days_left = (f.until_unix - now_unix) / DAY_S;
    if (e == ERR_OK)
        tls_log_expiry(files->certificate, &f, now_unix);
    return e;
}

enum err tls_usable(const struct link_tls *files, int64_t now_unix)
{
    struct tls_facts f;
    return loaded_check(&f, files, NULL, TLS_OBSERVER, now_unix);
}

int64_t tls_days(const struct link_tls *files, const char *run, enum tls_role role,
                 const char *name, int64_t now_unix)
{
    int64_t days = 0;
    if (tls_check(files, run, role, name, now_unix, &days) == ERR_OK)
        return days;
    err_clear();
    return days < 0 ? days : -1;
}

/* ---- the peer's certificate ---- */

static enum err target_connect(const struct tls_question *q, int *out)
{
    struct dial_question d = {.target = q->target, .proxy = q->proxy, .timeout_ms = q->timeout_ms};
    struct timeval patience = {q->timeout_ms / 1000, q->timeout_ms % 1000 * 1000};
    TRY(dial_connect(out, &d, NULL));
    setsockopt(*out, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(*out, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return fcntl(*out, F_SETFL, 0) == 0 ? ERR_OK
                                        : err_set(ERR_LINK, "%s: %s", q->target, strerror(errno));
}

static bool context_chain(SSL_CTX *ctx, STACK_OF(X509) * chain, STACK_OF(X509) * roots)
{
    bool ok = SSL_CTX_use_certificate(ctx, sk_X509_value(chain, 0)) == 1;
    for (int i = 1; ok && i < sk_X509_num(chain); i++)
        ok = SSL_CTX_add1_chain_cert(ctx, sk_X509_value(chain, i)) == 1;
    for (int i = 0; ok && i < sk_X509_num(roots); i++)
        ok = X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), sk_X509_value(roots, i)) == 1;
    return ok;
}

static bool context_fill(SSL_CTX *ctx, const struct tls_pem *pem)
{
    static const unsigned char H2[] = "\2h2";
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    EVP_PKEY *key = NULL;
    bool ok = tls_certificates_parse(pem->certificate, "certificate", &chain) == ERR_OK &&
              tls_certificates_parse(pem->ca, "ca.pem", &roots) == ERR_OK &&
              tls_key_parse(pem->key, "key", &key) == ERR_OK && context_chain(ctx, chain, roots) &&
              SSL_CTX_use_PrivateKey(ctx, key) == 1 &&
              SSL_CTX_set_alpn_protos(ctx, H2, sizeof H2 - 1) == 0;
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    EVP_PKEY_free(key);
    return ok;
}

static void expected_name(SSL *ssl, const char *name)
{
    struct in6_addr address;
    if (inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
    } else {
        SSL_set1_host(ssl, name);
        SSL_set_tlsext_host_name(ssl, name);
    }
}

static enum err peer_judge(const struct tls_question *q, SSL *ssl, struct tls_facts *f)
{
    long why = SSL_get_verify_result(ssl);
    X509 *x = SSL_get1_peer_certificate(ssl);
    struct tls_identity id;
    char until[TLS_DATE_MAX];
    if (!x)
        return err_set(ERR_LINK, "%s: no certificate came", q->target);
    tls_facts_out(f, x);
    X509_free(x);
    tls_date(until, f->until_unix);
    bool aggregator = f->uri_count == 1 && tls_uri_parse(&id, f->uri) && id.role == TLS_AGGREGATOR;
    if (why == X509_V_OK && !aggregator)
        return err_set(ERR_DENIED,
                       "%s answers with the certificate of %s, which is no aggregator's: another "
                       "process listens there",
                       q->target, f->uri_count == 1 ? f->uri : f->subject);
    if (why == X509_V_OK)
        return ERR_OK;
    return err_set(ERR_DENIED,
                   "%s answers with a certificate that does not verify: %s (it is of %s, issued by "
                   "%s, valid until %s)",
                   q->target, X509_verify_cert_error_string(why),
                   f->uri_count == 1 ? f->uri : f->subject, f->issuer, until);
}

static enum err peer_handshake(const struct tls_question *q, SSL_CTX *ctx, int fd,
                               struct tls_facts *f)
{
    char host[DIAL_HOST_MAX] = "", port[8];
    SSL *ssl = SSL_new(ctx);
    if (!ssl)
        return tls_library_failed("prepare a connection");
    SSL_set_verify(ssl, SSL_VERIFY_NONE,
                   NULL); /* the handshake completes; the result is read afterwards */
    bool whole = address_split(q->target, 1, host, port) == ERR_OK;
    expected_name(ssl, q->server_name && *q->server_name ? q->server_name : host);
    enum err e = whole && SSL_set_fd(ssl, fd) == 1 && SSL_connect(ssl) == 1
                     ? peer_judge(q, ssl, f)
                     : err_set(ERR_LINK, "%s accepts connections and answers no TLS 1.3 handshake",
                               q->target);
    SSL_free(ssl);
    ERR_clear_error();
    return e;
}

enum err tls_peer(const struct tls_question *q, struct tls_facts *f)
{
    struct tls_pem pem;
    int fd = -1;
    TRY(tls_load(&pem, q->files));
    /* TLS_method, as gRPC: OpenSSL 3.5 refuses the setting NumTickets in a context for clients
     * only. */
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    enum err e =
        ctx && context_fill(ctx, &pem) ? ERR_OK : tls_library_failed("prepare a connection");
    tls_forget(&pem);
    if (e == ERR_OK)
        e = target_connect(q, &fd);
    if (e == ERR_OK)
        e = peer_handshake(q, ctx, fd, f);
    if (fd >= 0)
        close(fd);
    SSL_CTX_free(ctx);
    return e;
}
