#include "inner/model/names.h"
#include <stdio.h>
#include <string.h>
#include "inner/safetensors.h"
#include "kernels/scalar/bf16.h"

struct name {
    const char *ours, *theirs;
    bool transposed;
    bool bias; /* GPT-2 always has it, we may not */
};
static const struct name outside[] = {
    {"wte.weight", "wte.weight", false, false},
    {"wpe.weight", "wpe.weight", false, false},
    {"norm.weight", "ln_f.weight", false, false},
    {"norm.bias", "ln_f.bias", false, true},
};
static const struct name inside[] = {
    {"norm1.weight", "ln_1.weight", false, false},
    {"norm1.bias", "ln_1.bias", false, true},
    {"attn.qkv.weight", "attn.c_attn.weight", true, false},
    {"attn.qkv.bias", "attn.c_attn.bias", false, true},
    {"attn.proj.weight", "attn.c_proj.weight", true, false},
    {"attn.proj.bias", "attn.c_proj.bias", false, true},
    {"norm2.weight", "ln_2.weight", false, false},
    {"norm2.bias", "ln_2.bias", false, true},
    {"mlp.up.weight", "mlp.c_fc.weight", true, false},
    {"mlp.up.bias", "mlp.c_fc.bias", false, true},
    {"mlp.down.weight", "mlp.c_proj.weight", true, false},
    {"mlp.down.bias", "mlp.c_proj.bias", false, true},
};
enum { OUTSIDE = sizeof outside / sizeof *outside, INSIDE = sizeof inside / sizeof *inside };
static const char prefix[] = "transformer.";

/* One tensor on both sides. */
struct pair {
    char theirs[64];             /* with prefix */
    const struct tensor *tensor; /* NULL: a bias that we lack */
    size_t rows, columns;        /* ours; columns 0: a vector */
    bool transposed;
};

enum err names_supported(const struct settings *s)
{
    if (strcmp(s->model_norm, "layer"))
        return err_set(ERR_UNSUPPORTED, "model.norm = %s: GPT-2 has LayerNorm", s->model_norm);
    if (!s->model_causal)
        return err_set(ERR_UNSUPPORTED, "model.causal = false: GPT-2 is causal");
    if (strcmp(s->model_positions, "learned"))
        return err_set(ERR_UNSUPPORTED, "model.positions = %s: GPT-2's are learned",
                       s->model_positions);
    if (table_gated(s))
        return err_set(ERR_UNSUPPORTED, "model.activation = %s: GPT-2 has GELU",
                       s->model_activation);
    if (table_kv_heads(s) != (size_t)s->model_heads)
        return err_set(ERR_UNSUPPORTED, "model.kv_heads: GPT-2's heads share no keys");
    if (!s->model_tied)
        return err_set(ERR_UNSUPPORTED, "model.tied = false: GPT-2's head is its embedding");
    return ERR_OK;
}

/* Length of a bias that our table lacks. */
static size_t bias_length(const struct settings *s, const char *ours)
{
    size_t C = (size_t)s->model_width;
    return !strcmp(ours, "attn.qkv.bias") ? 3 * C : !strcmp(ours, "mlp.up.bias") ? table_mlp(s) : C;
}

static struct pair pair_of(const struct settings *s, const struct table *t, const struct name *n,
                           int layer)
{
    struct pair p = {.transposed = n->transposed};
    char ours[TABLE_NAME_MAX];
    if (layer < 0) {
        snprintf(ours, sizeof ours, "%s", n->ours);
        snprintf(p.theirs, sizeof p.theirs, "%s%s", prefix, n->theirs);
    } else {
        snprintf(ours, sizeof ours, "layers.%d.%s", layer, n->ours);
        snprintf(p.theirs, sizeof p.theirs, "%sh.%d.%s", prefix, layer, n->theirs);
    }
    p.tensor = table_find(t, ours);
    ASSERT(p.tensor || n->bias);
    p.rows = p.tensor ? (size_t)p.tensor->shape[0] : bias_length(s, n->ours);
    p.columns = p.tensor && p.tensor->shape[1] > 1 ? (size_t)p.tensor->shape[1] : 0;
    return p;
}

