/* SPDX-License-Identifier: Apache-2.0 */
/* Whose data counted. What breaks here: a run that ends without some site's work and says nothing,
 * or a site that is said to be missing and is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "outer/record/counted.h"

static struct counted s;

static void manifests_are_told_as_text(void **state)
{
    (void)state;
    static char text[COUNTED_TEXT_MAX];
    static struct manifest m;
    m = (struct manifest){.site_count = 3};
    for (uint32_t i = 0; i < 3; i++)
        m.sites[i] =
            (struct manifest_entry){.site = i, .included = i != 1, .data_cursor = UINT64_MAX - i};
    counted_text(&m, text);
    assert_string_equal(text, "0:18446744073709551615,2:18446744073709551613");
    m.site_count = ROUND_SITES_MAX; /* the longest there is fits */
    for (uint32_t i = 0; i < ROUND_SITES_MAX; i++)
        m.sites[i] =
            (struct manifest_entry){.site = i, .included = true, .data_cursor = UINT64_MAX};
    counted_text(&m, text);
    s = (struct counted){0};
    counted_add(&s, 0, 0, text);
    for (unsigned i = 0; i < ROUND_SITES_MAX; i++)
        assert_int_equal(counted_of(&s, i).rounds, 1);
}

static void rounds_and_tokens_are_counted(void **state)
{
    (void)state;
    s = (struct counted){0};
    assert_true(counted_of(&s, 0).ends); /* no round yet: no site is missing */
    counted_add(&s, 0, 0, "0:100,1:50,2:70");
    counted_add(&s, 1, 0, "0:120,1:60,2:90");
    counted_add(&s, 0, 1, "0:200,2:140");
    counted_add(&s, 0, 1, "0:200,1:100,2:140"); /* told twice */
    counted_add(&s, 0, 0, "0:999");
    assert_int_equal(s.rounds, 3);
    assert_int_equal(counted_of(&s, 0).rounds, 3);
    assert_int_equal(counted_of(&s, 1).rounds, 2);
    assert_int_equal(counted_of(&s, 1).tokens, 60);
    assert_int_equal(counted_tokens(&s), 200 + 60 + 140);
    assert_true(counted_of(&s, 0).ends && counted_of(&s, 2).ends);
    assert_false(counted_of(&s, 1).ends); /* in the newest round of fragment 1, not of 0 */
    counted_add(&s, 0, 2, "1:150");
    assert_true(counted_of(&s, 1).ends);
    assert_false(counted_of(&s, 0).ends);
    counted_add(&s, 1, 1, ""); /* aborted: no site */
    for (unsigned i = 0; i < 3; i++)
        assert_false(counted_of(&s, i).ends);
    assert_int_equal(s.rounds, 5);
}

/* What a record may hold when it is damaged or of another version. */
static void records_are_read_with_care(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"v\":1,\"kind\":\"round\",\"fragment\":0,\"round\":0,\"cursors\":\"0:7,1024:9\"}",
        "{\"v\":1,\"kind\":\"round\",\"fragment\":64,\"round\":0,\"cursors\":\"1:7\"}",
        "{\"v\":1,\"kind\":\"round\",\"fragment\":-1,\"round\":0,\"cursors\":\"1:7\"}",
        "{\"v\":1,\"kind\":\"site\",\"fragment\":0,\"round\":9,\"cursors\":\"1:7\"}",
        "{\"v\":1,\"kind\":\"round\",\"fragment\":0,\"round\":1}",
        "{\"v\":1,\"kind\":\"round\",\"fragment\":0,\"round\":2,\"cursors\":\"0:9,x,1:7\"}"};
    s = (struct counted){0};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[128];
        struct jsonl_row row;
        snprintf(line, sizeof line, "%s", lines[i]);
        assert_true(jsonl_parse(&row, line));
        counted_record(&s, &row);
    }
    assert_int_equal(s.rounds, 3);
    assert_int_equal(counted_of(&s, 0).rounds, 2);
    assert_int_equal(counted_of(&s, 0).tokens, 9);
    assert_int_equal(counted_of(&s, 1).rounds, 0);
}

/* Of a site whose processes hold fragments each: another one's last round is without a site that
 * came later, which the manifests here do not know. */
static void processes_judge_together(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    static struct counted_last lead, other, none;
    lead.newest = (struct manifest){.roster_version = 1, .site_count = 2, .initial = 2};
    other.newest =
        (struct manifest){.roster_version = 2, .site_count = 3, .initial = 2, .added = 1};
    strcpy(other.newest.names[0], "late");
    set_put(&other.missing, 2, true);
    assert_int_equal(counted_short(&lead, names), ERR_OK);
    counted_join(&lead, &none); /* it holds none, or no round was made */
    assert_int_equal(counted_short(&lead, names), ERR_OK);
    counted_join(&lead, &other);
    assert_int_equal(counted_short(&lead, names), ERR_SHORT);
    assert_non_null(strstr(err_message(), "1 of 3 sites (late)"));
    set_put(&lead.missing, 0, true);
    counted_join(&other, &lead); /* in any order */
    assert_int_equal(counted_short(&other, names), ERR_SHORT);
    assert_non_null(strstr(err_message(), "2 of 3 sites (a, late)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests_are_told_as_text),
        cmocka_unit_test(rounds_and_tokens_are_counted),
        cmocka_unit_test(records_are_read_with_care),
        cmocka_unit_test(processes_judge_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
