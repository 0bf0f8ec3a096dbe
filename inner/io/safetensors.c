/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/bytes.h"

enum { ALIGN = 8, LENGTH_BYTES = 8 };

static const struct {
    const char *name;
    size_t size_bytes;
} dtypes[] = {
#define X(name, size) [SAFETENSORS_##name] = {#name, size},
    SAFETENSORS_DTYPES(X)
#undef X
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

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

/* {"__metadata__":{"format":"pt"},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}} */
static enum err header_text(const struct safetensors_tensor *const *sorted, size_t count,
                            const char *const *metadata, struct arena *a, char **out)
{
    enum { ENTRY_BYTES = 120, NUMBER_BYTES = 21 };
    size_t room = ENTRY_BYTES, pairs = 0;
    char **names;
    while (metadata && metadata[pairs])
        pairs++;
    TRY_ALLOC(names = arena_array(a, count + pairs + 1, sizeof *names));
    for (size_t i = 0; i < pairs + count; i++) {
        const char *name = i < pairs ? metadata[i] : sorted[i - pairs]->name;
        TRY_ALLOC(names[i] = json_quoted(name, a));
        room += strlen(names[i]) + ENTRY_BYTES + SAFETENSORS_RANK_MAX * NUMBER_BYTES;
    }
    char *at = arena_alloc(a, room);
    TRY_ALLOC(at);
    *out = at;
    *at++ = '{';
    if (metadata)
        at += sprintf(at, "\"__metadata__\":{");
    for (size_t i = 0; i < pairs; i += 2)
        at += sprintf(at, "%s%s:%s", i ? "," : "", names[i], names[i + 1]);
    if (metadata)
        *at++ = '}';
    uint64_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_tensor *t = sorted[i];
        at += sprintf(at, "%s%s:{\"dtype\":\"%s\",\"shape\":[", i || metadata ? "," : "",
                      names[pairs + i], dtypes[t->dtype].name);
        for (unsigned k = 0; k < t->rank; k++)
            at += sprintf(at, "%s%" PRIu64, k ? "," : "", t->shape[k]);
        at += sprintf(at, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                      begin + t->size_bytes);
        begin += t->size_bytes;
    }
    sprintf(at, "}");
    return ERR_OK;
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
    char *text;
    TRY(header_text(sorted, count, metadata, a, &text));
    return write_sorted(path, sorted, count, text, a);
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
    const struct json *metadata;
};

static bool get_u64(const struct json *j, uint64_t *out)
{
    if (!j || j->kind != JSON_WHOLE || j->whole < 0)
        return false;
    *out = (uint64_t)j->whole;
    return true;
}

static bool get_dtype(const struct json *j, enum safetensors_dtype *out)
{
    for (int i = 0; j && j->kind == JSON_WORDS && i < DTYPE_COUNT; i++)
        if (!strcmp(j->text, dtypes[i].name)) {
            *out = (enum safetensors_dtype)i;
            return true;
        }
    return false;
}

static bool get_shape(const struct json *j, struct safetensors_tensor *t)
{
    if (!j || j->kind != JSON_LIST || j->count > SAFETENSORS_RANK_MAX)
        return false;
    t->rank = (unsigned)j->count;
    for (unsigned i = 0; i < t->rank; i++)
        if (!get_u64(&j->items[i], &t->shape[i]))
            return false;
    return true;
}

