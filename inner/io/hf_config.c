#include "inner/io/hf_config.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "inner/config/json.h"
#include "inner/model/table.h"

/* What a field is for this program. */
enum use {
    IGNORED, /* changes no result: dropout, token ids, generation defaults, ... */
    FIXED,   /* must be `value` */
    SETTING, /* is the value of `value`, a key */
    SPECIAL, /* hf_read looks at it by name */
};
struct rule {
    const char *field; /* ending in ".": all fields below it */
    enum use use;
    const char *value;    /* FIXED: "true", "null", "1", a word; SETTING: the key */
    const char *fallback; /* SETTING: what transformers takes where the field is missing; NULL: the
                             field must be there */
};

/* Fields of every configuration (transformers' PretrainedConfig). */
static const struct rule common[] = {
    {"model_type", SPECIAL, NULL, NULL},
    {"architectures.", SPECIAL, NULL, NULL},
    {"tie_word_embeddings", SPECIAL, NULL, NULL},
    {"vocab_size", SETTING, "model.vocab", NULL},
    {"is_encoder_decoder", FIXED, "false", NULL},
    {"add_cross_attention", FIXED, "false", NULL},
    {"cross_attention_hidden_size", FIXED, "null", NULL},
    {"tie_encoder_decoder", FIXED, "false", NULL},
    {"_name_or_path", IGNORED, NULL, NULL},
    {"transformers_version", IGNORED, NULL, NULL},
    {"torch_dtype", IGNORED, NULL, NULL},
    {"dtype", IGNORED, NULL, NULL},
    {"use_cache", IGNORED, NULL, NULL},
    {"is_decoder", IGNORED, NULL, NULL},
    {"initializer_range", IGNORED, NULL, NULL},
    {"bos_token_id", IGNORED, NULL, NULL},
    {"eos_token_id", IGNORED, NULL, NULL},
    {"eos_token_id.", IGNORED, NULL, NULL},
    {"pad_token_id", IGNORED, NULL, NULL},
    {"sep_token_id", IGNORED, NULL, NULL},
    {"decoder_start_token_id", IGNORED, NULL, NULL},
    {"tokenizer_class", IGNORED, NULL, NULL},
    {"task_specific_params.", IGNORED, NULL, NULL},
    {"id2label.", IGNORED, NULL, NULL},
    {"label2id.", IGNORED, NULL, NULL},
    {"problem_type", IGNORED, NULL, NULL},
    {"finetuning_task", IGNORED, NULL, NULL},
    {"prefix", IGNORED, NULL, NULL},
    {"return_dict", IGNORED, NULL, NULL},
    {"return_dict_in_generate", IGNORED, NULL, NULL},
    {"output_attentions", IGNORED, NULL, NULL},
    {"output_hidden_states", IGNORED, NULL, NULL},
    {"output_scores", IGNORED, NULL, NULL},
    {"torchscript", IGNORED, NULL, NULL},
    {"chunk_size_feed_forward", IGNORED, NULL, NULL},
    {"max_length", IGNORED, NULL, NULL},
    {"min_length", IGNORED, NULL, NULL},
    {"do_sample", IGNORED, NULL, NULL},
    {"early_stopping", IGNORED, NULL, NULL},
    {"num_beams", IGNORED, NULL, NULL},
    {"num_beam_groups", IGNORED, NULL, NULL},
    {"num_return_sequences", IGNORED, NULL, NULL},
    {"diversity_penalty", IGNORED, NULL, NULL},
    {"temperature", IGNORED, NULL, NULL},
    {"top_k", IGNORED, NULL, NULL},
    {"top_p", IGNORED, NULL, NULL},
    {"typical_p", IGNORED, NULL, NULL},
    {"repetition_penalty", IGNORED, NULL, NULL},
    {"length_penalty", IGNORED, NULL, NULL},
    {"no_repeat_ngram_size", IGNORED, NULL, NULL},
    {"encoder_no_repeat_ngram_size", IGNORED, NULL, NULL},
    {"remove_invalid_values", IGNORED, NULL, NULL},
    {"attn_implementation", IGNORED, NULL, NULL},
    {"_attn_implementation_autoset", IGNORED, NULL, NULL},
};
static const struct rule gpt2[] = {
    {"n_positions", SETTING, "model.context", NULL},
    {"n_embd", SETTING, "model.width", NULL},
    {"n_layer", SETTING, "model.layers", NULL},
    {"n_head", SETTING, "model.heads", NULL},
    {"n_inner", SPECIAL, NULL, NULL},
    {"activation_function", SPECIAL, NULL, NULL},
    {"layer_norm_epsilon", SETTING, "model.norm_eps", "1e-05"},
    {"scale_attn_weights", FIXED, "true", NULL},
    {"scale_attn_by_inverse_layer_idx", FIXED, "false", NULL},
    {"reorder_and_upcast_attn", IGNORED, NULL, NULL},
    {"n_ctx", IGNORED, NULL, NULL},
    {"resid_pdrop", IGNORED, NULL, NULL},
    {"embd_pdrop", IGNORED, NULL, NULL},
    {"attn_pdrop", IGNORED, NULL, NULL},
    {"summary_type", IGNORED, NULL, NULL},
    {"summary_use_proj", IGNORED, NULL, NULL},
    {"summary_activation", IGNORED, NULL, NULL},
    {"summary_proj_to_labels", IGNORED, NULL, NULL},
    {"summary_first_dropout", IGNORED, NULL, NULL},
};
static const struct rule llama[] = {
    {"max_position_embeddings", SPECIAL, NULL, NULL},
    {"hidden_size", SETTING, "model.width", NULL},
    {"num_hidden_layers", SETTING, "model.layers", NULL},
    {"num_attention_heads", SETTING, "model.heads", NULL},
    {"intermediate_size", SETTING, "model.mlp", NULL},
    {"rms_norm_eps", SETTING, "model.norm_eps", "1e-06"},
    {"num_key_value_heads", SPECIAL, NULL, NULL},
    {"head_dim", SPECIAL, NULL, NULL},
    {"hidden_act", SPECIAL, NULL, NULL},
    {"rope_theta", SPECIAL, NULL, NULL},
    {"rope_scaling.rope_type", FIXED, "default", NULL},
    {"rope_scaling.type", FIXED, "default", NULL},
    {"rope_scaling.factor", FIXED, "1", NULL},
    {"rope_scaling.rope_theta", SPECIAL, NULL, NULL},
    {"rope_parameters.rope_type", FIXED, "default", NULL},
    {"rope_parameters.factor", FIXED, "1", NULL},
    {"rope_parameters.rope_theta", SPECIAL, NULL, NULL},
    {"partial_rotary_factor", FIXED, "1", NULL},
    {"rope_parameters.partial_rotary_factor", FIXED, "1", NULL},
    {"attention_bias", SPECIAL, NULL, NULL},
    {"mlp_bias", SPECIAL, NULL, NULL},
    {"layer_types.", FIXED, "full_attention", NULL},
    {"sliding_window", FIXED, "null", NULL},
    {"pretraining_tp", FIXED, "1", NULL},
    {"attention_dropout", IGNORED, NULL, NULL},
};
#define COUNT(x) (sizeof(x) / sizeof *(x))

