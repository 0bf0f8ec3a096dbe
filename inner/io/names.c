#include "inner/io/names.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/io/safetensors.h"
#include "kernels/base/bf16.h"

/* Which rows of our tensor: theirs may have for each projection what ours has below each other. */
enum part { WHOLE, QUERY, KEY, VALUE, GATE, UP };
struct name {
    const char *ours, *theirs;
    bool transposed;
    enum part part;
};
static const struct name gpt2_outside[] = {
    {"wte.weight", "wte.weight", false, WHOLE},
    {"wpe.weight", "wpe.weight", false, WHOLE},
    {"norm.weight", "ln_f.weight", false, WHOLE},
    {"norm.bias", "ln_f.bias", false, WHOLE},
};
static const struct name gpt2_inside[] = {
    {"norm1.weight", "ln_1.weight", false, WHOLE},
    {"norm1.bias", "ln_1.bias", false, WHOLE},
    {"attn.qkv.weight", "attn.c_attn.weight", true, WHOLE},
    {"attn.qkv.bias", "attn.c_attn.bias", false, WHOLE},
    {"attn.proj.weight", "attn.c_proj.weight", true, WHOLE},
    {"attn.proj.bias", "attn.c_proj.bias", false, WHOLE},
    {"norm2.weight", "ln_2.weight", false, WHOLE},
    {"norm2.bias", "ln_2.bias", false, WHOLE},
    {"mlp.up.weight", "mlp.c_fc.weight", true, WHOLE},
    {"mlp.up.bias", "mlp.c_fc.bias", false, WHOLE},
    {"mlp.down.weight", "mlp.c_proj.weight", true, WHOLE},
    {"mlp.down.bias", "mlp.c_proj.bias", false, WHOLE},
};
static const struct name llama_outside[] = {
    {"wte.weight", "embed_tokens.weight", false, WHOLE},
    {"norm.weight", "norm.weight", false, WHOLE},
};
static const struct name llama_inside[] = {
    {"norm1.weight", "input_layernorm.weight", false, WHOLE},
    {"attn.qkv.weight", "self_attn.q_proj.weight", false, QUERY},
    {"attn.qkv.bias", "self_attn.q_proj.bias", false, QUERY},
    {"attn.qkv.weight", "self_attn.k_proj.weight", false, KEY},
    {"attn.qkv.bias", "self_attn.k_proj.bias", false, KEY},
    {"attn.qkv.weight", "self_attn.v_proj.weight", false, VALUE},
    {"attn.qkv.bias", "self_attn.v_proj.bias", false, VALUE},
    {"attn.proj.weight", "self_attn.o_proj.weight", false, WHOLE},
    {"attn.proj.bias", "self_attn.o_proj.bias", false, WHOLE},
    {"norm2.weight", "post_attention_layernorm.weight", false, WHOLE},
    {"mlp.up.weight", "mlp.gate_proj.weight", false, GATE},
    {"mlp.up.bias", "mlp.gate_proj.bias", false, GATE},
    {"mlp.up.weight", "mlp.up_proj.weight", false, UP},
    {"mlp.up.bias", "mlp.up_proj.bias", false, UP},
    {"mlp.down.weight", "mlp.down_proj.weight", false, WHOLE},
    {"mlp.down.bias", "mlp.down_proj.bias", false, WHOLE},
};
#define COUNT(x) (sizeof(x) / sizeof *(x))

static const struct family {
    const char *prefix, *layer; /* "transformer." "h": transformer.h.0. */
    const struct name *outside, *inside;
    size_t outside_count, inside_count;
    bool zero_biases; /* it has biases, always: zeros stand for those that we lack */
} gpt2 = {"transformer.",     "h", gpt2_outside, gpt2_inside, COUNT(gpt2_outside),
          COUNT(gpt2_inside), true},
  llama = {
      "model.", "layers", llama_outside, llama_inside, COUNT(llama_outside), COUNT(llama_inside),
      false};

/* One tensor of theirs, and where it lies in ours. */
struct pair {
    char theirs[80];             /* with prefix */
    size_t prefix;               /* length of it */
    const struct tensor *tensor; /* NULL: a bias that we lack */
    size_t first, rows, columns; /* of ours; columns 0: a vector */
    bool transposed;
    bool again; /* the head of a tied model: the embedding once more */
};

/* What keeps these settings out of a family, or NULL. */
static const char *gpt2_lacks(const struct settings *s)
{
    if (strcmp(s->model_norm, "layer"))
        return "model.norm = rms, GPT-2 has layer";
    if (strcmp(s->model_positions, "learned"))
        return "model.positions, GPT-2's are learned";
    if (table_gated(s))
        return "model.activation = swiglu, GPT-2 has gelu";
    if (table_kv_heads(s) != (size_t)s->model_heads)
        return "model.kv_heads, GPT-2's heads share nothing";
    return NULL;
}

