/* SPDX-License-Identifier: Apache-2.0 */
/* What breaks if this is wrong: a model with another activation, another attention or another
 * normalisation is loaded without a word and computes another function. */
#include "tests/inner/scratch.h"
#include "inner/io/hf_config.h"

static struct arena arena;

static int reset(void **state)
{
    (void)state;
    arena_reset(&arena);
    err_clear();
    return 0;
}

#define GPT2                                                                                       \
    "\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"vocab_size\": 50257, "  \
    "\"n_positions\": 1024, \"n_embd\": 768, \"n_layer\": 12, \"n_head\": 6"
#define LLAMA                                                                                      \
    "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 128, "  \
    "\"max_position_embeddings\": 4096, \"hidden_size\": 64, \"intermediate_size\": 160, "         \
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 4"
#define SIZES                                                                                      \
    ", \"vocab_size\": 96, \"hidden_size\": 64, \"num_hidden_layers\": 4, "                        \
    "\"num_attention_heads\": 4, \"intermediate_size\": 160"
#define BERT   "\"architectures\": [\"BertForMaskedLM\"], \"model_type\": \"bert\"" SIZES
#define ALBERT "\"architectures\": [\"AlbertForMaskedLM\"], \"model_type\": \"albert\"" SIZES
#define MODERN                                                                                     \
    "\"architectures\": [\"ModernBertForMaskedLM\"], \"model_type\": \"modernbert\"" SIZES

static enum err read(struct hf_config *c, const char *fields)
{
    char *text = arena_printf(&arena, "{%s}", fields);
    const char *path = scratch_write("config.json", text, strlen(text));
    return hf_read(c, path, &arena);
}

/* "model.heads=12 ..." of the checked settings, in the order of the keys asked for. */
static void settings_are(const char *fields, const char *const wanted[][2])
{
    struct hf_config c;
    if (read(&c, fields))
        fail_msg("%s", err_message());
    for (size_t i = 0; wanted[i][0]; i++) {
        const char *found = NULL;
        for (size_t k = 0; k < c.count; k++)
            if (!strcmp(c.settings[k].key, wanted[i][0])) {
                assert_null(found); /* each key once */
                found = c.settings[k].value;
            }
        if (!found)
            fail_msg("%s is missing", wanted[i][0]);
        assert_string_equal(found, wanted[i][1]);
    }
}

/* config.json of openai-community/gpt2 (its fields as published), with 6 heads of 128. */
static void gpt2_as_published(void **state)
{
    (void)state;
    settings_are(
        GPT2
        ", \"activation_function\": \"gelu_new\", \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, "
        "\"embd_pdrop\": 0.1, \"eos_token_id\": 50256, \"initializer_range\": 0.02, "
        "\"layer_norm_epsilon\": 1e-05, \"n_ctx\": 1024, \"resid_pdrop\": 0.1, "
        "\"summary_activation\": null, \"summary_first_dropout\": 0.1, "
        "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", "
        "\"summary_use_proj\": true, \"task_specific_params\": {\"text-generation\": "
        "{\"do_sample\": true, \"max_length\": 50}}",
        (const char *const[][2]){{"model.vocab_size", "50257"},
                                 {"model.max_seq_len", "1024"},
                                 {"model.d_model", "768"},
                                 {"model.layers", "12"},
                                 {"model.heads", "6"},
                                 {"model.d_ff", "3072"},
                                 {"model.activation", "gelu"},
                                 {"model.norm", "layer"},
                                 {"model.norm_eps", "1e-05"},
                                 {"model.positions", "learned"},
                                 {"model.tie_embeddings", "true"},
                                 {NULL, NULL}});
    settings_are(
        GPT2
        ", \"n_inner\": 1000, \"activation_function\": \"gelu\", \"tie_word_embeddings\": false",
        (const char *const[][2]){{"model.d_ff", "1000"},
                                 {"model.activation", "gelu_erf"},
                                 {"model.tie_embeddings", "false"},
                                 {NULL, NULL}});
}

