/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/model/table_file.h"
#include <string.h>
#include "inner/config/json.h"

enum { FILE_BYTES_MAX = 1 << 26, DIMS_MAX = 8 };

struct reading {
    const char *path;
    size_t number; /* of the tensor */
    struct table *t;
};

static enum err wrong(const struct reading *r, const char *what)
{
    return err_set(ERR_INPUT, "%s: tensor %zu: %s", r->path, r->number, what);
}

static enum err read_name(const struct reading *r, const struct json *j, struct tensor *x)
{
    const struct json *name = json_find(j, "name");
    if (!name || name->kind != JSON_WORDS || !name->text_bytes || strchr(name->text, '\n'))
        return wrong(r, "name is missing, or no text of one line");
    if (name->text_bytes >= sizeof x->name)
        return wrong(r, "name is too long: 127 bytes at most");
    memcpy(x->name, name->text, name->text_bytes + 1);
    for (size_t i = 0; i < r->number; i++)
        if (!strcmp(r->t->tensors[i].name, x->name))
            return wrong(r, "another tensor has this name");
    return ERR_OK;
}

static enum err read_shape(const struct reading *r, const struct json *j, struct tensor *x)
{
    const struct json *shape = json_find(j, "shape");
    x->shape[0] = x->shape[1] = 1;
    if (!shape || shape->kind != JSON_LIST || shape->count > DIMS_MAX)
        return wrong(r, "shape is missing, or no list of 0 to 8 whole numbers");
    for (size_t i = 0; i < shape->count; i++) {
        const struct json *n = &shape->items[i];
        if (n->kind != JSON_WHOLE || n->whole < 1 || n->whole > INT32_MAX ||
            x->shape[i > 0] > INT32_MAX / n->whole)
            return wrong(r, "shape: a number is below 1, or the tensor is too large");
        x->shape[i > 0] *= n->whole;
    }
    x->count = (size_t)x->shape[0] * (size_t)x->shape[1];
    return ERR_OK;
}

static enum err read_init(const struct reading *r, const struct json *j, struct tensor *x)
{
    static const char *const names[] = {[TABLE_NORMAL] = "normal",
                                        [TABLE_TRUNCATED] = "truncated",
                                        [TABLE_ZERO] = "zero",
                                        [TABLE_ONE] = "one"};
    const struct json *init = json_find(j, "init"), *std = json_find(j, "std");
    x->init = TABLE_ZERO;
    size_t i = 0, count = sizeof names / sizeof *names;
    while (init && init->kind == JSON_WORDS && i < count && strcmp(names[i], init->text))
        i++;
    if (init && (init->kind != JSON_WORDS || i == count))
        return wrong(r, "init is none of normal, truncated, zero, one");
    if (init)
        x->init = (enum table_init)i;
    bool drawn = x->init == TABLE_NORMAL || x->init == TABLE_TRUNCATED;
    bool number = std && (std->kind == JSON_DECIMAL || std->kind == JSON_WHOLE);
    if (drawn != (std != NULL) || (std && (!number || std->number < 0 || std->number > 1e3)))
        return wrong(r, "std: from 0 to 1000, with init normal and truncated alone");
    x->std = std ? (float)std->number : 0;
    return ERR_OK;
}

static enum err read_layer(const struct reading *r, const struct json *j, struct tensor *x)
{
    const struct json *layer = json_find(j, "layer");
    x->layer = -1;
    if (!layer)
        return ERR_OK;
    if (layer->kind != JSON_WHOLE || layer->whole < 0 || layer->whole > KEYS_LAYERS_MAX)
        return wrong(r, "layer is no whole number from 0");
    x->layer = (int)layer->whole;
    return ERR_OK;
}

static enum err read_tensor(const struct reading *r, const struct json *j)
{
    static const char *const fields[] = {"name", "shape", "init", "std", "layer"};
    struct table *t = r->t;
    struct tensor *x = &t->tensors[r->number];
    *x = (struct tensor){.offset = t->elements};
    if (j->kind != JSON_MAP)
        return wrong(r, "no map of name, shape, init, std and layer");
    for (size_t i = 0; i < j->count; i++) {
        size_t k = 0;
        while (k < sizeof fields / sizeof *fields && strcmp(fields[k], j->items[i].key))
            k++;
        if (k == sizeof fields / sizeof *fields)
            return wrong(r, "a field is none of name, shape, init, std and layer");
    }
    TRY(read_name(r, j, x));
    TRY(read_shape(r, j, x));
    TRY(read_init(r, j, x));
    TRY(read_layer(r, j, x));
    x->group = x->shape[1] == 1 ? TABLE_VECTOR : x->layer >= 0 ? TABLE_HIDDEN : TABLE_MATRIX;
    t->parameters += x->count;
    t->elements += (x->count + TABLE_ALIGN - 1) / TABLE_ALIGN * TABLE_ALIGN;
    return ERR_OK;
}

/* Tensors of no layer come after all layers, as a head does. */
static void place_rest(struct table *t)
{
    int layers = 0;
    for (size_t i = 0; i < t->count; i++)
        layers = t->tensors[i].layer >= layers ? t->tensors[i].layer + 1 : layers;
    for (size_t i = 0; i < t->count; i++)
        if (t->tensors[i].layer < 0)
            t->tensors[i].layer = layers;
}

static enum err read_all(struct table *t, const char *path, struct arena *perm, struct arena *a)
{
    struct json root;
    struct reading r = {.path = path, .t = t};
    TRY(json_read_file(&root, path, FILE_BYTES_MAX, a));
    const struct json *list = json_find(&root, "tensors");
    if (!list || list->kind != JSON_LIST || !list->count || root.count != 1)
        return err_set(ERR_INPUT, "%s: one field is wanted, \"tensors\", a list of tensors", path);
    TRY_ALLOC(t->tensors = arena_array(perm, list->count, sizeof *t->tensors));
    for (; r.number < list->count; r.number++) {
        TRY(read_tensor(&r, &list->items[r.number]));
        t->count++;
    }
    place_rest(t);
    return ERR_OK;
}

enum err table_read(struct table *t, const char *path, struct arena *perm)
{
    struct arena scratch = arena_make(0);
    *t = (struct table){0};
    enum err e = read_all(t, path, perm, &scratch);
    arena_free(&scratch);
    return e;
}
