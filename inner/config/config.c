/* SPDX-License-Identifier: Apache-2.0 */
/* The mechanism of config.h: entries (defaults, file, command line) are looked up in the key
 * tables, given their type, checked and stored. How a file is read: config_yaml.c. Which keys
 * exist: keys.h of inner and outer.
 *
 * Text forms. BOOL: true, yes, on; false, no, off. INT: decimal digits, or an exponent form whose
 * value is whole (1e6). REAL: decimal or exponent. No 1_000, no hexadecimal, no inf or nan. LIST: a
 * YAML list, or one text with commas, where "a, b" in quotes is one item.
 */
#include "inner/config/config.h"
#include <stdio.h>
#include <string.h>
#include "inner/config/config_yaml.h"
#include "kernels/base/nearest.h"
#include "kernels/base/file.h"
#include "kernels/base/number.h"
#include "kernels/base/plain.h"

struct loading {
    const struct config_table *tables;
    size_t table_count;
    struct arena *a;
    struct config_errors errors;
    enum config_names names;
};
struct place { /* a key of one of the tables */
    const struct config_table *table;
    const struct config_key *key;
};

/* ---- looking up ---- */

const char *config_key_name(const struct config_key *k, enum config_names names)
{
    return names == CONFIG_RECORDED && k->recorded ? k->recorded : k->name;
}

const char *config_key_old(const struct config_key *k)
{
    return k->recorded ? k->recorded : k->formerly;
}

/* full: "section.name". */
static bool named(const struct config_key *k, const char *name, const char *full)
{
    size_t n = strlen(k->section);
    return name && !strncmp(full, k->section, n) && full[n] == '.' && !strcmp(full + n + 1, name);
}

static struct place find_as(const struct loading *l, const char *full, enum config_names names)
{
    for (size_t t = 0; t < l->table_count; t++)
        for (size_t i = 0; i < l->tables[t].count; i++) {
            const struct config_key *k = &l->tables[t].keys[i];
            if (named(k, config_key_name(k, names), full) || named(k, k->field, full))
                return (struct place){&l->tables[t], k};
        }
    return (struct place){NULL, NULL};
}

static struct place find(const struct loading *l, const char *full)
{
    return find_as(l, full, l->names);
}

/* Of a file; programs of before wrote recorded names into theirs. */
static struct place find_in_file(const struct loading *l, const char *full)
{
    struct place p = find(l, full), old = {NULL, NULL};
    if (!p.key)
        old = find_as(l, full, CONFIG_RECORDED);
    return old.key && old.table->written ? old : p;
}

/* The right name in the wrong section (model.lr) is nearer than any other spelling. */
static unsigned distance_of(const struct config_key *k, const char *own, const char *full)
{
    char name[128];
    const char *dot = strchr(full, '.');
    if (dot && !strcmp(dot + 1, own))
        return nearest_edits(full, k->section) > 0; /* 1: section differs */
    bool map = k->field && dot && strchr(dot + 1, '.');
    snprintf(name, sizeof name, "%s.%s", k->section, map ? k->field : own);
    return 1 + nearest_edits(full, name);
}

/* A misspelt former name is near, too. */
static unsigned distance(const struct config_key *k, const char *full)
{
    const char *old = config_key_old(k);
    unsigned d = distance_of(k, k->name, full), before = old ? 1 + distance_of(k, old, full) : d;
    return before < d ? before : d;
}

/* NULL: none is near. */
static const struct config_key *nearest(const struct loading *l, const char *full)
{
    const struct config_key *best = NULL;
    unsigned least = ~0u;
    for (size_t t = 0; t < l->table_count; t++)
        for (size_t i = 0; i < l->tables[t].count; i++) {
            unsigned d = distance(&l->tables[t].keys[i], full);
            if (d < least) {
                least = d;
                best = &l->tables[t].keys[i];
            }
        }
    return least <= 1 + strlen(full) / 2 ? best : NULL; /* rtt is rtt_ms */
}

void config_nearest(const struct config_table *tables, size_t table_count, const char *word,
                    char *name, size_t size, unsigned *edits)
{
    *edits = ~0u;
    for (size_t t = 0; t < table_count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct config_key *k = &tables[t].keys[i];
            unsigned d = nearest_edits(word, k->name);
            if (d >= *edits)
                continue;
            *edits = d;
            snprintf(name, size, "%s.%s", k->section, k->name);
        }
}

