/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as text: resolved YAML, the canonical text that sites compare, and the reference page.
 * The text of a value reads back to the same value, and equal values have equal texts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/config/config.h"
#include "kernels/base/nearest.h"

struct out { /* a string that grows in an arena */
    struct arena *a;
    char *text;
    size_t length, capacity;
    const char *section; /* whose name was printed last; config_print_differing */
    enum config_names names;
    config_amendable *amendable; /* of the reference page; NULL: without */
};

static enum err put(struct out *o, const char *s, size_t n)
{
    if (o->length + n + 1 > o->capacity) {
        size_t larger = 2 * (o->length + n + 1) + 4096;
        char *text;
        TRY_ALLOC(text = arena_alloc(o->a, larger));
        if (o->length)
            memcpy(text, o->text, o->length);
        o->text = text;
        o->capacity = larger;
    }
    memcpy(o->text + o->length, s, n);
    o->length += n;
    o->text[o->length] = '\0';
    return ERR_OK;
}

static enum err puts_to(struct out *o, const char *s)
{
    return put(o, s, strlen(s));
}

/* Plain where YAML reads it back as it stands, else single quotes, doubled inside. */
static enum err put_scalar(struct out *o, const char *s)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (*s && *s != '-' && s[strspn(s, plain)] == '\0')
        return puts_to(o, s);
    TRY(puts_to(o, "'"));
    for (; *s; s++)
        TRY(put(o, *s == '\'' ? "''" : s, *s == '\'' ? 2 : 1));
    return puts_to(o, "'");
}

static bool is_map(const struct config_key *k, const struct config_list *list)
{
    return k->members && config_member_count(k) == list->count;
}

/* {rounds: 10, factor: 2, most: 40} */
static enum err put_members(struct out *o, const char *members, const struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t n = strcspn(members, " ");
        TRY(puts_to(o, i ? ", " : "{"));
        TRY(put(o, members, n));
        TRY(puts_to(o, ": "));
        TRY(put_scalar(o, list->items[i]));
        members += n + (members[n] == ' ');
    }
    return puts_to(o, "}");
}

static enum err put_list(struct out *o, const struct config_list *list)
{
    TRY(puts_to(o, "["));
    for (size_t i = 0; i < list->count; i++) {
        TRY(puts_to(o, i ? ", " : ""));
        TRY(put_scalar(o, list->items[i]));
    }
    return puts_to(o, "]");
}

/* The shortest decimal that reads back to the same double; from 6 digits on, so that 900 is not
 * 9e+02. */
static enum err put_real(struct out *o, double v)
{
    char text[40];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return puts_to(o, text);
}

static const char *choice_name(const struct config_key *k, const void *field,
                               enum config_names names)
{
    const struct config_choice *c = k->choices;
    unsigned value;
    memcpy(&value, field, sizeof value); /* an enum */
    while ((unsigned)c->value != value)
        c++;
    return config_choice_text(c, names);
}

static enum err put_value(struct out *o, const struct config_table *t, const struct config_key *k)
{
    const void *field = (const char *)t->values + k->offset;
    char text[32];
    switch (k->type) {
    case CONFIG_BOOL:
        return puts_to(o, *(const bool *)field ? "true" : "false");
    case CONFIG_INT:
        snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)field);
        return puts_to(o, text);
    case CONFIG_REAL:
        return put_real(o, *(const double *)field);
    case CONFIG_LIST:
        if (o->names == CONFIG_TYPED && is_map(k, field))
            return put_members(o, k->members, field);
        return put_list(o, field);
    case CONFIG_CHOICE:
        return put_scalar(o, choice_name(k, field, o->names));
    default:
        return put_scalar(o, *(const char *const *)field);
    }
}

/* Whether a value is what its default means. */
static bool is_default(const struct config_table *t, const struct config_key *k)
{
    const void *field = (const char *)t->values + k->offset;
    if (!k->fallback)
        return false;
    switch (k->type) {
    case CONFIG_BOOL: /* defaults in the tables are spelled true or false */
        return *(const bool *)field == !strcmp(k->fallback, "true");
    case CONFIG_INT:
        return (double)*(const int64_t *)field == strtod(k->fallback, NULL);
    case CONFIG_REAL:
        return *(const double *)field == strtod(k->fallback, NULL);
    case CONFIG_LIST:
        return ((const struct config_list *)field)->count == 0 && !*k->fallback;
    case CONFIG_CHOICE:
        return !strcmp(choice_name(k, field, CONFIG_TYPED), k->fallback);
    default:
        return !strcmp(*(const char *const *)field, k->fallback);
    }
}

