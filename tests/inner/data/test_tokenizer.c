/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a published model sees other ids than it was trained with, and
 * nothing says so. Here are exact ids of vocabularies that fit on a page; tokenizer_oracle.py
 * compares real ones. */
#include "tests/inner/scratch.h"
#include "inner/data/tokenizer/learn.h"
#include "inner/data/tokenizer/tokenizer_own.h"
#include "kernels/base/rng.h"

static struct tokenizer *t;
static struct tokenizer_scratch *x;

static int reset(void **state)
{
    (void)state;
    err_clear();
    t = NULL;
    return tokenizer_scratch_open(&x) ? -1 : 0;
}

static int drop(void **state)
{
    (void)state;
    tokenizer_close(t);
    tokenizer_scratch_close(x);
    return 0;
}

static void take(const char *json)
{
    tokenizer_close(t);
    if (tokenizer_parse(&t, "t.json", json, strlen(json)))
        fail_msg("%s", err_message());
}

static void refused(const char *json, enum err e, const char *words)
{
    struct tokenizer *none;
    assert_int_equal(tokenizer_parse(&none, "t.json", json, strlen(json)), e);
    assert_null(none);
    assert_says(words);
}

static void ids_of(const void *text, size_t bytes, const char *wanted)
{
    struct buffer_ids ids = {0};
    char got[4096] = "";
    size_t used = 0;
    if (tokenizer_encode(t, x, text, bytes, &ids))
        fail_msg("%s", err_message());
    for (size_t i = 0; i < ids.count; i++)
        used +=
            (size_t)snprintf(got + used, sizeof got - used, "%s%d", i ? " " : "", (int)ids.ids[i]);
    assert_string_equal(got, wanted);
    buffer_ids_free(&ids);
}

#define assert_ids(text, wanted) ids_of(text, sizeof(text) - 1, wanted)

static void assert_decodes(const char *wanted, bool skip, const int32_t *ids, size_t count)
{
    struct buffer text = {0};
    assert_int_equal(tokenizer_decode(t, ids, count, skip, &text), ERR_OK);
    assert_int_equal(buffer_add(&text, "", 1), ERR_OK);
    assert_string_equal((char *)text.data, wanted);
    buffer_free(&text);
}

static const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

/* ---- WordPiece ---- */

#define BERT                                                                                       \
    "{\"added_tokens\":[{\"id\":1,\"content\":\"[MASK]\",\"special\":true,\"normalized\":false},"  \
    "{\"id\":12,\"content\":\"New York\",\"single_word\":true,\"special\":false}],"                \
    "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":%s},"                               \
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"                                           \
    "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"max_input_chars_per_word\":10,"   \
    "\"vocab\":{\"[UNK]\":0,\"[MASK]\":1,\"un\":2,\"##aff\":3,\"##able\":4,\"un##\":5,\"a\":6,"    \
    "\"!\":7,\"\xe6\x97\xa5\":8,\"na\":9,\"##ive\":10,\"##a\":11}}}"

static const char *bert(bool lower)
{
    static char text[2000];
    snprintf(text, sizeof text, BERT, lower ? "true" : "false");
    return text;
}

static void the_longest_piece_first(void **state)
{
    (void)state;
    take(bert(true));
    assert_int_equal(tokenizer_kind(t), TOKENIZER_WORDPIECE);
    assert_int_equal(tokenizer_size(t), 13);
    assert_ids("unaffable", "2 3 4");
    assert_ids("Unaffable! UNA", "2 3 4 7 2 11");
    assert_ids("una unb a!a", "2 11 0 6 7 6"); /* a word without a match is one unknown */
    assert_ids("", "");
    assert_ids(" \t\r\n", "");
    assert_ids("aaaaaaaaaa", "6 11 11 11 11 11 11 11 11 11");
    assert_ids("aaaaaaaaaaa", "0"); /* more characters than the file allows */
}

static void text_is_cleaned_as_bert_cleans_it(void **state)
{
    (void)state;
    take(bert(true));
    assert_ids("na\xc3\xafve", "9 10");  /* ï */
    assert_ids("nai\xcc\x88ve", "9 10"); /* i and its mark */
    assert_ids("a\xe6\x97\xa5"
               "a",
               "6 8 6");                         /* an ideograph is a word */
    assert_ids("u\x01n\0a\xef\xbf\xbd", "2 11"); /* controls, zero, U+FFFD are dropped */
    assert_ids("a\xe2\x80\x83"
               "a\xc2\xa0"
               "a",
               "6 6 6");               /* blanks of Unicode */
    assert_ids("u\xe2\x80\x8bn", "2"); /* category Cf */
    take(bert(false));
    assert_ids("na\xc3\xafve UNA", "0 0"); /* accents and capitals stay */
}