/* Fields and values of Llama 3.2 1B's config.json, at another size and without its scaled rope. */
static void llama_as_published(void **state)
{
    (void)state;
    settings_are(
        LLAMA
        ", \"attention_bias\": false, \"attention_dropout\": 0.0, \"bos_token_id\": 128000, "
        "\"eos_token_id\": [128001, 128008], \"head_dim\": 16, \"hidden_act\": \"silu\", "
        "\"initializer_range\": 0.02, \"mlp_bias\": false, \"num_key_value_heads\": 2, "
        "\"pretraining_tp\": 1, \"rms_norm_eps\": 9.999999747378752e-06, \"rope_scaling\": null, "
        "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", "
        "\"transformers_version\": \"4.45.0\", \"use_cache\": true",
        (const char *const[][2]){{"model.vocab_size", "128"},
                                 {"model.d_model", "64"},
                                 {"model.layers", "3"},
                                 {"model.heads", "4"},
                                 {"model.kv_heads", "2"},
                                 {"model.d_ff", "160"},
                                 {"model.activation", "swiglu"},
                                 {"model.norm", "rms"},
                                 {"model.norm_eps", "1e-05"},
                                 {"model.positions", "rope"},
                                 {"model.rope_theta", "500000"},
                                 {"model.bias", "false"},
                                 {"model.tie_embeddings", "true"},
                                 {NULL, NULL}});
    /* Llama 3.2's scaled rotary angles, in both forms. */
    static const char *const scaled[] = {"\"rope_scaling\": {",
                                         "\"rope_parameters\": {\"rope_theta\": 5e5, "};
    for (size_t i = 0; i < 2; i++)
        settings_are(arena_printf(&arena,
                                  LLAMA
                                  ", %s\"factor\": 32.0, \"high_freq_factor\": 4.0, "
                                  "\"low_freq_factor\": 1.0, "
                                  "\"original_max_position_embeddings\": 8192, \"rope_type\": "
                                  "\"llama3\"}",
                                  scaled[i]),
                     (const char *const[][2]){{"model.rope_factor", "32"},
                                              {"model.rope_low", "1"},
                                              {"model.rope_high", "4"},
                                              {"model.rope_original", "8192"},
                                              {NULL, NULL}});
    /* What is missing has transformers' defaults; rope_parameters is transformers 5's form. */
    settings_are(LLAMA
                 ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 20000.0}",
                 (const char *const[][2]){{"model.kv_heads", "4"},
                                          {"model.norm_eps", "1e-06"},
                                          {"model.rope_theta", "20000"},
                                          {"model.tie_embeddings", "false"},
                                          {NULL, NULL}});
}

/* Fields and values of google-bert/bert-base-uncased's config.json, at another size. */
static void bert_as_published(void **state)
{
    (void)state;
    settings_are(
        BERT ", \"attention_probs_dropout_prob\": 0.1, \"gradient_checkpointing\": false, "
             "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, \"initializer_range\": 0.02, "
             "\"layer_norm_eps\": 1e-12, \"max_position_embeddings\": 512, \"pad_token_id\": 0, "
             "\"position_embedding_type\": \"absolute\", \"transformers_version\": \"4.6.0.dev0\", "
             "\"type_vocab_size\": 2, \"use_cache\": true",
        (const char *const[][2]){{"model.vocab_size", "96"},
                                 {"model.max_seq_len", "512"},
                                 {"model.d_model", "64"},
                                 {"model.layers", "4"},
                                 {"model.heads", "4"},
                                 {"model.d_ff", "160"},
                                 {"model.token_types", "2"},
                                 {"model.activation", "gelu_erf"},
                                 {"model.norm", "layer"},
                                 {"model.norm_eps", "1e-12"},
                                 {"model.norm_place", "post"},
                                 {"model.embed_norm", "true"},
                                 {"model.positions", "learned"},
                                 {"model.causal", "false"},
                                 {"model.head", "mlm"},
                                 {"model.pooler", "false"},
                                 {"model.tie_embeddings", "true"},
                                 {NULL, NULL}});
    /* The multilingual files have these as well. */
    settings_are("\"architectures\": [\"BertForPreTraining\"], \"model_type\": \"bert\"" SIZES
                 ", \"hidden_act\": \"gelu_new\", \"directionality\": \"bidi\", "
                 "\"pooler_fc_size\": 768, \"pooler_num_attention_heads\": 12, "
                 "\"pooler_num_fc_layers\": 3, \"pooler_size_per_head\": 128, "
                 "\"pooler_type\": \"first_token_transform\"",
                 (const char *const[][2]){{"model.activation", "gelu"},
                                          {"model.norm_eps", "1e-12"},
                                          {"model.token_types", "2"},
                                          {"model.pooler", "true"},
                                          {"model.head", "mlm"},
                                          {NULL, NULL}});
    settings_are("\"architectures\": [\"BertForSequenceClassification\"], "
                 "\"model_type\": \"bert\"" SIZES
                 ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}",
                 (const char *const[][2]){{"model.head", "plain"},
                                          {"model.pooler", "true"},
                                          {"model.classes", "3"},
                                          {NULL, NULL}});
}

