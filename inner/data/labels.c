/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/labels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/data/indexed.h"
#include "inner/data/tokenizer/unicode.h"
#include "kernels/base/bytes.h"

enum { HEADER_BYTES = 16, NAME_BYTES_MAX = 256 };
static const char MAGIC[] = "ATLABELS";
static const char *const extensions[] = {"bin", "idx", "labels", "owners"};

/* ---- reading ---- */

int32_t labels_at(const uint8_t *labels, uint64_t document)
{
    struct bytes_reader r = bytes_reader(labels + 4 * document, 4);
    return (int32_t)bytes_get_u32(&r);
}

enum err labels_write(const char *stem, const int32_t *classes, uint64_t documents)
{
    struct arena a = arena_make(0);
    size_t size = HEADER_BYTES + 4 * (size_t)documents;
    char *path = arena_printf(&a, "%s.labels", stem);
    uint8_t *bytes = path ? arena_alloc(&a, size) : NULL;
    enum err e = bytes ? ERR_OK : ERR_MEMORY;
    if (bytes) {
        struct bytes_writer b = bytes_writer(bytes, size);
        bytes_put(&b, MAGIC, 8);
        bytes_put_u64(&b, documents);
        for (uint64_t i = 0; i < documents; i++)
            bytes_put_u32(&b, (uint32_t)classes[i]);
        const struct file_part whole = {bytes, size};
        e = file_write(path, &whole, 1, 0644);
    }
    arena_free(&a);
    return e;
}

enum err labels_parse(const uint8_t **labels, const char *path, const uint8_t *data,
                      size_t size_bytes, uint64_t documents)
{
    struct bytes_reader r = bytes_reader(data, size_bytes);
    const uint8_t *magic = bytes_view(&r, 8);
    uint64_t count = bytes_get_u64(&r);
    if (r.bad || memcmp(magic, MAGIC, 8))
        return err_set(ERR_INPUT, "%s: not a file of labels", path);
    if (count != documents || (size_bytes - HEADER_BYTES) / 4 != count ||
        (size_bytes - HEADER_BYTES) % 4)
        return err_set(ERR_INPUT,
                       "%s: the header promises %llu labels in %zu bytes; the data set next to it "
                       "has %llu documents",
                       path, (unsigned long long)count, size_bytes, (unsigned long long)documents);
    for (uint64_t i = 0; i < documents; i++)
        if (labels_at(data + HEADER_BYTES, i) < 0)
            return err_set(ERR_INPUT, "%s: document %llu has class %d", path, (unsigned long long)i,
                           labels_at(data + HEADER_BYTES, i));
    *labels = data + HEADER_BYTES;
    return ERR_OK;
}

/* ---- lines ---- */

struct span {
    const char *text;
    size_t bytes;
};
struct line {
    struct owner owner;
    struct span label, text[2];
    size_t texts;
    const char *path;
    uint64_t number;
    int32_t class;
    int64_t part; /* -1: held out, else the site */
};
struct work {
    const struct labels_options *o;
    struct arena *a;
    struct file_map *maps;
    size_t map_count;
    struct buffer all; /* of struct line */
    struct line *lines;
    uint64_t count;
    bool owners;
    const char *owned, *unowned; /* a file with owners, one without; NULL: none */
    struct sidecar_class *classes;
    size_t classes_count;
};

static enum err bad_line(const struct line *l, const char *what)
{
    return err_set(ERR_INPUT, "%s:%llu: %s", l->path, (unsigned long long)l->number, what);
}

static enum err check_utf8(const struct line *l, const char *line, size_t bytes)
{
    size_t bad;
    return unicode_check((const uint8_t *)line, bytes, &bad)
               ? ERR_OK
               : err_set(ERR_INPUT,
                         "%s:%llu: byte %zu of the line is not UTF-8; convert the file (iconv -t "
                         "UTF-8)",
                         l->path, (unsigned long long)l->number, bad + 1);
}

static struct span next_field(const char **at, const char *end)
{
    const char *tab = memchr(*at, '\t', (size_t)(end - *at));
    struct span s = {*at, (size_t)((tab ? tab : end) - *at)};
    *at = tab ? tab + 1 : NULL;
    return s;
}

