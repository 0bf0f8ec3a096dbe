#include "inner/io/safetensors.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { ALIGN = 8, LENGTH_BYTES = 8, CONFIG_MAX = 64 << 20, DEPTH_MAX = 8 };

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

/* ---- writer ---- */

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

/* ---- reader ---- */

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

static enum err file_open(struct safetensors *s, struct arena *a, const char *path)
{
    struct safetensors one;
    struct file_map map;
    TRY(file_map(&map, path));
    s->maps[s->map_count++] = map; /* closed with the others */
    TRY(safetensors_parse(&one, a, path, map.data, map.size_bytes));
    struct safetensors_tensor *all = arena_array(a, s->count + one.count + 1, sizeof *all);
    TRY_ALLOC(all);
    if (s->count)
        memcpy(all, s->tensors, s->count * sizeof *all);
    if (one.count)
        memcpy(all + s->count, one.tensors, one.count * sizeof *all);
    s->tensors = all;
    s->count += one.count;
    return ERR_OK;
}

/* ---- several files ---- */

static const char weight_map[] = "weight_map.";

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static int field_by_file(const void *a, const void *b)
{
    const struct safetensors_field *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    return order ? order : strcmp(x->name, y->name);
}

/* The entries of weight_map, sorted by file. */
static enum err index_read(const char *path, struct safetensors_field **entries, size_t *count,
                           struct arena *a)
{
    size_t all, kept = 0;
    TRY(safetensors_fields(path, entries, &all, a));
    for (size_t i = 0; i < all; i++) {
        struct safetensors_field f = (*entries)[i];
        if (strncmp(f.name, weight_map, strlen(weight_map)))
            continue;
        if (f.kind != SAFETENSORS_TEXT || !*f.text || *f.text == '.' || strchr(f.text, '/'))
            return err_set(ERR_INPUT, "%s: %.100s does not name a file beside it", path, f.name);
        f.name += strlen(weight_map);
        (*entries)[kept++] = f;
    }
    if (!kept)
        return err_set(ERR_INPUT, "%s: no weight_map: this is not the index of safetensors files",
                       path);
    qsort(*entries, kept, sizeof **entries, field_by_file);
    *count = kept;
    return ERR_OK;
}

/* The tensors of a file are those that the index says; entries of one file, sorted by name. */
static enum err part_check(const struct safetensors *s, size_t first,
                           const struct safetensors_field *entries, size_t count, const char *path)
{
    for (size_t i = first; i < s->count; i++) {
        const struct safetensors_field key = {.name = s->tensors[i].name, .text = entries->text};
        if (!bsearch(&key, entries, count, sizeof *entries, field_by_file))
            return err_set(ERR_INPUT, "%s: %.100s is in it, but not in the index", path, key.name);
    }
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        for (size_t k = first; k < s->count && !found; k++)
            found = !strcmp(s->tensors[k].name, entries[i].name);
        if (!found)
            return err_set(ERR_INPUT, "%s: no tensor %.100s, which the index says is in it", path,
                           entries[i].name);
    }
    return s->count - first == count
               ? ERR_OK
               : err_set(ERR_INPUT, "%s: a tensor stands in the index twice", path);
}

static enum err parts_open(struct safetensors *s, struct arena *a, const char *path)
{
    struct safetensors_field *entries = NULL;
    const char *slash = strrchr(path, '/');
    size_t count = 0, end;
    TRY(index_read(path, &entries, &count, a));
    TRY_ALLOC(s->maps = arena_array(a, count, sizeof *s->maps));
    for (size_t i = 0; i < count; i = end) {
        size_t first = s->count;
        char *part;
        for (end = i; end < count && !strcmp(entries[end].text, entries[i].text);)
            end++;
        TRY_ALLOC(part = arena_printf(a, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                                      entries[i].text));
        TRY(file_open(s, a, part));
        TRY(part_check(s, first, entries + i, end - i, part));
    }
    return ERR_OK;
}

