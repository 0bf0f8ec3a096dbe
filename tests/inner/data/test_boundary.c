/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: where blocks of a text end decides its ids, words are cut, and text
 * in UTF-8 is refused because a block ended within a character. */
#include "tests/inner/scratch.h"
#include "inner/data/boundary.h"
#include "inner/data/sentence.h"
#include "inner/data/tokenizer/unicode.h"

enum { TEXT_BYTES = 5000 };
static struct tokenizer_scratch *x;

/* ---- tokenizers: splits and normalisers as published files have them; few tokens ---- */

#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":1,\"content\":\"<M>\",\"special\":true,\"lstrip\":true,\"rstrip\":" \
    "true},{\"id\":2,\"content\":\"New York\",\"special\":false}]"
#define SPLIT(regex)                                                                               \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_"    \
    "prefix_space\":"                                                                              \
    "false,\"use_regex\":false}]}"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "         \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define META(scheme)                                                                               \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme "\"}"
#define BPE "\"type\":\"BPE\",\"merges\":[\"t h\",\"th e\"]"
#define PIECES                                                                                     \
    "\"vocab\":{\"<unk>\":0,\"<M>\":1,\"New York\":2,\"t\":3,\"h\":4,\"e\":5,\"th\":6,\"the\":7,"  \
    "\"n\":8,\"##e\":9,\"a\":10}"
#define UNIGRAM                                                                                    \
    "\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\xe2\x96\x81\",-2],[\"e\",-3]," \
    "[\"the\",-4],[\"\xe2\x96\x81the\",-3],[\"n\",-3]]"

static const struct kind {
    const char *name, *normalizer, *pre, *model;
    bool never; /* the whole text is one word */
    bool added;
} kinds[] = {
    {"bert", "{\"type\":\"BertNormalizer\",\"lowercase\":true}", "{\"type\":\"BertPreTokenizer\"}",
     "\"type\":\"WordPiece\",\"unk_token\":\"<unk>\"," PIECES, false, true},
    {"gpt2", "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", BPE "," PIECES, false,
     true},
    {"gpt2 prefix", "{\"type\":\"NFC\"}", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
     BPE "," PIECES, false, true},
    {"llama3", "null", SPLIT(LLAMA3), BPE "," PIECES, false, true},
    {"other pattern", "null", SPLIT("\\\\d+|[a-z]+\\\\s?|."), BPE "," PIECES, false, true},
    {"one word", "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}",
     BPE "," PIECES, true, false},
    {"always", "null", META("always"), UNIGRAM, false, false},
    {"first", "null", META("first"), UNIGRAM, false, false},
    {"never", "null", META("never"), UNIGRAM, false, false},
    {"t5", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s{2,}\"},\"content\":\" \"}",
     "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," META(
         "always") "]}",
     UNIGRAM, false, false},
};

static struct tokenizer *made(const struct kind *k)
{
    static char text[4000];
    struct tokenizer *t;
    snprintf(text, sizeof text, "{%s%s\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":{%s}}",
             k->added ? ADDED : "", k->added ? "," : "", k->normalizer, k->pre, k->model);
    if (tokenizer_parse(&t, k->name, text, strlen(text)))
        fail_msg("%s: %s", k->name, err_message());
    return t;
}

/* ---- texts ---- */

static uint32_t drawn;
static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (drawn >> 8) % below;
}

/* What splits differ on: runs of white space, line ends, marks, digits, letters of many alphabets
 * without blanks, contractions, added tokens. */
static const char *const mixed[] = {"the",
                                    "then",
                                    "New York",
                                    "<M>",
                                    " ",
                                    "  ",
                                    "\n",
                                    "\n\n",
                                    " \n ",
                                    "\t",
                                    "\r\n",
                                    "'s",
                                    "'ll",
                                    ".",
                                    "...",
                                    "!?",
                                    "12345",
                                    "7",
                                    "e\xcc\x81t\xc3\xa9",
                                    "\xc3\xa0",
                                    "\xd0\xb4\xd0\xb0",
                                    "\xe4\xb8\xad\xe6\x96\x87",
                                    "\xe3\x80\x82",
                                    "\xf0\x9f\x98\x80",
                                    "\xc2\xa0",
                                    "-",
                                    "(",
                                    ")\n",
                                    "The",
                                    "n"};
static const char *const french[] = {
    "\xc3\xa9t\xc3\xa9", "d\xc3\xa9j\xc3\xa0", "no\xc3\xabl", "\xc3\xa0", "la", "the",
    "l'\303\251cole"};
static const char *const chinese[] = {"\xe4\xb8\xad", "\xe6\x96\x87", "\xe5\xad\x97",
                                      "\xe4\xb8\xad", "\xe6\x96\x87", "\xe5\xad\x97",
                                      "\xe3\x80\x82"};

static size_t text_make(uint8_t *text, const char *const *words, size_t count, const char *between,
                        uint32_t seed)
{
    size_t bytes = 0;
    drawn = seed;
    while (bytes < TEXT_BYTES) {
        const char *w = words[draw((uint32_t)count)];
        bytes += (size_t)sprintf((char *)text + bytes, "%s%s", bytes ? between : "", w);
    }
    return bytes;
}

static size_t text_of(uint8_t *text, int i, uint32_t seed)
{
#define WORDS(list) list, sizeof(list) / sizeof *(list)
    return i == 0   ? text_make(text, WORDS(mixed), "", seed)
           : i == 1 ? text_make(text, WORDS(mixed), " ", seed)
           : i == 2 ? text_make(text, WORDS(french), " ", seed)
                    : text_make(text, WORDS(chinese), "", seed);
}

/* ---- */

