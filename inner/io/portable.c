/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/portable.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "inner/io/names.h"
#include "inner/io/names_own.h"

enum { PORTABLE_FORMAT = 1, NAME_BYTES = 400, CONFIG_BYTES_MAX = 1 << 24 };
#define PORTABLE_FILE "optimizer.safetensors"

/* Slabs of the table's layout. The parameters stand in the model's own file, under plain names. */
static const struct slab_name {
    const char *part, *suffix;
} slab_names[] = {{"params", NULL}, {"m", ".exp_avg"}, {"v", ".exp_avg_sq"}};
enum { SLABS = sizeof slab_names / sizeof *slab_names };

static const struct slab_name *slab_of(const char *part)
{
    for (size_t i = 0; i < SLABS; i++)
        if (!strcmp(slab_names[i].part, part))
            return &slab_names[i];
    return NULL;
}

/* What every slab is cut into. */
struct layout {
    const struct settings *settings;
    const struct table *table;
    struct names_pair *pairs;
    size_t count;
    bool *named;               /* (elements) a pair has it */
    const struct tensor **own; /* those that no pair has */
    size_t own_count, unnamed; /* elements that neither has */
    struct arena *a;
};

static bool named_any(const struct layout *l, const struct tensor *x)
{
    bool any = false;
    for (size_t i = 0; i < x->count; i++)
        any |= l->named[x->offset + i];
    return any;
}

static bool is_stored(const struct names_pair *p)
{
    return p->written && p->tensor;
}

static enum err layout_make(struct layout *l, const struct settings *s, const struct table *t,
                            struct arena *a)
{
    struct names_context x = {.settings = s, .table = t};
    *l = (struct layout){.settings = s, .table = t, .a = a};
    TRY(names_pairs(&x, a, &l->pairs, &l->count));
    TRY_ALLOC(l->named = arena_array(a, t->elements, sizeof *l->named));
    TRY_ALLOC(l->own = arena_array(a, t->count, sizeof *l->own));
    for (size_t i = 0; i < l->count; i++)
        for (size_t r = 0; r < l->pairs[i].rows && is_stored(&l->pairs[i]); r++)
            for (size_t c = 0; c < (l->pairs[i].columns ? l->pairs[i].columns : 1); c++)
                l->named[names_ours_at(&l->pairs[i], r, c)] = true;
    for (size_t i = 0; i < t->count; i++)
        if (!named_any(l, &t->tensors[i])) {
            const struct tensor *own = &t->tensors[i];
            l->own[l->own_count++] = own;
            memset(l->named + own->offset, true, own->count * sizeof *l->named);
        }
    for (size_t i = 0; i < t->elements; i++)
        l->unnamed += !l->named[i];
    return ERR_OK;
}

/* ---- write ---- */
struct writing {
    struct layout layout;
    struct safetensors_tensor *tensors;
    size_t count, room;
    const char **metadata;
    size_t metadata_count;
};
enum { METADATA_MAX = 32 };

static enum err add(struct writing *w, const char *name, enum safetensors_dtype dtype,
                    const void *data, size_t size_bytes, size_t element_bytes)
{
    ASSERT(w->count < w->room);
    w->tensors[w->count] = (struct safetensors_tensor){
        .name = name, .dtype = dtype, .rank = 1, .data = data, .size_bytes = size_bytes};
    w->tensors[w->count++].shape[0] = size_bytes / element_bytes;
    return ERR_OK;
}

static enum err add_pairs(struct writing *w, const float *slab, const char *suffix)
{
    struct layout *l = &w->layout;
    for (size_t i = 0; i < l->count; i++) {
        struct safetensors_tensor *t = &w->tensors[w->count];
        if (!is_stored(&l->pairs[i]))
            continue;
        ASSERT(w->count < w->room);
        TRY(names_convert(&l->pairs[i], slab, false, l->a, t));
        TRY_ALLOC(t->name = arena_printf(l->a, "%s%s", l->pairs[i].theirs, suffix));
        w->count++;
    }
    return ERR_OK;
}

