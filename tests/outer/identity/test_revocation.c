/* SPDX-License-Identifier: Apache-2.0 */
/* The list of revoked identities and certificates. What breaks here is a stolen key that continues
 * being accepted, or a list that admits all callers once it is damaged or lost.
 */
#include <sys/stat.h>
#include <unistd.h>
#include "kernels/base/log.h"
#include "outer/identity/revocation.h"
#include "tests/inner/scratch.h"

static char logged[8192];

static void log_keep(void *self, enum log_level level, const char *line)
{
    (void)self;
    (void)level;
    size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static struct wire_certificate certificate(const char *of)
{
    return (struct wire_certificate){.sha256 = digest_of(of, strlen(of)), .serial = "0A2B3C"};
}

static void list_write(const char *text)
{
    scratch_write("revoked.txt", text, strlen(text));
}

/* In its own buffer: scratch() has a few. */
static const char *list_path(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/revoked.txt", scratch_root);
    return path;
}

static const char *copy_path(void)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/copy", scratch_root);
    return path;
}

static bool refused(struct revocation *r, const char *uri, const char *of)
{
    struct wire_certificate c = certificate(of);
    return revocation_why(r, uri, &c) != NULL;
}

static int fresh(void **state)
{
    (void)state;
    logged[0] = 0;
    return file_remove_tree(list_path()) != ERR_OK || file_remove(copy_path()) != ERR_OK;
}

