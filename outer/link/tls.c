#include "outer/link/tls.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/conf.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/file.h"
#include "kernels/base/log.h"
#include "outer/link/revocation.h"

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

static void secure_heap_open(void)
{
    if (CRYPTO_secure_malloc_init(SECURE_BYTES, SECURE_PIECE) != 1)
        log_event(LOG_INFO, "keys_not_locked",
                  "why=\"%d KiB of memory cannot be locked: keys may be written to swap\" "
                  "do=\"raise the limit: ulimit -l, LimitMEMLOCK\"",
                  SECURE_BYTES >> 10);
}

static pthread_once_t secure_heap = PTHREAD_ONCE_INIT;

static char *text_alloc(size_t size, bool secret)
{
    if (!secret)
        return calloc(1, size);
    pthread_once(&secure_heap, secure_heap_open);
    return OPENSSL_secure_zalloc(size);
}

static void wipe(char **text)
{
    if (*text && CRYPTO_secure_allocated(*text))
        OPENSSL_secure_clear_free(*text, strlen(*text));
    else if (*text) {
        explicit_bzero(*text, strlen(*text));
        free(*text);
    }
    *text = NULL;
}

/* ---- files ---- */

/* Its mode excludes other users, and its owner is this user. */
static enum err key_check(const char *path, const struct stat *st)
{
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return err_set(
            ERR_DENIED,
            "%s: the key belongs to another user (%u): chown it to the user that runs atoll", path,
            st->st_uid);
    if (st->st_mode & 077)
        return err_set(ERR_DENIED, "%s: others can read the key (mode %03o): chmod 600 it", path,
                       st->st_mode & 0777);
    return ERR_OK;
}

static enum err pem_read_open(int fd, const char *path, bool secret, char **text)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return err_set(ERR_INPUT, "%s: not a regular file", path);
    if (secret)
        TRY(key_check(path, &st));
    if (st.st_size == 0 || st.st_size >= TLS_PEM_MAX)
        return err_set(ERR_INPUT, "%s: %lld bytes are not a PEM file", path, (long long)st.st_size);
    size_t size = (size_t)st.st_size;
    char *p = text_alloc(size + 1, secret);
    if (!p)
        return err_set(ERR_MEMORY, "%zu bytes for %s", size, path);
    ssize_t got = read(fd, p, size);
    if (got != st.st_size || memchr(p, 0, size)) {
        wipe(&p);
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
    return authority ? "atoll cert authority" : "atoll cert issue";
}

static enum err pem_read(const char *path, bool secret, char **text)
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
    enum err e = pem_read(files->ca, false, &p->ca);
    if (e == ERR_OK)
        e = pem_read(files->certificate, false, &p->certificate);
    if (e == ERR_OK)
        e = pem_read(files->key, true, &p->key);
    if (e != ERR_OK)
        tls_forget(p);
    return e;
}

