/* SPDX-License-Identifier: Apache-2.0 */
/* ModernBERT (Warner et al. 2024, 2412.13663): rotary positions, GeGLU, local attention in most
 * layers, the first norm after the embeddings. */
#include "inner/io/family.h"
#include <stdio.h>
#include <string.h>

static const struct family_name body[] = {
    {"wte.weight", "embeddings.tok_embeddings.weight", WHOLE},
    {"embed.norm.weight", "embeddings.norm.weight", WHOLE},
    {"embed.norm.bias", "embeddings.norm.bias", WHOLE},
    {"norm.weight", "final_norm.weight", WHOLE},
    {"norm.bias", "final_norm.bias", WHOLE},
};
static const struct family_name layer[] = {
    {"norm1.weight", "attn_norm.weight", WHOLE},    {"norm1.bias", "attn_norm.bias", WHOLE},
    {"attn.qkv.weight", "attn.Wqkv.weight", WHOLE}, {"attn.qkv.bias", "attn.Wqkv.bias", WHOLE},
    {"attn.proj.weight", "attn.Wo.weight", WHOLE},  {"attn.proj.bias", "attn.Wo.bias", WHOLE},
    {"norm2.weight", "mlp_norm.weight", WHOLE},     {"norm2.bias", "mlp_norm.bias", WHOLE},
    {"mlp.up.weight", "mlp.Wi.weight", WHOLE}, /* what GELU is applied to above the other */
    {"mlp.up.bias", "mlp.Wi.bias", WHOLE},          {"mlp.down.weight", "mlp.Wo.weight", WHOLE},
    {"mlp.down.bias", "mlp.Wo.bias", WHOLE},
};
/* The same tensors are the head of the tokens in one architecture and the pooler in the other. */
static const struct family_name heads[] = {
    {"head.weight", "decoder.weight", WHOLE},
    {"mlm.dense.weight", "head.dense.weight", WHOLE},
    {"mlm.dense.bias", "head.dense.bias", WHOLE},
    {"mlm.norm.weight", "head.norm.weight", WHOLE},
    {"mlm.norm.bias", "head.norm.bias", WHOLE},
    {"mlm.bias", "decoder.bias", WHOLE},
    {"pooler.weight", "head.dense.weight", WHOLE},
    {"pooler.bias", "head.dense.bias", WHOLE},
    {"pooler.norm.weight", "head.norm.weight", WHOLE},
    {"pooler.norm.bias", "head.norm.bias", WHOLE},
    {"classes.*.weight", "classifier.weight", WHOLE},
    {"classes.*.bias", "classifier.bias", WHOLE},
};
static const char *const constants[] = {".rotary_emb.inv_freq", NULL};
static const struct family_architecture architectures[] = {
    {"ModernBertForMaskedLM", FAMILY_TOKENS},
    {"ModernBertForSequenceClassification", FAMILY_CLASSES},
    {"ModernBertModel", FAMILY_POOLER},
    {NULL, 0},
};

static const struct hf_rule rules[] = {
    {"hidden_size", HF_SETTING, "model.d_model", "768"},
    {"num_hidden_layers", HF_SETTING, "model.layers", "22"},
    {"num_attention_heads", HF_SETTING, "model.heads", "12"},
    {"intermediate_size", HF_SETTING, "model.d_ff", "1152"},
    {"norm_eps", HF_SETTING, "model.norm_eps", "1e-05"},
    {"max_position_embeddings", HF_SPECIAL, NULL, NULL},
    {"hidden_activation", HF_SPECIAL, NULL, NULL},
    {"local_attention", HF_SPECIAL, NULL, NULL},
    {"global_attn_every_n_layers", HF_SPECIAL, NULL, NULL},
    {"layer_types.", HF_SPECIAL, NULL, NULL},
    {"rope_parameters.full_attention.rope_type", HF_FIXED, "default", NULL},
    {"rope_parameters.sliding_attention.rope_type", HF_FIXED, "default", NULL},
    {"rope_parameters.full_attention.rope_theta", HF_SPECIAL, NULL, NULL},
    {"rope_parameters.sliding_attention.rope_theta", HF_SPECIAL, NULL, NULL},
    {"global_rope_theta", HF_SPECIAL, NULL, NULL},
    {"local_rope_theta", HF_SPECIAL, NULL, NULL},
    {"attention_bias", HF_SPECIAL, NULL, NULL},
    {"mlp_bias", HF_SPECIAL, NULL, NULL},
    {"norm_bias", HF_SPECIAL, NULL, NULL},
    {"classifier_bias", HF_SPECIAL, NULL, NULL},
    {"decoder_bias", HF_FIXED, "true", "true"},
    {"classifier_activation", HF_FIXED, "gelu", "\"gelu\""},
    {"classifier_pooling", HF_SPECIAL, NULL, NULL},
    {"position_embedding_type", HF_IGNORED, NULL, NULL},
    {"layer_norm_eps", HF_IGNORED, NULL, NULL}, /* norm_eps is read */
    {"attention_dropout", HF_IGNORED, NULL, NULL},
    {"embedding_dropout", HF_IGNORED, NULL, NULL},
    {"mlp_dropout", HF_IGNORED, NULL, NULL},
    {"classifier_dropout", HF_IGNORED, NULL, NULL},
    {"pad_token_id", HF_IGNORED, NULL, "0"},
    {"bos_token_id", HF_IGNORED, NULL, "null"},
    {"cls_token_id", HF_IGNORED, NULL, "null"},
    {"sep_token_id", HF_IGNORED, NULL, "null"},
    {"eos_token_id", HF_IGNORED, NULL, "null"},
    {"initializer_cutoff_factor", HF_IGNORED, NULL, NULL},
    {"deterministic_flash_attn", HF_IGNORED, NULL, NULL},
    {"sparse_prediction", HF_IGNORED, NULL, NULL},
    {"sparse_pred_ignore_index", HF_IGNORED, NULL, NULL},
    {"gradient_checkpointing", HF_IGNORED, NULL, NULL},
    {"reference_compile", HF_IGNORED, NULL, NULL},
    {"repad_logits_with_grad", HF_IGNORED, NULL, NULL},
};

