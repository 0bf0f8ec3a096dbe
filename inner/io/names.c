/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/names.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/data/shard.h"
#include "inner/io/hf_config.h"
#include "inner/io/names_own.h"
#include "kernels/base/bf16.h"
#include "kernels/base/log.h"

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* The length of the head's name at the beginning of the name of one of its tensors; 0: of no head.
 * A file may have no tensor of a head. */
static size_t head_name(const struct family *f, const char *ours)
{
    static const char *const heads[] = {"mlm.", "pooler.", "pair.", "classes.", "head."};
    for (size_t i = 0; f->encoder && i < FAMILY_COUNT(heads); i++)
        if (begins(ours, heads[i])) {
            size_t n = strlen(heads[i]);
            return i == 3 ? n + strcspn(ours + n, ".") : n - 1;
        }
    return 0;
}

static void take_part(struct names_pair *p, const struct settings *s, enum family_part part)
{
    size_t C = (size_t)s->model_d_model, F = table_mlp(s);
    size_t KV = C / (size_t)s->model_heads * table_kv_heads(s);
    const struct {
        size_t first, rows;
    } parts[] = {[WHOLE] = {0, p->rows}, [TRANSPOSED] = {0, p->rows}, [QUERY] = {0, C},
                 [KEY] = {C, KV},        [VALUE] = {C + KV, KV},      [GATE] = {0, F},
                 [UP] = {F, F}};
    p->first = parts[part].first;
    p->rows = parts[part].rows;
}

/* The matrix or gain that a bias belongs to. */
static const struct tensor *weight_of(const struct table *t, const char *bias)
{
    char weight[TABLE_NAME_MAX + 8];
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(strlen(bias) - strlen(".bias")), bias);
    return table_find(t, weight);
}

/* What stands for a tensor that this model does not have. */
static void lack(struct names_pair *p, const struct names_context *x, const char *ours)
{
    const struct tensor *weight = ends_in(ours, ".bias") ? weight_of(x->table, ours) : NULL;
    bool types = x->family->zero_biases && !strcmp(ours, "wtt.weight");
    p->zeros = weight || types;
    p->absent = !p->zeros;
    p->rows = weight ? (size_t)weight->shape[0] : 1;
    p->columns = types ? table_embed(x->settings) : 0;
    p->written = p->zeros && x->family->zero_biases;
}

static struct names_pair pair_of(const struct names_context *x, const struct family_name *n,
                                 char *ours)
{
    struct names_pair p = {.transposed = n->part == TRANSPOSED};
    p.again = x->settings->model_tie_embeddings && !strcmp(ours, "head.weight");
    p.tensor = table_find(x->table, p.again ? "wte.weight" : ours);
    if (!p.tensor) {
        lack(&p, x, ours);
    } else {
        p.written = !p.again;
        p.rows = (size_t)p.tensor->shape[0];
        p.columns = p.tensor->shape[1] > 1 ? (size_t)p.tensor->shape[1] : 0;
    }
    if (!p.absent)
        take_part(&p, x->settings, n->part);
    return p;
}

/* Tensors outside of the layers: with the family's prefix, or (heads) without. */
static void list_outside(const struct names_context *x, const struct family_names *names,
                         const char *prefix, struct names_pair *pairs, size_t *count)
{
    for (size_t i = 0; i < names->count; i++) {
        const struct family_name *n = &names->names[i];
        char ours[TABLE_NAME_MAX];
        const char *star = strchr(n->ours, '*');
        if (star)
            snprintf(ours, sizeof ours, "%.*s%zu%s", (int)(star - n->ours), n->ours, x->task,
                     star + 1);
        else
            snprintf(ours, sizeof ours, "%s", n->ours);
        struct names_pair p = pair_of(x, n, ours);
        p.prefix = strlen(prefix);
        snprintf(p.theirs, sizeof p.theirs, "%s%s", prefix, n->theirs);
        snprintf(p.ours, sizeof p.ours, "%s", ours);
        pairs[(*count)++] = p;
    }
}