bool config_section_first(const struct config_table *tables, size_t t, size_t i)
{
    const char *section = tables[t].keys[i].section;
    for (size_t u = 0; u <= t; u++)
        for (size_t j = 0; j < (u == t ? i : tables[u].count); j++)
            if (!strcmp(tables[u].keys[j].section, section))
                return false;
    return true;
}

/* Visits all keys, section by section, though one section may be spread over several tables. */
typedef enum err visit_key(struct out *o, const struct config_table *t, const struct config_key *k);

static enum err each_key(struct out *o, const struct config_table *tables, size_t count,
                         visit_key *section, visit_key *key)
{
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            if (!config_section_first(tables, t, i))
                continue;
            const char *name = tables[t].keys[i].section;
            TRY(section(o, &tables[t], &tables[t].keys[i]));
            for (size_t u = t; u < count; u++)
                for (size_t j = 0; j < tables[u].count; j++)
                    if (!strcmp(tables[u].keys[j].section, name))
                        TRY(key(o, &tables[u], &tables[u].keys[j]));
        }
    return ERR_OK;
}

static enum err print_section(struct out *o, const struct config_table *t,
                              const struct config_key *k)
{
    (void)t;
    TRY(puts_to(o, k->section));
    return puts_to(o, ":\n");
}

static enum err print_key(struct out *o, const struct config_table *t, const struct config_key *k)
{
    TRY(puts_to(o, "    "));
    TRY(puts_to(o, config_key_name(k, o->names)));
    TRY(puts_to(o, ": "));
    TRY(put_value(o, t, k));
    if (!is_default(t, k)) {
        TRY(puts_to(o, "  # default: "));
        TRY(puts_to(o, !k->fallback ? "none" : *k->fallback ? k->fallback : "empty"));
    }
    return puts_to(o, "\n");
}

enum err config_print(const struct config_table *tables, size_t table_count,
                      enum config_names names, struct arena *a, char **text)
{
    struct out o = {.a = a, .names = names};
    TRY(puts_to(&o, ""));
    TRY(each_key(&o, tables, table_count, print_section, print_key));
    *text = o.text;
    return ERR_OK;
}

/* A section without such a key is left out: its name comes with its first one. */
static enum err print_differing_key(struct out *o, const struct config_table *t,
                                    const struct config_key *k)
{
    if (is_default(t, k))
        return ERR_OK;
    if (o->section != k->section) {
        TRY(puts_to(o, k->section));
        TRY(puts_to(o, ":\n"));
    }
    o->section = k->section;
    return print_key(o, t, k);
}

static enum err print_no_section(struct out *o, const struct config_table *t,
                                 const struct config_key *k)
{
    (void)t;
    (void)k;
    o->section = NULL;
    return ERR_OK;
}

enum err config_print_differing(const struct config_table *tables, size_t table_count,
                                struct arena *a, char **text)
{
    struct out o = {.a = a};
    TRY(puts_to(&o, ""));
    TRY(each_key(&o, tables, table_count, print_no_section, print_differing_key));
    *text = o.text;
    return ERR_OK;
}

/* ---- a recorded text, for people ---- */

/* The line "    name: value  # default: .." of a section. */
static enum err put_typed_line(struct out *o, const struct config_table *tables, size_t count,
                               const char *line, size_t length)
{
    size_t blanks = strspn(line, " "), end = strcspn(line + blanks, ":\n") + blanks;
    const char *value = line + end + 2;
    char full[128];
    snprintf(full, sizeof full, "%.32s.%.*s", o->section, (int)(end - blanks), line + blanks);
    const struct config_key *k = config_key_find(tables, count, CONFIG_RECORDED, full);
    if (!k || strncmp(line + end, ": ", 2) != 0)
        return put(o, line, length);
    TRY(puts_to(o, "    "));
    TRY(puts_to(o, k->name));
    TRY(puts_to(o, ": "));
    size_t word = strcspn(value, " \n");
    for (const struct config_choice *c = k->choices; c && c->name; c++)
        if (c->recorded && strlen(c->recorded) == word && !strncmp(c->recorded, value, word)) {
            TRY(puts_to(o, c->name));
            value += word;
        }
    return put(o, value, (size_t)(line + length - value));
}

