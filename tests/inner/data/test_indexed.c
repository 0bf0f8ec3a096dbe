/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: data sets of Megatron-LM are refused or read at the wrong place, a
 * damaged index sends reads beyond its file, a site trains with another vocabulary than the others,
 * and labels stand next to other texts than their own. Oracle: files that megatron-core wrote
 * (tests/golden/indexed). */
#include "tests/inner/scratch.h"
#include "inner/data/labels.h"
#include "inner/data/loader.h"
#include "inner/data/objective.h"
#include "inner/data/words.h"
#include "kernels/base/bytes.h"

static struct arena arena;
static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* ---- Megatron's files ---- */

static const int lengths[] = {3, 1, 5, 2, 4, 4}, documents[] = {3, 1, 2};
enum { SENTENCES = 6, TOKENS = 19 };

static const struct {
    const char *name;
    int64_t vocab;
    int32_t extra;
} goldens[] = {{"u16", 251, 0}, {"i32", 100003, 70000}};

static int32_t golden_id(int k, int sentence, int j)
{
    return (int32_t)((31 * sentence + 7 * j + goldens[k].extra) % goldens[k].vocab);
}

static enum err open_set(struct shard_set *set, const char *path, int64_t vocab)
{
    struct config_list list = {(const char *[]){path}, 1};
    return shard_set_open(set, &arena, &list, vocab);
}

static void what_megatron_wrote_is_read(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct shard_set set;
        char path[100];
        int32_t ids[TOKENS];
        snprintf(path, sizeof path, "tests/golden/indexed/%s.bin", goldens[k].name);
        if (open_set(&set, path, goldens[k].vocab))
            fail_msg("%s", err_message());
        const struct shard *s = &set.shards[0];
        assert_true(s->indexed);
        assert_int_equal(set.tokens, TOKENS);
        assert_int_equal(s->index.sentences, SENTENCES);
        assert_int_equal(s->index.documents_count, 3);
        shard_read(s, 0, TOKENS, ids);
        for (int i = 0, at = 0; i < SENTENCES; at += lengths[i++]) {
            assert_int_equal(indexed_length(&s->index, (uint64_t)i), lengths[i]);
            assert_int_equal(indexed_first(&s->index, (uint64_t)i), at);
            for (int j = 0; j < lengths[i]; j++)
                assert_int_equal(ids[at + j], golden_id(k, i, j));
        }
        for (uint64_t d = 0, at = 0; d < 4; d++) {
            assert_int_equal(indexed_document(&s->index, d), at);
            at += d < 3 ? (uint64_t)documents[d] : 0;
        }
        shard_set_close(&set);
    }
}

/* The golden sentences, as Atoll writes them. */
static void write_golden(int k, const char *stem)
{
    struct indexed_writer w = {0};
    assert_int_equal(indexed_open(&w, stem, goldens[k].vocab), ERR_OK);
    for (int d = 0, i = 0; d < 3; d++) {
        for (int end = i + documents[d]; i < end; i++) {
            int32_t ids[8];
            for (int j = 0; j < lengths[i]; j++)
                ids[j] = golden_id(k, i, j);
            assert_int_equal(indexed_sentence(&w, ids, (size_t)lengths[i]), ERR_OK);
            assert_int_equal(indexed_sentence(&w, ids, 0), ERR_OK);
        }
        assert_int_equal(indexed_document_end(&w), ERR_OK);
        assert_int_equal(indexed_document_end(&w), ERR_OK); /* an empty one is left out */
    }
    assert_int_equal(indexed_close(&w), ERR_OK);
}

static void the_same_bytes_are_written(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        write_golden(k, scratch("w"));
        for (int f = 0; f < 2; f++) {
            char golden[100], mine[200];
            struct file_map a, b;
            const char *extension = f ? "idx" : "bin";
            snprintf(golden, sizeof golden, "tests/golden/indexed/%s.%s", goldens[k].name,
                     extension);
            snprintf(mine, sizeof mine, "%s.%s", scratch("w"), extension);
            assert_int_equal(file_map(&a, golden), ERR_OK);
            assert_int_equal(file_map(&b, mine), ERR_OK);
            assert_int_equal(a.size_bytes, b.size_bytes);
            assert_memory_equal(a.data, b.data, a.size_bytes);
            file_unmap(&a);
            file_unmap(&b);
        }
    }
}

