/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal by name (refusals.h), done over the real link. What breaks here: a stranger gets
 * in, or something gets through. After each row an honest site must be served as before, and the
 * state must be the one before.
 *
 *   test_refusals docs/refusals.md            all rows, then: is the page what the table says?
 *   test_refusals docs/refusals.md --write    all rows, then writes the page
 */
#include "tests/refusals/masked_scene.h"
#include "tests/refusals/refusals.h"
#include "tests/refusals/scene.h"

enum kind { DONE, BY_OTHER, CANNOT, NOT_BUILT, KINDS };
struct row {
    const char *group, *name, *what;
    enum kind kind;
    const char *answer;       /* CANNOT, NOT_BUILT: why */
    const char *file, *test;  /* BY_OTHER */
    const char *(*run)(void); /* DONE */
};
#define DONE_ROW(group, name, answer, what) {#group, #name, what, DONE, answer, NULL, NULL, name},
#define OTHER_ROW(group, name, answer, what, file, test)                                           \
    {#group, #name, what, BY_OTHER, answer, file, #test, NULL},
#define SILENT_ROW(group, name, what, why) {#group, #name, what, CANNOT, why, NULL, NULL, NULL},
#define LATER_ROW(group, name, what, needs)                                                        \
    {#group, #name, what, NOT_BUILT, needs, NULL, NULL, NULL},
static const struct row rows[] = {REFUSALS(DONE_ROW, OTHER_ROW, SILENT_ROW, LATER_ROW)};
enum { ROWS = sizeof rows / sizeof *rows, PAGE_MAX = 1 << 16 };
_Static_assert(ROWS == 155, "a name more or less than the list of what must be refused");

static const struct {
    const char *name, *title;
} groups[] = {
#define GROUP_ROW(name, title) {#name, title},
    REFUSAL_GROUPS(GROUP_ROW)};

static const char *page_path;
static bool page_write;

/* ---- the rows ---- */

static void run_row(void **state)
{
    const struct row *r = *state;
    char got[128];
    if (r->kind == CANNOT || r->kind == NOT_BUILT) {
        fprintf(stderr, "%s %s: %s (%s)\n", r->kind == CANNOT ? "CANNOT BE SAID" : "NOT BUILT",
                r->name, r->what, r->answer);
        skip();
    }
    if (r->kind == DONE) {
        scene_open(CODEC_INT4);
        masked_polled(false); /* a row before may have failed */
        snprintf(got, sizeof got, "%s", r->run());
        if (strcmp(got, r->answer) != 0)
            fail_msg("%s: %s; it must be: %s; last error: %s", r->name, got, r->answer,
                     err_message());
        scene_revoke("");
        scene_well();
        return;
    }
    struct arena a = arena_make(0);
    char wanted[128];
    uint8_t *text;
    size_t n;
    snprintf(wanted, sizeof wanted, "cmocka_unit_test(%s)", r->test);
    assert_int_equal(file_read(r->file, PAGE_MAX * 4, &a, &text, &n), ERR_OK);
    if (!memmem(text, n, wanted, strlen(wanted)))
        fail_msg("%s: %s has no test %s", r->name, r->file, r->test);
    arena_free(&a);
}

/* ---- the page ---- */

struct page {
    char text[PAGE_MAX];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void put(struct page *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->text + p->n, PAGE_MAX - p->n, format, args);
    va_end(args);
    assert_in_range(n, 0, PAGE_MAX - p->n - 1);
    p->n += (size_t)n;
}

static unsigned count(enum kind kind)
{
    unsigned n = 0;
    for (unsigned i = 0; i < ROWS; i++)
        n += rows[i].kind == kind;
    return n;
}

static void put_row(struct page *p, const struct row *r)
{
    put(p, "| `%s` | %s | ", r->name, r->what);
    switch (r->kind) {
    case DONE:
        put(p, "%s |\n", r->answer);
        break;
    case BY_OTHER:
        put(p, "%s (`%s`: %s) |\n", r->answer, r->file, r->test);
        break;
    case CANNOT:
        put(p, "cannot be said: %s |\n", r->answer);
        break;
    default:
        put(p, "**not built**: needs %s |\n", r->answer);
    }
}

static void page_make(struct page *p)
{
    p->n = 0;
    put(p,
        "# What is refused\n\n"
        "This page is made by `test_refusals docs/refusals.md --write` from the table in\n"
        "`tests/refusals/refusals.h`; the suite fails where the two differ. Of %u names, the "
        "program does %u over the real\nlink (TLS, gRPC, the real aggregator) and compares the "
        "answer; after each, an honest site is served as before and the\nstate is the one before. "
        "%u are done by other tests, which do not all use the real link. %u cannot be said on "
        "this wire.\n%u are not built.\n\n"
        "| answer | meaning |\n|---|---|\n"
        "| connection | no call gets through: the handshake is refused or the connection ended "
        "|\n"
        "| status S | gRPC's status S; no service code saw the call |\n"
        "| answer A | an outcome of the protocol ([protocol 3.2](protocol.md#32-answers)) |\n"
        "| site E | what the site makes of it |\n"
        "| waits R | a site logs the refusal R "
        "([privacy](privacy-methods.md#3-secure-aggregation)), signs "
        "and reveals nothing, and asks again; with the truth it continues |\n"
        "| limited | the others are served meanwhile |\n",
        (unsigned)ROWS, count(DONE), count(BY_OTHER), count(CANNOT), count(NOT_BUILT));
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        put(p, "\n## %zu. %s\n| name | what comes | what it gets |\n|---|---|---|\n", g + 1,
            groups[g].title);
        for (unsigned i = 0; i < ROWS; i++)
            if (strcmp(rows[i].group, groups[g].name) == 0)
                put_row(p, &rows[i]);
    }
}

static void the_page_is_the_table(void **state)
{
    (void)state;
    static struct page p;
    struct arena a = arena_make(0);
    uint8_t *text;
    size_t n;
    page_make(&p);
    if (page_write) {
        struct file_part part = {p.text, p.n};
        assert_int_equal(file_write(page_path, &part, 1, 0644), ERR_OK);
    }
    assert_int_equal(file_read(page_path, PAGE_MAX, &a, &text, &n), ERR_OK);
    if (n != p.n || memcmp(text, p.text, n) != 0)
        fail_msg("%s is not what the table says: run this test with %s --write", page_path,
                 page_path);
    arena_free(&a);
}

static int finish(void **state)
{
    masked_close();
    return scene_finish(state);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[ROWS + 1];
    page_path = argc > 1 ? argv[1] : "docs/refusals.md";
    page_write = argc > 2 && strcmp(argv[2], "--write") == 0;
    for (unsigned i = 0; i < ROWS; i++)
        tests[i] = (struct CMUnitTest){.name = rows[i].name,
                                       .test_func = run_row,
                                       .initial_state = (void *)(uintptr_t)&rows[i]};
    tests[ROWS] = (struct CMUnitTest)cmocka_unit_test(the_page_is_the_table);
    cmocka_set_test_filter(getenv("FILTER")); /* a pattern of names, for work on one row */
    int failed = cmocka_run_group_tests(tests, scene_prepare, finish);
    printf("%u names: %u over the real link, %u by other tests, %u cannot be said, NOT BUILT: %u\n",
           (unsigned)ROWS, count(DONE), count(BY_OTHER), count(CANNOT), count(NOT_BUILT));
    return failed;
}
