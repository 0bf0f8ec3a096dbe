/* SPDX-License-Identifier: Apache-2.0 */
/* ALBERT (Lan et al. 2020, 1909.11942): one layer's tensors for all layers, a narrow embedding. */
#include "inner/io/family.h"

static const struct family_name body[] = {
    {"wte.weight", "embeddings.word_embeddings.weight", WHOLE},
    {"wpe.weight", "embeddings.position_embeddings.weight", WHOLE},
    {"wtt.weight", "embeddings.token_type_embeddings.weight", WHOLE},
    {"embed.norm.weight", "embeddings.LayerNorm.weight", WHOLE},
    {"embed.norm.bias", "embeddings.LayerNorm.bias", WHOLE},
    {"embed.proj.weight", "encoder.embedding_hidden_mapping_in.weight", WHOLE},
    {"embed.proj.bias", "encoder.embedding_hidden_mapping_in.bias", WHOLE},
    {"pooler.weight", "pooler.weight", WHOLE},
    {"pooler.bias", "pooler.bias", WHOLE},
};
static const struct family_name layer[] = {
    {"attn.qkv.weight", "attention.query.weight", QUERY},
    {"attn.qkv.bias", "attention.query.bias", QUERY},
    {"attn.qkv.weight", "attention.key.weight", KEY},
    {"attn.qkv.bias", "attention.key.bias", KEY},
    {"attn.qkv.weight", "attention.value.weight", VALUE},
    {"attn.qkv.bias", "attention.value.bias", VALUE},
    {"attn.proj.weight", "attention.dense.weight", WHOLE},
    {"attn.proj.bias", "attention.dense.bias", WHOLE},
    {"norm1.weight", "attention.LayerNorm.weight", WHOLE},
    {"norm1.bias", "attention.LayerNorm.bias", WHOLE},
    {"mlp.up.weight", "ffn.weight", WHOLE},
    {"mlp.up.bias", "ffn.bias", WHOLE},
    {"mlp.down.weight", "ffn_output.weight", WHOLE},
    {"mlp.down.bias", "ffn_output.bias", WHOLE},
    {"norm2.weight", "full_layer_layer_norm.weight", WHOLE},
    {"norm2.bias", "full_layer_layer_norm.bias", WHOLE},
};
static const struct family_name heads[] = {
    {"head.weight", "predictions.decoder.weight", WHOLE},
    {"mlm.dense.weight", "predictions.dense.weight", WHOLE},
    {"mlm.dense.bias", "predictions.dense.bias", WHOLE},
    {"mlm.norm.weight", "predictions.LayerNorm.weight", WHOLE},
    {"mlm.norm.bias", "predictions.LayerNorm.bias", WHOLE},
    {"mlm.bias", "predictions.bias", WHOLE},
    {"pair.weight", "sop_classifier.classifier.weight", WHOLE},
    {"pair.bias", "sop_classifier.classifier.bias", WHOLE},
    {"classes.*.weight", "classifier.weight", WHOLE},
    {"classes.*.bias", "classifier.bias", WHOLE},
};
static const char *const aliases[][2] = {
    {"LayerNorm.gamma", "LayerNorm.weight"},
    {"LayerNorm.beta", "LayerNorm.bias"},
    {"full_layer_layer_norm.gamma", "full_layer_layer_norm.weight"},
    {"full_layer_layer_norm.beta", "full_layer_layer_norm.bias"},
    {"predictions.decoder.bias", "predictions.bias"},
    {NULL, NULL},
};
static const struct family_architecture architectures[] = {
    {"AlbertForPreTraining", FAMILY_TOKENS | FAMILY_PAIR},
    {"AlbertForMaskedLM", FAMILY_TOKENS},
    {"AlbertForSequenceClassification", FAMILY_CLASSES},
    {"AlbertModel", FAMILY_POOLER},
    {NULL, 0},
};

static const struct hf_rule rules[] = {
    {"embedding_size", HF_SETTING, "model.embedding_size", "128"},
    {"hidden_size", HF_SETTING, "model.d_model", NULL},
    {"num_hidden_layers", HF_SETTING, "model.layers", "12"},
    {"num_hidden_groups", HF_FIXED, "1", "1"},
    {"inner_group_num", HF_FIXED, "1", "1"},
    {"num_attention_heads", HF_SETTING, "model.heads", NULL},
    {"intermediate_size", HF_SETTING, "model.d_ff", NULL},
    {"max_position_embeddings", HF_SETTING, "model.max_seq_len", "512"},
    {"type_vocab_size", HF_SETTING, "model.token_types", "2"},
    {"layer_norm_eps", HF_SETTING, "model.norm_eps", "1e-12"},
    {"hidden_act", HF_SPECIAL, NULL, NULL},
    {"position_embedding_type", HF_FIXED, "absolute", NULL},
    {"is_decoder", HF_FIXED, "false", NULL},
    {"hidden_dropout_prob", HF_IGNORED, NULL, "0.0"},
    {"attention_probs_dropout_prob", HF_IGNORED, NULL, "0.0"},
    {"classifier_dropout_prob", HF_IGNORED, NULL, NULL},
    {"down_scale_factor", HF_FIXED, "1", NULL},
};

static enum err read(const struct hf_reading *r, unsigned heads_there)
{
    const struct hf_field *embed = hf_field_find(r, "embedding_size");
    if (hf_number(r, "embedding_size", 128) == hf_number(r, "hidden_size", 0))
        return embed ? hf_refuse(r, embed, "an embedding_size that is not hidden_size")
                     : err_set(ERR_UNSUPPORTED, "%s: embedding_size is hidden_size", r->c->path);
    if (!hf_field_find(r, "hidden_act"))
        return err_set(ERR_INPUT, "%s: no hidden_act, which says model.activation", r->c->path);
    TRY(hf_add(r, "model.share_layers", "true"));
    return family_read_post_norm(r, heads_there);
}

static const char *lacks(const struct settings *s)
{
    const char *post_norm = family_lacks_post_norm(s);
    return post_norm                                    ? post_norm
           : !s->model_share_layers                     ? "model.share_layers = false"
           : table_embed(s) == (size_t)s->model_d_model ? "model.embedding_size is model.d_model"
                                                        : NULL;
}

const struct family family_albert = {
    .type = "albert",
    .title = "ALBERT",
    .architectures = architectures,
    .prefix = "albert.",
    .layer_before = "encoder.albert_layer_groups.",
    .layer_behind = ".albert_layers.0.",
    .body = FAMILY_NAMES(body),
    .layer = FAMILY_NAMES(layer),
    .heads = FAMILY_NAMES(heads),
    .aliases = aliases,
    .constants = family_constants,
    .rules = rules,
    .rule_count = FAMILY_COUNT(rules),
    .pairs = "sop",
    .encoder = true,
    .zero_biases = true,
    .tied = true,
    .read = read,
    .lacks = lacks,
    .specials = family_post_norm_specials,
};
