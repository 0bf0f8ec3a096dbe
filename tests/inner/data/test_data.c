/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: sites train twice on one text and never on another, held-out loss
 * measures trained text, a damaged shard trains on garbage, and a resumed run sees other batches
 * than the undisturbed one. */
#include "tests/inner/scratch.h"
#include <unistd.h>
#include "inner/data/objective.h"
#include "kernels/base/bytes.h"
#include "kernels/base/log.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- shards ---- */

struct made {
    uint32_t magic, version, count; /* as the header says */
    uint32_t tokens;                /* that follow, id = 7 * position mod 251 */
    size_t extra_bytes;
    unsigned id_bytes;
};

static const char *make_shard(const char *name, struct made m)
{
    size_t size = SHARD_HEADER_BYTES + (size_t)m.tokens * m.id_bytes + m.extra_bytes;
    uint8_t *data = calloc(1, size);
    struct bytes_writer w = bytes_writer(data, size);
    bytes_put_u32(&w, m.magic);
    bytes_put_u32(&w, m.version);
    bytes_put_u32(&w, m.count);
    w.at = data + SHARD_HEADER_BYTES;
    for (uint32_t i = 0; i < m.tokens; i++)
        if (m.id_bytes == 2)
            bytes_put_u16(&w, (uint16_t)(7 * i % 251));
        else
            bytes_put_u32(&w, 7 * i % 251);
    const char *path = scratch_write(name, data, size);
    free(data);
    return path;
}

static const char *good_shard(const char *name, uint32_t tokens)
{
    return make_shard(name, (struct made){20240520, 1, tokens, tokens, 0, 2});
}

static enum err open_set(struct shard_set *set, const char *path, int64_t vocab)
{
    struct config_list list = {(const char *[]){path}, 1};
    return shard_set_open(set, &arena, &list, vocab);
}

static void both_kinds_are_read(void **state)
{
    (void)state;
    struct made kinds[] = {{20240520, 1, 1000, 1000, 0, 2}, {20240801, 7, 1000, 1000, 0, 4}};
    for (int k = 0; k < 2; k++) {
        struct shard_set set;
        int32_t ids[10];
        assert_int_equal(open_set(&set, make_shard("a.bin", kinds[k]), 251), ERR_OK);
        assert_int_equal(set.tokens, 1000);
        shard_read(&set.shards[0], 990, 10, ids);
        for (int i = 0; i < 10; i++)
            assert_int_equal(ids[i], 7 * (990 + i) % 251);
        shard_set_close(&set);
    }
}

static void damaged_shards_are_named(void **state)
{
    (void)state;
    static const struct {
        struct made made;
        const char *says;
    } cases[] = {
        {{1, 1, 10, 10, 0, 2}, "not a token shard (magic 1;"},
        {{20240520, 2, 10, 10, 0, 2},
         "shard version 2; with magic 20240520 this program reads version 1"},
        {{20240801, 1, 10, 10, 0, 4},
         "shard version 1; with magic 20240801 this program reads version 7"},
        {{20240520, 1, 10, 7, 0, 2}, "cut short: the header promises 10 tokens, 3 are missing"},
        {{20240520, 1, 10, 7, 1, 2}, "3 are missing"},
        {{20240801, 7, 2147483647, 10, 0, 4}, "2147483637 are missing"},
        {{20240520, 1, 10, 10, 1, 2}, "1 bytes after the 10 tokens"},
        {{20240520, 1, 10, 12, 0, 2}, "4 bytes after the 10 tokens"},
        {{20240520, 1, 0, 0, 0, 2}, "promises 0 tokens"},
        {{20240520, 1, 4294967295u, 10, 0, 2}, "promises 4294967295 tokens"},
    };
    struct shard_set set;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(open_set(&set, make_shard("bad.bin", cases[i].made), 256), ERR_INPUT);
        assert_says("bad.bin");
        assert_says(cases[i].says);
        assert_int_equal(set.count, 0);
    }
    assert_int_equal(open_set(&set, scratch_write("short.bin", "abc", 3), 256), ERR_INPUT);
    assert_says("3 bytes; a token shard begins with a header of 1024");
    assert_int_equal(open_set(&set, scratch_write("empty.bin", "", 0), 256), ERR_INPUT);
    assert_int_equal(open_set(&set, scratch("missing.bin"), 256), ERR_INPUT);
    assert_says("missing.bin");
    assert_int_equal(open_set(&set, scratch_root, 256), ERR_INPUT);
}

