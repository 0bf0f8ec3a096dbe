/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/io/hf_config.h"
#include <stdio.h>
#include <string.h>
#include "inner/io/family.h"
#include "kernels/base/log.h"

/* Fields of every configuration (transformers' PretrainedConfig). */
const struct hf_rule hf_common[] = {
    {"model_type", HF_SPECIAL, NULL, NULL},
    {"architectures.", HF_SPECIAL, NULL, NULL},
    {"tie_word_embeddings", HF_SPECIAL, NULL, NULL},
    {"vocab_size", HF_SETTING, "model.vocab_size", NULL},
    {"is_encoder_decoder", HF_FIXED, "false", NULL},
    {"add_cross_attention", HF_FIXED, "false", NULL},
    {"cross_attention_hidden_size", HF_FIXED, "null", NULL},
    {"tie_encoder_decoder", HF_FIXED, "false", NULL},
    {"_name_or_path", HF_IGNORED, NULL, NULL},
    {"transformers_version", HF_IGNORED, NULL, NULL},
    {"torch_dtype", HF_IGNORED, NULL, NULL},
    {"dtype", HF_IGNORED, NULL, NULL},
    {"use_cache", HF_IGNORED, NULL, NULL},
    {"is_decoder", HF_IGNORED, NULL, NULL},
    {"initializer_range", HF_IGNORED, NULL, NULL},
    {"bos_token_id", HF_IGNORED, NULL, NULL},
    {"eos_token_id", HF_IGNORED, NULL, NULL},
    {"eos_token_id.", HF_IGNORED, NULL, NULL},
    {"pad_token_id", HF_IGNORED, NULL, NULL},
    {"cls_token_id", HF_IGNORED, NULL, NULL},
    {"sep_token_id", HF_IGNORED, NULL, NULL},
    {"decoder_start_token_id", HF_IGNORED, NULL, NULL},
    {"tokenizer_class", HF_IGNORED, NULL, NULL},
    {"task_specific_params.", HF_IGNORED, NULL, NULL},
    {"id2label.", HF_IGNORED, NULL, NULL},
    {"label2id.", HF_IGNORED, NULL, NULL},
    {"problem_type", HF_SPECIAL, NULL, NULL},
    {"num_labels", HF_SPECIAL, NULL, NULL},
    {"finetuning_task", HF_IGNORED, NULL, NULL},
    {"prefix", HF_IGNORED, NULL, NULL},
    {"return_dict", HF_IGNORED, NULL, NULL},
    {"return_dict_in_generate", HF_IGNORED, NULL, NULL},
    {"output_attentions", HF_IGNORED, NULL, NULL},
    {"output_hidden_states", HF_IGNORED, NULL, NULL},
    {"output_scores", HF_IGNORED, NULL, NULL},
    {"torchscript", HF_IGNORED, NULL, NULL},
    {"chunk_size_feed_forward", HF_IGNORED, NULL, NULL},
    {"max_length", HF_IGNORED, NULL, NULL},
    {"min_length", HF_IGNORED, NULL, NULL},
    {"do_sample", HF_IGNORED, NULL, NULL},
    {"early_stopping", HF_IGNORED, NULL, NULL},
    {"num_beams", HF_IGNORED, NULL, NULL},
    {"num_beam_groups", HF_IGNORED, NULL, NULL},
    {"num_return_sequences", HF_IGNORED, NULL, NULL},
    {"diversity_penalty", HF_IGNORED, NULL, NULL},
    {"temperature", HF_IGNORED, NULL, NULL},
    {"top_k", HF_IGNORED, NULL, NULL},
    {"top_p", HF_IGNORED, NULL, NULL},
    {"typical_p", HF_IGNORED, NULL, NULL},
    {"repetition_penalty", HF_IGNORED, NULL, NULL},
    {"length_penalty", HF_IGNORED, NULL, NULL},
    {"no_repeat_ngram_size", HF_IGNORED, NULL, NULL},
    {"encoder_no_repeat_ngram_size", HF_IGNORED, NULL, NULL},
    {"remove_invalid_values", HF_IGNORED, NULL, NULL},
    {"attn_implementation", HF_IGNORED, NULL, NULL},
    {"_attn_implementation_autoset", HF_IGNORED, NULL, NULL},
    {"_attn_implementation", HF_IGNORED, NULL, NULL},
    {"unk_token_id", HF_IGNORED, NULL, NULL},
    {"mask_token_id", HF_IGNORED, NULL, NULL},
    {"suppress_tokens.", HF_IGNORED, NULL, NULL},
    {"begin_suppress_tokens.", HF_IGNORED, NULL, NULL},
    {"forced_bos_token_id", HF_IGNORED, NULL, NULL},
    {"forced_eos_token_id", HF_IGNORED, NULL, NULL},
    {"gradient_checkpointing", HF_IGNORED, NULL, NULL},
    {"_gradient_checkpointing", HF_IGNORED, NULL, NULL},
    /* Recorded by a program that wrote or tuned the model; nothing reads them. */
    {"_num_labels", HF_IGNORED, NULL, NULL},
    {"_commit_hash", HF_IGNORED, NULL, NULL},
    {"output_past", HF_IGNORED, NULL, NULL},
    {"model_max_length", HF_IGNORED, NULL, NULL},
    {"is_llama_config", HF_IGNORED, NULL, NULL},
    {"rope_interleaved", HF_FIXED, "false", NULL},
    {"unsloth_version", HF_IGNORED, NULL, NULL},
    {"unsloth_fixed", HF_IGNORED, NULL, NULL},
    {"max_sequence_length", HF_IGNORED, NULL, NULL},
    {"use_bfloat16", HF_IGNORED, NULL, NULL},
    {"transformers.js_config.", HF_IGNORED, NULL, NULL},
    {"language", HF_IGNORED, NULL, NULL},
    {"license", HF_IGNORED, NULL, NULL},
    {"model_name", HF_IGNORED, NULL, NULL},
    {"_flash_attn_2_enabled", HF_IGNORED, NULL, NULL},
    {"directionality", HF_IGNORED, NULL, NULL},
    {"pooler_fc_size", HF_IGNORED, NULL, NULL},
    {"pooler_num_attention_heads", HF_IGNORED, NULL, NULL},
    {"pooler_num_fc_layers", HF_IGNORED, NULL, NULL},
    {"pooler_size_per_head", HF_IGNORED, NULL, NULL},
    {"pooler_type", HF_IGNORED, NULL, NULL},
};
const size_t hf_common_count = FAMILY_COUNT(hf_common);

