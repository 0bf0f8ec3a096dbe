/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: held-out text is trained on, two sites train on one text, bytes get
 * lost on the way. */
#include "tests/inner/scratch.h"
#include <sys/mount.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>
#include "inner/data/sentence.h"
#include "inner/data/shard.h"
#include "inner/data/sidecar.h"
#include "inner/data/text.h"
#include "inner/data/tokenizer/unicode.h"
#include "inner/data/unpack.h"

static struct arena arena;
static char out[128];
static unsigned outs;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    snprintf(out, sizeof out, "%s/out-%u", scratch_root, outs++);
    return 0;
}

/* Numbered documents of a few lines: any piece of 20 bytes or more says where it is from. */
static char *make_text(size_t documents, size_t *size)
{
    size_t room = documents * 120 + 1, used = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (size_t i = 0; i < documents; i++)
        used +=
            (size_t)snprintf(text + used, room - used, "Document %zu.\nIts second line, %zu.\n%s\n",
                             i, i * i, i % 3 ? "And a third.\n" : "");
    *size = used;
    return text;
}

static const char *text_file(size_t documents)
{
    size_t size;
    char *text = make_text(documents, &size);
    const char *path = scratch_write("text", text, size);
    free(text);
    return path;
}

static struct text_options options(uint32_t sites)
{
    return (struct text_options){
        .out = out, .sites = sites, .held_out = 0.05, .sequence = 64, .shard_tokens = 1 << 20};
}

static enum err prepare(const char *path, struct text_options o, struct text_report *report)
{
    return text_prepare(&path, 1, &o, &arena, report);
}

/* All text of the shards that match, in order. */
static char *read_back(const char *pattern, size_t *size)
{
    char full[256];
    struct shard_set set;
    snprintf(full, sizeof full, "%s/%s", out, pattern);
    struct config_list list = {(const char *[]){full}, 1};
    assert_int_equal(shard_set_open(&set, &arena, &list, 256), ERR_OK);
    char *text = malloc(set.tokens + 1), *at = text;
    for (size_t i = 0; i < set.count; i++)
        for (uint64_t j = 0; j < set.shards[i].count; j++) {
            int32_t id;
            shard_read(&set.shards[i], j, 1, &id);
            *at++ = (char)id;
        }
    *at = 0;
    *size = (size_t)(at - text);
    shard_set_close(&set);
    return text;
}

