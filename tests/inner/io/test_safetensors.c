/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: an exported model loads nowhere, or a malformed file is read as
 * weights. */
#include "tests/inner/scratch.h"
#include <inttypes.h>
#include "inner/io/safetensors.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

/* Made with the reference writer: safetensors 0.8.0 (Python), save_file({"b": f32[[1,2],[3,4]],
 * "a": u8[5,6,7], "c": i64 scalar 9}, metadata={"format": "pt"}): order by dtype size, then name;
 * header padded with blanks. */
static const char reference_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"c\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":["
    "0,8]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
    "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}}";

static const float b[4] = {1, 2, 3, 4};
static const uint8_t a[3] = {5, 6, 7};
static const int64_t c = 9;

static void writer_matches_the_reference_byte_for_byte(void **state)
{
    (void)state;
    const struct safetensors_tensor tensors[] = {
        {"a", SAFETENSORS_U8, 1, {3}, a, sizeof a},
        {"b", SAFETENSORS_F32, 2, {2, 2}, b, sizeof b},
        {"c", SAFETENSORS_I64, 0, {0}, &c, sizeof c},
    };
    const char *metadata[] = {"format", "pt", NULL};
    uint8_t expected[512], *data;
    size_t n = strlen(reference_header), padded = (n + 7) / 8 * 8, size;
    memset(expected, ' ', sizeof expected);
    memset(expected, 0, 8);
    expected[0] = (uint8_t)padded;
    memcpy(expected + 8, reference_header, n);
    memcpy(expected + 8 + padded, &c, 8);
    memcpy(expected + 16 + padded, b, 16);
    memcpy(expected + 32 + padded, a, 3);
    assert_true(padded < 256);
    assert_int_equal(safetensors_write(scratch("m.safetensors"), tensors, 3, metadata), ERR_OK);
    assert_int_equal(file_read(scratch("m.safetensors"), 4096, &arena, &data, &size), ERR_OK);
    assert_int_equal(size, 8 + padded + 27);
    assert_memory_equal(data, expected, size);
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    const struct safetensors_tensor tensors[] = {
        {"empty", SAFETENSORS_F32, 2, {0, 5}, NULL, 0},
        {"h.0.\"quoted\"\\ \xc3\xa9", SAFETENSORS_BF16, 1, {3}, b, 6},
        {"b", SAFETENSORS_F32, 2, {2, 2}, b, sizeof b},
    };
    struct safetensors s;
    assert_int_equal(safetensors_write(scratch("r.safetensors"), tensors, 3, NULL), ERR_OK);
    assert_int_equal(safetensors_open(&s, &arena, scratch("r.safetensors")), ERR_OK);
    assert_int_equal(s.count, 3);
    for (int i = 0; i < 3; i++) {
        const struct safetensors_tensor *t = safetensors_find(&s, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->rank, tensors[i].rank);
        assert_memory_equal(t->shape, tensors[i].shape, t->rank * sizeof *t->shape);
        assert_int_equal(t->size_bytes, tensors[i].size_bytes);
        if (t->size_bytes)
            assert_memory_equal(t->data, tensors[i].data, t->size_bytes);
    }
    assert_null(safetensors_find(&s, "none"));
    safetensors_close(&s);
    assert_int_equal(safetensors_write(scratch("n.safetensors"), NULL, 0, NULL), ERR_OK);
    assert_int_equal(safetensors_open(&s, &arena, scratch("n.safetensors")), ERR_OK);
    assert_int_equal(s.count, 0);
    safetensors_close(&s);
}

static enum err parse(const char *header, size_t data_bytes)
{
    uint8_t *file = calloc(1, 8 + strlen(header) + data_bytes);
    struct safetensors s;
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(strlen(header) >> 8 * i);
    memcpy(file + 8, header, strlen(header));
    arena_reset(&arena);
    enum err e =
        safetensors_parse(&s, &arena, "x.safetensors", file, 8 + strlen(header) + data_bytes);
    free(file);
    return e;
}

#define T(name, begin, end)                                                                        \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

static void what_the_format_forbids_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header, *says;
        size_t data_bytes;
    } cases[] = {
        {" {" T("a", 0, 4) "}", "does not begin with {", 4},
        {"[]", "does not begin with {", 0},
        {"{" T("a", 0, 4) "}x", "header: not JSON", 4},
        {"{" T("a", 0, 4), "header: not JSON", 4},
        {"{" T("a", 0, 4) "," T("a", 4, 8) "}", "duplicate", 8},
        {"{" T("a", 0, 4) "," T("b", 3, 7) "}", "tensor b: its data overlaps", 7},
        {"{" T("a", 0, 4) "," T("b", 0, 4) "}", "overlaps", 4},
        {"{" T("a", 0, 4) "," T("b", 5, 9) "}", "tensor b: its data leaves a gap", 9},
        {"{" T("a", 1, 5) "}", "leaves a gap", 5},
        {"{" T("a", 0, 4) "}", "2 bytes after the last tensor", 6},
        {"{" T("a", 0, 4) "}", "cut short: 3 bytes of data are missing", 1},
        {"{" T("a", 0, 5) "}", "its 5 bytes do not fit dtype and shape", 5},
        {"{" T("a", 4, 0) "}", "data_offsets is not [begin, end]", 4},
        {"{" T("a", -4, 0) "}", "data_offsets is not", 4},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", "dtype unknown here",
         8},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}}", "shape is not a list", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4.0],\"data_offsets\":[0,4]}}", "shape is not a list",
         4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", "shape is not a list",
         4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
         "at most 8 sizes", 1},
        {"{\"a\":{\"dtype\":\"I64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         "do not fit", 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"offsets\":[0,4]}}", "data_offsets is not", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":1}}", "nothing else",
         4},
        {"{\"a\":5}", "nothing else", 0},
        {"{\"__metadata__\":{\"a\":1}}", "__metadata__ is not", 0},
        {"{\"__metadata__\":\"a\"}", "__metadata__ is not", 0},
        {"{\"\xff\":1}", "header: not JSON", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(cases[i].header, cases[i].data_bytes), ERR_INPUT);
        assert_says("x.safetensors: ");
        assert_says(cases[i].says);
    }
    assert_int_equal(parse("{" T("a", 4, 8) "," T("b", 0, 4) "}   ", 8), ERR_OK);
}

