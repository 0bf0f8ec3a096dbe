#include "inner/data/source.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "inner/config/json.h"
#include "inner/data/shard.h"
#include "inner/data/tokenizer/unicode.h"
#include "inner/data/unpack.h"

/* ---- text ---- */

struct lines { /* a text that is cut into lines */
    const char *path;
    const uint8_t *data;
    size_t bytes;
};

static size_t line_bytes(const struct lines *l, size_t at)
{
    const uint8_t *end = memchr(l->data + at, '\n', l->bytes - at);
    return end ? (size_t)(end - (l->data + at)) : l->bytes - at;
}

static bool is_blank(const struct lines *l, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (l->data[at + i] != ' ' && l->data[at + i] != '\t' && l->data[at + i] != '\r')
            return false;
    return true;
}

/* Text whose first line is a JSON map is JSON lines: its braces and keys are nothing to train on.
 */
static enum err check_plain(const struct lines *l, struct arena *a)
{
    struct json j;
    char names[200] = "";
    size_t length = 0;
    if (*l->data != '{' || json_read(&j, l->path, (const char *)l->data, line_bytes(l, 0), a) ||
        j.kind != JSON_MAP)
        return ERR_OK;
    for (size_t i = 0; i < j.count; i++)
        if (j.items[i].kind == JSON_WORDS && length + strlen(j.items[i].key) + 3 < sizeof names)
            length += (size_t)sprintf(names + length, "%s%s", length ? ", " : "", j.items[i].key);
    return err_set(ERR_INPUT, "%s: JSON lines; say with --field which one is the text%s%s", l->path,
                   length ? ". Fields with text: " : "", names);
}

static enum err document_add(struct source *s, uint64_t start, uint64_t end)
{
    if (s->document_count == s->document_room) {
        void *documents = s->documents;
        TRY(buffer_grow(&documents, &s->document_room, s->document_count + 1,
                        sizeof *s->documents));
        s->documents = documents;
    }
    s->documents[s->document_count++] = (struct source_document){start, end};
    return ERR_OK;
}

/* ---- JSON lines ---- */

struct line { /* of JSON */
    const struct json *text;
    struct owner owner;
};

/* A name, or a number as it is written. */
static enum err line_owner(const char *where, const char *field, const struct json *j,
                           struct owner *owner)
{
    const struct json *x = json_find(j, field);
    char number[32];
    if (x && x->kind == JSON_WHOLE) {
        int n = snprintf(number, sizeof number, "%lld", (long long)x->whole);
        *owner = owners_name(number, (size_t)n);
        return ERR_OK;
    }
    if (!x || x->kind != JSON_WORDS || !x->text_bytes)
        return err_set(ERR_INPUT,
                       "%s: the field \"%s\" names no owner: a text or a whole number "
                       "is expected in every line",
                       where, field);
    *owner = owners_name(x->text, x->text_bytes);
    return ERR_OK;
}

static enum err line_read(struct line *l, const char *where, const struct source_options *o,
                          const char *line, size_t bytes, struct arena *a)
{
    struct json *j;
    TRY_ALLOC(j = arena_alloc(a, sizeof *j));
    TRY(json_read(j, where, line, bytes, a));
    l->text = json_find(j, o->field);
    if (!l->text || l->text->kind != JSON_WORDS)
        return err_set(ERR_INPUT, "%s: no text in the field \"%s\"", where, o->field);
    return o->owner ? line_owner(where, o->owner, j, &l->owner) : ERR_OK;
}

static enum err owner_add(struct source *s, const struct owner *owner)
{
    void *owners = s->owners;
    if (s->document_count >= s->owner_room)
        TRY(buffer_grow(&owners, &s->owner_room, s->document_count + 1, sizeof *s->owners));
    s->owners = owners;
    s->owners[s->document_count] = *owner;
    return ERR_OK;
}

static enum err line_take(struct source *s, const struct line *l, const struct source_options *o)
{
    const struct json *text = l->text;
    if (o->documents && text->text_bytes) {
        if (o->owner)
            TRY(owner_add(s, &l->owner));
        TRY(document_add(s, s->lines.count, s->lines.count + text->text_bytes));
    }
    TRY(buffer_add(&s->lines, text->text, text->text_bytes));
    return buffer_add(&s->lines, "\n\n", 2);
}

/* The texts of all lines, each ended by a blank line. */
static enum err lines_read(struct source *s, const struct lines *l, const struct source_options *o)
{
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    for (size_t at = 0, number = 1; !e && at < l->bytes; number++) {
        size_t bytes = line_bytes(l, at);
        const char *line = (const char *)l->data + at;
        struct line read = {0};
        if (!is_blank(l, at, bytes)) {
            char where[300];
            snprintf(where, sizeof where, "%.250s:%zu", l->path, number);
            e = line_read(&read, where, o, line, bytes, &scratch);
            e = e ? e : line_take(s, &read, o);
        }
        arena_reset(&scratch);
        at += bytes + 1;
    }
    arena_free(&scratch);
    if (!e && !s->lines.count)
        e = err_set(ERR_INPUT, "%s: no line has text", l->path);
    s->data = s->lines.data;
    s->count = s->lines.count;
    return e;
}

/* ---- plain text ---- */

static enum err check_utf8(const struct lines *l)
{
    size_t bad, line = 1, start = 0;
    if (unicode_check(l->data, l->bytes, &bad))
        return ERR_OK;
    for (size_t at = 0; at < bad; at++)
        if (l->data[at] == '\n') {
            line++;
            start = at + 1;
        }
    return err_set(ERR_INPUT,
                   "%s: line %zu, byte %zu is not UTF-8; convert the file (iconv -t UTF-8)",
                   l->path, line, bad - start + 1);
}