static void every_document_is_in_one_part_only(void **state)
{
    (void)state;
    enum { DOCUMENTS = 6000, SITES = 3 };
    struct text_report report;
    assert_int_equal(prepare(text_file(DOCUMENTS), options(SITES), &report), ERR_OK);
    static const char *const patterns[SITES + 1] = {"eval-*.bin", "train-0-*.bin", "train-1-*.bin",
                                                    "train-2-*.bin"};
    static uint8_t seen[DOCUMENTS];
    memset(seen, 0, sizeof seen);
    size_t total = 0, sizes[SITES + 1];
    for (int p = 0; p <= SITES; p++) {
        char *text = read_back(patterns[p], &sizes[p]);
        assert_int_equal(sizes[p], p ? report.train[p - 1].tokens : report.eval.tokens);
        total += sizes[p];
        for (char *at = text; (at = strstr(at, "Document ")); at++) {
            long i = strtol(at + 9, NULL, 10);
            assert_int_equal(seen[i], 0);
            seen[i] = 1;
            char whole[120]; /* cut at blank lines: documents are whole */
            snprintf(whole, sizeof whole, "Document %ld.\nIts second line, %ld.\n%s\n", i, i * i,
                     i % 3 ? "And a third.\n" : "");
            assert_memory_equal(at, whole, strlen(whole));
        }
        free(text);
    }
    for (int i = 0; i < DOCUMENTS; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(total, report.tokens);
    assert_true(sizes[0] > total * 45 / 1000 && sizes[0] < total * 55 / 1000);
    for (int p = 1; p <= SITES; p++)
        assert_true(sizes[p] > total * 30 / 100 && sizes[p] < total * 33 / 100);
}

static void no_held_out_part_keeps_the_text_as_it_is(void **state)
{
    (void)state;
    struct text_report report;
    struct text_options o = options(1);
    size_t size, back;
    o.held_out = 0;
    o.shard_tokens = 1000;
    assert_int_equal(prepare(text_file(200), o, &report), ERR_OK);
    char *text = make_text(200, &size), *read = read_back("train-0-*.bin", &back);
    assert_int_equal(back, size);
    assert_memory_equal(text, read, size);
    assert_int_equal(report.train[0].shards, (size + 999) / 1000);
    free(text);
    free(read);
    assert_false(report.eval.shards);
}

static void any_bytes_survive(void **state)
{
    (void)state;
    enum { SIZE = 40000 };
    static uint8_t bytes[SIZE];
    struct text_report report;
    size_t n;
    for (uint32_t i = 0; i < SIZE; i++) { /* no line end at all, zeros, high bytes */
        uint8_t byte = (uint8_t)(i * 2654435761u >> 13);
        bytes[i] = byte == '\n' ? 0 : byte;
    }
    struct text_options o = options(1);
    assert_int_equal(prepare(scratch_write("raw", bytes, SIZE), o, &report), ERR_INPUT);
    assert_says("is zero: this is no text; or --bytes takes the bytes of any file");
    o.source.raw = true;
    assert_int_equal(prepare(scratch_write("raw", bytes, SIZE), o, &report), ERR_OK);
    assert_int_equal(report.eval.tokens + report.train[0].tokens, SIZE);
    assert_true(report.eval.tokens >= 1000);
    char *read = read_back("eval-*.bin", &n);
    assert_int_equal(n, report.eval.tokens);
    free(read);
}

static void the_same_text_gives_the_same_shards(void **state)
{
    (void)state;
    struct text_report report;
    size_t n[2];
    char *read[2];
    const char *path = text_file(3000);
    for (int i = 0; i < 2; i++) {
        snprintf(out, sizeof out, "%s/same-%d", scratch_root, i);
        assert_int_equal(prepare(path, options(2), &report), ERR_OK);
        read[i] = read_back("train-1-*.bin", &n[i]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(read[0], read[1], n[0]);
    free(read[0]);
    free(read[1]);
}

static void unusable_text_is_named(void **state)
{
    (void)state;
    struct text_report report;
    assert_int_equal(prepare(scratch("none.txt"), options(1), &report), ERR_INPUT);
    assert_says("none.txt");
    assert_int_equal(prepare(scratch_root, options(1), &report), ERR_INPUT);
    assert_int_equal(prepare(scratch_write("empty.txt", "", 0), options(1), &report), ERR_INPUT);
    assert_says("empty.txt: empty");
    assert_int_equal(prepare(scratch_write("a.gz", "\x1f\x8b\x08\0abc", 7), options(1), &report),
                     ERR_INPUT);
    assert_says("a.gz: gzip: cut short after 7 of 7 bytes");
    assert_int_equal(prepare(scratch_write("a.bz2", "BZh91AY", 7), options(1), &report), ERR_INPUT);
    assert_says("a.bz2: compressed (bzip2); unpack it first");
    assert_int_equal(prepare(scratch_write("s.txt", "too short", 9), options(1), &report),
                     ERR_INPUT);
    assert_says("the text is too short: the held-out part would have 9 tokens");
    assert_int_equal(prepare(text_file(100), options(64), &report), ERR_INPUT);
    assert_says("the part of site");
    assert_false(file_exists(out)); /* nothing begun */
    assert_int_equal(
        text_prepare(NULL, 0, &(struct text_options){.out = out, .sites = 1, .shard_tokens = 10},
                     &arena, &report),
        ERR_INPUT);
}

static void shards_that_are_there_are_kept_unless_told(void **state)
{
    (void)state;
    struct text_report report;
    struct text_options o = options(1);
    char full[256];
    o.shard_tokens = 10000;
    assert_int_equal(prepare(text_file(1000), o, &report), ERR_OK);
    snprintf(full, sizeof full, "%s/train-0-%04u.bin", out, report.train[0].shards - 1);
    assert_true(report.train[0].shards > 2 && file_exists(full));
    o.shard_tokens = 1 << 20;
    assert_int_equal(prepare(scratch("text"), o, &report), ERR_INPUT);
    assert_says("shards are already there");
    o.replace = true;
    assert_int_equal(prepare(scratch("text"), o, &report), ERR_OK);
    assert_false(file_exists(full)); /* nothing of the longer set is left */
    o.out = scratch_write("a-file", "x", 1);
    assert_int_equal(prepare(scratch("text"), o, &report), ERR_INPUT);
    assert_says("a-file");
}

static void a_full_disk_leaves_no_partial_set(void **state)
{
    (void)state;
    struct text_report report;
    struct text_options o = options(1);
    char disk[128];
    snprintf(disk, sizeof disk, "%s/disk", scratch_root);
    assert_int_equal(file_mkdirs(disk), ERR_OK);
    if (mount("tmpfs", disk, "tmpfs", 0, "size=64k") != 0) {
        print_message("SKIPPED: mounting a small tmpfs needs root\n");
        skip();
    }
    o.out = disk;
    enum err ahead =
        prepare(text_file(3000), o, &report); /* the shortage is known before writing */
    char sentence[256], **names;
    snprintf(sentence, sizeof sentence, "%s", err_message());
    size_t count;
    o.shard_tokens = 1000; /* many small files: what file systems round up is not foreseen */
    o.held_out = 0.5;
    enum err during = prepare(text_file(450), o, &report);
    enum err listed = file_list(disk, &arena, &names, &count);
    assert_int_equal(umount(disk), 0);
    assert_int_equal(ahead, ERR_FULL);
    assert_non_null(strstr(sentence, "the shards need"));
    assert_int_equal(during, ERR_FULL);
    assert_int_equal(listed, ERR_OK);
    assert_int_equal(count, 0);
}

/* ---- JSON lines and ids ---- */

static void braces_are_not_trained_on(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"id\": 1, \"text\": \"Caf\\u00e9.\\nTwo lines.\", \"url\": \"x\"}\n\n"
        "{\"text\": \"A second \\\"document\\\".\", \"id\": 2}";
    char *many = arena_alloc(&arena, 300 * sizeof lines), *at = many;
    struct text_options o = options(1);
    struct text_report report;
    size_t size;
    o.held_out = 0;
    for (int i = 0; i < 40; i++)
        at += sprintf(at, "%s\r\n", lines);
    const char *path = scratch_write("x.jsonl", many, (size_t)(at - many));
    assert_int_equal(prepare(path, o, &report), ERR_INPUT);
    assert_says(
        "x.jsonl: JSON lines; say with --field which one is the text. Fields with text: text, url");
    o.source.field = "text";
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    char *text = read_back("train-0-*.bin", &size);
    static const char wanted[] = "Caf\xc3\xa9.\nTwo lines.\n\nA second \"document\".\n\n";
    assert_int_equal(size, 40 * strlen(wanted));
    for (int i = 0; i < 40; i++)
        assert_memory_equal(text + (size_t)i * strlen(wanted), wanted, strlen(wanted));
    free(text);
    o.replace = true;
    o.source.field = "id";
    assert_int_equal(prepare(path, o, &report), ERR_INPUT);
    assert_says("x.jsonl:1: no text in the field \"id\"");
    path = scratch_write("y.jsonl", "{\"text\": \"good\"}\n{\"text\": bad}\n", 31);
    o.source.field = "text";
    assert_int_equal(prepare(path, o, &report), ERR_INPUT);
    assert_says("y.jsonl:2: ");
    /* A text that begins with a brace is text. */
    char *plain = arena_printf(&arena, "{ this is no JSON }\n%s", many);
    o.source.field = NULL;
    assert_int_equal(prepare(scratch_write("z", plain, strlen(plain)), o, &report), ERR_OK);
}

enum { IDS = 1000 };

static void ids_are(const char *pattern, const uint32_t *wanted)
{
    struct shard_set set;
    struct config_list list = {(const char *[]){arena_printf(&arena, "%s/%s", out, pattern)}, 1};
    int32_t ids[IDS];
    assert_int_equal(shard_set_open(&set, &arena, &list, 1 << 30), ERR_OK);
    assert_int_equal(set.tokens, IDS);
    shard_read(&set.shards[0], 0, IDS, ids);
    assert_memory_equal(ids, wanted, sizeof ids);
    shard_set_close(&set);
}

/* The bytes that numpy.save writes of an array of this type: format 1.0, header padded to 64. */
static const char *npy(const char *descr, const void *data, size_t bytes)
{
    static uint8_t file[128 + 8 * IDS];
    char head[118];
    snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }", descr,
             IDS);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(file + 10, ' ', 117);
    memcpy(file + 10, head, strlen(head));
    file[127] = '\n';
    memcpy(file + 128, data, bytes);
    return scratch_write("x.npy", file, 128 + bytes);
}

/* A copy that broke off, or that something was appended to, is not the array that was saved. */
static void an_array_has_the_length_of_its_shape(void **state)
{
    (void)state;
    uint16_t ids[IDS + 8] = {0};
    struct text_options o = options(1);
    struct text_report report;
    const struct {
        size_t bytes;
        const char *says;
    } cases[] = {
        {2 * IDS - 10, "x.npy: cut short: the header's shape promises 1000 numbers"},
        {2 * IDS - 1, "x.npy: cut short"},
        {0, "x.npy: cut short"},
        {2 * IDS + 2, "x.npy: longer than its header says"},
        {2 * IDS + 1, "x.npy: longer than its header says"},
    };
    o.source.ids = "npy";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(prepare(npy("<u2", ids, cases[i].bytes), o, &report), ERR_INPUT);
        assert_says(cases[i].says);
    }
    static const char *const shapes[] = {"'shape': 1000", "'shape': (-1,)", "'shape': (1000",
                                         "'shape': (99999999999,99999999999)", "'shap': (1000,)"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint8_t file[128 + 2 * IDS] = "\x93NUMPY\x01\x00\x76\x00";
        memset(file + 10, ' ', 118);
        int n = snprintf((char *)file + 10, 118, "{'descr': '<u2', %s", shapes[i]);
        file[10 + n] = ' ';
        assert_int_equal(prepare(scratch_write("s.npy", file, sizeof file), o, &report), ERR_INPUT);
        assert_says("s.npy: its header has no shape");
    }
}