static enum err word_add(void *self, const uint8_t *word, size_t bytes)
{
    struct buffer *b = self;
    TRY(buffer_add(b, &bytes, sizeof bytes));
    return buffer_add(b, word, bytes);
}

static void encode(const struct tokenizer *t, const uint8_t *text, size_t bytes,
                   struct buffer *words, struct buffer_ids *ids)
{
    const struct split_sink sink = {word_add, words};
    assert_int_equal(tokenizer_words(t, x, text, bytes, &sink), ERR_OK);
    assert_int_equal(tokenizer_encode(t, x, text, bytes, ids), ERR_OK);
}

/* The text in pieces of about `aim` bytes against the whole text: words and ids. Returns how many
 * pieces there were. */
static size_t cut_and_compare(const struct tokenizer *t, const char *name, const uint8_t *text,
                              size_t bytes, size_t aim)
{
    struct buffer whole = {0}, parts = {0};
    struct buffer_ids whole_ids = {0}, part_ids = {0};
    size_t pieces = 0;
    encode(t, text, bytes, &whole, &whole_ids);
    for (size_t at = 0, end; at < bytes; at = end, pieces++) {
        end = bytes - at;
        if (bytes - at > aim)
            assert_int_equal(boundary_words(t, x, text + at, bytes - at, aim, &end), ERR_OK);
        end += at;
        assert_true(end > at && end <= bytes && (end == bytes || (text[end] & 0xc0) != 0x80));
        encode(t, text + at, end - at, &parts, &part_ids);
    }
    if (whole.count != parts.count ||
        (whole.count && memcmp(whole.data, parts.data, whole.count) != 0))
        fail_msg("%s: other words with pieces of %zu bytes", name, aim);
    size_t id_bytes = whole_ids.count * sizeof *whole_ids.ids;
    if (whole_ids.count != part_ids.count ||
        (id_bytes && memcmp(whole_ids.ids, part_ids.ids, id_bytes) != 0))
        fail_msg("%s: other ids with pieces of %zu bytes", name, aim);
    buffer_free(&whole);
    buffer_free(&parts);
    buffer_ids_free(&whole_ids);
    buffer_ids_free(&part_ids);
    return pieces;
}

static void ids_do_not_depend_on_where_a_text_is_cut(void **state)
{
    (void)state;
    static const size_t aims[] = {1, 64, 257, 1500};
    static uint8_t text[TEXT_BYTES + 100];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *t = made(&kinds[k]);
        for (int i = 0; i < 4; i++) {
            size_t bytes = text_of(text, i, (uint32_t)k);
            for (size_t a = 0; a < sizeof aims / sizeof *aims; a++) {
                if (aims[a] < 64 && kinds[k].never)
                    continue;
                size_t pieces = cut_and_compare(t, kinds[k].name, text, bytes, aims[a]);
                if (kinds[k].never)
                    assert_int_equal(pieces, 1);
                else if (i != 3 && aims[a] >= 64) /* a text with blanks falls into such pieces */
                    assert_true(pieces > bytes / (aims[a] + 300));
            }
        }
        tokenizer_close(t);
    }
}

/* Without a blank in it only the tokenizers that part its letters can cut it. */
static void a_text_without_blanks_is_cut_where_words_end(void **state)
{
    (void)state;
    static uint8_t text[TEXT_BYTES + 100];
    size_t bytes = text_of(text, 3, 1);
    for (size_t k = 0; k < 4; k++) {
        struct tokenizer *t = made(&kinds[k]);
        size_t pieces = cut_and_compare(t, kinds[k].name, text, bytes, 300);
        if (k != 2) /* "gpt2 prefix" puts a blank before each piece */
            assert_true(pieces > bytes / 700);
        tokenizer_close(t);
    }
}

static void a_long_word_is_not_cut(void **state)
{
    (void)state;
    static uint8_t text[TEXT_BYTES];
    size_t at;
    memset(text, 'a', sizeof text);
    memcpy(text + 4000, " b ", 3);
    for (size_t k = 0; k < 4; k++) {
        struct tokenizer *t = made(&kinds[k]);
        assert_int_equal(boundary_words(t, x, text, sizeof text, 100, &at), ERR_OK);
        assert_true(at == sizeof text || (at > 4000 && at < 4004)); /* too long to look over */
        tokenizer_close(t);
    }
}

static void characters_and_sentences(void **state)
{
    (void)state;
    static const uint8_t text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z";
    static const size_t next[] = {0, 1, 3, 3, 6, 6, 6, 10, 10, 10, 10, 11};
    for (size_t i = 0; i < sizeof next / sizeof *next; i++)
        assert_int_equal(boundary_character(text, sizeof text - 1, i), next[i]);
    static const uint8_t none[] = "\x80\x80\x80\x80\x80\x80\x80";
    assert_int_equal(boundary_character(none, 7, 1), 1); /* no UTF-8 */
    static const uint8_t lines[] = "One. Two is long? three\nfour. No end";
    static const size_t ends[] = {0, 4, 4, 4, 4, 24};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        assert_int_equal(boundary_sentence(lines, sizeof lines - 1, i), ends[i]);
    assert_int_equal(boundary_sentence(lines, sizeof lines - 1, 18), 24);
    assert_int_equal(boundary_sentence(lines, sizeof lines - 1, 30), sizeof lines - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_do_not_depend_on_where_a_text_is_cut),
        cmocka_unit_test(a_text_without_blanks_is_cut_where_words_end),
        cmocka_unit_test(a_long_word_is_not_cut),
        cmocka_unit_test(characters_and_sentences),
    };
    if (tokenizer_scratch_open(&x))
        return 1;
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    tokenizer_scratch_close(x);
    return failed;
}