static void list_layer(const struct names_context *x, int layer, struct names_pair *pairs,
                       size_t *count)
{
    const struct family *f = x->family;
    for (size_t i = 0; i < f->layer.count; i++) {
        const struct family_name *n = &f->layer.names[i];
        char ours[TABLE_NAME_MAX];
        snprintf(ours, sizeof ours, "layers.%d.%s", layer, n->ours);
        struct names_pair p = pair_of(x, n, ours);
        p.prefix = strlen(f->prefix);
        snprintf(p.theirs, sizeof p.theirs, "%s%s%d%s%s", f->prefix, f->layer_before, layer,
                 f->layer_behind, n->theirs);
        snprintf(p.ours, sizeof p.ours, "%s", ours);
        pairs[(*count)++] = p;
    }
}

enum err names_pairs(struct names_context *x, struct arena *a, struct names_pair **pairs,
                     size_t *count)
{
    TRY(table_own(x->settings));
    TRY(family_of(x->settings, &x->family));
    const struct family *f = x->family;
    size_t layers = table_layers(x->settings);
    TRY_ALLOC(*pairs = arena_array(a, f->body.count + f->layer.count * layers + f->heads.count,
                                   sizeof **pairs));
    *count = 0;
    list_outside(x, &f->body, f->prefix, *pairs, count);
    for (size_t i = 0; i < layers; i++)
        list_layer(x, (int)i, *pairs, count);
    list_outside(x, &f->heads, "", *pairs, count);
    return ERR_OK;
}

enum err names_places(const struct settings *s, const struct table *t, struct arena *a,
                      struct names_place **places, size_t *count)
{
    struct names_context x = {.settings = s, .table = t};
    struct names_pair *pairs;
    size_t all;
    *count = 0;
    TRY(names_pairs(&x, a, &pairs, &all));
    TRY_ALLOC(*places = arena_array(a, all, sizeof **places));
    for (size_t i = 0; i < all; i++)
        if (pairs[i].written && pairs[i].tensor)
            (*places)[(*count)++] =
                (struct names_place){pairs[i].tensor->name, pairs[i].theirs, pairs[i].first,
                                     pairs[i].rows, pairs[i].transposed};
    return ERR_OK;
}

/* ---- export ---- */
enum err names_convert(const struct names_pair *p, const float *slab, bool bf16, struct arena *a,
                       struct safetensors_tensor *out)
{
    size_t columns = p->columns ? p->columns : 1, count = p->rows * columns, size = bf16 ? 2 : 4;
    char *data;
    TRY_ALLOC(data = arena_array(a, count, size));
    for (size_t r = 0; r < p->rows && p->tensor; r++)
        for (size_t c = 0; c < columns; c++) {
            float x = slab[names_ours_at(p, r, c)];
            uint16_t h = bf16_round(x);
            memcpy(data + names_theirs_at(p, r, c) * size, bf16 ? (void *)&h : (void *)&x, size);
        }
    *out = (struct safetensors_tensor){.name = p->theirs,
                                       .dtype = bf16 ? SAFETENSORS_BF16 : SAFETENSORS_F32,
                                       .rank = p->columns ? 2 : 1,
                                       .data = data,
                                       .size_bytes = count * size};
    out->shape[0] = p->transposed ? columns : p->rows;
    out->shape[1] = p->transposed ? p->rows : columns;
    return ERR_OK;
}

/* The names that data.classes has for a task: all of them, or those of "TASK=NAME", where
 * data.train says which task is which. */
static enum err task_classes(const struct settings *s, size_t task, struct arena *a,
                             struct config_list *names)
{
    const struct config_list *all = &s->data_classes;
    struct shard_group *groups;
    size_t count;
    *names = (struct config_list){NULL, 0};
    TRY(shard_groups(&s->data_train, a, &groups, &count));
    const char *name = s->model_classes.count > 1 && task < count ? groups[task].name : "";
    size_t n = strlen(name);
    TRY_ALLOC(names->items = arena_array(a, all->count + 1, sizeof *names->items));
    for (size_t i = 0; i < all->count; i++)
        if (!n || (!strncmp(all->items[i], name, n) && all->items[i][n] == '='))
            names->items[names->count++] = all->items[i] + (n ? n + 1 : 0);
    return ERR_OK;
}