/* Longer than the writer's buffer and its first room. */
static void many_sentences_are_written_and_read(void **state)
{
    (void)state;
    enum { MANY = 9000 };
    struct indexed_writer w = {0};
    struct shard_set set;
    int32_t ids[300];
    assert_int_equal(indexed_open(&w, scratch("many"), 70000), ERR_OK);
    for (int i = 0; i < MANY; i++) {
        for (int j = 0; j < 300; j++)
            ids[j] = (i + j) % 70000;
        assert_int_equal(indexed_sentence(&w, ids, 1 + (size_t)i % 300), ERR_OK);
        assert_int_equal(indexed_document_end(&w), ERR_OK);
    }
    assert_int_equal(indexed_close(&w), ERR_OK);
    assert_int_equal(open_set(&set, scratch("many.bin"), 70000), ERR_OK);
    const struct indexed *x = &set.shards[0].index;
    assert_int_equal(x->documents_count, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        assert_int_equal(indexed_length(x, i), 1 + i % 300);
        shard_read(&set.shards[0], indexed_first(x, i), indexed_length(x, i), ids);
        assert_int_equal(ids[0], i);
        assert_int_equal(ids[i % 300], (i + i % 300) % 70000);
    }
    shard_set_close(&set);
}

static void a_writer_refuses_and_leaves_nothing(void **state)
{
    (void)state;
    struct indexed_writer w = {0};
    assert_int_equal(indexed_open(&w, scratch("none"), 10), ERR_OK);
    assert_int_equal(indexed_sentence(&w, (const int32_t[]){3, 10}, 2), ERR_INPUT);
    assert_says("none.bin: id 10 is not in the vocabulary of 10");
    assert_int_equal(indexed_sentence(&w, (const int32_t[]){-1}, 1), ERR_INPUT);
    indexed_abandon(&w);
    assert_int_equal(indexed_open(&w, scratch("none"), 10), ERR_OK);
    assert_int_equal(indexed_close(&w), ERR_INPUT);
    assert_says("no text");
    assert_false(file_exists(scratch("none.bin")));
    assert_false(file_exists(scratch("none.bin.tmp")));
    assert_false(file_exists(scratch("none.idx")));
    indexed_abandon(&w); /* twice is fine */
}

static void damaged_indexes_are_named(void **state)
{
    (void)state;
    static const struct {
        size_t at; /* byte of the index that is changed */
        uint8_t value;
        int cut; /* bytes less; negative: more */
        const char *says;
    } cases[] = {
        {0, 'X', 0, "not the index of a Megatron data set"},
        {9, 2, 0, "index version 2; this program reads version 1"},
        {17, 5, 0, "ids of type 5; this program reads types 8 (uint16) and 4 (int32)"},
        {17, 4, 0, "sequence 1 begins at byte 6, but those before it end at 12"},
        {18, 7, 0, "cut short: 12 bytes are missing"},
        {18, 0, 0, "the header promises 0 sequences"},
        {25, 0x7f, 0, "the header promises 9151314442816847878 sequences"},
        {26, 5, 0, "cut short: 8 bytes are missing"},
        {26, 0, 0, "6 sequences and 0 document entries"},
        {26, 3, 0, "8 bytes after the document index"},
        {34, 0, 0, "sequence 0 has 0 tokens"},
        {37, 0x80, 0, "sequence 0 has -2147483645 tokens"},
        {34, 4, 0, "sequence 1 begins at byte 6, but those before it end at 8"},
        {54, 5, 0, "its sequences have 40 bytes, the .bin next to it has 38"},
        {58, 1, 0, "sequence 0 begins at byte 1, but those before it end at 0"},
        {106, 1, 0, "document 0 begins with sequence 1"},
        {114, 5, 0, "document 2 begins with sequence 4, the one before with 5"},
        {130, 5, 0, "the documents have 5 sequences, the index 6"},
        {0, 'M', 1, "cut short: 1 bytes are missing; copy the file again"},
        {0, 'M', 110, "28 bytes; an index begins with a header of 34"},
        {0, 'M', -1, "1 bytes after the document index"},
    };
    struct file_map bin, index;
    struct shard_set set;
    assert_int_equal(file_map(&bin, "tests/golden/indexed/u16.bin"), ERR_OK);
    assert_int_equal(file_map(&index, "tests/golden/indexed/u16.idx"), ERR_OK);
    scratch_write("d.bin", bin.data, bin.size_bytes);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[200] = {0};
        memcpy(bytes, index.data, index.size_bytes);
        bytes[cases[i].at] = cases[i].value;
        scratch_write("d.idx", bytes, (size_t)((int)index.size_bytes - cases[i].cut));
        assert_int_equal(open_set(&set, scratch("d.bin"), 251), ERR_INPUT);
        assert_says("d.idx");
        assert_says(cases[i].says);
        assert_int_equal(set.count, 0);
    }
    scratch_write("d.idx", index.data, index.size_bytes);
    assert_int_equal(open_set(&set, scratch("d.bin"), 156), ERR_INPUT);
    assert_says("beyond model.vocab_size = 156");
    file_unmap(&bin);
    file_unmap(&index);
}

