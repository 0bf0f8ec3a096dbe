/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a file that is JSON is refused as none, or a small file takes all
 * memory. Cases: RFC 8259, section 6 (numbers have no limit there). */
#include "tests/inner/scratch.h"
#include "inner/config/json.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static const struct json *item(const char *text, const char *key)
{
    struct json *j = arena_alloc(&arena, sizeof *j);
    if (json_read(j, "x.json", text, strlen(text), &arena))
        fail_msg("%s", err_message());
    return json_find(j, key);
}

static void is_whole(const char *number, int64_t value)
{
    const struct json *j = item(arena_printf(&arena, "{\"a\": [%s]}", number), "a");
    assert_int_equal(j->items[0].kind, JSON_WHOLE);
    assert_true(j->items[0].whole == value);
}

static void is_decimal(const char *number, double value)
{
    const struct json *j = item(arena_printf(&arena, "{\"a\": [%s]}", number), "a");
    assert_int_equal(j->items[0].kind, JSON_DECIMAL);
    assert_true(j->items[0].number == value); /* NOLINT: exact by construction */
}

/* A neighbour keeps its kind, and texts are left alone. */
static void integers_beyond_64_bits_become_reals(void **state)
{
    (void)state;
    is_whole("9223372036854775807", INT64_MAX);
    is_whole("-9223372036854775808", INT64_MIN);
    is_decimal("9223372036854775808", 0x1p63);
    is_decimal("-9223372036854775809", -0x1p63);
    is_decimal("1000000000000000019884624838656", 1e30);
    is_decimal("18446744073709551616", 0x1p64);
    const struct json *j = item("{\"1000000000000000019884624838656\": "
                                "\"\\\"1000000000000000019884624838656\", \"big\": "
                                "1000000000000000019884624838656,\n\"small\":7, \"real\": 1.5, "
                                "\"long\": 0.1000000000000000019884624838656}",
                                "1000000000000000019884624838656");
    assert_string_equal(j->text, "\"1000000000000000019884624838656");
    assert_int_equal(j[1].kind, JSON_DECIMAL);
    assert_int_equal(j[2].kind, JSON_WHOLE);
    assert_int_equal(j[2].whole, 7);
    assert_true(j[4].number == 0.1);
}

static void what_is_no_number_stays_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"[1e400]",
                                      "[99999999999999999999, 1e999]",
                                      "[+1]",
                                      "[99999999999999999999x]",
                                      "[099999999999999999999]",
                                      "[99999999999999999999"};
    struct json j;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_read(&j, "x.json", bad[i], strlen(bad[i]), &arena), ERR_INPUT);
        assert_says("x.json: not JSON: line 1");
    }
}

/* A text of a few megabytes would take a hundred times as much. */
static void too_many_values_are_refused_before_memory_is_taken(void **state)
{
    (void)state;
    struct json j;
    static const char text[] = "{\"a\": [1, 2, \"x,[{\\\",\"], \"b\": {}}"; /* 7 values */
    assert_int_equal(json_read_most(&j, "x.json", text, sizeof text - 1, 6, &arena), ERR_INPUT);
    assert_says("x.json: more than 6 values");
    assert_int_equal(json_read_most(&j, "x.json", text, sizeof text - 1, 7, &arena), ERR_OK);
    size_t n = JSON_VALUES_MAX;
    char *many = malloc(n);
    assert_non_null(many);
    memset(many, '[', n);
    assert_int_equal(json_read(&j, "x.json", many, n, &arena), ERR_INPUT);
    assert_says("values");
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(integers_beyond_64_bits_become_reals, reset),
        cmocka_unit_test_setup(what_is_no_number_stays_refused, reset),
        cmocka_unit_test_setup(too_many_values_are_refused_before_memory_is_taken, reset),
    };
    arena = arena_make(0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
