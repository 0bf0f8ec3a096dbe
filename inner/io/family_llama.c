/* SPDX-License-Identifier: Apache-2.0 */
/* Llama (Touvron et al. 2023) and Mistral without its window: q, k, v, and gate, up are tensors of
 * their own. */
#include <stdio.h>
#include <string.h>
#include "inner/io/family.h"

static const struct family_name body[] = {
    {"wte.weight", "embed_tokens.weight", WHOLE},
    {"norm.weight", "norm.weight", WHOLE},
};
static const struct family_name layer[] = {
    {"norm1.weight", "input_layernorm.weight", WHOLE},
    {"attn.qkv.weight", "self_attn.q_proj.weight", QUERY},
    {"attn.qkv.bias", "self_attn.q_proj.bias", QUERY},
    {"attn.qkv.weight", "self_attn.k_proj.weight", KEY},
    {"attn.qkv.bias", "self_attn.k_proj.bias", KEY},
    {"attn.qkv.weight", "self_attn.v_proj.weight", VALUE},
    {"attn.qkv.bias", "self_attn.v_proj.bias", VALUE},
    {"attn.proj.weight", "self_attn.o_proj.weight", WHOLE},
    {"attn.proj.bias", "self_attn.o_proj.bias", WHOLE},
    {"norm2.weight", "post_attention_layernorm.weight", WHOLE},
    {"mlp.up.weight", "mlp.gate_proj.weight", GATE},
    {"mlp.up.bias", "mlp.gate_proj.bias", GATE},
    {"mlp.up.weight", "mlp.up_proj.weight", UP},
    {"mlp.up.bias", "mlp.up_proj.bias", UP},
    {"mlp.down.weight", "mlp.down_proj.weight", WHOLE},
    {"mlp.down.bias", "mlp.down_proj.bias", WHOLE},
};
static const struct family_name heads[] = {{"head.weight", "lm_head.weight", WHOLE}};
static const char *const constants[] = {".rotary_emb.inv_freq", NULL};

static const struct hf_rule rules[] = {
    {"max_position_embeddings", HF_SPECIAL, NULL, NULL},
    {"hidden_size", HF_SETTING, "model.d_model", NULL},
    {"num_hidden_layers", HF_SETTING, "model.layers", NULL},
    {"num_attention_heads", HF_SETTING, "model.heads", NULL},
    {"intermediate_size", HF_SETTING, "model.d_ff", NULL},
    {"rms_norm_eps", HF_SETTING, "model.norm_eps", "1e-06"},
    {"num_key_value_heads", HF_SPECIAL, NULL, NULL},
    {"head_dim", HF_SPECIAL, NULL, NULL},
    {"hidden_act", HF_SPECIAL, NULL, NULL},
    {"rope_theta", HF_SPECIAL, NULL, NULL},
    {"partial_rotary_factor", HF_FIXED, "1", NULL},
    {"rope_parameters.partial_rotary_factor", HF_FIXED, "1", NULL},
    {"rope_scaling.", HF_SPECIAL, NULL, NULL},
    {"rope_parameters.", HF_SPECIAL, NULL, NULL},
    {"attention_bias", HF_SPECIAL, NULL, NULL},
    {"mlp_bias", HF_SPECIAL, NULL, NULL},
    {"layer_types.", HF_FIXED, "full_attention", NULL},
    {"sliding_window", HF_SPECIAL, NULL, NULL},
    {"pretraining_tp", HF_FIXED, "1", NULL},
    {"attention_dropout", HF_IGNORED, NULL, "0.0"},
    {"bos_token_id", HF_IGNORED, NULL, "null"},
    {"eos_token_id", HF_IGNORED, NULL, "null"},
};

/* Fields of rope_scaling (transformers up to 4) and rope_parameters (from 5 on), and the keys of
 * rope_type "llama3". */
static const char *const rope_maps[] = {"rope_scaling.", "rope_parameters."};
static const struct {
    const char *field, *key;
} rope_fields[] = {{"factor", "model.rope_factor"},
                   {"low_freq_factor", "model.rope_low"},
                   {"high_freq_factor", "model.rope_high"},
                   {"original_max_position_embeddings", "model.rope_original"}};

static const struct hf_field *rope_field(const struct hf_reading *r, const char *map,
                                         const char *field)
{
    char name[80];
    snprintf(name, sizeof name, "%s%s", map, field);
    return hf_field_find(r, name);
}

