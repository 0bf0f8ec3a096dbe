/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al. 2019, 1810.04805): q, k and v are tensors of their own, nothing is
 * transposed. */
#include "inner/io/family.h"

static const struct family_name body[] = {
    {"wte.weight", "embeddings.word_embeddings.weight", WHOLE},
    {"wpe.weight", "embeddings.position_embeddings.weight", WHOLE},
    {"wtt.weight", "embeddings.token_type_embeddings.weight", WHOLE},
    {"embed.norm.weight", "embeddings.LayerNorm.weight", WHOLE},
    {"embed.norm.bias", "embeddings.LayerNorm.bias", WHOLE},
    {"pooler.weight", "pooler.dense.weight", WHOLE},
    {"pooler.bias", "pooler.dense.bias", WHOLE},
};
static const struct family_name layer[] = {
    {"attn.qkv.weight", "attention.self.query.weight", QUERY},
    {"attn.qkv.bias", "attention.self.query.bias", QUERY},
    {"attn.qkv.weight", "attention.self.key.weight", KEY},
    {"attn.qkv.bias", "attention.self.key.bias", KEY},
    {"attn.qkv.weight", "attention.self.value.weight", VALUE},
    {"attn.qkv.bias", "attention.self.value.bias", VALUE},
    {"attn.proj.weight", "attention.output.dense.weight", WHOLE},
    {"attn.proj.bias", "attention.output.dense.bias", WHOLE},
    {"norm1.weight", "attention.output.LayerNorm.weight", WHOLE},
    {"norm1.bias", "attention.output.LayerNorm.bias", WHOLE},
    {"mlp.up.weight", "intermediate.dense.weight", WHOLE},
    {"mlp.up.bias", "intermediate.dense.bias", WHOLE},
    {"mlp.down.weight", "output.dense.weight", WHOLE},
    {"mlp.down.bias", "output.dense.bias", WHOLE},
    {"norm2.weight", "output.LayerNorm.weight", WHOLE},
    {"norm2.bias", "output.LayerNorm.bias", WHOLE},
};
static const struct family_name heads[] = {
    {"head.weight", "cls.predictions.decoder.weight", WHOLE},
    {"mlm.dense.weight", "cls.predictions.transform.dense.weight", WHOLE},
    {"mlm.dense.bias", "cls.predictions.transform.dense.bias", WHOLE},
    {"mlm.norm.weight", "cls.predictions.transform.LayerNorm.weight", WHOLE},
    {"mlm.norm.bias", "cls.predictions.transform.LayerNorm.bias", WHOLE},
    {"mlm.bias", "cls.predictions.bias", WHOLE},
    {"pair.weight", "cls.seq_relationship.weight", WHOLE},
    {"pair.bias", "cls.seq_relationship.bias", WHOLE},
    {"classes.*.weight", "classifier.weight", WHOLE},
    {"classes.*.bias", "classifier.bias", WHOLE},
};
/* Ends of names: LayerNorm of files converted from TensorFlow; the bias under its second name. */
static const char *const aliases[][2] = {
    {"LayerNorm.gamma", "LayerNorm.weight"},
    {"LayerNorm.beta", "LayerNorm.bias"},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
    {NULL, NULL},
};
static const struct family_architecture architectures[] = {
    {"BertForPreTraining", FAMILY_TOKENS | FAMILY_PAIR},
    {"BertForMaskedLM", FAMILY_TOKENS},
    {"BertForSequenceClassification", FAMILY_CLASSES},
    {"BertForNextSentencePrediction", FAMILY_PAIR},
    {"BertModel", FAMILY_POOLER},
    {NULL, 0},
};

static const struct hf_rule rules[] = {
    {"hidden_size", HF_SETTING, "model.d_model", NULL},
    {"num_hidden_layers", HF_SETTING, "model.layers", NULL},
    {"num_attention_heads", HF_SETTING, "model.heads", NULL},
    {"intermediate_size", HF_SETTING, "model.d_ff", NULL},
    {"max_position_embeddings", HF_SETTING, "model.max_seq_len", "512"},
    {"type_vocab_size", HF_SETTING, "model.token_types", "2"},
    {"layer_norm_eps", HF_SETTING, "model.norm_eps", "1e-12"},
    {"hidden_act", HF_SPECIAL, NULL, NULL},
    {"position_embedding_type", HF_FIXED, "absolute", "\"absolute\""},
    {"is_decoder", HF_FIXED, "false", NULL},
    {"hidden_dropout_prob", HF_IGNORED, NULL, "0.1"},
    {"attention_probs_dropout_prob", HF_IGNORED, NULL, "0.1"},
    {"classifier_dropout", HF_IGNORED, NULL, NULL},
    {"gradient_checkpointing", HF_IGNORED, NULL, NULL},
    {"directionality", HF_FIXED, "bidi", NULL},
    /* Of the multilingual files; transformers' pooler does not read them. */
    {"pooler_fc_size", HF_IGNORED, NULL, NULL},
    {"pooler_num_attention_heads", HF_IGNORED, NULL, NULL},
    {"pooler_num_fc_layers", HF_IGNORED, NULL, NULL},
    {"pooler_size_per_head", HF_IGNORED, NULL, NULL},
    {"pooler_type", HF_IGNORED, NULL, NULL},
};

static const char *lacks(const struct settings *s)
{
    const char *post_norm = family_lacks_post_norm(s);
    return post_norm               ? post_norm
           : s->model_share_layers ? "model.share_layers = true"
           : table_embed(s) != (size_t)s->model_d_model
               ? "model.embedding_size is not model.d_model"
               : NULL;
}

const struct family family_bert = {
    .type = "bert",
    .title = "BERT",
    .architectures = architectures,
    .prefix = "bert.",
    .layer_before = "encoder.layer.",
    .layer_behind = ".",
    .body = FAMILY_NAMES(body),
    .layer = FAMILY_NAMES(layer),
    .heads = FAMILY_NAMES(heads),
    .aliases = aliases,
    .constants = family_constants,
    .rules = rules,
    .rule_count = FAMILY_COUNT(rules),
    .pairs = "nsp",
    .encoder = true,
    .zero_biases = true,
    .tied = true,
    .read = family_read_post_norm,
    .lacks = lacks,
    .specials = family_post_norm_specials,
};