static enum err entry_read(struct reading *r, const struct json *j)
{
    struct range range = {0};
    struct safetensors_tensor *t = &range.tensor;
    const struct json *offsets = json_find(j, "data_offsets");
    const char *name = j->key;
    uint64_t size_bytes;
    if (j->kind != JSON_MAP || j->count != 3)
        return err_set(ERR_INPUT,
                       "%s: tensor %.100s: dtype, shape and data_offsets expected, nothing else",
                       r->path, name);
    if (!get_dtype(json_find(j, "dtype"), &t->dtype))
        return err_set(
            ERR_INPUT,
            "%s: tensor %.100s: dtype unknown here; F32, BF16, F16, I64, I32, U8, BOOL are read",
            r->path, name);
    if (!get_shape(json_find(j, "shape"), t))
        return err_set(ERR_INPUT, "%s: tensor %.100s: shape is not a list of at most %d sizes",
                       r->path, name, SAFETENSORS_RANK_MAX);
    if (!offsets || offsets->kind != JSON_LIST || offsets->count != 2 ||
        !get_u64(&offsets->items[0], &range.begin) || !get_u64(&offsets->items[1], &range.end) ||
        range.begin > range.end)
        return err_set(ERR_INPUT, "%s: tensor %.100s: data_offsets is not [begin, end]", r->path,
                       name);
    if (!size_of(t, &size_bytes) || size_bytes != range.end - range.begin)
        return err_set(ERR_INPUT, "%s: tensor %.100s: its %llu bytes do not fit dtype and shape",
                       r->path, name, (unsigned long long)(range.end - range.begin));
    t->size_bytes = size_bytes;
    t->name = name;
    r->ranges[r->count++] = range;
    return ERR_OK;
}

static enum err metadata_read(struct reading *r, const struct json *j)
{
    bool ok = j->kind == JSON_MAP;
    for (size_t i = 0; ok && i < j->count; i++)
        ok = j->items[i].kind == JSON_WORDS;
    r->metadata = j;
    return ok ? ERR_OK
              : err_set(ERR_INPUT, "%s: __metadata__ is not a mapping of texts to texts", r->path);
}

static enum err entries_read(struct reading *r, const struct json *root)
{
    if (root->count > SAFETENSORS_TENSORS_MAX)
        return err_set(ERR_INPUT, "%s: more than %u tensors", r->path, SAFETENSORS_TENSORS_MAX);
    TRY_ALLOC(r->ranges = arena_array(r->a, root->count + 1, sizeof *r->ranges));
    for (size_t i = 0; i < root->count; i++) {
        const struct json *j = &root->items[i];
        TRY(strcmp(j->key, "__metadata__") ? entry_read(r, j) : metadata_read(r, j));
    }
    return ERR_OK;
}

static int range_order(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end; /* empty tensors come first */
}

static enum err ranges_check(const struct reading *r, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct range *x = &r->ranges[i];
        if (x->begin != at)
            return err_set(ERR_INPUT, "%s: tensor %.100s: its data %s the data before it", r->path,
                           x->tensor.name, x->begin < at ? "overlaps" : "leaves a gap after it");
        at = x->end;
    }
    if (at > data_bytes)
        return err_set(ERR_INPUT,
                       "%s: cut short: %llu bytes of data are missing; copy the file again",
                       r->path, (unsigned long long)(at - data_bytes));
    if (at < data_bytes)
        return err_set(ERR_INPUT, "%s: %llu bytes after the last tensor", r->path,
                       (unsigned long long)(data_bytes - at));
    return ERR_OK;
}

/* A tensor of four dimensions has eleven values. What cannot be a header of the permitted number of
 * tensors is refused before memory is taken for its tree. */
static enum err header_read(struct reading *r, const char *text, size_t size_bytes)
{
    enum { TENSOR_VALUES = 11 };
    struct json root;
    char *what;
    TRY_ALLOC(what = arena_printf(r->a, "%s: header", r->path));
    TRY(json_read_most(&root, what, text, size_bytes,
                       (size_t)SAFETENSORS_TENSORS_MAX * TENSOR_VALUES, r->a));
    return entries_read(r, &root);
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
    s->metadata = r.metadata;
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
    s->metadata = one.metadata;
    return ERR_OK;
}

