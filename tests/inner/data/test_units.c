/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a record of a private site holds text of two documents, or a
 * document falls apart into several records, and each of the claims is about something else. */
#include "tests/inner/scratch.h"
#include "inner/data/objective.h"
#include "inner/data/owners.h"
#include "inner/data/units.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- two shards whose ids are numbers of tokens, so that an id says its document ---- */
static const int lengths[2][9] = {{9, 1, 2, 5, 31, 6, 4, 0}, {3, 12, 1, 1, 8, 0}};
enum { DOCUMENTS = 12, VOCAB = 200, SPECIALS = 100 };
static int document_of_id[VOCAB], first_id[DOCUMENTS];

static int setup(void **state)
{
    if (scratch_open(state))
        return -1;
    int32_t id = SPECIALS;
    for (int s = 0, d = 0; s < 2; s++) {
        struct indexed_writer w = {0};
        char name[20];
        snprintf(name, sizeof name, "set-%d", s);
        assert_int_equal(indexed_open(&w, scratch(name), VOCAB), ERR_OK);
        for (int k = 0; lengths[s][k]; k++, d++) {
            int32_t ids[40];
            first_id[d] = id;
            for (int i = 0; i < lengths[s][k]; i++) {
                document_of_id[id] = d;
                ids[i] = id++;
            }
            int half = lengths[s][k] / 2; /* a document is one sequence or two */
            assert_int_equal(indexed_sentence(&w, ids, (size_t)half), ERR_OK);
            assert_int_equal(indexed_sentence(&w, ids + half, (size_t)(lengths[s][k] - half)),
                             ERR_OK);
            assert_int_equal(indexed_document_end(&w), ERR_OK);
        }
        assert_int_equal(indexed_close(&w), ERR_OK);
    }
    struct sidecar s = sidecar_none();
    s.vocab = VOCAB;
    for (int i = 0; i < SIDECAR_SPECIALS; i++)
        s.special[i] = i;
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
    return 0;
}

static void open_loader(struct loader *l, const struct objective *o, size_t sequence)
{
    static struct settings s;
    const char *items[2];
    struct config_table t = keys_inner(&s);
    assert_int_equal(config_load(&t, 1, NULL, 0, NULL, &arena), ERR_OK);
    s.data_pairs = DATA_PAIRS_NONE;
    s.data_mlm_probability = 0.3;
    for (int i = 0; i < 2; i++)
        items[i] = arena_printf(&arena, "%s/set-%d.bin", scratch_root, i);
    const struct loader_options options = {.seed = 3,
                                           .ranks = 1,
                                           .sequence = sequence,
                                           .batch_tokens = sequence,
                                           .vocab = VOCAB,
                                           .objective = o,
                                           .settings = &s};
    if (loader_open(l, &arena, &(struct config_list){items, 2}, &options))
        fail_msg("%s", err_message());
}

/* ---- windows ---- */
static void causal_windows_keep_within_a_document(void **state)
{
    (void)state;
    for (size_t S = 1; S < 12; S++) {
        struct loader l;
        struct units u;
        struct batch b;
        int seen[VOCAB] = {0}, documents = 0;
        reset(NULL);
        open_loader(&l, &objective_documents, S);
        assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_DOCUMENT, &arena), ERR_OK);
        assert_int_equal(batch_open(&b, &arena, S, 1), ERR_OK);
        uint64_t next = 0;
        for (uint64_t unit = 0; unit < u.count; unit++, documents++) {
            int document = -1;
            for (uint64_t i = 0; i < units_windows(&u, unit); i++) {
                uint64_t w = units_window(&u, unit, i);
                assert_int_equal(w, next++); /* each window belongs to one unit */
                batch_clear(&b);
                l.options.objective->append(&l, w, w, &b);
                assert_int_equal(l.options.objective->length(&l, w, w), b.tokens_count);
                document = document < 0 ? document_of_id[b.tokens[0]] : document;
                for (size_t t = 0; t < b.tokens_count; t++) {
                    assert_int_equal(b.targets[t], b.tokens[t] + 1);
                    assert_int_equal(document_of_id[b.tokens[t]], document);
                    assert_int_equal(document_of_id[b.targets[t]], document);
                    seen[b.targets[t]]++;
                }
            }
        }
        assert_int_equal(next, l.windows);
        assert_int_equal(documents, DOCUMENTS - 3); /* three have one id, and no target */
        for (int d = 0, id = SPECIALS; d < DOCUMENTS; d++)
            for (int i = 0; id < VOCAB && document_of_id[id] == d && id >= first_id[d]; i++, id++)
                assert_int_equal(seen[id], i > 0);
        loader_close(&l);
    }
}