static void ids_of_another_tokenizer_are_taken(void **state)
{
    (void)state;
    uint16_t small[IDS];
    uint32_t large[IDS], same[IDS];
    int64_t wide[IDS];
    struct text_options o = options(1);
    struct text_report report;
    o.held_out = 0;
    o.replace = true;
    for (int i = 0; i < IDS; i++) {
        small[i] = (uint16_t)(i * 65 % 50257);
        same[i] = small[i];
        wide[i] = large[i] = (uint32_t)i * 100;
    }
    o.source.ids = "uint16";
    assert_int_equal(prepare(scratch_write("x.bin", small, sizeof small), o, &report), ERR_OK);
    ids_are("train-0-*.bin", same);
    assert_int_equal(report.largest_id, 50245);
    o.source.ids = "uint32";
    assert_int_equal(prepare(scratch_write("x.bin", large, sizeof large), o, &report), ERR_OK);
    ids_are("train-0-*.bin", large);
    o.source.ids = "npy";
    assert_int_equal(prepare(npy("<u2", small, sizeof small), o, &report), ERR_OK);
    ids_are("train-0-*.bin", same);
    assert_int_equal(prepare(npy("<i8", wide, sizeof wide), o, &report), ERR_OK);
    ids_are("train-0-*.bin", large);
    wide[7] = -1;
    assert_int_equal(prepare(npy("<i8", wide, sizeof wide), o, &report), ERR_INPUT);
    assert_says("number 7 is negative");
    assert_int_equal(prepare(npy("<f4", large, sizeof large), o, &report), ERR_INPUT);
    assert_says("'<f4'");
    assert_int_equal(prepare(npy("<u2", small, sizeof small - 1), o, &report), ERR_INPUT);
    assert_int_equal(prepare(scratch_write("x.npy", "\x93NUMPY\x01\x00\xff\xff", 10), o, &report),
                     ERR_INPUT);
    o.source.ids = "uint16";
    assert_int_equal(prepare(scratch_write("x.bin", small, 3), o, &report), ERR_INPUT);
    assert_says("no whole number of ids");
    const uint32_t header[2] = {SHARD_MAGIC_U16, 1};
    assert_int_equal(prepare(scratch_write("x.bin", header, sizeof header), o, &report), ERR_INPUT);
    assert_says("a token shard already");
    o.source.ids = "int7";
    assert_int_equal(prepare(scratch_write("x.bin", small, sizeof small), o, &report), ERR_CONFIG);
}