static void added_tokens_come_first(void **state)
{
    (void)state;
    int32_t id;
    take(bert(true));
    assert_ids("a[MASK]a [mask]", "6 1 6 0 0 0");
    assert_ids("new york a", "12 6"); /* its text is normalised */
    assert_ids("anew york", "0 0");   /* has to stand alone */
    assert_int_equal(tokenizer_special(t, TOKENIZER_MASK), 1);
    assert_int_equal(tokenizer_special(t, TOKENIZER_UNK), 0);
    assert_int_equal(tokenizer_need(t, TOKENIZER_MASK, &id), ERR_OK);
    assert_int_equal(tokenizer_need(t, TOKENIZER_CLS, &id), ERR_INPUT);
    assert_says("t.json: the vocabulary has no [CLS] token");
    assert_true(tokenizer_is_special(t, 1) && !tokenizer_is_special(t, 12));
    assert_true(tokenizer_continues(t, 3) && !tokenizer_continues(t, 2));
    assert_string_equal(tokenizer_token(t, 3), "##aff");
    assert_null(tokenizer_token(t, 13));
    assert_null(tokenizer_token(t, -1));
    assert_decodes("[MASK] unaffable! a", false, (const int32_t[]){1, 2, 3, 4, 7, 6}, 6);
    assert_decodes("unaffable! a", true, (const int32_t[]){1, 2, 3, 4, 7, 6, 99}, 7);
}

static void a_vocabulary_file_alone_is_enough(void **state)
{
    (void)state;
    const char *path =
        scratch_write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhi\n##gh\r\nhi\n", 35);
    struct tokenizer *none;
    assert_int_equal(tokenizer_open(&t, path), ERR_OK);
    assert_ids("HIGH hi", "6 5 6"); /* the later of two lines counts */
    assert_ids("[CLS]hi[SEP]", "2 6 3");
    struct digest d = tokenizer_digest(t),
                  same = digest_of("[PAD]\n[UNK]\n[CLS]\n[SEP]\nhi\n##gh\r\nhi\n", 35);
    assert_memory_equal(&d, &same, sizeof d);
    tokenizer_close(t);
    scratch_text("tokenizer_config.json",
                 "{\"do_lower_case\": false, \"cls_token\": {\"content\": \"hi\"}}");
    assert_int_equal(tokenizer_open(&t, scratch_root), ERR_OK); /* the directory does too */
    assert_ids("HI hi", "1 6");
    assert_int_equal(tokenizer_special(t, TOKENIZER_CLS), 6);
    assert_int_equal(file_remove(scratch("tokenizer_config.json")), ERR_OK);
    tokenizer_close(t);
    scratch_write("vocab.txt", "[UNK]\nHi\n", 9); /* a capital: the text keeps its own */
    assert_int_equal(tokenizer_open(&t, scratch_root), ERR_OK);
    assert_ids("Hi hi", "1 0");
    scratch_write("vocab.txt", "hi\n", 3);
    assert_int_equal(tokenizer_open(&none, path), ERR_INPUT);
    assert_says("unk_token");
    scratch_write("vocab.txt", "[UNK]\n\xff\n", 8);
    assert_int_equal(tokenizer_open(&none, path), ERR_INPUT);
    assert_says("byte 7 is not UTF-8");
    assert_int_equal(tokenizer_open(&none, scratch("nothing")), ERR_INPUT);
}

/* ---- byte-level BPE ---- */

#define GPT(pre, model)                                                                            \
    "{\"added_tokens\":[{\"id\":10,\"content\":\"<|endoftext|>\",\"special\":true},"               \
    "{\"id\":11,\"content\":\"<M>\",\"special\":true,\"lstrip\":true,\"rstrip\":true}],"           \
    "\"normalizer\":null,\"pre_tokenizer\":" pre ",\"model\":{\"type\":\"BPE\"," model             \
    "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"ab\":4,\"bc\":5,\"abc\":6,\"\xc3\x83\":"  \
    "7,"                                                                                           \
    "\"\xc4\xa0"                                                                                   \
    "abab\":8,\"\xc4\xa0"                                                                          \
    "ab\":9},"                                                                                     \
    "\"merges\":[\"b c\",[\"a\",\"b\"],\"a bc\",\"\xc4\xa0 ab\"]}}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"

static void the_lowest_rank_first(void **state)
{
    (void)state;
    take(GPT(BYTES, ""));
    assert_ids("abc", "6"); /* b c before a b */
    assert_ids("ab", "4");
    assert_ids("abab", "4 4");
    assert_ids("bcbc", "5 5");
    assert_ids("aab abcb", "0 4 3 6 1");
    assert_ids("a\xc3\xa3", "0 7"); /* bytes without a token are left out: 0xa3 */
    assert_ids("a<|endoftext|>b", "0 10 1");
    assert_ids("a  <M>  b", "0 11 1"); /* takes the blanks along */
    assert_decodes("abc a", false, (const int32_t[]){6, 3, 0}, 3);
    assert_decodes("a\xc3<|endoftext|>", false, (const int32_t[]){0, 7, 10}, 3);
    assert_int_equal(tokenizer_special(t, TOKENIZER_EOS), 10);
    take(GPT("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", ""));
    assert_ids("ab ab", "9 9"); /* a pair that a merge makes is a candidate, before it too */
    take(GPT(BYTES, "\"ignore_merges\":true,"));
    assert_ids("abc abab", "6 8"); /* a whole word that no merges lead to */
}

