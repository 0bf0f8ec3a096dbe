/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a list of privacy charges, or of the runs that share owners, that
 * lost lines is believed, and a claim becomes a false small number. */
#include "tests/inner/scratch.h"
#include <stdlib.h>
#include "kernels/base/chained.h"

enum { LINES = 5 };
static struct arena arena;
static size_t visited;

static enum err visit(void *self, const char *text, size_t n, bool *good)
{
    (void)self;
    visited++;
    *good = n > 6 && strncmp(text, "entry ", 6) == 0 && text[n] == 0;
    return ERR_OK;
}

static const struct chained_options plain = {
    .what = "entry of this test", .lost = "nothing is known", .visit = visit};

static enum err open_list(struct chained *c, bool begun, const struct chained_options *o)
{
    visited = 0;
    return chained_open(c, disk_posix(), scratch("list"), begun, o, &arena);
}

static enum err read_list(const struct chained_options *o, struct chained_at *last)
{
    return chained_read(last, disk_posix(), scratch("list"), o);
}

struct files { /* of a list: its lines with their ends, and its head */
    char *line[LINES + 1];
    char *head;
};

static char *text_of(const char *name)
{
    uint8_t *data = NULL;
    size_t size;
    assert_int_equal(file_read(scratch(name), 1 << 20, &arena, &data, &size), ERR_OK);
    return arena_string(&arena, (char *)data, size);
}

/* heads: the head as it was after each line. */
static struct files make_list(char *heads[LINES + 1])
{
    struct chained c;
    struct files f = {.head = NULL};
    assert_int_equal(file_remove(scratch("list")), ERR_OK);
    assert_int_equal(file_remove(scratch("list.head")), ERR_OK);
    assert_int_equal(open_list(&c, false, &plain), ERR_OK);
    heads[0] = text_of("list.head");
    for (int i = 0; i < LINES; i++) {
        char text[32];
        snprintf(text, sizeof text, "entry number=%d", 7 * i); /* a word that the format has too */
        assert_int_equal(chained_append(&c, text), ERR_OK);
        heads[i + 1] = text_of("list.head");
    }
    char *at = text_of("list");
    for (int i = 0; i < LINES; i++) {
        char *end = strchr(at, '\n') + 1;
        f.line[i] = arena_string(&arena, at, (size_t)(end - at));
        at = end;
    }
    assert_int_equal(*at, 0);
    f.head = heads[LINES];
    return f;
}

static void put(const struct files *f, const int *order, size_t count)
{
    char text[4096] = "";
    for (size_t i = 0; i < count; i++)
        strcat(text, f->line[order[i]]);
    scratch_write("list", text, strlen(text));
    if (f->head)
        scratch_write("list.head", f->head, strlen(f->head));
    else
        assert_int_equal(file_remove(scratch("list.head")), ERR_OK);
}

/* An element is taken from the middle or from the end, moved, doubled; the list is emptied; its
 * head is lost. Both readers say so. */
static void a_list_that_is_not_whole_is_damage(void **state)
{
    static const struct {
        int order[LINES + 1];
        size_t count;
        const char *says;
    } tries[] = {
        {{0, 1, 3, 4}, 4, "line 3, is no entry of this test that follows the line before"},
        {{1, 2, 3, 4}, 4, "line 1, is no entry"},
        {{0, 1, 2, 3}, 4, "has 4 lines, and its file .head says that there were 5"},
        {{0}, 1, "has 1 lines"},
        {{0}, 0, "has 0 lines"},
        {{0, 2, 1, 3, 4}, 5, "line 2, is no entry"},
        {{0, 1, 1, 2, 3, 4}, 6, "line 3, is no entry"},
    };
    char *heads[LINES + 1];
    struct chained c;
    struct chained_at last;
    (void)state;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        struct files f = make_list(heads);
        put(&f, tries[i].order, tries[i].count);
        assert_int_equal(read_list(&plain, &last), ERR_CORRUPT);
        assert_says(tries[i].says);
        assert_says("nothing is known");
        assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
        assert_says(tries[i].says);
    }
    static const int all[] = {0, 1, 2, 3, 4};
    struct files f = make_list(heads);
    f.head = NULL;
    put(&f, all, LINES);
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
    assert_says(".head is missing");
    f.head = heads[LINES];
    f.head[128 + 9] ^= 1; /* of line 5: that of line 4 holds */
    put(&f, all, LINES);
    assert_int_equal(open_list(&c, true, &plain), ERR_OK);
    assert_int_equal(c.last.number, LINES);
    f.head[9] ^= 1;
    put(&f, all, LINES);
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
    assert_says(".head is damaged");
}