enum err config_print_typed(const struct config_table *tables, size_t table_count,
                            const char *recorded, struct arena *a, char **text)
{
    struct out o = {.a = a, .section = ""};
    TRY(puts_to(&o, ""));
    for (size_t n; *recorded; recorded += n) {
        n = strcspn(recorded, "\n");
        n += recorded[n] == '\n';
        bool of_section = *recorded == ' ' && memchr(recorded, ':', n);
        if (!of_section)
            TRY_ALLOC(o.section = arena_string(a, recorded, strcspn(recorded, ":\n")));
        TRY(of_section ? put_typed_line(&o, tables, table_count, recorded, n)
                       : put(&o, recorded, n));
    }
    *text = o.text;
    return ERR_OK;
}

/* ---- the canonical text ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum err sorted_lines(const struct config_table *tables, size_t table_count,
                             enum config_names names, struct arena *a, char **text)
{
    size_t most = 1, count = 0;
    for (size_t t = 0; t < table_count; t++)
        most += tables[t].count;
    char **lines;
    TRY_ALLOC(lines = arena_array(a, most, sizeof *lines));
    for (size_t t = 0; t < table_count; t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct config_key *k = &tables[t].keys[i];
            struct out line = {.a = a, .names = names};
            if (!k->pinned || (k->later && is_default(&tables[t], k)))
                continue;
            TRY(puts_to(&line, k->section));
            TRY(puts_to(&line, "."));
            TRY(puts_to(&line, config_key_name(k, names)));
            TRY(puts_to(&line, "="));
            TRY(put_value(&line, &tables[t], k));
            TRY(puts_to(&line, "\n"));
            lines[count++] = line.text;
        }
    qsort(lines, count, sizeof *lines, by_text);
    struct out o = {.a = a};
    TRY(puts_to(&o, ""));
    for (size_t i = 0; i < count; i++)
        TRY(puts_to(&o, lines[i]));
    *text = o.text;
    return ERR_OK;
}

enum err config_canonical(const struct config_table *tables, size_t table_count, struct arena *a,
                          char **text)
{
    return sorted_lines(tables, table_count, CONFIG_RECORDED, a, text);
}

enum err config_lines(const struct config_table *tables, size_t table_count, struct arena *a,
                      char **text)
{
    return sorted_lines(tables, table_count, CONFIG_TYPED, a, text);
}

/* ---- comparing ---- */

struct line { /* "key=value" inside a canonical text */
    const char *key, *value;
    size_t key_length, value_length;
};

static const char *line_next(const char *at, struct line *l)
{
    size_t n = strcspn(at, "\n"), k = 0;
    while (k < n && at[k] != '=')
        k++;
    *l = (struct line){at, at + k + (k < n), k, n - k - (k < n)};
    return at[n] ? at + n + 1 : at + n;
}

/* The value of that key in a text, or false. Texts may come from a peer: nothing is assumed about
 * their order. */
static bool line_find(const char *text, const struct line *wanted, struct line *l)
{
    while (*text) {
        text = line_next(text, l);
        if (l->key_length == wanted->key_length && !memcmp(l->key, wanted->key, l->key_length))
            return true;
    }
    return false;
}

/* A side without the key is NULL. */
static enum err put_side(struct out *o, const struct line *l, const char *side)
{
    TRY(l ? put(o, l->value, l->value_length) : puts_to(o, "not set"));
    return puts_to(o, side);
}

struct names { /* of the keys that a text may have */
    const struct config_table *tables;
    size_t count;
};

static enum err put_key_name(struct out *o, const struct names *n, const char *key, size_t length)
{
    char *recorded;
    TRY_ALLOC(recorded = arena_string(o->a, key, length));
    const struct config_key *k = config_key_find(n->tables, n->count, CONFIG_RECORDED, recorded);
    if (!k)
        return put(o, key, length);
    TRY(puts_to(o, k->section));
    TRY(puts_to(o, "."));
    return puts_to(o, k->name);
}