static void ids_beyond_the_vocabulary_are_named(void **state)
{
    (void)state;
    struct shard_set set;
    assert_int_equal(open_set(&set, good_shard("a.bin", 1000), 251),
                     ERR_OK); /* largest id is 250 */
    shard_set_close(&set);
    /* 7 i mod 251 = 250 first at i = 215 (7 * 215 = 1505 = 6 * 251 - 1) */
    assert_int_equal(open_set(&set, scratch("a.bin"), 250), ERR_INPUT);
    assert_says("a.bin: token 215 has id 250, beyond model.vocab_size = 250");
    uint8_t wide[1028] = {0};
    struct bytes_writer w = bytes_writer(wide, sizeof wide);
    bytes_put_u32(&w, 20240801);
    bytes_put_u32(&w, 7);
    bytes_put_u32(&w, 1);
    memset(wide + 1024, 0xff, 4);
    assert_int_equal(open_set(&set, scratch_write("w.bin", wide, sizeof wide), 1000000), ERR_INPUT);
    assert_says("token 0 has id 4294967295");
}

static void globs_are_sorted_and_lists_keep_their_order(void **state)
{
    (void)state;
    good_shard("g-2.bin", 20);
    good_shard("g-1.bin", 10);
    good_shard("g-3.bin", 30);
    struct shard_set set;
    assert_int_equal(open_set(&set, scratch("g-*.bin"), 256), ERR_OK);
    assert_int_equal(set.count, 3);
    assert_int_equal(set.tokens, 60);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(set.shards[i].count, 10 * (i + 1));
    shard_set_close(&set);
    struct config_list list = {(const char *[]){scratch("g-3.bin"), scratch("g-[12].bin")}, 2};
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_OK);
    assert_int_equal(set.shards[0].count, 30);
    assert_int_equal(set.shards[2].count, 20);
    shard_set_close(&set);
    assert_int_equal(open_set(&set, scratch("h-*.bin"), 256), ERR_INPUT);
    assert_says("no file matches");
    list.count = 0;
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_INPUT);
    assert_says("no token shards are listed");
}

/* Directories of Hive and Spark have a sign of NAME=PATH in them. */
static void a_path_may_have_an_equals_sign(void **state)
{
    (void)state;
    struct shard_set set;
    struct shard_group *groups;
    struct config_list list = {(const char *[]){"year=2020/month=01/train-*.bin",
                                                "web=year=2020/month=01/train-0.bin",
                                                "year=2020/month=01/train-0.bin"},
                               3};
    size_t count;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(file_mkdirs(scratch("year=2020/month=01")), ERR_OK);
    good_shard("year=2020/month=01/train-0.bin", 10);
    good_shard("year=2020/month=01/train-1.bin", 20);
    assert_int_equal(chdir(scratch_root), 0);
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_OK);
    assert_int_equal(set.count, 4);
    assert_string_equal(set.shards[0].set, "");
    assert_string_equal(set.shards[2].set, "web");
    assert_string_equal(set.shards[3].path, "year=2020/month=01/train-0.bin");
    shard_set_close(&set);
    assert_int_equal(shard_groups(&list, &arena, &groups, &count), ERR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(groups[0].paths.count, 2);
    assert_string_equal(shard_item_path(list.items[0]), list.items[0]);
    /* What is not there is named with what it was taken for, file or pattern. */
    list = (struct config_list){(const char *[]){"year=2021/train-*.bin"}, 1};
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_INPUT);
    assert_says("\"year\" is taken for the name of a set (if it belongs to the path: "
                "./year=2021/train-*.bin): 2021/train-*.bin: no file matches");
    list.items[0] = "year=2021/a.bin";
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_INPUT);
    assert_says("\"year\" is taken for the name of a set");
    assert_int_equal(shard_items_plain(&list, &arena), ERR_OK);
    assert_string_equal(list.items[0], "./year=2021/a.bin");
    assert_int_equal(chdir(before), 0);
}

