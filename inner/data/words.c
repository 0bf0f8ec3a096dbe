/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/words.h"
#include <string.h>
#include "inner/config/json.h"
#include "kernels/base/file.h"

enum { TOKENIZER_BYTES_MAX = 256 << 20 };
static const char CONTINUES[] = "##"; /* of WordPiece */

struct words {
    const struct sidecar *s;
    const char *path;
    uint8_t *continues;
};

static void set_piece(const struct words *w, int64_t id, const char *piece, size_t bytes)
{
    const char *rule = w->s->word_start;
    size_t n = strlen(rule);
    bool begins = bytes >= n && !memcmp(piece, rule, n);
    if (id >= 0 && id < w->s->vocab)
        w->continues[id] = strcmp(rule, CONTINUES) ? !begins : begins;
}

/* model.vocab: a map from piece to id, or (Unigram) a list of [piece, score] in the order of ids.
 */
static enum err set_vocabulary(const struct words *w, const struct json *j)
{
    const struct json *model = json_find(j, "model"),
                      *vocab = model ? json_find(model, "vocab") : NULL;
    if (!vocab || (vocab->kind != JSON_MAP && vocab->kind != JSON_LIST))
        return err_set(ERR_INPUT, "%s: there is no model.vocab", w->path);
    for (size_t i = 0; i < vocab->count; i++) {
        const struct json *x = &vocab->items[i];
        bool pair = x->kind == JSON_LIST && x->count && x->items[0].kind == JSON_WORDS;
        if (vocab->kind == JSON_MAP && x->kind == JSON_WHOLE)
            set_piece(w, x->whole, x->key, strlen(x->key));
        else if (vocab->kind == JSON_LIST && pair)
            set_piece(w, (int64_t)i, x->items[0].text, x->items[0].text_bytes);
        else
            return err_set(ERR_INPUT, "%s: entry %zu of model.vocab is no piece", w->path, i);
    }
    return ERR_OK;
}

static void set_lines(const struct words *w, const char *text, size_t size)
{
    int64_t id = 0;
    for (size_t at = 0, end; at < size; at = end + 1, id++) {
        const char *newline = memchr(text + at, '\n', size - at);
        end = newline ? (size_t)(newline - text) : size;
        set_piece(w, id, text + at, end - at);
    }
}

static enum err read_words(struct words *w, struct arena *scratch)
{
    struct json j;
    uint8_t *text;
    size_t size, n = strlen(w->path);
    if (n > 5 && !strcmp(w->path + n - 5, ".json")) {
        TRY(json_read_file(&j, w->path, TOKENIZER_BYTES_MAX, scratch));
        return set_vocabulary(w, &j);
    }
    TRY(file_read(w->path, TOKENIZER_BYTES_MAX, scratch, &text, &size));
    set_lines(w, (const char *)text, size);
    return ERR_OK;
}

enum err words_read(const struct sidecar *s, const char *directory, struct arena *perm,
                    uint8_t **continues)
{
    struct words w = {.s = s};
    *continues = NULL;
    if (!*s->word_start || !*s->tokenizer)
        return ERR_OK;
    TRY_ALLOC(w.path = arena_printf(perm, "%s/%s", directory, s->tokenizer));
    TRY_ALLOC(w.continues = arena_alloc(perm, (size_t)s->vocab));
    struct arena scratch = arena_make(0);
    enum err e = read_words(&w, &scratch);
    arena_free(&scratch);
    *continues = w.continues;
    return e;
}