static const char *llama_lacks(const struct settings *s)
{
    if (strcmp(s->model_norm, "rms"))
        return "model.norm = layer, Llama has rms";
    if (strcmp(s->model_positions, "rope"))
        return "model.positions, Llama has rope";
    if (!table_gated(s))
        return "model.activation, Llama has swiglu";
    return NULL;
}

static enum err family_of(const struct settings *s, const struct family **f)
{
    const char *no_gpt2 = gpt2_lacks(s), *no_llama = llama_lacks(s);
    *f = no_gpt2 ? &llama : &gpt2;
    if (!s->model_causal)
        return err_set(ERR_UNSUPPORTED, "model.causal = false: GPT-2 and Llama are causal");
    if (no_gpt2 && no_llama)
        return err_set(
            ERR_UNSUPPORTED,
            "Hugging Face's files are written for GPT-2 and Llama; this model is neither "
            "GPT-2 (%s) nor Llama (%s)",
            no_gpt2, no_llama);
    return ERR_OK;
}

enum err names_supported(const struct settings *s)
{
    const struct family *f;
    return family_of(s, &f);
}

/* Rows of our whole tensor when we lack it: a bias. */
static size_t bias_length(const struct settings *s, const char *ours)
{
    size_t C = (size_t)s->model_width, F = table_mlp(s), HD = C / (size_t)s->model_heads;
    if (!strcmp(ours, "attn.qkv.bias"))
        return C + 2 * table_kv_heads(s) * HD;
    return strcmp(ours, "mlp.up.bias") ? C : table_gated(s) ? 2 * F : F;
}

static void take_part(struct pair *p, const struct settings *s, enum part part)
{
    size_t C = (size_t)s->model_width, F = table_mlp(s);
    size_t KV = C / (size_t)s->model_heads * table_kv_heads(s);
    const struct {
        size_t first, rows;
    } parts[] = {[WHOLE] = {0, p->rows}, [QUERY] = {0, C}, [KEY] = {C, KV},
                 [VALUE] = {C + KV, KV}, [GATE] = {0, F},  [UP] = {F, F}};
    p->first = parts[part].first;
    p->rows = parts[part].rows;
}

static struct pair pair_of(const struct settings *s, const struct table *t, const struct family *f,
                           const struct name *n, int layer)
{
    struct pair p = {.transposed = n->transposed, .prefix = strlen(f->prefix)};
    char ours[TABLE_NAME_MAX];
    if (layer < 0) {
        snprintf(ours, sizeof ours, "%s", n->ours);
        snprintf(p.theirs, sizeof p.theirs, "%s%s", f->prefix, n->theirs);
    } else {
        snprintf(ours, sizeof ours, "layers.%d.%s", layer, n->ours);
        snprintf(p.theirs, sizeof p.theirs, "%s%s.%d.%s", f->prefix, f->layer, layer, n->theirs);
    }
    p.tensor = table_find(t, ours);
    ASSERT(p.tensor || strstr(n->ours, ".bias"));
    p.rows = p.tensor ? (size_t)p.tensor->shape[0] : bias_length(s, n->ours);
    p.columns = p.tensor && p.tensor->shape[1] > 1 ? (size_t)p.tensor->shape[1] : 0;
    take_part(&p, s, n->part);
    return p;
}

/* Both families keep it outside of the prefix. */
static struct pair head_pair(const struct settings *s, const struct table *t)
{
    struct pair p = {.theirs = "lm_head.weight", .again = s->model_tied};
    p.tensor = table_find(t, s->model_tied ? "wte.weight" : "head.weight");
    p.rows = (size_t)p.tensor->shape[0];
    p.columns = (size_t)p.tensor->shape[1];
    return p;
}

static enum err list_pairs(const struct settings *s, const struct table *t, struct arena *a,
                           struct pair **pairs, size_t *count)
{
    const struct family *f;
    TRY(family_of(s, &f));
    size_t most = 1 + f->outside_count + f->inside_count * (size_t)s->model_layers;
    TRY_ALLOC(*pairs = arena_array(a, most, sizeof **pairs));
    *count = 0;
    for (size_t i = 0; i < f->outside_count; i++)
        (*pairs)[(*count)++] = pair_of(s, t, f, &f->outside[i], -1);
    for (int layer = 0; layer < s->model_layers; layer++)
        for (size_t i = 0; i < f->inside_count; i++)
            (*pairs)[(*count)++] = pair_of(s, t, f, &f->inside[i], layer);
    (*pairs)[(*count)++] = head_pair(s, t);
    return ERR_OK;
}

