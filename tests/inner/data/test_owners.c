/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: an owner's text counts as another's, so that the claim for an owner
 * is false; or it lies at two sites, or in what is held out. */
#include "tests/inner/scratch.h"
#include "inner/data/labels.h"
#include "inner/data/shard.h"
#include "inner/data/text.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

static enum err open_set(struct shard_set *set, const char *pattern)
{
    const char *path = arena_printf(&arena, "%s/%s", scratch_root, pattern);
    return shard_set_open(set, &arena, &(struct config_list){&path, 1}, 300);
}

/* ---- ids ---- */
static void an_id_is_the_digest_of_a_name(void **state)
{
    /* python3 -c 'import hashlib; print(hashlib.sha256(b"patient 7").hexdigest()[:32])' */
    static const uint8_t want[OWNERS_ID_BYTES] = {0x38, 0x0e, 0x1c, 0x62, 0x79, 0xa5, 0x06, 0x8f,
                                                  0xde, 0x30, 0xcc, 0xb5, 0x06, 0xa2, 0x93, 0x43};
    struct owner a = owners_name("patient 7", 9), b = owners_name("patient 8", 9);
    (void)state;
    assert_memory_equal(a.id, want, sizeof want);
    assert_true(owners_compare(&a, &b) != 0 && owners_compare(&a, &a) == 0);
}

/* A tenth of the owners is held out, and the sites have as many, in any order of the names.
 */
static void owners_are_dealt_as_a_whole(void **state)
{
    enum { OWNERS = 300, SITES = 3 };
    static struct owner all[2][2 * OWNERS];
    struct owners_deal d[2];
    int counts[SITES + 1] = {0};
    (void)state;
    for (int i = 0; i < 2 * OWNERS; i++) {
        char name[20];
        int n = snprintf(name, sizeof name, "owner %d", i % OWNERS);
        all[0][i] = all[1][2 * OWNERS - 1 - i] = owners_name(name, (size_t)n);
    }
    for (int k = 0; k < 2; k++)
        assert_int_equal(owners_deal(&d[k], all[k], 2 * OWNERS, 0.1, SITES, &arena), ERR_OK);
    assert_true(d[0].count == OWNERS && d[0].held == 30);
    for (int i = 0; i < OWNERS; i++) {
        char name[20];
        int n = snprintf(name, sizeof name, "owner %d", i);
        struct owner o = owners_name(name, (size_t)n);
        assert_int_equal(owners_part(&d[0], &o), owners_part(&d[1], &o));
        counts[owners_part(&d[0], &o) + 1]++;
    }
    assert_true(counts[0] == 30 && counts[1] == 90 && counts[2] == 90 && counts[3] == 90);
}

/* ---- JSON lines ---- */
enum { LINES = 400 };

static const char *vocabulary(void)
{
    static const char text[] =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\nfour\n0\n1\n2\n3\n"
        "4\n5\n6\n7\n8\n9\n##0\n##1\n##2\n##3\n##4\n##5\n##6\n##7\n##8\n##9\n";
    return scratch_write("words.txt", text, sizeof text - 1);
}

static struct text_options text_options(const char *out)
{
    struct text_options o = {.out = out,
                             .sites = 2,
                             .held_out = 0.1,
                             .sequence = 4,
                             .shard_tokens = 600,
                             .tokenizer = vocabulary(),
                             .documents = true,
                             .min_sentences = 1,
                             .replace = true};
    o.source.field = "text";
    o.source.owner = "who";
    return o;
}

/* Line i is of owner i * 7 % 37, a number in some lines and a text in others; its text is i. */
static int owner_of_line(int i)
{
    return i * 7 % 37;
}

static const char *write_lines(void)
{
    char *text = malloc(LINES * 80), *at = text;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        at += sprintf(at, "{\"who\": %s%d%s, \"text\": \"%d two three\"}\n", i % 2 ? "\"" : "",
                      owner_of_line(i), i % 2 ? "\"" : "", i);
    const char *path = scratch_write("lines.jsonl", text, (size_t)(at - text));
    free(text);
    return path;
}