const struct config_key *config_key_renamed(const struct config_table *tables, size_t table_count,
                                            const char *old)
{
    for (size_t t = 0; t < table_count; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (named(&tables[t].keys[i], config_key_old(&tables[t].keys[i]), old))
                return &tables[t].keys[i];
    return NULL;
}

static enum err unknown(struct loading *l, const char *full, int line)
{
    const struct config_key *r = config_key_renamed(l->tables, l->table_count, full);
    for (size_t t = 0; t < l->table_count; t++) {
        const struct config_elsewhere *e = l->tables[t].elsewhere;
        size_t n = e ? strlen(e->section) : 0;
        if (e && !strncmp(full, e->section, n) && full[n] == '.')
            return config_error(&l->errors, line, "%.100s is no setting: %s", full, e->why);
    }
    if (r)
        return config_error(&l->errors, line, "%s is now named %s.%s", full, r->section, r->name);
    const struct config_key *k = nearest(l, full);
    if (!k)
        return config_error(&l->errors, line, "unknown key %.100s", full);
    const char *dot = strchr(full, '.');
    bool map = k->field && dot && strchr(dot + 1, '.');
    return config_error(&l->errors, line, "unknown key %.100s; the nearest is %s.%s", full,
                        k->section, map ? k->field : k->name);
}

/* ---- values ---- */

static bool word_in(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    *out = word_in(text, yes, 3);
    return *out || word_in(text, no, 3);
}

const char *config_choice_name(const struct config_choice *choices, unsigned value)
{
    while (choices->name && (unsigned)choices->value != value)
        choices++;
    ASSERT(choices->name);
    return choices->name;
}

/* "f32|bf16|auto" */
static enum err choices_text(const struct config_choice *choices, struct arena *a, char **text)
{
    TRY_ALLOC(*text = arena_printf(a, "%s", choices->name));
    for (choices++; choices->name; choices++)
        TRY_ALLOC(*text = arena_printf(a, "%s|%s", *text, choices->name));
    return ERR_OK;
}

static bool printable(const char *s)
{
    for (; *s; s += plain_length(s))
        if (plain_control(s))
            return false;
    return true;
}

/* The item that begins at *s, with quotes: "a, b.bin" has a comma, and "" in it is one ". *s moves
 * after it. False: the quote is not closed, or more follows it than blanks. */
static bool quoted_item(const char **s, struct arena *a, char **item)
{
    const char *from = *s + 1;
    char *to = *item = arena_string(a, from, strlen(from));
    for (; to && *from && (*from != '"' || from[1] == '"'); from++) {
        *to++ = *from;
        from += *from == '"';
    }
    if (!to || *from != '"')
        return !to;
    *to = 0;
    from += 1 + strspn(from + 1, " ");
    *s = from + (*from == ',');
    return *from == ',' || !*from;
}

/* Of a text with commas; blanks around an item and empty items are left out. */
static enum err split_commas(struct loading *l, const struct config_key *k, const char *text,
                             int line, struct config_list *list)
{
    size_t most = 1;
    for (const char *s = text; *s; s++)
        most += *s == ',';
    *list = (struct config_list){0};
    TRY_ALLOC(list->items = arena_array(l->a, most, sizeof *list->items));
    for (const char *s = text; *(s += strspn(s, " "));) {
        size_t n = strcspn(s, ","), next = n + (s[n] == ',');
        char *item = NULL;
        if (*s == '"') {
            if (!quoted_item(&s, l->a, &item))
                return config_error(
                    &l->errors, line,
                    "%s.%s: a quote is not closed, or text follows it: %.100s; "
                    "\"a,b.bin\" is an item with a comma, and \"\" in it is a quote",
                    k->section, k->name, text);
            TRY_ALLOC(list->items[list->count++] = item);
            continue;
        }
        while (n && s[n - 1] == ' ')
            n--;
        if (n)
            TRY_ALLOC(list->items[list->count++] = arena_string(l->a, s, n));
        s += next;
    }
    return ERR_OK;
}

static enum err store_number(struct loading *l, const struct config_key *k, void *field,
                             const char *text, int line)
{
    const char *kind = k->type == CONFIG_INT ? "a whole number" : "a number";
    double value = 0;
    int64_t whole = 0;
    enum number_kind read = number_read(text, &value);
    bool ok = k->type == CONFIG_INT ? number_read_whole(text, &whole) : read >= NUMBER_REAL;
    if (read == NUMBER_OUT_OF_RANGE)
        return config_error(&l->errors, line,
                            "%s.%s = \"%.100s\" is out of range: the smallest number above 0 is "
                            "1.2e-38, the largest %.16g",
                            k->section, k->name, text, k->max);
    if (k->type == CONFIG_INT)
        value = (double)whole;
    if (!ok || !(value >= k->min && value <= k->max))
        return config_error(&l->errors, line,
                            "%s.%s = \"%.100s\": allowed is %s from %.16g to %.16g%s%s", k->section,
                            k->name, text, kind, k->min, k->max, k->unit ? " " : "",
                            k->unit ? k->unit : "");
    if (k->type == CONFIG_INT)
        *(int64_t *)field = whole;
    else
        *(double *)field = value;
    return ERR_OK;
}

static enum err store_text(struct loading *l, const struct config_key *k, const char **field,
                           const char *text, int line)
{
    if (!printable(text))
        return config_error(
            &l->errors, line,
            "%s.%s holds a line break, another control character or a byte that is no UTF-8",
            k->section, k->name);
    TRY_ALLOC(*field = arena_string(l->a, text, strlen(text)));
    return ERR_OK;
}

size_t config_member_count(const struct config_key *k)
{
    size_t members = k->members != NULL;
    for (const char *s = k->members; s && *s; s++)
        members += *s == ' ';
    return members;
}

/* The place of a member's name among k->members, and what follows the name's "="; -1: none. */
static int member_of(const struct config_key *k, const char *item, const char **value)
{
    size_t n = strcspn(item, "=");
    int place = 0;
    for (const char *s = k->members; *s; s += strspn(s, " "), place++) {
        size_t length = strcspn(s, " ");
        if (item[n] && length == n && !strncmp(s, item, n)) {
            *value = item + n + 1;
            return place;
        }
        s += length;
    }
    return -1;
}

/* Items "name=value" become the values in the order of the recorded list. */
static enum err order_members(struct loading *l, const struct config_key *k,
                              struct config_list *list, int line)
{
    struct config_list ordered = {.count = config_member_count(k)};
    bool named = false;
    for (size_t i = 0; i < list->count; i++)
        named = named || strchr(list->items[i], '=');
    if (!named)
        return ERR_OK;
    TRY_ALLOC(ordered.items = arena_array(l->a, ordered.count, sizeof *ordered.items));
    bool good = list->count == ordered.count;
    for (size_t i = 0; i < list->count && good; i++) {
        const char *value;
        int place = member_of(k, list->items[i], &value);
        good = place >= 0 && !ordered.items[place];
        if (good)
            ordered.items[place] = value;
    }
    if (!good)
        return config_error(&l->errors, line, "%s.%s is a map with these names, each once: %s",
                            k->section, k->name, k->members);
    *list = ordered;
    return ERR_OK;
}

static enum err store_list(struct loading *l, const struct config_key *k, struct config_list *field,
                           const struct config_entry *entry)
{
    for (size_t i = 0; i < entry->values.count; i++)
        if (!printable(entry->values.items[i]))
            return config_error(
                &l->errors, entry->line,
                "%s.%s holds a line break, another control character or a byte that is no UTF-8",
                k->section, k->name);
    if (entry->list)
        *field = entry->values;
    else
        TRY(split_commas(l, k, entry->values.items[0], entry->line, field));
    return k->members ? order_members(l, k, field, entry->line) : ERR_OK;
}

const char *config_choice_text(const struct config_choice *c, enum config_names names)
{
    return names == CONFIG_RECORDED && c->recorded ? c->recorded : c->name;
}

static const struct config_choice *choice_find(const struct config_choice *c, const char *text,
                                               enum config_names names)
{
    while (c->name && strcmp(config_choice_text(c, names), text))
        c++;
    return c->name ? c : NULL;
}

static enum err store_choice(struct loading *l, const struct config_key *k, void *field,
                             const char *text, int line)
{
    const struct config_choice *c = choice_find(k->choices, text, l->names),
                               *old = choice_find(k->choices, text, CONFIG_RECORDED);
    char *allowed;
    if (c) {
        memcpy(field, &c->value, sizeof c->value); /* an enum */
        return ERR_OK;
    }
    if (old)
        return config_error(&l->errors, line, "%s.%s = \"%s\" is now named %s", k->section, k->name,
                            text, old->name);
    TRY(choices_text(k->choices, l->a, &allowed));
    return config_error(&l->errors, line, "%s.%s = \"%.100s\": allowed is %s", k->section, k->name,
                        text, allowed);
}

static enum err store(struct loading *l, struct place p, const struct config_entry *entry)
{
    const struct config_key *k = p.key;
    void *field = (char *)p.table->values + k->offset;
    if (entry->map && !k->members)
        return config_error(&l->errors, entry->line,
                            "%s.%s holds further keys; settings are two deep: section, key",
                            k->section, k->name);
    if (k->type == CONFIG_LIST)
        return store_list(l, k, field, entry);
    if (entry->list)
        return config_error(&l->errors, entry->line, "%s.%s takes one value, not a list",
                            k->section, k->name);
    const char *text = entry->values.items[0];
    switch (k->type) {
    case CONFIG_INT:
    case CONFIG_REAL:
        return store_number(l, k, field, text, entry->line);
    case CONFIG_BOOL:
        if (!parse_bool(text, field))
            return config_error(&l->errors, entry->line,
                                "%s.%s = \"%.100s\": allowed is true or false", k->section, k->name,
                                text);
        return ERR_OK;
    case CONFIG_CHOICE:
        return store_choice(l, k, field, text, entry->line);
    default:
        ASSERT(k->type == CONFIG_TEXT);
        return store_text(l, k, field, text, entry->line);
    }
}

/* ---- loading ---- */

/* In typed names. */
static enum err load_defaults(struct loading *l)
{
    for (size_t t = 0; t < l->table_count; t++)
        for (size_t i = 0; i < l->tables[t].count; i++) {
            const struct config_key *k = &l->tables[t].keys[i];
            if (!k->fallback || l->tables[t].keep)
                continue;
            struct config_entry entry = {
                .values = {.items = (const char *[]){k->fallback}, .count = 1}};
            TRY(store(l, (struct place){&l->tables[t], k}, &entry));
        }
    ASSERT(l->errors.count == 0); /* a default that its own key refuses */
    return ERR_OK;
}

static const struct config_entry *first_of(const struct config_entries *entries, size_t end,
                                           const char *key)
{
    for (size_t i = 0; i < end; i++)
        if (!strcmp(entries->items[i].key, key))
            return &entries->items[i];
    return NULL;
}

/* The entry before entry i that sets the same key, perhaps as a field of maps. */
static const struct config_entry *before(const struct loading *l,
                                         const struct config_entries *entries, size_t i)
{
    const struct config_key *key = find_in_file(l, entries->items[i].key).key;
    const struct config_entry *same = first_of(entries, i, entries->items[i].key);
    for (size_t k = 0; key && (key->field || key->recorded) && k < i && !same; k++)
        if (find_in_file(l, entries->items[k].key).key == key)
            same = &entries->items[k];
    return same;
}

static enum err apply_file(struct loading *l, const struct config_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        const struct config_entry *entry = &entries->items[i], *first = before(l, entries, i);
        struct place p = find_in_file(l, entry->key);
        if (first)
            TRY(config_error(&l->errors, entry->line, "%s is here a second time, first on line %d",
                             entry->key, first->line));
        else if (!p.key)
            TRY(unknown(l, entry->key, entry->line));
        else
            TRY(store(l, p, entry));
    }
    return ERR_OK;
}