/* A data set with an index is a run of tokens for the causal objective. */
static void causal_windows_come_from_indexed_sets(void **state)
{
    (void)state;
    struct loader l;
    struct batch b;
    struct config_list list = {(const char *[]){"tests/golden/indexed/u16.bin"}, 1};
    struct loader_options o = {
        .ranks = 1, .sequence = 6, .batch_tokens = 6, .vocab = 251, .objective = &objective_causal};
    assert_int_equal(loader_open(&l, &arena, &list, &o), ERR_OK);
    assert_int_equal(l.windows, 3);
    assert_int_equal(batch_open(&b, &arena, 6, 1), ERR_OK);
    objective_windows(&l, 1, 1, &b);
    assert_int_equal(b.tokens[0], golden_id(0, 2, 2));
    assert_int_equal(b.targets[5], golden_id(0, 4, 1));
    loader_close(&l);
}

/* ---- sidecars ---- */

static struct sidecar_class classes[] = {{"neg\"ative", 4}, {"positive", 6}};

static struct sidecar full_sidecar(void)
{
    struct sidecar s = sidecar_none();
    s.tokenizer = "tokenizer.json";
    s.kind = "wordpiece";
    s.sha256 = hex;
    s.word_start = "##";
    s.vocab = 30;
    s.special[SIDECAR_CLS] = 2;
    s.special[SIDECAR_SEP] = 3;
    s.special[SIDECAR_MASK] = 4;
    s.special[SIDECAR_PAD] = 0;
    s.tokens = 1000;
    s.documents = 10;
    s.classes = classes;
    s.classes_count = 2;
    return s;
}

static void a_sidecar_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct sidecar a = full_sidecar(), b;
    bool found;
    assert_int_equal(sidecar_write(&a, scratch_root), ERR_OK);
    if (sidecar_read(&b, scratch_root, &arena, &found))
        fail_msg("%s", err_message());
    assert_true(found);
    assert_string_equal(b.tokenizer, a.tokenizer);
    assert_string_equal(b.kind, a.kind);
    assert_string_equal(b.sha256, a.sha256);
    assert_string_equal(b.word_start, a.word_start);
    assert_int_equal(b.vocab, 30);
    assert_memory_equal(a.special, b.special, sizeof a.special);
    assert_int_equal(b.special[SIDECAR_UNK], -1);
    assert_int_equal(b.tokens, 1000);
    assert_int_equal(b.documents, 10);
    assert_int_equal(b.classes_count, 2);
    assert_string_equal(b.classes[0].name, "neg\"ative");
    assert_int_equal(b.classes[1].count, 6);
    assert_true(sidecar_is_special(&b, 3) && !sidecar_is_special(&b, 5));
    assert_int_equal(file_remove(scratch("data.json")), ERR_OK);
    assert_int_equal(sidecar_read(&b, scratch_root, &arena, &found), ERR_OK);
    assert_false(found);
}