/* Without names LABEL_0, .., as in transformers. */
static char *class_name(const struct config_list *names, size_t classes, size_t i, struct arena *a)
{
    return names->count == classes ? json_quoted(names->items[i], a)
                                   : arena_printf(a, "\"LABEL_%zu\"", i);
}

/* {"0": "LABEL_0", ..}, and the way back. */
static enum err class_labels(const struct settings *s, size_t task, struct arena *a, char **text)
{
    struct config_list names;
    char *to, *from;
    TRY(task_classes(s, task, a, &names));
    TRY_ALLOC(*text = arena_printf(a, "%s", ""));
    TRY_ALLOC(to = from = *text);
    size_t count = s->model_classes.count ? (size_t)keys_classes(s, task) : 0;
    for (size_t i = 0; i < count; i++) {
        const char *comma = i ? ", " : "", *name = class_name(&names, count, i, a);
        TRY_ALLOC(name);
        TRY_ALLOC(to = arena_printf(a, "%s%s\"%zu\": %s", to, comma, i, name));
        TRY_ALLOC(from = arena_printf(a, "%s%s%s: %zu", from, comma, name, i));
    }
    if (count)
        TRY_ALLOC(*text =
                      arena_printf(a, "  \"id2label\": {%s},\n  \"label2id\": {%s},\n", to, from));
    return ERR_OK;
}

static enum err write_config(const struct names_context *x, bool bf16, const char *dir,
                             struct arena *a)
{
    struct hf_export e = {
        .s = x->settings, .family = x->family, .dtype = bf16 ? "bfloat16" : "float32"};
    char *path, *text, *labels;
    TRY(class_labels(x->settings, x->task, a, &labels));
    e.labels = labels;
    TRY_ALLOC(path = arena_printf(a, "%s/config.json", dir));
    TRY(hf_write(&e, a, &text));
    struct file_part part = {text, strlen(text)};
    return file_write(path, &part, 1, 0644);
}

/* ---- export in parts ---- */
struct export
{
    struct names_context names;
    const float *slab;
    const struct names_options *o;
    const struct names_pair **pairs; /* those that are written */
    size_t count;
    struct safetensors_place *places; /* [count] for the index */
    uint64_t total_bytes;
};

static size_t pair_bytes(const struct names_pair *p, bool bf16)
{
    return p->rows * (p->columns ? p->columns : 1) * (bf16 ? 2 : 4);
}

/* One past the last pair of the part that begins at `first`: as many as fit, one at least. */
static size_t part_end(const struct export *x, size_t first)
{
    uint64_t bytes = 0;
    size_t end = first;
    do
        bytes += pair_bytes(x->pairs[end++], x->o->bf16);
    while (end < x->count && bytes + pair_bytes(x->pairs[end], x->o->bf16) <= x->o->part_bytes);
    return end;
}

static enum err write_part(const struct export *x, size_t first, size_t end, const char *path)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct arena a = arena_make(0);
    struct safetensors_tensor *tensors = arena_array(&a, end - first, sizeof *tensors);
    enum err e = tensors ? ERR_OK : ERR_MEMORY;
    for (size_t i = first; i < end && !e; i++)
        e = names_convert(x->pairs[i], x->slab, x->o->bf16, &a, &tensors[i - first]);
    if (!e)
        e = safetensors_write(path, tensors, end - first, metadata);
    arena_free(&a);
    return e;
}

static enum err remove_file(const char *dir, const char *name, struct arena *a)
{
    char *path;
    TRY_ALLOC(path = arena_printf(a, "%s/%s", dir, name));
    return file_remove(path);
}