static const struct family {
    const char *type, *architecture;
    const struct rule *rules;
    size_t count;
    bool rope, tied; /* tied: where tie_word_embeddings is missing */
} families[] = {
    {"gpt2", "GPT2LMHeadModel", gpt2, COUNT(gpt2), false, true},
    {"llama", "LlamaForCausalLM", llama, COUNT(llama), true, false},
    {"mistral", "MistralForCausalLM", llama, COUNT(llama), true, false},
};

struct field { /* a scalar, or an empty list or map */
    const char
        *name; /* with the keys of the maps around it and places in lists: "architectures.0" */
    const struct json *value;
};

struct reading {
    struct hf_config *c;
    const struct family *family;
    struct field *fields;
    size_t count;
    struct arena *a;
};

static const struct field *field_find(const struct reading *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (!strcmp(r->fields[i].name, name) && r->fields[i].value->kind != JSON_NOTHING)
            return &r->fields[i];
    return NULL;
}

static bool field_is_number(const struct field *f)
{
    return f->value->kind == JSON_WHOLE || f->value->kind == JSON_DECIMAL;
}

static bool field_is(const struct field *f, const char *word)
{
    return f->value->kind == JSON_WORDS && !strcmp(f->value->text, word);
}

/* Text of a scalar as it stands in a configuration; numbers with the digits that a float32 keeps.
 */