static void bad_sidecars_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "data.json"},
        {"{}", "\"vocab\" is missing or less than 2"},
        {"{\"vocab\": \"x\"}", "\"vocab\" is not a whole number"},
        {"{\"vocab\": 30, \"special\": {\"cls\": 30}}",
         "\"cls\" is not a whole number from 0 to 29"},
        {"{\"vocab\": 30, \"sha256\": \"12\"}", "\"sha256\" is not 64 hexadecimal characters"},
        {"{\"vocab\": 30, \"tokenizer\": \"../x\"}", "not the name of a file next to it"},
        {"{\"vocab\": 30, \"kind\": 7}", "\"kind\" is not a text"},
        {"{\"vocab\": 30, \"classes\": 7}", "\"classes\" is not a list"},
        {"{\"vocab\": 30, \"classes\": [{\"count\": 7}]}", "class 0 has no name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sidecar s;
        bool found;
        scratch_write("data.json", cases[i].text, strlen(cases[i].text));
        assert_int_equal(sidecar_read(&s, scratch_root, &arena, &found), ERR_INPUT);
        assert_says(cases[i].says);
    }
    assert_int_equal(file_remove(scratch("data.json")), ERR_OK);
}

static enum err open_loader(struct loader *l, const char *path, const char *sha256)
{
    static struct settings s;
    struct config_list list = {(const char *[]){path}, 1};
    s = (struct settings){.data_tokenizer_sha256 = sha256};
    struct loader_options o = {.ranks = 1,
                               .sequence = 6,
                               .batch_tokens = 6,
                               .vocab = 251,
                               .objective = &objective_causal,
                               .settings = &s};
    return loader_open(l, &arena, &list, &o);
}

static void shards_of_another_tokenizer_are_refused(void **state)
{
    (void)state;
    struct loader l;
    struct sidecar s = full_sidecar();
    write_golden(0, scratch("t"));
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
    assert_int_equal(open_loader(&l, scratch("t.bin"), hex), ERR_OK);
    assert_string_equal(l.sidecar.sha256, hex);
    assert_int_equal(loader_filler(&l), 0);
    loader_close(&l);
    assert_int_equal(open_loader(&l, scratch("t.bin"), ""), ERR_OK);
    loader_close(&l);
    static const char other[] = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    assert_int_equal(open_loader(&l, scratch("t.bin"), other), ERR_MISMATCH);
    assert_says("were made with the tokenizer 0011");
    assert_says("data.tokenizer_sha256 is ff11");
    s.vocab = 252;
    assert_int_equal(sidecar_write(&s, scratch_root), ERR_OK);
    assert_int_equal(open_loader(&l, scratch("t.bin"), hex), ERR_INPUT);
    assert_says("a vocabulary of 252, more than model.vocab_size = 251");
    assert_int_equal(file_remove(scratch("data.json")), ERR_OK);
}

/* ---- words ---- */

