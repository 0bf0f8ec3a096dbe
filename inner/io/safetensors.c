#include "inner/io/safetensors.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { ALIGN = 8, LENGTH_BYTES = 8, CONFIG_MAX = 1 << 20 };

static const struct {
    const char *name;
    size_t size_bytes;
} dtypes[] = {
#define X(name, size) [SAFETENSORS_##name] = {#name, size},
    SAFETENSORS_DTYPES(X)
#undef X
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

size_t safetensors_dtype_size(enum safetensors_dtype t)
{
    return dtypes[t].size_bytes;
}

/* False on overflow: shapes come from a file. */
static bool size_of(const struct safetensors_tensor *t, uint64_t *size_bytes)
{
    *size_bytes = dtypes[t->dtype].size_bytes;
    for (unsigned i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(*size_bytes, t->shape[i], size_bytes))
            return false;
    return true;
}

/* ---- writer
 * ------------------------------------------------------------------------------------------- */

static int write_order(const void *a, const void *b)
{
    const struct safetensors_tensor *x = *(const struct safetensors_tensor *const *)a;
    const struct safetensors_tensor *y = *(const struct safetensors_tensor *const *)b;
    size_t i = dtypes[x->dtype].size_bytes, j = dtypes[y->dtype].size_bytes;
    return i != j ? (i < j ? 1 : -1) : strcmp(x->name, y->name);
}

static json_t *entry_json(const struct safetensors_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (unsigned i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + t->size_bytes));
}

static json_t *metadata_json(const char *const *metadata)
{
    json_t *o = json_object();
    for (; metadata[0]; metadata += 2)
        json_object_set_new(o, metadata[0], json_string(metadata[1]));
    return o;
}

/* The header's text from Jansson's memory, or NULL (no memory, or a name that is not UTF-8). */
static char *header_json(const struct safetensors_tensor *const *sorted, size_t count,
                         const char *const *metadata)
{
    json_t *root = json_object();
    uint64_t begin = 0;
    bool ok = !metadata || json_object_set_new(root, "__metadata__", metadata_json(metadata)) == 0;
    for (size_t i = 0; ok && i < count; i++) {
        ASSERT(!json_object_get(root, sorted[i]->name));
        ok = json_object_set_new(root, sorted[i]->name, entry_json(sorted[i], begin)) == 0;
        begin += sorted[i]->size_bytes;
    }
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

static enum err write_sorted(const char *path, const struct safetensors_tensor *const *sorted,
                             size_t count, const char *text, struct arena *a)
{
    size_t n = strlen(text), padded = (n + ALIGN - 1) / ALIGN * ALIGN;
    uint8_t *header;
    struct file_part *parts;
    TRY_ALLOC(header = arena_alloc(a, LENGTH_BYTES + padded));
    TRY_ALLOC(parts = arena_array(a, count + 1, sizeof *parts));
    memset(header, ' ', LENGTH_BYTES + padded);
    struct bytes_writer w = bytes_writer(header, LENGTH_BYTES + n);
    bytes_put_u64(&w, padded);
    bytes_put(&w, text, n);
    parts[0] = (struct file_part){header, LENGTH_BYTES + padded};
    for (size_t i = 0; i < count; i++)
        parts[i + 1] = (struct file_part){sorted[i]->data, sorted[i]->size_bytes};
    return file_write(path, parts, count + 1, 0644);
}

static enum err write_all(const char *path, const struct safetensors_tensor *tensors, size_t count,
                          const char *const *metadata, struct arena *a)
{
    const struct safetensors_tensor **sorted;
    TRY_ALLOC(sorted = arena_array(a, count + 1, sizeof *sorted));
    for (size_t i = 0; i < count; i++) {
        uint64_t size_bytes;
        ASSERT(tensors[i].rank <= SAFETENSORS_RANK_MAX);
        ASSERT(size_of(&tensors[i], &size_bytes) && size_bytes == tensors[i].size_bytes);
        sorted[i] = &tensors[i];
    }
    qsort(sorted, count, sizeof *sorted, write_order);
    char *text = header_json(sorted, count, metadata);
    if (!text)
        return err_set(ERR_MEMORY, "%s: the header of %zu tensors cannot be made", path, count);
    enum err e = write_sorted(path, sorted, count, text, a);
    free(text);
    return e;
}

enum err safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t count,
                           const char *const *metadata)
{
    struct arena a = arena_make(0);
    enum err e = write_all(path, tensors, count, metadata, &a);
    arena_free(&a);
    return e;
}

