/* SPDX-License-Identifier: Apache-2.0 */
/* What several families ask of a model, and read of its file. */
#include "inner/io/family.h"
#include <string.h>

const char *family_lacks_decoder(const struct settings *s)
{
    return !s->model_causal                        ? "model.causal = false"
           : s->model_norm_place != MODEL_NORM_PRE ? "model.norm_place is not pre"
           : s->model_embed_norm                   ? "model.embed_norm = true"
           : s->model_token_types                  ? "model.token_types is not 0"
           : table_embed(s) != (size_t)s->model_d_model
               ? "model.embedding_size is not model.d_model"
           : s->model_share_layers             ? "model.share_layers = true"
           : s->model_head != MODEL_HEAD_PLAIN ? "model.head = mlm"
           : s->model_pooler                   ? "model.pooler = true"
           : s->model_sliding_window           ? "model.sliding_window is not 0"
                                               : NULL;
}

const char *family_lacks_encoder(const struct settings *s)
{
    return s->model_causal                               ? "model.causal = true"
           : s->model_norm != MODEL_NORM_LAYER           ? "model.norm is not layer"
           : !s->model_embed_norm                        ? "model.embed_norm = false"
           : table_kv_heads(s) != (size_t)s->model_heads ? "model.kv_heads is not model.heads"
                                                         : NULL;
}

const char *family_lacks_post_norm(const struct settings *s)
{
    const char *lacks = family_lacks_encoder(s);
    return lacks                                           ? lacks
           : s->model_norm_place != MODEL_NORM_POST        ? "model.norm_place is not post"
           : s->model_positions != MODEL_POSITIONS_LEARNED ? "model.positions is not learned"
           : s->model_pooler_norm                          ? "model.pooler_norm = true"
           : s->model_pooling != MODEL_POOLING_FIRST       ? "model.pooling = mean"
           : table_gated(s)                                ? "model.activation is a gate"
           : s->model_sliding_window                       ? "model.sliding_window is not 0"
                                                           : NULL;
}

/* ---- BERT and ALBERT ---- */
const char *const family_constants[] = {"embeddings.position_ids", "embeddings.token_type_ids",
                                        NULL};

static enum err propose_classes(const struct hf_reading *r)
{
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++)
        count += !strncmp(r->fields[i].name, "id2label.", strlen("id2label."));
    double classes = count ? (double)count : hf_number(r, "num_labels", 2);
    return hf_propose(r, "model.classes", arena_printf(r->a, "%.0f", classes));
}

enum err family_read_encoder(const struct hf_reading *r, unsigned heads)
{
    const struct hf_field *problem = hf_field_find(r, "problem_type");
    if (problem && heads & FAMILY_CLASSES && !hf_field_is(problem, "single_label_classification"))
        return hf_refuse(r, problem, "single_label_classification");
    TRY(hf_add(r, "model.causal", "false"));
    TRY(hf_add(r, "model.norm", "layer"));
    TRY(hf_add(r, "model.embed_norm", "true"));
    TRY(hf_propose(r, "model.head", heads & FAMILY_CLASSES ? "plain" : "mlm"));
    TRY(hf_propose(r, "model.pooler", heads & (FAMILY_CLASSES | FAMILY_PAIR) ? "true" : "false"));
    return heads & FAMILY_CLASSES ? propose_classes(r) : ERR_OK;
}

enum err family_read_gelu(const struct hf_reading *r, const char *field, const char *known,
                          const char *fallback)
{
    /* gelu_pytorch_tanh and gelu_fast are gelu_new in other words. */
    static const char *const theirs[][2] = {{"gelu", "gelu_erf"},
                                            {"gelu_new", "gelu"},
                                            {"gelu_pytorch_tanh", "gelu"},
                                            {"gelu_fast", "gelu"},
                                            {NULL, NULL}};
    return hf_add_activation(r, &(struct hf_activations){field, known, fallback, theirs});
}

const char *family_gelu(const struct settings *s)
{
    return s->model_activation == MODEL_ACTIVATION_GELU ? "gelu_new" : "gelu";
}

enum err family_read_post_norm(const struct hf_reading *r, unsigned heads)
{
    TRY(family_read_gelu(r, "hidden_act", "gelu and gelu_new", "gelu_erf"));
    TRY(hf_add(r, "model.norm_place", "post"));
    TRY(hf_add(r, "model.positions", "learned"));
    TRY(hf_propose(r, "model.bias", "true")); /* false: its zeros are dropped */
    return family_read_encoder(r, heads);
}

char *family_post_norm_specials(const struct settings *s, struct arena *a)
{
    return arena_printf(a, "  \"hidden_act\": \"%s\",\n", family_gelu(s));
}