/* One argument or two; *used says how many. Of a key given twice the last one counts, as shells'
 * "$@" expects. */
static enum err apply_argument(struct loading *l, int argc, char **argv, int *used)
{
    *used = 1;
    const char *arg = argv[0];
    if (strncmp(arg, "--", 2) || !strchr(arg, '.'))
        return config_error(&l->errors, 0, "\"%.100s\" is not of the form --section.key value",
                            arg);
    const char *equals = strchr(arg, '='), *value = equals ? equals + 1 : NULL;
    char *key;
    TRY_ALLOC(
        key = arena_string(l->a, arg + 2, equals ? (size_t)(equals - arg - 2) : strlen(arg + 2)));
    if (!value && argc > 1 && strncmp(argv[1], "--", 2)) {
        value = argv[1];
        *used = 2;
    }
    struct place p = find(l, key);
    if (!p.key)
        return unknown(l, key, 0);
    if (!value)
        return config_error(&l->errors, 0, "--%s needs a value", key);
    struct config_entry entry = {.key = key, .values = {.items = &value, .count = 1}};
    return store(l, p, &entry);
}

struct config_given { /* which keys the file and the arguments name */
    const struct config_entries *entries;
    int argc;
    char **argv;
};

static bool config_is_given(const struct config_given *g, const char *key)
{
    size_t n = strlen(key);
    bool given = first_of(g->entries, g->entries->count, key) != NULL;
    for (int i = 0; i < g->argc && !given; i++)
        given = !strncmp(g->argv[i], "--", 2) && !strncmp(g->argv[i] + 2, key, n) &&
                (!g->argv[i][n + 2] || g->argv[i][n + 2] == '=');
    return given;
}