/* albert/albert-base-v2. */
static void albert_as_published(void **state)
{
    (void)state;
    settings_are(
        ALBERT
        ", \"attention_probs_dropout_prob\": 0, \"bos_token_id\": 2, "
        "\"classifier_dropout_prob\": 0.1, \"down_scale_factor\": 1, \"embedding_size\": 16, "
        "\"eos_token_id\": 3, \"gap_size\": 0, \"hidden_act\": \"gelu_new\", "
        "\"hidden_dropout_prob\": 0, \"inner_group_num\": 1, \"layer_norm_eps\": 1e-12, "
        "\"max_position_embeddings\": 512, \"net_structure_type\": 0, \"num_hidden_groups\": 1, "
        "\"num_memory_blocks\": 0, \"type_vocab_size\": 2",
        (const char *const[][2]){{"model.embedding_size", "16"},
                                 {"model.share_layers", "true"},
                                 {"model.layers", "4"},
                                 {"model.activation", "gelu"},
                                 {"model.norm_place", "post"},
                                 {NULL, NULL}});
}

/* answerdotai/ModernBERT-base: the older fields of attention; then transformers 5's. */
static void modernbert_as_published(void **state)
{
    (void)state;
    const char *const same[][2] = {
        {"model.sliding_window", "128"}, {"model.global_attn_every", "3"},
        {"model.rope_theta", "160000"},  {"model.rope_theta_local", "10000"},
        {"model.max_seq_len", "8192"},   {"model.activation", "geglu"},
        {"model.bias", "false"},         {"model.norm_place", "pre"},
        {"model.positions", "rope"},     {"model.norm_eps", "1e-05"},
        {"model.pooler", "false"},       {NULL, NULL}};
    settings_are(
        MODERN
        ", \"attention_bias\": false, \"attention_dropout\": 0.0, \"bos_token_id\": 50281, "
        "\"classifier_activation\": \"gelu\", \"classifier_bias\": false, "
        "\"classifier_dropout\": 0.0, \"classifier_pooling\": \"mean\", "
        "\"cls_token_id\": 50281, \"decoder_bias\": true, \"deterministic_flash_attn\": false, "
        "\"embedding_dropout\": 0.0, \"global_attn_every_n_layers\": 3, "
        "\"global_rope_theta\": 160000.0, \"gradient_checkpointing\": false, "
        "\"hidden_activation\": \"gelu\", \"initializer_cutoff_factor\": 2.0, "
        "\"layer_norm_eps\": 1e-05, \"local_attention\": 128, \"local_rope_theta\": 10000.0, "
        "\"max_position_embeddings\": 8192, \"mlp_bias\": false, \"mlp_dropout\": 0.0, "
        "\"norm_bias\": false, \"norm_eps\": 1e-05, \"pad_token_id\": 50283, "
        "\"position_embedding_type\": \"absolute\", \"sep_token_id\": 50282",
        same);
    settings_are(MODERN
                 ", \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                 "\"sliding_attention\", \"full_attention\"], \"rope_parameters\": "
                 "{\"full_attention\": {\"rope_type\": \"default\", \"rope_theta\": 160000.0}, "
                 "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0}}",
                 same);
    settings_are(MODERN ", \"layer_types\": [\"full_attention\", \"full_attention\", "
                        "\"full_attention\", \"full_attention\"]",
                 (const char *const[][2]){{"model.sliding_window", "0"}, {NULL, NULL}});
}

