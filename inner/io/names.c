#include "inner/io/names.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/io/hf_config.h"
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
    if (s->model_norm != MODEL_NORM_LAYER)
        return "model.norm = rms, GPT-2 has layer";
    if (s->model_positions != MODEL_POSITIONS_LEARNED)
        return "model.positions, GPT-2's are learned";
    if (table_gated(s))
        return "model.activation = swiglu, GPT-2 has gelu";
    if (table_kv_heads(s) != (size_t)s->model_heads)
        return "model.kv_heads, GPT-2's heads share nothing";
    return NULL;
}

static const char *llama_lacks(const struct settings *s)
{
    if (s->model_norm != MODEL_NORM_RMS)
        return "model.norm = layer, Llama has rms";
    if (s->model_positions != MODEL_POSITIONS_ROPE)
        return "model.positions, Llama has rope";
    if (!table_gated(s))
        return "model.activation, Llama has swiglu";
    return NULL;
}

/* A setting that neither of the two has, or NULL. */
static const char *encoder_setting(const struct settings *s)
{
    const struct {
        const char *key;
        bool set;
    } settings[] = {{"model.norm_place", s->model_norm_place != MODEL_NORM_PRE},
                    {"model.embed_norm", s->model_embed_norm},
                    {"model.types", s->model_types > 0},
                    {"model.embed", table_embed(s) != (size_t)s->model_width},
                    {"model.shared", s->model_shared},
                    {"model.head", s->model_head != MODEL_HEAD_PLAIN},
                    {"model.pooler", s->model_pooler},
                    {"model.window", s->model_window > 0},
                    {"model.activation", s->model_activation == MODEL_ACTIVATION_GEGLU}};
    for (size_t i = 0; i < COUNT(settings); i++)
        if (settings[i].set)
            return settings[i].key;
    return NULL;
}

static enum err family_of(const struct settings *s, const struct family **f)
{
    const char *no_gpt2 = gpt2_lacks(s), *no_llama = llama_lacks(s), *encoder = encoder_setting(s);
    *f = no_gpt2 ? &llama : &gpt2;
    if (encoder)
        return err_set(ERR_UNSUPPORTED, "%s: neither GPT-2 nor Llama has this setting", encoder);
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

/* ---- export ---- */
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
    const char *act = s->model_activation == MODEL_ACTIVATION_GELU ? "gelu_new" : "gelu";
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

/* ---- export in parts ---- */
struct export
{
    const struct settings *s;
    const float *slab;
    const struct names_options *o;
    const struct pair **pairs; /* those that are written */
    size_t count;
    struct safetensors_place *places; /* [count] for the index */
    uint64_t total_bytes;
};

static size_t pair_bytes(const struct pair *p, bool bf16)
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
        e = convert(x->pairs[i], x->slab, x->o->bf16, &a, &tensors[i - first]);
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

static enum err write_all(struct export *x, const struct table *t, const char *dir, struct arena *a)
{
    struct pair *pairs;
    const struct family *f;
    size_t count;
    TRY(family_of(x->s, &f));
    TRY(list_pairs(x->s, t, a, &pairs, &count));
    TRY_ALLOC(x->pairs = arena_array(a, count, sizeof *x->pairs));
    TRY_ALLOC(x->places = arena_array(a, count, sizeof *x->places));
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].again || (!pairs[i].tensor && !f->zero_biases))
            continue;
        x->pairs[x->count++] = &pairs[i];
        x->total_bytes += pair_bytes(&pairs[i], x->o->bf16);
    }
    TRY(file_mkdirs(dir));
    TRY(write_files(x, dir, a));
    return write_config(x->s, f, x->o->bf16, dir, a);
}

enum err names_export(const struct settings *s, const struct table *t, const float *slab,
                      const struct names_options *o, const char *dir)
{
    struct arena a = arena_make(0);
    struct export x = {.s = s, .slab = slab, .o = o};
    enum err e = write_all(&x, t, dir, &a);
    arena_free(&a);
    return e;
}

/* ---- import ---- */
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
    if (x->dtype != SAFETENSORS_F32 && x->dtype != SAFETENSORS_BF16 && x->dtype != SAFETENSORS_F16)
        return err_set(ERR_UNSUPPORTED, "%s: %s is neither F32, BF16 nor F16", path, x->name);
    if (!same_shape(p, x))
        return err_set(ERR_MISMATCH,
                       "%s: %s has another shape than the model of this configuration", path,
                       x->name);
    for (size_t i = 0; i < p->rows && !p->tensor; i++)
        if (element(x, i) != 0)
            return err_set(ERR_MISMATCH, "%s: %s is not zero, but model.bias = false", path,
                           x->name);
    return check_finite(x, p->rows * (p->columns ? p->columns : 1), path);
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

/* A tensor without a place in this model (a further layer, for instance) means another model. */
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
    struct hf_config c;
    char *config;
    TRY(names_config(path, a, &config));
    if (!file_exists(config))
        return ERR_OK;
    TRY(hf_read(&c, config, a));
    return hf_check(&c, s, a);
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

enum err names_file(const char *path, struct arena *a, char **file)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    for (size_t i = 0; i < COUNT(names); i++) {
        TRY_ALLOC(*file = arena_printf(a, "%s/%s", path, names[i]));
        if (file_exists(*file))
            return ERR_OK;
    }
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

enum err names_import(const struct settings *s, const struct table *t, float *slab,
                      const char *path)
{
    struct arena a = arena_make(0);
    struct safetensors file;
    char *name;
    enum err e = names_file(path, &a, &name);
    if (!e)
        e = safetensors_open(&file, &a, name);
    if (!e) {
        e = read_all(s, t, slab, &file, name, &a);
        safetensors_close(&file);
    }
    arena_free(&a);
    return e;
}