static enum err put_difference(struct out *o, const struct names *n, const struct line *ours,
                               const struct line *theirs)
{
    const struct line *name = ours ? ours : theirs;
    TRY(puts_to(o, o->length ? "; " : ""));
    TRY(put_key_name(o, n, name->key, name->key_length));
    TRY(puts_to(o, ": "));
    TRY(put_side(o, ours, " here, "));
    return put_side(o, theirs, " there");
}

enum err config_difference(const struct config_table *tables, size_t table_count, const char *ours,
                           const char *theirs, struct arena *a, char **text)
{
    const struct names n = {tables, table_count};
    struct out o = {.a = a};
    struct line mine, other;
    TRY(puts_to(&o, ""));
    for (const char *at = ours; *at;) {
        at = line_next(at, &mine);
        bool there = line_find(theirs, &mine, &other);
        if (!there || mine.value_length != other.value_length ||
            memcmp(mine.value, other.value, mine.value_length))
            TRY(put_difference(&o, &n, &mine, there ? &other : NULL));
    }
    for (const char *at = theirs; *at;) {
        at = line_next(at, &other);
        if (!line_find(ours, &other, &mine))
            TRY(put_difference(&o, &n, NULL, &other));
    }
    *text = o.text;
    return ERR_OK;
}

enum err config_without(const char *text, const char *key, struct arena *a, char **rest)
{
    struct out o = {.a = a};
    struct line l;
    size_t length = strlen(key);
    TRY(puts_to(&o, ""));
    for (const char *at = text, *next; *at; at = next) {
        next = line_next(at, &l);
        if (l.key_length != length || memcmp(l.key, key, length) != 0)
            TRY(put(&o, at, (size_t)(next - at)));
    }
    *rest = o.text;
    return ERR_OK;
}

int64_t config_integer(const char *text, const char *key)
{
    struct line l, wanted = {.key = key, .key_length = strlen(key)};
    return line_find(text, &wanted, &l) ? strtoll(l.value, NULL, 10) : 0;
}

/* ---- the reference page ---- */

static const char *const level_names[] = {
    [CONFIG_ADVANCED] = "advanced", [CONFIG_BASIC] = "basic", [CONFIG_EXPERT] = "expert"};

static enum err reference_section(struct out *o, const struct config_table *t,
                                  const struct config_key *k)
{
    (void)t;
    o->section = NULL; /* no table has begun */
    TRY(puts_to(o, "\n## "));
    TRY(puts_to(o, k->section));
    return puts_to(o, "\n");
}

static enum err reference_table(struct out *o, const struct config_key *k)
{
    if (k->group && o->amendable) {
        TRY(puts_to(o, "\n### "));
        TRY(puts_to(o, k->section));
        TRY(puts_to(o, ": "));
        TRY(puts_to(o, k->group));
        TRY(puts_to(o, "\n"));
    }
    o->section = k->section;
    return puts_to(o, o->amendable ? "\n| key | level | allowed | default | holds | meaning |\n"
                                     "|---|---|---|---|---|---|\n"
                                   : "\n| key | allowed | default | pinned | meaning |\n"
                                     "|---|---|---|---|---|\n");
}

/* A | inside a table cell ends it. */
static enum err put_cell(struct out *o, const char *s)
{
    for (; *s; s++)
        TRY(put(o, *s == '|' ? "\\|" : s, *s == '|' ? 2 : 1));
    return ERR_OK;
}

static enum err put_choices(struct out *o, const struct config_choice *c)
{
    for (size_t i = 0; c[i].name; i++) {
        TRY(put_cell(o, i ? "|" : ""));
        TRY(put_cell(o, c[i].name));
    }
    return ERR_OK;
}

static enum err put_allowed(struct out *o, const struct config_key *k)
{
    static const char *const texts[] = {
        [CONFIG_BOOL] = "true, false", [CONFIG_TEXT] = "text", [CONFIG_LIST] = "list of texts"};
    char range[96];
    if (k->type == CONFIG_CHOICE)
        return put_choices(o, k->choices);
    if (k->type != CONFIG_INT && k->type != CONFIG_REAL)
        return puts_to(o, texts[k->type]);
    snprintf(range, sizeof range, "%s%.10g to %.10g%s%s", k->type == CONFIG_INT ? "whole, " : "",
             k->min, k->max, k->unit ? " " : "", k->unit ? k->unit : "");
    return puts_to(o, range);
}