/* Of each epoch: masked text draws where an example begins. */
static void masked_text_keeps_within_a_document(void **state)
{
    struct loader l;
    struct units u;
    struct batch b;
    uint64_t next = 0;
    (void)state;
    open_loader(&l, &objective_mlm, 8);
    assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_DOCUMENT, &arena), ERR_OK);
    assert_int_equal(u.count, DOCUMENTS);
    assert_int_equal(batch_open(&b, &arena, 8, 1), ERR_OK);
    for (uint64_t unit = 0; unit < u.count; unit++) {
        assert_true(units_windows(&u, unit) <= 6);
        for (uint64_t i = 0; i < units_windows(&u, unit); i++) {
            uint64_t w = units_window(&u, unit, i);
            assert_int_equal(w, next++);
            for (uint64_t epoch = 0; epoch < 20; epoch++) {
                batch_clear(&b);
                l.options.objective->append(&l, w, epoch * l.windows + w, &b);
                for (size_t t = 0; t < b.tokens_count; t++) {
                    int32_t id = b.targets[t] >= 0 ? b.targets[t] : b.tokens[t];
                    assert_true(id < SPECIALS || document_of_id[id] == (int)unit);
                }
            }
        }
    }
    assert_int_equal(next, l.windows);
    loader_close(&l);
}

/* Document d belongs to owner d % 5, in any shard. */
static void an_owner_has_all_its_documents(void **state)
{
    (void)state;
    for (int s = 0, d = 0; s < 2; s++) {
        struct owner owners[9];
        char name[20];
        int count = 0;
        for (; lengths[s][count]; count++, d++) {
            int n = snprintf(name, sizeof name, "%d", d % 5);
            owners[count] = owners_name(name, (size_t)n);
        }
        snprintf(name, sizeof name, "set-%d", s);
        assert_int_equal(owners_write(scratch(name), owners, (uint64_t)count), ERR_OK);
    }
    struct loader l;
    struct units u;
    struct batch b;
    bool seen[100] = {false};
    int documents = 0;
    uint64_t all = 0;
    open_loader(&l, &objective_documents, 4);
    assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_OWNER, &arena), ERR_OK);
    assert_int_equal(u.count, 5);
    assert_int_equal(batch_open(&b, &arena, 4, 1), ERR_OK);
    for (uint64_t unit = 0; unit < u.count; unit++) {
        int owner = -1, last = -1;
        for (uint64_t i = 0; i < units_windows(&u, unit); i++, all++) {
            uint64_t w = units_window(&u, unit, i);
            assert_false(seen[w]);
            seen[w] = true;
            batch_clear(&b);
            l.options.objective->append(&l, w, w, &b);
            int d = document_of_id[b.tokens[0]];
            assert_true(owner < 0 || d % 5 == owner);
            owner = d % 5;
            documents += d != last;
            last = d;
        }
    }
    assert_int_equal(all, l.windows);
    assert_int_equal(documents, DOCUMENTS - 3);
    loader_close(&l);
    assert_int_equal(file_remove(scratch("set-1.owners")), ERR_OK);
    open_loader(&l, &objective_documents, 4);
    assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_OWNER, &arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), "set-1.bin: privacy.unit = owner, and no list next to"));
    loader_close(&l);
    assert_int_equal(file_remove(scratch("set-0.owners")), ERR_OK);
}

static void without_an_index_there_are_no_documents(void **state)
{
    struct loader l = {.set = {.count = 1}};
    struct shard s = {.path = "plain.bin"};
    struct units u;
    (void)state;
    l.set.shards = &s;
    l.windows = 3;
    assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_DOCUMENT, &arena), ERR_INPUT);
    assert_non_null(strstr(err_message(), "plain.bin: privacy.unit = document, and no index"));
    assert_int_equal(units_open(&u, &l, PRIVACY_UNIT_SEQUENCE, &arena), ERR_OK);
    assert_true(u.count == 3 && units_windows(&u, 2) == 1 && units_window(&u, 2, 0) == 2);
}

int main(void)
{
    arena = arena_make(0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(causal_windows_keep_within_a_document, reset),
        cmocka_unit_test_setup(masked_text_keeps_within_a_document, reset),
        cmocka_unit_test_setup(an_owner_has_all_its_documents, reset),
        cmocka_unit_test_setup(without_an_index_there_are_no_documents, reset),
    };
    int failed = cmocka_run_group_tests(tests, setup, scratch_close);
    arena_free(&arena);
    return failed;
}