/* vocab.json and merges.txt are the tokenizer.json that tokenizer_text has, by its digest, too. */
static void two_files_are_one_tokenizer(void **state)
{
    (void)state;
    static const char vocab[] =
        "{\"a\":0,\"b\":1,\"c\":2,\"\xc4\xa0\":3,\"ab\":4,\"bc\":5,\"abc\":6,"
        "\"<|endoftext|>\":7,\"\\\"\":8,\"\\\"\\\"\":9}";
    const char *path = scratch_text("vocab.json", vocab);
    scratch_text("merges.txt", "#version: 0.2\nb c\r\na b\na bc\n\" \"\n\n");
    assert_int_equal(tokenizer_open(&t, path), ERR_OK);
    assert_int_equal(tokenizer_kind(t), TOKENIZER_BPE);
    assert_ids("abc ab<|endoftext|>\"\"", "6 3 4 7 9");
    assert_int_equal(tokenizer_special(t, TOKENIZER_EOS), 7);
    char *text = strdup(tokenizer_text(t));
    struct digest d = tokenizer_digest(t), same = digest_of(text, strlen(text));
    assert_memory_equal(&d, &same, sizeof d);
    take(text);
    free(text);
    assert_ids("abc ab<|endoftext|>\"\"", "6 3 4 7 9");
    assert_null(tokenizer_text(t));
    tokenizer_close(t);
    if (file_exists(scratch("vocab.txt")))
        assert_int_equal(file_remove(scratch("vocab.txt")), ERR_OK);
    scratch_text("tokenizer_config.json", "{\"add_prefix_space\": true}");
    assert_int_equal(tokenizer_open(&t, scratch_root), ERR_OK); /* the directory does too */
    assert_ids("ab", "3 4");
    assert_int_equal(file_remove(scratch("tokenizer_config.json")), ERR_OK);
    struct tokenizer *none;
    scratch_text("merges.txt", "#version: 0.2\nb c\na  b\n");
    assert_int_equal(tokenizer_open(&none, path), ERR_INPUT);
    assert_says("merges.txt: line 3: no pair of tokens");
    assert_int_equal(file_remove(scratch("merges.txt")), ERR_OK);
    assert_int_equal(tokenizer_open(&none, path), ERR_INPUT);
    assert_says("merges.txt: cannot open");
    assert_int_equal(file_remove(path), ERR_OK);
}

static void a_long_word_is_not_quadratic(void **state)
{
    (void)state;
    enum { BYTES_COUNT = 1 << 20 };
    struct buffer_ids ids = {0};
    char *text = malloc(BYTES_COUNT);
    assert_non_null(text);
    for (int i = 0; i < BYTES_COUNT; i++)
        text[i] = "abc"[i % 3];
    take(GPT(BYTES, ""));
    assert_int_equal(tokenizer_encode(t, x, text, BYTES_COUNT, &ids), ERR_OK);
    assert_int_equal(ids.count, BYTES_COUNT / 3 + 1); /* 349,525 times abc, and an a */
    assert_int_equal(ids.ids[BYTES_COUNT / 3 - 1], 6);
    assert_int_equal(ids.ids[BYTES_COUNT / 3], 0);
    buffer_ids_free(&ids);
    free(text);
}

/* More words than the cache holds: what it forgets is recomputed, the same. */
static void a_full_cache_changes_nothing(void **state)
{
    (void)state;
    struct buffer_ids first = {0}, again = {0};
    struct buffer text = {0};
    char word[32];
    take(GPT(BYTES, ""));
    for (unsigned i = 0; i < 300000; i++) {
        size_t n = 0;
        for (unsigned rest = i + 1; rest; rest /= 3)
            word[n++] = "abc"[rest % 3];
        word[n++] = ' ';
        assert_int_equal(buffer_add(&text, word, n), ERR_OK);
    }
    assert_int_equal(tokenizer_encode(t, x, text.data, text.count, &first), ERR_OK);
    assert_int_equal(tokenizer_encode(t, x, text.data, text.count, &again), ERR_OK);
    assert_int_equal(first.count, again.count);
    assert_memory_equal(first.ids, again.ids, first.count * sizeof *first.ids);
    struct buffer back = {0};
    assert_int_equal(tokenizer_decode(t, first.ids, first.count, false, &back), ERR_OK);
    assert_int_equal(back.count, text.count);
    assert_memory_equal(back.data, text.data, text.count);
    buffer_free(&back);
    buffer_free(&text);
    buffer_ids_free(&first);
    buffer_ids_free(&again);
}

/* ---- the fast paths of known patterns ---- */

static enum err piece_keep(void *self, const uint8_t *word, size_t bytes)
{
    struct buffer *b = self;
    TRY(buffer_add(b, word, bytes));
    return buffer_add(b, "|", 1);
}

static void pieces(struct split *l, enum split_known known, const uint8_t *text, size_t n,
                   struct buffer *out)
{
    struct split_scratch scratch = {.match = x->match};
    struct split_sink sink = {piece_keep, out};
    l->ops[0].known = known;
    out->count = 0;
    assert_int_equal(split_apply(l, &scratch, text, n, true, &sink), ERR_OK);
    assert_int_equal(buffer_add(out, "", 1), ERR_OK);
    split_scratch_free(&scratch);
}

