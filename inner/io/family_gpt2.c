/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al. 2019). Its Conv1D stores (in, out): four weights of a layer are transposed,
 * the square one too. */
#include "inner/io/family.h"

static const struct family_name body[] = {
    {"wte.weight", "wte.weight", WHOLE},
    {"wpe.weight", "wpe.weight", WHOLE},
    {"norm.weight", "ln_f.weight", WHOLE},
    {"norm.bias", "ln_f.bias", WHOLE},
};
static const struct family_name layer[] = {
    {"norm1.weight", "ln_1.weight", WHOLE},
    {"norm1.bias", "ln_1.bias", WHOLE},
    {"attn.qkv.weight", "attn.c_attn.weight", TRANSPOSED},
    {"attn.qkv.bias", "attn.c_attn.bias", WHOLE},
    {"attn.proj.weight", "attn.c_proj.weight", TRANSPOSED},
    {"attn.proj.bias", "attn.c_proj.bias", WHOLE},
    {"norm2.weight", "ln_2.weight", WHOLE},
    {"norm2.bias", "ln_2.bias", WHOLE},
    {"mlp.up.weight", "mlp.c_fc.weight", TRANSPOSED},
    {"mlp.up.bias", "mlp.c_fc.bias", WHOLE},
    {"mlp.down.weight", "mlp.c_proj.weight", TRANSPOSED},
    {"mlp.down.bias", "mlp.c_proj.bias", WHOLE},
};
static const struct family_name heads[] = {{"head.weight", "lm_head.weight", WHOLE}};
/* What older files hold in addition to the parameters: masks. */
static const char *const constants[] = {".attn.bias", ".attn.masked_bias", NULL};

static const struct hf_rule rules[] = {
    {"n_positions", HF_SETTING, "model.max_seq_len", NULL},
    {"n_embd", HF_SETTING, "model.d_model", NULL},
    {"n_layer", HF_SETTING, "model.layers", NULL},
    {"n_head", HF_SETTING, "model.heads", NULL},
    {"n_inner", HF_SPECIAL, NULL, NULL},
    {"activation_function", HF_SPECIAL, NULL, NULL},
    {"layer_norm_epsilon", HF_SETTING, "model.norm_eps", "1e-05"},
    {"scale_attn_weights", HF_FIXED, "true", NULL},
    {"scale_attn_by_inverse_layer_idx", HF_FIXED, "false", NULL},
    {"reorder_and_upcast_attn", HF_IGNORED, NULL, NULL},
    {"n_ctx", HF_IGNORED, NULL, NULL},
    {"resid_pdrop", HF_IGNORED, NULL, "0.0"},
    {"embd_pdrop", HF_IGNORED, NULL, "0.0"},
    {"attn_pdrop", HF_IGNORED, NULL, "0.0"},
    {"bos_token_id", HF_IGNORED, NULL, "null"},
    {"eos_token_id", HF_IGNORED, NULL, "null"},
    {"summary_type", HF_IGNORED, NULL, NULL},
    {"summary_use_proj", HF_IGNORED, NULL, NULL},
    {"summary_activation", HF_IGNORED, NULL, NULL},
    {"summary_proj_to_labels", HF_IGNORED, NULL, NULL},
    {"summary_first_dropout", HF_IGNORED, NULL, NULL},
};

static enum err read(const struct hf_reading *r, unsigned heads_there)
{
    double inner = hf_number(r, "n_inner", 4 * hf_number(r, "n_embd", 0));
    (void)heads_there;
    TRY(family_read_gelu(r, "activation_function", "gelu_new and gelu", "gelu"));
    TRY(hf_add(r, "model.d_ff", arena_printf(r->a, "%.0f", inner)));
    TRY(hf_add(r, "model.norm", "layer"));
    TRY(hf_add(r, "model.positions", "learned"));
    return hf_propose(r, "model.bias", "true"); /* false: its zeros are dropped */
}

static const char *lacks(const struct settings *s)
{
    const char *decoder = family_lacks_decoder(s);
    return decoder                                         ? decoder
           : s->model_norm != MODEL_NORM_LAYER             ? "model.norm = rms"
           : s->model_positions != MODEL_POSITIONS_LEARNED ? "model.positions is not learned"
           : table_gated(s)                                ? "model.activation is a gate"
           : table_kv_heads(s) != (size_t)s->model_heads   ? "model.kv_heads is not model.heads"
                                                           : NULL;
}

static char *specials(const struct settings *s, struct arena *a)
{
    return arena_printf(a, "  \"n_inner\": %zu,\n  \"activation_function\": \"%s\",\n",
                        table_mlp(s), family_gelu(s));
}

const struct family family_gpt2 = {
    .type = "gpt2",
    .title = "GPT-2",
    .architectures =
        (const struct family_architecture[]){{"GPT2LMHeadModel", FAMILY_TOKENS}, {NULL, 0}},
    .prefix = "transformer.",
    .layer_before = "h.",
    .layer_behind = ".",
    .body = FAMILY_NAMES(body),
    .layer = FAMILY_NAMES(layer),
    .heads = FAMILY_NAMES(heads),
    .constants = constants,
    .rules = rules,
    .rule_count = FAMILY_COUNT(rules),
    .zero_biases = true,
    .tied = true,
    .read = read,
    .lacks = lacks,
    .specials = specials,
};
