/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a file that another program saved (a byte order mark, CRLF, UTF-16)
 * is read as other data than its text, one patient becomes two owners, and a binary file is trained
 * on. One table for every kind of text file that people give. */
#include "tests/inner/scratch.h"
#include "inner/config/json.h"
#include "inner/config/keys.h"
#include "inner/config/textfile.h"
#include "inner/eval/choices.h"
#include "inner/data/columns.h"
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

/* ---- what a file says: each reader writes it as text ---- */

static char said[4000];
static const char *out;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list args;
    size_t n = strlen(said);
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

static const char *vocabulary(void)
{
    static const char text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\none\ntwo\nthree\nfour\nete\n";
    return scratch_write("vocab.txt", text, sizeof text - 1);
}

/* Every document of a set: its ids, class and owner. */
static enum err say_shards(void)
{
    struct shard_set set;
    const char *pattern = arena_printf(&arena, "%s/*.bin", out);
    struct config_list list = {&pattern, 1};
    TRY(shard_set_open(&set, &arena, &list, 1 << 20));
    for (size_t i = 0; i < set.count; i++) {
        const struct shard *s = &set.shards[i];
        int32_t ids[100];
        size_t count = s->count < 100 ? (size_t)s->count : 100;
        shard_read(s, 0, count, ids);
        for (size_t k = 0; k < count; k++)
            say("%d ", ids[k]);
        for (uint64_t d = 0; s->labels && d < s->index.documents_count; d++)
            say("class %d ", labels_at(s->labels, d));
        for (uint64_t d = 0; s->owners && d < s->index.documents_count; d++) {
            struct owner o = owners_at(s->owners, d);
            say("owner %02x%02x%02x ", o.id[0], o.id[1], o.id[2]);
        }
        say("| ");
    }
    shard_set_close(&set);
    return ERR_OK;
}

static struct text_options text_options(void)
{
    return (struct text_options){.out = out,
                                 .sites = 1,
                                 .sequence = 1,
                                 .shard_tokens = 1000,
                                 .min_sentences = 1,
                                 .tokenizer = vocabulary(),
                                 .replace = true};
}

static enum err read_text(const char *path, struct text_options o)
{
    struct text_report report;
    TRY(text_prepare(&path, 1, &o, &arena, &report));
    say("%llu documents ", (unsigned long long)report.documents);
    return say_shards();
}

static enum err read_labels(const char *path, struct text_options o)
{
    struct labels_report report;
    TRY(text_labels_prepare(&path, 1, &o, NULL, &arena, &report));
    for (size_t i = 0; i < report.of.classes_count; i++)
        say("%s ", report.of.classes[i].name);
    return say_shards();
}

static enum err read_yaml(const char *path)
{
    static struct settings s;
    struct config_table table = keys_inner(&s);
    TRY(config_load(&table, 1, path, 0, NULL, &arena));
    say("%lld %s %zu", (long long)s.train_steps, s.run_name, s.data_train.count);
    return ERR_OK;
}

static enum err read_json(const char *path)
{
    struct json j;
    TRY(json_read_file(&j, path, 1 << 20, &arena));
    say("%s %zu", json_find(&j, "a")->text, j.count);
    return ERR_OK;
}

static enum err read_plain(const char *path)
{
    return read_text(path, text_options());
}

static enum err read_bytes(const char *path) /* ids are bytes: CRLF stays what it is */
{
    struct text_options o = text_options();
    o.tokenizer = NULL;
    o.held_out = 0;
    return read_text(path, o);
}

static enum err read_json_lines(const char *path)
{
    struct text_options o = text_options();
    o.source.field = "text";
    return read_text(path, o);
}

static enum err read_csv_text(const char *path)
{
    struct text_options o = text_options();
    o.documents = true;
    o.source.owner = "owner";
    return read_text(path, o);
}

static enum err read_tabs(const char *path)
{
    return read_labels(path, text_options());
}