static void another_function_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *says;
    } cases[] = {
        {GPT2 ", \"activation_function\": \"relu\"", "activation_function = relu"},
        {GPT2 ", \"scale_attn_weights\": false", "scale_attn_weights = false"},
        {GPT2 ", \"scale_attn_by_inverse_layer_idx\": true",
         "scale_attn_by_inverse_layer_idx = true"},
        {GPT2 ", \"add_cross_attention\": true", "add_cross_attention = true"},
        {GPT2 ", \"final_logit_softcapping\": 30.0", "final_logit_softcapping = 30"},
        {GPT2 ", \"quantization_config\": {\"bits\": 4}", "quantization_config.bits = 4"},
        {LLAMA ", \"hidden_act\": \"gelu\"", "hidden_act = gelu"},
        {LLAMA ", \"rope_scaling\": {\"factor\": 8.0}", "rope_scaling.factor = 8"},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"default\", \"beta_fast\": 8.0}",
         "rope_scaling.beta_fast = 8"},
        {LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}", "rope_scaling.type = linear"},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"longrope\", \"long_factor\": [1.5]}",
         "rope_scaling.rope_type = longrope"},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000.0}",
         "rope_parameters.rope_type = yarn"},
        {LLAMA ", \"partial_rotary_factor\": 0.5", "partial_rotary_factor = 0.5"},
        {LLAMA ", \"head_dim\": 32", "head_dim = 32"},
        {LLAMA ", \"attention_bias\": true", "attention_bias and mlp_bias differ"},
        {LLAMA ", \"sliding_window\": 4096", "sliding_window = 4096"},
        {LLAMA ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         "layer_types.1 = sliding_attention"},
        {LLAMA ", \"attention_multiplier\": 0.0078", "attention_multiplier = 0.0078"},
        {LLAMA ", \"embedding_multiplier\": 12.0", "embedding_multiplier = 12"},
        {LLAMA ", \"query_pre_attn_scalar\": 256", "query_pre_attn_scalar = 256"},
        {LLAMA ", \"rope_theta\": 1.0, \"rope_parameters\": {\"rope_theta\": 2.0}", "differ"},
        {"\"model_type\": \"gemma2\", \"hidden_size\": 64", "model_type = gemma2"},
        {"\"model_type\": \"granite\"", "model_type = granite"},
        {"\"hidden_size\": 64", "model_type = (none)"},
        {"\"architectures\": [\"GPT2ForSequenceClassification\"], \"model_type\": \"gpt2\"",
         "architectures.0 = GPT2ForSequenceClassification"},
        {BERT ", \"position_embedding_type\": \"relative_key\"",
         "position_embedding_type = relative_key"},
        {BERT ", \"hidden_act\": \"relu\"", "hidden_act = relu"},
        {BERT ", \"is_decoder\": true", "is_decoder = true"},
        {BERT ", \"embedding_multiplier\": 2", "embedding_multiplier = 2"},
        {"\"architectures\": [\"BertForSequenceClassification\"], \"model_type\": \"bert\"" SIZES
         ", \"problem_type\": \"regression\"",
         "problem_type = regression"},
        {"\"architectures\": [\"ModernBertForSequenceClassification\"], "
         "\"model_type\": \"modernbert\"" SIZES ", \"classifier_pooling\": \"max\"",
         "classifier_pooling = max"},
        {"\"architectures\": [\"BertForQuestionAnswering\"], \"model_type\": \"bert\"" SIZES,
         "architectures.0 = BertForQuestionAnswering"},
        {ALBERT ", \"hidden_act\": \"gelu\", \"num_hidden_groups\": 2", "num_hidden_groups = 2"},
        {ALBERT ", \"hidden_act\": \"gelu\", \"inner_group_num\": 2", "inner_group_num = 2"},
        {ALBERT ", \"hidden_act\": \"gelu\", \"embedding_size\": 64", "embedding_size = 64"},
        {MODERN ", \"hidden_activation\": \"silu\"", "hidden_activation = silu"},
        {MODERN ", \"norm_bias\": true", "attention_bias and norm_bias differ"},
        {MODERN ", \"decoder_bias\": false", "decoder_bias = false"},
        {MODERN ", \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                "\"full_attention\", \"full_attention\"]",
         "layer_types.3 = full_attention"},
        {MODERN ", \"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"yarn\"}}",
         "rope_parameters.sliding_attention.rope_type = yarn"},
        {"\"model_type\": \"gpt2\", \"vocab_size\": 50257", "no n_positions"},
        {"\"model_type\": \"gpt2\", \"vocab_size\": \"many\"", "vocab_size is not a number"},
    };
    struct hf_config c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (read(&c, cases[i].fields) == ERR_OK)
            fail_msg("taken: %s", cases[i].fields);
        assert_says(cases[i].says);
        assert_says("config.json");
    }
}

