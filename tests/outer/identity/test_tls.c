/* SPDX-License-Identifier: Apache-2.0 */
/* The authority of `atoll cert`, and what a process finds out about its own files before it
 * connects. What breaks here is an operator who reads only "handshake failed", or a key that others
 * can read.
 */
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "outer/identity/revocation.h"
#include "outer/identity/tls.h"
#include "tests/inner/scratch.h"

enum { NOW = 1800000000, DAY = 86400 };

static struct tls_request site_a(void)
{
    return (struct tls_request){.directory = scratch_root,
                                .out = scratch_root,
                                .role = TLS_SITE,
                                .name = "a",
                                .validity = {NOW - 300, NOW + 90 * DAY}};
}

static struct link_tls files(const char *name)
{
    static char certificate[2][256], key[2][256];
    static unsigned turn;
    unsigned i = turn++ % 2;
    snprintf(certificate[i], sizeof certificate[0], "%s/%s.pem", scratch_root, name);
    snprintf(key[i], sizeof key[0], "%s/%s.key", scratch_root, name);
    return (struct link_tls){scratch("ca.pem"), certificate[i], key[i]};
}

static enum err check_at(const struct link_tls *f, int64_t now, int64_t *days)
{
    return tls_check(f, "test", TLS_SITE, "a", now, days);
}