/* ---- compressed files and tokenizers ---- */

static const char packed_text[] = "Hello, first part.\n\nAnd the second.\n";
static const uint8_t gzip_members[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0xd7,
    0x51, 0x48, 0xcb, 0x2c, 0x2a, 0x2e, 0x51, 0x28, 0x48, 0x2c, 0x2a, 0xd1, 0xe3, 0xe2, 0x02, 0x00,
    0x47, 0xe5, 0x42, 0xcc, 0x14, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x03, 0x73, 0xcc, 0x4b, 0x51, 0x28, 0xc9, 0x48, 0x55, 0x28, 0x4e, 0x4d, 0xce, 0xcf, 0x4b,
    0xd1, 0xe3, 0x02, 0x00, 0xa9, 0xd1, 0x2d, 0x8c, 0x10, 0x00, 0x00, 0x00};
static const uint8_t zstd_frames[] = {
    0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x68, 0xa1, 0x00, 0x00, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x2c, 0x20,
    0x66, 0x69, 0x72, 0x73, 0x74, 0x20, 0x70, 0x61, 0x72, 0x74, 0x2e, 0x0a, 0x0a, 0xa7, 0xe0, 0x9b,
    0x7a, 0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x68, 0x81, 0x00, 0x00, 0x41, 0x6e, 0x64, 0x20, 0x74, 0x68,
    0x65, 0x20, 0x73, 0x65, 0x63, 0x6f, 0x6e, 0x64, 0x2e, 0x0a, 0x1b, 0x65, 0x5f, 0xc9};

static enum err collect(void *self, const void *piece, size_t bytes)
{
    return buffer_add(self, piece, bytes);
}

static enum err unpack_all(const char *path, const uint8_t *data, size_t bytes, struct buffer *all)
{
    return unpack(path, data, bytes, &(struct unpack_sink){collect, all});
}

static void several_members_are_one_text(void **state)
{
    (void)state;
    const struct {
        const uint8_t *data;
        size_t bytes;
        const char *name;
    } files[] = {{gzip_members, sizeof gzip_members, "gzip"},
                 {zstd_frames, sizeof zstd_frames, "zstd"}};
    struct buffer text = {0};
    for (size_t i = 0; i < 2; i++) {
        text.count = 0;
        assert_int_equal(unpack_all("x", files[i].data, files[i].bytes, &text), ERR_OK);
        assert_int_equal(text.count, sizeof packed_text - 1);
        assert_memory_equal(text.data, packed_text, sizeof packed_text - 1);
        for (size_t cut = 6; cut + 1 < files[i].bytes; cut += 7) { /* cut short, or whole so far */
            text.count = 0;
            if (unpack_all("x", files[i].data, cut, &text))
                assert_says(files[i].name);
            else
                assert_true(text.count < sizeof packed_text - 1);
        }
        assert_int_equal(unpack_all("x", files[i].data, files[i].bytes - 9, &text), ERR_INPUT);
        assert_says("cut short");
        uint8_t damaged[200];
        memcpy(damaged, files[i].data, files[i].bytes);
        damaged[files[i].bytes - 6] ^= 0x55;
        damaged[12] ^= 0x55;
        assert_int_equal(unpack_all("x", damaged, files[i].bytes, &text), ERR_INPUT);
    }
    buffer_free(&text);
}