/* Gaps and padding are 0 as a rule, and then there is no tensor of them. */
static enum err add_rest(struct writing *w, const float *slab, const char *part)
{
    const struct layout *l = &w->layout;
    float *rest;
    uint32_t any = 0, bits;
    size_t n = 0;
    char *name;
    TRY_ALLOC(rest = arena_array(l->a, l->unnamed + 1, sizeof *rest));
    for (size_t i = 0; i < l->table->elements; i++) {
        if (l->named[i])
            continue;
        memcpy(&bits, &slab[i], sizeof bits);
        any |= bits;
        rest[n++] = slab[i];
    }
    TRY_ALLOC(name = arena_printf(l->a, "atoll.rest.%s", part));
    return any ? add(w, name, SAFETENSORS_F32, rest, n * sizeof *rest, sizeof *rest) : ERR_OK;
}

static enum err add_slab(struct writing *w, const struct slab_name *n, const float *slab)
{
    struct layout *l = &w->layout;
    if (n->suffix)
        TRY(add_pairs(w, slab, n->suffix));
    for (size_t i = 0; i < l->own_count; i++) {
        const struct tensor *x = l->own[i];
        char *name;
        TRY_ALLOC(name = arena_printf(l->a, "atoll.%s.%s", x->name, n->part));
        TRY(add(w, name, SAFETENSORS_F32, slab + x->offset, x->count * sizeof *slab, sizeof *slab));
    }
    return add_rest(w, slab, n->part);
}

static enum err add_part(struct writing *w, const struct checkpoint_part *p)
{
    const struct slab_name *slab = slab_of(p->name);
    bool floats = p->size_bytes % sizeof(float) == 0 && p->size_bytes > 256; /* counters are few */
    char *name;
    if (slab && p->size_bytes == w->layout.table->elements * sizeof(float))
        return add_slab(w, slab, p->data);
    TRY_ALLOC(name = arena_printf(w->layout.a, "atoll.part.%s", p->name));
    return add(w, name, floats ? SAFETENSORS_F32 : SAFETENSORS_U8, p->data, p->size_bytes,
               floats ? sizeof(float) : 1);
}

static void note(struct writing *w, const char *key, const char *value)
{
    ASSERT(w->metadata_count + 2 < METADATA_MAX);
    w->metadata[w->metadata_count++] = key;
    w->metadata[w->metadata_count++] = value;
}

static enum err note_number(struct writing *w, const char *key, uint64_t value)
{
    char *text;
    TRY_ALLOC(text = arena_printf(w->layout.a, "%llu", (unsigned long long)value));
    note(w, key, text);
    return ERR_OK;
}

static enum err note_hex(struct writing *w, const char *key, const struct digest *d)
{
    char hex[65], *text;
    digest_hex(d, hex);
    TRY_ALLOC(text = arena_string(w->layout.a, hex, 64));
    note(w, key, text);
    return ERR_OK;
}

/* config.json says what function the parameters are of, which no shape shows: one of another model
 * next to these files is found. */
static enum err config_digest(const char *dir, struct arena *a, struct digest *d, const char **path)
{
    uint8_t *data;
    size_t size_bytes;
    TRY_ALLOC(*path = arena_printf(a, "%s/config.json", dir));
    TRY(file_read(*path, CONFIG_BYTES_MAX, a, &data, &size_bytes));
    *d = digest_of(data, size_bytes);
    return ERR_OK;
}

/* "params:SHA-256 m:SHA-256 ..", in the order of the checkpoint. */
static enum err note_parts(struct writing *w, const struct portable *p)
{
    char *text = "";
    for (size_t i = 0; i < p->count; i++) {
        struct digest d = digest_of(p->parts[i].data, p->parts[i].size_bytes);
        char hex[65];
        digest_hex(&d, hex);
        TRY_ALLOC(text = arena_printf(w->layout.a, "%s%s%s:%s", text, i ? " " : "",
                                      p->parts[i].name, hex));
    }
    note(w, "parts", text);
    return ERR_OK;
}