static enum err check_given(struct loading *l, const struct config_given *g)
{
    for (size_t t = 0; t < l->table_count; t++)
        for (size_t i = 0; i < l->tables[t].count; i++) {
            const struct config_key *k = &l->tables[t].keys[i];
            char *key;
            if (k->fallback || l->tables[t].keep)
                continue;
            TRY_ALLOC(key = arena_printf(l->a, "%s.%s", k->section, k->name));
            if (!config_is_given(g, key))
                TRY(config_error(&l->errors, 0, "%s must be given, in the file or as --%s: %s", key,
                                 key, k->help));
        }
    return ERR_OK;
}

enum err config_load_text(const struct config_table *tables, size_t table_count,
                          const struct config_text *text, int argc, char **argv, struct arena *a)
{
    struct loading l = {.tables = tables,
                        .table_count = table_count,
                        .a = a,
                        .errors = {.a = a, .path = text->name}};
    struct config_entries entries = {0};
    l.names = CONFIG_TYPED;
    TRY(load_defaults(&l));
    l.names = text->names;
    if (text->text)
        TRY(config_yaml(text->text, text->size_bytes, a, &entries, &l.errors));
    TRY(apply_file(&l, &entries));
    l.names = CONFIG_TYPED;
    for (int i = 0, used; i < argc; i += used)
        TRY(apply_argument(&l, argc - i, argv + i, &used));
    const struct config_given given = {&entries, argc, argv};
    TRY(check_given(&l, &given));
    return config_errors_report(&l.errors);
}