static void fast_paths_split_like_the_pattern(void **state)
{
    (void)state;
    static const char *const parts[] = {"a",        "B",
                                        "'s",       "'S",
                                        "'ll",      "'RE",
                                        "'",        "1",
                                        "23",       "4567",
                                        " ",        "  ",
                                        "\n",       "\r\n",
                                        "\t",       ".",
                                        "(",        "_",
                                        "'d",       "\xc3\xa9",
                                        "\xc2\xa0", "\xe3\x80\x80",
                                        "\xd9\xa1", "\xe2\x80\x94",
                                        "\xc5\xbf", "'\xc5\xbf",
                                        "\x1c",     "\x0b"};
    const char *const patterns[] = {split_gpt2_pattern, split_llama3_pattern};
    struct buffer text = {0}, fast = {0}, slow = {0};
    for (int which = 0; which < 2; which++) {
        struct split l = {.count = 1};
        assert_int_equal(split_pattern_open(&l.ops[0], patterns[which], strlen(patterns[which])),
                         ERR_OK);
        enum split_known known = l.ops[0].known;
        assert_int_equal(known, which ? SPLIT_LLAMA3 : SPLIT_GPT2);
        for (uint64_t round = 0; round < 20000; round++) {
            text.count = 0;
            for (uint64_t i = 0, n = 1 + rng_below(round, RNG_TEST, 0, 9); i < n; i++) {
                const char *part =
                    parts[rng_below(round, RNG_TEST, 1 + i, sizeof parts / sizeof *parts)];
                assert_int_equal(buffer_add(&text, part, strlen(part)), ERR_OK);
            }
            pieces(&l, known, text.data, text.count, &fast);
            pieces(&l, SPLIT_UNKNOWN, text.data, text.count, &slow);
            assert_string_equal((char *)fast.data, (char *)slow.data);
        }
        split_close(&l);
    }
    buffer_free(&text);
    buffer_free(&fast);
    buffer_free(&slow);
}

/* ---- Unigram ---- */

#define ALBERT(normal, pre)                                                                        \
    "{\"normalizer\":" normal ",\"pre_tokenizer\":" pre                                            \
    ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\xe2\x96\x81\",-2]" \
    ","                                                                                            \
    "[\"a\",-3],[\"b\",-3],[\"ab\",-5],[\"\xe2\x96\x81"                                            \
    "a\",-4.5],[\"abb\",-8.5],[\"\\\"\",-4]]}}"
#define META                                                                                       \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}"

static void the_best_path_wins(void **state)
{
    (void)state;
    take(ALBERT("null", META));
    assert_ids("a", "5");    /* -4.5 against -2 - 3 */
    assert_ids("ab", "1 4"); /* -2 - 5 = -7 against -4.5 - 3 = -7.5 */
    assert_ids("ab a", "1 4 5");
    assert_ids("abb", "1 4 3"); /* -10 against -10.5 */
    assert_ids("xya", "1 0 2"); /* unknown neighbours are one */
    assert_ids("x a", "1 0 5");
    assert_ids("  a", "1 5"); /* a mark before it is there already */
    assert_decodes("ab a", false, (const int32_t[]){1, 4, 5}, 3);
    take(ALBERT("null",
                "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"}," META
                "]}"));
    assert_ids("  a\n\tab", "5 1 4");
    take(ALBERT("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{"
                "\"String\":\"``\"},"
                "\"content\":\"\\\"\"},{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},{\"type\":"
                "\"Lowercase\"},"
                "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]}",
                META));
    assert_ids("``A\xcc\x81", "1 7 2");
    assert_ids("\xc3\x80"
               "B    \xe2\x93\x90",
               "1 4 5"); /* À, circled a */
}

/* A double array with the keys "x" -> "ab" and "y" -> "". Units: offset << 10, leaf flag 1 << 8,
 * label; a value has bit 31. */
static void a_charsmap_replaces_the_shortest_key(void **state)
{
    (void)state;
    uint8_t table[4 + 4 * 256 + 4] = {0, 4, 0, 0};
    struct normal_op op;
    struct buffer out = {0};
    const struct {
        unsigned at;
        uint32_t unit;
    } units[] = {{0, 0},
                 {'x', 2u << 10 | 1u << 8 | 'x'},
                 {'x' ^ 2, 1u << 31},
                 {'y', 4u << 10 | 1u << 8 | 'y'},
                 {'y' ^ 4, 1u << 31 | 3}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        for (unsigned byte = 0; byte < 4; byte++)
            table[4 + 4 * units[i].at + byte] = (uint8_t)(units[i].unit >> 8 * byte);
    memcpy(table + 4 + 4 * 256, "ab\0", 4);
    assert_int_equal(normal_charsmap_open(&op, table, sizeof table), ERR_OK);
    assert_int_equal(normal_charsmap_apply(&op, (const uint8_t *)"axbyc", 5, &out), ERR_OK);
    assert_int_equal(buffer_add(&out, "", 1), ERR_OK);
    assert_string_equal((char *)out.data, "aabbc");
    out.count = 0; /* a cluster of less than six bytes whose first character is a key is replaced as
                      a whole */
    assert_int_equal(normal_charsmap_apply(&op, (const uint8_t *)"x\xcc\x81z", 4, &out), ERR_OK);
    assert_int_equal(buffer_add(&out, "", 1), ERR_OK);
    assert_string_equal((char *)out.data, "abz");
    buffer_free(&out);
    assert_int_equal(normal_charsmap_open(&op, table, 7), ERR_INPUT);
    memcpy(table + 4 + 4 * 256, "a\xff\0", 4); /* bytes that are no text would never be read on */
    assert_int_equal(normal_charsmap_open(&op, table, sizeof table), ERR_INPUT);
    assert_says("byte 2 of its strings is not UTF-8");
    table[1] = 16; /* longer than the file */
    assert_int_equal(normal_charsmap_open(&op, table, sizeof table), ERR_INPUT);
}

/* ---- BPE of characters ---- */

#define LLAMA(normal, pre, model)                                                                  \
    "{\"normalizer\":" normal ",\"pre_tokenizer\":" pre ",\"decoder\":" PARTS                      \
    ",\"model\":{\"type\":\"BPE\"," model "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"        \
    "\"<0xC3>\":1,\"<0xA9>\":2,\"<0x0A>\":3,\"\xe2\x96\x81\":4,\"a\":5,\"b\":6,\"ab\":7,"          \
    "\"\xe2\x96\x81"                                                                               \
    "ab\":8,\"\xc3\xa8\":9,\"1\":10},\"merges\":[[\"a\",\"b\"],[\"\xe2\x96\x81\",\"ab\"]]}}"
#define PARTS                                                                                      \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"          \
    "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"        \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define MARKED                                                                                     \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]}"

