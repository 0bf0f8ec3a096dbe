/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the handshake: TLS and HTTP/2 by hand, certificates that `atoll cert` would never make.
 */
#include "tests/outer/link/link_craft.h"
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

enum { HOUR = 3600 };
static const char SITE[] = "URI:atoll://test/site/a", EKU[] = "clientAuth";

/* ---- clients ---- */

struct client {
    int lowest, highest;
    const char *name;   /* NAME.pem, NAME.key; NULL: no certificate */
    const char *suites; /* NULL: all */
    const char *alpn;   /* with its length before it; NULL: none */
};
static SSL_CTX *client_context(const struct client *c)
{
    SSL_CTX *ctx = craft_context(TLS_client_method(), c->lowest, c->highest, NULL);
    char file[96];
    SSL_CTX_set_security_level(ctx, 0); /* what is weak is for the server to refuse */
    if (c->name) {
        snprintf(file, sizeof file, "%s.pem", c->name);
        assert_int_equal(SSL_CTX_use_certificate_file(ctx, scratch(file), SSL_FILETYPE_PEM), 1);
        snprintf(file, sizeof file, "%s.key", c->name);
        assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, scratch(file), SSL_FILETYPE_PEM), 1);
    }
    if (c->suites)
        assert_int_equal(SSL_CTX_set_ciphersuites(ctx, c->suites), 1);
    return ctx;
}

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";

/* The server lets a client in when it answers HTTP/2's preface with its SETTINGS. */
static const char *client_meets(const struct client *c)
{
    SSL_CTX *ctx = client_context(c);
    SSL *ssl = SSL_new(ctx);
    int fd = craft_connect(scene.port);
    uint8_t frame[9] = {0};
    SSL_set_fd(ssl, fd);
    if (c->alpn)
        SSL_set_alpn_protos(ssl, (const unsigned char *)c->alpn, (unsigned)strlen(c->alpn));
    bool in = SSL_connect(ssl) == 1 && SSL_write(ssl, PREFACE, sizeof PREFACE - 1) > 0 &&
              SSL_read(ssl, frame, sizeof frame) == sizeof frame && frame[3] == 4;
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(ctx);
    return in ? "let in" : "connection";
}

static const char *client_of(int version, const char *name, const char *suites, const char *alpn)
{
    return client_meets(&(struct client){
        .lowest = version, .highest = version, .name = name, .suites = suites, .alpn = alpn});
}

/* A good one is let in, so that a refusal says something. */
static void client_good(void)
{
    scene_here();
    assert_string_equal(client_of(TLS1_3_VERSION, "a", NULL, "\2h2"), "let in");
}

static const char *client_version(int version)
{
    client_good();
    return client_of(version, "a", NULL, "\2h2");
}

const char *tls10(void)
{
    return client_version(TLS1_VERSION);
}

const char *tls11(void)
{
    return client_version(TLS1_1_VERSION);
}

const char *tls12_client(void)
{
    return client_version(TLS1_2_VERSION);
}

const char *aes128_only(void)
{
    client_good();
    return client_of(TLS1_3_VERSION, "a", "TLS_AES_128_GCM_SHA256", "\2h2");
}

const char *http1(void)
{
    client_good();
    return client_of(TLS1_3_VERSION, "a", NULL, "\10http/1.1");
}

const char *no_alpn(void)
{
    client_good();
    return client_of(TLS1_3_VERSION, "a", NULL, NULL);
}

const char *no_client_cert(void)
{
    client_good();
    return client_of(TLS1_3_VERSION, NULL, NULL, "\2h2");
}

const char *plaintext_h2c(void)
{
    char back[9];
    int fd = craft_connect(scene.port);
    assert_true(send(fd, PREFACE, sizeof PREFACE - 1, MSG_NOSIGNAL) > 0);
    ssize_t n = recv(fd, back, sizeof back, 0);
    close(fd);
    return n <= 0 ? "connection" : "let in";
}

/* ---- sessions ---- */

static struct {
    bool resumed, early_taken;
    int tickets;
} seen;

static int ticket_came(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl, (void)session;
    seen.tickets++;
    return 0;
}

/* A session that the server never made, as a client would present an earlier one. */
static SSL_SESSION *session_make(void)
{
    static const unsigned char aes256[] = {0x13, 0x02}, key[48] = {1};
    SSL_CTX *ctx = craft_context(TLS_client_method(), TLS1_3_VERSION, TLS1_3_VERSION, NULL);
    SSL *ssl = SSL_new(ctx);
    SSL_SESSION *s = SSL_SESSION_new();
    assert_true(s && SSL_SESSION_set1_master_key(s, key, sizeof key) &&
                SSL_SESSION_set_cipher(s, SSL_CIPHER_find(ssl, aes256)) &&
                SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) &&
                SSL_SESSION_set_max_early_data(s, 4096) &&
                SSL_SESSION_set1_alpn_selected(s, (const unsigned char *)"h2", 2));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return s;
}

