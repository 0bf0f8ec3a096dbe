/* The authority behind `atoll cert`, and what a process finds out about its own files before it
 * connects. What breaks here is an operator in front of "handshake failed", or a key that others
 * can read.
 */
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/link/revocation.h"
#include "outer/link/tls.h"
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

/* Leaves of both authorities verify while ca.pem holds both, whichever comes first; afterwards only
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
        cmocka_unit_test(warnings_follow_the_life),
    };
    return cmocka_run_group_tests(tests, prepare, scratch_close);
}