void tls_forget(struct tls_pem *p)
{
    wipe(&p->ca);
    wipe(&p->certificate);
    wipe(&p->key);
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
static bool name_ok(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = strlen(name);
    return n > 0 && n < TLS_NAME_MAX && strspn(name, allowed) == n && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

static const char *const roles[] = {
    [TLS_SITE] = "site", [TLS_AGGREGATOR] = "aggregator", [TLS_OPERATOR] = "operator"};

static const char *role_name(enum tls_role role)
{
    ASSERT(role < sizeof roles / sizeof *roles);
    return roles[role];
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

static void uri_make(char out[TLS_URI_MAX], const char *run, enum tls_role role, const char *name)
{
    int n = snprintf(out, TLS_URI_MAX, "atoll://%s/%s/%s", run, role_name(role), name);
    ASSERT(n > 0 && n < TLS_URI_MAX);
}

bool tls_uri_parse(struct tls_identity *id, const char *uri)
{
    char role[TLS_NAME_MAX];
    int end = 0;
    return sscanf(uri, "atoll://%63[^/]/%63[^/]/%63[^/]%n", id->run, role, id->name, &end) == 3 &&
           uri[end] == 0 && name_ok(id->run) && name_ok(id->name) &&
           tls_role_parse(&id->role, role);
}

/* ---- certificates: reading ---- */

static enum err library_failed(const char *what)
{
    char text[256] = "no reason given";
    unsigned long code = ERR_get_error();
    if (code)
        ERR_error_string_n(code, text, sizeof text);
    ERR_clear_error();
    return err_set(ERR_INTERNAL, "cannot %s: %s", what, text);
}

static enum err certificate_parse(const char *text, const char *path, X509 **x)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    *x = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return *x ? ERR_OK : err_set(ERR_INPUT, "%s: holds no certificate in PEM form", path);
}

/* All certificates of the text, in its order; at least one. */
static enum err certificates_parse(const char *text, const char *path, STACK_OF(X509) * *out)
{
    STACK_OF(X509) *list = *out = sk_X509_new_null();
    BIO *bio = BIO_new_mem_buf(text, -1);
    bool ok = list && bio;
    for (X509 *x; ok && (x = PEM_read_bio_X509(bio, NULL, NULL, NULL));)
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
    TRY(pem_read(path, false, &text));
    enum err e = certificate_parse(text, path, x);
    wipe(&text);
    return e;
}

static enum err key_parse(const char *text, const char *path, EVP_PKEY **key)
{
    BIO *bio = BIO_new_mem_buf(text, -1);
    *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return *key ? ERR_OK : err_set(ERR_INPUT, "%s: holds no private key in PEM form", path);
}

static int64_t time_out(const ASN1_TIME *t)
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

static void key_out(struct tls_facts *f, EVP_PKEY *key)
{
    char curve[32] = "";
    if (key && EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1)
        snprintf(f->key, sizeof f->key, "%s", strcmp(curve, "prime256v1") == 0 ? "P-256" : curve);
    else
        snprintf(f->key, sizeof f->key, "%s", key ? EVP_PKEY_get0_type_name(key) : "?");
}

static void facts_out(struct tls_facts *f, X509 *x)
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
    f->from_unix = time_out(X509_get0_notBefore(x));
    f->until_unix = time_out(X509_get0_notAfter(x));
    key_out(f, X509_get0_pubkey(x));
    f->authority = X509_check_ca(x) > 0;
    f->client = X509_check_purpose(x, X509_PURPOSE_SSL_CLIENT, 0) > 0;
    f->server = X509_check_purpose(x, X509_PURPOSE_SSL_SERVER, 0) > 0;
}

enum err tls_facts_of(struct tls_facts *f, const char *pem, const char *whose)
{
    X509 *x = NULL;
    TRY(certificate_parse(pem, whose, &x));
    facts_out(f, x);
    X509_free(x);
    return ERR_OK;
}

enum err tls_facts(struct tls_facts *f, const char *path)
{
    X509 *x = NULL;
    TRY(certificate_read(path, &x));
    facts_out(f, x);
    X509_free(x);
    return ERR_OK;
}

/* ---- a process's own files ---- */

static void date(char out[32], int64_t unix_s)
{
    time_t t = (time_t)unix_s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || strftime(out, 32, "%Y-%m-%d %H:%M UTC", &tm) == 0)
        snprintf(out, 32, "?");
}

static enum err validity_check(const struct tls_facts *f, const char *path, int64_t now_unix)
{
    char when[32];
    date(when, now_unix < f->from_unix ? f->from_unix : f->until_unix);
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
    char when[32], quoted[512];
    int64_t left_s = f->until_unix - now_unix, life_s = f->until_unix - f->from_unix;
    if (left_s >= expiry_near(30 * DAY_S, life_s / 2))
        return;
    date(when, f->until_unix);
    log_event(left_s < expiry_near(DAY_S, life_s / 12)      ? LOG_ERROR
              : left_s < expiry_near(7 * DAY_S, life_s / 4) ? LOG_WARN
                                                            : LOG_INFO,
              left_s > 0 ? "certificate_expires" : "certificate_expired",
              "of=%s until=\"%s\" days=%lld do=\"atoll cert issue\"",
              log_quote(quoted, sizeof quoted, whose), when, (long long)(left_s / DAY_S));
}

