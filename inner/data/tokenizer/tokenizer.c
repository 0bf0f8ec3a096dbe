/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include "inner/data/tokenizer/tokenizer_own.h"
#include "kernels/base/file.h"

/* ---- open and close ---- */

static const char *const file_names[] = {"tokenizer.json", "vocab.txt", "vocab.json"};

/* The first of the files that the directory has; NULL: none, or no memory. */
static char *file_in(const char *directory, struct arena *a)
{
    for (size_t i = 0; i < sizeof file_names / sizeof *file_names; i++) {
        char *path = arena_printf(a, "%s/%s", directory, file_names[i]);
        if (path && file_exists(path))
            return path;
    }
    return NULL;
}

bool tokenizer_is_in(const char *directory)
{
    struct arena a = arena_make(0);
    bool found = file_in(directory, &a);
    arena_free(&a);
    return found;
}

static enum err no_file(const char *path, struct arena *a)
{
    static const char *const models[] = {"tokenizer.model", "spiece.model",
                                         "sentencepiece.bpe.model"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const char *model = arena_printf(a, "%s/%s", path, models[i]);
        if (model && file_exists(model))
            return err_set(
                ERR_UNSUPPORTED,
                "%s: a model of SentencePiece alone is not supported; transformers makes "
                "a tokenizer.json of it: "
                "AutoTokenizer.from_pretrained(\"%s\").save_pretrained(\"%s\")",
                model, path, path);
    }
    return err_set(ERR_INPUT, "%s: no tokenizer.json, vocab.txt or vocab.json is there", path);
}

static enum err path_of(struct tokenizer *t, const char *path)
{
    struct stat s;
    if (stat(path, &s) || !S_ISDIR(s.st_mode)) {
        TRY_ALLOC(t->file = arena_string(&t->arena, path, strlen(path)));
        return ERR_OK;
    }
    t->file = file_in(path, &t->arena);
    return t->file ? ERR_OK : no_file(path, &t->arena);
}

static bool ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

static enum err file_take(struct tokenizer *t)
{
    struct arena scratch = arena_make(0);
    uint8_t *text;
    size_t bytes;
    if (ends(t->file, ".model"))
        return err_set(
            ERR_UNSUPPORTED,
            "%s: a model of SentencePiece is not supported; name the tokenizer.json that "
            "transformers saves of it",
            t->file);
    enum err e = file_read(t->file, TOKENIZER_FILE_BYTES_MAX, &scratch, &text, &bytes);
    if (!e) {
        t->digest = digest_of(text, bytes);
        e = ends(t->file, ".txt") ? tokenizer_vocab_read(t, (const char *)text, bytes)
            : ends(t->file, "vocab.json")
                ? tokenizer_merges_read(t, (const char *)text, bytes)
                : tokenizer_json_read(t, t->file, (const char *)text, bytes);
    }
    arena_free(&scratch);
    return e;
}

static enum err made(struct tokenizer **t)
{
    *t = calloc(1, sizeof **t);
    if (!*t)
        return err_set(ERR_MEMORY, "no memory for a tokenizer");
    static atomic_uint_fast64_t serial;
    (*t)->serial = atomic_fetch_add(&serial, 1) + 1;
    (*t)->arena = arena_make(0);
    for (int i = 0; i < TOKENIZER_ROLE_COUNT; i++)
        (*t)->roles[i] = -1;
    TRY(trie_open(&(*t)->names));
    return subword_open(&(*t)->model);
}

static enum err opened(struct tokenizer **t, enum err e)
{
    if (!e)
        e = tokenizer_added_open(*t);
    if (e) {
        tokenizer_close(*t);
        *t = NULL;
    }
    return e;
}

enum err tokenizer_open(struct tokenizer **t, const char *path)
{
    enum err e = made(t);
    if (!e)
        e = path_of(*t, path);
    if (!e)
        e = file_take(*t);
    return opened(t, e);
}

enum err tokenizer_parse(struct tokenizer **t, const char *what, const char *text, size_t bytes)
{
    enum err e = made(t);
    if (!e) {
        (*t)->digest = digest_of(text, bytes);
        (*t)->file = arena_string(&(*t)->arena, what, strlen(what));
        e = (*t)->file ? tokenizer_json_read(*t, what, text, bytes) : ERR_MEMORY;
    }
    return opened(t, e);
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    normal_close(&t->normal);
    split_close(&t->split);
    subword_close(&t->model);
    trie_close(&t->names);
    arena_free(&t->arena);
    free(t);
}

/* ---- text to ids ---- */