/* ---- reader
 * ------------------------------------------------------------------------------------------- */

struct range { /* of one tensor's data, from the end of the header */
    uint64_t begin, end;
    struct safetensors_tensor tensor;
};
struct reading {
    const char *path;
    struct arena *a;
    struct range *ranges;
    size_t count;
};

static bool get_u64(const json_t *j, uint64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

static bool get_dtype(const json_t *j, enum safetensors_dtype *out)
{
    for (int i = 0; json_is_string(j) && i < DTYPE_COUNT; i++)
        if (!strcmp(json_string_value(j), dtypes[i].name)) {
            *out = (enum safetensors_dtype)i;
            return true;
        }
    return false;
}

static bool get_shape(const json_t *j, struct safetensors_tensor *t)
{
    if (!json_is_array(j) || json_array_size(j) > SAFETENSORS_RANK_MAX)
        return false;
    t->rank = (unsigned)json_array_size(j);
    for (unsigned i = 0; i < t->rank; i++)
        if (!get_u64(json_array_get(j, i), &t->shape[i]))
            return false;
    return true;
}

static enum err entry_read(struct reading *r, const char *name, const json_t *j)
{
    struct range range = {0};
    struct safetensors_tensor *t = &range.tensor;
    const json_t *offsets = json_object_get(j, "data_offsets");
    uint64_t size_bytes;
    if (!json_is_object(j) || json_object_size(j) != 3)
        return err_set(ERR_INPUT,
                       "%s: tensor %.100s: dtype, shape and data_offsets expected, nothing else",
                       r->path, name);
    if (!get_dtype(json_object_get(j, "dtype"), &t->dtype))
        return err_set(
            ERR_INPUT,
            "%s: tensor %.100s: dtype unknown here; F32, BF16, F16, I64, I32, U8, BOOL are read",
            r->path, name);
    if (!get_shape(json_object_get(j, "shape"), t))
        return err_set(ERR_INPUT, "%s: tensor %.100s: shape is not a list of at most %d sizes",
                       r->path, name, SAFETENSORS_RANK_MAX);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_u64(json_array_get(offsets, 0), &range.begin) ||
        !get_u64(json_array_get(offsets, 1), &range.end) || range.begin > range.end)
        return err_set(ERR_INPUT, "%s: tensor %.100s: data_offsets is not [begin, end]", r->path,
                       name);
    if (!size_of(t, &size_bytes) || size_bytes != range.end - range.begin)
        return err_set(ERR_INPUT, "%s: tensor %.100s: its %llu bytes do not fit dtype and shape",
                       r->path, name, (unsigned long long)(range.end - range.begin));
    t->size_bytes = size_bytes;
    TRY_ALLOC(t->name = arena_string(r->a, name, strlen(name)));
    r->ranges[r->count++] = range;
    return ERR_OK;
}

static enum err metadata_check(const struct reading *r, json_t *j)
{
    const char *key;
    json_t *value;
    bool ok = json_is_object(j);
    json_object_foreach(j, key, value) ok = ok && json_is_string(value);
    return ok ? ERR_OK
              : err_set(ERR_INPUT, "%s: __metadata__ is not a mapping of texts to texts", r->path);
}

static enum err entries_read(struct reading *r, json_t *root)
{
    const char *name;
    json_t *j;
    if (json_object_size(root) > SAFETENSORS_TENSORS_MAX)
        return err_set(ERR_INPUT, "%s: more than %u tensors", r->path, SAFETENSORS_TENSORS_MAX);
    TRY_ALLOC(r->ranges = arena_array(r->a, json_object_size(root) + 1, sizeof *r->ranges));
    json_object_foreach(root, name, j)
    {
        if (strcmp(name, "__metadata__"))
            TRY(entry_read(r, name, j));
        else
            TRY(metadata_check(r, j));
    }
    return ERR_OK;
}

static int range_order(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end; /* empty tensors stand in front */
}