static enum err facts_check(const struct tls_facts *f, const char *path, const char *uri,
                            enum tls_role role, int64_t now_unix)
{
    TRY(validity_check(f, path, now_unix));
    if (f->uri_count != 1)
        return err_set(ERR_DENIED,
                       "%s: the certificate names %u URIs, an identity is exactly one: issue it "
                       "with atoll cert issue",
                       path, f->uri_count);
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

/* The leaf's file may hold intermediate authorities behind it; ca.pem may hold several roots. */
static enum err chain_check(STACK_OF(X509) * chain, STACK_OF(X509) * roots,
                            const struct link_tls *files, int64_t now_unix)
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
    const char *why =
        ready ? X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)) : "out of memory";
    enum err e =
        good ? ERR_OK
             : err_set(
                   ERR_DENIED,
                   "%s: not certified by the authority in %s (%s): use the ca.pem of the same run",
                   files->certificate, files->ca, why);
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    ERR_clear_error();
    return e;
}

static enum err pair_check(X509 *leaf, const char *key_text, const struct link_tls *files)
{
    EVP_PKEY *key = NULL;
    TRY(key_parse(key_text, files->key, &key));
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

enum err tls_check(const struct link_tls *files, const char *run, enum tls_role role,
                   const char *name, int64_t now_unix, int64_t *days_left)
{
    struct tls_pem pem;
    TRY(tls_load(&pem, files));
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    struct tls_facts f;
    enum err e = certificates_parse(pem.certificate, files->certificate, &chain);
    if (e == ERR_OK)
        e = certificates_parse(pem.ca, files->ca, &roots);
    if (e == ERR_OK) {
        char uri[TLS_URI_MAX];
        uri_make(uri, run, role, name);
        facts_out(&f, sk_X509_value(chain, 0));
        *days_left = (f.until_unix - now_unix) / DAY_S;
        e = facts_check(&f, files->certificate, uri, role, now_unix);
    }
    if (e == ERR_OK)
        e = chain_check(chain, roots, files, now_unix);
    if (e == ERR_OK)
        e = pair_check(sk_X509_value(chain, 0), pem.key, files);
    if (e == ERR_OK)
        tls_log_expiry(files->certificate, &f, now_unix);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    tls_forget(&pem);
    return e;
}

/* ---- the peer's certificate ---- */

static bool target_split(const char *target, char host[256], const char **port)
{
    const char *colon = strrchr(target, ':');
    size_t n = colon ? (size_t)(colon - target) : 0;
    bool bracket = n >= 2 && target[0] == '[' && target[n - 1] == ']';
    snprintf(host, 256, "%.*s", (int)(bracket ? n - 2 : n), target + bracket);
    *port = colon ? colon + 1 : "";
    return n > 0 && n < 256;
}

static bool socket_connect(int fd, const struct addrinfo *a, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    struct timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    int failed = 0;
    socklen_t n = sizeof failed;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS)
        return false;
    if (poll(&p, 1, timeout_ms) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n) != 0)
        failed = errno = ETIMEDOUT;
    else
        errno = failed;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return failed == 0 && fcntl(fd, F_SETFL, 0) == 0;
}

static enum err target_connect(const struct tls_question *q, int *out)
{
    char host[256];
    const char *port;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!target_split(q->target, host, &port))
        return err_set(ERR_CONFIG, "'%s' is no address of an aggregator: host:port", q->target);
    int e = getaddrinfo(host, port, &hints, &found), why = 0;
    if (e != 0)
        return err_set(ERR_LINK, "%s: %s", q->target, gai_strerror(e));
    *out = -1;
    for (const struct addrinfo *a = found; a && *out < 0; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && socket_connect(fd, a, (int)q->timeout_ms))
            *out = fd;
        else
            why = errno;
        if (fd >= 0 && *out < 0)
            close(fd);
    }
    freeaddrinfo(found);
    return *out >= 0 ? ERR_OK : err_set(ERR_LINK, "%s: %s", q->target, strerror(why));
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
    bool ok = certificates_parse(pem->certificate, "certificate", &chain) == ERR_OK &&
              certificates_parse(pem->ca, "ca.pem", &roots) == ERR_OK &&
              key_parse(pem->key, "key", &key) == ERR_OK && context_chain(ctx, chain, roots) &&
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
    char until[32];
    if (!x)
        return err_set(ERR_LINK, "%s: no certificate came", q->target);
    facts_out(f, x);
    X509_free(x);
    date(until, f->until_unix);
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
    char host[256];
    const char *port;
    SSL *ssl = SSL_new(ctx);
    if (!ssl)
        return library_failed("prepare a connection");
    SSL_set_verify(ssl, SSL_VERIFY_NONE,
                   NULL); /* the handshake completes; the result is read afterwards */
    bool whole = target_split(q->target, host, &port);
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
    enum err e = ctx && context_fill(ctx, &pem) ? ERR_OK : library_failed("prepare a connection");
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

