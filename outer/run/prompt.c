/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/run/prompt.h"
#include <stdlib.h>
#include <string.h>

static enum err encode_prompt(const struct prompt *w, struct arena *a, int32_t **ids, size_t *count)
{
    struct tokenizer_scratch *x;
    struct buffer_ids made = {0};
    TRY(tokenizer_scratch_open(&x));
    enum err e = tokenizer_encode(w->t, x, w->text, strlen(w->text), &made);
    tokenizer_scratch_close(x);
    if (!e && !(*ids = arena_array(a, made.count + (size_t)w->room, sizeof **ids)))
        e = ERR_MEMORY;
    if (!e && made.count)
        memcpy(*ids, made.ids, made.count * sizeof **ids);
    *count = made.count;
    buffer_ids_free(&made);
    return e || *count ? e : err_set(ERR_CONFIG, "the prompt is empty");
}

/* "1, 2, 3" or the bytes of a text, one after the other in ids. */
enum err prompt_read(const struct prompt *w, const struct settings *s, struct arena *a,
                     int32_t **ids, size_t *count)
{
    const char *text = w->ids ? w->ids : w->text;
    bool bytes = s->data_tokenizer == DATA_TOKENIZER_BYTES && !w->ids;
    size_t most = strlen(text) + 1;
    if (w->t)
        return encode_prompt(w, a, ids, count);
    TRY_ALLOC(*ids = arena_array(a, most + (size_t)w->room, sizeof **ids));
    *count = 0;
    if (!bytes && !w->ids)
        return err_set(
            ERR_CONFIG,
            "data.tokenizer = %s, and neither the run's directory nor that of its shards "
            "has a tokenizer.json: name one with --tokenizer, or give the prompt as --ids "
            "1,2,3",
            config_choice_name(data_tokenizer_choices, s->data_tokenizer));
    while (*text) {
        char *end = (char *)(uintptr_t)text + 1;
        long id = bytes ? (long)(unsigned char)*text : strtol(text, &end, 10);
        if (id < 0 || id >= s->model_vocab_size || end == text)
            return err_set(ERR_CONFIG, "prompt: \"%.20s\" is no id below model.vocab_size = %lld",
                           text, (long long)s->model_vocab_size);
        (*ids)[(*count)++] = (int32_t)id;
        text = bytes ? end : end + strspn(end, ", ");
    }
    return *count ? ERR_OK : err_set(ERR_CONFIG, "the prompt is empty");
}

enum err prompt_enclose(const struct tokenizer *t, const int32_t *ids, size_t *count,
                        struct arena *a, int32_t **enclosed)
{
    int32_t cls, sep;
    TRY(tokenizer_need(t, TOKENIZER_CLS, &cls));
    TRY(tokenizer_need(t, TOKENIZER_SEP, &sep));
    TRY_ALLOC(*enclosed = arena_array(a, *count + 2, sizeof **enclosed));
    (*enclosed)[0] = cls;
    memcpy(*enclosed + 1, ids, *count * sizeof *ids);
    (*enclosed)[++*count] = sep;
    ++*count;
    return ERR_OK;
}

enum err prompt_types(const char *text, const struct settings *s, size_t count, struct arena *a,
                      int32_t **types)
{
    *types = NULL;
    if (!text)
        return ERR_OK;
    TRY_ALLOC(*types = arena_array(a, count, sizeof **types));
    for (size_t i = 0; i < count; i++) {
        char *end;
        long type = strtol(text, &end, 10);
        if (end == text || type < 0 || type >= s->model_token_types)
            return err_set(ERR_CONFIG,
                           "--types: \"%.20s\" is no type below model.token_types = %lld", text,
                           (long long)s->model_token_types);
        (*types)[i] = (int32_t)type;
        text = end + strspn(end, ", ");
    }
    return *text ? err_set(ERR_CONFIG, "--types has more entries than the %zu ids", count) : ERR_OK;
}