/* As Llama 2 has it; ids of tokenizers 0.23.3. */
static void characters_fall_back_to_their_bytes(void **state)
{
    (void)state;
    take(LLAMA(MARKED, "null", "\"byte_fallback\":true,\"fuse_unk\":true,"));
    assert_int_equal(tokenizer_kind(t), TOKENIZER_BPE);
    assert_ids("ab ab", "8 8");
    assert_ids("a\xc3\xa9\xc3\xa8\nb", "4 5 1 2 9 3 6"); /* e acute has no token, e grave has one */
    assert_ids("a\xc3\xaa", "4 5 0");                    /* not all of its bytes have one */
    assert_ids("xya", "4 0 5");                          /* unknown neighbours are one */
    assert_ids("x\xc3\xa9y\xc3\xa9"
               "a",
               "4 1 2 1 2 0 5"); /* bytes do not end the wait of an unknown one */
    assert_decodes("ab ab", false, (const int32_t[]){8, 8}, 2);
    assert_decodes("a\xc3\xa9\nb", false, (const int32_t[]){4, 5, 1, 2, 3, 6}, 6);
    assert_decodes("\xef\xbf\xbd"
                   "a",
                   false, (const int32_t[]){1, 5}, 2); /* no character */
    assert_string_equal(tokenizer_word_start(t), "\xe2\x96\x81");
    assert_true(tokenizer_continues(t, 7) && !tokenizer_continues(t, 8));
    take(LLAMA(MARKED, "null", "\"byte_fallback\":true,\"fuse_unk\":false,"));
    assert_ids("xya", "4 0 0 5");
    take(LLAMA(MARKED, "null", "\"byte_fallback\":false,\"fuse_unk\":false,"));
    assert_ids("a\xc3\xa9", "4 5 0");
    take(LLAMA("null",
               "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":"
               "\"first\",\"split\":false}",
               "\"byte_fallback\":true,")); /* as Mistral has it */
    assert_ids("ab ab\n", "8 8 3");
}

static void words_are(const char *text, const char *pieces)
{
    struct buffer out = {0};
    assert_int_equal(
        tokenizer_words(t, x, text, strlen(text), &(struct split_sink){piece_keep, &out}), ERR_OK);
    assert_int_equal(buffer_add(&out, "", 1), ERR_OK);
    assert_string_equal((char *)out.data, pieces);
    buffer_free(&out);
}

/* What the behaviours of a Split make of "a1 b11"; pieces of tokenizers 0.23.3. */
static void a_match_may_join_its_neighbours(void **state)
{
    (void)state;
    static const struct {
        const char *behaviour, *invert, *pieces;
    } cases[] = {{"Isolated", "false", "a|1|b|1|1|"},
                 {"Removed", "false", "a|b|"},
                 {"Removed", "true", "1|1|1|"},
                 {"MergedWithPrevious", "false", "a1|b1|1|"},
                 {"MergedWithNext", "false", "a|1b|1|1|"},
                 {"Contiguous", "false", "a|1|b|11|"},
                 {"MergedWithPrevious", "true", "a|1b|1|1|"},
                 {"MergedWithNext", "true", "a1|b1|1|"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2000];
        snprintf(text, sizeof text,
                 LLAMA("null",
                       "{\"type\":\"Split\",\"pattern\":{\"String\":\"1\"},\"behavior\":\"%s\","
                       "\"invert\":%s}",
                       ""),
                 cases[i].behaviour, cases[i].invert);
        take(text);
        words_are("a1b11", cases[i].pieces);
    }
}

/* Numbers of any kind, one by one (SmolLM) or in runs; pieces of tokenizers 0.23.3. */
static void digits_stand_alone(void **state)
{
    (void)state;
    take(LLAMA("null", "{\"type\":\"Digits\",\"individual_digits\":true}", ""));
    words_are("a12\xd9\xa3\xc2\xbd b", "a|1|2|\xd9\xa3|\xc2\xbd| b|");
    take(LLAMA("null", "{\"type\":\"Digits\",\"individual_digits\":false}", ""));
    words_are("a12\xd9\xa3\xc2\xbd b", "a|12\xd9\xa3\xc2\xbd| b|");
}

