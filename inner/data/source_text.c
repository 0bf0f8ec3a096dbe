/* SPDX-License-Identifier: Apache-2.0 */
/* Text of three kinds: plain, JSON lines, CSV. */
#include <stdio.h>
#include <string.h>
#include "inner/config/json.h"
#include "inner/data/columns.h"
#include "inner/data/source_own.h"
#include "inner/data/tokenizer/unicode.h"
#include "inner/data/unpack.h"

enum { JSON_LINE_BYTES_MAX = 1 << 26 };

static bool is_blank(const struct textfile_line *l)
{
    for (size_t i = 0; i < l->size_bytes; i++)
        if (l->text[i] != ' ' && l->text[i] != '\t' && l->text[i] != '\r')
            return false;
    return true;
}

static enum err document_add(struct source *s, uint64_t start, uint64_t end)
{
    const struct source_document d = {start, end};
    s->document_count++;
    return spill_add(&s->places, &d, sizeof d);
}

/* A text of a file with several, ended by a blank line. */
static enum err text_add(struct source *s, const struct source_options *o, const char *text,
                         size_t bytes, const struct owner *owner)
{
    if (o->documents && bytes) {
        if (o->owner)
            TRY(spill_add(&s->names, owner, sizeof *owner));
        TRY(document_add(s, s->lines.count, s->lines.count + bytes));
    }
    TRY(spill_add(&s->lines, text, bytes));
    return spill_add(&s->lines, "\n\n", 2);
}

static enum err texts_end(struct source *s, uint64_t taken)
{
    if (!taken)
        return err_set(ERR_INPUT, "%s: no line has text", s->path);
    s->count = s->lines.count;
    return spill_end(&s->lines, &s->data);
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
                          const struct textfile_line *line, struct arena *a)
{
    struct json *j;
    if (line->size_bytes > JSON_LINE_BYTES_MAX)
        return err_set(ERR_INPUT, "%s: a line of %zu bytes; at most %d are read", where,
                       line->size_bytes, JSON_LINE_BYTES_MAX);
    TRY_ALLOC(j = arena_alloc(a, sizeof *j));
    TRY(json_read(j, where, line->text, line->size_bytes, a));
    l->text = json_find(j, o->field);
    if (!l->text || l->text->kind != JSON_WORDS)
        return err_set(ERR_INPUT, "%s: no text in the field \"%s\"", where, o->field);
    return o->owner ? line_owner(where, o->owner, j, &l->owner) : ERR_OK;
}

static enum err lines_read(struct source *s, const struct textfile *t,
                           const struct source_options *o)
{
    struct arena scratch = arena_make(0);
    struct textfile_line l = {0};
    enum err e = ERR_OK;
    for (size_t at = 0; !e && textfile_line(t, &at, &l);) {
        struct line read = {0};
        char where[300];
        if (is_blank(&l))
            continue;
        snprintf(where, sizeof where, "%.250s:%llu", s->path, (unsigned long long)l.number);
        e = line_read(&read, where, o, &l, &scratch);
        e = e ? e : text_add(s, o, read.text->text, read.text->text_bytes, &read.owner);
        arena_reset(&scratch);
    }
    arena_free(&scratch);
    return e ? e : texts_end(s, s->lines.count);
}

/* Is the first line a map? */
static bool first_is_map(const struct source *s, const struct textfile *t, struct json *j,
                         struct arena *a)
{
    struct textfile_line l = {0};
    size_t at = 0;
    return t->size_bytes && *t->text == '{' && textfile_line(t, &at, &l) &&
           l.size_bytes <= JSON_LINE_BYTES_MAX &&
           json_read(j, s->path, l.text, l.size_bytes, a) == ERR_OK && j->kind == JSON_MAP;
}

/* Its braces and keys are nothing to train on. */
static enum err refuse_lines(const struct source *s, const struct json *j)
{
    char names[200] = "";
    size_t length = 0;
    for (size_t i = 0; i < j->count; i++)
        if (j->items[i].kind == JSON_WORDS && length + strlen(j->items[i].key) + 3 < sizeof names)
            length += (size_t)sprintf(names + length, "%s%s", length ? ", " : "", j->items[i].key);
    return err_set(ERR_INPUT, "%s: JSON lines; say with --field which one is the text%s%s", s->path,
                   length ? ". Fields with text: " : "", names);
}

static enum err json_open(struct source *s, const struct textfile *t,
                          const struct source_options *o)
{
    struct arena scratch = arena_make(0);
    struct json j = {0};
    enum err e;
    if (o->field) {
        e = lines_read(s, t, o);
    } else {
        bool map = first_is_map(s, t, &j, &scratch);
        e = refuse_lines(s, map ? &j : &(struct json){0});
    }
    arena_free(&scratch);
    return e;
}

/* ---- CSV ---- */

static enum err records_read(struct source *s, struct columns *c, const struct source_options *o,
                             const struct columns_names *names)
{
    const char *value[COLUMNS_ROLES];
    bool more;
    uint64_t taken = 0;
    TRY(columns_need(c, COLUMNS_TEXT, names));
    for (;;) {
        struct owner owner = {0};
        TRY(columns_next(c, value, &more));
        if (!more)
            return texts_end(s, taken);
        const char *text = value[COLUMNS_TEXT], *whose = o->owner ? value[COLUMNS_OWNER] : NULL;
        if (o->owner && !*whose)
            return err_set(ERR_INPUT, "%s:%zu: the column \"%s\" names no owner", s->path, c->line,
                           o->owner);
        if (o->owner)
            owner = owners_name(whose, strlen(whose));
        if (*text)
            TRY(text_add(s, o, text, strlen(text), &owner));
        taken += *text != 0;
    }
}