static enum err note_all(struct writing *w, const struct portable *p, const char *dir)
{
    struct digest config;
    const char *path;
    TRY(config_digest(dir, w->layout.a, &config, &path));
    TRY_ALLOC(w->metadata = arena_array(w->layout.a, METADATA_MAX, sizeof *w->metadata));
    note(w, "format", "pt");
    TRY(note_number(w, "atoll", PORTABLE_FORMAT));
    TRY(note_number(w, "step", p->meta.step));
    TRY(note_number(w, "seed", p->meta.seed));
    TRY(note_number(w, "threads", p->meta.threads));
    TRY(note_number(w, "ranks", p->meta.ranks));
    TRY(note_hex(w, "model", &p->meta.model));
    TRY(note_hex(w, "config", &config));
    note(w, "settings", p->meta.settings);
    note(w, "device", p->meta.device);
    note(w, "initial", p->initial);
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->parts[i].name, "tokens") && p->parts[i].size_bytes == sizeof(uint64_t)) {
            uint64_t tokens;
            memcpy(&tokens, p->parts[i].data, sizeof tokens);
            TRY(note_number(w, "tokens", tokens));
        }
    return note_parts(w, p);
}

static enum err write_rest(const struct settings *s, const struct table *t,
                           const struct portable *p, const char *dir, struct arena *a)
{
    struct writing w = {0};
    char *path;
    TRY(layout_make(&w.layout, s, t, a));
    w.room = SLABS * (w.layout.count + w.layout.own_count + 1) + p->count;
    TRY_ALLOC(w.tensors = arena_array(a, w.room, sizeof *w.tensors));
    for (size_t i = 0; i < p->count; i++)
        TRY(add_part(&w, &p->parts[i]));
    TRY(note_all(&w, p, dir));
    TRY_ALLOC(path = arena_printf(a, "%s/" PORTABLE_FILE, dir));
    return safetensors_write(path, w.tensors, w.count, w.metadata);
}

static const struct checkpoint_part *part_of(const struct portable *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->parts[i].name, name))
            return &p->parts[i];
    return NULL;
}

enum err portable_write(const struct settings *s, const struct table *t, const struct portable *p,
                        uint64_t bytes_max, const char *dir)
{
    struct arena a = arena_make(0);
    const struct names_options o = {.part_bytes = bytes_max};
    const struct checkpoint_part *params = part_of(p, "params");
    if (!params || params->size_bytes != t->elements * sizeof(float))
        return err_set(ERR_INPUT, "the checkpoint holds no parameters of this model");
    TRY(names_export(s, t, params->data, &o, dir));
    enum err e = write_rest(s, t, p, dir, &a);
    arena_free(&a);
    return e;
}

/* ---- read ---- */
struct portable_reading {
    struct layout layout;
    struct safetensors file;
    const char *path, *dir;
    size_t used; /* tensors of the file */
};

/* NULL in *out: there is none of that name. */
static enum err find(struct portable_reading *r, const char *name, enum safetensors_dtype dtype,
                     const struct safetensors_tensor **out)
{
    const struct safetensors_tensor *x = *out = safetensors_find(&r->file, name);
    if (x && x->dtype != dtype && strncmp(name, "atoll.part.", strlen("atoll.part.")) != 0)
        return err_set(ERR_INPUT, "%s: %.100s is not F32: a checkpoint is read as it was written",
                       r->path, name);
    r->used += x != NULL;
    return ERR_OK;
}

static enum err read_pairs(struct portable_reading *r, const char *suffix, float *slab)
{
    for (size_t i = 0; i < r->layout.count; i++) {
        const struct names_pair *p = &r->layout.pairs[i];
        const struct safetensors_tensor *x;
        char name[NAME_BYTES];
        if (!is_stored(p))
            continue;
        snprintf(name, sizeof name, "%s%s", p->theirs, suffix);
        TRY(find(r, name, SAFETENSORS_F32, &x));
        if (!x || !names_same_shape(p, x))
            return err_set(ERR_MISMATCH, "%s: %s %.200s", r->path,
                           x ? "another shape than the model of this configuration:" : "no tensor",
                           name);
        for (size_t row = 0; row < p->rows; row++)
            for (size_t c = 0; c < (p->columns ? p->columns : 1); c++)
                memcpy(&slab[names_ours_at(p, row, c)],
                       (const char *)x->data + names_theirs_at(p, row, c) * sizeof *slab,
                       sizeof *slab);
    }
    return ERR_OK;
}