static const char *field_text(const struct field *f, struct arena *a)
{
    const struct json *v = f->value;
    if (field_is_number(f) && v->number == floor(v->number) && fabs(v->number) < 9e15)
        return arena_printf(a, "%.0f", v->number);
    if (field_is_number(f))
        return arena_printf(a, "%.7g", v->number);
    if (v->kind == JSON_FLAG)
        return v->number != 0 ? "true" : "false";
    return v->kind == JSON_WORDS ? v->text : "null";
}

static enum err refuse(const struct reading *r, const struct field *f, const char *known)
{
    const char *text = field_text(f, r->a);
    return err_set(ERR_UNSUPPORTED, "%s: %.80s = %.80s; this program computes with %s only",
                   r->c->path, f->name, text ? text : "?", known);
}

static enum err setting_add(const struct reading *r, const char *key, const char *value,
                            bool checked)
{
    TRY_ALLOC(value);
    r->c->settings[r->c->count++] = (struct hf_setting){key, value, checked};
    return ERR_OK;
}

static bool rule_covers(const struct rule *rule, const char *field)
{
    size_t n = strlen(rule->field);
    return rule->field[n - 1] == '.' ? !strncmp(rule->field, field, n)
                                     : !strcmp(rule->field, field);
}

static const struct rule *rule_find(const struct reading *r, const char *field)
{
    for (size_t i = 0; i < r->family->count; i++)
        if (rule_covers(&r->family->rules[i], field))
            return &r->family->rules[i];
    for (size_t i = 0; i < COUNT(common); i++)
        if (rule_covers(&common[i], field))
            return &common[i];
    return NULL;
}

static bool field_is_empty(const struct field *f)
{
    const struct json *v = f->value;
    return v->kind == JSON_WORDS ? !*v->text
                                 : v->kind == JSON_LIST || v->kind == JSON_MAP || v->number == 0;
}

static enum err field_check(const struct reading *r, const struct field *f)
{
    const struct rule *rule = rule_find(r, f->name);
    if (!rule && !field_is_empty(f))
        return refuse(r, f,
                      "fields that it knows, and does not know this one: the field's default "
                      "(null, false, 0)");
    if (!rule || rule->use != FIXED || f->value->kind == JSON_NOTHING)
        return ERR_OK;
    const char *text = field_text(f, r->a);
    TRY_ALLOC(text);
    return strcmp(text, rule->value) ? refuse(r, f, rule->value) : ERR_OK;
}

static enum err rule_apply(const struct reading *r, const struct rule *rule)
{
    if (rule->use != SETTING)
        return ERR_OK;
    const struct field *f = field_find(r, rule->field);
    if (!f && !rule->fallback)
        return err_set(ERR_INPUT, "%s: no %s, which says %s", r->c->path, rule->field, rule->value);
    if (f && !field_is_number(f))
        return err_set(ERR_INPUT, "%s: %s is not a number", r->c->path, rule->field);
    return setting_add(r, rule->value, f ? field_text(f, r->a) : rule->fallback, true);
}

static enum err family_find(struct reading *r)
{
    const struct field *type = field_find(r, "model_type"),
                       *first = field_find(r, "architectures.0");
    for (size_t i = 0; type && i < COUNT(families); i++)
        if (field_is(type, families[i].type))
            r->family = &families[i];
    if (!r->family)
        return err_set(ERR_UNSUPPORTED, "%s: model_type = %.60s; gpt2, llama and mistral are read",
                       r->c->path,
                       type && type->value->kind == JSON_WORDS ? type->value->text : "(none)");
    if (first && !field_is(first, r->family->architecture))
        return refuse(r, first, r->family->architecture);
    r->c->type = r->family->type;
    return ERR_OK;
}

static bool flag_of(const struct reading *r, const char *name, bool fallback)
{
    const struct field *f = field_find(r, name);
    return f ? f->value->number != 0 : fallback;
}

static double number_of(const struct reading *r, const char *name, double fallback)
{
    const struct field *f = field_find(r, name);
    return f && field_is_number(f) ? f->value->number : fallback;
}