static void what_changes_nothing_is_taken(void **state)
{
    (void)state;
    struct hf_config c;
    assert_int_equal(
        read(&c, GPT2 ", \"something_new\": null, \"other\": false, \"third\": 0, \"fourth\": []"),
        ERR_OK);
    assert_int_equal(read(&c, GPT2 ", \"temperature\": 0.7, \"resid_pdrop\": 0.5"), ERR_OK);
    assert_int_equal(
        read(&c, "\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], "
                 "\"vocab_size\": 99, \"hidden_size\": 64, \"num_hidden_layers\": 1, "
                 "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"sliding_window\": null"),
        ERR_OK);
}

/* Fields that a program which wrote or tuned the model has left: Llama 2, SmolLM, ALBERT, unsloth.
 */
static void what_others_record_is_taken(void **state)
{
    (void)state;
    static const char *const fields[] = {"\"is_llama_config\": true, \"rope_interleaved\": false",
                                         "\"unsloth_version\": \"2024.9\", \"unsloth_fixed\": true",
                                         "\"_num_labels\": 5, \"output_past\": true",
                                         "\"model_max_length\": 1000000000000000019884624838656",
                                         "\"transformers.js_config\": {\"dtype\": \"q4\"}"};
    struct hf_config c;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (read(&c, arena_printf(&arena, LLAMA ", %s", fields[i])))
            fail_msg("%s", err_message());
    assert_int_equal(read(&c, LLAMA ", \"rope_interleaved\": true"), ERR_UNSUPPORTED);
    assert_says("rope_interleaved = true");
}

static enum err read_ignoring(const char *fields, const char *first, const char *second)
{
    const char *items[] = {first, second};
    const struct args_texts ignored = {items, second ? 2 : 1};
    struct hf_config c;
    char *text = arena_printf(&arena, "{%s}", fields);
    const char *path = scratch_write("config.json", text, strlen(text));
    return hf_read_ignoring(&c, path, &ignored, &arena);
}

static void an_unknown_field_has_a_way_on(void **state)
{
    (void)state;
    static const char fields[] =
        LLAMA ", \"new\": 1, \"other\": {\"a\": {\"b\": true}}, \"rope_theta\": 20000";
    struct hf_config c;
    assert_int_equal(read(&c, fields), ERR_UNSUPPORTED);
    assert_says("config.json: new = 1: this program does not know the field");
    assert_says("give --ignore-field new");
    assert_int_equal(read_ignoring(fields, "new", NULL), ERR_UNSUPPORTED);
    assert_says("other.a.b = true");
    assert_says("give --ignore-field other");
    assert_int_equal(read_ignoring(fields, "new", "other"), ERR_OK);
    assert_int_equal(read_ignoring(fields, "ne", NULL), ERR_CONFIG);
    assert_says("has no such field");
    assert_int_equal(read_ignoring(fields, "rope_theta", NULL), ERR_CONFIG);
    assert_says("--ignore-field rope_theta: rope_theta of");
    assert_int_equal(
        read_ignoring(LLAMA ", \"rope_scaling\": {\"factor\": 4}", "rope_scaling", NULL),
        ERR_CONFIG);
    assert_says("rope_scaling.factor of");
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    struct hf_config c;
    assert_int_equal(read(&c, GPT2 ", "), ERR_INPUT);
    assert_says("not JSON");
    assert_int_equal(read(&c, GPT2 ", \"n_head\": 3"), ERR_INPUT); /* twice */
    assert_int_equal(
        read(&c, LLAMA ", \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"}"),
        ERR_INPUT);
    assert_says("rope_scaling.low_freq_factor is missing");
    assert_int_equal(read(&c, "\"a\":[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]"), ERR_INPUT);
    assert_says("levels");
    assert_int_equal(hf_read(&c, scratch("none.json"), &arena), ERR_INPUT);
}

static struct settings loaded(const char *const *words)
{
    struct settings s = {0};
    char *argv[16];
    int count = 0;
    for (; words[count]; count++)
        argv[count] = arena_printf(&arena, "%s", words[count]);
    struct config_table t = keys_inner(&s);
    if (config_load(&t, 1, NULL, count, argv, &arena))
        fail_msg("%s", err_message());
    return s;
}