/* ---- certificates: making ---- */

/* P-256: clients built on BoringSSL, gRPC's Python package among them, offer no Ed25519. */
static EVP_PKEY *key_make(bool ed25519)
{
    pthread_once(&secure_heap, secure_heap_open);
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

static enum err bio_write(BIO *bio, const char *path, unsigned mode)
{
    char *data = NULL;
    long n = BIO_get_mem_data(bio, &data);
    struct file_part part = {data, (size_t)n};
    return file_write(path, &part, 1, mode);
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
    return ok ? ERR_OK : library_failed("write the certificate");
}

static enum err pair_write(const struct making *m, const char *directory, const char *name)
{
    char path[4096];
    BIO *key = BIO_new(BIO_s_secmem()), *certificate = BIO_new(BIO_s_mem());
    bool ok = key && certificate &&
              PEM_write_bio_PKCS8PrivateKey(key, m->key, NULL, NULL, 0, NULL, NULL) == 1 &&
              PEM_write_bio_X509(certificate, m->x) == 1;
    enum err e = ok ? file_mkdirs(directory) : library_failed("write key and certificate");
    if (e == ERR_OK) {
        snprintf(path, sizeof path, "%s/%s.key", directory, name);
        e = bio_write(key, path, 0600);
    }
    if (e == ERR_OK) {
        snprintf(path, sizeof path, "%s/%s.pem", directory, name);
        e = bio_write(certificate, path, 0644);
    }
    BIO_free(key);
    BIO_free(certificate);
    return e;
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
    struct making m = {.key = key_make(ed25519), .x = X509_new()};
    m.ca = m.x;
    m.ca_key = m.key;
    return m;
}

enum err tls_authority(const char *directory, const char *run, bool ed25519, struct tls_validity v)
{
    char path[4096], common_name[2 * TLS_NAME_MAX];
    if (!name_ok(run))
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
                     : library_failed("make the authority's certificate");
    making_free(&m);
    return e;
}

/* The certificate in ca.pem that ca.key belongs to; during a roll there are several. */
static enum err authority_match(struct making *m, const char *text, const char *path)
{
    STACK_OF(X509) *roots = NULL;
    TRY(certificates_parse(text, path, &roots));
    for (int i = 0; i < sk_X509_num(roots) && !m->ca; i++) {
        X509 *x = sk_X509_value(roots, i);
        if (X509_check_private_key(x, m->ca_key) == 1 && X509_up_ref(x) == 1)
            m->ca = x;
    }
    sk_X509_pop_free(roots, X509_free);
    ERR_clear_error();
    return m->ca ? ERR_OK
                 : err_set(ERR_INPUT, "%s: the key beside it belongs to none of its certificates",
                           path);
}

static enum err authority_key_read(struct making *m, const char *directory)
{
    char path[4096], *text = NULL;
    snprintf(path, sizeof path, "%s/ca.key", directory);
    TRY(pem_read(path, true, &text));
    enum err e = key_parse(text, path, &m->ca_key);
    wipe(&text);
    return e;
}

/* *bundle: the text of ca.pem, for wipe(); NULL: not wanted. */
static enum err authority_read(struct making *m, const char *directory, char run[TLS_NAME_MAX],
                               char **bundle)
{
    char path[4096], *text = NULL;
    struct tls_facts f;
    int end = 0;
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    TRY(pem_read(path, false, &text));
    enum err e = authority_key_read(m, directory);
    if (e == ERR_OK)
        e = authority_match(m, text, path);
    if (e == ERR_OK) {
        facts_out(&f, m->ca);
        if (sscanf(f.uri, "atoll://%63[^/]/authority%n", run, &end) != 1 || end == 0 ||
            f.uri[end] != 0 || !name_ok(run))
            e = err_set(ERR_INPUT, "%s: not made by atoll cert authority: it names no run", path);
    }
    if (e == ERR_OK && bundle)
        *bundle = text;
    else
        wipe(&text);
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
    enum err e = ok ? ERR_OK : library_failed("write key and certificate");
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    if (e == ERR_OK)
        e = bio_write(certificate, path, 0644);
    snprintf(path, sizeof path, "%s/ca.key", directory);
    if (e == ERR_OK)
        e = bio_write(key, path, 0600);
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
                : library_failed("make the authority's certificate");
        making_free(&m);
    }
    wipe(&bundle);
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
        e = library_failed("write a certificate");
    snprintf(path, sizeof path, "%s/ca.pem", directory);
    if (e == ERR_OK)
        e = bio_write(certificate, path, 0644);
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
        if (!ip && (!name_ok(host) || strchr(host, '_')))
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
    if (time_out(X509_get0_notAfter(m->ca)) < r->validity.until_unix)
        return err_set(ERR_CONFIG,
                       "the authority of run %s expires before that: use fewer --days, or make a "
                       "new authority",
                       run);
    if (r->renewal && EVP_PKEY_up_ref(r->renewal->key) == 1)
        m->key = r->renewal->key;
    else if (!r->renewal)
        m->key = key_make(r->ed25519);
    m->x = X509_new();
    bool ok = m->key && m->x && certificate_begin(m, r->name, r->validity) &&
              extension_add(m->x, m->ca, NID_basic_constraints, "critical,CA:FALSE") &&
              extension_add(m->x, m->ca, NID_key_usage, "critical,digitalSignature") &&
              extension_add(m->x, m->ca, NID_ext_key_usage,
                            r->role == TLS_AGGREGATOR ? "serverAuth,clientAuth" : "clientAuth") &&
              extension_add(m->x, m->ca, NID_authority_key_identifier, "keyid:always") &&
              extension_add(m->x, m->ca, NID_subject_alt_name, names) && certificate_sign(m);
    return ok ? ERR_OK : library_failed("make the certificate");
}