/* As transformers names the parts. The index comes last: without it nothing reads them. */
static enum err write_parts(struct export *x, size_t parts, const char *dir, struct arena *a)
{
    char *name, *path;
    for (size_t i = 0, first = 0, end; i < parts; i++, first = end) {
        end = part_end(x, first);
        TRY_ALLOC(name = arena_printf(a, "model-%05zu-of-%05zu.safetensors", i + 1, parts));
        TRY_ALLOC(path = arena_printf(a, "%s/%s", dir, name));
        TRY(write_part(x, first, end, path));
        for (size_t k = first; k < end; k++)
            x->places[k] = (struct safetensors_place){x->pairs[k]->theirs, name};
    }
    TRY_ALLOC(path = arena_printf(a, "%s/model.safetensors.index.json", dir));
    TRY(safetensors_write_index(path, x->places, x->count, x->total_bytes));
    return remove_file(dir, "model.safetensors",
                       a); /* of an earlier export: it would be read instead */
}

static enum err write_files(struct export *x, const char *dir, struct arena *a)
{
    char *path;
    size_t parts = 0;
    for (size_t first = 0; first < x->count; parts++)
        first = part_end(x, first);
    if (parts > 1)
        return write_parts(x, parts, dir, a);
    TRY_ALLOC(path = arena_printf(a, "%s/model.safetensors", dir));
    TRY(write_part(x, 0, x->count, path));
    return remove_file(dir, "model.safetensors.index.json", a);
}

static enum err write_all(struct export *x, const char *dir, struct arena *a)
{
    struct names_pair *pairs;
    size_t count;
    TRY(names_pairs(&x->names, a, &pairs, &count));
    TRY_ALLOC(x->pairs = arena_array(a, count, sizeof *x->pairs));
    TRY_ALLOC(x->places = arena_array(a, count, sizeof *x->places));
    for (size_t i = 0; i < count; i++) {
        if (!pairs[i].written)
            continue;
        x->pairs[x->count++] = &pairs[i];
        x->total_bytes += pair_bytes(&pairs[i], x->o->bf16);
    }
    TRY(file_mkdirs(dir));
    TRY(write_files(x, dir, a));
    return write_config(&x->names, x->o->bf16, dir, a);
}

enum err names_export(const struct settings *s, const struct table *t, const float *slab,
                      const struct names_options *o, const char *dir)
{
    struct arena a = arena_make(0);
    struct export x = {.names = {.settings = s, .table = t, .task = o->task}, .slab = slab, .o = o};
    if (s->model_classifier_heads > 1)
        return err_set(
            ERR_CONFIG,
            "model.classifier_heads = %lld: a model of Hugging Face has one classifier, and the "
            "mean of several is none; atoll eval and atoll sample use it",
            (long long)s->model_classifier_heads);
    enum err e = s->model_classes.count && o->task >= s->model_classes.count
                     ? err_set(ERR_CONFIG, "task %zu: model.classes has %zu", o->task,
                               s->model_classes.count)
                     : write_all(&x, dir, &a);
    arena_free(&a);
    return e;
}

static enum err copy_file(const char *from, const char *to, struct arena *a)
{
    enum { TOKENIZER_BYTES_MAX = 1 << 28 };
    uint8_t *data;
    size_t size_bytes;
    TRY(file_read(from, TOKENIZER_BYTES_MAX, a, &data, &size_bytes));
    return file_write(to, &(struct file_part){data, size_bytes}, 1, 0644);
}

enum err names_copy_tokenizer(const char *from, const char *dir, struct arena *a, char **copied)
{
    static const char *const names[] = {"tokenizer.json",
                                        "vocab.txt",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "spiece.model",
                                        "tokenizer.model"};
    char *source, *target;
    TRY_ALLOC(*copied = arena_printf(a, "%s", ""));
    for (size_t i = 0; from && i < FAMILY_COUNT(names); i++) {
        TRY_ALLOC(source = arena_printf(a, "%s/%s", from, names[i]));
        TRY_ALLOC(target = arena_printf(a, "%s/%s", dir, names[i]));
        if (!file_exists(source))
            continue;
        TRY(copy_file(source, target, a));
        TRY_ALLOC(*copied = arena_printf(a, "%s%s%s", *copied, **copied ? ", " : "", names[i]));
    }
    return ERR_OK;
}