static void every_difference_is_told_at_once(void **state)
{
    (void)state;
    struct hf_config c;
    assert_int_equal(read(&c, LLAMA ", \"rms_norm_eps\": 1e-05, \"num_key_value_heads\": 4"),
                     ERR_OK);
    static const char *const good[] = {"--model.vocab_size=128",
                                       "--model.d_model=64",
                                       "--model.layers=3",
                                       "--model.heads=4",
                                       "--model.kv_heads=0",
                                       "--model.d_ff=160",
                                       "--model.norm=rms",
                                       "--model.positions=rope",
                                       "--model.activation=swiglu",
                                       "--model.bias=false",
                                       "--model.tie_embeddings=false",
                                       "--model.norm_eps=1e-5",
                                       "--model.max_seq_len=512",
                                       NULL};
    struct settings s = loaded(good); /* a shorter context is no other function */
    if (hf_check(&c, &s, &arena))
        fail_msg("%s", err_message());
    s.model_norm_eps = 1e-6;
    s.model_heads = 8;
    s.model_rope_theta = 500000;
    assert_int_equal(hf_check(&c, &s, &arena), ERR_MISMATCH);
    assert_says("model.heads: 8 here, 4 there");
    assert_says("model.norm_eps: 1e-06 here, 1e-05 there");
    assert_says("model.rope_theta: 500000 here, 10000 there");
    assert_null(strstr(err_message(), "model.max_seq_len"));
}

/* The written configuration describes the model that it was derived from. */
static void the_configuration_that_is_written_fits(void **state)
{
    (void)state;
    struct hf_config c;
    struct settings s = {0};
    struct config_table t = keys_inner(&s);
    char *text;
    assert_int_equal(read(&c, LLAMA ", \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0"), ERR_OK);
    assert_int_equal(hf_yaml(&c, &arena, &text), ERR_OK);
    if (config_load_text(&t, 1, &(struct config_text){"run.yaml", text, strlen(text), CONFIG_TYPED},
                         0, NULL, &arena))
        fail_msg("%s\n%s", err_message(), text);
    assert_int_equal(hf_check(&c, &s, &arena), ERR_OK);
    assert_int_equal(s.model_max_seq_len, 4096);
    assert_true(s.model_rope_theta == 500000 && s.model_norm_eps == 1e-5);
}

/* An encoder's objective and its rates come along. */
static void an_encoders_data_section_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *ends;
    } cases[] = {
        {BERT, "  tokenizer: external\n  objective: mlm\n"},
        {"\"architectures\": [\"BertForPreTraining\"], \"model_type\": \"bert\"" SIZES,
         "  objective: mlm\n  pairs: nsp\n"},
        {"\"architectures\": [\"AlbertForPreTraining\"], \"model_type\": \"albert\", "
         "\"hidden_act\": \"gelu\"" SIZES,
         "  objective: mlm\n  pairs: sop\n"},
        {MODERN, "  objective: mlm\n  mlm_probability: 0.3\n"},
        {"\"architectures\": [\"BertForSequenceClassification\"], \"model_type\": \"bert\"" SIZES,
         "  objective: labels\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hf_config c;
        struct settings s = {0};
        struct config_table t = keys_inner(&s);
        char *text = "";
        if (read(&c, cases[i].fields) || hf_yaml(&c, &arena, &text) ||
            config_load_text(&t, 1,
                             &(struct config_text){"run.yaml", text, strlen(text), CONFIG_TYPED}, 0,
                             NULL, &arena) ||
            hf_check(&c, &s, &arena))
            fail_msg("%s", err_message());
        size_t n = strlen(text), m = strlen(cases[i].ends);
        assert_true(n > m);
        assert_string_equal(text + n - m, cases[i].ends);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup(name, reset)
    const struct CMUnitTest tests[] = {
        T(gpt2_as_published),
        T(llama_as_published),
        T(bert_as_published),
        T(albert_as_published),
        T(modernbert_as_published),
        T(another_function_is_refused_by_name),
        T(what_changes_nothing_is_taken),
        T(what_others_record_is_taken),
        T(an_unknown_field_has_a_way_on),
        T(broken_files_are_refused),
        T(every_difference_is_told_at_once),
        T(the_configuration_that_is_written_fits),
        T(an_encoders_data_section_is_written),
    };
    int failed = cmocka_run_group_tests(tests, scratch_open, scratch_close);
    arena_free(&arena);
    return failed;
}