/* Before memory is taken for a tree of it: a million tensors took 1.7 GiB. */
static void a_header_of_too_many_tensors_is_refused(void **state)
{
    (void)state;
    enum { TENSORS = 210000, ENTRY = 80 };
    char *header = malloc(TENSORS * ENTRY + 3), *at = header;
    assert_non_null(header);
    *at++ = '{';
    for (int i = 0; i < TENSORS; i++)
        at += sprintf(at, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                      i ? "," : "", i);
    strcpy(at, "}");
    assert_int_equal(parse(header, 0), ERR_INPUT);
    assert_says("x.safetensors: header: more than 1441792 values");
    free(header);
}

static void short_files_are_refused(void **state)
{
    (void)state;
    struct safetensors s;
    assert_int_equal(safetensors_parse(&s, &arena, "x", (const uint8_t *)"1234567", 7), ERR_INPUT);
    assert_int_equal(safetensors_parse(&s, &arena, "x", NULL, 0), ERR_INPUT);
    assert_int_equal(safetensors_parse(&s, &arena, "x", (const uint8_t *)"\0\0\0\0\0\0\0\0", 8),
                     ERR_INPUT);
    assert_int_equal(
        safetensors_parse(&s, &arena, "x", (const uint8_t *)"\x09\0\0\0\0\0\0\0{}", 10), ERR_INPUT);
    assert_says("cut short: 7 bytes of the header are missing");
    assert_int_equal(safetensors_parse(&s, &arena, "x",
                                       (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
                     ERR_INPUT);
    assert_says("no header of 1 to 100000000 bytes");
    assert_int_equal(safetensors_open(&s, &arena, scratch("none")), ERR_INPUT);
}
#undef T

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(writer_matches_the_reference_byte_for_byte),
        T(what_was_written_is_read),
        T(what_the_format_forbids_is_refused),
        T(a_header_of_too_many_tensors_is_refused),
        T(short_files_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