static bool rule_covers(const struct hf_rule *rule, const char *field)
{
    size_t n = strlen(rule->field);
    return rule->field[n - 1] == '.' ? !strncmp(rule->field, field, n)
                                     : !strcmp(rule->field, field);
}

static const struct hf_rule *rule_find(const struct family *family, const char *field)
{
    for (size_t i = 0; i < family->rule_count; i++)
        if (rule_covers(&family->rules[i], field))
            return &family->rules[i];
    for (size_t i = 0; i < hf_common_count; i++)
        if (rule_covers(&hf_common[i], field))
            return &hf_common[i];
    return NULL;
}

static bool field_is_empty(const struct hf_field *f)
{
    const struct json *v = f->value;
    return v->kind == JSON_WORDS ? !*v->text
                                 : v->kind == JSON_LIST || v->kind == JSON_MAP || v->number == 0;
}

/* Is it the name of the field, or of a map or list around it? */
static bool names_field(const char *name, const char *field)
{
    size_t n = strlen(name);
    return !strncmp(name, field, n) && (!field[n] || field[n] == '.');
}

static bool field_ignored(const struct hf_reading *r, const struct hf_field *f)
{
    for (size_t i = 0; r->ignored && i < r->ignored->count; i++)
        if (names_field(r->ignored->items[i], f->name)) {
            log_event(LOG_WARN, "import", "file=%s field=%.80s why=\"--ignore-field\"", r->c->path,
                      f->name);
            return true;
        }
    return false;
}