/* Element (r, c) of the part in our slab. */
static size_t ours_at(const struct pair *p, size_t r, size_t c)
{
    size_t columns = p->columns ? p->columns : 1;
    return p->tensor->offset + (p->first + r) * columns + c;
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
            float x = slab[ours_at(p, r, c)];
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

static char *gpt2_config(const struct settings *s, const char *dtype, struct arena *a)
{
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
                                 "  \"layer_norm_epsilon\": %.9g,\n"
                                 "  \"embd_pdrop\": 0.0,\n"
                                 "  \"attn_pdrop\": 0.0,\n"
                                 "  \"resid_pdrop\": 0.0,\n"
                                 "  \"bos_token_id\": null,\n"
                                 "  \"eos_token_id\": null,\n"
                                 "  \"tie_word_embeddings\": %s,\n"
                                 "  \"torch_dtype\": \"%s\"\n"
                                 "}\n";
    const char *act = strcmp(s->model_activation, "gelu") ? "gelu" : "gelu_new";
    return arena_printf(a, format, (long long)s->model_vocab, (long long)s->model_context,
                        (long long)s->model_width, (long long)s->model_layers,
                        (long long)s->model_heads, table_mlp(s), act, s->model_norm_eps,
                        s->model_tied ? "true" : "false", dtype);
}

/* rope_theta for transformers up to 4, rope_parameters from 5 on. */
static char *llama_config(const struct settings *s, const char *dtype, struct arena *a)
{
    static const char format[] =
        "{\n"
        "  \"architectures\": [\"LlamaForCausalLM\"],\n"
        "  \"model_type\": \"llama\",\n"
        "  \"vocab_size\": %lld,\n"
        "  \"max_position_embeddings\": %lld,\n"
        "  \"hidden_size\": %lld,\n"
        "  \"num_hidden_layers\": %lld,\n"
        "  \"num_attention_heads\": %lld,\n"
        "  \"num_key_value_heads\": %zu,\n"
        "  \"head_dim\": %lld,\n"
        "  \"intermediate_size\": %zu,\n"
        "  \"hidden_act\": \"silu\",\n"
        "  \"rms_norm_eps\": %.9g,\n"
        "  \"rope_theta\": %.9g,\n"
        "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.9g},\n"
        "  \"attention_bias\": %s,\n"
        "  \"mlp_bias\": %s,\n"
        "  \"attention_dropout\": 0.0,\n"
        "  \"bos_token_id\": null,\n"
        "  \"eos_token_id\": null,\n"
        "  \"tie_word_embeddings\": %s,\n"
        "  \"torch_dtype\": \"%s\"\n"
        "}\n";
    const char *bias = s->model_bias ? "true" : "false";
    return arena_printf(a, format, (long long)s->model_vocab, (long long)s->model_context,
                        (long long)s->model_width, (long long)s->model_layers,
                        (long long)s->model_heads, table_kv_heads(s),
                        (long long)(s->model_width / s->model_heads), table_mlp(s),
                        s->model_norm_eps, s->model_rope_theta, s->model_rope_theta, bias, bias,
                        s->model_tied ? "true" : "false", dtype);
}

static enum err write_config(const struct settings *s, const struct family *f, bool bf16,
                             const char *dir, struct arena *a)
{
    const char *dtype = bf16 ? "bfloat16" : "float32";
    char *path, *text;
    TRY_ALLOC(path = arena_printf(a, "%s/config.json", dir));
    TRY_ALLOC(text = f == &llama ? llama_config(s, dtype, a) : gpt2_config(s, dtype, a));
    struct file_part part = {text, strlen(text)};
    return file_write(path, &part, 1, 0644);
}

static enum err write_all(const struct settings *s, const struct table *t, const float *slab,
                          bool bf16, const char *dir, struct arena *a)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    struct pair *pairs;
    struct safetensors_tensor *tensors;
    const struct family *f;
    size_t count, written = 0;
    char *path;
    TRY(family_of(s, &f));
    TRY(list_pairs(s, t, a, &pairs, &count));
    TRY_ALLOC(tensors = arena_array(a, count, sizeof *tensors));
    for (size_t i = 0; i < count; i++)
        if (!pairs[i].again && (pairs[i].tensor || f->zero_biases))
            TRY(convert(&pairs[i], slab, bf16, a, &tensors[written++]));
    TRY(file_mkdirs(dir));
    TRY_ALLOC(path = arena_printf(a, "%s/model.safetensors", dir));
    TRY(safetensors_write(path, tensors, written, metadata));
    return write_config(s, f, bf16, dir, a);
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
        return p->tensor && !p->again
                   ? err_set(ERR_MISMATCH, "%s has no tensor %s", path, p->theirs)
                   : ERR_OK;
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

/* The slab holds the embedding already. */
static enum err check_tied(const struct pair *p, const struct safetensors_tensor *x,
                           const float *slab, const char *path)
{
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (slab[ours_at(p, r, c)] != element(x, place(p, r, c)))
                return err_set(ERR_MISMATCH,
                               "%s: %s is not the embedding once more; set model.tied = false",
                               path, x->name);
    return ERR_OK;
}

static enum err fetch(const struct pair *p, const struct safetensors *file, float *slab,
                      const char *path)
{
    const struct safetensors_tensor *x = safetensors_find(file, p->theirs);
    size_t columns = p->columns ? p->columns : 1;
    if (!x)
        x = safetensors_find(file, p->theirs + p->prefix);
    TRY(check(p, x, path));
    if (p->again)
        return x ? check_tied(p, x, slab, path) : ERR_OK;
    for (size_t r = 0; r < p->rows && p->tensor; r++)
        for (size_t c = 0; c < columns; c++)
            slab[ours_at(p, r, c)] = element(x, place(p, r, c));
    return ERR_OK;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* What older files hold beside the parameters: masks, and rope's angles. */
static bool constant(const char *name)
{
    return ends_in(name, ".attn.bias") || ends_in(name, ".attn.masked_bias") ||
           ends_in(name, ".rotary_emb.inv_freq");
}

/* A tensor that nobody reads, of a further layer for instance, is another model's. */
static enum err check_all_read(const struct pair *pairs, size_t count,
                               const struct safetensors *file, const char *path)
{
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        bool known = constant(name);
        for (size_t k = 0; k < count && !known; k++)
            known =
                !strcmp(name, pairs[k].theirs) || !strcmp(name, pairs[k].theirs + pairs[k].prefix);
        if (!known)
            return err_set(ERR_MISMATCH,
                           "%s: the model of this configuration has no place for %s: another "
                           "model.layers, or another kind of model",
                           path, name);
    }
    return ERR_OK;
}

/* What the shapes of tensors do not show: a model trained with others would be another function. */
static enum err check_config(const struct settings *s, const char *path, struct arena *a)
{
    const double heads = (double)s->model_heads, eps = s->model_norm_eps,
                 theta = s->model_rope_theta;
    const struct {
        const char *outer, *name, *key; /* key NULL: a scale of rope, which this model has not */
        double ours;
    } all[] = {{"rope_scaling", "factor", NULL, 1},
               {"rope_parameters", "factor", NULL, 1},
               {NULL, "num_attention_heads", "heads", heads},
               {NULL, "n_head", "heads", heads},
               {NULL, "num_key_value_heads", "kv_heads", (double)table_kv_heads(s)},
               {NULL, "rms_norm_eps", "norm_eps", eps},
               {NULL, "layer_norm_epsilon", "norm_eps", eps},
               {NULL, "rope_theta", "rope_theta", theta},
               {"rope_parameters", "rope_theta", "rope_theta", theta}};
    struct safetensors_number n[COUNT(all)];
    for (size_t i = 0; i < COUNT(all); i++)
        n[i] = (struct safetensors_number){.outer = all[i].outer, .name = all[i].name};
    TRY(safetensors_config(path, n, COUNT(all), a));
    for (size_t i = 0; i < COUNT(all); i++) {
        if (isnan(n[i].value) || fabs(n[i].value - all[i].ours) <= 1e-6 * all[i].ours)
            continue;
        if (!all[i].key)
            return err_set(ERR_UNSUPPORTED,
                           "%s: its config.json scales rope (%s), which this model cannot", path,
                           n[i].outer);
        return err_set(ERR_MISMATCH, "%s: %s of its config.json is %.9g, model.%s %.9g", path,
                       n[i].name, n[i].value, all[i].key, all[i].ours);
    }
    return ERR_OK;
}

static enum err read_all(const struct settings *s, const struct table *t, float *slab,
                         const struct safetensors *file, const char *path, struct arena *a)
{
    struct pair *pairs;
    size_t count;
    TRY(check_config(s, path, a));
    TRY(list_pairs(s, t, a, &pairs, &count));
    memset(slab, 0, t->elements * sizeof *slab);
    for (size_t i = 0; i < count; i++)
        TRY(fetch(&pairs[i], file, slab, path));
    return check_all_read(pairs, count, file, path);
}

enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path)
{
    struct arena a = arena_make(0);
    struct safetensors file;
    enum err e = safetensors_open(&file, &a, path);
    if (!e) {
        e = read_all(s, t, slab, &file, path, &a);
        safetensors_close(&file);
    }
    arena_free(&a);
    return e;
}
