/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a second run over the same patients begins with a whole budget, and
 * no message says what both together cost. */
#include "tests/inner/scratch.h"
#include <sys/stat.h>
#include "outer/budget/runs.h"

static struct arena arena;
static const struct chained_at nothing;
static const struct private_charge step = {.step = 0,
                                           .records = 1000,
                                           .expected = 10,
                                           .noise = 1,
                                           .clip = 1,
                                           .unit = "owner",
                                           .sampling = "poisson",
                                           .unit_sequences = 1,
                                           .bands = 1};

/* A start of run `name` with owners "abc" (a letter each; NULL: not known), `charged` steps and
 * `ahead` further ones. Returns the runs that share people; *steps: of these. */
static unsigned start(const char *dir, const char *name, const char *site, const char *letters,
                      int64_t charged, int64_t ahead, int64_t *steps)
{
    struct runs r;
    struct runs_shared x;
    struct budget own = {.count = 0};
    struct private_charge c = step;
    struct runs_self self = {.id = digest_of(name, strlen(name)), .run = name, .site = site};
    uint8_t owners[26][RUNS_OWNER_BYTES] = {{0}};
    for (; letters && letters[self.owner_count]; self.owner_count++)
        owners[self.owner_count][3] = (uint8_t)letters[self.owner_count];
    self.owners = letters ? owners[0] : NULL;
    c.counted = charged;
    if (charged)
        assert_int_equal(budget_add(&own, &c), ERR_OK);
    assert_int_equal(runs_open(&r, scratch(dir), &nothing, &arena), ERR_OK);
    assert_int_equal(runs_shared(&x, &r, &self), ERR_OK);
    assert_int_equal(runs_book(&r, &self, &own, &step, ahead), ERR_OK);
    runs_close(&r);
    *steps = x.spent.steps;
    return x.runs;
}

static void runs_that_share_an_owner_compose(void **state)
{
    int64_t steps;
    (void)state;
    assert_int_equal(start("a", "one", "north", "abc", 0, 100, &steps), 0);
    assert_int_equal(start("a", "two", "south", "xyz", 0, 10, &steps), 0); /* no owner in common */
    assert_int_equal(start("a", "three", "south", "czaca", 0, 20, &steps), 2);
    assert_int_equal(steps, 110);
    assert_int_equal(start("a", "three", "south", "czaca", 5, 15, &steps), 2); /* not with itself */
    assert_int_equal(steps, 110);
    /* Owners that are not known: the site's name. */
    assert_int_equal(start("a", "four", "south", NULL, 0, 7, &steps), 2);
    assert_int_equal(steps, 30);
    assert_int_equal(start("a", "five", "west", NULL, 0, 7, &steps), 0);
    assert_int_equal(start("a", "six", "south", "q", 0, 7, &steps), 1); /* with four alone */
}

/* What was ahead at a start is what the run has, until it is started again; what it has charged
 * stays. */
static void the_last_start_counts(void **state)
{
    int64_t steps;
    (void)state;
    start("b", "one", "north", "abc", 0, 1000, &steps);
    start("b", "one", "north", "abc", 40, 10, &steps);
    start("b", "two", "north", "c", 0, 1, &steps);
    assert_int_equal(steps, 50);
    start("b", "one", "north", "abc", 0, 10, &steps); /* of an older copy */
    start("b", "two", "north", "c", 0, 1, &steps);
    assert_int_equal(steps, 40);
}

static void take_line(const char *name, int number)
{
    uint8_t *data;
    size_t size;
    char *kept = arena_alloc(&arena, 1 << 16), *at;
    assert_int_equal(file_read(scratch(name), 1 << 16, &arena, &data, &size), ERR_OK);
    at = kept;
    for (char *line = (char *)data, *end; (end = strchr(line, '\n')); line = end + 1)
        if (number-- != 1)
            at = (char *)memcpy(at, line, (size_t)(end + 1 - line)) + (end + 1 - line);
    scratch_write(name, kept, (size_t)(at - kept));
}

/* An entry from the middle, the last one, the list, a set, the key: none is missed. */
static void what_is_missing_is_said(void **state)
{
    int64_t steps;
    struct runs r;
    struct runs_shared x;
    uint8_t owner[RUNS_OWNER_BYTES] = {0, 0, 0, 'c'};
    struct runs_self self = {{{9}}, "three", "north", owner, 1};
    (void)state;
    for (int line = 1; line <= 5; line++) {
        char dir[8];
        snprintf(dir, sizeof dir, "c%d", line);
        start(dir, "one", "north", "abc", 0, 10, &steps);
        start(dir, "two", "north", "c", 0, 10, &steps);
        take_line(arena_printf(&arena, "%s/list", dir), line);
        assert_int_equal(runs_open(&r, scratch(dir), &nothing, &arena), ERR_CORRUPT);
        assert_says("what earlier runs have charged to the same people is not known");
    }
    start("d", "one", "north", "abc", 0, 10, &steps);
    assert_int_equal(runs_open(&r, scratch("d"), &nothing, &arena), ERR_OK);
    struct chained_at seen = r.list.last;
    runs_close(&r);
    assert_int_equal(file_remove_tree(scratch("d/sets")), ERR_OK);
    assert_int_equal(runs_open(&r, scratch("d"), &nothing, &arena), ERR_OK);
    assert_int_not_equal(runs_shared(&x, &r, &self), ERR_OK);
    runs_close(&r);
    assert_int_equal(chmod(scratch("d/key"), 0644), 0);
    assert_int_equal(runs_open(&r, scratch("d"), &nothing, &arena), ERR_DENIED);
    assert_int_equal(file_remove(scratch("d/key")), ERR_OK);
    assert_int_equal(runs_open(&r, scratch("d"), &nothing, &arena), ERR_INPUT);
    /* The list with what says how long it was: the key says that there was one. */
    start("e", "one", "north", "abc", 0, 10, &steps);
    assert_int_equal(file_remove(scratch("e/list")), ERR_OK);
    assert_int_equal(file_remove(scratch("e/list.head")), ERR_OK);
    assert_int_equal(runs_open(&r, scratch("e"), &nothing, &arena), ERR_INPUT);
    assert_says("what earlier runs have charged to the same people is not known");
    scratch_write("e/list", "", 0);
    assert_int_not_equal(runs_open(&r, scratch("e"), &nothing, &arena), ERR_OK);
    assert_says("what earlier runs have charged to the same people is not known");
    assert_int_equal(file_remove_tree(scratch("d")), ERR_OK);
    assert_int_equal(runs_open(&r, scratch("d"), &seen, &arena),
                     ERR_INPUT); /* this run has seen it */
}

/* Two rounds of balls of two runs are two rounds, though their steps together fill one. */
static void lists_do_not_follow_each_other(void **state)
{
    struct private_charge c = step;
    struct budget b = {.count = 0};
    (void)state;
    c.sampling = "balls";
    c.bins = 100;
    assert_int_equal(budget_join(&b, &c, 5), ERR_OK);
    assert_int_equal(budget_join(&b, &c, 5), ERR_OK);
    assert_int_equal(b.count, 2);
    assert_int_equal(budget_join(&b, &step, 5), ERR_OK);
    assert_int_equal(budget_join(&b, &step, 5), ERR_OK);
    assert_true(b.count == 3 && b.settings[2].steps == 10 && b.steps == 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_that_share_an_owner_compose),
        cmocka_unit_test(the_last_start_counts),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(lists_do_not_follow_each_other),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