/* ---- import ---- */
/* A file, or several, of theirs. */
struct opened {
    struct safetensors tensors;
    const struct family *family;
    char **plain; /* [tensors.count] the names without prefix, and not the older ones */
};

/* What torch.compile and DistributedDataParallel put before every name, once or both. */
static const char *const wrappers[] = {"_orig_mod.", "module."};

static size_t wrapper_at(const char *name)
{
    for (size_t w = 0; w < FAMILY_COUNT(wrappers); w++)
        if (begins(name, wrappers[w]))
            return strlen(wrappers[w]);
    return 0;
}

/* The length that all names have in common. ERR_INPUT: some are wrapped and some are not. */
static enum err find_wrapper(const struct safetensors *s, const char *path, size_t *length)
{
    *length = 0;
    for (size_t more; s->count && (more = wrapper_at(s->tensors[0].name + *length));)
        *length += more;
    for (size_t i = 0; i < s->count; i++) {
        const char *first = s->tensors[0].name, *name = s->tensors[i].name;
        if (strncmp(first, name, *length) || wrapper_at(name + *length))
            return err_set(
                ERR_INPUT,
                "%s: of %s and %s one has a prefix of torch.compile (_orig_mod.) or "
                "DistributedDataParallel (module.) that the other does not have: save the inner "
                "model's state_dict()",
                path, first, name);
    }
    return ERR_OK;
}

static enum err plain_name(const struct family *f, const char *name, struct arena *a, char **out)
{
    if (begins(name, f->prefix))
        name += strlen(f->prefix);
    TRY_ALLOC(*out = arena_string(a, name, strlen(name)));
    for (size_t i = 0; f->aliases && f->aliases[i][0]; i++)
        if (ends_in(*out, f->aliases[i][0]))
            TRY_ALLOC(*out =
                          arena_printf(a, "%.*s%s", (int)(strlen(*out) - strlen(f->aliases[i][0])),
                                       *out, f->aliases[i][1]));
    return ERR_OK;
}

static enum err opened_plain(struct opened *file, const char *path, struct arena *a)
{
    size_t wrapper;
    TRY(find_wrapper(&file->tensors, path, &wrapper));
    if (wrapper)
        log_event(LOG_INFO, "import",
                  "file=%s text=\"every name begins with %.*s, which torch.compile or "
                  "DistributedDataParallel adds: taken without it\"",
                  path, (int)wrapper, file->tensors.tensors[0].name);
    TRY_ALLOC(file->plain = arena_array(a, file->tensors.count + 1, sizeof *file->plain));
    for (size_t i = 0; i < file->tensors.count; i++)
        TRY(plain_name(file->family, file->tensors.tensors[i].name + wrapper, a, &file->plain[i]));
    return ERR_OK;
}

static bool same_data(const struct safetensors_tensor *x, const struct safetensors_tensor *y)
{
    return x->dtype == y->dtype && x->size_bytes == y->size_bytes &&
           !memcmp(x->data, y->data, x->size_bytes);
}

/* NULL: the file does not have it. Under two names, it must be the same twice. */
static enum err opened_find(const struct opened *file, const struct names_pair *p, const char *path,
                            const struct safetensors_tensor **out)
{
    *out = NULL;
    for (size_t i = 0; i < file->tensors.count; i++) {
        const struct safetensors_tensor *x = &file->tensors.tensors[i];
        if (strcmp(file->plain[i], p->theirs + p->prefix) != 0)
            continue;
        if (*out && !same_data(*out, x))
            return err_set(ERR_MISMATCH, "%s: %s and %s differ, and are the same tensor", path,
                           (*out)->name, x->name);
        *out = x;
    }
    return ERR_OK;
}

/* IEEE 754 binary16. */
static float f16_float(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023), value;
    if (exponent == 31)
        value = fraction > 0 ? NAN : INFINITY;
    else
        value = exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
    return h >> 15 ? -value : value;
}