/* A line of YAML, or nothing where the default says it. */
static enum err put_example(struct out *o, const struct config_key *k)
{
    const struct config_choice *c = k->choices;
    const char *value = k->example ? k->example : k->fallback;
    while (!k->example && c && c->name && value && !strcmp(c->name, value))
        c++; /* one that is not the default */
    if (!k->example && c && c->name)
        value = c->name;
    if (!k->example && k->type == CONFIG_BOOL)
        value = strcmp(k->fallback, "true") ? "true" : "false";
    TRY(puts_to(o, " `"));
    TRY(puts_to(o, k->name));
    TRY(puts_to(o, ": "));
    TRY(put_cell(o, value ? value : ""));
    return puts_to(o, "`");
}

/* Which values hold where: equal at all sites, and from which moment on. */
static const char *holds(const struct out *o, const struct config_key *k)
{
    return o->amendable(k) ? "run; amend" : k->pinned ? "run" : "process";
}

static enum err put_anchor(struct out *o, const struct config_key *k)
{
    TRY(puts_to(o, " <a id=\""));
    TRY(puts_to(o, k->section));
    TRY(puts_to(o, "."));
    TRY(puts_to(o, k->name));
    return puts_to(o, "\"></a>");
}

static enum err reference_key(struct out *o, const struct config_table *t,
                              const struct config_key *k)
{
    (void)t;
    if (!o->section || (k->group && o->amendable))
        TRY(reference_table(o, k));
    TRY(puts_to(o, "| `"));
    TRY(puts_to(o, k->section));
    TRY(puts_to(o, "."));
    TRY(puts_to(o, k->name));
    TRY(puts_to(o, "` | "));
    if (o->amendable) {
        TRY(puts_to(o, level_names[k->level]));
        TRY(puts_to(o, " | "));
    }
    TRY(put_allowed(o, k));
    TRY(puts_to(o, " | "));
    TRY(put_cell(o, !k->fallback ? "must be given" : *k->fallback ? k->fallback : "empty"));
    TRY(puts_to(o, " | "));
    TRY(puts_to(o, o->amendable ? holds(o, k) : k->pinned ? "yes" : ""));
    TRY(puts_to(o, o->amendable || k->pinned ? " | " : "| "));
    TRY(put_cell(o, k->help));
    if (o->amendable) {
        TRY(put_example(o, k));
        TRY(put_anchor(o, k));
    }
    return puts_to(o, " |\n");
}

/* between: "." and ": " of a key and of a value of one. */
static enum err renamed_row(struct out *o, const char *of, const char *between, const char *old,
                            const char *now)
{
    char *row;
    if (!old)
        return ERR_OK;
    TRY_ALLOC(
        row = arena_printf(o->a, "| `%s%s%s` | `%s%s%s` |\n", of, between, old, of, between, now));
    return puts_to(o, row);
}

static enum err renamed_key(struct out *o, const struct config_table *t, const struct config_key *k)
{
    char *full;
    (void)t;
    TRY(renamed_row(o, k->section, ".", config_key_old(k), k->name));
    TRY_ALLOC(full = arena_printf(o->a, "%s.%s", k->section, k->name));
    for (const struct config_choice *c = k->choices; c && c->name; c++)
        TRY(renamed_row(o, full, ": ", c->recorded, c->name));
    return ERR_OK;
}

static enum err put_plain_example(struct out *o, const struct config_key *k)
{
    struct out cell = {.a = o->a};
    TRY(put_example(&cell, k));
    for (const char *s = cell.text; *s; s++)
        if (*s != '\\' && *s != '`')
            TRY(put(o, s, 1));
    return ERR_OK;
}

static enum err put_plain_allowed(struct out *o, const struct config_key *k)
{
    struct out cell = {.a = o->a};
    TRY(put_allowed(&cell, k)); /* in a table cell | is \| */
    for (const char *s = cell.text; *s; s++)
        if (*s != '\\')
            TRY(put(o, s, 1));
    return ERR_OK;
}