enum err safetensors_open(struct safetensors *s, struct arena *a, const char *path)
{
    *s = (struct safetensors){0};
    bool several = ends_with(path, ".json");
    if (!several)
        TRY_ALLOC(s->maps = arena_array(a, 1, sizeof *s->maps));
    enum err e = several ? parts_open(s, a, path) : file_open(s, a, path);
    if (e)
        safetensors_close(s);
    return e;
}

void safetensors_close(struct safetensors *s)
{
    for (size_t i = 0; i < s->map_count; i++)
        file_unmap(&s->maps[i]);
    *s = (struct safetensors){0};
}

enum err safetensors_write_index(const char *path, const char *const *tensors,
                                 const char *const *files, size_t count, uint64_t total_bytes)
{
    json_t *map = json_object(), *root;
    for (size_t i = 0; i < count; i++)
        json_object_set_new(map, tensors[i], json_string(files[i]));
    root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total_bytes,
                     "weight_map", map);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(root);
    if (!text)
        return err_set(ERR_MEMORY, "%s: no memory for the index of %zu tensors", path, count);
    struct file_part parts[] = {{text, strlen(text)}, {"\n", 1}};
    enum err e = file_write(path, parts, 2, 0644);
    free(text);
    return e;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->tensors[i].name, name))
            return &s->tensors[i];
    return NULL;
}

/* ---- JSON files beside the tensors ---- */

struct flattening {
    struct safetensors_field *fields;
    size_t count, room;
    struct arena *a;
};

static enum err field_add(struct flattening *x, const char *name, const json_t *j)
{
    if (x->count == x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        struct safetensors_field *more = arena_array(x->a, room, sizeof *more);
        TRY_ALLOC(more);
        if (x->count)
            memcpy(more, x->fields, x->count * sizeof *more);
        x->fields = more;
        x->room = room;
    }
    struct safetensors_field f = {.name = name, .text = ""};
    if (json_is_boolean(j)) {
        f.kind = SAFETENSORS_FLAG;
        f.number = json_is_true(j);
    } else if (json_is_number(j)) {
        f.kind = SAFETENSORS_NUMBER;
        f.number = json_number_value(j);
    } else if (json_is_string(j)) {
        f.kind = SAFETENSORS_TEXT;
        TRY_ALLOC(f.text = arena_string(x->a, json_string_value(j), json_string_length(j)));
    } else if (!json_is_null(j)) {
        f.kind = SAFETENSORS_EMPTY;
    }
    x->fields[x->count++] = f;
    return ERR_OK;
}

static enum err flatten(struct flattening *x, const char *name, const json_t *j, unsigned depth)
{
    const char *dot = *name ? "." : "", *below;
    const char *key;
    json_t *value;
    size_t i;
    if (json_object_size(j) + json_array_size(j) == 0)
        return *name ? field_add(x, name, j) : ERR_OK;
    if (depth > DEPTH_MAX)
        return err_set(ERR_INPUT, "%.100s: more than %d levels of JSON", name, DEPTH_MAX);
    json_object_foreach((json_t *)(uintptr_t)j, key, value)
    {
        TRY_ALLOC(below = arena_printf(x->a, "%s%s%s", name, dot, key));
        TRY(flatten(x, below, value, depth + 1));
    }
    json_array_foreach(j, i, value)
    {
        TRY_ALLOC(below = arena_printf(x->a, "%s%s%zu", name, dot, i));
        TRY(flatten(x, below, value, depth + 1));
    }
    return ERR_OK;
}

enum err safetensors_fields(const char *path, struct safetensors_field **fields, size_t *count,
                            struct arena *a)
{
    struct flattening x = {.a = a};
    uint8_t *text;
    size_t size;
    json_error_t error;
    TRY(file_read(path, CONFIG_MAX, a, &text, &size));
    json_t *root = json_loadb((const char *)text, size, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return err_set(ERR_INPUT, "%s:%d: not JSON: %s", path, error.line, error.text);
    enum err e = json_is_object(root) ? flatten(&x, "", root, 0)
                                      : err_set(ERR_INPUT, "%s: not a JSON object", path);
    json_decref(root);
    *fields = x.fields;
    *count = x.count;
    return e;
}