static float element(const struct safetensors_tensor *x, size_t i)
{
    uint16_t h;
    float f;
    if (x->dtype == SAFETENSORS_F32) {
        memcpy(&f, (const char *)x->data + 4 * i, 4);
        return f;
    }
    memcpy(&h, (const char *)x->data + 2 * i, 2);
    return x->dtype == SAFETENSORS_BF16 ? bf16_float(h) : f16_float(h);
}

static enum err check_finite(const struct safetensors_tensor *x, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(element(x, i)))
            return err_set(ERR_INPUT, "%s: %s holds a value that is not finite, at %zu", path,
                           x->name, i);
    return ERR_OK;
}

bool names_same_shape(const struct names_pair *p, const struct safetensors_tensor *x)
{
    size_t columns = p->columns ? p->columns : 1;
    if (!p->columns)
        return x->rank == 1 && x->shape[0] == p->rows;
    return x->rank == 2 && x->shape[0] == (p->transposed ? columns : p->rows) &&
           x->shape[1] == (p->transposed ? p->rows : columns);
}

static enum err check(const struct names_pair *p, const struct safetensors_tensor *x,
                      const char *path)
{
    if (!x)
        return p->tensor && !p->again
                   ? err_set(ERR_MISMATCH, "%s has no tensor %s", path, p->theirs)
                   : ERR_OK;
    if (x->dtype != SAFETENSORS_F32 && x->dtype != SAFETENSORS_BF16 && x->dtype != SAFETENSORS_F16)
        return err_set(ERR_UNSUPPORTED, "%s: %s is neither F32, BF16 nor F16", path, x->name);
    if (!names_same_shape(p, x))
        return err_set(ERR_MISMATCH,
                       "%s: %s has another shape than the model of this configuration", path,
                       x->name);
    size_t count = p->rows * (p->columns ? p->columns : 1);
    for (size_t i = 0; i < count && p->zeros; i++)
        if (element(x, i) != 0)
            return err_set(ERR_MISMATCH, "%s: %s is not zero, but %s", path, x->name,
                           p->columns ? "model.token_types = 0" : "model.bias = false");
    return check_finite(x, count, path);
}

/* The slab holds the embedding already. */
static enum err check_tied(const struct names_pair *p, const struct safetensors_tensor *x,
                           const float *slab, const char *path)
{
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (slab[names_ours_at(p, r, c)] != element(x, names_theirs_at(p, r, c)))
                return err_set(
                    ERR_MISMATCH,
                    "%s: %s is not the embedding once more; set model.tie_embeddings = false", path,
                    x->name);
    return ERR_OK;
}

static enum err fetch(const struct names_pair *p, const struct opened *file, float *slab,
                      const char *path)
{
    const struct safetensors_tensor *x;
    size_t columns = p->columns ? p->columns : 1;
    TRY(opened_find(file, p, path, &x));
    if (p->absent || (!x && p->seeded))
        return ERR_OK;
    TRY(check(p, x, path));
    if (p->again)
        return x ? check_tied(p, x, slab, path) : ERR_OK;
    for (size_t r = 0; r < p->rows && p->tensor; r++)
        for (size_t c = 0; c < columns; c++)
            slab[names_ours_at(p, r, c)] = element(x, names_theirs_at(p, r, c));
    return ERR_OK;
}

/* What older files hold in addition to the parameters: masks, rope's angles, position ids. */
static bool constant(const struct family *f, const char *name)
{
    for (size_t i = 0; f->constants[i]; i++)
        if (ends_in(name, f->constants[i]))
            return true;
    return false;
}

/* A tensor without a place in this model (a further layer, for instance) means another model. */
static enum err check_all_read(const struct names_pair *pairs, size_t count,
                               const struct opened *file, const char *path)
{
    for (size_t i = 0; i < file->tensors.count; i++) {
        bool known = constant(file->family, file->tensors.tensors[i].name);
        for (size_t k = 0; k < count && !known; k++)
            known = !strcmp(file->plain[i], pairs[k].theirs + pairs[k].prefix) &&
                    (!pairs[k].absent || head_name(file->family, pairs[k].ours));
        if (!known)
            return err_set(ERR_MISMATCH,
                           "%s: the model of this configuration has no place for %s: another "
                           "model.layers, or another kind of model",
                           path, file->tensors.tensors[i].name);
    }
    return ERR_OK;
}

