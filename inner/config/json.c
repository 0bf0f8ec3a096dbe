#include "inner/config/json.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
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

enum err json_read(struct json *out, const char *what, const char *text, size_t size_bytes,
                   struct arena *a)
{
    json_error_t error;
    *out = (struct json){0};
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!root)
        return err_set(ERR_INPUT, "%s: not JSON: line %d, byte %d: %s", what, error.line,
                       error.position, error.text);
    enum err e = convert(out, root, 0, a);
    json_decref(root);
    return e == ERR_INPUT ? err_set(ERR_INPUT, "%s: more than %d levels of lists and maps", what,
                                    JSON_DEPTH_MAX)
                          : e;
}

enum err json_read_file(struct json *out, const char *path, size_t max_bytes, struct arena *a)
{
    uint8_t *text;
    size_t size;
    TRY(file_read(path, max_bytes, a, &text, &size));
    TRY(json_read(out, path, (const char *)text, size, a));
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