static enum err list_pairs(const struct settings *s, const struct table *t, struct arena *a,
                           struct pair **pairs, size_t *count)
{
    size_t most = OUTSIDE + INSIDE * (size_t)s->model_layers;
    TRY_ALLOC(*pairs = arena_array(a, most, sizeof **pairs));
    *count = 0;
    for (size_t i = 0; i < OUTSIDE; i++)
        (*pairs)[(*count)++] = pair_of(s, t, &outside[i], -1);
    for (int layer = 0; layer < s->model_layers; layer++)
        for (size_t i = 0; i < INSIDE; i++)
            (*pairs)[(*count)++] = pair_of(s, t, &inside[i], layer);
    return ERR_OK;
}

/* Where element (r, c) of ours lies in theirs. */
static size_t place(const struct pair *p, size_t r, size_t c)
{
    return p->transposed ? c * p->rows + r : r * (p->columns ? p->columns : 1) + c;
}

/* ---- export -------------------------------------------------------------------------------- */
static enum err convert(const struct pair *p, const float *slab, bool bf16, struct arena *a,
                        struct safetensors_tensor *out)
{
    size_t columns = p->columns ? p->columns : 1, count = p->rows * columns, size = bf16 ? 2 : 4;
    char *data;
    TRY_ALLOC(data = arena_array(a, count, size));
    for (size_t r = 0; r < p->rows && p->tensor; r++)
        for (size_t c = 0; c < columns; c++) {
            float x = slab[p->tensor->offset + r * columns + c];
            uint16_t h = bf16_round(x);
            memcpy(data + place(p, r, c) * size, bf16 ? (void *)&h : (void *)&x, size);
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

static enum err write_config(const struct settings *s, bool bf16, const char *dir, struct arena *a)
{
    char *path, *text;
    TRY_ALLOC(path = arena_printf(a, "%s/config.json", dir));
    static const char format[] = "{\n"
                                 "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                                 "  \"model_type\": \"gpt2\",\n"
                                 "  \"vocab_size\": %lld,\n"
                                 "  \"n_positions\": %lld,\n"
                                 "  \"n_embd\": %lld,\n"
                                 "  \"n_layer\": %lld,\n"
                                 "  \"n_head\": %lld,\n"
                                 "  \"n_inner\": %zu,\n"
                                 "  \"activation_function\": \"%s\",\n"
                                 "  \"layer_norm_epsilon\": 1e-05,\n"
                                 "  \"embd_pdrop\": 0.0,\n"
                                 "  \"attn_pdrop\": 0.0,\n"
                                 "  \"resid_pdrop\": 0.0,\n"
                                 "  \"bos_token_id\": null,\n"
                                 "  \"eos_token_id\": null,\n"
                                 "  \"tie_word_embeddings\": true,\n"
                                 "  \"torch_dtype\": \"%s\"\n"
                                 "}\n";
    const char *act = strcmp(s->model_activation, "gelu") ? "gelu" : "gelu_new";
    TRY_ALLOC(text = arena_printf(a, format, (long long)s->model_vocab, (long long)s->model_context,
                                  (long long)s->model_width, (long long)s->model_layers,
                                  (long long)s->model_heads, table_mlp(s), act,
                                  bf16 ? "bfloat16" : "float32"));
    struct file_part part = {text, strlen(text)};
    return file_write(path, &part, 1, 0644);
}

static enum err write_all(const struct settings *s, const struct table *t, const float *slab,
                          bool bf16, const char *dir, struct arena *a)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct pair *pairs;
    struct safetensors_tensor *tensors;
    size_t count;
    char *path;
    TRY(names_supported(s));
    TRY(list_pairs(s, t, a, &pairs, &count));
    TRY_ALLOC(tensors = arena_array(a, count, sizeof *tensors));
    for (size_t i = 0; i < count; i++)
        TRY(convert(&pairs[i], slab, bf16, a, &tensors[i]));
    TRY(file_mkdirs(dir));
    TRY_ALLOC(path = arena_printf(a, "%s/model.safetensors", dir));
    TRY(safetensors_write(path, tensors, count, metadata));
    return write_config(s, bf16, dir, a);
}

enum err names_export(const struct settings *s, const struct table *t, const float *slab, bool bf16,
                      const char *dir)
{
    struct arena a = arena_make(0);
    enum err e = write_all(s, t, slab, bf16, dir, &a);
    arena_free(&a);
    return e;
}

/* ---- import -------------------------------------------------------------------------------- */
static float element(const struct safetensors_tensor *x, size_t i)
{
    uint16_t h;
    float f;
    if (x->dtype == SAFETENSORS_BF16) {
        memcpy(&h, (const char *)x->data + 2 * i, 2);
        return bf16_float(h);
    }
    memcpy(&f, (const char *)x->data + 4 * i, 4);
    return f;
}

static bool same_shape(const struct pair *p, const struct safetensors_tensor *x)
{
    size_t columns = p->columns ? p->columns : 1;
    if (!p->columns)
        return x->rank == 1 && x->shape[0] == p->rows;
    return x->rank == 2 && x->shape[0] == (p->transposed ? columns : p->rows) &&
           x->shape[1] == (p->transposed ? p->rows : columns);
}

static enum err check(const struct pair *p, const struct safetensors_tensor *x, const char *path)
{
    if (!x)
        return p->tensor ? err_set(ERR_MISMATCH, "%s has no tensor %s", path, p->theirs) : ERR_OK;
    if (x->dtype != SAFETENSORS_F32 && x->dtype != SAFETENSORS_BF16)
        return err_set(ERR_UNSUPPORTED, "%s: %s is neither F32 nor BF16", path, x->name);
    if (!same_shape(p, x))
        return err_set(ERR_MISMATCH,
                       "%s: %s has another shape than the model of this configuration", path,
                       x->name);
    for (size_t i = 0; i < p->rows && !p->tensor; i++)
        if (element(x, i) != 0)
            return err_set(ERR_MISMATCH, "%s: %s is not zero, but model.bias = false", path,
                           x->name);
    return ERR_OK;
}

static enum err fetch(const struct pair *p, const struct safetensors *file, float *slab,
                      const char *path)
{
    const struct safetensors_tensor *x = safetensors_find(file, p->theirs);
    size_t columns = p->columns ? p->columns : 1;
    if (!x)
        x = safetensors_find(file, p->theirs + strlen(prefix));
    TRY(check(p, x, path));
    for (size_t r = 0; r < p->rows && p->tensor; r++)
        for (size_t c = 0; c < columns; c++)
            slab[p->tensor->offset + r * columns + c] = element(x, place(p, r, c));
    return ERR_OK;
}

static enum err read_all(const struct settings *s, const struct table *t, float *slab,
                         const struct safetensors *file, const char *path, struct arena *a)
{
    struct pair *pairs;
    size_t count;
    TRY(list_pairs(s, t, a, &pairs, &count));
    memset(slab, 0, t->elements * sizeof *slab);
    for (size_t i = 0; i < count; i++)
        TRY(fetch(&pairs[i], file, slab, path));
    return ERR_OK;
}

enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path)
{
    struct arena a = arena_make(0);
    struct safetensors file;
    TRY(names_supported(s));
    enum err e = safetensors_open(&file, &a, path);
    if (!e) {
        e = read_all(s, t, slab, &file, path, &a);
        safetensors_close(&file);
    }
    arena_free(&a);
    return e;
}
