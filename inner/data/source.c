#include "inner/data/source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/json.h"
#include "inner/data/shard.h"

/* ---- text ---- */

static enum err check_packed(const char *path, const struct file_map *m)
{
    static const struct {
        const char *magic, *name;
        size_t size;
    } packed[] = {{"\x1f\x8b", "gzip", 2},
                  {"\x28\xb5\x2f\xfd", "zstd", 4},
                  {"BZh", "bzip2", 3},
                  {"\xfd"
                   "7zXZ",
                   "xz", 5}};
    if (!m->size_bytes)
        return err_set(ERR_INPUT, "%s: empty; give a file with text in it", path);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (m->size_bytes >= packed[i].size && !memcmp(m->data, packed[i].magic, packed[i].size))
            return err_set(ERR_INPUT, "%s: compressed (%s); unpack it first", path, packed[i].name);
    return ERR_OK;
}

static size_t line_bytes(const struct file_map *m, size_t at)
{
    const uint8_t *end = memchr(m->data + at, '\n', m->size_bytes - at);
    return end ? (size_t)(end - (m->data + at)) : m->size_bytes - at;
}

/* Text whose first line is a JSON map is JSON lines: its braces and keys are nothing to train on.
 */
static enum err check_plain(const char *path, const struct file_map *m, struct arena *a)
{
    struct json j;
    char names[200] = "";
    size_t length = 0;
    if (*m->data != '{' || json_read(&j, path, (const char *)m->data, line_bytes(m, 0), a) ||
        j.kind != JSON_MAP)
        return ERR_OK;
    for (size_t i = 0; i < j.count; i++)
        if (j.items[i].kind == JSON_WORDS && length + strlen(j.items[i].key) + 3 < sizeof names)
            length += (size_t)sprintf(names + length, "%s%s", length ? ", " : "", j.items[i].key);
    return err_set(ERR_INPUT, "%s: JSON lines; say with --field which one is the text%s%s", path,
                   length ? ". Fields with text: " : "", names);
}

static enum err line_text(const char *where, const char *field, const char *line, size_t bytes,
                          struct arena *a, const struct json **text)
{
    struct json *j;
    TRY_ALLOC(j = arena_alloc(a, sizeof *j));
    TRY(json_read(j, where, line, bytes, a));
    *text = json_find(j, field);
    if (!*text || (*text)->kind != JSON_WORDS)
        return err_set(ERR_INPUT, "%s: no text in the field \"%s\"", where, field);
    return ERR_OK;
}

/* The texts of all lines, each ended by a blank line. It is never longer than the file: quotes and
 * a key go. */
static enum err lines_read(struct source *s, const char *path, const char *field, struct arena *a)
{
    uint8_t *out = arena_alloc(a, s->map.size_bytes + 2);
    size_t used = 0;
    TRY_ALLOC(out);
    for (size_t at = 0, number = 1; at < s->map.size_bytes; number++) {
        size_t bytes = line_bytes(&s->map, at);
        const char *line = (const char *)s->map.data + at;
        struct arena scratch = arena_make(0);
        const struct json *text;
        enum err e = ERR_OK;
        if (strspn(line, " \t\r") < bytes) {
            char where[300];
            snprintf(where, sizeof where, "%.250s:%zu", path, number);
            e = line_text(where, field, line, bytes, &scratch, &text);
            if (!e) {
                memcpy(out + used, text->text, text->text_bytes);
                used += text->text_bytes;
                memcpy(out + used, "\n\n", 2);
                used += 2;
            }
        }
        arena_free(&scratch);
        TRY(e);
        at += bytes + 1;
    }
    if (!used)
        return err_set(ERR_INPUT, "%s: no line has text", path);
    s->data = out;
    s->count = used;
    return ERR_OK;
}

static enum err text_open(struct source *s, const char *path, const char *field, struct arena *a)
{
    s->id_bytes = 1;
    s->largest_id = 255;
    TRY(check_packed(path, &s->map));
    if (field)
        return lines_read(s, path, field, a);
    s->data = s->map.data;
    s->count = s->map.size_bytes;
    return check_plain(path, &s->map, a);
}

/* ---- ids ---- */

static uint64_t wide_id(const struct source *s, uint64_t i)
{
    uint64_t id = 0;
    for (unsigned byte = 0; byte < s->id_bytes; byte++)
        id |= (uint64_t)s->data[i * s->id_bytes + byte] << 8 * byte;
    return id;
}