static enum err parse_line(const struct work *w, struct line *l, const char *line, size_t bytes)
{
    const char *at = line, *end = line + bytes;
    TRY(check_utf8(l, line, bytes));
    if (w->o->owners) {
        struct span owner = next_field(&at, end);
        if (!owner.bytes || !at)
            return bad_line(l, "no owner before the first tab; owner<TAB>label<TAB>text is "
                               "expected");
        l->owner = owners_name(owner.text, owner.bytes);
    }
    l->label = next_field(&at, end);
    if (!l->label.bytes || l->label.bytes > NAME_BYTES_MAX)
        return bad_line(l, "no label, or one of more than 256 bytes, before the first tab");
    for (; at; l->texts++) {
        if (l->texts == 2)
            return bad_line(l, "more than two texts; label<TAB>text or label<TAB>text<TAB>text "
                               "is expected");
        l->text[l->texts] = next_field(&at, end);
        if (!l->text[l->texts].bytes)
            return bad_line(l, "an empty text");
    }
    return l->texts ? ERR_OK : bad_line(l, "no tab: label<TAB>text is expected");
}

static enum err read_tabs(struct work *w, const char *path, const struct textfile *t)
{
    struct textfile_line line = {0};
    *(w->o->owners ? &w->owned : &w->unowned) = path;
    for (size_t at = 0; textfile_line(t, &at, &line);) {
        struct line l = {.path = path, .number = line.number};
        if (!line.size_bytes)
            continue;
        TRY(parse_line(w, &l, line.text, line.size_bytes));
        TRY(buffer_add(&w->all, &l, sizeof l));
    }
    return ERR_OK;
}

static enum err copy_span(const struct work *w, const char *text, struct span *s)
{
    s->bytes = strlen(text);
    TRY_ALLOC(s->text = arena_string(w->a, text, s->bytes));
    return ERR_OK;
}

static enum err read_record(struct work *w, struct line *l, const char *const *value)
{
    const char *text[] = {value[COLUMNS_TEXT], value[COLUMNS_TEXT_B]};
    if (!*value[COLUMNS_LABEL] || strlen(value[COLUMNS_LABEL]) > NAME_BYTES_MAX)
        return bad_line(l, "no label, or one of more than 256 bytes");
    TRY(copy_span(w, value[COLUMNS_LABEL], &l->label));
    if (value[COLUMNS_OWNER] && !*value[COLUMNS_OWNER])
        return bad_line(l, "the column of owners is empty");
    if (value[COLUMNS_OWNER])
        l->owner = owners_name(value[COLUMNS_OWNER], strlen(value[COLUMNS_OWNER]));
    for (size_t i = 0; i < 2 && text[i]; i++) {
        if (!*text[i])
            return bad_line(l, "an empty text");
        TRY(copy_span(w, text[i], &l->text[l->texts++]));
    }
    return buffer_add(&w->all, l, sizeof *l);
}

static enum err read_records(struct work *w, struct columns *c)
{
    const char *value[COLUMNS_ROLES];
    bool more = true;
    TRY(columns_need(c, COLUMNS_LABEL, &w->o->columns));
    TRY(columns_need(c, COLUMNS_TEXT, &w->o->columns));
    if (w->o->owners)
        TRY(columns_need(c, COLUMNS_OWNER, &w->o->columns));
    *(c->at[COLUMNS_OWNER] < COLUMNS_MAX ? &w->owned : &w->unowned) = c->path;
    while (more) {
        struct line l = {.path = c->path};
        TRY(columns_next(c, value, &more));
        l.number = c->line;
        if (more)
            TRY(read_record(w, &l, value));
    }
    return ERR_OK;
}

static enum err read_csv(struct work *w, const char *path, const struct textfile *t)
{
    struct columns c;
    enum err e = columns_open(&c, path, t, &w->o->columns);
    e = e ? e : read_records(w, &c);
    columns_close(&c);
    return e;
}

static bool name_ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