static void words_begin_where_the_tokenizer_says(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text, *rule;
        uint8_t continues[5];
    } cases[] = {
        {"v.txt", "[CLS]\nun\n##able\n#\n##s\n", "##", {0, 0, 1, 0, 1}},
        {"v.txt", "[CLS]\r\nun\r\n##able", "##", {0, 0, 1, 0, 0}},
        {"t.json",
         "{\"model\": {\"vocab\": {\"##s\": 4, \"un\": 1, \"##able\": 2, \"x\": 9}}}",
         "##",
         {0, 0, 1, 0, 1}},
        {"t.json",
         "{\"model\": {\"vocab\": [[\"<s>\", 0.0], [\"\xe2\x96\x81un\", -1.5], [\"able\", -2]]}}",
         "\xe2\x96\x81",
         {1, 0, 1, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sidecar s = sidecar_none();
        uint8_t *continues;
        s.tokenizer = cases[i].file;
        s.word_start = cases[i].rule;
        s.vocab = 5;
        scratch_write(cases[i].file, cases[i].text, strlen(cases[i].text));
        if (words_read(&s, scratch_root, &arena, &continues))
            fail_msg("%s", err_message());
        assert_memory_equal(continues, cases[i].continues, 5);
    }
    struct sidecar s = sidecar_none();
    uint8_t *continues;
    assert_int_equal(words_read(&s, scratch_root, &arena, &continues), ERR_OK);
    assert_null(continues);
    s.tokenizer = "t.json";
    s.word_start = "##";
    s.vocab = 5;
    scratch_write("t.json", "{\"model\": {}}", 13);
    assert_int_equal(words_read(&s, scratch_root, &arena, &continues), ERR_INPUT);
    assert_says("t.json: there is no model.vocab");
}

/* ---- labels ---- */

/* Bytes are ids. */
static enum err encode(void *self, const char *text, size_t bytes, struct arena *a, int32_t **ids,
                       size_t *count)
{
    (void)self;
    TRY_ALLOC(*ids = arena_array(a, bytes, sizeof **ids));
    for (size_t i = 0; i < bytes; i++)
        (*ids)[i] = (uint8_t)text[i];
    *count = bytes == 1 && *text == '.' ? 0 : bytes;
    return ERR_OK;
}

static struct labels_options labels_options(const char *out)
{
    struct labels_options o = {.out = out, .sites = 2, .encoder = {.encode = encode}};
    o.of = sidecar_none();
    o.of.vocab = 260;
    o.of.special[SIDECAR_CLS] = 256;
    o.of.special[SIDECAR_SEP] = 257;
    return o;
}

static enum err prepare(const char *text, const struct labels_options *o,
                        struct labels_report *report)
{
    const char *path = scratch_write("l.tsv", text, strlen(text));
    return labels_prepare(&path, 1, o, &arena, report);
}

static void labelled_lines_become_shards_with_labels(void **state)
{
    (void)state;
    struct labels_options o = labels_options(scratch("lab"));
    struct labels_report report;
    struct shard_set set;
    char pattern[200];
    o.held_out = 0.25;
    if (prepare("b\tone\nb\ttwo\r\nb\tthree\n\nb\tfour\na\tfive\na\tsix\na\tseven\na\teight\n", &o,
                &report))
        fail_msg("%s", err_message());
    assert_int_equal(report.documents, 8);
    assert_int_equal(report.held_out, 2);
    assert_int_equal(report.train[0], 3);
    assert_int_equal(report.train[1], 3);
    assert_string_equal(report.of.classes[0].name, "a");
    assert_int_equal(report.of.classes[0].count, 4);
    snprintf(pattern, sizeof pattern, "%s/*.bin", scratch("lab"));
    assert_int_equal(open_set(&set, pattern, 260), ERR_OK);
    assert_int_equal(set.count, 3); /* eval-0000, train-0-0000, train-1-0000 */
    uint64_t documents_seen = 0;
    for (size_t i = 0; i < 3; i++)
        documents_seen += set.shards[i].index.documents_count;
    assert_int_equal(documents_seen, 8);
    /* The last of four of each class is held out: "four" and "eight". Class a (0) begins at site
     * 0, class b (1) at site 1. */
    static const struct {
        const char *text;
        int32_t label;
        size_t shard, document;
        uint64_t texts;
    } expected[] = {{"four", 1, 0, 0, 1},  {"eight", 0, 0, 1, 1}, {"two", 1, 1, 0, 1},
                    {"five", 0, 1, 1, 1},  {"seven", 0, 1, 2, 1}, {"one", 1, 2, 0, 1},
                    {"three", 1, 2, 1, 1}, {"six", 0, 2, 2, 1}};
    for (size_t i = 0; i < 8; i++) {
        const struct shard *s = &set.shards[expected[i].shard];
        uint64_t d = expected[i].document, first = indexed_document(&s->index, d);
        int32_t ids[8];
        assert_int_equal(labels_at(s->labels, d), expected[i].label);
        assert_int_equal(indexed_document(&s->index, d + 1) - first, expected[i].texts);
        assert_int_equal(indexed_length(&s->index, first), strlen(expected[i].text));
        shard_read(s, indexed_first(&s->index, first), strlen(expected[i].text), ids);
        for (size_t j = 0; expected[i].text[j]; j++)
            assert_int_equal(ids[j], expected[i].text[j]);
    }
    shard_set_close(&set);
    assert_int_equal(prepare("a\tx\nb\ty\n", &o, &report), ERR_INPUT);
    assert_says("shards are already there");
    o.replace = true;
    o.held_out = 0;
    assert_int_equal(prepare("a\tx\nb\ty\n", &o, &report), ERR_OK);
    assert_int_equal(open_set(&set, pattern, 260), ERR_OK);
    assert_int_equal(set.count, 2);
    shard_set_close(&set);
}

static void bad_labelled_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        bool given; /* the classes are a and b */
    } cases[] = {
        {"", "no labelled line", false},
        {"a\tx\nb\n", "l.tsv:2: no tab", false},
        {"a\tx\n\ty\n", "l.tsv:2: no label", false},
        {"a\tx\nb\t\n", "l.tsv:2: an empty text", false},
        {"a\tx\nb\ty\tz\tw\n", "l.tsv:2: more than two texts", false},
        {"a\tx\n\nb\t\xc3(\n", "l.tsv:3: byte 3 of the line is not UTF-8", false},
        {"a\tx\nb\t\xed\xa0\x80\n", "l.tsv:2: byte 3 of the line is not UTF-8", false},
        {"a\tx\nb\t\xc0\xaf\n", "byte 3 of the line", false},
        {"a\tx\nb\t\xf4\x90\x80\x80\n", "byte 3 of the line", false},
        {"a\tx\na\ty\n", "l.tsv:1: every line has the label \"a\"; a task needs two", false},
        {"a\tx\nc\ty\n", "l.tsv:2: unknown label \"c\"", true},
        {"a\tx\nb\t.\n", "l.tsv:2: a text without a token", false},
        {"a\tx\nb\ty\n", "2 labelled lines are too few: site 2 of 3 would have none", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct labels_options o = labels_options(scratch("bad"));
        struct labels_report report;
        static const char *const given[] = {"b", "a"};
        o.classes = cases[i].given ? given : NULL;
        o.classes_count = cases[i].given ? 2 : 0;
        o.sites = strstr(cases[i].says, "of 3") ? 3 : 2;
        assert_int_equal(prepare(cases[i].text, &o, &report), ERR_INPUT);
        assert_says(cases[i].says);
        assert_false(file_exists(scratch("bad/train-0-0000.bin"))); /* nothing is left */
    }
}

