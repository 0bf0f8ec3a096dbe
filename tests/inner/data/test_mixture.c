/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a source of a mixture gets another share of the tokens than its
 * weight says, an example comes twice in an epoch, ranks train on the same text, or a restart
 * continues elsewhere. Oracle: the weights in double arithmetic. */
#include "tests/inner/scratch.h"
#include <math.h>
#include "inner/data/objective.h"
#include "kernels/base/bytes.h"

enum { S = 8, BATCH = 12 };
static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- the rule ---- */
static struct mixture made(size_t count, const double *tokens)
{
    struct mixture m = {.count = count};
    m.sources = arena_array(&arena, count, sizeof *m.sources);
    for (size_t i = 0; i < count; i++)
        m.sources[i] = (struct mixture_source){"s", 100 * i, 100, tokens ? tokens[i] : 1};
    return m;
}

static void counts_follow_the_weights_at_every_place(void **state)
{
    (void)state;
    static const double weights[][8] = {
        {1, 1}, {3, 1}, {0.7, 0.2, 0.1}, {1, 2, 3, 5, 7, 11, 13, 1e-3}, {1e6, 1}};
    static const size_t counts[] = {2, 2, 3, 8, 2};
    for (size_t k = 0; k < 5; k++) {
        struct mixture m = made(counts[k], NULL);
        uint64_t is[MIXTURE_SOURCES_MAX], seen[MIXTURE_SOURCES_MAX] = {0};
        double sum = 0;
        for (size_t i = 0; i < counts[k]; i++)
            sum += weights[k][i];
        mixture_begin(&m, &(struct mixture_weights){1, {{0, weights[k]}}});
        for (uint64_t n = 0; n < 20000; n++) {
            mixture_counts(&m, n, is);
            for (size_t i = 0; i < counts[k]; i++) {
                assert_int_equal(is[i], seen[i]);
                double want = (double)n * weights[k][i] / sum;
                assert_true(fabs((double)is[i] - want) <= 0.5 * (double)(i + 1) + 1e-3);
            }
            struct mixture_draw d = mixture_draw(&m, n);
            assert_int_equal(d.example, seen[d.source]); /* in its order, none left out */
            seen[d.source]++;
        }
    }
}

/* A source whose examples are short gives more of them. */
static void weights_are_of_tokens(void **state)
{
    (void)state;
    static const double tokens[] = {100, 25}, weights[] = {1, 1};
    struct mixture m = made(2, tokens);
    uint64_t n[MIXTURE_SOURCES_MAX];
    mixture_begin(&m, &(struct mixture_weights){1, {{0, weights}}});
    mixture_counts(&m, 5000, n);
    assert_true(n[0] == 1000 && n[1] == 4000);
    assert_true(fabs(mixture_weight(&m, 0, 0) - 0.5) < 1e-9);
}

static void a_phase_goes_on_from_the_counts(void **state)
{
    (void)state;
    static const double weights[] = {1, 1, 2}, anneal[] = {1, 0, 0};
    struct mixture m = made(3, NULL);
    uint64_t n[MIXTURE_SOURCES_MAX];
    mixture_begin(&m, &(struct mixture_weights){2, {{0, weights}, {400, anneal}}});
    mixture_counts(&m, 400, n);
    assert_true(n[0] == 100 && n[1] == 100 && n[2] == 200);
    for (uint64_t place = 400; place < 450; place++) {
        struct mixture_draw d = mixture_draw(&m, place);
        assert_true(d.source == 0 && d.example == place - 300);
    }
    mixture_counts(&m, 450, n);
    assert_true(n[0] == 150 && n[1] == 100 && n[2] == 200);
}

/* Heard of at any step before the border, or at its step, or known from the start: the same
 * places draw the same examples. */