/* Each name must be of a field, and of none that this program knows. */
static enum err ignored_check(const struct hf_reading *r, const struct family *family)
{
    for (size_t i = 0; r->ignored && i < r->ignored->count; i++) {
        const char *name = r->ignored->items[i];
        bool found = false;
        for (size_t k = 0; k < r->count; k++) {
            const char *field = r->fields[k].name;
            if (!names_field(name, field))
                continue;
            const struct hf_rule *rule = rule_find(family, field);
            if (rule && rule->use != HF_IGNORED)
                return err_set(ERR_CONFIG,
                               "--ignore-field %.80s: %.80s of %s says what the model computes; "
                               "only fields that this program does not know can be ignored",
                               name, field, r->c->path);
            found = true;
        }
        if (!found)
            return err_set(ERR_CONFIG, "--ignore-field %.80s: %s has no such field", name,
                           r->c->path);
    }
    return ERR_OK;
}

static enum err unknown_refuse(const struct hf_reading *r, const struct hf_field *f)
{
    const char *text = hf_field_text(f, r->a);
    size_t first = strcspn(f->name, ".");
    return err_set(ERR_UNSUPPORTED,
                   "%s: %.80s = %.80s: this program does not know the field, so it may change what "
                   "the model computes; if it does not, give --ignore-field %.*s",
                   r->c->path, f->name, text ? text : "?", (int)first, f->name);
}

static enum err field_check(const struct hf_reading *r, const struct family *family,
                            const struct hf_field *f)
{
    const struct hf_rule *rule = rule_find(family, f->name);
    if (!rule && !field_is_empty(f) && !field_ignored(r, f))
        return unknown_refuse(r, f);
    if (!rule || rule->use != HF_FIXED || f->value->kind == JSON_NOTHING)
        return ERR_OK;
    const char *text = hf_field_text(f, r->a);
    TRY_ALLOC(text);
    return strcmp(text, rule->value) ? hf_refuse(r, f, rule->value) : ERR_OK;
}

static enum err rule_apply(const struct hf_reading *r, const struct hf_rule *rule)
{
    if (rule->use != HF_SETTING)
        return ERR_OK;
    const struct hf_field *f = hf_field_find(r, rule->field);
    if (!f && !rule->json)
        return err_set(ERR_INPUT, "%s: no %s, which says %s", r->c->path, rule->field, rule->value);
    if (f && !hf_field_is_number(f))
        return err_set(ERR_INPUT, "%s: %s is not a number", r->c->path, rule->field);
    return hf_add(r, rule->value, f ? hf_field_text(f, r->a) : rule->json);
}

/* The known types, or a family's architectures, in a sentence. */
static const char *known_types(struct arena *a)
{
    const char *text = families[0]->type;
    for (size_t i = 1; families[i] && text; i++)
        text = arena_printf(a, "%s%s%s", text, families[i + 1] ? ", " : " and ", families[i]->type);
    return text ? text : "a few";
}

static const char *known_architectures(const struct family *f, struct arena *a)
{
    const char *text = f->architectures[0].name;
    for (size_t i = 1; f->architectures[i].name && text; i++)
        text = arena_printf(a, "%s, %s", text, f->architectures[i].name);
    return text ? text : "a few";
}

static enum err family_find(const struct hf_reading *r, const struct family **family)
{
    const char *type = hf_word(r, "model_type", "(none)");
    *family = family_by_type(type);
    if (*family)
        return ERR_OK;
    return err_set(
        ERR_UNSUPPORTED,
        "%s: model_type = %.60s: there is no such model here; weights of %s are read. The "
        "tokenizer of this folder is another matter: atoll data --tokenizer",
        r->c->path, type, known_types(r->a));
}

/* A file without `architectures` is taken for the family's first. */
static enum err architecture_find(const struct hf_reading *r, const struct family *family,
                                  unsigned *heads)
{
    const struct hf_field *first = hf_field_find(r, "architectures.0");
    *heads = family->architectures[0].heads;
    for (size_t i = 0; first && family->architectures[i].name; i++)
        if (hf_field_is(first, family->architectures[i].name)) {
            *heads = family->architectures[i].heads;
            return ERR_OK;
        }
    return first ? hf_refuse(r, first, known_architectures(family, r->a)) : ERR_OK;
}