static enum err read_owners(const char *path)
{
    struct text_options o = text_options();
    o.owners = true;
    return read_labels(path, o);
}

static enum err read_task(const char *path)
{
    struct choices c;
    const struct choices_options o = {.name = "x", .path = path, .vocab = 256};
    TRY(choices_open(&c, &o));
    for (size_t i = 0; i < c.ids.count; i++)
        say("%d ", c.ids.ids[i]);
    say("%zu right %zu", c.count, c.question[0].label);
    choices_close(&c);
    return ERR_OK;
}

/* The name decides what the reader takes a file for. */
static const struct kind {
    const char *name;
    enum err (*read)(const char *path);
    const char *text, *says;
    bool crlf_is_text; /* CR is data */
} kinds[] = {
    {"run.yaml", read_yaml,
     "run: {name: x}\ntrain:\n  steps: 7\ndata:\n  train:\n    - a.bin\n    - b.bin\n", "7 x 2",
     false},
    {"a.json", read_json, "{\"a\": \"b\",\n \"c\": 1}\n", "b 2", false},
    {"a.txt", read_plain, "one two\n\nthree\nfour\n", "2 documents 3 5 6 3 7 8 | ", false},
    {"b", read_plain, "one two\n \nthree \xc3\xa9t\xc3\xa9", "2 documents 3 5 6 3 7 9 | ", false},
    {"c.txt", read_bytes, "ab\nc", "0 documents 97 98 10 99 | ", true},
    {"a.jsonl", read_json_lines, "{\"text\": \"one two\"}\n\n{\"text\": \"three\"}\n",
     "2 documents 3 5 6 3 7 | ", false},
    {"lines", read_json_lines, "{\"text\": \"one two\"}\n{\"text\": \"three\"}",
     "2 documents 3 5 6 3 7 | ", false},
    {"a.csv", read_csv_text, "owner,text\np,\"one, two\"\n\nq,three\n",
     "2 documents 5 1 6 7 owner 148de9 owner 8e35c2 | ", false},
    {"a.tsv", read_tabs, "x\tone\ny\ttwo\tthree\n", NULL, false},
    {"b.tsv", read_tabs, "x\tone\n\ny\ttwo\nx\tfour\n", "x y 5 6 8 class 0 class 1 class 0 | ",
     false},
    {"o.tsv", read_owners, "p\tx\tone\nq\ty\ttwo\np\tx\tfour\n",
     "x y 5 6 8 class 0 class 1 class 0 owner 148de9 owner 8e35c2 owner 148de9 | ", false},
    {"o.csv", read_tabs, "owner,label,text\np,x,one\nq,y,\"two\"\np,x,four\n",
     "x y 5 6 8 class 0 class 1 class 0 owner 148de9 owner 8e35c2 owner 148de9 | ", false},
    {"t.jsonl", read_task, "{\"query\": \"ab\", \"choices\": [\"c\", \"d\"], \"gold\": 1}\n\n",
     "97 98 32 99 32 100 1 right 1", false},
    {"q_test.csv", read_task, "Q,a,b,c,d,B\n", NULL, false},
};

static char *with_crlf(const char *text)
{
    char *to = arena_alloc(&arena, 2 * strlen(text) + 1), *at = to;
    for (; *text; text++) {
        if (*text == '\n')
            *at++ = '\r';
        *at++ = *text;
    }
    return to;
}

/* BOM or not, little-endian or big; of ASCII, and of Latin-1 whose bytes follow 0xc3. */
static size_t in_utf16(const char *text, bool mark, bool big, uint8_t *to)
{
    size_t n = 0;
    if (mark) {
        to[n++] = big ? 0xfe : 0xff;
        to[n++] = big ? 0xff : 0xfe;
    }
    for (const uint8_t *s = (const uint8_t *)text; *s; s++) {
        uint8_t c = *s == 0xc3 ? (uint8_t)(*++s | 0x40) : *s;
        to[n++] = big ? 0 : c;
        to[n++] = big ? c : 0;
    }
    return n;
}

