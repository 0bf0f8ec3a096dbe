/* SPDX-License-Identifier: Apache-2.0 */
/* libyaml's events, walked by a small recursive reader: document -> section -> key -> value. After
 * an error the offending node is skipped and reading continues, so that one run shows all mistakes
 * of a file.
 */
#include "inner/config/config_yaml.h"
#include <string.h>
#include <yaml.h>
#include "inner/config/textfile.h"

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; valid while `open` */
    bool open;
    bool failed; /* no event can follow: syntax error or nesting beyond the cap */
    struct arena *a;
    struct config_entries *entries;
    struct config_errors *errors;
};

static int line_of(const struct reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static enum err next(struct reader *r)
{
    if (r->open)
        yaml_event_delete(&r->event);
    r->open = false;
    if (yaml_parser_parse(&r->parser, &r->event)) {
        r->open = true;
        return ERR_OK;
    }
    r->failed = true;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return err_set(ERR_MEMORY, "not enough memory to read the configuration");
    const char *problem = r->parser.problem ? r->parser.problem : "not YAML";
    size_t line = r->parser.error == YAML_READER_ERROR ? 0 : r->parser.problem_mark.line;
    if (r->parser.error == YAML_READER_ERROR)
        return config_error(r->errors, 1, "byte %zu is not UTF-8 text (%s)",
                            r->parser.problem_offset, problem);
    return config_error(r->errors, (int)line + 1, "not valid YAML: %s%s%s", problem,
                        r->parser.context ? ", " : "", r->parser.context ? r->parser.context : "");
}

static const char *scalar(const struct reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

/* Anchors, aliases, tags: all that makes a value something other than the text that stands there.
 */
static const char *forbidden(const struct reader *r)
{
    const yaml_event_t *e = &r->event;
    if (e->type == YAML_ALIAS_EVENT)
        return "an alias (*name)";
    if (e->type == YAML_SCALAR_EVENT)
        return e->data.scalar.anchor ? "an anchor (&name)"
               : e->data.scalar.tag  ? "a tag (!name)"
                                     : NULL;
    if (e->type == YAML_SEQUENCE_START_EVENT)
        return e->data.sequence_start.anchor ? "an anchor (&name)"
               : e->data.sequence_start.tag  ? "a tag (!name)"
                                             : NULL;
    if (e->type == YAML_MAPPING_START_EVENT)
        return e->data.mapping_start.anchor ? "an anchor (&name)"
               : e->data.mapping_start.tag  ? "a tag (!name)"
                                            : NULL;
    return NULL;
}

static enum err refuse_forbidden(struct reader *r)
{
    const char *what = forbidden(r);
    if (!what)
        return ERR_OK;
    return config_error(
        r->errors, line_of(r),
        "%s is not allowed: write the value itself (a text that begins with *, & or ! "
        "goes in quotes)",
        what);
}

/* Skips the current node; the current event becomes the one after it. */
static enum err skip(struct reader *r)
{
    int depth = 0;
    do {
        if (depth > CONFIG_DEPTH_MAX) {
            r->failed = true;
            return config_error(r->errors, line_of(r), "nested more than %d deep",
                                CONFIG_DEPTH_MAX);
        }
        yaml_event_type_t t = r->event.type;
        if (t == YAML_MAPPING_START_EVENT || t == YAML_SEQUENCE_START_EVENT)
            depth++;
        if (t == YAML_MAPPING_END_EVENT || t == YAML_SEQUENCE_END_EVENT)
            depth--;
        TRY(next(r));
    } while (depth > 0 && !r->failed);
    return ERR_OK;
}

static enum err item_add(struct config_list *list, size_t *capacity, struct arena *a,
                         const char *text)
{
    if (list->count == *capacity) {
        size_t larger = *capacity ? 2 * *capacity : 4;
        const char **items;
        TRY_ALLOC(items = arena_array(a, larger, sizeof *items));
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        *capacity = larger;
    }
    TRY_ALLOC(list->items[list->count] = arena_string(a, text, strlen(text)));
    list->count++;
    return ERR_OK;
}

/* A NUL inside a scalar ("\0" in quotes) would cut the text short unnoticed. */
static enum err scalar_take(struct reader *r, struct config_list *list, size_t *capacity)
{
    TRY(refuse_forbidden(r));
    if (strlen(scalar(r)) != r->event.data.scalar.length)
        TRY(config_error(r->errors, line_of(r), "a value holds a zero byte"));
    return item_add(list, capacity, r->a, scalar(r));
}

/* ---- a list of maps ---- */
enum { FIELDS_MAX = 16 };
struct fields { /* one entry each, "KEY.FIELD" */
    struct config_entry entries[FIELDS_MAX];
    size_t capacities[FIELDS_MAX], count;
};

static enum err field_of(struct reader *r, struct fields *f, const char *key, int line, size_t *at)
{
    char *full;
    TRY_ALLOC(full = arena_printf(r->a, "%s.%s", key, scalar(r)));
    *at = 0;
    while (*at < f->count && strcmp(f->entries[*at].key, full) != 0)
        ++*at;
    if (*at == FIELDS_MAX)
        return config_error(r->errors, line_of(r), "%s: more than %d fields", key, FIELDS_MAX);
    if (*at == f->count)
        f->entries[f->count++] = (struct config_entry){.key = full, .line = line, .list = true};
    return ERR_OK;
}

/* Earlier maps without the field have "" there. */
static enum err fill(struct reader *r, struct fields *f, size_t at, size_t items)
{
    while (f->entries[at].values.count < items)
        TRY(item_add(&f->entries[at].values, &f->capacities[at], r->a, ""));
    return ERR_OK;
}

static enum err field_read(struct reader *r, struct fields *f, const char *key, size_t item)
{
    size_t at = FIELDS_MAX;
    int line = line_of(r);
    TRY(refuse_forbidden(r));
    TRY(field_of(r, f, key, line, &at));
    TRY(next(r));
    if (r->failed)
        return ERR_OK;
    if (at == FIELDS_MAX || r->event.type != YAML_SCALAR_EVENT) {
        TRY(config_error(r->errors, line, "%s: the fields of its maps hold plain values only",
                         key));
        return skip(r);
    }
    if (f->entries[at].values.count > item)
        TRY(config_error(r->errors, line, "%s is here a second time in one map",
                         f->entries[at].key));
    TRY(fill(r, f, at, item));
    TRY(scalar_take(r, &f->entries[at].values, &f->capacities[at]));
    return next(r);
}

static enum err map_read(struct reader *r, struct fields *f, const char *key, size_t item)
{
    TRY(refuse_forbidden(r));
    TRY(next(r));
    while (!r->failed && r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type == YAML_SCALAR_EVENT) {
            TRY(field_read(r, f, key, item));
            continue;
        }
        TRY(config_error(r->errors, line_of(r), "%s: a key of its maps is not plain text", key));
        TRY(skip(r));
        if (!r->failed)
            TRY(skip(r));
    }
    return r->failed ? ERR_OK : next(r);
}

static enum err maps_read(struct reader *r, const char *key)
{
    struct fields f = {.count = 0};
    size_t items = 0;
    while (!r->failed && r->event.type != YAML_SEQUENCE_END_EVENT) {
        if (r->event.type == YAML_MAPPING_START_EVENT)
            TRY(map_read(r, &f, key, items++));
        else {
            TRY(config_error(r->errors, line_of(r), "%s: all items of a list are maps, or none is",
                             key));
            TRY(skip(r));
        }
    }
    for (size_t i = 0; i < f.count; i++) {
        TRY(fill(r, &f, i, items));
        TRY(config_entry_add(r->entries, r->a, f.entries[i]));
    }
    return r->failed ? ERR_OK : next(r);
}

static enum err list_read(struct reader *r, struct config_entry *entry)
{
    size_t capacity = 0;
    entry->list = true;
    TRY(refuse_forbidden(r));
    TRY(next(r));
    while (!r->failed && r->event.type != YAML_SEQUENCE_END_EVENT) {
        if (r->event.type == YAML_SCALAR_EVENT) {
            TRY(scalar_take(r, &entry->values, &capacity));
            TRY(next(r));
        } else if (r->event.type == YAML_MAPPING_START_EVENT && !entry->values.count) {
            return maps_read(r, entry->key);
        } else {
            TRY(config_error(r->errors, line_of(r),
                             r->event.type == YAML_MAPPING_START_EVENT
                                 ? "%s: all items of a list are maps, or none is"
                                 : "%s: a list holds plain values only",
                             entry->key));
            TRY(skip(r));
        }
    }
    return r->failed ? ERR_OK : next(r);
}

static enum err member_read(struct reader *r, struct config_entry *entry, size_t *capacity)
{
    const char *name;
    char *item;
    TRY(refuse_forbidden(r));
    TRY_ALLOC(name = arena_string(r->a, scalar(r), strlen(scalar(r))));
    TRY(next(r));
    if (r->failed)
        return ERR_OK;
    if (r->event.type != YAML_SCALAR_EVENT) {
        TRY(config_error(r->errors, line_of(r), "%s.%s: a plain value is needed here", entry->key,
                         name));
        return skip(r);
    }
    TRY(refuse_forbidden(r));
    TRY_ALLOC(item = arena_printf(r->a, "%s=%s", name, scalar(r)));
    TRY(item_add(&entry->values, capacity, r->a, item));
    return next(r);
}

/* One map as a value. Which keys take one, and with which names, is config.c's. */
static enum err members_read(struct reader *r, struct config_entry *entry)
{
    size_t capacity = 0;
    entry->list = entry->map = true;
    TRY(refuse_forbidden(r));
    TRY(next(r));
    while (!r->failed && r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type == YAML_SCALAR_EVENT) {
            TRY(member_read(r, entry, &capacity));
            continue;
        }
        TRY(config_error(r->errors, line_of(r), "%s: a name in its map is not plain text",
                         entry->key));
        TRY(skip(r));
        if (!r->failed)
            TRY(skip(r));
    }
    return r->failed ? ERR_OK : next(r);
}