/* A tab within a text makes two texts of it. */
static enum err check_pairs(const struct work *w)
{
    const struct line *first[2] = {NULL, NULL};
    uint64_t count[2] = {0, 0};
    for (uint64_t i = 0; i < w->count; i++) {
        const struct line *l = &w->lines[i];
        first[l->texts - 1] = first[l->texts - 1] ? first[l->texts - 1] : l;
        count[l->texts - 1]++;
    }
    if (!count[0] || !count[1])
        return ERR_OK;
    return err_set(ERR_INPUT,
                   "%llu lines have one text (the first is %s:%llu) and %llu two (%s:%llu): a set "
                   "has one or two in every line. A tab within a text makes two of it: take it "
                   "out, or give CSV",
                   (unsigned long long)count[0], first[0]->path,
                   (unsigned long long)first[0]->number, (unsigned long long)count[1],
                   first[1]->path, (unsigned long long)first[1]->number);
}

/* Empty lines are left out. */
static enum err read_lines(struct work *w, const char *const *paths)
{
    for (size_t f = 0; f < w->map_count; f++) {
        struct textfile t;
        bool csv = name_ends(paths[f], ".csv") ||
                   (w->o->csv && !name_ends(paths[f], ".tsv") && !name_ends(paths[f], ".txt"));
        TRY(textfile_open(&t, paths[f], w->maps[f].data, w->maps[f].size_bytes, NULL));
        TRY(csv ? read_csv(w, paths[f], &t) : read_tabs(w, paths[f], &t));
    }
    w->lines = (struct line *)(void *)w->all.data;
    w->count = w->all.count / sizeof *w->lines;
    w->owners = w->owned != NULL;
    if (!w->count)
        return err_set(ERR_INPUT, "%s: no labelled line", paths[0]);
    if (w->owned && w->unowned)
        return err_set(ERR_INPUT, "%s says whose each text is, and %s does not", w->owned,
                       w->unowned);
    return check_pairs(w);
}

/* ---- classes ---- */

static int compare_spans(const void *x, const void *y)
{
    const struct span *a = x, *b = y;
    size_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, n);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* The labels that occur, sorted. */
static enum err collect_classes(struct work *w)
{
    struct span *labels;
    size_t count = 0;
    TRY_ALLOC(labels = arena_array(w->a, w->count, sizeof *labels));
    for (uint64_t i = 0; i < w->count; i++)
        labels[i] = w->lines[i].label;
    qsort(labels, w->count, sizeof *labels, compare_spans);
    for (uint64_t i = 0; i < w->count; i++)
        if (!count || compare_spans(&labels[i], &labels[count - 1]))
            labels[count++] = labels[i];
    if (count > SIDECAR_CLASSES_MAX)
        return err_set(ERR_INPUT, "%s: %zu different labels, at most %d are taken",
                       w->lines[0].path, count, SIDECAR_CLASSES_MAX);
    TRY_ALLOC(w->classes = arena_array(w->a, count, sizeof *w->classes));
    w->classes_count = count;
    for (size_t i = 0; i < count; i++)
        TRY_ALLOC(w->classes[i].name = arena_string(w->a, labels[i].text, labels[i].bytes));
    return ERR_OK;
}

static enum err given_classes(struct work *w)
{
    const struct labels_options *o = w->o;
    TRY_ALLOC(w->classes = arena_array(w->a, o->classes_count, sizeof *w->classes));
    w->classes_count = o->classes_count;
    for (size_t i = 0; i < o->classes_count; i++)
        w->classes[i].name = o->classes[i];
    return ERR_OK;
}