static char said[2000];
static void hear(void *self, enum log_level level, const char *line)
{
    (void)self;
    if (level == LOG_WARN)
        snprintf(said, sizeof said, "%s", line);
}

/* Two patterns that overlap, or a link: the file would be trained on twice as often. */
static void a_file_counts_once_in_a_set(void **state)
{
    (void)state;
    struct loader l;
    struct loader_options o = {
        .ranks = 1, .sequence = 8, .batch_tokens = 8, .vocab = 256, .objective = &objective_causal};
    const char *common;
    size_t count;
    good_shard("o-1.bin", 17);
    good_shard("o-2.bin", 33);
    assert_int_equal(symlink(scratch("o-1.bin"), scratch("p.bin")), 0);
    struct config_list list = {
        (const char *[]){scratch("o-*.bin"), scratch("o-2.bin"), scratch("p.bin")}, 3};
    *said = 0;
    log_to(hear, NULL);
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    assert_int_equal(l.set.count, 2);
    assert_int_equal(l.set.tokens, 50);
    assert_non_null(strstr(said, "o-2.bin others=1 text=\"listed twice"));
    loader_close(&l);
    *said = 0;
    list.count = 1;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    assert_string_equal(said, "");
    loader_close(&l);
    log_to(NULL, NULL);
    struct config_list one = {(const char *[]){scratch("p.bin")}, 1}, files, named;
    assert_int_equal(shard_files(&list, &arena, &files), ERR_OK);
    assert_int_equal(shard_files_common(&one, &files, &arena, &common, &count), ERR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(common, one.items[0]);
    one.items[0] = good_shard("q.bin", 9);
    assert_int_equal(shard_files_common(&one, &files, &arena, &common, &count), ERR_OK);
    assert_true(count == 0 && !common);
    /* Two sets may share a file. */
    const char *x = arena_printf(&arena, "a=%s", scratch("q.bin")),
               *y = arena_printf(&arena, "b=%s", scratch("q.bin"));
    named = (struct config_list){(const char *[]){x, y, y}, 3};
    assert_int_equal(shard_files_once(&named, &arena, &common, &count), ERR_OK);
    assert_true(named.count == 2 && count == 1);
}

/* ---- batches ---- */

static void a_batch_is_filled_up_to_the_unit_without_targets(void **state)
{
    (void)state;
    struct batch b;
    assert_int_equal(batch_open(&b, &arena, 192, 4), ERR_OK);
    batch_clear(&b);
    assert_int_equal(batch_append(&b, 70), 0);
    for (int i = 0; i < 70; i++)
        b.tokens[i] = b.targets[i] = 7;
    b.types[69] = b.tasks[0] = 1;
    b.labels[0] = 0;
    batch_fill_up(&b, 3);
    assert_int_equal(b.tokens_count, 128);
    assert_int_equal(b.filled, 58);
    assert_int_equal(b.sequences, 2);
    assert_int_equal(b.cu_seqlens[1], 70);
    assert_int_equal(b.cu_seqlens[2], 128);
    for (int i = 70; i < 128; i++) {
        assert_int_equal(b.tokens[i], 3);
        assert_int_equal(b.targets[i], -1);
        assert_int_equal(b.positions[i], 0);
        assert_int_equal(b.types[i], 0);
    }
    assert_int_equal(b.labels[1], -1);
    assert_int_equal(batch_targets(&b), 70);
    assert_int_equal(batch_labels(&b), 1);
    batch_fill_up(&b, 3); /* a multiple of the unit stays as it is */
    assert_int_equal(b.sequences, 2);
    batch_clear(&b); /* what an earlier batch had is gone */
    assert_int_equal(b.filled, 0);
    assert_int_equal(batch_append(&b, 128), 0);
    assert_int_equal(b.types[69], 0);
    assert_int_equal(b.labels[0], -1);
    assert_int_equal(b.tasks[0], 0);
}

/* ---- loader ---- */

enum { S = 8 };

static void open_loader(struct loader *l, struct loader_options o)
{
    struct config_list list = {
        (const char *[]){scratch("l-1.bin"), scratch("l-2.bin"), scratch("l-3.bin")}, 3};
    o.sequence = S;
    o.vocab = 256;
    o.objective = &objective_causal;
    assert_int_equal(loader_open(l, &arena, &list, &o), ERR_OK);
}

static void make_set(void)
{
    good_shard("l-1.bin", 801); /* 100 windows */
    good_shard("l-2.bin", 5);   /* none */
    good_shard("l-3.bin", 300); /* 37 windows, and 3 ids that are no target of a whole one */
}

static void windows_hold_inputs_and_their_successors(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    make_set();
    open_loader(&l, (struct loader_options){.ranks = 1, .batch_tokens = 4 * S});
    assert_int_equal(l.windows, 137);
    assert_int_equal(batch_open(&b, &arena, 2 * S, 2), ERR_OK);
    objective_windows(&l, 99, 2, &b); /* the last of the first shard, the first of the third */
    assert_int_equal(b.tokens_count, 2 * S);
    assert_int_equal(b.sequences, 2);
    for (int i = 0; i < S; i++) {
        assert_int_equal(b.tokens[i], 7 * (99 * S + i) % 251);
        assert_int_equal(b.targets[i], 7 * (99 * S + i + 1) % 251);
        assert_int_equal(b.tokens[S + i], 7 * i % 251);
        assert_int_equal(b.positions[i], i);
        assert_int_equal(b.positions[S + i], i);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(b.cu_seqlens[i], i * S);
    loader_close(&l);
}

static void an_epoch_shows_each_window_once(void **state)
{
    (void)state;
    struct loader l;
    make_set();
    for (uint32_t seed = 0; seed < 20; seed++) {
        open_loader(&l, (struct loader_options){.seed = seed, .ranks = 1, .batch_tokens = S});
        for (uint64_t n = 1; n <= 137; n++) { /* also every size of the set */
            uint8_t seen[137] = {0};
            l.windows = n;
            for (uint64_t i = 0; i < n; i++) {
                uint64_t w = loader_order(&l, 3 * n + i);
                assert_true(w < n && !seen[w]);
                seen[w] = 1;
            }
        }
        loader_close(&l);
    }
}

static void orders_differ_between_epochs_seeds_and_sites(void **state)
{
    (void)state;
    struct loader l[4];
    make_set();
    open_loader(&l[0],
                (struct loader_options){.seed = 1, .site = 0, .ranks = 1, .batch_tokens = S});
    open_loader(&l[1],
                (struct loader_options){.seed = 2, .site = 0, .ranks = 1, .batch_tokens = S});
    open_loader(&l[2],
                (struct loader_options){.seed = 1, .site = 1, .ranks = 1, .batch_tokens = S});
    open_loader(&l[3],
                (struct loader_options){.seed = 1, .site = 0, .ranks = 1, .batch_tokens = S});
    int same[4] = {0}, identity = 0;
    for (uint64_t i = 0; i < 137; i++) {
        uint64_t w = loader_order(&l[0], i);
        same[0] += w == loader_order(&l[0], 137 + i);
        same[1] += w == loader_order(&l[1], i);
        same[2] += w == loader_order(&l[2], i);
        same[3] += w == loader_order(&l[3], i);
        identity += w == i;
    }
    assert_true(same[0] < 10 && same[1] < 10 && same[2] < 10 && identity < 10); /* 1 expected */
    assert_int_equal(same[3], 137);
    for (int i = 0; i < 4; i++)
        loader_close(&l[i]);
}

/* A permutation whose first half prefers one end of the text would be a curriculum that was not
 * asked for. */
static void the_order_is_spread_evenly(void **state)
{
    (void)state;
    struct loader l;
    double sum = 0;
    make_set();
    open_loader(&l, (struct loader_options){.seed = 5, .ranks = 1, .batch_tokens = S});
    l.windows = 100000;
    for (uint64_t i = 0; i < 10000; i++)
        sum += (double)loader_order(&l, i);
    double mean = sum / 10000,
           sigma = 100000 / 3.4641 / 100; /* of the mean of 10^4 uniform draws */
    assert_true(mean > 49999.5 - 4 * sigma && mean < 49999.5 + 4 * sigma);
    loader_close(&l);
}

/* The windows of a step do not depend on how many ranks share it, nor on which steps were asked for
 * before. */
static void ranks_cut_one_step_into_disjoint_runs(void **state)
{
    (void)state;
    struct loader whole, part;
    struct batch b, one;
    make_set();
    open_loader(&whole,
                (struct loader_options){.seed = 3, .site = 2, .ranks = 1, .batch_tokens = 12 * S});
    assert_int_equal(batch_open(&b, &arena, 12 * S, 12), ERR_OK);
    assert_int_equal(batch_open(&one, &arena, 12 * S, 12), ERR_OK);
    for (uint64_t step = 40; step-- > 0;) { /* backwards: there is no history */
        objective_step(&whole, step, 0, 12, &b);
        for (uint32_t ranks = 1; ranks <= 4; ranks++)
            for (uint32_t rank = 0; rank < ranks; rank++) {
                open_loader(&part, (struct loader_options){.seed = 3,
                                                           .site = 2,
                                                           .rank = rank,
                                                           .ranks = ranks,
                                                           .batch_tokens = 12 * S});
                size_t n = 12 / ranks, half = n / 2;
                objective_step(&part, step, 0, half, &one); /* in two micro-batches */
                assert_memory_equal(one.tokens, b.tokens + rank * n * S,
                                    half * S * sizeof *b.tokens);
                objective_step(&part, step, half, n - half, &one);
                assert_memory_equal(one.targets, b.targets + (rank * n + half) * S,
                                    (n - half) * S * sizeof *b.tokens);
                loader_close(&part);
            }
    }
    loader_close(&whole);
}

static void open_own(struct loader *l, const char *const *files, uint32_t rank, uint32_t ranks)
{
    const char *items[3] = {files[0], files[1], files[2]};
    struct config_list list = {items, 3};
    struct loader_options o = {.seed = 3,
                               .rank = rank,
                               .ranks = ranks,
                               .own_shards = true,
                               .sequence = S,
                               .batch_tokens = 6 * S,
                               .vocab = 256,
                               .objective = &objective_causal};
    assert_int_equal(loader_open(l, &arena, &list, &o), ERR_OK);
}

/* A rank opens nothing else: the other ranks' files do not exist. What it draws is each window of
 * its files once an epoch, in another order than the other ranks. */
static void a_rank_opens_its_own_files(void **state)
{
    (void)state;
    struct loader l[2], again;
    struct batch b[2];
    make_set();
    const char *a = scratch("l-1.bin"), *c = scratch("l-3.bin");
    open_own(&l[0], (const char *[]){a, "/nowhere/b.bin", c}, 0, 2);
    open_own(&l[1], (const char *[]){"/nowhere/a.bin", a, "/nowhere/c.bin"}, 1, 2);
    assert_int_equal(l[0].windows, 137);
    assert_int_equal(l[0].set.count, 2);
    assert_int_equal(l[1].windows, 100);
    assert_int_equal(l[0].rank_sequences, 3);
    assert_string_equal(l[1].dealt.files,
                        arena_printf(&arena, "0: /nowhere/a.bin /nowhere/c.bin; 1: %s", a));
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t seen[137] = {0};
        for (uint64_t i = 0; i < l[r].windows; i++)
            seen[loader_order(&l[r], i)]++;
        for (uint64_t i = 0; i < l[r].windows; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(batch_open(&b[r], &arena, 3 * S, 3), ERR_OK);
        objective_step(&l[r], 1, 1, 2, &b[r]); /* the second micro-batch of the second step */
        for (uint32_t i = 0; i < 2; i++) {
            uint64_t window = loader_order(&l[r], 3 + 1 + i);
            size_t first = window < 100 ? window : window - 100;
            assert_int_equal(b[r].numbers[i], 3 * r + 1 + i);
            assert_int_equal(b[r].tokens[i * S], 7 * (first * S) % 251);
        }
    }
    int same = 0;
    for (uint64_t i = 0; i < 100; i++)
        same += loader_order(&l[0], i) == loader_order(&l[1], i);
    assert_true(same < 10);
    open_own(&again, (const char *[]){a, "/nowhere/b.bin", c}, 0, 2);
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(loader_order(&again, i), loader_order(&l[0], i));
    loader_close(&l[0]);
    loader_close(&l[1]);
    loader_close(&again);
}

/* One rank alone has all files, in the order of data.shards = shared. */
static void one_rank_owns_all_files(void **state)
{
    (void)state;
    struct loader own, shared;
    make_set();
    open_own(&own, (const char *[]){scratch("l-1.bin"), scratch("l-2.bin"), scratch("l-3.bin")}, 0,
             1);
    open_loader(&shared, (struct loader_options){.seed = 3, .ranks = 1, .batch_tokens = 6 * S});
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(loader_order(&own, i), loader_order(&shared, i));
    loader_close(&own);
    loader_close(&shared);
}

static void too_few_files_for_the_ranks_are_refused(void **state)
{
    (void)state;
    struct loader l;
    make_set();
    struct config_list list = {(const char *[]){scratch("l-*.bin")}, 1};
    struct loader_options o = {.ranks = 4,
                               .own_shards = true,
                               .sequence = S,
                               .batch_tokens = 4 * S,
                               .vocab = 256,
                               .objective = &objective_causal};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_CONFIG);
    assert_says("data.train has 3 files for 4 ranks");
}

static void impossible_sets_are_refused(void **state)
{
    (void)state;
    struct loader l;
    struct config_list list = {(const char *[]){good_shard("tiny.bin", S)}, 1};
    struct loader_options o = {
        .ranks = 1, .sequence = S, .batch_tokens = S, .vocab = 256, .objective = &objective_causal};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_INPUT);
    assert_says("tiny.bin: 8 tokens, less than one sequence of train.seq_len = 8");
    list.items[0] = good_shard("tiny.bin", S + 1);
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    assert_int_equal(l.windows, 1);
    loader_close(&l);
    o.ranks = 3;
    o.batch_tokens = 8 * S;
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_CONFIG);
    assert_says("train.batch_tokens = 64 is not a multiple of 24");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(both_kinds_are_read),
        T(damaged_shards_are_named),
        T(ids_beyond_the_vocabulary_are_named),
        T(globs_are_sorted_and_lists_keep_their_order),
        T(a_path_may_have_an_equals_sign),
        T(a_file_counts_once_in_a_set),
        T(a_batch_is_filled_up_to_the_unit_without_targets),
        T(windows_hold_inputs_and_their_successors),
        T(an_epoch_shows_each_window_once),
        T(orders_differ_between_epochs_seeds_and_sites),
        T(the_order_is_spread_evenly),
        T(ranks_cut_one_step_into_disjoint_runs),
        T(a_rank_opens_its_own_files),
        T(one_rank_owns_all_files),
        T(too_few_files_for_the_ranks_are_refused),
        T(impossible_sets_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