static enum err csv_open(struct source *s, const struct textfile *t, const struct source_options *o)
{
    const struct columns_names names = {
        .name = {[COLUMNS_TEXT] = o->field, [COLUMNS_OWNER] = o->owner}};
    struct columns c;
    enum err e = columns_open(&c, s->path, t, &names);
    e = e ? e : records_read(s, &c, o, &names);
    columns_close(&c);
    return e;
}

/* ---- plain text ---- */

static enum err check_utf8(const char *path, const struct textfile *t)
{
    size_t bad, at = 0;
    struct textfile_line l = {0};
    if (unicode_check((const uint8_t *)t->text, t->size_bytes, &bad))
        return ERR_OK;
    while (textfile_line(t, &at, &l) && at <= bad)
        continue;
    return err_set(ERR_INPUT,
                   "%s: line %llu, byte %zu is not UTF-8; convert the file (iconv -t UTF-8)", path,
                   (unsigned long long)l.number, (size_t)(t->text + bad - l.text) + 1);
}

/* A document is what lies between blank lines. */
static enum err documents_find(struct source *s, const struct textfile *t)
{
    uint64_t start = 0, end = 0; /* equal: none is open */
    struct textfile_line l = {0};
    for (size_t at = 0; textfile_line(t, &at, &l);) {
        uint64_t first = (uint64_t)(l.text - t->text);
        if (!is_blank(&l)) {
            start = end > start ? start : first;
            end = first + l.size_bytes;
        } else if (end > start) {
            TRY(document_add(s, start, end));
            start = end;
        }
    }
    return end > start ? document_add(s, start, end) : ERR_OK;
}

static enum err plain_open(struct source *s, const struct textfile *t,
                           const struct source_options *o)
{
    s->data = (const uint8_t *)t->text;
    s->count = t->size_bytes;
    if (o->owner)
        return err_set(ERR_INPUT,
                       "%s: plain text says not whose it is; with owners give JSON lines or CSV",
                       s->path);
    if (!o->documents)
        return ERR_OK;
    return o->whole_files ? document_add(s, 0, t->size_bytes) : documents_find(s, t);
}

/* ---- which kind ---- */

typedef enum err text_open(struct source *s, const struct textfile *t,
                           const struct source_options *o);

/* Without .gz or .zst. */
static bool name_ends(const char *path, const char *end)
{
    static const char *const packed[] = {".gz", ".zst"};
    size_t n = strlen(path), m = strlen(end);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t k = strlen(packed[i]);
        if (n > k && strcmp(path + n - k, packed[i]) == 0) {
            n -= k;
            break;
        }
    }
    return n >= m && strncmp(path + n - m, end, m) == 0;
}

static text_open *kind_of(const struct source *s, const struct textfile *t,
                          const struct source_options *o)
{
    struct arena scratch = arena_make(0);
    struct json j;
    if (name_ends(s->path, ".jsonl") || name_ends(s->path, ".ndjson"))
        return json_open;
    if (name_ends(s->path, ".csv"))
        return csv_open;
    bool text = name_ends(s->path, ".txt"),
         lines = (o->field && !text && t->size_bytes && *t->text == '{') ||
                 first_is_map(s, t, &j, &scratch);
    arena_free(&scratch);
    return lines ? json_open : o->csv && !text ? csv_open : plain_open;
}

static enum err spill_take(void *self, const void *piece, size_t bytes)
{
    return spill_add(self, piece, bytes);
}

static enum err contents(struct source *s, const uint8_t **data, uint64_t *bytes)
{
    const struct unpack_sink sink = {spill_take, &s->unpacked};
    *data = s->map.data;
    *bytes = s->map.size_bytes;
    if (unpack_kind(*data, s->map.size_bytes) == UNPACK_NONE)
        return ERR_OK;
    enum err e = unpack(s->path, s->map.data, s->map.size_bytes, &sink);
    if (e == ERR_FULL)
        return err_add(e, "%s: ", s->path);
    TRY(e);
    *bytes = s->unpacked.count;
    return spill_end(&s->unpacked, data);
}

enum err source_text_open(struct source *s, const struct source_options *o)
{
    const uint8_t *data, *places, *names;
    uint64_t bytes;
    struct textfile t;
    TRY(contents(s, &data, &bytes));
    s->id_bytes = 1;
    s->largest_id = 255;
    s->data = data;
    s->count = bytes;
    t = (struct textfile){(const char *)data, bytes};
    if (!o->raw)
        TRY(textfile_open(&t, s->path, data, bytes,
                          o->documents ? NULL : "or --bytes takes the bytes of any file"));
    if (!t.size_bytes)
        return err_set(ERR_INPUT, "%s: empty; give a file with text in it", s->path);
    if (o->raw)
        return ERR_OK;
    if (o->documents)
        TRY(check_utf8(s->path, &t));
    TRY(kind_of(s, &t, o)(s, &t, o));
    TRY(spill_end(&s->places, &places));
    TRY(spill_end(&s->names, &names));
    s->documents = (const struct source_document *)(const void *)places;
    s->owners = (const struct owner *)(const void *)names;
    return ERR_OK;
}