static void forms_of_an_entry(void **state)
{
    (void)state;
#define D32 "0123456789abcdef0123456789abcdef"
#define U32 "0123456789ABCDEF0123456789ABCDEF"
    static const struct {
        const char *text, *entry; /* NULL: none */
    } cases[] = {
        {"atoll://test/site/a", "atoll://test/site/a"},
        {"sha256:" D32 D32, "sha256:" D32 D32},
        {"SHA256:" U32 D32, "sha256:" D32 D32},
        {"sha256:01:23:45:67:89:AB:CD:EF:0123456789abcdef" D32, "sha256:" D32 D32},
        {"sha256:" D32, NULL},
        {"sha256:" D32 D32 "0", NULL},
        {"sha256:" D32 "0123456789abcdef0123456789abcdeg", NULL},
        {"serial:0A2B", "serial:a2b"},
        {"serial:00:0a:2b", "serial:a2b"},
        {"serial:", NULL},
        {"serial:000", NULL},
        {"serial:12345678901234567890123456789012345678901", NULL},
        {"z", NULL},
        {"", NULL},
        {"atoll://", NULL},
        {"atoll://test/site/a b", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char entry[REVOCATION_ENTRY_MAX];
        bool is = revocation_entry(entry, cases[i].text);
        if (is != (cases[i].entry != NULL) || (is && strcmp(entry, cases[i].entry) != 0))
            fail_msg("%s", cases[i].text);
    }
}

static void entries_are_added_once(void **state)
{
    (void)state;
    bool there = true;
    assert_int_equal(revocation_listed(scratch_root, "atoll://test/site/z", &there), ERR_OK);
    assert_false(there);
    list_write("# by hand\n  atoll://test/site/y # left"); /* no end of line */
    assert_int_equal(revocation_add(scratch_root, "atoll://test/site/z", NULL, &there), ERR_OK);
    assert_false(there);
    assert_int_equal(revocation_add(scratch_root, "atoll://test/site/z", NULL, &there), ERR_OK);
    assert_true(there);
    assert_int_equal(revocation_add(scratch_root, "serial:a2b", "of site z", &there), ERR_OK);
    static const struct {
        const char *entry;
        bool listed;
    } cases[] = {{"atoll://test/site/z", true},
                 {"atoll://test/site/y", true},
                 {"atoll://test/site/zz", false},
                 {"atoll://test/site/", false},
                 {"by hand", false},
                 {"serial:a2b", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(revocation_listed(scratch_root, cases[i].entry, &there), ERR_OK);
        if (there != cases[i].listed)
            fail_msg("%s", cases[i].entry);
    }
}

static void names_certificates_and_serials(void **state)
{
    (void)state;
    struct revocation *r;
    char text[512], hex[65];
    struct digest d = digest_of("stolen", 6);
    digest_hex(&d, hex);
    assert_int_equal(revocation_open(&r, list_path(), NULL), ERR_OK);
    assert_false(refused(r, "atoll://test/site/a", "stolen"));
    snprintf(text, sizeof text, "sha256:%s  # laptop\n", hex);
    list_write(text);
    assert_true(refused(r, "atoll://test/site/a", "stolen"));
    assert_false(refused(r, "atoll://test/site/a", "new")); /* the same name, another key */
    struct wire_certificate none = {0};
    assert_null(revocation_why(r, "atoll://test/site/a", &none));
    list_write("atoll://test/site/a\r\n");
    assert_true(refused(r, "atoll://test/site/a", "new"));
    assert_false(refused(r, "atoll://test/site/b", "stolen"));
    list_write("serial:a2b3c");
    assert_true(refused(r, "atoll://test/site/b", "new"));
    list_write("serial:a2b3d\n");
    assert_false(refused(r, "atoll://test/site/b", "new"));
    logged[0] = 0;
    list_write("sha256:12\natoll://test/site/a\n"); /* a slip costs the line, and is said */
    assert_true(refused(r, "atoll://test/site/a", "new"));
    assert_non_null(strstr(logged, "level=error ev=revoked_read count=1 unknown=1"));
    revocation_close(r);
}

static void unreadable_then_missing_admits_nobody(void **state)
{
    (void)state;
    struct revocation *r;
    list_write("atoll://test/site/a\n");
    assert_int_equal(revocation_open(&r, list_path(), NULL), ERR_OK);
    assert_false(refused(r, "atoll://test/site/b", "b"));
    assert_int_equal(unlink(list_path()), 0);
    assert_true(refused(r, "atoll://test/site/a", "a")); /* a lost list stays in force */
    assert_false(refused(r, "atoll://test/site/b", "b"));
    assert_non_null(strstr(logged, "ev=revoked_missing"));
    assert_int_equal(mkdir(list_path(), 0700), 0); /* nothing that can be read */
    assert_true(refused(r, "atoll://test/site/b", "b"));
    assert_true(refused(r, "atoll://test/site/b", "b"));
    const char *line = strstr(logged, "ev=revoked_unreadable");
    assert_non_null(line);
    assert_null(strstr(line + 1, "ev=revoked_unreadable")); /* once, not at each call */
    assert_int_equal(rmdir(list_path()), 0);
    assert_true(refused(r, "atoll://test/site/b", "b")); /* still: who was added is not known */
    list_write("");
    assert_false(refused(r, "atoll://test/site/a", "a"));
    scratch_write("revoked.txt", "atoll://test/site/a\n\0x", 22);
    assert_true(refused(r, "atoll://test/site/b", "b"));
    list_write("# no name\n");
    assert_false(refused(r, "atoll://test/site/b", "b"));
    revocation_close(r);
}

static void a_restart_keeps_a_lost_list(void **state)
{
    (void)state;
    struct revocation *r;
    list_write("atoll://test/site/a # gone\nserial:ff\n");
    assert_int_equal(revocation_open(&r, list_path(), copy_path()), ERR_OK);
    revocation_close(r);
    assert_int_equal(unlink(list_path()), 0);
    assert_int_equal(revocation_open(&r, list_path(), copy_path()), ERR_OK);
    assert_true(refused(r, "atoll://test/site/a", "a"));
    assert_false(refused(r, "atoll://test/site/b", "b"));
    assert_non_null(strstr(logged, "ev=revoked_missing"));
    list_write("serial:ff\n"); /* a line that is removed readmits */
    assert_false(refused(r, "atoll://test/site/a", "a"));
    revocation_close(r);
    assert_int_equal(unlink(list_path()), 0);
    scratch_write("copy", "\0", 1); /* damaged too */
    assert_int_equal(revocation_open(&r, list_path(), copy_path()), ERR_OK);
    assert_true(refused(r, "atoll://test/site/b", "b"));
    revocation_close(r);
}

static int prepare(void **state)
{
    log_to(log_keep, NULL);
    return scratch_open(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_an_entry),
        cmocka_unit_test_setup(entries_are_added_once, fresh),
        cmocka_unit_test_setup(names_certificates_and_serials, fresh),
        cmocka_unit_test_setup(unreadable_then_missing_admits_nobody, fresh),
        cmocka_unit_test_setup(a_restart_keeps_a_lost_list, fresh),
    };
    return cmocka_run_group_tests(tests, prepare, scratch_close);
}