/* ---- several files ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static int place_order(const void *a, const void *b)
{
    const struct safetensors_place *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : strcmp(x->tensor, y->tensor);
}

/* The entries of weight_map, sorted by file. */
static enum err index_read(const char *path, struct safetensors_place **places, size_t *count,
                           struct arena *a)
{
    struct json root;
    TRY(json_read_file(&root, path, SAFETENSORS_HEADER_MAX, a));
    const struct json *map = json_find(&root, "weight_map");
    if (!map || map->kind != JSON_MAP || !map->count || map->count > SAFETENSORS_TENSORS_MAX)
        return err_set(ERR_INPUT, "%s: no weight_map: this is not the index of safetensors files",
                       path);
    TRY_ALLOC(*places = arena_array(a, map->count, sizeof **places));
    for (*count = 0; *count < map->count; ++*count) {
        const struct json *j = &map->items[*count];
        if (j->kind != JSON_WORDS || !*j->text || *j->text == '.' || strchr(j->text, '/'))
            return err_set(ERR_INPUT, "%s: weight_map.%.100s does not name a file next to it", path,
                           j->key);
        (*places)[*count] = (struct safetensors_place){j->key, j->text};
    }
    qsort(*places, *count, sizeof **places, place_order);
    return ERR_OK;
}

/* The tensors of a file are those that the index says; places of one file, sorted by name. */
static enum err part_check(const struct safetensors *s, size_t first,
                           const struct safetensors_place *places, size_t count, const char *path)
{
    for (size_t i = first; i < s->count; i++) {
        const struct safetensors_place key = {s->tensors[i].name, places->file};
        if (!bsearch(&key, places, count, sizeof *places, place_order))
            return err_set(ERR_INPUT, "%s: %.100s is in it, but not in the index", path,
                           key.tensor);
    }
    for (size_t i = 0; i < count && s->count - first != count; i++) {
        size_t k = first;
        while (k < s->count && strcmp(s->tensors[k].name, places[i].tensor))
            k++;
        if (k == s->count)
            return err_set(ERR_INPUT, "%s: no tensor %.100s, which the index says is in it", path,
                           places[i].tensor);
    }
    return ERR_OK;
}

static enum err parts_open(struct safetensors *s, struct arena *a, const char *path)
{
    struct safetensors_place *places = NULL;
    const char *slash = strrchr(path, '/');
    size_t count = 0, end;
    TRY(index_read(path, &places, &count, a));
    TRY_ALLOC(s->maps = arena_array(a, count, sizeof *s->maps));
    for (size_t i = 0; i < count; i = end) {
        size_t first = s->count;
        char *part;
        for (end = i; end < count && !strcmp(places[end].file, places[i].file);)
            end++;
        TRY_ALLOC(part = arena_printf(a, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                                      places[i].file));
        TRY(file_open(s, a, part));
        TRY(part_check(s, first, places + i, end - i, part));
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

static enum err index_text(const struct safetensors_place *places, size_t count,
                           uint64_t total_bytes, struct arena *a, char **out)
{
    size_t room = 120;
    char **quoted, *at;
    TRY_ALLOC(quoted = arena_array(a, 2 * count + 1, sizeof *quoted));
    for (size_t i = 0; i < count; i++) {
        TRY_ALLOC(quoted[2 * i] = json_quoted(places[i].tensor, a));
        TRY_ALLOC(quoted[2 * i + 1] = json_quoted(places[i].file, a));
        room += strlen(quoted[2 * i]) + strlen(quoted[2 * i + 1]) + 10;
    }
    TRY_ALLOC(*out = at = arena_alloc(a, room));
    at += sprintf(at, "{\n  \"metadata\": {\"total_size\": %" PRIu64 "},\n  \"weight_map\": {",
                  total_bytes);
    for (size_t i = 0; i < count; i++)
        at += sprintf(at, "%s\n    %s: %s", i ? "," : "", quoted[2 * i], quoted[2 * i + 1]);
    sprintf(at, "\n  }\n}\n");
    return ERR_OK;
}

enum err safetensors_write_index(const char *path, const struct safetensors_place *places,
                                 size_t count, uint64_t total_bytes)
{
    struct arena a = arena_make(0);
    char *text;
    enum err e = index_text(places, count, total_bytes, &a, &text);
    if (!e)
        e = file_write(path, &(struct file_part){text, strlen(text)}, 1, 0644);
    arena_free(&a);
    return e;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->tensors[i].name, name))
            return &s->tensors[i];
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
    const struct json *j = s->metadata ? json_find(s->metadata, key) : NULL;
    return j ? j->text : NULL;
}