/* Every field of the map is known, or empty. */
static enum err check_rope_fields(const struct hf_reading *r, const char *map)
{
    static const char *const others[] = {"rope_type", "type", "rope_theta",
                                         "partial_rotary_factor"};
    size_t n = strlen(map);
    for (size_t i = 0; i < r->count; i++) {
        const struct hf_field *f = &r->fields[i];
        bool known = strncmp(f->name, map, n) != 0 || f->value->kind == JSON_NOTHING;
        for (size_t k = 0; k < FAMILY_COUNT(others) && !known; k++)
            known = !strcmp(f->name + n, others[k]);
        for (size_t k = 0; k < FAMILY_COUNT(rope_fields) && !known; k++)
            known = !strcmp(f->name + n, rope_fields[k].field);
        if (!known)
            return hf_refuse(r, f,
                             "factor, low_freq_factor, high_freq_factor and "
                             "original_max_position_embeddings in this map");
    }
    return ERR_OK;
}

/* The map that says how the angles are scaled, "" if none does: both maps say the same, or one. */
static enum err rope_map_find(const struct hf_reading *r, const char **map)
{
    *map = "";
    for (size_t i = 0; i < FAMILY_COUNT(rope_maps); i++) {
        const struct hf_field *type = rope_field(r, rope_maps[i], "rope_type"),
                              *older = rope_field(r, rope_maps[i], "type"),
                              *factor = rope_field(r, rope_maps[i], "factor");
        type = type ? type : older;
        if (type && hf_field_is(type, "llama3"))
            *map = rope_maps[i];
        else if (type && !hf_field_is(type, "default"))
            return hf_refuse(r, type, "default and llama3");
        else if (factor && (!hf_field_is_number(factor) || factor->value->number != 1))
            return hf_refuse(r, factor, "1 where rope_type is not llama3");
        TRY(check_rope_fields(r, rope_maps[i]));
    }
    return ERR_OK;
}

static enum err read_rope_scaling(const struct hf_reading *r)
{
    const char *map;
    TRY(rope_map_find(r, &map));
    if (!*map)
        return hf_add(r, "model.rope_factor", "1");
    for (size_t i = 0; i < FAMILY_COUNT(rope_fields); i++) {
        const struct hf_field *f = rope_field(r, map, rope_fields[i].field);
        if (!f || !hf_field_is_number(f))
            return err_set(ERR_INPUT, "%s: %s%s is missing, or no number", r->c->path, map,
                           rope_fields[i].field);
        TRY(hf_add(r, rope_fields[i].key, hf_field_text(f, r->a)));
    }
    return ERR_OK;
}

static enum err read_rope(const struct hf_reading *r)
{
    static const char *const fields[] = {"rope_theta", "rope_parameters.rope_theta",
                                         "rope_scaling.rope_theta"};
    const struct hf_field *theta = NULL;
    for (size_t i = 0; i < FAMILY_COUNT(fields); i++) {
        const struct hf_field *f = hf_field_find(r, fields[i]);
        if (f && theta && f->value->number != theta->value->number)
            return err_set(ERR_INPUT, "%s: %s and %s differ", r->c->path, theta->name, f->name);
        theta = f ? f : theta;
    }
    TRY(hf_add(r, "model.positions", "rope"));
    TRY(read_rope_scaling(r));
    return hf_add(r, "model.rope_theta", theta ? hf_field_text(theta, r->a) : "10000");
}

/* Mistral 7B v0.1 had 4096. */
static enum err check_window(const struct hf_reading *r)
{
    const struct hf_field *window = hf_field_find(r, "sliding_window");
    if (!window)
        return ERR_OK;
    const char *size = hf_field_text(window, r->a);
    TRY_ALLOC(size);
    return err_set(ERR_UNSUPPORTED,
                   "%s: sliding_window = %.40s: attention within a window is not there for this "
                   "family. No window is needed where no sequence has more than %.40s tokens: in a "
                   "copy of config.json write \"sliding_window\": null and "
                   "\"max_position_embeddings\": %.40s",
                   r->c->path, size, size, size);
}