static enum err read_rest(struct portable_reading *r, const char *part, float *slab)
{
    const struct layout *l = &r->layout;
    const struct safetensors_tensor *x;
    char name[NAME_BYTES];
    size_t n = 0;
    snprintf(name, sizeof name, "atoll.rest.%s", part);
    TRY(find(r, name, SAFETENSORS_F32, &x));
    if (x && x->size_bytes != l->unnamed * sizeof *slab)
        return err_set(ERR_MISMATCH, "%s: %s is of another model", r->path, name);
    for (size_t i = 0; i < l->table->elements; i++) {
        if (l->named[i])
            continue;
        slab[i] = 0;
        if (x)
            memcpy(&slab[i], (const char *)x->data + n++ * sizeof *slab, sizeof *slab);
    }
    return ERR_OK;
}

/* Tensors that only this program knows lie in the optimizer's file, also those of the parameters.
 */
static enum err read_slab(struct portable_reading *r, const struct slab_name *n, float *slab)
{
    const struct layout *l = &r->layout;
    if (n->suffix)
        TRY(read_pairs(r, n->suffix, slab));
    else
        TRY(names_import(l->settings, l->table, slab, r->dir));
    for (size_t i = 0; i < l->own_count; i++) {
        const struct safetensors_tensor *x;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "atoll.%s.%s", l->own[i]->name, n->part);
        TRY(find(r, name, SAFETENSORS_F32, &x));
        if (!x || x->size_bytes != l->own[i]->count * sizeof *slab)
            return err_set(ERR_MISMATCH, "%s: no tensor %s of the size that this model has",
                           r->path, name);
        memcpy(slab + l->own[i]->offset, x->data, x->size_bytes);
    }
    return read_rest(r, n->part, slab);
}

static enum err read_part(struct portable_reading *r, struct checkpoint_part *p)
{
    const struct slab_name *slab = slab_of(p->name);
    const struct safetensors_tensor *x;
    char *name;
    TRY_ALLOC(name = arena_printf(r->layout.a, "atoll.part.%s", p->name));
    TRY(find(r, name, SAFETENSORS_U8, &x));
    if (!x && !slab)
        return err_set(ERR_INPUT, "%s: no tensor %s", r->path, name);
    p->size_bytes = x ? x->size_bytes : r->layout.table->elements * sizeof(float);
    TRY_ALLOC(p->data = arena_alloc(r->layout.a, p->size_bytes + 1));
    if (!x)
        return read_slab(r, slab, p->data);
    memcpy(p->data, x->data, x->size_bytes);
    return ERR_OK;
}

static enum err meta_text(const struct portable_reading *r, const char *key, const char **text)
{
    *text = safetensors_metadata(&r->file, key);
    return *text
               ? ERR_OK
               : err_set(ERR_INPUT,
                         "%s: its metadata have no \"%s\": not a file of atoll export --checkpoint",
                         r->path, key);
}

static enum err meta_number(const struct portable_reading *r, const char *key, uint64_t *value)
{
    const char *text;
    char *end;
    TRY(meta_text(r, key, &text));
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end
               ? ERR_OK
               : err_set(ERR_INPUT, "%s: its \"%s\" is no number: %.40s", r->path, key, text);
}

static enum err meta_read(const struct portable_reading *r, struct portable *p)
{
    struct checkpoint_meta *m = &p->meta;
    uint64_t format, threads, ranks;
    const char *model, *device;
    TRY(meta_number(r, "atoll", &format));
    if (format != PORTABLE_FORMAT)
        return err_set(ERR_UNSUPPORTED, "%s: format %llu; this program reads %d", r->path,
                       (unsigned long long)format, PORTABLE_FORMAT);
    TRY(meta_number(r, "step", &m->step));
    TRY(meta_number(r, "seed", &m->seed));
    TRY(meta_number(r, "threads", &threads));
    TRY(meta_number(r, "ranks", &ranks));
    TRY(meta_text(r, "model", &model));
    TRY(meta_text(r, "settings", &m->settings));
    TRY(meta_text(r, "device", &device));
    TRY(meta_text(r, "initial", &p->initial));
    if (!digest_is_hex(model) || !digest_hex_read(&m->model, model) || threads > UINT32_MAX ||
        ranks > UINT32_MAX || strlen(device) >= sizeof m->device ||
        strlen(m->settings) > CHECKPOINT_SETTINGS_MAX ||
        (*p->initial && !digest_is_hex(p->initial)))
        return err_set(ERR_INPUT, "%s: its metadata are damaged", r->path);
    m->threads = (uint32_t)threads;
    m->ranks = (uint32_t)ranks;
    strcpy(m->device, device);
    struct digest want = table_digest(r->layout.table);
    return digest_equal(&m->model, &want)
               ? ERR_OK
               : err_set(ERR_MISMATCH, "%s: other tensors than the configuration describes",
                         r->path);
}