uint32_t source_id(const struct source *s, uint64_t i)
{
    return (uint32_t)wide_id(s, i);
}

/* Negative ids of signed kinds are large numbers here. */
static enum err check_ids(struct source *s, const char *path)
{
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t id = wide_id(s, i);
        if (id > INT32_MAX)
            return err_set(ERR_INPUT,
                           "%s: number %llu is negative or beyond %d: these are no token ids", path,
                           (unsigned long long)i, INT32_MAX);
        s->largest_id = (uint32_t)id > s->largest_id ? (uint32_t)id : s->largest_id;
    }
    return ERR_OK;
}

/* NumPy's format 1 to 3: magic, version, length of a Python dictionary in text, the dictionary, the
 * numbers. */
static enum err npy_open(struct source *s, const char *path)
{
    static const struct {
        const char *descr;
        unsigned bytes;
    } kinds[] = {{"'<u2'", 2}, {"'<i2'", 2}, {"'<u4'", 4},
                 {"'<i4'", 4}, {"'<u8'", 8}, {"'<i8'", 8}};
    const uint8_t *d = s->map.data;
    size_t size = s->map.size_bytes, head = 10;
    char text[1024] = "";
    if (size < 12 || memcmp(d, "\x93NUMPY", 6) || d[6] < 1 || d[6] > 3)
        return err_set(ERR_INPUT, "%s: not a NumPy array (.npy)", path);
    size_t length = d[8] | (size_t)d[9] << 8;
    if (d[6] > 1) {
        length |= (size_t)d[10] << 16 | (size_t)d[11] << 24;
        head = 12;
    }
    if (length >= sizeof text || length > size - head)
        return err_set(ERR_INPUT, "%s: cut short, or with a header of %zu bytes", path, length);
    memcpy(text, d + head, length);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        s->id_bytes = strstr(text, kinds[i].descr) ? kinds[i].bytes : s->id_bytes;
    if (!s->id_bytes)
        return err_set(ERR_INPUT,
                       "%s: its numbers are not uint16, int32, uint32, int64 or uint64: %.100s",
                       path, text);
    if (strstr(text, "'fortran_order': True"))
        return err_set(ERR_INPUT, "%s: in Fortran's order; save it with numpy.ascontiguousarray",
                       path);
    s->data = d + head + length;
    s->count = (size - head - length) / s->id_bytes;
    return (size - head - length) % s->id_bytes ? err_set(ERR_INPUT, "%s: cut short", path)
                                                : ERR_OK;
}

static enum err raw_open(struct source *s, const char *path, unsigned id_bytes)
{
    uint32_t magic = 0;
    for (size_t i = 0; i < 4 && i < s->map.size_bytes; i++)
        magic |= (uint32_t)s->map.data[i] << 8 * i;
    if (magic == SHARD_MAGIC_U16 || magic == SHARD_MAGIC_U32)
        return err_set(ERR_INPUT, "%s: a token shard already; name it in data.train", path);
    if (s->map.size_bytes % id_bytes)
        return err_set(ERR_INPUT, "%s: %zu bytes are no whole number of ids of %u", path,
                       s->map.size_bytes, id_bytes);
    s->id_bytes = id_bytes;
    s->data = s->map.data;
    s->count = s->map.size_bytes / id_bytes;
    return ERR_OK;
}

static enum err ids_open(struct source *s, const char *path, const char *kind)
{
    if (!strcmp(kind, "npy"))
        TRY(npy_open(s, path));
    else if (!strcmp(kind, "uint16") || !strcmp(kind, "uint32"))
        TRY(raw_open(s, path, kind[4] == '1' ? 2 : 4));
    else
        return err_set(ERR_CONFIG, "--tokens %.40s: npy, uint16 or uint32 expected", kind);
    if (!s->count)
        return err_set(ERR_INPUT, "%s: empty", path);
    return check_ids(s, path);
}

enum err source_open(struct source *s, const char *path, const struct source_options *o,
                     struct arena *a)
{
    *s = (struct source){0};
    if (o->field && o->ids)
        return err_set(ERR_CONFIG, "--field is for text and --tokens for ids; give one of them");
    TRY(file_map(&s->map, path));
    return o->ids ? ids_open(s, path, o->ids) : text_open(s, path, o->field, a);
}

void source_close(struct source *s)
{
    file_unmap(&s->map);
    *s = (struct source){0};
}
