/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/train/start.h"
#include <string.h>
#include "inner/io/safetensors.h"
#include "kernels/base/file.h"

static const char *const slab_names[START_SLABS] = {"params", "m", "v"};
static const char *const head_keys[] = {"model.head",    "model.pooler",  "model.pooler_norm",
                                        "model.pooling", "model.classes", "model.heads_n"};

struct start start_of(const float *parameters)
{
    return (struct start){.fresh = "", .there = {true}, .values = parameters};
}

enum err start_read(const struct start *x, int slab, size_t at, float *out, size_t count)
{
    ASSERT(x->there[slab]);
    if (x->r)
        return checkpoint_get(x->r, slab_names[slab], at * sizeof *out, out, count * sizeof *out);
    memcpy(out, x->values + at, count * sizeof *out);
    return ERR_OK;
}

void start_close(struct start *x)
{
    checkpoint_close(x->r);
    x->r = NULL;
}

/* "model.layers=4" ... as YAML. */
static enum err yaml_of(const char *canonical, struct arena *a, char **yaml)
{
    static const char section[] = "model.";
    size_t used;
    TRY_ALLOC(*yaml = arena_alloc(a, 2 * strlen(canonical) + 16));
    strcpy(*yaml, "model:\n");
    used = strlen(*yaml);
    for (size_t n; *canonical; canonical += n + (canonical[n] == '\n')) {
        n = strcspn(canonical, "\n");
        size_t key = strcspn(canonical, "=");
        if (strncmp(canonical, section, sizeof section - 1) != 0 || key >= n)
            continue;
        const char *name = canonical + sizeof section - 1;
        size_t name_bytes = key - (sizeof section - 1);
        (*yaml)[used++] = ' ';
        memcpy(*yaml + used, name, name_bytes);
        used += name_bytes;
        memcpy(*yaml + used, ": ", 2);
        used += 2;
        memcpy(*yaml + used, canonical + key + 1, n - key - 1);
        used += n - key - 1;
        (*yaml)[used++] = '\n';
    }
    (*yaml)[used] = 0;
    return ERR_OK;
}

/* The table of a checkpoint's model. */
static enum err table_of(const struct checkpoint_meta *meta, const char *dir, struct arena *a,
                         struct table *t)
{
    struct settings *s;
    char *yaml;
    TRY_ALLOC(s = arena_alloc(a, sizeof *s));
    TRY(yaml_of(meta->settings, a, &yaml));
    const struct config_table keys = keys_inner(s);
    const struct config_text text = {dir, yaml, strlen(yaml), CONFIG_RECORDED};
    TRY(config_load_text(&keys, 1, &text, 0, NULL, a));
    TRY(table_make(t, s, a));
    struct digest d = table_digest(t);
    return digest_equal(&d, &meta->model)
               ? ERR_OK
               : err_set(ERR_MISMATCH, "%s holds other tensors than its settings describe", dir);
}

/* Its lines of the model, without those of the heads. */
static enum err body_of(const char *canonical, struct arena *a, char **body)
{
    size_t used = 0;
    TRY_ALLOC(*body = arena_alloc(a, strlen(canonical) + 1));
    for (size_t n; *canonical; canonical += n) {
        n = strcspn(canonical, "\n");
        n += canonical[n] == '\n';
        size_t key = strcspn(canonical, "=");
        bool kept = !strncmp(canonical, "model.", strlen("model."));
        for (size_t i = 0; i < sizeof head_keys / sizeof *head_keys; i++)
            kept &= strlen(head_keys[i]) != key || strncmp(canonical, head_keys[i], key) != 0;
        if (!kept)
            continue;
        memcpy(*body + used, canonical, n);
        used += n;
    }
    (*body)[used] = 0;
    return ERR_OK;
}

static enum err check_body(const struct settings *s, const struct checkpoint_meta *meta,
                           const char *dir, struct arena *a)
{
    const struct config_table keys = keys_inner((struct settings *)(uintptr_t)s);
    char *canonical, *ours, *theirs, *difference;
    TRY(config_canonical(&keys, 1, a, &canonical));
    TRY(body_of(canonical, a, &ours));
    TRY(body_of(meta->settings, a, &theirs));
    TRY(config_difference(&keys, 1, ours, theirs, a, &difference));
    if (!*meta->settings || *difference)
        return err_set(ERR_MISMATCH, "%s holds another model than the configuration describes%s%s",
                       dir, *meta->settings ? ": " : "", *meta->settings ? difference : "");
    return ERR_OK;
}