static int psk_use(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *n,
                   SSL_SESSION **session)
{
    (void)ssl, (void)md;
    *id = (const unsigned char *)"earlier";
    *n = 7;
    *session = session_make();
    return 1;
}

/* Offers an earlier session, as a client whose first connection was another site's would. */
static void offer_session(bool early)
{
    struct client c = {.lowest = TLS1_3_VERSION, .highest = TLS1_3_VERSION, .name = "a"};
    SSL_CTX *ctx = client_context(&c);
    SSL *ssl;
    uint8_t frame[9];
    size_t sent;
    int fd = craft_connect(scene.port);
    SSL_CTX_set_psk_use_session_callback(ctx, psk_use);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(ctx, ticket_came);
    memset(&seen, 0, sizeof seen);
    ssl = SSL_new(ctx);
    SSL_set_fd(ssl, fd);
    SSL_set_alpn_protos(ssl, (const unsigned char *)"\2h2", 3);
    if (early)
        assert_int_equal(SSL_write_early_data(ssl, PREFACE, sizeof PREFACE - 1, &sent), 1);
    bool in = SSL_connect(ssl) == 1;
    seen.early_taken = early && SSL_get_early_data_status(ssl) == SSL_EARLY_DATA_ACCEPTED;
    seen.resumed = in && SSL_session_reused(ssl);
    if (in && SSL_write(ssl, PREFACE, sizeof PREFACE - 1) > 0)
        (void)!SSL_read(ssl, frame, sizeof frame); /* tickets would come with it */
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(ctx);
}

/* No ticket is given; one that is offered counts for nothing. */
const char *ticket_resumed(void)
{
    scene_here();
    offer_session(false);
    return seen.tickets || seen.resumed ? "resumed" : "connection";
}

const char *early_data(void)
{
    scene_here();
    offer_session(true);
    return seen.tickets || seen.early_taken ? "taken" : "connection";
}

/* ---- certificates of sites ---- */

static const char *certificate_met(const struct craft *c)
{
    client_good();
    craft(c);
    return client_of(TLS1_3_VERSION, c->name, NULL, "\2h2");
}

const char *client_expired(void)
{
    return certificate_met(&(struct craft){"x", "ca", SITE, EKU, -2 * HOUR, -HOUR});
}

const char *client_not_yet_valid(void)
{
    return certificate_met(&(struct craft){"x", "ca", SITE, EKU, HOUR, 2 * HOUR});
}

const char *eku_wrong(void)
{
    return certificate_met(&(struct craft){"x", "ca", SITE, "serverAuth", -60, HOUR});
}

/* other.pem, other.key: an authority of the same run's name. */
static void other_authority(void)
{
    char path[256];
    int64_t now = clock_wall_s();
    if (access(scratch("other.key"), F_OK) == 0)
        return;
    snprintf(path, sizeof path, "%s", scratch("other.dir"));
    assert_int_equal(
        tls_authority(path, "test", false, (struct tls_validity){now - 60, now + 86400}), ERR_OK);
    assert_int_equal(rename(scratch("other.dir/ca.key"), scratch("other.key")), 0);
    assert_int_equal(rename(scratch("other.dir/ca.pem"), scratch("other.pem")), 0);
}

const char *wrong_ca_client(void)
{
    scene_here();
    other_authority();
    return certificate_met(&(struct craft){"x", "other", SITE, EKU, -60, HOUR});
}

const char *self_signed(void)
{
    client_good();
    craft(&(struct craft){"x", "ca", SITE, EKU, -60, HOUR});
    EVP_PKEY *key;
    X509 *x = craft_ca("x", &key);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, NULL) > 0);
    FILE *f = fopen(scratch("x.pem"), "w");
    assert_true(f && PEM_write_X509(f, x) == 1 && fclose(f) == 0);
    X509_free(x);
    EVP_PKEY_free(key);
    return client_of(TLS1_3_VERSION, "x", NULL, "\2h2");
}

static const char *weak(int bits, const EVP_MD *md)
{
    EVP_PKEY *ca_key, *key = bits ? EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)bits)
                                  : EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    craft(&(struct craft){"x", "ca", SITE, EKU, -60, HOUR});
    EVP_PKEY *unused;
    X509 *ca = craft_ca("ca", &ca_key), *x = craft_ca("x", &unused);
    X509_set_pubkey(x, key);
    assert_true(X509_sign(x, ca_key, md) > 0);
    FILE *f = fopen(scratch("x.pem"), "w");
    assert_true(f && PEM_write_X509(f, x) == 1 && fclose(f) == 0);
    f = fopen(scratch("x.key"), "w");
    assert_true(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                fclose(f) == 0);
    X509_free(ca);
    X509_free(x);
    EVP_PKEY_free(ca_key);
    EVP_PKEY_free(unused);
    EVP_PKEY_free(key);
    return client_of(TLS1_3_VERSION, "x", NULL, "\2h2");
}

