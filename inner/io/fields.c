/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/fields.h"
#include <math.h>
#include <string.h>

const struct hf_field *hf_field_find(const struct hf_reading *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->fields[i].name, name) && r->fields[i].value->kind != JSON_NOTHING)
            return &r->fields[i];
    return NULL;
}

bool hf_field_is_number(const struct hf_field *f)
{
    return f->value->kind == JSON_WHOLE || f->value->kind == JSON_DECIMAL;
}

bool hf_field_is(const struct hf_field *f, const char *word)
{
    return f->value->kind == JSON_WORDS && !strcmp(f->value->text, word);
}

const char *hf_field_text(const struct hf_field *f, struct arena *a)
{
    const struct json *v = f->value;
    if (hf_field_is_number(f) && v->number == floor(v->number) && fabs(v->number) < 9e15)
        return arena_printf(a, "%.0f", v->number);
    if (hf_field_is_number(f))
        return arena_printf(a, "%.7g", v->number);
    if (v->kind == JSON_FLAG)
        return v->number != 0 ? "true" : "false";
    return v->kind == JSON_WORDS ? v->text : "null";
}

bool hf_flag(const struct hf_reading *r, const char *name, bool fallback)
{
    const struct hf_field *f = hf_field_find(r, name);
    return f ? f->value->number != 0 : fallback;
}

double hf_number(const struct hf_reading *r, const char *name, double fallback)
{
    const struct hf_field *f = hf_field_find(r, name);
    return f && hf_field_is_number(f) ? f->value->number : fallback;
}

const char *hf_word(const struct hf_reading *r, const char *name, const char *fallback)
{
    const struct hf_field *f = hf_field_find(r, name);
    return f && f->value->kind == JSON_WORDS ? f->value->text : fallback;
}

enum err hf_refuse(const struct hf_reading *r, const struct hf_field *f, const char *known)
{
    const char *text = hf_field_text(f, r->a);
    return err_set(ERR_UNSUPPORTED, "%s: %.80s = %.80s; this program computes with %s only",
                   r->c->path, f->name, text ? text : "?", known);
}

static enum err add(const struct hf_reading *r, const char *key, const char *value, bool checked)
{
    TRY_ALLOC(value);
    ASSERT(r->c->count < HF_SETTINGS_MAX);
    r->c->settings[r->c->count++] = (struct hf_setting){key, value, checked};
    return ERR_OK;
}

enum err hf_add(const struct hf_reading *r, const char *key, const char *value)
{
    return add(r, key, value, true);
}

enum err hf_propose(const struct hf_reading *r, const char *key, const char *value)
{
    return add(r, key, value, false);
}

enum err hf_add_activation(const struct hf_reading *r, const struct hf_activations *x)
{
    const struct hf_field *f = hf_field_find(r, x->field);
    for (size_t i = 0; f && x->theirs[i][0]; i++)
        if (hf_field_is(f, x->theirs[i][0]))
            return hf_add(r, "model.activation", x->theirs[i][1]);
    return f ? hf_refuse(r, f, x->known) : hf_add(r, "model.activation", x->fallback);
}