/* ---- heads that only one side has ---- */
static bool same_head(const struct family *f, const struct names_pair *p,
                      const struct names_pair *q)
{
    size_t n = head_name(f, p->ours);
    return n && n == head_name(f, q->ours) && !strncmp(p->ours, q->ours, n);
}

static enum err add_head(const struct family *f, const struct names_pair *p, struct arena *a,
                         char **list)
{
    const char *comma = **list ? ", " : "";
    TRY_ALLOC(*list =
                  arena_printf(a, "%s%s%.*s", *list, comma, (int)head_name(f, p->ours), p->ours));
    return ERR_OK;
}

static bool in_file(const struct opened *file, const struct names_pair *p)
{
    for (size_t i = 0; i < file->tensors.count; i++)
        if (!strcmp(file->plain[i], p->theirs + p->prefix))
            return true;
    return false;
}

/* Another pair reads the same tensor. */
static bool claimed(const struct names_pair *pairs, size_t count, const struct names_pair *p)
{
    for (size_t i = 0; i < count; i++)
        if (!pairs[i].absent && !strcmp(pairs[i].theirs, p->theirs))
            return true;
    return false;
}

/* The pairs from `first` on that are of its head: is one of them in the file, and read by no other
 * head? Marks them seeded if none is there. */
static bool head_there(const struct opened *file, struct names_pair *pairs, size_t count,
                       size_t first)
{
    bool there = false;
    for (size_t i = first; i < count; i++)
        there = there ||
                (same_head(file->family, &pairs[first], &pairs[i]) && in_file(file, &pairs[i]) &&
                 !(pairs[i].absent && claimed(pairs, count, &pairs[i])));
    for (size_t i = first; i < count; i++)
        if (same_head(file->family, &pairs[first], &pairs[i]))
            pairs[i].seeded = !there && !pairs[i].absent && !pairs[i].again;
    return there;
}

static enum err find_heads(const struct opened *file, struct names_pair *pairs, size_t count,
                           struct names_heads *heads, struct arena *a)
{
    TRY_ALLOC(heads->seeded = arena_printf(a, "%s", ""));
    TRY_ALLOC(heads->left = arena_printf(a, "%s", ""));
    for (size_t i = 0; i < count; i++) {
        bool first = head_name(file->family, pairs[i].ours) > 0;
        for (size_t k = 0; k < i && first; k++)
            first = !same_head(file->family, &pairs[i], &pairs[k]);
        if (!first)
            continue;
        bool there = head_there(file, pairs, count, i);
        if (there && pairs[i].absent)
            TRY(add_head(file->family, &pairs[i], a, &heads->left));
        if (pairs[i].seeded)
            TRY(add_head(file->family, &pairs[i], a, &heads->seeded));
    }
    return ERR_OK;
}

/* Heads of further tasks: no file of theirs has them. */
static enum err find_further_tasks(const struct names_context *x, struct names_heads *heads,
                                   struct arena *a)
{
    for (size_t i = 0; i < x->settings->model_classes.count; i++)
        if (i != x->task)
            TRY_ALLOC(heads->seeded = arena_printf(a, "%s%sclasses.%zu", heads->seeded,
                                                   *heads->seeded ? ", " : "", i));
    return ERR_OK;
}

/* What the shapes of tensors do not show: a model trained with others would be another function. */
static enum err check_config(const struct settings *s, const struct names_source *from)
{
    struct hf_config c;
    char *config;
    TRY(names_config(from->path, from->arena, &config));
    if (!file_exists(config))
        return ERR_OK;
    TRY(hf_read_ignoring(&c, config, from->ignored, from->arena));
    return hf_check(&c, s, from->arena);
}

