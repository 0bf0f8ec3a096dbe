/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/key_forms.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/base/args_forms.h"
#include "outer/config/run.h"
#include "outer/record/json_write.h"

struct keys { /* one section may be spread over several tables */
    struct config_table *tables;
    size_t count;
};

static void put_default(struct json_write *w, const struct config_key *k)
{
    if (!k->fallback || k->type == CONFIG_LIST)
        return;
    if (k->type == CONFIG_BOOL)
        json_bool(w, "default", !strcmp(k->fallback, "true"));
    else if (k->type == CONFIG_INT)
        json_int(w, "default", (int64_t)strtod(k->fallback, NULL));
    else if (k->type == CONFIG_REAL)
        json_real(w, "default", strtod(k->fallback, NULL));
    else
        json_text(w, "default", k->fallback);
}

/* YAML reads 7 and true as no text, and a list of one item may be that item. */
static void put_type(struct json_write *w, const struct config_key *k)
{
    static const char *const types[] = {
        [CONFIG_BOOL] = "boolean", [CONFIG_INT] = "integer",   [CONFIG_REAL] = "number",
        [CONFIG_TEXT] = "string",  [CONFIG_CHOICE] = "string", [CONFIG_LIST] = "array"};
    if (k->type == CONFIG_TEXT || k->type == CONFIG_LIST) {
        json_array(w, "type");
        json_text(w, NULL, types[k->type]);
        json_text(w, NULL, k->type == CONFIG_LIST ? "string" : "number");
        json_text(w, NULL, "boolean");
        if (k->members)
            json_text(w, NULL, "object");
        json_end(w);
        return;
    }
    json_text(w, "type", types[k->type]);
}

static void put_limits(struct json_write *w, const struct config_key *k)
{
    if (k->type == CONFIG_INT || k->type == CONFIG_REAL) {
        json_real(w, "minimum", k->min);
        json_real(w, "maximum", k->max);
    }
    if (k->type != CONFIG_CHOICE)
        return;
    json_array(w, "enum");
    for (const struct config_choice *c = k->choices; c->name; c++)
        json_text(w, NULL, c->name);
    json_end(w);
}

static void put_members(struct json_write *w, const char *members)
{
    char name[64];
    json_bool(w, "additionalProperties", false);
    json_object(w, "properties");
    for (const char *s = members; *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, s);
        json_object(w, name);
        json_end(w);
        s += n;
    }
    json_end(w);
}

static void put_key(struct json_write *w, const struct config_key *k)
{
    json_object(w, k->name);
    put_type(w, k);
    put_limits(w, k);
    put_default(w, k);
    if (k->members)
        put_members(w, k->members);
    json_text(w, "description", k->help);
    json_end(w);
}

static void put_section(struct json_write *w, const struct keys *k, const char *section)
{
    json_object(w, section);
    json_text(w, "type", "object");
    json_bool(w, "additionalProperties", false);
    json_object(w, "properties");
    for (size_t t = 0; t < k->count; t++)
        for (size_t i = 0; i < k->tables[t].count; i++)
            if (!strcmp(k->tables[t].keys[i].section, section))
                put_key(w, &k->tables[t].keys[i]);
    json_end(w);
    json_end(w);
}

enum err key_schema_print(FILE *out, struct arena *scratch)
{
    struct json_write w = {.out = out};
    struct keys k;
    TRY(run_tables(scratch, &k.tables, &k.count));
    json_object(&w, NULL);
    json_text(&w, "$schema", "https://json-schema.org/draft/2020-12/schema");
    json_text(&w, "title", "Configuration of Atoll");
    json_text(&w, "type", "object");
    json_bool(&w, "additionalProperties", false);
    json_object(&w, "properties");
    for (size_t t = 0; t < k.count; t++)
        for (size_t i = 0; i < k.tables[t].count; i++)
            if (config_section_first(k.tables, t, i))
                put_section(&w, &k, k.tables[t].keys[i].section);
    json_close(&w);
    return ERR_OK;
}

enum err key_words_print(struct arena *scratch)
{
    struct keys k;
    TRY(run_tables(scratch, &k.tables, &k.count));
    for (size_t t = 0; t < k.count; t++)
        for (size_t i = 0; i < k.tables[t].count; i++) {
            const struct config_key *key = &k.tables[t].keys[i];
            char name[128];
            snprintf(name, sizeof name, "--%s.%s=", key->section, key->name);
            args_words_row(&(struct args_row){name, key->help});
        }
    return ERR_OK;
}