static enum err activation_add(const struct reading *r, const char *field,
                               const char *const names[][2], const char *known,
                               const char *fallback)
{
    const struct field *f = field_find(r, field);
    for (size_t i = 0; f && names[i][0]; i++)
        if (field_is(f, names[i][0]))
            return setting_add(r, "model.activation", names[i][1], true);
    return f ? refuse(r, f, known) : setting_add(r, "model.activation", fallback, true);
}

static enum err gpt2_add(const struct reading *r)
{
    /* gelu_pytorch_tanh and gelu_fast are gelu_new in other words. */
    static const char *const names[][2] = {{"gelu_new", "gelu"},
                                           {"gelu_pytorch_tanh", "gelu"},
                                           {"gelu_fast", "gelu"},
                                           {"gelu", "gelu_erf"},
                                           {NULL, NULL}};
    double inner = number_of(r, "n_inner", 4 * number_of(r, "n_embd", 0));
    TRY(activation_add(r, "activation_function", names, "gelu_new and gelu", "gelu"));
    TRY(setting_add(r, "model.mlp", arena_printf(r->a, "%.0f", inner), true));
    TRY(setting_add(r, "model.norm", "layer", true));
    TRY(setting_add(r, "model.positions", "learned", true));
    return setting_add(r, "model.bias", "true", false); /* false: its zeros are dropped */
}

static enum err rope_add(const struct reading *r)
{
    static const char *const fields[] = {"rope_theta", "rope_parameters.rope_theta",
                                         "rope_scaling.rope_theta"};
    const struct field *theta = NULL;
    for (size_t i = 0; i < COUNT(fields); i++) {
        const struct field *f = field_find(r, fields[i]);
        if (f && theta && f->value->number != theta->value->number)
            return err_set(ERR_INPUT, "%s: %s and %s differ", r->c->path, theta->name, f->name);
        theta = f ? f : theta;
    }
    TRY(setting_add(r, "model.positions", "rope", true));
    return setting_add(r, "model.rope_theta", theta ? field_text(theta, r->a) : "10000", true);
}

static enum err llama_add(const struct reading *r)
{
    static const char *const names[][2] = {{"silu", "swiglu"}, {"swish", "swiglu"}, {NULL, NULL}};
    const struct field *context = field_find(r, "max_position_embeddings"),
                       *size = field_find(r, "head_dim");
    double heads = number_of(r, "num_attention_heads", 1), width = number_of(r, "hidden_size", 0);
    bool bias = flag_of(r, "attention_bias", false);
    if (size && size->value->number * heads != width)
        return refuse(r, size, "hidden_size / num_attention_heads");
    if (bias != flag_of(r, "mlp_bias", false))
        return err_set(ERR_UNSUPPORTED,
                       "%s: attention_bias and mlp_bias differ; this program has biases in all "
                       "linear layers or in none",
                       r->c->path);
    TRY(activation_add(r, "hidden_act", names, "silu", "swiglu"));
    TRY(rope_add(r));
    TRY(setting_add(r, "model.norm", "rms", true));
    TRY(setting_add(r, "model.bias", bias ? "true" : "false", true));
    TRY(setting_add(r, "model.kv_heads",
                    arena_printf(r->a, "%.0f", number_of(r, "num_key_value_heads", heads)), true));
    return setting_add(r, "model.context", context ? field_text(context, r->a) : "2048", false);
}

static enum err reading_run(struct reading *r)
{
    TRY(family_find(r));
    for (size_t i = 0; i < r->count; i++)
        TRY(field_check(r, &r->fields[i]));
    TRY_ALLOC(r->c->settings =
                  arena_array(r->a, COUNT(common) + r->family->count + 8, sizeof *r->c->settings));
    for (size_t i = 0; i < COUNT(common); i++)
        TRY(rule_apply(r, &common[i]));
    for (size_t i = 0; i < r->family->count; i++)
        TRY(rule_apply(r, &r->family->rules[i]));
    TRY(r->family->rope ? llama_add(r) : gpt2_add(r));
    return setting_add(r, "model.tied",
                       flag_of(r, "tie_word_embeddings", r->family->tied) ? "true" : "false", true);
}