static enum err reading_run(struct hf_reading *r)
{
    const struct family *family;
    unsigned heads;
    TRY(family_find(r, &family));
    TRY(architecture_find(r, family, &heads));
    TRY(ignored_check(r, family));
    r->c->type = family->type;
    r->c->objective = !family->encoder ? NULL : heads & FAMILY_CLASSES ? "labels" : "mlm";
    r->c->pairs = heads & FAMILY_PAIR ? family->pairs : NULL;
    r->c->mlm_probability = heads & FAMILY_TOKENS ? family->mlm_probability : NULL;
    for (size_t i = 0; i < r->count; i++)
        TRY(field_check(r, family, &r->fields[i]));
    TRY_ALLOC(r->c->settings = arena_array(r->a, HF_SETTINGS_MAX, sizeof *r->c->settings));
    for (size_t i = 0; i < hf_common_count; i++)
        TRY(rule_apply(r, &hf_common[i]));
    for (size_t i = 0; i < family->rule_count; i++)
        TRY(rule_apply(r, &family->rules[i]));
    TRY(family->read(r, heads));
    return hf_add(r, "model.tie_embeddings",
                  hf_flag(r, "tie_word_embeddings", family->tied) ? "true" : "false");
}

static enum err flatten(struct hf_reading *r, const char *name, const struct json *j)
{
    if (!j->count && *name) {
        r->fields[r->count++] = (struct hf_field){name, j};
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
    return hf_read_ignoring(c, path, NULL, a);
}

enum err hf_read_ignoring(struct hf_config *c, const char *path, const struct args_texts *ignored,
                          struct arena *a)
{
    enum { CONFIG_BYTES_MAX = 1 << 20 };
    struct json root;
    struct hf_reading r = {.c = c, .ignored = ignored, .a = a};
    *c = (struct hf_config){.path = path};
    TRY(json_read_file(&root, path, CONFIG_BYTES_MAX, a));
    TRY_ALLOC(r.fields = arena_array(a, leaves(&root), sizeof *r.fields));
    TRY(flatten(&r, "", &root));
    return reading_run(&r);
}

/* ---- files next to a configuration ---- */

static bool line_is_checked(const struct hf_config *c, const char *line)
{
    for (size_t i = 0; i < c->count; i++) {
        size_t n = strlen(c->settings[i].key);
        if (c->settings[i].checked && !strncmp(line, c->settings[i].key, n) && line[n] == '=')
            return true;
    }
    return false;
}

/* The lines "model.heads=4" of the checked keys among the lines of all keys. */
static enum err checked_lines(const struct hf_config *c, const struct config_table *t,
                              struct arena *a, char **out)
{
    char *text;
    size_t at = 0;
    TRY(config_lines(t, 1, a, &text));
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

/* What no field of the family's says: a layer that all share, a window, .. */
static enum err check_family(const struct hf_config *c, const struct settings *s)
{
    const struct family *f = family_by_type(c->type);
    const char *other = f->title ? f->lacks(s) : NULL; /* Mistral: a Llama by another name */
    return other ? err_set(ERR_MISMATCH, "%s describes a %s, and this configuration does not: %s",
                           c->path, f->title, other)
                 : ERR_OK;
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
    here.model_d_ff = (int64_t)table_mlp(s);
    here.model_kv_heads = (int64_t)table_kv_heads(s);
    if (there.model_kv_heads == 0)
        there.model_kv_heads = there.model_heads;
    TRY(checked_lines(c, &ours, a, &our_lines));
    TRY(checked_lines(c, &theirs, a, &their_lines));
    if (!strcmp(our_lines, their_lines))
        return check_family(c, s);
    TRY(config_difference(&ours, 1, our_lines, their_lines, a, &difference));
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
    const char *const data[][2] = {
        {"objective", c->objective}, {"pairs", c->pairs}, {"mlm_probability", c->mlm_probability}};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        if (data[i][1])
            TRY_ALLOC(*text = arena_printf(a, "%s  %s: %s\n", *text, data[i][0], data[i][1]));
    return ERR_OK;
}