/* A document is what lies between blank lines. */
static enum err documents_find(struct source *s, const struct lines *l)
{
    uint64_t start = 0, end = 0; /* equal: none is open */
    for (size_t at = 0, bytes; at < l->bytes; at += bytes + 1) {
        bytes = line_bytes(l, at);
        if (!is_blank(l, at, bytes)) {
            start = end > start ? start : at;
            end = at + bytes;
        } else if (end > start) {
            TRY(document_add(s, start, end));
            start = end;
        }
    }
    return end > start ? document_add(s, start, end) : ERR_OK;
}

static enum err text_open(struct source *s, const char *path, const struct source_options *o,
                          struct arena *a)
{
    struct lines l = {path, s->map.data, s->map.size_bytes};
    s->id_bytes = 1;
    s->largest_id = 255;
    if (unpack_kind(l.data, l.bytes) != UNPACK_NONE) {
        TRY(unpack_all(path, l.data, l.bytes, &s->unpacked));
        l.data = s->unpacked.data;
        l.bytes = s->unpacked.count;
    }
    if (!l.bytes)
        return err_set(ERR_INPUT, "%s: empty; give a file with text in it", path);
    if (o->documents)
        TRY(check_utf8(&l));
    if (o->field)
        return lines_read(s, &l, o);
    s->data = l.data;
    s->count = l.bytes;
    TRY(check_plain(&l, a));
    if (!o->documents)
        return ERR_OK;
    return o->whole_files ? document_add(s, 0, l.bytes) : documents_find(s, &l);
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

/* The product of "'shape': (4000,)". False: there is none, or no size_t holds it. */
static bool npy_shape(const char *header, uint64_t *count)
{
    const char *at = strstr(header, "'shape':");
    *count = 1;
    if (!at || *(at += strcspn(at, "(,}")) != '(')
        return false;
    for (at++; *at && *at != ')';) {
        char *end;
        if (*at < '0' || *at > '9')
            return false;
        unsigned long long n = strtoull(at, &end, 10);
        if (__builtin_mul_overflow(*count, (uint64_t)n, count))
            return false;
        at = end + strspn(end, ", ");
    }
    return *at == ')';
}

static enum err npy_check(const struct source *s, const char *path, const char *header,
                          size_t bytes)
{
    uint64_t count, needed;
    if (!npy_shape(header, &count) || __builtin_mul_overflow(count, (uint64_t)s->id_bytes, &needed))
        return err_set(ERR_INPUT, "%s: its header has no shape: %.100s", path, header);
    if (needed == bytes)
        return ERR_OK;
    return err_set(
        ERR_INPUT,
        "%s: %s: the header's shape promises %llu numbers of %u bytes, %zu bytes follow; "
        "copy or save the file again",
        path, bytes < needed ? "cut short" : "longer than its header says",
        (unsigned long long)count, s->id_bytes, bytes);
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
    return npy_check(s, path, text, size - head - length);
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
    return o->ids ? ids_open(s, path, o->ids) : text_open(s, path, o, a);
}

void source_close(struct source *s)
{
    file_unmap(&s->map);
    buffer_free(&s->unpacked);
    buffer_free(&s->lines);
    free(s->documents);
    free(s->owners);
    *s = (struct source){0};
}

/* ---- directories ---- */

struct listing {
    struct arena *a;
    char **paths;
    bool *listed;
    size_t count, room;
};

static enum err listing_add(struct listing *l, char *path, bool listed)
{
    if (l->count == l->room) {
        size_t room = 2 * l->room + 64;
        char **paths = arena_array(l->a, room, sizeof *paths);
        bool *flags = arena_array(l->a, room, sizeof *flags);
        TRY_ALLOC(paths && flags);
        if (l->count) {
            memcpy(paths, l->paths, l->count * sizeof *paths);
            memcpy(flags, l->listed, l->count * sizeof *flags);
        }
        l->paths = paths;
        l->listed = flags;
        l->room = room;
    }
    l->paths[l->count] = path;
    l->listed[l->count++] = listed;
    return ERR_OK;
}

static enum err listing_walk(struct listing *l, char *path, bool listed, unsigned depth)
{
    enum { DEPTH_MAX = 64 };
    struct stat s;
    char **names, *below;
    size_t count;
    if (stat(path, &s) || !S_ISDIR(s.st_mode)) /* a missing file is named when it is opened */
        return listing_add(l, path, listed);
    if (depth == DEPTH_MAX)
        return err_set(ERR_INPUT, "%s: more than %d directories deep", path, DEPTH_MAX);
    TRY(file_list(path, l->a, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (names[i][0] == '.')
            continue;
        TRY_ALLOC(below = arena_printf(l->a, "%s/%s", path, names[i]));
        TRY(listing_walk(l, below, true, depth + 1));
    }
    return ERR_OK;
}

enum err source_list(const char *const *operands, size_t count, struct arena *a, char ***paths,
                     bool **listed, size_t *path_count)
{
    struct listing l = {.a = a};
    char *path;
    for (size_t i = 0; i < count; i++) {
        TRY_ALLOC(path = arena_string(a, operands[i], strlen(operands[i])));
        size_t before = l.count;
        TRY(listing_walk(&l, path, false, 0));
        if (l.count == before)
            return err_set(ERR_INPUT, "%s: no file in the directory", path);
    }
    *paths = l.paths;
    *listed = l.listed;
    *path_count = l.count;
    return ERR_OK;
}