static enum err ranges_check(const struct reading *r, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct range *x = &r->ranges[i];
        if (x->begin != at)
            return err_set(ERR_INPUT, "%s: tensor %.100s: its data %s the data before it", r->path,
                           x->tensor.name, x->begin < at ? "overlaps" : "leaves a gap behind");
        at = x->end;
    }
    if (at > data_bytes)
        return err_set(ERR_INPUT,
                       "%s: cut short: %llu bytes of data are missing; copy the file again",
                       r->path, (unsigned long long)(at - data_bytes));
    if (at < data_bytes)
        return err_set(ERR_INPUT, "%s: %llu bytes behind the last tensor", r->path,
                       (unsigned long long)(data_bytes - at));
    return ERR_OK;
}

static enum err header_read(struct reading *r, const char *text, size_t size_bytes)
{
    json_error_t error;
    json_t *root = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return err_set(ERR_INPUT, "%s: header, byte %d: %s", r->path, error.position, error.text);
    enum err e = entries_read(r, root);
    json_decref(root);
    return e;
}

enum err safetensors_parse(struct safetensors *s, struct arena *a, const char *path,
                           const uint8_t *data, size_t size_bytes)
{
    struct reading r = {.path = path, .a = a};
    struct bytes_reader bytes = bytes_reader(data, size_bytes);
    uint64_t n = bytes_get_u64(&bytes);
    *s = (struct safetensors){0};
    if (bytes.bad || n == 0 || n > SAFETENSORS_HEADER_MAX)
        return err_set(ERR_INPUT, "%s: not a safetensors file: no header of 1 to %u bytes", path,
                       SAFETENSORS_HEADER_MAX);
    if (n > size_bytes - LENGTH_BYTES)
        return err_set(ERR_INPUT, "%s: cut short: %llu bytes of the header are missing", path,
                       (unsigned long long)(n - (size_bytes - LENGTH_BYTES)));
    const uint8_t *header = data + LENGTH_BYTES;
    if (*header != '{')
        return err_set(ERR_INPUT, "%s: not a safetensors file: the header does not begin with {",
                       path);
    TRY(header_read(&r, (const char *)header, n));
    if (r.count)
        qsort(r.ranges, r.count, sizeof *r.ranges, range_order);
    TRY(ranges_check(&r, size_bytes - LENGTH_BYTES - n));
    TRY_ALLOC(s->tensors = arena_array(a, r.count + 1, sizeof *s->tensors));
    for (size_t i = 0; i < r.count; i++) {
        s->tensors[i] = r.ranges[i].tensor;
        s->tensors[i].data = header + n + r.ranges[i].begin;
    }
    s->count = r.count;
    return ERR_OK;
}

enum err safetensors_open(struct safetensors *s, struct arena *a, const char *path)
{
    struct file_map map;
    *s = (struct safetensors){0};
    TRY(file_map(&map, path));
    enum err e = safetensors_parse(s, a, path, map.data, map.size_bytes);
    s->map = map;
    if (e)
        safetensors_close(s);
    return e;
}

void safetensors_close(struct safetensors *s)
{
    file_unmap(&s->map);
    *s = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->tensors[i].name, name))
            return &s->tensors[i];
    return NULL;
}

/* ---- config.json
 * ---------------------------------------------------------------------------------------- */
enum err safetensors_config(const char *path, struct safetensors_number *numbers, size_t count,
                            struct arena *a)
{
    const char *slash = strrchr(path, '/');
    char *beside;
    uint8_t *text = NULL;
    size_t size = 0;
    json_error_t error;
    TRY_ALLOC(beside =
                  arena_printf(a, "%.*sconfig.json", slash ? (int)(slash + 1 - path) : 0, path));
    bool there = file_exists(beside);
    if (there)
        TRY(file_read(beside, CONFIG_MAX, a, &text, &size));
    json_t *root = there ? json_loadb((const char *)text, size, 0, &error) : NULL;
    if (there && !json_is_object(root)) {
        json_decref(root);
        return err_set(ERR_INPUT, "%s: not a JSON object; export it again, or take it away",
                       beside);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *in = numbers[i].outer ? json_object_get(root, numbers[i].outer) : root,
                     *number = json_object_get(in, numbers[i].name);
        numbers[i].value = json_is_number(number) ? json_number_value(number) : NAN;
    }
    json_decref(root);
    return ERR_OK;
}