static enum err read_file(const struct kind *k, const void *data, size_t size_bytes)
{
    *said = 0;
    return k->read(scratch_write(k->name, data, size_bytes));
}

static void expect(const struct kind *k, const char *form, const void *data, size_t size_bytes,
                   const char *says)
{
    if (read_file(k, data, size_bytes))
        fail_msg("%s with %s: %s", k->name, form, err_message());
    if (strcmp(said, says) != 0)
        fail_msg("%s with %s: \"%s\" in place of \"%s\"", k->name, form, said, says);
}

static void refused(const struct kind *k, const char *form, const void *data, size_t size_bytes,
                    const char *says)
{
    if (read_file(k, data, size_bytes) != ERR_INPUT)
        fail_msg("%s with %s is read: %s", k->name, form, said);
    if (!strstr(err_message(), says) || !strstr(err_message(), k->name))
        fail_msg("%s with %s: \"%s\" without \"%s\"", k->name, form, err_message(), says);
}

static void every_text_file_is_read_as_its_text(void **state)
{
    (void)state;
    out = arena_printf(&arena, "%s", scratch("table"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        if (!strcmp(k->name, "a.tsv")) { /* one text here, two there */
            refused(k, "a tab in a text", k->text, strlen(k->text), "1 lines have one text");
            continue;
        }
        char *plain = NULL, *crlf = with_crlf(k->text),
             *marked = arena_printf(&arena, "\xef\xbb\xbf%s", k->text),
             *both = arena_printf(&arena, "\xef\xbb\xbf%s", crlf);
        if (read_file(k, k->text, strlen(k->text)))
            fail_msg("%s: %s", k->name, err_message());
        plain = arena_printf(&arena, "%s", said);
        if (k->says)
            assert_string_equal(plain, k->says);
        expect(k, "a mark", marked, strlen(marked), plain);
        if (!k->crlf_is_text) {
            expect(k, "CRLF", crlf, strlen(crlf), plain);
            expect(k, "a mark and CRLF", both, strlen(both), plain);
        }
        uint8_t wide[1000];
        for (unsigned form = 0; form < 4; form++) {
            size_t n = in_utf16(k->text, form & 1, form & 2, wide);
            refused(k, "UTF-16", wide, n, "UTF-16");
        }
        size_t n = strlen(k->text);
        char *zero = arena_string(&arena, k->text, n);
        zero[n / 2] = 0;
        refused(k, "a zero byte", zero, n, "is zero: this is no text");
    }
}

/* ---- files that are no text ---- */

static void what_is_no_text_is_named(void **state)
{
    (void)state;
#define BYTES(text) text, sizeof(text) - 1
    static const struct {
        const char *data;
        size_t bytes;
        const char *says;
    } cases[] = {
        {BYTES("PAR1\x15\0\x15\x10"),
         "x.dat: a Parquet file, and text in UTF-8 is expected; docs/"},
        {BYTES("ARROW1\0\0\xff"), "an Arrow file"},
        {BYTES("\xff\xff\xff\xff\x10\0\0\0"), "an Arrow stream"},
        {BYTES("\x1f\x8b\x08\0"), "compressed (gzip)"},
        {BYTES("\x28\xb5\x2f\xfd\0"), "compressed (zstd)"},
        {BYTES("PK\3\4\0"), "a ZIP archive (.xlsx"},
        {BYTES("%PDF-1.7\n"), "a PDF document"},
        {BYTES("SQLite format 3\0"), "an SQLite database"},
        {BYTES("\x93NUMPY\1\0"),
         "a NumPy array, and text in UTF-8 is expected; token ids of another "
         "program go with --tokens npy"},
        {BYTES("MMIDIDX\0\0\1"), "the index of a Megatron data set"},
        {BYTES("\x7f"
               "ELF\2\1"),
         "a program"},
        {BYTES("\xff\xfe\0\0a\0\0\0"), "UTF-32"},
        {BYTES("line\nwith \0 in it"),
         "x.dat: line 2: byte 11 of the file is zero: this is no text"},
        {BYTES("\0"), "line 1: byte 1 of the file is zero"},
    };
    struct textfile t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(textfile_open(&t, "x.dat", cases[i].data, cases[i].bytes, "try --bytes"),
                         ERR_INPUT);
        assert_says(cases[i].says);
        assert_says("; try --bytes");
    }
    static const char *const texts[] = {"PAR1 is a gene", "BZh", "", "a", "\xef\xbb\xbf", "ARROW1"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(textfile_open(&t, "x", texts[i], strlen(texts[i]), NULL), ERR_OK);
    assert_int_equal(textfile_open(&t, "x", NULL, 0, NULL), ERR_OK);
}

static void lines_end_with_lf_or_crlf(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "a\r\n\n\rb\r\r\n\r\nc";
    static const char *const lines[] = {"a", "", "\rb\r", "", "c"};
    struct textfile t;
    struct textfile_line l = {0};
    size_t at = 0, n = 0;
    assert_int_equal(textfile_open(&t, "x", text, sizeof text - 1, NULL), ERR_OK);
    for (; textfile_line(&t, &at, &l); n++) {
        assert_int_equal(l.number, n + 1);
        assert_int_equal(l.size_bytes, strlen(lines[n]));
        assert_memory_equal(l.text, lines[n], l.size_bytes);
    }
    assert_int_equal(n, 5);
}

/* ---- CSV ---- */

static enum err csv_labels(const char *text, const char *option, bool owners)
{
    struct text_options o = text_options();
    const char *path = scratch_write("l.csv", text, strlen(text));
    *said = 0;
    o.owners = owners;
    if (option)
        TRY(columns_parse(&o.columns, option, &arena));
    return read_labels(path, o);
}

/* RFC 4180: quotes, line breaks and tabs within a field. The columns by their names. */
static void a_table_has_labels_texts_and_owners(void **state)
{
    (void)state;
    static const struct {
        const char *text, *option, *says;
    } good[] = {
        {"label,text\nx,one\ny,two\n", NULL, "x y 5 6 class 0 class 1 | "},
        {"id,text,label\n1,\"one\ntwo\tthree\",\"x\"\n2,two,y\n", NULL,
         "x y 5 6 7 6 class 0 class 1 | "},
        {"label,text\nx,\"one, \"\"two\"\"\"\ny,four\n", NULL,
         "x y 5 1 1 6 1 8 class 0 class 1 | "},
        {"diagnosis,report,patient\nx,one,p\ny,two,q\n",
         "label=diagnosis,text=report,owner=patient",
         "x y 5 6 class 0 class 1 owner 148de9 owner 8e35c2 | "},
        {"label,text,text_b\nx,one,two\ny,two,three\n", NULL, "x y 5 6 6 7 class 0 class 1 | "},
        {"a,b,label\nx,one,two\ny,two,three\n", "label=a,text=b,text_b=label",
         "x y 5 6 6 7 class 0 class 1 | "},
    };
    out = arena_printf(&arena, "%s", scratch("csv"));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (csv_labels(good[i].text, good[i].option, false))
            fail_msg("table %zu: %s", i, err_message());
        assert_string_equal(said, good[i].says);
    }
    static const struct {
        const char *text, *option, *says;
        bool owners;
    } bad[] = {
        {"label,texts\nx,one\n", NULL,
         "l.csv: no column \"text\"; its first line names label, texts", false},
        {"label;text\nx;one\n", NULL, "save it with commas between the fields", false},
        {"label,text\nx,one\n", "label=class", "no column \"class\"", false},
        {"label,text\nx,one\ny,two\n", NULL, "no column \"owner\"", true},
        {"label,text,text\nx,one,two\n", NULL, "two columns are named \"text\"", false},
        {"label,text\nx,one\ny,two,three\n", NULL,
         "l.csv:3: 3 fields, and the first line names 2 columns", false},
        {"label,text\nx,\"one\n\ny,two\n", NULL,
         "l.csv:2: the quote that begins field 2 is not closed", false},
        {"label,text\nx,\"a\nb\"\n,two\n", NULL, "l.csv:4: no label", false},
        {"label,text\nx,\ny,two\n", NULL, "l.csv:2: an empty text", false},
        {"owner,label,text\n,x,one\nq,y,two\n", NULL, "l.csv:2: the column of owners is empty",
         false},
        {"", NULL, "its first line names the columns", false},
        {"label,text\n", NULL, "no labelled line", false},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(csv_labels(bad[i].text, bad[i].option, bad[i].owners), ERR_INPUT);
        assert_says(bad[i].says);
    }
    struct columns_names names = {0};
    static const char *const options[] = {"text", "text=", "=a", "texts=a", "text=a,b", ","};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        assert_int_equal(columns_parse(&names, options[i], &arena), ERR_CONFIG);
        assert_says("is not ROLE=COLUMN");
    }
}