static void a_change_in_mid_run(void **state)
{
    (void)state;
    static const double weights[] = {5, 3, 2}, then[] = {1, 1, 6}, anneal[] = {1, 0, 0},
                        late[] = {0.1, 0.1, 0.8};
    static const uint64_t places[] = {0, 1, 399, 400};
    const struct mixture_weights before = {2, {{0, weights}, {600, anneal}}};
    struct mixture_weights after = before;
    mixture_weights_add(&after, 400, then);
    mixture_weights_add(&after, 800, then);
    mixture_weights_add(&after, 800, late); /* the later one of a place counts */
    struct mixture start = made(3, NULL);
    uint64_t n[MIXTURE_SOURCES_MAX];
    bool changed;
    mixture_begin(&start, &after);
    assert_int_equal(start.phase_count, 4);
    mixture_counts(&start, 600, n);
    assert_true(n[0] == 200 + 25 && n[1] == 120 + 25 && n[2] == 80 + 150);
    mixture_counts(&start, 800, n);
    assert_true(n[0] == 425 && n[1] == 145 && n[2] == 230);
    mixture_counts(&start, 1000, n);
    assert_true(n[0] == 445 && n[1] == 165 && n[2] == 390);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct mixture m = made(3, NULL), again = made(3, NULL);
        mixture_begin(&m, &before);
        struct mixture_phase now = *mixture_phase(&m, places[i]);
        assert_int_equal(mixture_resume(&m, &after, places[i], &now, &changed), ERR_OK);
        assert_true(changed == (places[i] == 400));
        for (uint64_t p = places[i]; p < 1000; p++) {
            struct mixture_draw a = mixture_draw(&start, p), b = mixture_draw(&m, p);
            assert_true(a.source == b.source && a.example == b.example);
        }
        for (uint64_t p = 400; p < 1000; p += 50) { /* a checkpoint after it */
            now = *mixture_phase(&m, p);
            assert_int_equal(mixture_resume(&again, &after, p, &now, &changed), ERR_OK);
            assert_false(changed);
            struct mixture_draw a = mixture_draw(&start, 999), b = mixture_draw(&again, 999);
            assert_true(a.source == b.source && a.example == b.example);
        }
    }
}

static void a_restart_goes_on(void **state)
{
    (void)state;
    static const double weights[] = {5, 3, 2}, other[] = {1, 3, 2}, anneal[] = {1, 1, 4},
                        more[] = {5, 3, 2, 10};
    static const uint64_t places[] = {0, 1, 333, 499, 500, 501, 800};
    const struct mixture_weights w = {2, {{0, weights}, {500, anneal}}};
    struct mixture m = made(3, NULL), again = made(3, NULL);
    bool changed;
    mixture_begin(&m, &w);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct mixture_phase stored = *mixture_phase(&m, places[i]);
        assert_int_equal(mixture_resume(&again, &w, places[i], &stored, &changed), ERR_OK);
        assert_false(changed);
        for (uint64_t p = places[i]; p < 1000; p++) {
            struct mixture_draw a = mixture_draw(&m, p), b = mixture_draw(&again, p);
            assert_true(a.source == b.source && a.example == b.example);
        }
    }
    struct mixture_phase stored = *mixture_phase(&m, 300);
    uint64_t n[MIXTURE_SOURCES_MAX];
    assert_int_equal(
        mixture_resume(&again, &(struct mixture_weights){1, {{0, other}}}, 300, &stored, &changed),
        ERR_OK);
    assert_true(changed);
    mixture_counts(&again, 900, n);
    assert_true(n[0] == 150 + 100 && n[1] == 90 + 300 && n[2] == 60 + 200);
    struct mixture four = made(4, NULL), two = made(2, NULL), longer = made(3, NULL);
    assert_int_equal(
        mixture_resume(&four, &(struct mixture_weights){1, {{0, more}}}, 300, &stored, &changed),
        ERR_OK);
    mixture_counts(&four, 700, n);
    assert_true(changed && n[0] == 150 + 100 && n[3] == 200);
    assert_int_equal(mixture_resume(&two, &w, 300, &stored, &changed), ERR_MISMATCH);
    assert_says("data.train has 2 sources, the checkpoint counts 3");
    longer.sources[1].windows = 101;
    assert_int_equal(mixture_resume(&longer, &w, 300, &stored, &changed), ERR_MISMATCH);
    assert_says("101 examples, and 100 when the checkpoint was written");
}

/* ---- text ---- */
static const char *shard(const char *name, uint32_t tokens, uint32_t first)
{
    size_t size = SHARD_HEADER_BYTES + 2 * (size_t)tokens;
    uint8_t *data = calloc(1, size);
    struct bytes_writer w = bytes_writer(data, size);
    bytes_put_u32(&w, SHARD_MAGIC_U16);
    bytes_put_u32(&w, SHARD_VERSION_U16);
    bytes_put_u32(&w, tokens);
    w.at = data + SHARD_HEADER_BYTES;
    for (uint32_t i = 0; i < tokens; i++)
        bytes_put_u16(&w, (uint16_t)(first + i)); /* every id once: it says whose it is */
    const char *path = scratch_write(name, data, size);
    free(data);
    return path;
}

/* Sources: two files of ids below 2000, one from 3000 on, one from 5000 on. */
static struct settings *settings(const char *weights)
{
    struct settings *s = arena_alloc(&arena, sizeof *s);
    shard("a-0.bin", 801, 0);
    shard("a-1.bin", 401, 1000);
    char *words[] = {arena_printf(&arena, "--data.train=%s,%s,%s", scratch("a-*.bin"),
                                  shard("b.bin", 161, 3000), shard("c.bin", 81, 5000)),
                     arena_printf(&arena, "--data.weights=%s", weights)};
    struct config_table t = keys_inner(s);
    assert_int_equal(config_load(&t, 1, NULL, 2, words, &arena), ERR_OK);
    return s;
}