/* A frame that fills the last piece to its end has no further piece after it. */
static void a_frame_may_end_where_a_piece_ends(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    static char text[2 * MIB + 1];
    static uint8_t packed[MIB];
    memset(text, 'a', sizeof text);
    const size_t sizes[] = {MIB - 1, MIB, MIB + 1, 2 * MIB, 0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffer whole = {0};
        size_t n = ZSTD_compress(packed, sizeof packed, text, sizes[i], 3);
        assert_false(ZSTD_isError(n));
        assert_int_equal(unpack_all("x", packed, n, &whole), ERR_OK);
        assert_int_equal(whole.count, sizes[i]);
        assert_int_equal(unpack_all("x", packed, n - 1, &whole), ERR_INPUT);
        assert_says("cut short");
        buffer_free(&whole);
        uLongf zipped = sizeof packed;
        z_stream z = {.next_in = (Bytef *)text,
                      .avail_in = (uInt)sizes[i],
                      .next_out = packed,
                      .avail_out = (uInt)zipped};
        assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        n = sizeof packed - z.avail_out;
        deflateEnd(&z);
        assert_int_equal(unpack_all("x", packed, n, &whole), ERR_OK);
        assert_int_equal(whole.count, sizes[i]);
        assert_int_equal(unpack_all("x", packed, n - 1, &whole), ERR_INPUT);
        assert_says("cut short");
        buffer_free(&whole);
    }
}

/* Words of one token each: ids say which text is where. */
static const char *vocabulary(void)
{
    static const char text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\nfour\n";
    return scratch_write("words.txt", text, sizeof text - 1);
}

static void shard_is(const char *name, const int32_t *wanted, size_t count)
{
    struct shard_set set;
    struct config_list list = {(const char *[]){arena_printf(&arena, "%s/%s", out, name)}, 1};
    int32_t ids[100];
    assert_int_equal(shard_set_open(&set, &arena, &list, 9), ERR_OK);
    assert_int_equal(set.tokens, count);
    shard_read(&set.shards[0], 0, count, ids);
    assert_memory_equal(ids, wanted, count * sizeof *ids);
    shard_set_close(&set);
    struct sidecar s;
    bool found;
    assert_int_equal(sidecar_read(&s, out, &arena, &found), ERR_OK);
    assert_true(found);
    assert_string_equal(s.kind, "wordpiece");
    assert_string_equal(s.tokenizer, "vocab.txt");
    assert_string_equal(s.word_start, "##");
    assert_int_equal(s.vocab, 9);
    assert_int_equal(s.special[SIDECAR_CLS], 2);
    assert_int_equal(s.special[SIDECAR_MASK], 4);
    assert_int_equal(s.tokens, count);
    assert_int_equal(s.documents, 3);
}

static void documents_begin_with_a_marker(void **state)
{
    (void)state;
    struct text_options o = options(1);
    struct text_report report;
    o.held_out = 0;
    o.sequence = 4;
    o.replace = true;
    o.tokenizer = vocabulary();
    static const char plain[] = "One two\nthree.\n \n\nTwo\n\n\nfour four";
    assert_int_equal(prepare(scratch_write("p.txt", plain, sizeof plain - 1), o, &report), ERR_OK);
    assert_int_equal(report.documents, 3);
    assert_int_equal(report.vocab, 9);
    shard_is("train-0-0000.bin", (const int32_t[]){3, 5, 6, 7, 1, 3, 6, 3, 8, 8}, 10);
    static const char lines[] =
        "{\"t\": \"one\\n\\ntwo\"}\n{\"t\": \"three\"}\n\n{\"t\": \"four\"}\n";
    o.source.field = "t";
    assert_int_equal(prepare(scratch_write("p.jsonl", lines, sizeof lines - 1), o, &report),
                     ERR_OK);
    shard_is("train-0-0000.bin", (const int32_t[]){3, 5, 6, 3, 7, 3, 8}, 7);
    assert_true(file_exists(arena_printf(&arena, "%s/vocab.txt", out)));
    o.source.field = NULL;
    o.source.whole_files = true;
    assert_int_equal(prepare(scratch("p.txt"), o, &report), ERR_OK);
    assert_int_equal(report.documents, 1);
    assert_int_equal(report.train[0].tokens, 8);
    assert_int_equal(prepare(scratch_write("bad.txt", "one\ntwo \xe9 three\n", 16), o, &report),
                     ERR_INPUT);
    assert_says("bad.txt: line 2, byte 5 is not UTF-8");
    o.sequence = 100;
    assert_int_equal(prepare(scratch("p.txt"), o, &report), ERR_INPUT);
    assert_says("the part of site 0 would have 8 tokens");
    assert_false(file_exists(arena_printf(&arena, "%s/train-0-0000.bin", out)));
}