enum err config_explain(const struct config_table *tables, size_t table_count,
                        config_amendable *amendable, const char *key, struct arena *a, char **text)
{
    struct out o = {.a = a, .amendable = amendable};
    char nearest[128] = "";
    unsigned edits;
    const struct config_key *k = config_key_find(tables, table_count, CONFIG_TYPED, key),
                            *renamed = config_key_renamed(tables, table_count, key);
    const char *dot = strchr(key, '.');
    if (!k && renamed)
        return err_set(ERR_CONFIG, "%.100s is now named %s.%s", key, renamed->section,
                       renamed->name);
    if (!k) {
        config_nearest(tables, table_count, dot ? dot + 1 : key, nearest, sizeof nearest, &edits);
        return nearest_enough(dot ? dot + 1 : key, edits)
                   ? err_set(ERR_CONFIG, "there is no key %.100s; the nearest is %s", key, nearest)
                   : err_set(ERR_CONFIG, "there is no key %.100s", key);
    }
    TRY(puts_to(&o, k->section));
    TRY(puts_to(&o, "."));
    TRY(puts_to(&o, k->name));
    TRY(puts_to(&o, "\nallowed: "));
    TRY(put_plain_allowed(&o, k));
    TRY(puts_to(&o, "\ndefault: "));
    TRY(puts_to(&o, !k->fallback   ? "none, it must be given"
                    : *k->fallback ? k->fallback
                                   : "empty"));
    TRY(puts_to(&o, k->pinned ? "\npinned: equal at every site of a run" : ""));
    TRY(puts_to(&o, amendable && amendable(k) ? "\namended: atoll operator set" : ""));
    TRY(puts_to(&o, "\nlevel: "));
    TRY(puts_to(&o, level_names[k->level]));
    TRY(puts_to(&o, "\n"));
    TRY(puts_to(&o, k->help));
    TRY(puts_to(&o, "\nexample:"));
    TRY(put_plain_example(&o, k));
    *text = o.text;
    return ERR_OK;
}

enum err config_reference(const struct config_table *tables, size_t table_count,
                          config_amendable *amendable, struct arena *a, char **text)
{
    struct out o = {.a = a, .amendable = amendable}, renamed = {.a = a};
    TRY(puts_to(&o,
                "# Configuration\n\n"
                "One YAML file of sections and keys; `--section.key value` on the command line "
                "wins over the "
                "file, the file over the default. A pinned key must be equal at every site of "
                "a run. Whole numbers "
                "may be written `1e6`; lists on the command line are separated by commas, and an "
                "item with a comma in it stands in quotes: `'\"a,b.bin\",c.bin'`.\n"));
    if (amendable)
        TRY(puts_to(&o,
                    "\n`atoll help KEY` prints a row. **Level**: `basic`, for a first run; "
                    "`advanced`; `expert`, for methods and limits that few runs need. **Holds**: "
                    "`run`, the key is pinned; `run; amend`, an operator may change it in a "
                    "running run (`atoll operator set`); `process`, each process has its own. "
                    "An example ends each meaning.\n"));
    TRY(each_key(&o, tables, table_count, reference_section, reference_key));
    TRY(each_key(&renamed, tables, table_count, print_no_section, renamed_key));
    if (renamed.length)
        TRY(puts_to(&o, "\n## Renamed keys\n\n"
                        "A former name is refused with its line and the new one. This changes a "
                        "file by what the program says:\n```\n"
                        "atoll train --config run.yaml --dry-run 2>&1 |\n"
                        "    sed -n 's/.*:\\([0-9]*\\): [a-z]*\\.\\([a-z0-9_]*\\) is now named "
                        "[a-z]*\\.\\([a-z0-9_]*\\)$/\\1s,\\2,\\3,/p' >names.sed\n"
                        "sed -i -f names.sed run.yaml\n```\n"
                        "What the program writes (checkpoints, outer state, metrics.jsonl, "
                        "archives), and the digest that sites compare, keep the old names: "
                        "directories resume, and sites of both versions take part in one run.\n\n"
                        "| old | new |\n|---|---|\n"));
    TRY(put(&o, renamed.text ? renamed.text : "", renamed.length));
    *text = o.text;
    return ERR_OK;
}