static enum err open_rank(struct loader *l, const struct settings *s, uint32_t rank, uint32_t ranks)
{
    const struct loader_options o = {.seed = 3,
                                     .site = 1,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .sequence = S,
                                     .batch_tokens = BATCH * S,
                                     .vocab = 6000,
                                     .mixed = true,
                                     .objective = &objective_causal,
                                     .settings = s};
    return loader_open(l, &arena, &s->data_train, &o);
}

static size_t source_of(int32_t id)
{
    return id < 2000 ? 0 : id < 5000 ? 1 : 2;
}

static void each_source_has_its_own_epochs(void **state)
{
    (void)state;
    static const uint64_t windows[] = {150, 20, 10};
    struct settings *s = settings("5,4,1");
    struct loader l, part;
    struct batch b, one;
    uint64_t seen[3] = {0};
    bool here[3][6000] = {{false}};
    assert_int_equal(open_rank(&l, s, 0, 1), ERR_OK);
    assert_int_equal(batch_open(&b, &arena, BATCH * S, BATCH), ERR_OK);
    assert_int_equal(batch_open(&one, &arena, BATCH * S, BATCH), ERR_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(l.mixture->sources[i].windows, windows[i]);
    for (uint64_t step = 0; step < 60; step++) {
        objective_step(&l, step, 0, BATCH, &b);
        for (size_t i = 0; i < BATCH; i++) {
            int32_t id = b.tokens[i * S];
            size_t from = source_of(id);
            assert_int_equal(source_of(b.targets[i * S + S - 1]), from);
            assert_false(here[from][id]); /* once in an epoch of its source */
            here[from][id] = true;
            if (++seen[from] % windows[from] == 0)
                memset(here[from], 0, sizeof here[from]);
        }
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(open_rank(&part, s, rank, 3), ERR_OK);
            objective_step(&part, step, 0, BATCH / 3, &one);
            assert_memory_equal(one.tokens, b.tokens + rank * BATCH / 3 * S,
                                BATCH / 3 * S * sizeof *b.tokens);
            loader_close(&part);
        }
    }
    assert_true(seen[0] == 360 && seen[1] == 288 && seen[2] == 72);
    loader_close(&l);
}

static void a_loader_goes_on_where_a_checkpoint_was(void **state)
{
    (void)state;
    struct settings *s = settings("5,4,1"), *other = settings("1,1,1");
    struct loader l, again;
    struct batch b, one;
    bool changed;
    assert_int_equal(open_rank(&l, s, 0, 1), ERR_OK);
    assert_int_equal(open_rank(&again, other, 0, 1), ERR_OK);
    assert_int_equal(batch_open(&b, &arena, BATCH * S, BATCH), ERR_OK);
    assert_int_equal(batch_open(&one, &arena, BATCH * S, BATCH), ERR_OK);
    const struct mixture_phase stored = *loader_phase(&l, 7);
    assert_int_equal(loader_resume(&again, 7, &stored, &changed), ERR_OK);
    assert_true(changed);
    again.options.settings = s;
    assert_int_equal(loader_resume(&again, 7, &stored, &changed), ERR_OK);
    assert_false(changed);
    for (uint64_t step = 7; step < 40; step++) {
        objective_step(&l, step, 0, BATCH, &b);
        objective_step(&again, step, 0, BATCH, &one);
        assert_memory_equal(one.tokens, b.tokens, BATCH * S * sizeof *b.tokens);
    }
    loader_close(&l);
    loader_close(&again);
}

static void a_source_without_an_example_is_named(void **state)
{
    (void)state;
    struct settings *s = settings("5,4,1");
    struct loader l;
    shard("c.bin", S, 5000);
    assert_int_equal(open_rank(&l, s, 0, 1), ERR_INPUT);
    assert_says("c.bin is too small");
    assert_says("train.seq_len = 8");
}

#define T(name) cmocka_unit_test_setup(name, reset)
int main(void)
{
    const struct CMUnitTest tests[] = {T(counts_follow_the_weights_at_every_place),
                                       T(weights_are_of_tokens),
                                       T(a_phase_goes_on_from_the_counts),
                                       T(a_change_in_mid_run),
                                       T(a_restart_goes_on),
                                       T(each_source_has_its_own_epochs),
                                       T(a_loader_goes_on_where_a_checkpoint_was),
                                       T(a_source_without_an_example_is_named)};
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