const char *rsa1024_or_sha1(void)
{
    client_good();
    assert_string_equal(weak(0, EVP_sha256()), "let in"); /* what is crafted is fine but for that */
    assert_string_equal(weak(2048, EVP_sha256()), "let in");
    const char *small = weak(1024, EVP_sha256());
    return strcmp(small, "connection") == 0 ? weak(0, EVP_sha1()) : small;
}

/* The former authority's certificates work until ca.pem is another file, without a restart. */
const char *old_root_after_roll(void)
{
    client_good();
    other_authority();
    assert_int_equal(rename(scratch("ca.pem"), scratch("former.pem")), 0);
    assert_int_equal(link(scratch("other.pem"), scratch("ca.pem")), 0);
    const char *text = client_of(TLS1_3_VERSION, "a", NULL, "\2h2");
    assert_int_equal(rename(scratch("former.pem"), scratch("ca.pem")), 0);
    client_good();
    return text;
}

/* ---- identities: the handshake succeeds, the call is refused ---- */

static const char *hello_with(const char *certificate, const char *site)
{
    struct scene_site s = scene.site[0];
    s.name = site;
    struct wire_hello m = scene_hello(&s);
    return scene_call(certificate, LINK_HELLO, &m);
}

static const char *identity(const char *san, const char *site)
{
    scene_here();
    craft(&(struct craft){"x", "ca", san, EKU, -60, HOUR});
    return hello_with("x", site);
}

const char *cn_only(void)
{
    const char *text = identity("DNS:atoll://test/site/a", "a");
    return strcmp(text, "status PERMISSION_DENIED") == 0 ? identity(NULL, "a") : text;
}

const char *two_uri_sans(void)
{
    return identity("URI:atoll://test/site/a,URI:atoll://test/site/b", "a");
}

const char *san_other_run(void)
{
    return identity("URI:atoll://other/site/a", "a");
}

const char *san_unknown_role(void)
{
    return identity("URI:atoll://test/king/a", "a");
}

const char *san_unknown_site(void)
{
    scene_here();
    return hello_with("z", "z");
}

const char *san_percent_encoded(void)
{
    return identity("URI:atoll://test/site/%61", "a");
}

const char *san_case_or_slash(void)
{
    static const char *const near[] = {"URI:atoll://test/site/A",  "URI:Atoll://test/site/a",
                                       "URI:atoll://test/Site/a",  "URI:atoll://test/site/a/",
                                       "URI:atoll://test/site//a", "URI:atoll:/test/site/a"};
    const char *text = "";
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        text = identity(near[i], "a");
        if (strcmp(text, "answer denied") != 0)
            break;
    }
    return text;
}

const char *san_too_long(void)
{
    static char san[4200];
    memcpy(san, SITE, sizeof SITE);
    memset(san + sizeof SITE - 1, 'a', 4000);
    return identity(san, "a");
}

const char *san_embedded_nul(void)
{
    static const char name[] = "atoll://test/site/a\0.example";
    scene_here();
    craft(&(struct craft){"x", "ca", NULL, EKU, -60, HOUR});
    EVP_PKEY *ca_key, *key;
    X509 *ca = craft_ca("ca", &ca_key), *x = craft_ca("x", &key);
    GENERAL_NAME *one = GENERAL_NAME_new();
    GENERAL_NAMES *all = GENERAL_NAMES_new();
    ASN1_IA5STRING *text = ASN1_IA5STRING_new();
    assert_true(ASN1_STRING_set(text, name, sizeof name - 1) == 1);
    GENERAL_NAME_set0_value(one, GEN_URI, text);
    assert_true(sk_GENERAL_NAME_push(all, one) == 1 &&
                X509_add1_ext_i2d(x, NID_subject_alt_name, all, 0, 0) == 1 &&
                X509_sign(x, ca_key, NULL) > 0);
    FILE *f = fopen(scratch("x.pem"), "w");
    assert_true(f && PEM_write_X509(f, x) == 1 && fclose(f) == 0);
    GENERAL_NAMES_free(all);
    X509_free(x);
    X509_free(ca);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    return hello_with("x", "a");
}