/* Position of the label among the classes; their number: it is none. `sorted`: by their bytes. */
static size_t find_class(const struct work *w, const struct span *label, bool sorted)
{
    size_t low = 0, high = w->classes_count;
    for (size_t i = 0; !sorted && i < high; i++)
        if (!compare_spans(label, &(struct span){w->classes[i].name, strlen(w->classes[i].name)}))
            return i;
    while (sorted && low < high) {
        size_t middle = (low + high) / 2;
        const struct span name = {w->classes[middle].name, strlen(w->classes[middle].name)};
        int order = compare_spans(label, &name);
        if (!order)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return w->classes_count;
}

/* "act, animal, artifact, .." */
static const char *class_names(const struct work *w)
{
    enum { NAMES = 8 };
    const char *text = w->classes[0].name;
    for (size_t i = 1; i < w->classes_count && i < NAMES && text; i++)
        text = arena_printf(w->a, "%s, %s", text, w->classes[i].name);
    if (text && w->classes_count > NAMES)
        text = arena_printf(w->a, "%s, ..", text);
    return text ? text : "..";
}

static enum err set_classes(struct work *w)
{
    size_t used = 0;
    TRY(w->o->classes ? given_classes(w) : collect_classes(w));
    for (uint64_t i = 0; i < w->count; i++) {
        struct line *l = &w->lines[i];
        size_t class = find_class(w, &l->label, !w->o->classes);
        if (class == w->classes_count)
            return err_set(ERR_INPUT, "%s:%llu: unknown label \"%.*s\"; the %zu classes are %s",
                           l->path, (unsigned long long)l->number, (int)l->label.bytes,
                           l->label.text, w->classes_count, class_names(w));
        l->class = (int32_t) class;
        used += w->classes[class].count++ == 0;
    }
    if (used < 2 && !w->o->classes)
        return err_set(ERR_INPUT,
                       "%s:%llu: every line has the label \"%.*s\"; a task needs two (a set of one "
                       "class to evaluate: --classes-of)",
                       w->lines[0].path, (unsigned long long)w->lines[0].number,
                       (int)w->lines[0].label.bytes, w->lines[0].label.text);
    return ERR_OK;
}

/* ---- parts ---- */

/* Evenly spread within each class, which begins at another site than the one before. */
static enum err deal_classes(struct work *w)
{
    uint64_t *seen, *turn;
    TRY_ALLOC(seen = arena_array(w->a, w->classes_count, sizeof *seen));
    TRY_ALLOC(turn = arena_array(w->a, w->classes_count, sizeof *turn));
    for (uint64_t i = 0; i < w->count; i++) {
        struct line *l = &w->lines[i];
        size_t c = (size_t)l->class;
        uint64_t n = w->classes[c].count, held = (uint64_t)(w->o->held_out * (double)n + 0.5);
        uint64_t at = seen[c]++;
        bool out = (at + 1) * held / n > at * held / n;
        l->part = out ? -1 : (int64_t)((turn[c]++ + c) % w->o->sites);
    }
    return ERR_OK;
}

static enum err deal_owners(struct work *w, struct labels_report *report)
{
    struct owners_deal deal;
    struct owner *all;
    TRY_ALLOC(all = arena_array(w->a, w->count, sizeof *all));
    for (uint64_t i = 0; i < w->count; i++)
        all[i] = w->lines[i].owner;
    TRY(owners_deal(&deal, all, w->count, w->o->held_out, w->o->sites, w->a));
    for (uint64_t i = 0; i < w->count; i++)
        w->lines[i].part = owners_part(&deal, &w->lines[i].owner);
    report->owners = deal.count;
    return ERR_OK;
}

static enum err set_parts(struct work *w, struct labels_report *report)
{
    TRY_ALLOC(report->train = arena_array(w->a, w->o->sites, sizeof *report->train));
    TRY(w->owners ? deal_owners(w, report) : deal_classes(w));
    for (uint64_t i = 0; i < w->count; i++)
        if (w->lines[i].part < 0)
            report->held_out++;
        else
            report->train[w->lines[i].part]++;
    for (uint32_t site = 0; site < w->o->sites; site++)
        if (!report->train[site])
            return err_set(ERR_INPUT,
                           "%llu labelled lines are too few: site %u of %u would have none",
                           (unsigned long long)w->count, site, w->o->sites);
    return ERR_OK;
}

static enum err part_stem(const struct work *w, int64_t part, char **stem)
{
    if (part < 0)
        TRY_ALLOC(*stem = arena_printf(w->a, "%s/eval-0000", w->o->out));
    else
        TRY_ALLOC(*stem = arena_printf(w->a, "%s/train-%lld-0000", w->o->out, (long long)part));
    return ERR_OK;
}

static enum err write_line(const struct work *w, struct indexed_writer *x, const struct line *l)
{
    struct arena scratch = arena_make(0);
    enum err e = ERR_OK;
    for (size_t i = 0; !e && i < l->texts; i++) {
        int32_t *ids = NULL;
        size_t count = 0;
        e = w->o->encoder.encode(w->o->encoder.self, l->text[i].text, l->text[i].bytes, &scratch,
                                 &ids, &count);
        if (!e && !count)
            e = bad_line(l, "a text without a token");
        if (!e)
            e = indexed_sentence(x, ids, count);
    }
    arena_free(&scratch);
    return e ? e : indexed_document_end(x);
}

static enum err write_part(const struct work *w, int64_t part, uint64_t *tokens)
{
    struct indexed_writer x = {0};
    struct owner *owners;
    char *stem;
    int32_t *classes;
    uint64_t count = 0;
    TRY(part_stem(w, part, &stem));
    TRY_ALLOC(classes = arena_array(w->a, w->count, sizeof *classes));
    TRY_ALLOC(owners = arena_array(w->a, w->count, sizeof *owners));
    TRY(indexed_open(&x, stem, w->o->of.vocab));
    enum err e = ERR_OK;
    for (uint64_t i = 0; !e && i < w->count; i++) {
        if (w->lines[i].part != part)
            continue;
        owners[count] = w->lines[i].owner;
        classes[count++] = w->lines[i].class;
        e = write_line(w, &x, &w->lines[i]);
    }
    *tokens += x.tokens;
    if (!e)
        e = indexed_close(&x);
    indexed_abandon(&x);
    TRY(e);
    TRY(labels_write(stem, classes, count));
    return w->owners ? owners_write(stem, owners, count) : ERR_OK;
}

static bool is_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    bool part = false;
    for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++)
        part |= !strcmp(dot + 1, extensions[i]);
    return part && (!strncmp(name, "train-", 6) || !strncmp(name, "eval-", 5));
}