static enum err read_all(struct names_context *x, const struct names_source *from,
                         struct opened *file, float *slab, struct names_heads *heads)
{
    struct names_pair *pairs;
    size_t count;
    struct arena *a = from->arena;
    TRY(check_config(x->settings, from));
    TRY(names_pairs(x, a, &pairs, &count));
    file->family = x->family;
    TRY(opened_plain(file, from->path, a));
    TRY(find_heads(file, pairs, count, heads, a));
    TRY(find_further_tasks(x, heads, a));
    if (*heads->seeded)
        table_init(x->table, (uint64_t)x->settings->run_seed, slab);
    else
        memset(slab, 0, x->table->elements * sizeof *slab);
    for (size_t i = 0; i < count; i++)
        TRY(fetch(&pairs[i], file, slab, from->path));
    return check_all_read(pairs, count, file, from->path);
}

enum err names_file(const char *path, struct arena *a, char **file)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < FAMILY_COUNT(names); i++) {
        TRY_ALLOC(*file = arena_printf(a, "%s/%s", path, names[i]));
        if (file_exists(*file))
            return ERR_OK;
    }
    char *inside;
    TRY_ALLOC(*file = arena_printf(a, "%s/%s", path, names[0]));
    TRY_ALLOC(inside = arena_printf(a, "%s/.", path));
    if (!file_exists(inside)) /* else a folder without them: *file is what is missing */
        TRY_ALLOC(*file = arena_string(a, path, strlen(path)));
    return ERR_OK;
}

enum err names_config(const char *path, struct arena *a, char **config)
{
    char *file;
    TRY(names_file(path, a, &file));
    const char *slash = strrchr(file, '/');
    TRY_ALLOC(*config =
                  arena_printf(a, "%.*sconfig.json", slash ? (int)(slash + 1 - file) : 0, file));
    return ERR_OK;
}

/* Pickled weights are refused in words; of two sets of weights the one that is taken is named. */
static enum err check_files(const char *path, const char *file, struct arena *a)
{
    static const char *const pickled[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    char *other;
    bool pickle = ends_in(file, ".bin") || ends_in(file, ".pt") || ends_in(file, ".pth");
    for (size_t i = 0; i < FAMILY_COUNT(pickled) && !file_exists(file) && !pickle; i++) {
        TRY_ALLOC(other = arena_printf(a, "%s/%s", path, pickled[i]));
        pickle = file_exists(other);
    }
    if (pickle)
        return err_set(
            ERR_UNSUPPORTED,
            "%s: weights as torch.save pickles them (pytorch_model.bin) are not read, since a "
            "pickle "
            "can run any code. Convert them where you trust the file: python3 -c 'from "
            "transformers "
            "import AutoModelForCausalLM as M; M.from_pretrained(\"%s\").save_pretrained(\"NEW\")' "
            "(encoders: AutoModelForMaskedLM)",
            path, path);
    TRY_ALLOC(other = arena_printf(a, "%s/model.safetensors.index.json", path));
    if (ends_in(file, "/model.safetensors") && file_exists(other))
        log_event(
            LOG_WARN, "import",
            "file=%s why=\"taken, as transformers does; %s next to it is not read: remove the "
            "one that you do not mean\"",
            file, other);
    return ERR_OK;
}

enum err names_import_heads(const struct settings *s, const struct table *t, float *slab,
                            const struct names_source *from, struct names_heads *heads)
{
    struct names_context x = {.settings = s, .table = t};
    struct names_source source = *from;
    struct opened file = {0};
    char *name;
    TRY(names_file(from->path, from->arena, &name));
    TRY(check_files(from->path, name, from->arena));
    source.path = name;
    TRY(safetensors_open(&file.tensors, from->arena, name));
    enum err e = read_all(&x, &source, &file, slab, heads);
    safetensors_close(&file.tensors);
    return e;
}

enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path)
{
    struct arena a = arena_make(0);
    struct names_heads heads;
    enum err e = names_import_heads(s, t, slab, &(struct names_source){path, &a, NULL}, &heads);
    arena_free(&a);
    return e;
}
