/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/config/json.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/textfile.h"
#include "kernels/base/file.h"

static enum err convert(struct json *out, json_t *j, unsigned depth, struct arena *a);

static enum err convert_list(struct json *out, json_t *j, unsigned depth, struct arena *a)
{
    for (; out->count < json_array_size(j); out->count++)
        TRY(convert(&out->items[out->count], json_array_get(j, out->count), depth + 1, a));
    return ERR_OK;
}

static enum err convert_map(struct json *out, json_t *j, unsigned depth, struct arena *a)
{
    const char *key;
    json_t *value;
    json_object_foreach(j, key, value)
    {
        struct json *item = &out->items[out->count++];
        TRY(convert(item, value, depth + 1, a));
        TRY_ALLOC(item->key = arena_string(a, key, strlen(key)));
    }
    return ERR_OK;
}

static enum err convert(struct json *out, json_t *j, unsigned depth, struct arena *a)
{
    static const enum json_kind kinds[] = {
        [JSON_OBJECT] = JSON_MAP,    [JSON_ARRAY] = JSON_LIST,   [JSON_STRING] = JSON_WORDS,
        [JSON_INTEGER] = JSON_WHOLE, [JSON_REAL] = JSON_DECIMAL, [JSON_TRUE] = JSON_FLAG,
        [JSON_FALSE] = JSON_FLAG,    [JSON_NULL] = JSON_NOTHING};
    *out = (struct json){.kind = kinds[json_typeof(j)]};
    if (depth > JSON_DEPTH_MAX)
        return err_set(ERR_INPUT, "more than %d levels", JSON_DEPTH_MAX);
    if (out->kind == JSON_WORDS) {
        out->text_bytes = json_string_length(j);
        TRY_ALLOC(out->text = arena_string(a, json_string_value(j), out->text_bytes));
    }
    out->whole = json_integer_value(j);
    out->number = json_is_boolean(j) ? json_is_true(j) : json_number_value(j);
    size_t count = json_object_size(j) + json_array_size(j);
    if (count)
        TRY_ALLOC(out->items = arena_array(a, count, sizeof *out->items));
    return out->kind == JSON_MAP ? convert_map(out, j, depth, a) : convert_list(out, j, depth, a);
}

/* ---- before parsing ---- */

/* The end of the string, number or word that begins at `at`; one byte of anything else. */
static size_t lexeme_end(const char *text, size_t n, size_t at)
{
    size_t end = at + 1;
    if (text[at] == '"') {
        while (end < n && text[end] != '"')
            end += text[end] == '\\' ? 2 : 1;
        return end < n ? end + 1 : n;
    }
    if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9'))
        while (end < n && text[end] && strchr("0123456789+-.eE", text[end]))
            end++;
    return end;
}

/* Jansson and the tree take about 200 bytes for each value, so the values are counted first. */
static enum err values_check(const char *what, const char *text, size_t n, size_t values_max)
{
    size_t values = 1;
    for (size_t at = 0; at < n; at = lexeme_end(text, n, at))
        values += text[at] == ',' || text[at] == '[' || text[at] == '{';
    return values <= values_max ? ERR_OK
                                : err_set(ERR_INPUT, "%s: more than %zu values", what, values_max);
}

static bool is_too_large(const char *digits, size_t n)
{
    long long value;
    bool negative = *digits == '-', bad = false;
    value = 0;
    for (size_t i = negative; i < n && !bad; i++) {
        int digit = digits[i] - '0';
        if (digit < 0 || digit > 9)
            return false;
        bad = __builtin_mul_overflow(value, 10, &value) ||
              __builtin_add_overflow(value, negative ? -digit : digit, &value);
    }
    return bad;
}

/* The same text with ".0" after every integer that 64 bits do not hold: JSON has no limit, and
 * transformers writes 1000000000000000019884624838656 for "no limit". NULL: no memory. */
static char *widened(const char *text, size_t n, size_t *out_bytes, struct arena *a)
{
    enum { DIGITS_MIN = 19 };
    char *out = arena_alloc(a, n + 2 * (n / DIGITS_MIN + 1));
    *out_bytes = 0;
    for (size_t at = 0, end; out && at < n; at = end) {
        end = lexeme_end(text, n, at);
        memcpy(out + *out_bytes, text + at, end - at);
        *out_bytes += end - at;
        if (text[at] == '"' || end - at < DIGITS_MIN || !is_too_large(text + at, end - at))
            continue;
        memcpy(out + *out_bytes, ".0", 2);
        *out_bytes += 2;
    }
    return out;
}

static json_t *parsed(const char *text, size_t n, json_error_t *error, struct arena *a)
{
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };
    json_error_t first;
    size_t bytes;
    json_t *root = json_loadb(text, n, FLAGS, error);
    if (root || json_error_code(error) != json_error_numeric_overflow)
        return root;
    first = *error;
    char *wide = widened(text, n, &bytes, a);
    root = wide ? json_loadb(wide, bytes, FLAGS, error) : NULL;
    *error = root ? *error : first;
    return root;
}

enum err json_read_most(struct json *out, const char *what, const char *text, size_t size_bytes,
                        size_t values_max, struct arena *a)
{
    json_error_t error;
    *out = (struct json){0};
    TRY(values_check(what, text, size_bytes, values_max));
    json_t *root = parsed(text, size_bytes, &error, a);
    if (!root)
        return err_set(ERR_INPUT, "%s: not JSON: line %d, byte %d: %s", what, error.line,
                       error.position, error.text);
    enum err e = convert(out, root, 0, a);
    json_decref(root);
    return e == ERR_INPUT ? err_set(ERR_INPUT, "%s: more than %d levels of lists and maps", what,
                                    JSON_DEPTH_MAX)
                          : e;
}

enum err json_read(struct json *out, const char *what, const char *text, size_t size_bytes,
                   struct arena *a)
{
    return json_read_most(out, what, text, size_bytes, JSON_VALUES_MAX, a);
}

enum err json_read_file(struct json *out, const char *path, size_t max_bytes, struct arena *a)
{
    uint8_t *text;
    size_t size;
    struct textfile t;
    TRY(file_read(path, max_bytes, a, &text, &size));
    TRY(textfile_open(&t, path, text, size, NULL));
    TRY(json_read(out, path, t.text, t.size_bytes, a));
    return out->kind == JSON_MAP ? ERR_OK
                                 : err_set(ERR_INPUT, "%s: not a map of names to values", path);
}

const struct json *json_find(const struct json *j, const char *key)
{
    for (size_t i = 0; j->kind == JSON_MAP && i < j->count; i++)
        if (!strcmp(j->items[i].key, key))
            return &j->items[i];
    return NULL;
}

char *json_quoted(const char *text, struct arena *a)
{
    json_t *j = json_string(text);
    char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL, *out = NULL;
    if (!quoted)
        (void)err_set(ERR_INPUT, "\"%.60s\" is not UTF-8, or there is no memory", text);
    else
        out = arena_string(a, quoted, strlen(quoted));
    free(quoted);
    json_decref(j);
    return out;
}