static void pairs_and_single_texts_do_not_mix(void **state)
{
    (void)state;
    static const char tabs[] = "x\tone\nx\ttwo\nx\tone\ttwo\ny\tfour\n",
                      csv[] = "label,text\nx,one\n",
                      owned[] = "owner,label,text\np,x,one\nq,y,two\n";
    struct text_options o = text_options();
    struct labels_report report;
    out = o.out = arena_printf(&arena, "%s", scratch("mixed"));
    const char *path = scratch_write("p.tsv", tabs, sizeof tabs - 1), *two[2];
    assert_int_equal(text_labels_prepare(&path, 1, &o, NULL, &arena, &report), ERR_INPUT);
    assert_says("3 lines have one text (the first is ");
    assert_says("p.tsv:1) and 1 two (");
    assert_says("p.tsv:3): a set has one or two in every line");
    two[0] = scratch_write("o.csv", owned, sizeof owned - 1);
    two[1] = scratch_write("n.csv", csv, sizeof csv - 1);
    assert_int_equal(text_labels_prepare(two, 2, &o, NULL, &arena, &report), ERR_INPUT);
    assert_says("o.csv says whose each text is, and ");
}

/* ---- several kinds in one call ---- */

static void one_call_takes_all_kinds_of_text(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n",
                      plain[] = "three\n\n{four\n", table[] = "id,text\n1,four four\n";
    struct text_options o = text_options();
    struct text_report report;
    out = o.out = arena_printf(&arena, "%s", scratch("all"));
    const char *paths[] = {scratch_write("a.jsonl", lines, sizeof lines - 1),
                           scratch_write("b.txt", plain, sizeof plain - 1),
                           scratch_write("c.csv", table, sizeof table - 1)};
    o.source.field = "text";
    *said = 0;
    assert_int_equal(text_prepare(paths, 3, &o, &arena, &report), ERR_OK);
    assert_int_equal(report.documents, 5);
    assert_int_equal(say_shards(), ERR_OK);
    assert_string_equal(said, "3 5 3 6 3 7 3 1 8 3 8 8 | ");
    o.source.field = NULL;
    assert_int_equal(text_prepare(paths, 1, &o, &arena, &report), ERR_INPUT);
    assert_says(
        "a.jsonl: JSON lines; say with --field which one is the text. Fields with text: text");
    o.source.owner = "id";
    o.documents = true;
    assert_int_equal(text_prepare(paths + 1, 1, &o, &arena, &report), ERR_INPUT);
    assert_says("b.txt: plain text says not whose it is");
    assert_int_equal(text_prepare(paths + 2, 1, &o, &arena, &report), ERR_OK);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(every_text_file_is_read_as_its_text), T(what_is_no_text_is_named),
        T(lines_end_with_lf_or_crlf),           T(a_table_has_labels_texts_and_owners),
        T(pairs_and_single_texts_do_not_mix),   T(one_call_takes_all_kinds_of_text),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