/* Thousands of documents for three parts: none is cut, and each is in one part. */
static void documents_stay_whole(void **state)
{
    (void)state;
    enum { DOCUMENTS = 5000 };
    struct text_options o = options(2);
    struct text_report report;
    char *text = malloc(DOCUMENTS * 100), *at = text;
    uint64_t markers = 0, tokens = 0;
    assert_non_null(text);
    o.tokenizer = vocabulary();
    for (int i = 0; i < DOCUMENTS; i++) {
        for (int j = 0; j <= i % 7; j++)
            at += sprintf(at, "one two\n");
        at += sprintf(at, "four\n\n");
    }
    assert_int_equal(prepare(scratch_write("d.txt", text, (size_t)(at - text)), o, &report),
                     ERR_OK);
    free(text);
    assert_int_equal(report.documents, DOCUMENTS);
    static const char *const names[] = {"eval-*.bin", "train-0-*.bin", "train-1-*.bin"};
    for (int p = 0; p < 3; p++) {
        struct shard_set set;
        struct config_list list = {(const char *[]){arena_printf(&arena, "%s/%s", out, names[p])},
                                   1};
        assert_int_equal(shard_set_open(&set, &arena, &list, 9), ERR_OK);
        int32_t before = 8, id;
        for (uint64_t i = 0; i < set.shards[0].count; i++, before = id) {
            shard_read(&set.shards[0], i, 1, &id);
            assert_true(id != 3 || before == 8); /* a document ends with "four" */
            markers += id == 3;
        }
        assert_int_equal(before, 8);
        tokens += set.tokens;
        shard_set_close(&set);
    }
    assert_int_equal(markers, DOCUMENTS);
    assert_int_equal(tokens, report.tokens);
}

/* A document for several parts is cut, and only its beginning has the marker. */
static void a_cut_document_begins_once(void **state)
{
    (void)state;
    struct text_options o = options(2);
    struct text_report report;
    struct config_list list = {(const char *[]){arena_printf(&arena, "%s/*.bin", out)}, 1};
    struct shard_set set;
    int32_t id;
    int markers = 0;
    char *text = malloc(5000 * 16), *at = text;
    assert_non_null(text);
    for (int i = 0; i < 5000; i++)
        at += sprintf(at, i % 9 ? "one two\n" : "three\n\n");
    o.tokenizer = vocabulary();
    o.source.whole_files = true;
    assert_int_equal(prepare(scratch_write("w.txt", text, (size_t)(at - text)), o, &report),
                     ERR_OK);
    free(text);
    assert_int_equal(report.documents, 1);
    assert_int_equal(shard_set_open(&set, &arena, &list, 9), ERR_OK);
    assert_int_equal(set.count, 3);
    assert_int_equal(set.tokens, 1 + 556 + 2 * 4444);
    for (size_t i = 0; i < set.count; i++)
        for (uint64_t j = 0; j < set.shards[i].count; j++) {
            shard_read(&set.shards[i], j, 1, &id);
            markers += id == 3;
        }
    assert_int_equal(markers, 1);
    shard_set_close(&set);
}

/* ---- sentences ---- */

static void sentences_end_where_the_rule_says(void **state)
{
    (void)state;
    static const char text[] = "  One e.g. two. \xc3\x89t\xc3\xa9! \xc3\xa9t\xc3\xa9? 3 x\r\n\n "
                               "a.B \"c.\" D. e\nF.";
    static const char *const wanted[] = {"One e.g. two.", "\xc3\x89t\xc3\xa9! \xc3\xa9t\xc3\xa9?",
                                         "3 x", "a.B \"c.\" D. e", "F."};
    struct sentence s;
    size_t at = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_true(sentence_next((const uint8_t *)text, sizeof text - 1, &at, &s));
        assert_int_equal(s.bytes, strlen(wanted[i]));
        assert_memory_equal(s.text, wanted[i], s.bytes);
    }
    assert_false(sentence_next((const uint8_t *)text, sizeof text - 1, &at, &s));
    assert_false(sentence_next((const uint8_t *)" \n", 2, &(size_t){0}, &s));
}

/* `sentences`: the tokens of each; 0 ends a document. */
static void index_is(const char *name, const int32_t *ids, const uint32_t *sentences,
                     uint64_t documents)
{
    struct shard_set set;
    struct config_list list = {(const char *[]){arena_printf(&arena, "%s/%s", out, name)}, 1};
    int32_t read[100];
    uint64_t sentence = 0, tokens = 0;
    assert_int_equal(shard_set_open(&set, &arena, &list, 9), ERR_OK);
    assert_int_equal(set.count, 1);
    assert_true(set.shards[0].indexed);
    const struct indexed *x = &set.shards[0].index;
    assert_int_equal(x->documents_count, documents);
    for (uint64_t d = 0; d < documents; d++, sentences++) {
        assert_int_equal(indexed_document(x, d), sentence);
        for (; *sentences; sentences++, sentence++) {
            assert_int_equal(indexed_length(x, sentence), *sentences);
            tokens += *sentences;
        }
    }
    assert_int_equal(x->sentences, sentence);
    assert_int_equal(x->tokens, tokens);
    shard_read(&set.shards[0], 0, tokens, read);
    assert_memory_equal(read, ids, tokens * sizeof *ids);
    shard_set_close(&set);
}

