/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/columns.h"
#include <stdio.h>
#include <string.h>

static const char *const roles[COLUMNS_ROLES] = {"text", "text_b", "label", "owner"};

enum err columns_parse(struct columns_names *names, const char *option, struct arena *a)
{
    for (const char *s = option; *s;) {
        size_t n = strcspn(s, ","), key = strcspn(s, "="), role = 0;
        while (role < COLUMNS_ROLES &&
               (key >= n || strlen(roles[role]) != key || strncmp(s, roles[role], key) != 0))
            role++;
        if (role == COLUMNS_ROLES || key + 1 >= n)
            return err_set(ERR_CONFIG,
                           "--csv %.200s: \"%.*s\" is not ROLE=COLUMN with the role text, text_b, "
                           "label or owner",
                           option, (int)n, s);
        TRY_ALLOC(names->name[role] = arena_string(a, s + key + 1, n - key - 1));
        s += n + (s[n] == ',');
    }
    return ERR_OK;
}

static enum err columns_missing(const struct columns *c, const char *name)
{
    char list[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < c->count && used < sizeof list - 1; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", c->fields[i]);
    bool other = c->count == 1 && strpbrk(list, ";\t");
    return err_set(ERR_INPUT, "%s: no column \"%s\"; its first line names %s%s", c->path, name,
                   list,
                   other ? ": save it with commas between the fields"
                         : "; --csv text=COLUMN says which one is meant (also text_b, label, "
                           "owner)");
}

/* The place of a column; COLUMNS_MAX: none. */
static enum err columns_place(const struct columns *c, const char *name, size_t *place)
{
    *place = COLUMNS_MAX;
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->fields[i], name) != 0)
            continue;
        if (*place < COLUMNS_MAX)
            return err_set(ERR_INPUT, "%s: two columns are named \"%.100s\"", c->path, name);
        *place = i;
    }
    return ERR_OK;
}

static enum err columns_read(struct columns *c, size_t *count)
{
    *count = 0;
    while (!*count && c->csv.at < c->csv.size_bytes) {
        arena_reset(&c->record);
        c->line = c->csv.line;
        enum err e = csv_read(&c->csv, &c->record, c->fields, COLUMNS_MAX, count);
        if (e)
            return err_add(e, "%s:%zu: ", c->path, c->line);
    }
    return ERR_OK;
}

static enum err columns_find(struct columns *c, const struct columns_names *names)
{
    TRY(columns_read(c, &c->count));
    if (!c->count)
        return err_set(ERR_INPUT, "%s: empty; its first line names the columns", c->path);
    if (c->count > COLUMNS_MAX)
        return err_set(ERR_INPUT, "%s: %zu columns, at most %d are read", c->path, c->count,
                       COLUMNS_MAX);
    for (size_t role = 0; role < COLUMNS_ROLES; role++) {
        const char *name = names->name[role] ? names->name[role] : roles[role];
        TRY(columns_place(c, name, &c->at[role]));
        if (names->name[role] && c->at[role] == COLUMNS_MAX)
            return columns_missing(c, name);
    }
    return ERR_OK;
}

enum err columns_need(const struct columns *c, enum columns_role role,
                      const struct columns_names *names)
{
    const char *name = names->name[role] ? names->name[role] : roles[role];
    if (c->at[role] < COLUMNS_MAX)
        return ERR_OK;
    struct columns head = *c; /* its first record again */
    head.csv.at = 0;
    head.csv.line = 1;
    head.csv.scratch = (struct buffer){0};
    head.record = arena_make(0);
    size_t count;
    enum err e = columns_read(&head, &count);
    e = e ? e : columns_missing(&head, name);
    buffer_free(&head.csv.scratch);
    arena_free(&head.record);
    return e;
}

enum err columns_open(struct columns *c, const char *path, const struct textfile *t,
                      const struct columns_names *names)
{
    *c = (struct columns){.csv = {.text = t->text, .size_bytes = t->size_bytes, .line = 1},
                          .path = path,
                          .record = arena_make(0)};
    c->fields = calloc(COLUMNS_MAX, sizeof *c->fields);
    if (!c->fields)
        return err_set(ERR_MEMORY, "no memory for the columns of %s", path);
    return columns_find(c, names);
}

enum err columns_next(struct columns *c, const char *value[COLUMNS_ROLES], bool *more)
{
    size_t count;
    TRY(columns_read(c, &count));
    *more = count > 0;
    if (*more && count != c->count)
        return err_set(ERR_INPUT,
                       "%s:%zu: %zu fields, and the first line names %zu columns; a field with a "
                       "comma in it stands in quotes",
                       c->path, c->line, count, c->count);
    for (size_t role = 0; *more && role < COLUMNS_ROLES; role++)
        value[role] = c->at[role] < COLUMNS_MAX ? c->fields[c->at[role]] : NULL;
    return ERR_OK;
}

void columns_close(struct columns *c)
{
    buffer_free(&c->csv.scratch);
    arena_free(&c->record);
    free(c->fields);
    *c = (struct columns){0};
}