/* Unigram's unknown characters, too; ids of tokenizers 0.23.3. */
static void unknown_pieces_fall_back_to_their_bytes(void **state)
{
    (void)state;
    take(
        "{\"pre_tokenizer\":" META ",\"decoder\":" PARTS
        ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"u\",0],"
        "[\"a\",-1],[\"\xe2\x96\x81\",-2],[\"<0xC3>\",-9],[\"<0xA9>\",-9],[\"<0x62>\",-9]]}}");
    assert_ids("a\xc3\xa9"
               "ba",
               "2 1 3 4 5 1"); /* unknown neighbours are one, and all of its bytes have tokens */
    assert_ids("\xc3\xa9z", "2 0");
    assert_decodes("a\xc3\xa9", false, (const int32_t[]){2, 1, 3, 4}, 4);
}

/* A normaliser may leave nothing: "Strip" of blanks, and a replacement that is no text. */
static void normalisers_at_the_ends(void **state)
{
    (void)state;
    take(LLAMA("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\",\"strip_left\":true,"
               "\"strip_right\":true},{\"type\":\"Prepend\",\"prepend\":\"b\"}]}",
               "null", ""));
    assert_ids(" \xe3\x80\x80 a1 \n", "6 5 10");
    assert_ids("  ", "");
    take(LLAMA("{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true}", "null",
               "\"byte_fallback\":true,"));
    assert_ids("\na\n", "3 5");
}

/* ---- what is refused ---- */

static void other_kinds_are_refused_by_name(void **state)
{
    (void)state;
    refused("{}", ERR_INPUT, "model.type is missing");
    refused("{\"model\":{\"type\":\"WordLevel\"}}", ERR_UNSUPPORTED,
            "\"WordLevel\" is not supported");
    refused(GPT(BYTES, "\"byte_fallback\":true,"), ERR_UNSUPPORTED,
            "BPE with ByteLevel and \"byte_fallback\"");
    refused(GPT(BYTES, "\"dropout\":0.1,"), ERR_UNSUPPORTED, "BPE with \"dropout\"");
    refused("{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}}}",
            ERR_UNSUPPORTED, "WordPiece without pre_tokenizer");
    refused(GPT("{\"type\":\"Whitespace\"}", ""), ERR_UNSUPPORTED,
            "pre_tokenizer of type \"Whitespace\"");
    refused(GPT("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}", ""),
            ERR_INPUT, "no regular expression");
    refused(GPT("{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Merged\"}", ""),
            ERR_UNSUPPORTED, "behavior \"Merged\"");
    refused(ALBERT("{\"type\":\"Nmt\"}", META), ERR_UNSUPPORTED, "normalizer of type \"Nmt\"");
    refused(ALBERT("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", META), ERR_INPUT,
            "precompiled_charsmap");
    refused(ALBERT("null", "{\"type\":\"ByteLevel\"}"), ERR_UNSUPPORTED, "ByteLevel");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", ERR_INPUT,
            "merge 0");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", ERR_INPUT,
            "no id from 0");
    refused("{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"a\":0}}}",
            ERR_INPUT, "unk_token \"[UNK]\"");
    refused("{\"model\":{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",0]]}}", ERR_INPUT,
            "unk_id");
    refused("not json", ERR_INPUT, "not JSON");
}

/* As GPT-2, BERT, DistilBERT and T5 were published: the model names no type. */
static void a_model_without_a_type_is_known_by_its_fields(void **state)
{
    (void)state;
    take("{\"pre_tokenizer\":" BYTES ",\"model\":{\"dropout\":null,\"unk_token\":null,"
         "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
         "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}");
    assert_int_equal(tokenizer_kind(t), TOKENIZER_BPE);
    assert_ids("aba", "2 0");
    take("{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
         "\"BertPreTokenizer\"},\"model\":{\"unk_token\":\"u\",\"continuing_subword_prefix\":"
         "\"##\",\"max_input_chars_per_word\":100,\"vocab\":{\"u\":0,\"a\":1,\"##b\":2}}}");
    assert_int_equal(tokenizer_kind(t), TOKENIZER_WORDPIECE);
    assert_ids("ab c", "1 2 0");
    take("{\"pre_tokenizer\":" META ",\"model\":{\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],"
         "[\"\xe2\x96\x81\",-2]]}}");
    assert_int_equal(tokenizer_kind(t), TOKENIZER_UNIGRAM);
    assert_ids("a", "2 1");
    refused("{\"model\":{\"vocab\":{\"a\":0}}}", ERR_INPUT, "model.type is missing");
}

#define ADDED(vocab, added)                                                                        \
    "{\"added_tokens\":[" added "],\"pre_tokenizer\":" BYTES                                       \
    ",\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[]}}"
#define TOKEN(id, text) "{\"id\":" #id ",\"content\":\"" text "\",\"special\":true}"