/* What signs headers, under the name that a TLS certificate has: x.pem, x.key. */
const char *identity_as_leaf(void)
{
    scene_here();
    char from[2][128];
    snprintf(from[0], sizeof from[0], "%s", scratch("a.identity.pem"));
    snprintf(from[1], sizeof from[1], "%s", scratch("a.identity.key"));
    remove(scratch("x.pem"));
    remove(scratch("x.key"));
    assert_int_equal(link(from[0], scratch("x.pem")), 0);
    assert_int_equal(link(from[1], scratch("x.key")), 0);
    const char *text = hello_with("x", "a");
    remove(scratch("x.pem"));
    remove(scratch("x.key"));
    return text;
}

const char *ca_as_leaf(void)
{
    scene_here();
    return hello_with("ca", "a");
}

const char *crl_revoked(void)
{
    scene_here();
    scene_revoke("# a stolen key\natoll://test/site/a # laptop\n");
    return hello_with("a", "a");
}

/* ---- at the site: who answers is not the aggregator ---- */

static struct fake fake;

/* A site of ours meets a server with these files. */
static const char *site_meets(const char *certificate)
{
    struct link_service service = fake_service(&fake);
    struct wire_hello_answer answer;
    struct link_server *s;
    int port = 0;
    memset(&fake, 0, sizeof fake);
    struct link_listen listen = {.address = "127.0.0.1:0",
                                 .sites = 2,
                                 .tls = fake_tls("ca.pem", certificate),
                                 .keepalive_ms = FAKE_KEEPALIVE_MS};
    assert_int_equal(link_serve(&s, &listen, &service, &port), ERR_OK);
    struct link *l = fake_dial(port, "ca.pem", "a");
    enum err e = fake_say_hello(l, "a", &answer);
    l->ops->close(l);
    link_shutdown(s, 0);
    assert_int_equal(fake.hellos, e == ERR_OK);
    return scene_err(e);
}

static const char *site_meets_crafted(const char *ca, const char *san, const char *eku,
                                      int64_t from, int64_t until)
{
    scene_here();
    other_authority();
    craft(&(struct craft){"y", "ca", "URI:atoll://test/aggregator/y,IP:127.0.0.1", "serverAuth",
                          -60, HOUR});
    assert_string_equal(site_meets("y"), "site OK"); /* what is crafted is fine but for one thing */
    craft(&(struct craft){"y", ca, san, eku, from, until});
    return site_meets("y");
}

const char *server_expired(void)
{
    return site_meets_crafted("ca", "IP:127.0.0.1", "serverAuth", -2 * HOUR, -HOUR);
}

const char *wrong_ca_server(void)
{
    return site_meets_crafted("other", "IP:127.0.0.1", "serverAuth", -60, HOUR);
}

/* As on a machine whose store of roots has the other authority. */
const char *public_root_server(void)
{
    scene_here();
    other_authority();
    setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", scratch("other.pem"), 1);
    setenv("SSL_CERT_FILE", scratch("other.pem"), 1);
    const char *text = site_meets_crafted("other", "IP:127.0.0.1", "serverAuth", -60, HOUR);
    unsetenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH");
    unsetenv("SSL_CERT_FILE");
    return text;
}

const char *server_name_wrong(void)
{
    return site_meets_crafted("ca", "DNS:elsewhere.example", "serverAuth", -60, HOUR);
}

const char *aggregator_role_wrong(void)
{
    return site_meets_crafted("ca", "URI:atoll://test/site/b,IP:127.0.0.1", EKU, -60, HOUR);
}

struct old_server {
    int fd;
    bool accepted;
};

static void *old_server_main(void *arg)
{
    struct old_server *s = arg;
    SSL_CTX *ctx = craft_context(TLS_server_method(), TLS1_2_VERSION, TLS1_2_VERSION, "y");
    SSL *ssl = SSL_new(ctx);
    int fd = accept(s->fd, NULL, NULL);
    struct timeval patience = {.tv_sec = 3};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    SSL_set_fd(ssl, fd);
    s->accepted = SSL_accept(ssl) == 1;
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(ctx);
    return NULL;
}

const char *tls12_server_to_site(void)
{
    struct wire_hello_answer answer;
    struct old_server s = {0};
    pthread_t thread;
    int port;
    scene_here();
    craft(&(struct craft){"y", "ca", "DNS:localhost,IP:127.0.0.1", "serverAuth", -60, HOUR});
    s.fd = craft_listen(&port);
    assert_int_equal(pthread_create(&thread, NULL, old_server_main, &s), 0);
    struct link *l = fake_dial(port, "ca.pem", "a");
    enum err e = fake_say_hello(l, "a", &answer);
    pthread_join(thread, NULL);
    l->ops->close(l);
    close(s.fd);
    assert_false(s.accepted);
    return scene_err(e);
}