/* Files of an earlier version do not name it. */
static enum err check_config(const struct portable_reading *r)
{
    const char *text = safetensors_metadata(&r->file, "config"), *path;
    struct digest want, is;
    if (!text)
        return ERR_OK;
    if (!digest_is_hex(text) || !digest_hex_read(&want, text))
        return err_set(ERR_INPUT, "%s: its metadata are damaged", r->path);
    TRY(config_digest(r->dir, r->layout.a, &is, &path));
    return digest_equal(&is, &want)
               ? ERR_OK
               : err_set(
                     ERR_INPUT,
                     "%s is not as it was written with %s: it is of another export, or another "
                     "program changed it; write the files again (atoll export --checkpoint), or "
                     "import the model alone (--model)",
                     path, r->path);
}

static enum err next_part(struct portable_reading *r, struct portable *p, const char *item,
                          size_t length)
{
    const char *colon = memchr(item, ':', length);
    size_t n = colon ? (size_t)(colon - item) : 0;
    struct checkpoint_part *part = &p->parts[p->count];
    struct digest want;
    if (!n || n > CHECKPOINT_NAME_MAX || length - n != 65 || !digest_hex_read(&want, colon + 1) ||
        p->count == CHECKPOINT_PARTS_MAX)
        return err_set(ERR_INPUT, "%s: its \"parts\" are damaged", r->path);
    char *name;
    TRY_ALLOC(name = arena_string(r->layout.a, item, n));
    part->name = name;
    if (part_of(p, name))
        return err_set(ERR_INPUT, "%s: \"%s\" is there twice", r->path, name);
    TRY(read_part(r, part));
    struct digest is = digest_of(part->data, part->size_bytes);
    p->count++;
    return digest_equal(&is, &want)
               ? ERR_OK
               : err_set(ERR_INPUT,
                         "%s: \"%s\" is not as it was written: the files of %s are of different "
                         "exports, or another program changed them; write them again (atoll export "
                         "--checkpoint), or import the model alone (--model)",
                         r->path, name, r->dir);
}

static enum err read_all(struct portable_reading *r, struct portable *p)
{
    const char *parts;
    size_t most = 1;
    TRY(meta_read(r, p));
    TRY(check_config(r));
    TRY(meta_text(r, "parts", &parts));
    for (const char *c = parts; *c; c++)
        most += *c == ' ';
    TRY_ALLOC(p->parts = arena_array(r->layout.a, most, sizeof *p->parts));
    for (size_t n; *parts; parts += n + (parts[n] == ' ')) {
        n = strcspn(parts, " ");
        TRY(next_part(r, p, parts, n));
    }
    if (r->used != r->file.count)
        return err_set(ERR_MISMATCH, "%s: %zu tensors that the checkpoint has no place for",
                       r->path, r->file.count - r->used);
    return ERR_OK;
}

enum err portable_read(struct portable *p, const struct settings *s, const struct table *t,
                       const char *dir, struct arena *a)
{
    struct portable_reading r = {.dir = dir};
    char *path;
    *p = (struct portable){0};
    TRY_ALLOC(path = arena_printf(a, "%s/" PORTABLE_FILE, dir));
    r.path = path;
    if (!file_exists(path))
        return err_set(ERR_INPUT, "%s: no such file; atoll export --checkpoint writes it", path);
    TRY(layout_make(&r.layout, s, t, a));
    TRY(safetensors_open(&r.file, a, path));
    enum err e = read_all(&r, p);
    safetensors_close(&r.file);
    return e;
}