/* The ids are those that tokenizers 0.23.3 gives: new tokens are numbered after the vocabulary. */
static void added_tokens_are_numbered_as_tokenizers_does(void **state)
{
    (void)state;
    take(ADDED("\"a\":0,\"b\":1", TOKEN(5000, "<far>")));
    assert_int_equal(tokenizer_id(t, "<far>"), 2);
    assert_int_equal(tokenizer_size(t), 3);
    assert_ids("a<far>b", "0 2 1");
    take(ADDED("\"a\":0,\"b\":1", TOKEN(9, "<n>") "," TOKEN(1, "b") "," TOKEN(11, "<m>")));
    assert_int_equal(tokenizer_id(t, "<n>"), 2);
    assert_int_equal(tokenizer_id(t, "<m>"), 3);
    assert_int_equal(tokenizer_id(t, "b"), 1);
    take(ADDED("\"a\":0,\"b\":5", TOKEN(5, "b") "," TOKEN(9, "<n>")));
    assert_int_equal(tokenizer_id(t, "<n>"), 2);
    take(ADDED("\"a\":0,\"b\":1", TOKEN(3, "<m>") "," TOKEN(4, "<m>") "," TOKEN(5, "<n>")));
    assert_int_equal(tokenizer_id(t, "<m>"), 2);
    assert_int_equal(tokenizer_id(t, "<n>"), 3);
}

static void two_tokens_share_no_id(void **state)
{
    (void)state;
    refused(ADDED("\"a\":0,\"b\":1,\"#\":2", TOKEN(2, "<clash>")), ERR_INPUT,
            "added token \"<clash>\" has id 2, which is that of \"#\"");
    refused(ADDED("\"a\":0,\"b\":2", TOKEN(4, "<m>")), ERR_INPUT,
            "added token \"<m>\" has id 2, which is that of \"b\"");
    refused(ADDED("\"a\":0,\"b\":1", TOKEN(3, "<m>") "," TOKEN(2, "<n>")), ERR_INPUT,
            "added token \"<n>\" has id 2, which is that of \"<m>\"");
    refused(ADDED("\"a\":0,\"b\":1", TOKEN(0, "b")), ERR_INPUT,
            "added token \"b\" has id 0, which is that of \"a\"");
    refused(ADDED("\"a\":0,\"b\":0", ""), ERR_INPUT, "\"a\" and \"b\" both have id 0");
}

static void equal_merges_are_refused(void **state)
{
    (void)state;
    refused("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"ba\":3},\"merges\":[\"a b\","
            "\"b a\",[\"a\",\"b\"]]}}",
            ERR_INPUT, "merges 0 and 2 are the same pair, \"a\" and \"b\"");
}

/* Before the reader's memory: a token of megabytes took sixty times its size. */
static void long_tokens_are_refused(void **state)
{
    (void)state;
    enum { LONG = 4097 };
    static char token[LONG + 1], text[2 * LONG];
    memset(token, 'a', LONG);
    snprintf(text, sizeof text, "{\"model\":{\"vocab\":{\"%s\":0},\"merges\":[]}}", token);
    refused(text, ERR_INPUT, "has 4097 bytes; at most 4096 are read");
    snprintf(text, sizeof text, ADDED("\"a\":0", "{\"id\":1,\"content\":\"%s\"}"), token);
    refused(text, ERR_INPUT, "has 4097 bytes; at most 4096 are read");
    token[LONG - 1] = 0;
    snprintf(text, sizeof text,
             "{\"pre_tokenizer\":" BYTES ",\"model\":{\"vocab\":{\"%s\":0},"
             "\"merges\":[]}}",
             token);
    take(text);
}

/* transformers writes "no limit" as 10^30, which 64 bits do not hold. */
static void a_huge_number_in_a_file_beside_it_is_json(void **state)
{
    (void)state;
    scratch_write("tokenizer.json",
                  "{\"pre_tokenizer\":" BYTES ",\"model\":{\"vocab\":{\"a\":0},"
                  "\"merges\":[]}}",
                  strlen("{\"pre_tokenizer\":" BYTES ",\"model\":{\"vocab\":{\"a\":0},"
                         "\"merges\":[]}}"));
    scratch_text("tokenizer_config.json",
                 "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"a\"}");
    if (tokenizer_open(&t, scratch("tokenizer.json")))
        fail_msg("%s", err_message());
    assert_int_equal(tokenizer_special(t, TOKENIZER_EOS), 0);
    assert_int_equal(file_remove(scratch("tokenizer_config.json")), ERR_OK);
    assert_int_equal(file_remove(scratch("tokenizer.json")), ERR_OK);
}

static void text_must_be_utf8(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "abc\x80", "abc\xc3",    "abc\xc0\x80", "abc\xed\xa0\x80", "abc\xf4\x90\x80\x80",
        "abc\xff", "abc\xe2\x82"};
    struct buffer_ids ids = {0};
    take(bert(true));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tokenizer_encode(t, x, bad[i], strlen(bad[i]), &ids), ERR_INPUT);
        assert_says("byte 4 of the text is not UTF-8");
    }
    assert_int_equal(ids.count, 0);
}

/* ---- learning ---- */

static void learn_from(const char *text, enum tokenizer_kind kind, size_t size, char *tokens)
{
    struct learn_options o = {.kind = kind, .size = size, .lower = true};
    struct tally words;
    assert_int_equal(tally_open(&words), ERR_OK);
    for (const char *at = text; *at; at += strcspn(at, " ") + (at[strcspn(at, " ")] == ' '))
        assert_int_equal(tally_add(&words, (const uint8_t *)at, strcspn(at, " "), 1), ERR_OK);
    tally_sort(&words);
    assert_int_equal(learn_write(&words, &o, scratch_root), ERR_OK);
    tally_close(&words);
    tokenizer_close(t);
    assert_int_equal(tokenizer_open(&t, scratch("tokenizer.json")), ERR_OK);
    *tokens = 0;
    for (int32_t i = kind == TOKENIZER_BPE ? 257 : 5; i < tokenizer_size(t); i++)
        sprintf(tokens + strlen(tokens), "%s ", tokenizer_token(t, i));
}