/* The number with which the text of a document begins: a piece for each digit. */
static int number_of(const struct shard *s, uint64_t document)
{
    enum { FIRST = 9, INSIDE = 19, TWO = 6 };
    uint64_t token = indexed_first(&s->index, indexed_document(&s->index, document));
    int number = 0;
    for (int32_t id;; token++) {
        shard_read(s, token, 1, &id);
        if (id == TWO)
            return number;
        number = 10 * number + id - (id < INSIDE ? FIRST : INSIDE);
    }
}

static void documents_of_an_owner_stay_together(void **state)
{
    struct text_options o = text_options(scratch("lines"));
    struct text_report report;
    const char *path = write_lines();
    int part_of_owner[37], lines_seen = 0, held = 0;
    (void)state;
    if (text_prepare(&path, 1, &o, &arena, &report))
        fail_msg("%s", err_message());
    assert_int_equal(report.owners, 37);
    memset(part_of_owner, -1, sizeof part_of_owner);
    static const char *const parts[] = {"lines/eval-*.bin", "lines/train-0-*.bin",
                                        "lines/train-1-*.bin"};
    for (int p = 0; p < 3; p++) {
        struct shard_set set;
        if (open_set(&set, parts[p]))
            fail_msg("%s", err_message());
        assert_true(p == 0 || set.count > 1); /* a list for each shard */
        for (size_t i = 0; i < set.count; i++)
            for (uint64_t d = 0; d < set.shards[i].index.documents_count; d++, lines_seen++) {
                int owner = owner_of_line(number_of(&set.shards[i], d));
                char name[8];
                int n = snprintf(name, sizeof name, "%d", owner);
                struct owner id = owners_name(name, (size_t)n),
                             its = owners_at(set.shards[i].owners, d);
                assert_memory_equal(&id, &its, sizeof id);
                assert_true(part_of_owner[owner] < 0 || part_of_owner[owner] == p);
                part_of_owner[owner] = p;
            }
        shard_set_close(&set);
    }
    assert_int_equal(lines_seen, LINES);
    for (int i = 0; i < 37; i++)
        held += part_of_owner[i] == 0;
    assert_int_equal(held, 4);

    o.source.owner = NULL; /* no list stays */
    assert_int_equal(text_prepare(&path, 1, &o, &arena, &report), ERR_OK);
    assert_false(file_exists(scratch("lines/train-0-0000.owners")));
}

static void a_line_without_an_owner_is_named(void **state)
{
    static const struct {
        const char *line;
    } bad[] = {{"{\"text\": \"one\"}"},
               {"{\"text\": \"one\", \"who\": \"\"}"},
               {"{\"text\": \"one\", \"who\": null}"},
               {"{\"text\": \"one\", \"who\": 1.5}"},
               {"{\"text\": \"one\", \"who\": [1]}"}};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text_options o = text_options(scratch("none"));
        struct text_report report;
        char text[200];
        int n = snprintf(text, sizeof text, "{\"text\": \"two\", \"who\": 1}\n%s\n", bad[i].line);
        const char *path = scratch_write("bad.jsonl", text, (size_t)n);
        assert_int_equal(text_prepare(&path, 1, &o, &arena, &report), ERR_INPUT);
        assert_says("bad.jsonl:2: the field \"who\" names no owner");
    }
}

/* ---- labelled lines ---- */
static enum err encode(void *self, const char *text, size_t bytes, struct arena *a, int32_t **ids,
                       size_t *count)
{
    (void)self;
    TRY_ALLOC(*ids = arena_array(a, bytes, sizeof **ids));
    for (size_t i = 0; i < bytes; i++)
        (*ids)[i] = (uint8_t)text[i];
    *count = bytes;
    return ERR_OK;
}

static enum err prepare_labels(const char *text, struct labels_report *report)
{
    struct labels_options o = {.out = scratch("labels"),
                               .sites = 2,
                               .held_out = 0.2,
                               .encoder = {.encode = encode},
                               .owners = true,
                               .replace = true};
    const char *path = scratch_write("l.tsv", text, strlen(text));
    o.of = sidecar_none();
    o.of.vocab = 260;
    return labels_prepare(&path, 1, &o, &arena, report);
}