static struct text_options sentence_options(void)
{
    struct text_options o = options(1);
    o.held_out = 0;
    o.sequence = 4;
    o.replace = true;
    o.tokenizer = vocabulary();
    o.split_sentences = true;
    o.min_sentences = 1;
    return o;
}

static const char documents_text[] =
    "One two. Three\nfour\n\nTwo! 3 one?two\n \n\nfour\n\nthree\none";

static void documents_of_sentences_have_an_index(void **state)
{
    (void)state;
    struct text_options o = sentence_options();
    struct text_report report;
    const char *path = scratch_write("s.txt", documents_text, sizeof documents_text - 1);
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    static const int32_t all[] = {5, 6, 1, 7, 8, 6, 1, 1, 5, 1, 6, 8, 7, 5};
    index_is("train-0-*.bin", all, (const uint32_t[]){3, 1, 1, 0, 2, 4, 0, 1, 0, 1, 1, 0}, 4);
    assert_int_equal(report.documents, 4);
    assert_int_equal(report.tokens, 14);
    assert_int_equal(report.train[0].sentences, 8);
    assert_int_equal(report.train[0].single, 1);

    o.min_sentences = 2;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    static const int32_t some[] = {5, 6, 1, 7, 8, 6, 1, 1, 5, 1, 6, 7, 5};
    index_is("train-0-*.bin", some, (const uint32_t[]){3, 1, 1, 0, 2, 4, 0, 1, 1, 0}, 3);
    assert_int_equal(report.train[0].left_out, 1);
    assert_int_equal(report.train[0].single, 0);

    o.shard_tokens = 6; /* a document stays in one file */
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_int_equal(report.train[0].shards, 2);
    index_is("train-0-0000.bin", some, (const uint32_t[]){3, 1, 1, 0, 2, 4, 0}, 2);
    index_is("train-0-0001.bin", some + 11, (const uint32_t[]){1, 1, 0}, 1);

    o.min_sentences = 9;
    assert_int_equal(prepare(path, o, &report), ERR_INPUT);
    assert_says("the part of site 0 would have 0 tokens");
    o.min_sentences = 1;
    o.sequence = 100;
    o.shard_tokens = 1000;
    assert_int_equal(prepare(path, o, &report), ERR_INPUT);
    assert_false(file_exists(arena_printf(&arena, "%s/train-0-0000.bin", out)));
    assert_false(file_exists(arena_printf(&arena, "%s/train-0-0000.idx", out)));
}

/* A record of privacy: it is never cut, however few there are. */
static void a_document_may_be_one_sequence(void **state)
{
    (void)state;
    struct text_options o = sentence_options();
    struct text_report report;
    const char *path = scratch_write("s.txt", documents_text, sizeof documents_text - 1);
    static const int32_t all[] = {5, 6, 1, 7, 8, 6, 1, 1, 5, 1, 6, 8, 7, 5};
    o.split_sentences = false;
    o.documents = true;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    index_is("train-0-*.bin", all, (const uint32_t[]){5, 0, 6, 0, 1, 0, 2, 0}, 4);
    assert_true(report.documents == 4 && report.train[0].sentences == 4);
    enum { WORDS = 2000 }; /* of three documents, which blocks would cut */
    char *text = malloc(3 * (4 * WORDS + 1) + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i < 3 * WORDS; i++)
        at += sprintf(at, "one%s", i % WORDS == WORDS - 1 ? "\n\n" : "\n");
    path = scratch_write("l.txt", text, (size_t)(at - text));
    free(text);
    o.held_out = 0.3;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_true(report.documents == 3 && report.eval.documents == 1);
    assert_true(report.eval.tokens == WORDS && report.train[0].tokens == 2 * WORDS);
}

/* An index that stays would cut the next .bin at its places. */
static void no_index_stays_behind(void **state)
{
    (void)state;
    struct text_options o = sentence_options();
    struct text_report report;
    const char *path = scratch_write("s.txt", documents_text, sizeof documents_text - 1);
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_true(file_exists(arena_printf(&arena, "%s/train-0-0000.idx", out)));
    o.split_sentences = false;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_false(file_exists(arena_printf(&arena, "%s/train-0-0000.idx", out)));
}