/* ---- config.json to settings ---- */
static enum err read_biases(const struct hf_reading *r)
{
    static const char *const fields[] = {"attention_bias", "mlp_bias", "norm_bias",
                                         "classifier_bias"};
    bool bias = hf_flag(r, fields[0], false);
    for (size_t i = 1; i < FAMILY_COUNT(fields); i++)
        if (hf_flag(r, fields[i], false) != bias)
            return err_set(ERR_UNSUPPORTED,
                           "%s: %s and %s differ; this program has biases in all linear layers "
                           "and norms or in none",
                           r->c->path, fields[0], fields[i]);
    return hf_add(r, "model.bias", bias ? "true" : "false");
}

static const struct hf_field *layer_type(const struct hf_reading *r, size_t i)
{
    char name[40];
    snprintf(name, sizeof name, "layer_types.%zu", i);
    return hf_field_find(r, name);
}

/* Layers 0, n, 2n, .. see the whole sequence: n from layer_types, or as older files say it. */
static enum err read_global_every(const struct hf_reading *r, size_t *every)
{
    size_t layers = (size_t)hf_number(r, "num_hidden_layers", 22);
    *every = (size_t)hf_number(r, "global_attn_every_n_layers", 3);
    if (layer_type(r, 0)) {
        *every = 1;
        while (*every < layers && layer_type(r, *every) &&
               !hf_field_is(layer_type(r, *every), "full_attention"))
            ++*every;
        if (*every == layers && hf_number(r, "global_attn_every_n_layers", 3) > (double)layers)
            *every = (size_t)hf_number(r, "global_attn_every_n_layers", 3);
    }
    if (!*every)
        return err_set(ERR_INPUT, "%s: global_attn_every_n_layers = 0", r->c->path);
    for (size_t i = 0; layer_type(r, i); i++)
        if (!hf_field_is(layer_type(r, i), i % *every ? "sliding_attention" : "full_attention"))
            return hf_refuse(r, layer_type(r, i), "full_attention in every n-th layer");
    return ERR_OK;
}

static const char *theta(const struct hf_reading *r, const char *field, const char *older,
                         const char *fallback)
{
    const struct hf_field *f = hf_field_find(r, field), *o = hf_field_find(r, older);
    return f ? hf_field_text(f, r->a) : o ? hf_field_text(o, r->a) : fallback;
}

static enum err read_attention(const struct hf_reading *r)
{
    size_t every;
    TRY(read_global_every(r, &every));
    TRY(hf_add(r, "model.positions", "rope"));
    TRY(hf_add(
        r, "model.rope_theta",
        theta(r, "rope_parameters.full_attention.rope_theta", "global_rope_theta", "160000")));
    if (every == 1)
        return hf_add(r, "model.sliding_window", "0");
    TRY(hf_add(r, "model.global_attn_every", arena_printf(r->a, "%zu", every)));
    TRY(hf_add(
        r, "model.rope_theta_local",
        theta(r, "rope_parameters.sliding_attention.rope_theta", "local_rope_theta", "10000")));
    return hf_add(r, "model.sliding_window",
                  arena_printf(r->a, "%.0f", hf_number(r, "local_attention", 128)));
}

static enum err read_pooling(const struct hf_reading *r)
{
    const struct hf_field *pooling = hf_field_find(r, "classifier_pooling");
    bool mean = pooling && hf_field_is(pooling, "mean");
    if (pooling && !mean && !hf_field_is(pooling, "cls"))
        return hf_refuse(r, pooling, "cls or mean");
    return hf_add(r, "model.pooling", mean ? "mean" : "first");
}