/* Alphabet a b c d, ##b ##c ##d. Pairs: a ##b 3, b ##c 2, c ##d 2; the tie goes to the lower ids.
 */
static void ties_go_to_the_lower_id(void **state)
{
    (void)state;
    char tokens[1000];
    learn_from("ab ab ab cd cd bc bc", TOKENIZER_WORDPIECE, 14, tokens);
    assert_string_equal(tokens, "a b c d ##b ##c ##d ab bc ");
    learn_from("ab ab ab cd cd bc bc", TOKENIZER_WORDPIECE, 100, tokens); /* no pair is left */
    assert_string_equal(tokens, "a b c d ##b ##c ##d ab bc cd ");
    learn_from("aaaa aaaa ba", TOKENIZER_WORDPIECE, 11, tokens);
    assert_string_equal(tokens, "a b ##a ##aa aaa aaaa ");
    learn_from("low low lower", TOKENIZER_BPE, 260, tokens);
    assert_string_equal(tokens, "lo low er ");
}

static void too_small_a_vocabulary_is_refused(void **state)
{
    (void)state;
    struct learn_options o = {.kind = TOKENIZER_BPE, .size = 200};
    struct tally words;
    assert_int_equal(tally_open(&words), ERR_OK);
    assert_int_equal(tally_add(&words, (const uint8_t *)"ab", 2, 1), ERR_OK);
    tally_sort(&words);
    assert_int_equal(learn_write(&words, &o, scratch_root), ERR_CONFIG);
    assert_says("200 tokens has no room: 257");
    tally_close(&words);
}

/* Counts of several sets add up to those of one. */
static void sets_of_words_add_up(void **state)
{
    (void)state;
    struct tally parts[3], all;
    char word[32];
    assert_int_equal(tally_open(&all), ERR_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tally_open(&parts[i]), ERR_OK);
    for (unsigned i = 0; i < 30000; i++) {
        size_t n = (size_t)sprintf(word, "w%u", i * i % 7919);
        assert_int_equal(tally_add(&parts[i % 3], (uint8_t *)word, n, i % 5), ERR_OK);
        assert_int_equal(tally_add(&all, (uint8_t *)word, n, i % 5), ERR_OK);
    }
    assert_int_equal(tally_merge(&parts[2], &parts[0]), ERR_OK);
    assert_int_equal(tally_merge(&parts[2], &parts[1]), ERR_OK);
    tally_sort(&parts[2]);
    tally_sort(&all);
    assert_int_equal(parts[2].count, all.count);
    for (size_t i = 0; i < all.count; i++) {
        assert_int_equal(all.entries[i].count, parts[2].entries[i].count);
        assert_memory_equal(all.text.data + all.entries[i].at,
                            parts[2].text.data + parts[2].entries[i].at, all.entries[i].bytes);
    }
    for (int i = 0; i < 3; i++)
        tally_close(&parts[i]);
    tally_close(&all);
}

static void text_may_be_shown_anywhere(void **state)
{
    char out[64];
    static const uint8_t hostile[] =
        "a\x1b[2J\0b\t\n\x7f\xc2\x9b\xff\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f";
    (void)state;
    unicode_clean(out, sizeof out, hostile, sizeof hostile - 1);
    assert_string_equal(out, "a\xef\xbf\xbd[2J\xef\xbf\xbd"
                             "b\t\n\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xf0\x9f\x98\x80"
                             "\xef\xbf\xbd\xef\xbf\xbd");
    unicode_clean(out, 4, (const uint8_t *)"ab\xc3\xa9", 4); /* cut before a code point */
    assert_string_equal(out, "ab");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, reset, drop)
    const struct CMUnitTest tests[] = {
        T(the_longest_piece_first),
        T(text_is_cleaned_as_bert_cleans_it),
        T(added_tokens_come_first),
        T(a_vocabulary_file_alone_is_enough),
        T(the_lowest_rank_first),
        T(two_files_are_one_tokenizer),
        T(a_long_word_is_not_quadratic),
        T(a_full_cache_changes_nothing),
        T(fast_paths_split_like_the_pattern),
        T(the_best_path_wins),
        T(a_charsmap_replaces_the_shortest_key),
        T(characters_fall_back_to_their_bytes),
        T(a_match_may_join_its_neighbours),
        T(digits_stand_alone),
        T(unknown_pieces_fall_back_to_their_bytes),
        T(normalisers_at_the_ends),
        T(other_kinds_are_refused_by_name),
        T(a_model_without_a_type_is_known_by_its_fields),
        T(added_tokens_are_numbered_as_tokenizers_does),
        T(two_tokens_share_no_id),
        T(equal_merges_are_refused),
        T(long_tokens_are_refused),
        T(a_huge_number_in_a_file_beside_it_is_json),
        T(text_must_be_utf8),
        T(ties_go_to_the_lower_id),
        T(too_small_a_vocabulary_is_refused),
        T(sets_of_words_add_up),
        T(text_may_be_shown_anywhere),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