/* Long lines of characters beyond ASCII: blocks once ended within one, and cut words elsewhere. */
static void a_long_line_is_cut_between_words(void **state)
{
    (void)state;
    enum { WORDS = 30000 };
    static const char *const words[] = {"one", "two", "three", "four", "\xc3\xa9t\xc3\xa9"};
    static const int32_t ids[] = {5, 6, 7, 8, 1};
    struct text_options o = options(1);
    struct text_report report;
    struct shard_set set;
    int32_t *wanted = malloc((WORDS + 1) * sizeof *wanted),
            *got = malloc((WORDS + 1) * sizeof *got);
    char *text = malloc(7 * WORDS), *at = text;
    assert_true(wanted && got && text);
    wanted[0] = 3;
    for (int i = 0; i < WORDS; i++) {
        unsigned k = (unsigned)i * 2654435761u >> 8;
        at += sprintf(at, "%s ", words[k % 5]);
        wanted[i + 1] = ids[k % 5];
    }
    const char *path = scratch_write("long", text, (size_t)(at - text));
    struct config_list list = {(const char *[]){arena_printf(&arena, "%s/train-*.bin", out)}, 1};
    o.tokenizer = vocabulary();
    o.held_out = 0;
    o.replace = true;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_true(report.blocks > 100);
    assert_int_equal(shard_set_open(&set, &arena, &list, 9), ERR_OK);
    assert_int_equal(set.tokens, WORDS + 1);
    shard_read(&set.shards[0], 0, WORDS + 1, got);
    assert_memory_equal(got, wanted, (WORDS + 1) * sizeof *got);
    shard_set_close(&set);
    /* Bytes: no part begins or ends within a character. */
    o.tokenizer = NULL;
    o.sites = 3;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    for (int site = 0; site < 3; site++) {
        size_t n, bad;
        char *part = read_back(arena_printf(&arena, "train-%d-*.bin", site), &n);
        assert_true(unicode_check((const uint8_t *)part, n, &bad));
        free(part);
    }
    free(wanted);
    free(got);
    free(text);
}

/* More than a piece: the ids of one document are encoded in several. */
static void a_document_longer_than_a_piece_is_whole(void **state)
{
    (void)state;
    enum { DOCUMENTS = 40, WORDS = 700000 };
    struct text_options o = options(1);
    struct text_report report;
    char *text = malloc(4 * WORDS + 100 * DOCUMENTS), *at = text;
    assert_non_null(text);
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int i = 0; i < (d == 3 ? WORDS : 10); i++)
            at += sprintf(at, "%s", i % 7 ? "two " : "one\n");
        at += sprintf(at, "\n\n");
    }
    const char *path = scratch_write("many", text, (size_t)(at - text));
    free(text);
    o.tokenizer = vocabulary();
    o.held_out = 0;
    o.shard_tokens = 10 * WORDS;
    o.min_sentences = 1;
    o.replace = true;
    for (int indexed = 0; indexed < 3; indexed++) {
        o.documents = indexed == 1;
        o.split_sentences = indexed == 2;
        assert_int_equal(prepare(path, o, &report), ERR_OK);
        assert_int_equal(report.documents, DOCUMENTS);
        assert_int_equal(report.tokens, WORDS + (DOCUMENTS - 1) * 10 + (indexed ? 0 : DOCUMENTS));
    }
}

/* Blocks cut a long document where there are few; in one part its pieces are one document. */
static void a_document_of_several_blocks_stays_one(void **state)
{
    (void)state;
    enum { LINES = 2000 };
    struct text_options o = sentence_options();
    struct text_report report;
    char *text = malloc(LINES * 8 + 1), *at = text;
    assert_non_null(text);
    for (int i = 0; i < LINES; i++)
        at += sprintf(at, "one two\n");
    const char *path = scratch_write("l.txt", text, (size_t)(at - text));
    free(text);
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_true(report.blocks > 10);
    assert_int_equal(report.documents, 1);
    assert_int_equal(report.train[0].sentences, LINES);
    o.held_out = 0.3;
    assert_int_equal(prepare(path, o, &report), ERR_OK);
    assert_true(report.train[0].documents > 1);
    assert_int_equal(report.train[0].sentences + report.eval.sentences, LINES);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(braces_are_not_trained_on),
        T(an_array_has_the_length_of_its_shape),
        T(ids_of_another_tokenizer_are_taken),
        T(every_document_is_in_one_part_only),
        T(no_held_out_part_keeps_the_text_as_it_is),
        T(any_bytes_survive),
        T(the_same_text_gives_the_same_shards),
        T(unusable_text_is_named),
        T(shards_that_are_there_are_kept_unless_told),
        T(a_full_disk_leaves_no_partial_set),
        T(several_members_are_one_text),
        T(a_frame_may_end_where_a_piece_ends),
        T(documents_begin_with_a_marker),
        T(documents_stay_whole),
        T(sentences_end_where_the_rule_says),
        T(documents_of_sentences_have_an_index),
        T(a_document_may_be_one_sequence),
        T(no_index_stays_behind),
        T(a_document_of_several_blocks_stays_one),
        T(a_long_line_is_cut_between_words),
        T(a_document_longer_than_a_piece_is_whole),
        T(a_cut_document_begins_once),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
