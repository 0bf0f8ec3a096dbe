/* SPDX-License-Identifier: Apache-2.0 */
/* Settings to config.json, by the tables that read it. */
#include <string.h>
#include "inner/io/hf_config.h"

/* Of "model.heads=4" lines. */
static const char *value_of(const char *canonical, const char *key, struct arena *a)
{
    size_t n = strlen(key);
    for (const char *line = canonical; *line; line += strcspn(line, "\n") + 1)
        if (!strncmp(line, key, n) && line[n] == '=')
            return arena_string(a, line + n + 1, strcspn(line + n + 1, "\n"));
    return NULL;
}

/* With the values that a 0 stands for; theirs have one token type at least. */
static enum err canonical_of(const struct settings *s, struct arena *a, char **text)
{
    struct settings whole = *s;
    struct config_table t = keys_inner(&whole);
    whole.model_d_ff = (int64_t)table_mlp(s);
    whole.model_token_types = s->model_token_types ? s->model_token_types : 1;
    return config_lines(&t, 1, a, text);
}

static enum err rules_write(const struct hf_rule *rules, size_t count, const char *canonical,
                            struct arena *a, char **text)
{
    for (size_t i = 0; i < count; i++) {
        const struct hf_rule *r = &rules[i];
        const char *value = r->json;
        if (r->use == HF_SETTING)
            TRY_ALLOC(value = value_of(canonical, r->value, a));
        if (value && r->use != HF_SPECIAL)
            TRY_ALLOC(*text = arena_printf(a, "%s  \"%s\": %s,\n", *text, r->field, value));
    }
    return ERR_OK;
}

enum err hf_write(const struct hf_export *x, struct arena *a, char **text)
{
    const struct family *f = x->family;
    char *canonical, *specials;
    TRY(canonical_of(x->s, a, &canonical));
    TRY_ALLOC(*text =
                  arena_printf(a, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                               family_architecture(f, x->s), f->type));
    TRY(rules_write(hf_common, hf_common_count, canonical, a, text));
    TRY(rules_write(f->rules, f->rule_count, canonical, a, text));
    TRY_ALLOC(specials = f->specials(x->s, a));
    TRY_ALLOC(*text = arena_printf(
                  a, "%s%s%s  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"%s\"\n}\n", *text,
                  specials, x->labels, x->s->model_tie_embeddings ? "true" : "false", x->dtype));
    return ERR_OK;
}