static enum err read(const struct hf_reading *r, unsigned heads_there)
{
    static const char *const theirs[][2] = {{"silu", "swiglu"}, {"swish", "swiglu"}, {NULL, NULL}};
    const struct hf_field *context = hf_field_find(r, "max_position_embeddings"),
                          *size = hf_field_find(r, "head_dim");
    double heads_count = hf_number(r, "num_attention_heads", 1);
    double width = hf_number(r, "hidden_size", 0);
    bool bias = hf_flag(r, "attention_bias", false);
    (void)heads_there;
    TRY(check_window(r));
    if (size && size->value->number * heads_count != width)
        return hf_refuse(r, size, "hidden_size / num_attention_heads");
    if (bias != hf_flag(r, "mlp_bias", false))
        return err_set(ERR_UNSUPPORTED,
                       "%s: attention_bias and mlp_bias differ; this program has biases in all "
                       "linear layers or in none",
                       r->c->path);
    TRY(hf_add_activation(r, &(struct hf_activations){"hidden_act", "silu", "swiglu", theirs}));
    TRY(read_rope(r));
    TRY(hf_add(r, "model.norm", "rms"));
    TRY(hf_add(r, "model.bias", bias ? "true" : "false"));
    double kv_heads = hf_number(r, "num_key_value_heads", heads_count);
    TRY(hf_add(r, "model.kv_heads", arena_printf(r->a, "%.0f", kv_heads)));
    return hf_propose(r, "model.max_seq_len", context ? hf_field_text(context, r->a) : "2048");
}

static const char *lacks(const struct settings *s)
{
    const char *decoder = family_lacks_decoder(s);
    return decoder                                          ? decoder
           : s->model_norm != MODEL_NORM_RMS                ? "model.norm = layer"
           : s->model_positions != MODEL_POSITIONS_ROPE     ? "model.positions is not rope"
           : s->model_activation != MODEL_ACTIVATION_SWIGLU ? "model.activation is not swiglu"
                                                            : NULL;
}

static const char *lacks_mistral(const struct settings *s)
{
    const char *llama = lacks(s);
    return llama ? llama : "the same model is written as a Llama";
}

/* The inside of rope_scaling and rope_parameters. */
static const char *rope_words(const struct settings *s, struct arena *a)
{
    if (!(s->model_rope_factor > 1))
        return "\"rope_type\": \"default\"";
    return arena_printf(a,
                        "\"rope_type\": \"llama3\", \"factor\": %.9g, \"low_freq_factor\": %.9g, "
                        "\"high_freq_factor\": %.9g, \"original_max_position_embeddings\": %lld",
                        s->model_rope_factor, s->model_rope_low, s->model_rope_high,
                        (long long)s->model_rope_original);
}

/* rope_theta and rope_scaling for transformers up to 4, rope_parameters from 5 on. */
static char *specials(const struct settings *s, struct arena *a)
{
    static const char format[] = "  \"max_position_embeddings\": %lld,\n"
                                 "  \"num_key_value_heads\": %zu,\n"
                                 "  \"head_dim\": %lld,\n"
                                 "  \"hidden_act\": \"silu\",\n"
                                 "  \"rope_theta\": %.9g,\n"
                                 "%s"
                                 "  \"rope_parameters\": {%s, \"rope_theta\": %.9g},\n"
                                 "  \"attention_bias\": %s,\n"
                                 "  \"mlp_bias\": %s,\n";
    const char *bias = s->model_bias ? "true" : "false", *rope = rope_words(s, a);
    const char *older = !rope || !(s->model_rope_factor > 1)
                            ? ""
                            : arena_printf(a, "  \"rope_scaling\": {%s},\n", rope);
    return rope && older
               ? arena_printf(a, format, (long long)s->model_max_seq_len, table_kv_heads(s),
                              (long long)(s->model_d_model / s->model_heads), s->model_rope_theta,
                              older, rope, s->model_rope_theta, bias, bias)
               : NULL;
}

#define LLAMA                                                                                      \
    .prefix = "model.", .layer_before = "layers.", .layer_behind = ".",                            \
    .body = FAMILY_NAMES(body), .layer = FAMILY_NAMES(layer), .heads = FAMILY_NAMES(heads),        \
    .constants = constants, .rules = rules, .rule_count = FAMILY_COUNT(rules), .read = read,       \
    .specials = specials
const struct family family_llama = {
    .type = "llama",
    .title = "Llama",
    .architectures =
        (const struct family_architecture[]){{"LlamaForCausalLM", FAMILY_TOKENS}, {NULL, 0}},
    .lacks = lacks,
    LLAMA,
};
const struct family family_mistral = {
    .type = "mistral",
    .architectures =
        (const struct family_architecture[]){{"MistralForCausalLM", FAMILY_TOKENS}, {NULL, 0}},
    .lacks = lacks_mistral,
    LLAMA,
};
