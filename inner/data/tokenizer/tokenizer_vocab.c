/* vocab.txt of BERT, and the files beside a vocabulary that name its special tokens. */
#include <stdio.h>
#include "inner/data/tokenizer/tokenizer_read.h"
#include "kernels/base/file.h"

enum { POINTS_MAX = 100, SIDE_FILE_BYTES_MAX = 16 << 20 };

static const char *const role_keys[] = {
#define X(role, key, a, b, c) [TOKENIZER_##role] = key,
    TOKENIZER_ROLES(X)
#undef X
};
static const char *const role_texts[][3] = {
#define X(role, key, a, b, c) [TOKENIZER_##role] = {a, b, c},
    TOKENIZER_ROLES(X)
#undef X
};

enum err tokenizer_side_read(const struct tokenizer *t, const char *name, struct arena *a,
                             struct json *j)
{
    const char *slash = strrchr(t->file, '/');
    int folder = slash ? (int)(slash - t->file) : 1;
    char *path;
    *j = (struct json){0};
    TRY_ALLOC(path = arena_printf(a, "%.*s/%s", folder, slash ? t->file : ".", name));
    return file_exists(path) ? json_read_file(j, path, SIDE_FILE_BYTES_MAX, a) : ERR_OK;
}

/* "[CLS]", or {"content": "[CLS]", ..}. */
static void roles_take(struct tokenizer *t, const struct json *j)
{
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++) {
        const struct json *item = json_find(j, role_keys[role]);
        const char *text = item && item->kind == JSON_WORDS ? item->text
                           : item                           ? tokenizer_json_text(item, "content")
                                                            : NULL;
        if (text && t->roles[role] < 0)
            t->roles[role] = tokenizer_id(t, text);
    }
}

enum err tokenizer_roles_read(struct tokenizer *t, struct arena *scratch)
{
    static const char *const names[] = {"special_tokens_map.json", "tokenizer_config.json"};
    struct json j;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        TRY(tokenizer_side_read(t, names[i], scratch, &j));
        roles_take(t, &j);
    }
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++)
        for (int i = 0; i < 3 && t->roles[role] < 0; i++)
            t->roles[role] = tokenizer_id(t, role_texts[role][i]);
    if (t->roles[TOKENIZER_UNK] < 0)
        t->roles[TOKENIZER_UNK] = t->model.unknown;
    return ERR_OK;
}

/* ---- vocab.txt ---- */

static size_t line_length(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) : bytes;
}

static size_t trimmed(const char *line, size_t bytes)
{
    while (bytes && strchr(" \t\r\n", line[bytes - 1]) && line[bytes - 1])
        bytes--;
    return bytes;
}

static bool has_capital(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes && *line != '['; i++)
        if (line[i] >= 'A' && line[i] <= 'Z')
            return true;
    return false;
}

static enum err lines_take(struct tokenizer *t, const char *text, size_t bytes, bool *capitals)
{
    size_t bad, count = 0;
    if (!unicode_check((const uint8_t *)text, bytes, &bad))
        return err_set(ERR_INPUT, "%s: byte %zu is not UTF-8", t->file, bad + 1);
    for (size_t at = 0; at < bytes; at += line_length(text + at, bytes - at) + 1)
        count++;
    if (!count || count > TOKENIZER_IDS_MAX)
        return err_set(ERR_INPUT, "%s: %zu lines are no vocabulary", t->file, count);
    t->kind = TOKENIZER_WORDPIECE;
    t->size = (int32_t)count;
    TRY_ALLOC(t->tokens = arena_array(&t->arena, count, sizeof *t->tokens));
    TRY_ALLOC(t->special = arena_array(&t->arena, count, sizeof *t->special));
    int32_t id = 0;
    for (size_t at = 0, length; at < bytes; at += length + 1, id++) {
        length = line_length(text + at, bytes - at);
        size_t kept = trimmed(text + at, length);
        *capitals = *capitals || has_capital(text + at, kept);
        TRY(tokenizer_token_add(t, id, text + at, kept));
    }
    return ERR_OK;
}

static enum err bert_open(struct tokenizer *t, const struct json *config, bool capitals)
{
    const struct json *strip = json_find(config, "strip_accents");
    struct normal_op *op = &t->normal.ops[t->normal.count++];
    op->kind = NORMAL_BERT;
    op->clean = true;
    op->lower = tokenizer_json_flag(config, "do_lower_case", !capitals);
    op->strip = strip && strip->kind == JSON_FLAG ? strip->number > 0 : op->lower;
    op->chinese = tokenizer_json_flag(config, "tokenize_chinese_chars", true);
    t->split.ops[t->split.count++].kind = SPLIT_BERT;
    return ERR_OK;
}

enum err tokenizer_specials_add(struct tokenizer *t)
{
    TRY_ALLOC(t->added = arena_array(&t->arena, TOKENIZER_ROLE_COUNT, sizeof *t->added));
    for (int role = 0; role < TOKENIZER_ROLE_COUNT; role++)
        if (t->roles[role] >= 0 && !t->special[t->roles[role]])
            TRY(tokenizer_added_add(t, t->tokens[t->roles[role]], t->roles[role],
                                    (struct tokenizer_added){.special = true}));
    return ERR_OK;
}

static enum err vocab_take(struct tokenizer *t, const char *text, size_t bytes,
                           struct arena *scratch)
{
    struct json config;
    bool capitals = false;
    TRY(tokenizer_side_read(t, "tokenizer_config.json", scratch, &config));
    TRY(lines_take(t, text, bytes, &capitals));
    const char *unknown = tokenizer_json_text(&config, "unk_token");
    TRY(tokenizer_wordpiece_open(t, t->file, unknown ? unknown : "[UNK]", "##", POINTS_MAX));
    TRY(bert_open(t, &config, capitals));
    TRY(tokenizer_roles_read(t, scratch));
    t->decoder.kind = DECODE_PIECES;
    return tokenizer_specials_add(t);
}

enum err tokenizer_vocab_read(struct tokenizer *t, const char *text, size_t bytes)
{
    struct arena scratch = arena_make(0);
    enum err e = vocab_take(t, text, bytes, &scratch);
    arena_free(&scratch);
    return e;
}
