/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of a configuration, all of them at once, and the entries of a file. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "inner/config/config_yaml.h"

enum err config_error(struct config_errors *e, int line, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (e->count++ >= CONFIG_ERRORS_MAX)
        return ERR_OK;
    char *sentence = e->plain ? arena_printf(e->a, "%s", text)
                     : line   ? arena_printf(e->a, "%s:%d: %s", e->path, line, text)
                              : arena_printf(e->a, "command line: %s", text);
    TRY_ALLOC(e->lines[e->count - 1] = sentence);
    return ERR_OK;
}

enum err config_errors_report(struct config_errors *e)
{
    if (!e->count)
        return ERR_OK;
    size_t kept = e->count < CONFIG_ERRORS_MAX ? e->count : CONFIG_ERRORS_MAX, size = 64;
    for (size_t i = 0; i < kept; i++)
        size += strlen(e->lines[i]) + 1;
    char *all;
    TRY_ALLOC(all = arena_alloc(e->a, size));
    size_t used = 0;
    for (size_t i = 0; i < kept; i++)
        used += (size_t)snprintf(all + used, size - used, "%s%s", i ? "\n" : "", e->lines[i]);
    if (e->count > kept)
        snprintf(all + used, size - used, "\n... and %zu more", e->count - kept);
    return err_set(ERR_CONFIG, "%s", all);
}

void config_broken(struct config_rules *r, const char *format, ...)
{
    char sentence[512];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (r->length + strlen(sentence) + 2 > sizeof r->text)
        r->left_out++;
    else
        r->length += (size_t)snprintf(r->text + r->length, sizeof r->text - r->length, "%s%s",
                                      r->length ? "\n" : "", sentence);
}

void config_needs(struct config_rules *r, const char *before, const struct config_excluded *rows,
                  size_t count, const char *after)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].given)
            config_broken(r, "%s needs %s = %s%s", before, rows[i].key, rows[i].use, after);
}

enum err config_rules_report(const struct config_rules *r)
{
    if (!r->length)
        return ERR_OK;
    if (r->left_out)
        return err_set(ERR_CONFIG, "%s\n... and %u more", r->text, r->left_out);
    return err_set(ERR_CONFIG, "%s", r->text);
}

enum err config_entry_add(struct config_entries *list, struct arena *a, struct config_entry entry)
{
    if (list->count == list->capacity) {
        size_t larger = list->capacity ? 2 * list->capacity : 32;
        struct config_entry *items;
        TRY_ALLOC(items = arena_array(a, larger, sizeof *items));
        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = larger;
    }
    list->items[list->count++] = entry;
    return ERR_OK;
}