enum err config_set(const struct config_table *tables, size_t table_count, enum config_names names,
                    const char *key, const char *value, struct arena *a)
{
    struct loading l = {.tables = tables,
                        .table_count = table_count,
                        .a = a,
                        .errors = {.a = a, .path = "", .plain = true},
                        .names = names};
    struct config_entry entry = {.key = key, .values = {.items = &value, .count = 1}};
    struct place p = find(&l, key);
    TRY(p.key ? store(&l, p, &entry) : unknown(&l, key, 0));
    return config_errors_report(&l.errors);
}

const struct config_key *config_key_find(const struct config_table *tables, size_t table_count,
                                         enum config_names names, const char *key)
{
    const struct loading l = {.tables = tables, .table_count = table_count, .names = names};
    return find(&l, key).key;
}

enum err config_load(const struct config_table *tables, size_t table_count, const char *path,
                     int argc, char **argv, struct arena *a)
{
    uint8_t *text = NULL;
    size_t size_bytes = 0;
    enum err e = path ? file_read_input(path, CONFIG_FILE_MAX, a, &text, &size_bytes) : ERR_OK;
    if (e)
        return err_add(e, "configuration: ");
    const char *name = path && strcmp(path, "-") == 0 ? "standard input" : path;
    const struct config_text file = {name, (const char *)text, size_bytes, CONFIG_TYPED};
    return config_load_text(tables, table_count, &file, argc, argv, a);
}