static enum err value_read(struct reader *r, struct config_entry *entry)
{
    size_t capacity = 0;
    if (r->event.type == YAML_SCALAR_EVENT) {
        TRY(scalar_take(r, &entry->values, &capacity));
        TRY(next(r));
        return config_entry_add(r->entries, r->a, *entry);
    }
    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        size_t entries = r->entries->count;
        TRY(list_read(r, entry));
        return r->entries->count == entries ? config_entry_add(r->entries, r->a, *entry) : ERR_OK;
    }
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        TRY(members_read(r, entry));
        return config_entry_add(r->entries, r->a, *entry);
    }
    TRY(refuse_forbidden(r));
    return skip(r);
}

/* Calls for each key of the mapping whose start is the current event; ends after the mapping. */
static enum err section_read(struct reader *r, const char *section)
{
    TRY(refuse_forbidden(r));
    TRY(next(r));
    while (!r->failed && r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT) {
            TRY(config_error(r->errors, line_of(r), "a key of section %s is not plain text",
                             section));
            TRY(skip(r));
            if (!r->failed)
                TRY(skip(r));
            continue;
        }
        struct config_entry entry = {.line = line_of(r)};
        TRY(refuse_forbidden(r));
        TRY_ALLOC(entry.key = arena_printf(r->a, "%s.%s", section, scalar(r)));
        TRY(next(r));
        if (!r->failed)
            TRY(value_read(r, &entry));
    }
    return r->failed ? ERR_OK : next(r);
}