/* Ids of another vocabulary are other words. */
static enum err check_tokenizer(const struct settings *s, const struct checkpoint_meta *meta,
                                const char *dir)
{
    static const char key[] = "\ndata.tokenizer_sha256=";
    const char *ours = s->data_tokenizer_sha256, *theirs = strstr(meta->settings, key);
    size_t n = theirs ? strcspn(theirs + sizeof key - 1, "\n") : 0;
    if (!n || !*ours || (n == strlen(ours) && !strncmp(theirs + sizeof key - 1, ours, n)))
        return ERR_OK;
    return err_set(ERR_MISMATCH,
                   "%s was trained with the tokenizer %.*s; data.tokenizer_sha256 is %s: make the "
                   "shards with the tokenizer of that run (atoll data --tokenizer)",
                   dir, (int)n, theirs + sizeof key - 1, ours);
}

/* A head that multiverse learning has left out is all 0: inner/methods/heads.c. */
static bool is_left_out(const struct tensor *x, const float *values)
{
    bool zero = !strncmp(x->name, "classes.", strlen("classes."));
    for (size_t i = 0; zero && i < x->count; i++)
        zero = values[i] == 0;
    return zero && strstr(x->name, ".weight");
}

/* Heads alone can differ: check_body. */
static enum err copy_tensors(struct start *x, const struct settings *s, const struct table *t,
                             const struct table *old, struct arena *a)
{
    float *to, *from;
    char *fresh = "";
    TRY_ALLOC(from = arena_array(a, old->elements, sizeof *from));
    TRY_ALLOC(to = arena_array(a, t->elements, sizeof *to));
    TRY(start_read(x, 0, 0, from, old->elements));
    table_init(t, (uint64_t)s->run_seed, to);
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *new = &t->tensors[i], *was = table_find(old, new->name);
        if (was && was->shape[0] == new->shape[0] && was->shape[1] == new->shape[1] &&
            !is_left_out(new, from + was->offset))
            memcpy(to + new->offset, from + was->offset, new->count * sizeof *to);
        else
            TRY_ALLOC(fresh = arena_printf(a, "%s%s%s", fresh, *fresh ? ", " : "", new->name));
    }
    start_close(x);
    *x = start_of(to);
    x->fresh = fresh;
    return ERR_OK;
}

static enum err find_slabs(struct start *x, size_t elements, const char *dir)
{
    for (int k = 0; k < START_SLABS; k++)
        x->there[k] = checkpoint_part_bytes(x->r, slab_names[k]) == elements * sizeof(float);
    return x->there[0] ? ERR_OK : err_set(ERR_INPUT, "%s holds no parameters", dir);
}

static bool is_values_file(const char *path)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(path), m = sizeof end - 1;
    return n > m && !strcmp(path + n - m, end);
}

static enum err copy_values(const struct safetensors *file, const struct table *t, const char *path,
                            float *slab)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct tensor *x = &t->tensors[i];
        const struct safetensors_tensor *y = safetensors_find(file, x->name);
        size_t bytes = (size_t)x->shape[0] * (size_t)x->shape[1] * sizeof *slab;
        if (!y || y->dtype != SAFETENSORS_F32 || y->size_bytes != bytes)
            return err_set(ERR_MISMATCH, "%s: tensor %.120s %s", path, x->name,
                           y ? "is not F32, or of another size than the run's" : "is missing");
        memcpy(slab + x->offset, y->data, bytes);
    }
    if (file->count != t->count)
        return err_set(ERR_MISMATCH, "%s has %zu tensors, the run %zu", path, file->count,
                       t->count);
    return ERR_OK;
}

/* A trainer's own values, by the names of the table. */
static enum err read_values(struct start *x, const struct table *t, const char *path,
                            struct arena *a)
{
    struct safetensors file;
    float *slab;
    TRY_ALLOC(slab = arena_array(a, t->elements, sizeof *slab));
    memset(slab, 0, t->elements * sizeof *slab);
    TRY(safetensors_open(&file, a, path));
    enum err e = copy_values(&file, t, path, slab);
    safetensors_close(&file);
    *x = start_of(slab);
    return e;
}

enum err start_open(struct start *x, const struct settings *s, const struct table *t,
                    const char *dir, struct arena *a)
{
    const struct digest want = table_digest(t);
    struct checkpoint_meta meta;
    struct table old;
    char *inner;
    *x = (struct start){.fresh = ""};
    if (is_values_file(dir))
        return read_values(x, t, dir, a);
    TRY_ALLOC(inner = arena_printf(a, "%s/inner", dir));
    dir = file_exists(inner) ? inner : dir;
    TRY(checkpoint_look(&x->r, dir, UINT64_MAX, &meta));
    TRY(check_tokenizer(s, &meta, dir));
    if (digest_equal(&meta.model, &want))
        return find_slabs(x, t->elements, dir);
    TRY(check_body(s, &meta, dir, a));
    TRY(table_of(&meta, dir, a, &old));
    TRY(find_slabs(x, old.elements, dir));
    return copy_tensors(x, s, t, &old, a);
}