static void issued_and_checked(void **state)
{
    (void)state;
    for (int ed25519 = 0; ed25519 < 2; ed25519++) {
        struct tls_request r = site_a();
        r.ed25519 = ed25519;
        assert_int_equal(tls_issue(&r), ERR_OK);
        struct link_tls f = files("a");
        int64_t days = 0;
        if (check_at(&f, NOW, &days) != ERR_OK)
            fail_msg("%s", err_message());
        assert_int_equal(days, 90);
        struct tls_facts facts;
        assert_int_equal(tls_facts(&facts, f.certificate), ERR_OK);
        assert_string_equal(facts.uri, "atoll://test/site/a");
        assert_string_equal(facts.key, ed25519 ? "ED25519" : "P-256");
        assert_true(facts.uri_count == 1 && facts.client && !facts.server && !facts.authority);
        assert_true(facts.from_unix == NOW - 300 && facts.until_unix == NOW + 90 * DAY);
        struct stat st;
        assert_int_equal(stat(f.key, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    struct tls_facts ca;
    assert_int_equal(tls_facts(&ca, scratch("ca.pem")), ERR_OK);
    assert_true(ca.authority);
}

static void aggregator_needs_hosts(void **state)
{
    (void)state;
    static const char *const hosts[] = {"localhost", "203.0.113.7", "2001:db8::1"};
    struct tls_request r = site_a();
    r.role = TLS_AGGREGATOR;
    r.name = "aggregator";
    assert_int_equal(tls_issue(&r), ERR_CONFIG);
    assert_says("--host");
    r.hosts = hosts;
    r.host_count = 3;
    assert_int_equal(tls_issue(&r), ERR_OK);
    struct tls_facts f;
    assert_int_equal(tls_facts(&f, scratch("aggregator.pem")), ERR_OK);
    assert_string_equal(f.hosts, "localhost 203.0.113.7 2001:db8::1");
    assert_true(f.server && f.client);
    static const char *const smuggled[] = {"x,URI:atoll://test/site/b", "x y", "", "x\n"};
    for (int i = 0; i < 4; i++) {
        r.hosts = &smuggled[i];
        r.host_count = 1;
        assert_int_equal(tls_issue(&r), ERR_CONFIG);
    }
}

static void refused_at_start(void **state)
{
    (void)state;
    struct tls_request r = site_a();
    assert_int_equal(tls_issue(&r), ERR_OK);
    r.name = "b";
    assert_int_equal(tls_issue(&r), ERR_OK);
    struct link_tls a = files("a"), b = files("b");
    int64_t days;
    assert_int_equal(check_at(&a, NOW + 90 * DAY, &days), ERR_DENIED);
    assert_says("expired at 2027-04-15");
    assert_int_equal(days, 0);
    assert_int_equal(tls_days(&a, "test", TLS_SITE, "a", NOW), 90);
    assert_int_equal(tls_days(&a, "test", TLS_SITE, "a", NOW + 90 * DAY), -1);
    assert_int_equal(tls_days(&a, "test", TLS_SITE, "a", NOW + 93 * DAY), -3);
    assert_int_equal(tls_days(&b, "test", TLS_SITE, "a", NOW), -1);
    assert_int_equal(check_at(&a, NOW - 301, &days), ERR_DENIED);
    assert_says("clock");
    assert_int_equal(check_at(&b, NOW, &days), ERR_DENIED);
    assert_says("is for atoll://test/site/b, this process is atoll://test/site/a");
    assert_int_equal(tls_check(&a, "test", TLS_AGGREGATOR, "a", NOW, &days), ERR_DENIED);
    assert_int_equal(tls_check(&a, "other", TLS_SITE, "a", NOW, &days), ERR_DENIED);
    struct link_tls mixed = {a.ca, a.certificate, b.key};
    assert_int_equal(check_at(&mixed, NOW, &days), ERR_DENIED);
    assert_says("does not belong");
    char *other = strdup(scratch("other"));
    assert_int_equal(
        tls_authority(other, "test", true, (struct tls_validity){NOW - 300, NOW + 999 * DAY}),
        ERR_OK);
    mixed = (struct link_tls){scratch("other/ca.pem"), a.certificate, a.key};
    assert_int_equal(check_at(&mixed, NOW, &days), ERR_DENIED);
    assert_says("not certified by the authority in");
    free(other);
}

static void keys_are_guarded(void **state)
{
    (void)state;
    struct tls_request r = site_a();
    assert_int_equal(tls_issue(&r), ERR_OK);
    struct link_tls f = files("a");
    struct tls_pem pem;
    assert_int_equal(tls_load(&pem, &f), ERR_OK);
    tls_forget(&pem);
    assert_null(pem.key);
    assert_int_equal(chmod(f.key, 0640), 0);
    assert_int_equal(tls_load(&pem, &f), ERR_DENIED);
    assert_says("chmod 600");
    assert_int_equal(chmod(f.key, 0600), 0);
    char link[300];
    snprintf(link, sizeof link, "%s/link.key", scratch_root);
    assert_int_equal(symlink(f.key, link), 0);
    struct link_tls linked = {f.ca, f.certificate, link};
    assert_int_equal(tls_load(&pem, &linked), ERR_DENIED);
    assert_says("symbolic link");
    linked.key = "/dev/zero";
    assert_int_equal(tls_load(&pem, &linked), ERR_INPUT);
    linked.key = scratch("missing.key");
    assert_int_equal(tls_load(&pem, &linked), ERR_INPUT);
    assert_says("missing.key");
    if (geteuid() == 0) { /* a key of another user */
        assert_int_equal(chown(f.key, 12345, 12345), 0);
        assert_int_equal(tls_load(&pem, &f), ERR_DENIED);
    }
}

static void unusable_files(void **state)
{
    (void)state;
    struct tls_request r = site_a();
    assert_int_equal(tls_issue(&r), ERR_OK);
    struct link_tls f = files("a");
    int64_t days;
    uint64_t stamp = tls_stamp(&f);
    assert_true(stamp != 0 && stamp == tls_stamp(&f));
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_true(stamp != tls_stamp(&f));
    scratch_write("a.pem", "not PEM", 7);
    assert_int_equal(check_at(&f, NOW, &days), ERR_INPUT);
    assert_says("no certificate");
    scratch_write("a.pem", "", 0);
    assert_int_equal(check_at(&f, NOW, &days), ERR_INPUT);
    assert_int_equal(remove(f.certificate), 0);
    assert_int_equal(tls_stamp(&f), 0);
    assert_int_equal(check_at(&f, NOW, &days), ERR_INPUT);
    assert_says("atoll cert issue");
}

static void authority_is_never_replaced(void **state)
{
    (void)state;
    assert_int_equal(
        tls_authority(scratch_root, "test", false, (struct tls_validity){NOW, NOW + DAY}),
        ERR_INPUT);
    assert_says("there is an authority already");
    struct tls_request r = site_a();
    r.validity.until_unix = NOW + 1001 * DAY; /* beyond the authority's own end */
    assert_int_equal(tls_issue(&r), ERR_CONFIG);
    static const char *const bad[] = {
        "",
        "a/b",
        "a b",
        "..",
        "ca",
        "a,URI:x",
        "a-name-of-sixty-four-letters-is-one-too-long-for-us-and-refused-x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r = site_a();
        r.name = bad[i];
        assert_int_equal(tls_issue(&r), ERR_CONFIG);
    }
}

static void a_revoked_name_gets_no_certificate(void **state)
{
    (void)state;
    bool there;
    struct tls_request r = site_a();
    r.name = "z";
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_OK); /* a name may get another one */
    assert_int_equal(revocation_add(scratch_root, "atoll://test/site/z", NULL, &there), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_CONFIG);
    assert_says("revoked.txt");
}

/* Leaves of both authorities verify while ca.pem holds both, in either order; afterwards only
 * those of the present one. */
static void an_authority_is_rolled(void **state)
{
    (void)state;
    struct tls_validity v = {NOW - 300, NOW + 1000 * DAY};
    struct tls_request r = site_a();
    int64_t days;
    char *dir = strdup(scratch("rolled")), old[300], bundle[300];
    assert_int_equal(tls_authority(dir, "test", false, v), ERR_OK);
    r.directory = r.out = dir;
    assert_int_equal(tls_issue(&r), ERR_OK);
    snprintf(old, sizeof old, "%s/old", dir);
    snprintf(bundle, sizeof bundle, "%s/old/ca.pem", dir);
    r.out = old;
    assert_int_equal(tls_issue(&r), ERR_OK); /* stays of the old one */
    assert_int_equal(tls_authority_roll(dir, v), ERR_OK);
    r.out = dir;
    assert_int_equal(tls_issue(&r), ERR_OK);
    char ca[320], certificate[320], key[320], old_certificate[320], old_key[320];
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(certificate, sizeof certificate, "%s/a.pem", dir);
    snprintf(key, sizeof key, "%s/a.key", dir);
    snprintf(old_certificate, sizeof old_certificate, "%s/a.pem", old);
    snprintf(old_key, sizeof old_key, "%s/a.key", old);
    struct link_tls of_new = {ca, certificate, key}, of_old = {ca, old_certificate, old_key};
    if (check_at(&of_new, NOW, &days) != ERR_OK || check_at(&of_old, NOW, &days) != ERR_OK)
        fail_msg("%s", err_message());
    of_new.ca = bundle; /* the old root alone */
    assert_int_equal(check_at(&of_new, NOW, &days), ERR_DENIED);
    assert_int_equal(tls_authority_roll(dir, v), ERR_OK); /* three of them */
    of_new.ca = ca;
    assert_int_equal(check_at(&of_new, NOW, &days), ERR_OK);
    assert_int_equal(check_at(&of_old, NOW, &days), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_int_equal(tls_authority_retire(dir), ERR_OK);
    assert_int_equal(check_at(&of_new, NOW, &days), ERR_OK);
    assert_int_equal(check_at(&of_old, NOW, &days), ERR_DENIED);
    assert_int_equal(tls_issue(&r), ERR_OK);
    free(dir);
}

static void identities(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        bool good;
    } cases[] = {{"atoll://test/site/z", true},  {"atoll://test/operator/z", true},
                 {"atoll://test/king/z", false}, {"atoll://test/site/z/", false},
                 {"atoll://test/site/", false},  {"atoll://test//z", false},
                 {"Atoll://test/site/z", false}, {"atoll://te st/site/z", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tls_identity id;
        if (tls_uri_parse(&id, cases[i].uri) != cases[i].good)
            fail_msg("%s", cases[i].uri);
    }
}

static struct tls_request now_site(const char *name, const char *out)
{
    int64_t now = clock_wall_s();
    return (struct tls_request){.directory = out,
                                .out = out,
                                .role = TLS_SITE,
                                .name = name,
                                .validity = {now - 60, now + 40 * DAY}};
}

static struct signer_key key_of(const struct link_tls *f, const char *uri)
{
    struct signer *s = NULL;
    struct signer_key key;
    if (tls_signer_open(&s, f, uri) != ERR_OK)
        fail_msg("%s", err_message());
    s->ops->key(s, &key);
    s->ops->close(s);
    return key;
}

/* The key outlives certificates and authorities; a revoked one, or a request, ends it. */
static void an_identity_key_is_kept(void **state)
{
    (void)state;
    int64_t now = clock_wall_s();
    struct tls_validity v = {now - 60, now + 1000 * DAY};
    char *dir = strdup(scratch("identity")), ca[300], certificate[300], key[300], file[300];
    char entry[REVOCATION_ENTRY_MAX], hex[65];
    bool there;
    struct tls_facts f;
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(certificate, sizeof certificate, "%s/a.pem", dir);
    snprintf(key, sizeof key, "%s/a.key", dir);
    snprintf(file, sizeof file, "%s/a.identity.pem", dir);
    struct link_tls files_a = {ca, certificate, key};
    struct tls_request r = now_site("a", dir);
    assert_int_equal(tls_authority(dir, "test", false, v), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_int_equal(tls_facts(&f, file), ERR_OK);
    assert_true(f.identity && !f.client && !f.server && !f.authority && f.uri_count == 1);
    assert_string_equal(f.uri, "atoll://test/site/a");
    assert_string_equal(f.key, "ED25519");
    assert_int_equal(f.until_unix, v.until_unix); /* as long as the authority */
    assert_int_equal(tls_facts(&f, certificate), ERR_OK);
    assert_false(f.identity);
    struct signer_key first = key_of(&files_a, "atoll://test/site/a"), next;
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_int_equal(tls_authority_roll(dir, v), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_OK);
    assert_int_equal(tls_authority_retire(dir), ERR_OK);
    next = key_of(&files_a, "atoll://test/site/a"); /* by the new authority */
    assert_memory_equal(&next, &first, sizeof first);
    r.identity_new = true;
    assert_int_equal(tls_issue(&r), ERR_OK);
    next = key_of(&files_a, "atoll://test/site/a");
    assert_memory_not_equal(&next, &first, sizeof first);
    first = next;
    r.identity_new = false;
    assert_int_equal(tls_facts(&f, file), ERR_OK);
    digest_hex(&f.sha256, hex);
    snprintf(entry, sizeof entry, "sha256:%s", hex);
    assert_int_equal(revocation_add(dir, entry, NULL, &there), ERR_OK);
    assert_int_equal(tls_issue(&r), ERR_OK);
    next = key_of(&files_a, "atoll://test/site/a");
    assert_memory_not_equal(&next, &first, sizeof first);
    struct signer *s = NULL;
    assert_int_equal(tls_signer_open(&s, &files_a, "atoll://test/site/b"), ERR_DENIED);
    r.name = "a.identity"; /* would have its files */
    assert_int_equal(tls_issue(&r), ERR_CONFIG);
    free(dir);
}

static void from_hex(uint8_t *out, const char *hex)
{
    for (unsigned v; sscanf(hex, "%2x", &v) == 1; hex += 2)
        *out++ = (uint8_t)v;
}

/* RFC 8032, 7.1, test 2: another implementation's signatures hold here. */
static void signatures(void **state)
{
    (void)state;
    struct signer *s = NULL;
    struct signer_key key;
    uint8_t signature[SIGNER_BYTES], message[] = {0x72};
    int64_t now = clock_wall_s();
    char *dir = strdup(scratch("signatures"));
    assert_int_equal(
        tls_authority(dir, "test", false, (struct tls_validity){now - 60, now + 1000 * DAY}),
        ERR_OK);
    struct tls_request r = now_site("a", dir);
    assert_int_equal(tls_issue(&r), ERR_OK);
    char ca[300], certificate[300], key_path[300];
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(certificate, sizeof certificate, "%s/a.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/a.key", dir);
    struct link_tls f = {ca, certificate, key_path};
    assert_int_equal(tls_signer_open(&s, &f, "atoll://test/site/a"), ERR_OK);
    from_hex(key.bytes, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    from_hex(signature, "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
    assert_true(s->ops->verify(s, &key, message, 1, signature));
    message[0] ^= 1;
    assert_false(s->ops->verify(s, &key, message, 1, signature));
    s->ops->key(s, &key);
    assert_int_equal(s->ops->sign(s, message, 1, signature), ERR_OK);
    assert_true(s->ops->verify(s, &key, message, 1, signature));
    signature[40] ^= 1;
    assert_false(s->ops->verify(s, &key, message, 1, signature));
    s->ops->close(s);
    s = NULL;
    char command[1200]; /* a TLS certificate with a key of the same kind is no identity */
    r.ed25519 = true;
    assert_int_equal(tls_issue(&r), ERR_OK);
    snprintf(command, sizeof command,
             "cd %s && cp a.pem a.identity.pem && cp -p a.key a.identity.key", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(tls_signer_open(&s, &f, "atoll://test/site/a"), ERR_DENIED);
    assert_says("is not for identities");
    free(dir);
}

static int prepare(void **state)
{
    struct tls_validity v = {NOW - 300, NOW + 1000 * DAY};
    return tls_force13() == ERR_OK && scratch_open(state) == 0 &&
                   tls_authority(scratch_root, "test", false, v) == ERR_OK
               ? 0
               : -1;
}

static char last_log[512];

static void log_keep(void *self, enum log_level level, const char *line)
{
    (void)self;
    snprintf(last_log, sizeof last_log, "%d %s", (int)level, line);
}

static enum log_level expiry_level(int64_t life_s, int64_t left_s)
{
    struct tls_facts f = {.from_unix = NOW + left_s - life_s, .until_unix = NOW + left_s};
    last_log[0] = 0;
    tls_log_expiry("x", &f, NOW);
    return *last_log ? (enum log_level)atoi(last_log) : LOG_DEBUG;
}

/* A certificate of a week that is renewed every day is not warned about; one of 90 days is, a month
 * before. */
static void warnings_follow_the_life(void **state)
{
    (void)state;
    log_to(log_keep, NULL);
    assert_int_equal(expiry_level(90 * DAY, 31 * DAY), LOG_DEBUG);
    assert_int_equal(expiry_level(90 * DAY, 29 * DAY), LOG_INFO);
    assert_int_equal(expiry_level(90 * DAY, 6 * DAY), LOG_WARN);
    assert_int_equal(expiry_level(90 * DAY, DAY - 1), LOG_ERROR);
    assert_int_equal(expiry_level(7 * DAY, 6 * DAY), LOG_DEBUG);
    assert_int_equal(expiry_level(7 * DAY, 3 * DAY), LOG_INFO);
    assert_int_equal(expiry_level(7 * DAY, DAY + 1), LOG_WARN);
    assert_int_equal(expiry_level(7 * DAY, DAY / 3), LOG_ERROR);
    assert_int_equal(expiry_level(7 * DAY, -1), LOG_ERROR);
    log_to(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(issued_and_checked),
        cmocka_unit_test(aggregator_needs_hosts),
        cmocka_unit_test(refused_at_start),
        cmocka_unit_test(keys_are_guarded),
        cmocka_unit_test(unusable_files),
        cmocka_unit_test(authority_is_never_replaced),
        cmocka_unit_test(a_revoked_name_gets_no_certificate),
        cmocka_unit_test(an_authority_is_rolled),
        cmocka_unit_test(identities),
        cmocka_unit_test(an_identity_key_is_kept),
        cmocka_unit_test(signatures),
        cmocka_unit_test(warnings_follow_the_life),
    };
    return cmocka_run_group_tests(tests, prepare, scratch_close);
}