static bool empty(const struct reader *r)
{
    return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0 &&
           r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static enum err section_value(struct reader *r, const char *section)
{
    if (r->event.type == YAML_MAPPING_START_EVENT)
        return section_read(r, section);
    if (!empty(r))
        TRY(config_error(r->errors, line_of(r),
                         "%s is not a section: keys stand in sections, as in\n"
                         "    train:\n        steps: 400",
                         section));
    return skip(r);
}

struct seen {
    const char *name;
    int line;
    struct seen *next;
};

static enum err section_once(struct reader *r, struct seen **sections, const char *name)
{
    for (struct seen *s = *sections; s; s = s->next)
        if (!strcmp(s->name, name))
            return config_error(r->errors, line_of(r),
                                "section %s is here a second time, first on line %d: "
                                "put its keys together",
                                name, s->line);
    struct seen *s;
    TRY_ALLOC(s = arena_alloc(r->a, sizeof *s));
    *s = (struct seen){.name = name, .line = line_of(r), .next = *sections};
    *sections = s;
    return ERR_OK;
}

static enum err root_read(struct reader *r)
{
    struct seen *sections = NULL;
    if (r->event.type != YAML_MAPPING_START_EVENT) {
        if (!empty(r))
            TRY(config_error(r->errors, line_of(r), "the file does not hold sections of keys"));
        return skip(r);
    }
    TRY(refuse_forbidden(r));
    TRY(next(r));
    while (!r->failed && r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT) {
            TRY(config_error(r->errors, line_of(r), "the name of a section is not plain text"));
            TRY(skip(r));
            if (!r->failed)
                TRY(skip(r));
            continue;
        }
        char *name;
        TRY(refuse_forbidden(r));
        TRY_ALLOC(name = arena_string(r->a, scalar(r), strlen(scalar(r))));
        TRY(section_once(r, &sections, name));
        TRY(next(r));
        if (!r->failed)
            TRY(section_value(r, name));
    }
    return r->failed ? ERR_OK : next(r);
}

static enum err stream_read(struct reader *r)
{
    int documents = 0;
    while (!r->failed && (!r->open || r->event.type != YAML_STREAM_END_EVENT)) {
        if (!r->open || r->event.type != YAML_DOCUMENT_START_EVENT) {
            TRY(next(r)); /* stream start, document end */
            continue;
        }
        if (++documents > 1)
            return config_error(r->errors, line_of(r),
                                "a second document (---): one file is one document");
        TRY(next(r));
        if (!r->failed)
            TRY(root_read(r));
    }
    return ERR_OK;
}

static enum err refuse_tabs(const char *text, size_t size_bytes, struct config_errors *errors)
{
    int line = 1;
    for (size_t i = 0; i < size_bytes; i++) {
        line += text[i] == '\n';
        if (text[i] == '\t')
            return config_error(errors, line,
                                "a tab; YAML indents with blanks, so use blanks everywhere");
    }
    return ERR_OK;
}

enum err config_yaml(const char *text, size_t size_bytes, struct arena *a,
                     struct config_entries *entries, struct config_errors *errors)
{
    size_t before = errors->count;
    struct textfile t;
    TRY(textfile_open(&t, errors->path ? errors->path : "the configuration", text, size_bytes,
                      NULL));
    text = t.text;
    size_bytes = t.size_bytes;
    TRY(refuse_tabs(text, size_bytes, errors));
    if (errors->count != before)
        return ERR_OK; /* libyaml would report the same tab again, less clearly */
    struct reader r = {.a = a, .entries = entries, .errors = errors};
    if (!yaml_parser_initialize(&r.parser))
        return err_set(ERR_MEMORY, "not enough memory to read the configuration");
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size_bytes);
    enum err e = stream_read(&r);
    if (r.open)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return e;
}