static enum err read(const struct hf_reading *r, unsigned heads_there)
{
    static const char *const theirs[][2] = {{"gelu", "geglu"}, {NULL, NULL}};
    TRY(hf_add_activation(r,
                          &(struct hf_activations){"hidden_activation", "gelu", "geglu", theirs}));
    TRY(read_biases(r));
    TRY(read_attention(r));
    if (heads_there & FAMILY_CLASSES)
        TRY(read_pooling(r));
    TRY(hf_propose(r, "model.pooler_norm", heads_there & FAMILY_CLASSES ? "true" : "false"));
    TRY(hf_add(r, "model.norm_place", "pre"));
    double context = hf_number(r, "max_position_embeddings", 8192);
    TRY(hf_propose(r, "model.max_seq_len", arena_printf(r->a, "%.0f", context)));
    return family_read_encoder(r, heads_there);
}

/* ---- settings to config.json ---- */
static const char *lacks(const struct settings *s)
{
    const char *encoder = family_lacks_encoder(s);
    return encoder                                         ? encoder
           : s->model_norm_place != MODEL_NORM_PRE         ? "model.norm_place is not pre"
           : s->model_positions != MODEL_POSITIONS_ROPE    ? "model.positions is not rope"
           : s->model_activation != MODEL_ACTIVATION_GEGLU ? "model.activation is not geglu"
           : s->model_rope_factor > 1                      ? "model.rope_factor is not 1"
           : s->model_token_types                          ? "model.token_types is not 0"
           : s->model_share_layers                         ? "model.share_layers = true"
           : table_embed(s) != (size_t)s->model_d_model
               ? "model.embedding_size is not model.d_model"
           : s->model_pooler && !s->model_pooler_norm   ? "model.pooler_norm = false"
           : s->model_pooler && !s->model_classes.count ? "model.pooler without model.classes"
           : s->model_pooler && s->model_head == MODEL_HEAD_MLM
               ? "model.head = mlm together with model.classes"
           : s->model_sliding_window && s->model_global_attn_every < 2
               ? "model.sliding_window without global_attn_every > 1"
           : s->model_sliding_window % 2 ? "model.sliding_window is odd"
                                         : NULL;
}

/* Without a window every layer sees the whole sequence. */
static int64_t global_every(const struct settings *s)
{
    return s->model_sliding_window ? s->model_global_attn_every : 1;
}

static char *layer_types(const struct settings *s, struct arena *a)
{
    int64_t every = global_every(s);
    char *text = arena_printf(a, "%s", "");
    for (int64_t i = 0; i < s->model_layers && text; i++)
        text = arena_printf(a, "%s%s\"%s\"", text, i ? ", " : "",
                            i % every ? "sliding_attention" : "full_attention");
    return text;
}

static char *specials(const struct settings *s, struct arena *a)
{
    static const char format[] =
        "  \"max_position_embeddings\": %lld,\n"
        "  \"hidden_activation\": \"gelu\",\n"
        "  \"local_attention\": %lld,\n"
        "  \"global_attn_every_n_layers\": %lld,\n"
        "  \"layer_types\": [%s],\n"
        "  \"global_rope_theta\": %.9g,\n"
        "  \"local_rope_theta\": %.9g,\n"
        "  \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
        "%.9g},\n"
        "                      \"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": "
        "%.9g}},\n"
        "  \"attention_bias\": %s,\n"
        "  \"mlp_bias\": %s,\n"
        "  \"norm_bias\": %s,\n"
        "  \"classifier_bias\": %s,\n"
        "  \"classifier_pooling\": \"%s\",\n";
    const char *bias = s->model_bias ? "true" : "false", *types = layer_types(s, a);
    return !types
               ? NULL
               : arena_printf(a, format, (long long)s->model_max_seq_len,
                              (long long)(s->model_sliding_window ? s->model_sliding_window : 128),
                              (long long)global_every(s), types, s->model_rope_theta,
                              s->model_rope_theta_local, s->model_rope_theta,
                              s->model_rope_theta_local, bias, bias, bias, bias,
                              s->model_pooling == MODEL_POOLING_MEAN ? "mean" : "cls");
}

const struct family family_modernbert = {
    .type = "modernbert",
    .title = "ModernBERT",
    .architectures = architectures,
    .prefix = "model.",
    .layer_before = "layers.",
    .layer_behind = ".",
    .body = FAMILY_NAMES(body),
    .layer = FAMILY_NAMES(layer),
    .heads = FAMILY_NAMES(heads),
    .constants = constants,
    .rules = rules,
    .rule_count = FAMILY_COUNT(rules),
    .mlm_probability = "0.3",
    .encoder = true,
    .tied = true,
    .read = read,
    .lacks = lacks,
    .specials = specials,
};