static void damaged_labels_are_named(void **state)
{
    (void)state;
    struct labels_options o = labels_options(scratch("dl"));
    struct labels_report report;
    struct shard_set set;
    struct file_map map;
    uint8_t bytes[32];
    o.sites = 1;
    assert_int_equal(prepare("a\tx\nb\ty\n", &o, &report), ERR_OK);
    assert_int_equal(file_map(&map, scratch("dl/train-0-0000.labels")), ERR_OK);
    assert_int_equal(map.size_bytes, 24);
    memcpy(bytes, map.data, 24);
    file_unmap(&map);
    scratch_write("dl/train-0-0000.labels", bytes, 20);
    assert_int_equal(open_set(&set, scratch("dl/train-0-0000.bin"), 260), ERR_INPUT);
    assert_says("promises 2 labels in 20 bytes; the data set next to it has 2 documents");
    bytes[8] = 1;
    scratch_write("dl/train-0-0000.labels", bytes, 20);
    assert_int_equal(open_set(&set, scratch("dl/train-0-0000.bin"), 260), ERR_INPUT);
    bytes[8] = 2;
    bytes[23] = 0x80;
    scratch_write("dl/train-0-0000.labels", bytes, 24);
    assert_int_equal(open_set(&set, scratch("dl/train-0-0000.bin"), 260), ERR_INPUT);
    assert_says("document 1 has class -21474836");
    bytes[0] = 'B';
    scratch_write("dl/train-0-0000.labels", bytes, 24);
    assert_int_equal(open_set(&set, scratch("dl/train-0-0000.bin"), 260), ERR_INPUT);
    assert_says("not a file of labels");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(what_megatron_wrote_is_read),
        T(the_same_bytes_are_written),
        T(many_sentences_are_written_and_read),
        T(a_writer_refuses_and_leaves_nothing),
        T(damaged_indexes_are_named),
        T(causal_windows_come_from_indexed_sets),
        T(a_sidecar_is_read_as_it_was_written),
        T(bad_sidecars_are_named),
        T(shards_of_another_tokenizer_are_refused),
        T(words_begin_where_the_tokenizer_says),
        T(labelled_lines_become_shards_with_labels),
        T(bad_labelled_lines_are_named),
        T(damaged_labels_are_named),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