struct encoding { /* what one call of tokenizer_encode works on */
    const struct tokenizer *t;
    struct tokenizer_scratch *x;
    struct buffer_ids *out; /* NULL: only words are wanted */
    struct split_sink sink;
    bool first; /* the next piece begins where the text begins */
};

static enum err word_encode(void *self, const uint8_t *word, size_t bytes)
{
    struct encoding *c = self;
    return subword_encode(&c->t->model, &c->x->model, word, bytes, c->out);
}

static enum err added_take(struct encoding *c, const struct tokenizer_added *a)
{
    c->first = false;
    return c->out ? buffer_ids_add(c->out, a->id) : ERR_OK;
}

static enum err words_take(struct encoding *c, const uint8_t *s, size_t n)
{
    bool first = c->first;
    c->first = false;
    return split_apply(&c->t->split, &c->x->split, s, n, first, &c->sink);
}

/* Between two added tokens: normalise, find the added tokens that are looked for in normalised
 * text, split the rest. */
static enum err piece_encode(struct encoding *c, const uint8_t *s, size_t n)
{
    const struct tokenizer_added *a;
    struct tokenizer_place p = {0};
    const uint8_t *text;
    size_t bytes;
    TRY(normal_apply(&c->t->normal, &c->x->normal, s, n, &text, &bytes));
    while ((a = tokenizer_added_next(c->t, true, text, bytes, &p))) {
        if (p.start > p.at)
            TRY(words_take(c, text + p.at, p.start - p.at));
        TRY(added_take(c, a));
    }
    return p.at < bytes ? words_take(c, text + p.at, bytes - p.at) : ERR_OK;
}

static enum err text_encode(struct encoding *c, const uint8_t *s, size_t n)
{
    const struct tokenizer_added *a;
    struct tokenizer_place p = {0};
    size_t bad;
    if (!unicode_check(s, n, &bad))
        return err_set(ERR_INPUT, "byte %zu of the text is not UTF-8", bad + 1);
    while ((a = tokenizer_added_next(c->t, false, s, n, &p))) {
        if (p.start > p.at)
            TRY(piece_encode(c, s + p.at, p.start - p.at));
        TRY(added_take(c, a));
    }
    return p.at < n ? piece_encode(c, s + p.at, n - p.at) : ERR_OK;
}

enum err tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *x, const void *text,
                          size_t bytes, struct buffer_ids *out)
{
    struct encoding c = {.t = t, .x = x, .out = out, .first = true};
    c.sink = (struct split_sink){word_encode, &c};
    if (x->serial != t->serial)
        cache_clear(&x->model.cache);
    x->serial = t->serial;
    return text_encode(&c, text, bytes);
}

enum err tokenizer_words(const struct tokenizer *t, struct tokenizer_scratch *x, const void *text,
                         size_t bytes, const struct split_sink *sink)
{
    struct encoding c = {.t = t, .x = x, .sink = *sink, .first = true};
    return text_encode(&c, text, bytes);
}

/* ---- what it is ---- */

enum tokenizer_kind tokenizer_kind(const struct tokenizer *t)
{
    return t->kind;
}

int32_t tokenizer_size(const struct tokenizer *t)
{
    return t->size;
}

int32_t tokenizer_special(const struct tokenizer *t, enum tokenizer_role role)
{
    return t->roles[role];
}

enum err tokenizer_need(const struct tokenizer *t, enum tokenizer_role role, int32_t *id)
{
    static const char *const names[] = {
#define X(role_name, key, a, b, c) [TOKENIZER_##role_name] = a,
        TOKENIZER_ROLES(X)
#undef X
    };
    *id = t->roles[role];
    return *id >= 0
               ? ERR_OK
               : err_set(ERR_INPUT, "%s: the vocabulary has no %s token", t->file, names[role]);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->size && t->special[id];
}

bool tokenizer_continues(const struct tokenizer *t, int32_t id)
{
    const char *token = tokenizer_token(t, id);
    if (!token || t->special[id])
        return false;
    if (t->kind == TOKENIZER_WORDPIECE)
        return !strncmp(token, t->prefix, strlen(t->prefix)) && token[strlen(t->prefix)];
    const char *start = tokenizer_word_start(t);
    return strncmp(token, start, strlen(start)) != 0;
}

const char *tokenizer_word_start(const struct tokenizer *t)
{
    return t->kind == TOKENIZER_WORDPIECE ? t->prefix
           : t->byte_level                ? "\xc4\xa0" /* U+0120: a blank */
                                          : (const char *)t->mark;
}

struct digest tokenizer_digest(const struct tokenizer *t)
{
    return t->digest;
}

const char *tokenizer_text(const struct tokenizer *t)
{
    return t->text;
}

const char *tokenizer_file(const struct tokenizer *t)
{
    return t->file;
}