static enum err flatten(struct reading *r, const char *name, const struct json *j)
{
    if (!j->count && *name) {
        r->fields[r->count++] = (struct field){name, j};
        return ERR_OK;
    }
    for (size_t i = 0; i < j->count; i++) {
        const struct json *item = &j->items[i];
        const char *dot = *name ? "." : "",
                   *below = item->key ? arena_printf(r->a, "%s%s%s", name, dot, item->key)
                                      : arena_printf(r->a, "%s%s%zu", name, dot, i);
        TRY_ALLOC(below);
        TRY(flatten(r, below, item));
    }
    return ERR_OK;
}

static size_t leaves(const struct json *j)
{
    size_t count = !j->count;
    for (size_t i = 0; i < j->count; i++)
        count += leaves(&j->items[i]);
    return count;
}

enum err hf_read(struct hf_config *c, const char *path, struct arena *a)
{
    enum { CONFIG_BYTES_MAX = 1 << 20 };
    struct json root;
    struct reading r = {.c = c, .a = a};
    *c = (struct hf_config){.path = path};
    TRY(json_read_file(&root, path, CONFIG_BYTES_MAX, a));
    TRY_ALLOC(r.fields = arena_array(a, leaves(&root), sizeof *r.fields));
    TRY(flatten(&r, "", &root));
    return reading_run(&r);
}

/* ---- beside a configuration ---- */

static bool line_is_checked(const struct hf_config *c, const char *line)
{
    for (size_t i = 0; i < c->count; i++) {
        size_t n = strlen(c->settings[i].key);
        if (c->settings[i].checked && !strncmp(line, c->settings[i].key, n) && line[n] == '=')
            return true;
    }
    return false;
}

/* The lines "model.heads=4" of the checked keys in the canonical text of all keys. */
static enum err checked_lines(const struct hf_config *c, const struct config_table *t,
                              struct arena *a, char **out)
{
    char *text;
    size_t at = 0;
    TRY(config_canonical(t, 1, a, &text));
    TRY_ALLOC(*out = arena_alloc(a, strlen(text) + 1));
    for (const char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n") + 1;
        if (!line_is_checked(c, line))
            continue;
        memcpy(*out + at, line, (size_t)(next - line));
        at += (size_t)(next - line);
    }
    return ERR_OK;
}

enum err hf_check(const struct hf_config *c, const struct settings *s, struct arena *a)
{
    struct settings here = *s, there = {0};
    struct config_table ours = keys_inner(&here), theirs = keys_inner(&there);
    char **argv, *our_lines, *their_lines, *difference;
    TRY_ALLOC(argv = arena_array(a, c->count + 1, sizeof *argv));
    for (size_t i = 0; i < c->count; i++)
        TRY_ALLOC(argv[i] = arena_printf(a, "--%s=%s", c->settings[i].key, c->settings[i].value));
    TRY(config_load(&theirs, 1, NULL, (int)c->count, argv, a));
    here.model_mlp = (int64_t)table_mlp(s);
    here.model_kv_heads = (int64_t)table_kv_heads(s);
    if (there.model_kv_heads == 0)
        there.model_kv_heads = there.model_heads;
    TRY(checked_lines(c, &ours, a, &our_lines));
    TRY(checked_lines(c, &theirs, a, &their_lines));
    if (!strcmp(our_lines, their_lines))
        return ERR_OK;
    TRY(config_difference(our_lines, their_lines, a, &difference));
    return err_set(ERR_MISMATCH, "%s describes another model than this configuration: %s", c->path,
                   difference);
}

enum err hf_yaml(const struct hf_config *c, struct arena *a, char **text)
{
    TRY_ALLOC(*text = arena_printf(
                  a,
                  "# The model of %s (%s). Add the sections data, train and outer of your run:\n"
                  "# docs/configuration.md lists the keys, deploy/examples has whole files.\n"
                  "model:\n",
                  c->path, c->type));
    for (size_t i = 0; i < c->count; i++)
        TRY_ALLOC(*text =
                      arena_printf(a, "%s  %s: %s\n", *text, c->settings[i].key + strlen("model."),
                                   c->settings[i].value));
    TRY_ALLOC(*text = arena_printf(a, "%sdata:\n  tokenizer: external\n", *text));
    return ERR_OK;
}