/* A separate output directory, to be copied to a site, also gets the authority's certificate, never
 * its key. */
static enum err authority_copy(const struct tls_request *r)
{
    char from[4096], to[4096], *text = NULL;
    snprintf(from, sizeof from, "%s/ca.pem", r->directory);
    snprintf(to, sizeof to, "%s/ca.pem", r->out);
    TRY(pem_read(from, false, &text));
    struct file_part part = {text, strlen(text)};
    enum err e = file_write(to, &part, 1, 0644);
    wipe(&text);
    return e;
}

enum err tls_issue(const struct tls_request *r)
{
    char run[TLS_NAME_MAX], uri[TLS_URI_MAX];
    if (!name_ok(r->name) || strcmp(r->name, "ca") == 0)
        return err_set(ERR_CONFIG,
                       "name '%s': 1 to 63 letters, digits, '-', '_' or '.', and not 'ca'",
                       r->name);
    if (r->role == TLS_AGGREGATOR && r->host_count == 0)
        return err_set(ERR_CONFIG,
                       "an aggregator needs --host: the DNS names and addresses that sites dial");
    struct making m = {0};
    bool revoked = false;
    enum err e = authority_read(&m, r->directory, run, NULL);
    if (e == ERR_OK) {
        uri_make(uri, run, r->role, r->name);
        e = revocation_listed(r->directory, uri, &revoked);
    }
    if (e == ERR_OK && revoked)
        e = err_set(
            ERR_CONFIG,
            "%s is in %s/revoked.txt and would be refused: use another name, or remove that line",
            uri, r->directory);
    if (e == ERR_OK)
        e = leaf_make(&m, r, run, uri);
    if (e == ERR_OK && r->renewal)
        e = answer_write(&m, r->answer);
    else if (e == ERR_OK)
        e = pair_write(&m, r->out, r->name);
    if (e == ERR_OK && !r->renewal && strcmp(r->out, r->directory) != 0)
        e = authority_copy(r);
    making_free(&m);
    return e;
}