/* Another line than the head's, of the same number: two histories. */
static void another_line_of_the_number_is_damage(void **state)
{
    char *heads[LINES + 1], *others[LINES + 1];
    struct chained c;
    (void)state;
    struct files one = make_list(heads);
    assert_int_equal(chained_append((open_list(&c, true, &plain), &c), "entry six"), ERR_OK);
    char *six = text_of("list.head");
    make_list(others);
    assert_string_equal(one.head, others[LINES]);
    assert_int_equal(chained_append((open_list(&c, true, &plain), &c), "entry seven"), ERR_OK);
    scratch_write("list.head", six, strlen(six));
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
    assert_says("line 6 is another one than its file .head says");
}

/* Both files of an older time: what a checkpoint or another file knows is compared. */
static void an_older_list_is_known_by_another_file(void **state)
{
    static const int two[] = {0, 1};
    char *heads[LINES + 1];
    struct chained c;
    struct chained_options o = plain;
    (void)state;
    struct files f = make_list(heads);
    assert_int_equal(open_list(&c, true, &plain), ERR_OK);
    o.known = c.last;
    o.known_by = "the checkpoint";
    assert_int_equal(open_list(&c, true, &o), ERR_OK);
    f.head = heads[2];
    put(&f, two, 2);
    assert_int_equal(open_list(&c, true, &plain), ERR_OK); /* by itself it is whole */
    assert_int_equal(open_list(&c, true, &o), ERR_CORRUPT);
    assert_says("has 2 lines, and the checkpoint says that there were 5");
    assert_int_equal(file_remove(scratch("list")), ERR_OK);
    assert_int_equal(open_list(&c, false, &o), ERR_INPUT);
    assert_int_equal(open_list(&c, false, &plain), ERR_INPUT); /* the head knows of two */
    assert_says("is missing");
}

/* A crash at each place of an append loses nothing that was promised, and is no damage. */
static void a_crash_in_an_append_is_no_damage(void **state)
{
    static const int all[] = {0, 1, 2, 3, 4};
    char *heads[LINES + 1];
    struct chained c;
    struct chained_at last;
    (void)state;
    for (size_t cut = 0; cut < 4; cut++) {
        struct files f = make_list(heads);
        f.head = heads[LINES - 1];
        f.line[LINES - 1][strlen(f.line[LINES - 1]) * cut / 3] = 0;
        put(&f, all, LINES);
        assert_int_equal(read_list(&plain, &last), ERR_OK);
        assert_int_equal(open_list(&c, true, &plain), ERR_OK);
        assert_int_equal(c.last.number, cut == 3 ? LINES : LINES - 1);
        assert_int_equal(last.number, c.last.number);
        assert_int_equal(open_list(&c, true, &plain), ERR_OK); /* the head is that of the list */
        assert_int_equal(c.last.number, cut == 3 ? LINES : LINES - 1);
        assert_int_equal(chained_append(&c, "entry last"), ERR_OK);
        assert_int_equal(open_list(&c, true, &plain), ERR_OK);
    }
    assert_int_equal(file_remove(scratch("list")), ERR_OK);
    scratch_write("list.head", heads[0], strlen(heads[0])); /* between head and list */
    assert_int_equal(open_list(&c, false, &plain), ERR_OK);
    assert_int_equal(c.last.number, 0);
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
    assert_says("is empty, and it has begun");
}

/* A list of a program before numbers is read, and covered from then on. */
static void an_old_list_is_read_and_covered(void **state)
{
    struct chained c;
    char text[512] = "";
    (void)state;
    assert_int_equal(file_remove(scratch("list.head")), ERR_OK);
    for (int i = 0; i < 3; i++) {
        char line[64];
        int n = snprintf(line, sizeof line, "entry %d", i);
        sprintf(text + strlen(text), "%s crc=%08x\n", line, digest_crc32c(0, line, (size_t)n));
    }
    scratch_write("list", text, strlen(text));
    assert_int_equal(open_list(&c, true, &plain), ERR_OK);
    assert_int_equal(visited, 3);
    assert_int_equal(chained_append(&c, "entry 3"), ERR_OK);
    assert_int_equal(open_list(&c, true, &plain), ERR_OK);
    assert_int_equal(visited, 4);
    char *second = strchr(text_of("list"), '\n') + 1;
    scratch_write("list", second, strlen(second));
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT); /* its first line is gone */
    scratch_write("list", text, strlen(text));
    assert_int_equal(open_list(&c, true, &plain), ERR_CORRUPT);
    assert_says("has 3 lines");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_that_is_not_whole_is_damage),
        cmocka_unit_test(another_line_of_the_number_is_damage),
        cmocka_unit_test(an_older_list_is_known_by_another_file),
        cmocka_unit_test(a_crash_in_an_append_is_no_damage),
        cmocka_unit_test(an_old_list_is_read_and_covered),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
