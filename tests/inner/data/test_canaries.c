/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: an audit whose canaries are not single records of the run, or whose
 * sets tell which ones are in. */
#include "tests/inner/scratch.h"
#include <math.h>
#include <sys/stat.h>
#include "inner/data/canaries.h"
#include "inner/data/labels.h"
#include "inner/data/objective.h"
#include "inner/data/owners.h"
#include "inner/data/units.h"

static struct arena arena;
enum { VOCAB = 300, SPECIALS = SIDECAR_SPECIALS, CLASSES = 3, COUNT = 200 };

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* A training text that every objective can read: documents of two sentences with labels and owners.
 */
static int setup(void **state)
{
    static const struct sidecar_class classes[CLASSES] = {{"a", 1}, {"b", 1}, {"c", 1}};
    struct indexed_writer w = {0};
    int32_t ids[40], labels[30];
    struct owner owners[30];
    if (scratch_open(state))
        return -1;
    assert_int_equal(indexed_open(&w, scratch("text"), VOCAB), ERR_OK);
    for (int d = 0; d < 30; d++) {
        for (int i = 0; i < 40; i++)
            ids[i] = SPECIALS + (d * 7 + i) % 200;
        for (int k = 0; k < 2; k++)
            assert_int_equal(indexed_sentence(&w, ids + 20 * k, 20), ERR_OK);
        assert_int_equal(indexed_document_end(&w), ERR_OK);
        labels[d] = d % CLASSES;
        owners[d] = owners_name("x", 1);
    }
    assert_int_equal(indexed_close(&w), ERR_OK);
    assert_int_equal(labels_write(scratch("text"), labels, 30), ERR_OK);
    assert_int_equal(owners_write(scratch("text"), owners, 30), ERR_OK);
    struct sidecar s = sidecar_none();
    s.vocab = VOCAB;
    s.classes = classes;
    s.classes_count = CLASSES;
    for (int i = 0; i < SPECIALS; i++)
        s.special[i] = i;
    return sidecar_write(&s, scratch_root) != ERR_OK;
}

static struct settings *settings_of(enum data_objective objective, enum data_pairs pairs,
                                    enum privacy_unit unit)
{
    struct settings *s = arena_alloc(&arena, sizeof *s);
    const char **items = arena_array(&arena, 1, sizeof *items);
    struct config_table t = keys_inner(s);
    assert_int_equal(config_load(&t, 1, NULL, 0, NULL, &arena), ERR_OK);
    items[0] = arena_printf(&arena, "%s/text.bin", scratch_root);
    s->data_train = (struct config_list){items, 1};
    s->data_objective = objective;
    s->data_pairs = pairs;
    s->privacy_unit = unit;
    s->model_vocab_size = VOCAB;
    s->train_seq_len = 16;
    return s;
}

static const struct {
    enum data_objective objective;
    enum data_pairs pairs;
    enum privacy_unit unit;
} cases[] = {{DATA_OBJECTIVE_CAUSAL, DATA_PAIRS_NONE, PRIVACY_UNIT_SEQUENCE},
             {DATA_OBJECTIVE_CAUSAL, DATA_PAIRS_NONE, PRIVACY_UNIT_DOCUMENT},
             {DATA_OBJECTIVE_CAUSAL, DATA_PAIRS_NONE, PRIVACY_UNIT_OWNER},
             {DATA_OBJECTIVE_MLM, DATA_PAIRS_NONE, PRIVACY_UNIT_SEQUENCE},
             {DATA_OBJECTIVE_MLM, DATA_PAIRS_SOP, PRIVACY_UNIT_DOCUMENT},
             {DATA_OBJECTIVE_LABELS, DATA_PAIRS_NONE, PRIVACY_UNIT_SEQUENCE},
             {DATA_OBJECTIVE_LABELS, DATA_PAIRS_NONE, PRIVACY_UNIT_OWNER}};
enum { CASES = sizeof cases / sizeof *cases };

/* Each is one window and one unit; ids are uniform, without special ones. */
static void each_canary_is_one_record(void **state)
{
    (void)state;
    for (size_t k = 0; k < CASES; k++) {
        reset(NULL);
        struct settings *s = settings_of(cases[k].objective, cases[k].pairs, cases[k].unit);
        const char *dir = arena_printf(&arena, "%s/case-%zu", scratch_root, k);
        struct canaries c;
        if (canaries_write(s, dir, COUNT, &arena))
            fail_msg("case %zu: %s", k, err_message());
        assert_int_equal(canaries_open(&c, s, dir, &arena), ERR_OK);
        assert_int_equal(c.in.windows + c.out.windows, COUNT);
        assert_true(c.in.windows > 60 && c.out.windows > 60); /* 200 coins: 5.6 deviations */
        struct loader *sets[2] = {&c.in, &c.out};
        size_t seen[VOCAB] = {0}, ids = 0;
        for (int i = 0; i < 2; i++) {
            struct units u;
            struct batch b;
            assert_int_equal(units_open(&u, sets[i], cases[k].unit, &arena), ERR_OK);
            assert_int_equal(u.count, sets[i]->windows);
            assert_int_equal(objective_batch_open(sets[i]->options.objective, &b, &arena, 1, 16),
                             ERR_OK);
            for (uint64_t w = 0; w < sets[i]->windows; w++) {
                objective_windows(sets[i], w, 1, &b);
                if (cases[k].objective == DATA_OBJECTIVE_CAUSAL) {
                    assert_int_equal(sets[i]->options.objective->length(sets[i], w, w), 16);
                    for (size_t t = 0; t < 16; t++) {
                        assert_true(b.tokens[t] >= SPECIALS);
                        seen[b.tokens[t]] += t > 0, ids += t > 0;
                    }
                }
            }
        }
        for (int id = SPECIALS; ids && id < VOCAB; id++) {
            double mean = (double)ids / (VOCAB - SPECIALS);
            assert_true(fabs((double)seen[id] - mean) < 6 * sqrt(mean));
        }
        canaries_close(&c);
    }
}

/* Two calls make other canaries and other sets; files are their user's alone. */
static void nothing_repeats(void **state)
{
    (void)state;
    struct settings *s = settings_of(DATA_OBJECTIVE_CAUSAL, DATA_PAIRS_NONE, PRIVACY_UNIT_SEQUENCE);
    struct canaries c[2];
    int32_t ids[2][16];
    struct stat st;
    umask(077); /* as the commands do */
    for (int i = 0; i < 2; i++) {
        const char *dir = arena_printf(&arena, "%s/again-%d", scratch_root, i);
        assert_int_equal(canaries_write(s, dir, COUNT, &arena), ERR_OK);
        assert_int_equal(canaries_open(&c[i], s, dir, &arena), ERR_OK);
        shard_read(&c[i].in.set.shards[0], 1, 15, ids[i]);
        assert_int_equal(stat(arena_printf(&arena, "%s/in-0000.bin", dir), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(canaries_write(s, dir, COUNT, &arena), ERR_CONFIG);
        assert_non_null(strstr(err_message(), "is not empty"));
    }
    assert_true(memcmp(ids[0], ids[1], 15 * sizeof **ids));
    canaries_close(&c[0]);
    canaries_close(&c[1]);
    s->data_train.count = 0;
    assert_int_equal(canaries_write(s, scratch("none"), COUNT, &arena), ERR_CONFIG);
    assert_non_null(strstr(err_message(), "data.train is empty"));
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_canary_is_one_record, reset),
        cmocka_unit_test_setup(nothing_repeats, reset),
    };
    int failed = cmocka_run_group_tests(tests, setup, scratch_close);
    arena_free(&arena);
    return failed;
}