/* ---- renewal without the authority's key ---- */

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
    enum err e = ok ? ERR_OK : library_failed("write the next key");
    snprintf(path, sizeof path, "%s/%s.next.key", directory, name);
    if (e == ERR_OK)
        e = bio_write(key, path, 0600);
    snprintf(path, sizeof path, "%s/%s.request", directory, name);
    if (e == ERR_OK)
        e = bio_write(request, path, 0644);
    BIO_free(key);
    return e;
}

struct own_files {
    char ca[4096], certificate[4096], key[4096], next[4096], request[4096];
    struct link_tls tls;
};

static enum err own_files(struct own_files *f, const char *directory, const char *name)
{
    if (!name_ok(name) || strlen(directory) > 2048)
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
    enum err e = certificate_parse(pem.certificate, f.certificate, &present);
    if (e == ERR_OK)
        e = key_parse(pem.key, f.key, &key);
    if (e == ERR_OK)
        next = key_make(EVP_PKEY_is_a(key, "ED25519"));
    if (e == ERR_OK && !(next && request && text && request_sign(request, next, name) &&
                         request_text(text, present, key, request, now_unix)))
        e = library_failed("make the request");
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
    bool ok = bio && (p->present = PEM_read_bio_X509(bio, NULL, NULL, NULL)) &&
              (p->request = PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL)) &&
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

static enum err present_check(struct tls_renewal *w, X509 *present, const char *directory,
                              int64_t now_unix)
{
    char ca[4096], run[TLS_NAME_MAX], uri[TLS_URI_MAX], *text = NULL;
    struct making authority = {0};
    STACK_OF(X509) *chain = sk_X509_new_null(), *roots = NULL;
    snprintf(ca, sizeof ca, "%s/ca.pem", directory);
    struct link_tls files = {.ca = ca, .certificate = "the request's certificate"};
    facts_out(&w->present, present);
    enum err e = authority_read(&authority, directory, run, &text);
    if (e == ERR_OK)
        e = certificates_parse(text, ca, &roots);
    if (e == ERR_OK && !(chain && X509_up_ref(present) == 1 && sk_X509_push(chain, present) > 0))
        e = library_failed("read the request");
    if (e == ERR_OK && !tls_uri_parse(&w->id, w->present.uri))
        e = err_set(ERR_DENIED, "the request's certificate names no identity");
    if (e == ERR_OK) {
        uri_make(uri, run, w->id.role, w->id.name);
        e = facts_check(&w->present, files.certificate, uri, w->id.role, now_unix);
    }
    if (e == ERR_OK)
        e = chain_check(chain, roots, &files, now_unix);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    wipe(&text);
    making_free(&authority);
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
        key_out(&next, X509_REQ_get0_pubkey(p.request));
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

/* The answer beside ca.pem and the next key: whose it is, whether it verifies, whether it fits. */
static enum err answer_check(const struct own_files *f, const char *answer,
                             const struct tls_facts *present, int64_t now_unix)
{
    struct link_tls files = {f->ca, "the answer", f->next};
    struct tls_identity id;
    char *ca = NULL, *key_text = NULL;
    STACK_OF(X509) *chain = NULL, *roots = NULL;
    enum err e = certificates_parse(answer, files.certificate, &chain);
    if (e == ERR_OK)
        e = pem_read(f->ca, false, &ca);
    if (e == ERR_OK)
        e = certificates_parse(ca, f->ca, &roots);
    if (e == ERR_OK)
        e = pem_read(f->next, true, &key_text);
    if (e == ERR_OK && !tls_uri_parse(&id, present->uri))
        e = err_set(ERR_CONFIG, "%s: names no identity atoll://RUN/ROLE/NAME", f->certificate);
    if (e == ERR_OK) {
        struct tls_facts facts;
        facts_out(&facts, sk_X509_value(chain, 0));
        e = facts_check(&facts, files.certificate, present->uri, id.role, now_unix);
    }
    if (e == ERR_OK)
        e = chain_check(chain, roots, &files, now_unix);
    if (e == ERR_OK)
        e = pair_check(sk_X509_value(chain, 0), key_text, &files);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    wipe(&ca);
    wipe(&key_text);
    return e;
}

static enum err key_replace(const struct own_files *f)
{
    char *text = NULL;
    TRY(pem_read(f->next, true, &text));
    struct file_part part = {text, strlen(text)};
    enum err e = file_write(f->key, &part, 1, 0600);
    wipe(&text);
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