static void labelled_lines_of_an_owner_stay_together(void **state)
{
    struct labels_report report;
    char text[1000], *at = text;
    int seen = 0;
    uint64_t parts = 0;
    (void)state;
    for (int i = 0; i < 50; i++)
        at += sprintf(at, "p%d\t%c\tx%c\n", i % 10, 'a' + i % 3, 'A' + i % 10);
    if (prepare_labels(text, &report))
        fail_msg("%s", err_message());
    assert_true(report.owners == 10 && report.documents == 50 && report.held_out == 10);
    assert_true(report.train[0] == 20 && report.train[1] == 20);
    struct shard_set set;
    if (open_set(&set, "labels/*.bin"))
        fail_msg("%s", err_message());
    for (size_t i = 0; i < set.count; i++) {
        uint64_t owners_here = 0;
        for (uint64_t d = 0; d < set.shards[i].index.documents_count; d++, seen++) {
            int32_t ids[2];
            char name[3] = "p";
            shard_read(&set.shards[i], 2 * d, 2, ids);
            name[1] = (char)('0' + ids[1] - 'A');
            struct owner id = owners_name(name, 2), its = owners_at(set.shards[i].owners, d);
            assert_memory_equal(&id, &its, sizeof id);
            owners_here |= UINT64_C(1) << (ids[1] - 'A');
        }
        assert_int_equal(parts & owners_here, 0); /* no owner is in two parts */
        parts |= owners_here;
    }
    assert_int_equal(seen, 50);
    shard_set_close(&set);
    assert_int_equal(prepare_labels("p\ta\tx\nq\n", &report), ERR_INPUT);
    assert_says("l.tsv:2: no owner before the first tab");
    assert_int_equal(prepare_labels("p\ta\tx\n\ta\ty\n", &report), ERR_INPUT);
    assert_says("l.tsv:2: no owner before the first tab");
    assert_int_equal(prepare_labels("p\ta\tx\nq\tb\n", &report), ERR_INPUT);
    assert_says("l.tsv:2: no tab");
}

static void damaged_lists_are_named(void **state)
{
    static const char text[] = "p\ta\tx\nq\tb\ty\nr\ta\tx\ns\tb\ty\nt\tb\ty\n";
    struct labels_report report;
    struct shard_set set;
    struct file_map map;
    uint8_t bytes[200];
    (void)state;
    assert_int_equal(prepare_labels(text, &report), ERR_OK);
    assert_int_equal(file_map(&map, scratch("labels/train-0-0000.owners")), ERR_OK);
    size_t size = map.size_bytes;
    assert_int_equal(size, 16 + 16 * report.train[0]);
    memcpy(bytes, map.data, size);
    file_unmap(&map);
    scratch_write("labels/train-0-0000.owners", bytes, size - 1);
    assert_int_equal(open_set(&set, "labels/train-0-0000.bin"), ERR_INPUT);
    assert_says("train-0-0000.owners: the header promises 2 owners in 47 bytes");
    bytes[8]++;
    scratch_write("labels/train-0-0000.owners", bytes, size);
    assert_int_equal(open_set(&set, "labels/train-0-0000.bin"), ERR_INPUT);
    assert_says("the data set next to it has 2 documents");
    scratch_write("labels/train-0-0000.owners", "ATLABELS12345678", 16);
    assert_int_equal(open_set(&set, "labels/train-0-0000.bin"), ERR_INPUT);
    assert_says("not a list of owners");
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_id_is_the_digest_of_a_name, reset),
        cmocka_unit_test_setup(owners_are_dealt_as_a_whole, reset),
        cmocka_unit_test_setup(documents_of_an_owner_stay_together, reset),
        cmocka_unit_test_setup(a_line_without_an_owner_is_named, reset),
        cmocka_unit_test_setup(labelled_lines_of_an_owner_stay_together, reset),
        cmocka_unit_test_setup(damaged_lists_are_named, reset),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
