/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if the table is wrong: a caller may do too much. Every pair of a role and a
 * call, written out once more, and the names that are no role.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "outer/protocol/roles.h"

static void every_pair(void **state)
{
    (void)state;
    static const struct {
        const char *call, *may; /* of site, aggregator, operator, observer, no role */
    } rows[] = {
        {"hello", "yes no no no no"},     {"contribute", "yes no no no no"},
        {"poll", "yes no no no no"},      {"fetch", "yes no no no no"},
        {"report", "yes no no no no"},    {"leave", "yes no no no no"},
        {"mask", "yes no no no no"},      {"status", "no no yes no no"},
        {"abort", "no no yes no no"},     {"quarantine", "no no yes no no"},
        {"readmit", "no no yes no no"},   {"rollback", "no no yes no no"},
        {"roster", "no no yes no no"},    {"set", "no no yes no no"},
        {"metrics", "yes no yes yes no"}, {"records", "no no yes yes no"},
    };
    assert_int_equal(sizeof rows / sizeof *rows, ROLES_CALLS_COUNT);
    for (unsigned c = 0; c < ROLES_CALLS_COUNT; c++) {
        char words[32], *rest = words;
        strcpy(words, rows[c].may);
        assert_string_equal(roles_call_name((enum roles_call)c), rows[c].call);
        for (unsigned r = 0; r < ROLES_COUNT; r++)
            assert_int_equal(roles_may((enum roles_role)r, (enum roles_call)c),
                             strcmp(strsep(&rest, " "), "yes") == 0);
    }
}

static void roles_are_read_from_uris(void **state)
{
    (void)state;
    assert_int_equal(roles_of("atoll://demo/site/a", "demo"), ROLES_SITE);
    assert_int_equal(roles_of("atoll://demo/aggregator/aggregator", "demo"), ROLES_AGGREGATOR);
    assert_int_equal(roles_of("atoll://demo/operator/operator", "demo"), ROLES_OPERATOR);
    assert_int_equal(roles_of("atoll://demo/observer/x", "demo"), ROLES_OBSERVER);
    static const char *const none[] = {NULL,
                                       "",
                                       "atoll://other/operator/x",
                                       "atoll://demo/operator/",
                                       "atoll://demo/operator/x/y",
                                       "atoll://demo/Operator/x",
                                       "atoll://demo/operators/x",
                                       "atoll://demo/observers/x",
                                       "https://demo/operator/x",
                                       "atoll://demo//operator/x"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(roles_of(none[i], "demo"), ROLES_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),
        cmocka_unit_test(roles_are_read_from_uris),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