/* Shards of an earlier call would be matched by the same pattern. */
static enum err clear_place(const struct work *w, bool replace)
{
    char **names, *path;
    size_t count;
    TRY(file_mkdirs(w->o->out));
    TRY(file_list(w->o->out, w->a, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (!is_part(names[i]))
            continue;
        if (!replace)
            return err_set(ERR_INPUT,
                           "%s/%s: shards are already there; take another directory, or --force "
                           "to replace them",
                           w->o->out, names[i]);
        TRY_ALLOC(path = arena_printf(w->a, "%s/%s", w->o->out, names[i]));
        TRY(file_remove(path));
    }
    return ERR_OK;
}

static enum err write_parts(const struct work *w, struct labels_report *report)
{
    if (report->held_out)
        TRY(write_part(w, -1, &report->tokens));
    for (uint32_t site = 0; site < w->o->sites; site++)
        TRY(write_part(w, site, &report->tokens));
    report->of = w->o->of;
    report->of.tokens = report->tokens;
    report->of.documents = w->count;
    report->of.classes = w->classes;
    report->of.classes_count = w->classes_count;
    return sidecar_write(&report->of, w->o->out);
}

/* A part of a set would train without a word about what is missing. */
static enum err undo(const struct work *w, enum err e)
{
    char sentence[1024];
    snprintf(sentence, sizeof sentence, "%s", err_message());
    enum err removed = clear_place(w, true);
    (void)removed; /* the first error is the one to report */
    return err_set(e, "%s", sentence);
}

static enum err prepare(struct work *w, const char *const *paths, struct labels_report *report)
{
    for (size_t i = 0; i < w->map_count; i++)
        TRY(file_map(&w->maps[i], paths[i]));
    TRY(read_lines(w, paths));
    TRY(set_classes(w));
    TRY(set_parts(w, report));
    TRY(clear_place(w, w->o->replace));
    report->documents = w->count;
    enum err e = write_parts(w, report);
    return e ? undo(w, e) : ERR_OK;
}

enum err labels_prepare(const char *const *paths, size_t path_count, const struct labels_options *o,
                        struct arena *a, struct labels_report *report)
{
    struct work w = {.o = o, .a = a, .map_count = path_count};
    ASSERT(o->sites > 0 && o->held_out >= 0 && o->held_out <= 0.5);
    ASSERT(!o->classes || o->classes_count > 1);
    *report = (struct labels_report){0};
    if (!path_count)
        return err_set(ERR_INPUT, "no labelled text is given");
    TRY_ALLOC(w.maps = arena_array(a, path_count, sizeof *w.maps));
    enum err e = prepare(&w, paths, report);
    for (size_t i = 0; i < path_count; i++)
        file_unmap(&w.maps[i]);
    buffer_free(&w.all);
    return e;
}
