/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: the model, its tokens, and the added tokens. */
#include <stdio.h>
#include "inner/config/json.h"
#include "inner/data/tokenizer/tokenizer_read.h"
#include "kernels/base/log.h"

/* Into the names, and into the trie of the model as the bytes that the model sees. */
enum err tokenizer_token_add(struct tokenizer *t, int32_t id, const char *text, size_t bytes)
{
    const uint8_t *seen = (const uint8_t *)text;
    size_t count = bytes;
    uint8_t *raw;
    ASSERT(id >= 0 && id < t->size);
    TRY_ALLOC(t->tokens[id] = arena_string(&t->arena, text, bytes));
    TRY(tokenizer_name_add(t, &t->names, seen, bytes, id));
    if (t->kind == TOKENIZER_BPE && t->byte_level) {
        TRY_ALLOC(raw = arena_alloc(&t->arena, bytes + 1));
        if (!tokenizer_bytes(text, bytes, raw, &count))
            return ERR_OK;
        if (count == 1)
            t->model.byte_ids[raw[0]] = id;
        seen = raw;
    }
    return count ? tokenizer_name_add(t, &t->model.trie, seen, count, id) : ERR_OK;
}

static bool has_value(const struct json *j, const char *key)
{
    const struct json *item = json_find(j, key);
    return item && item->kind != JSON_NOTHING &&
           !(item->kind == JSON_FLAG && !(item->number > 0)) &&
           !(item->kind == JSON_WORDS && !item->text_bytes) &&
           !(item->kind == JSON_DECIMAL && !(item->number > 0));
}

/* ---- bytes of a byte-level vocabulary ---- */

/* ---- tokens ---- */

static enum err check_id(const char *what, const struct json *j, const char *name)
{
    if (j && j->kind == JSON_WHOLE && j->whole >= 0 && j->whole < TOKENIZER_IDS_MAX)
        return ERR_OK;
    return err_set(ERR_INPUT, "%s: \"%.60s\": no id from 0 to %d", what, name,
                   TOKENIZER_IDS_MAX - 1);
}

/* {"token": id, ..} */
static enum err map_read(struct tokenizer *t, const char *what, const struct json *vocab)
{
    int32_t size = 0;
    if (!vocab || vocab->kind != JSON_MAP || !vocab->count)
        return err_set(ERR_INPUT, "%s: model.vocab is no map of tokens to ids", what);
    for (size_t i = 0; i < vocab->count; i++) {
        TRY(check_id(what, &vocab->items[i], vocab->items[i].key));
        size = vocab->items[i].whole >= size ? (int32_t)vocab->items[i].whole + 1 : size;
    }
    TRY(tokenizer_tokens_grow(t, size));
    for (size_t i = 0; i < vocab->count; i++) {
        const struct json *j = &vocab->items[i];
        const char *other = t->tokens[j->whole];
        if (other)
            return err_set(ERR_INPUT,
                           "%s: \"%.60s\" and \"%.60s\" both have id %lld; two tokens may not "
                           "share an id",
                           what, other, j->key, (long long)j->whole);
        TRY(tokenizer_token_add(t, (int32_t)j->whole, j->key, strlen(j->key)));
    }
    t->model_tokens = vocab->count;
    return ERR_OK;
}

static enum err unknown_read(struct tokenizer *t, const char *what, const char *token)
{
    t->model.unknown = token ? tokenizer_id(t, token) : -1;
    return t->model.unknown >= 0
               ? ERR_OK
               : err_set(ERR_INPUT, "%s: unk_token \"%.60s\" is not in the vocabulary", what,
                         token ? token : "");
}

enum err tokenizer_wordpiece_open(struct tokenizer *t, const char *what, const char *unknown,
                                  const char *prefix, size_t points_max)
{
    TRY_ALLOC(t->prefix = arena_string(&t->arena, prefix, strlen(prefix)));
    t->model.kind = SUBWORD_WORDPIECE;
    t->model.word_points_max = points_max;
    t->model.inner_node = trie_node(&t->model.trie, (const uint8_t *)prefix, strlen(prefix));
    return unknown_read(t, what, unknown);
}

/* ---- the models ---- */

static enum err wordpiece_read(struct tokenizer *t, const char *what, const struct json *model)
{
    const char *prefix = tokenizer_json_text(model, "continuing_subword_prefix");
    const struct json *most = json_find(model, "max_input_chars_per_word");
    t->kind = TOKENIZER_WORDPIECE;
    TRY(map_read(t, what, json_find(model, "vocab")));
    return tokenizer_wordpiece_open(
        t, what, tokenizer_json_text(model, "unk_token"), prefix ? prefix : "##",
        most && most->kind == JSON_WHOLE && most->whole > 0 ? (size_t)most->whole : 100);
}

/* "a b", or ["a", "b"]. */
static enum err merge_sides(const char *what, const struct json *j, size_t number,
                            const char *side[2], size_t bytes[2])
{
    const char *blank = j->kind == JSON_WORDS ? strchr(j->text, ' ') : NULL;
    if (blank) {
        side[0] = j->text;
        bytes[0] = (size_t)(blank - j->text);
        side[1] = blank + 1;
        bytes[1] = j->text_bytes - bytes[0] - 1;
        return ERR_OK;
    }
    if (j->kind != JSON_LIST || j->count != 2 || j->items[0].kind != JSON_WORDS ||
        j->items[1].kind != JSON_WORDS)
        return err_set(ERR_INPUT, "%s: merge %zu is no pair of tokens", what, number);
    for (int i = 0; i < 2; i++) {
        side[i] = j->items[i].text;
        bytes[i] = j->items[i].text_bytes;
    }
    return ERR_OK;
}

static enum err merge_read(struct tokenizer *t, const char *what, const struct json *j,
                           size_t number, struct buffer *joined)
{
    const char *side[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    int32_t ids[3];
    TRY(merge_sides(what, j, number, side, bytes));
    joined->count = 0;
    for (int i = 0; i < 2; i++) {
        ids[i] = trie_find(&t->names, (const uint8_t *)side[i], bytes[i]);
        TRY(buffer_add(joined, side[i], bytes[i]));
    }
    ids[2] = trie_find(&t->names, joined->data, joined->count);
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
        return err_set(ERR_INPUT, "%s: merge %zu (\"%.40s\"): %s not in the vocabulary", what,
                       number, side[0], ids[2] < 0 ? "its result is" : "its tokens are");
    const struct subword_merge *same = subword_merge_find(&t->model, ids[0], ids[1]);
    if (same)
        return err_set(ERR_INPUT,
                       "%s: merges %u and %zu are the same pair, \"%.40s\" and \"%.40s\"", what,
                       same->rank, number, t->tokens[ids[0]], t->tokens[ids[1]]);
    subword_merge_add(&t->model, ids[0], ids[1], (uint32_t)number, ids[2]);
    return ERR_OK;
}

/* The tokens <0x00> to <0xFF>. */
static void fallback_read(struct tokenizer *t, const struct json *model)
{
    char name[8];
    t->model.byte_fallback = tokenizer_json_flag(model, "byte_fallback", false);
    for (unsigned byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", byte);
        t->model.fallback_ids[byte] = tokenizer_id(t, name);
    }
}

/* Of the characters that stand for bytes: one that is missing would fall back to its own bytes. */
static enum err check_fallback(const struct tokenizer *t, const char *what)
{
    for (size_t i = 0; i < 256 && t->byte_level && t->model.byte_fallback; i++)
        if (t->model.byte_ids[i] < 0)
            return err_set(ERR_UNSUPPORTED,
                           "%s: BPE with ByteLevel and \"byte_fallback\" is supported only where "
                           "every byte has a token",
                           what);
    return ERR_OK;
}

static enum err bpe_read(struct tokenizer *t, const char *what, const struct json *model)
{
    static const char *const refused[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const struct json *merges = json_find(model, "merges");
    struct buffer joined = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (has_value(model, refused[i]))
            return err_set(ERR_UNSUPPORTED, "%s: BPE with \"%s\" is not supported", what,
                           refused[i]);
    t->kind = TOKENIZER_BPE;
    t->model.kind = SUBWORD_BPE;
    t->model.points = !t->byte_level;
    t->model.whole_first = tokenizer_json_flag(model, "ignore_merges", false);
    t->model.fuse_unknown = tokenizer_json_flag(model, "fuse_unk", false);
    TRY(map_read(t, what, json_find(model, "vocab")));
    fallback_read(t, model);
    TRY(check_fallback(t, what));
    if (has_value(model, "unk_token"))
        TRY(unknown_read(t, what, tokenizer_json_text(model, "unk_token")));
    if (!merges || merges->kind != JSON_LIST)
        return err_set(ERR_INPUT, "%s: model.merges is no list", what);
    TRY(subword_merges_open(&t->model, merges->count));
    enum err e = ERR_OK;
    for (size_t i = 0; !e && i < merges->count; i++)
        e = merge_read(t, what, &merges->items[i], i, &joined);
    buffer_free(&joined);
    return e;
}

static enum err scores_read(struct tokenizer *t, const char *what, const struct json *vocab)
{
    TRY(tokenizer_tokens_grow(t, (int32_t)vocab->count));
    t->model.scores = calloc(vocab->count, sizeof *t->model.scores);
    if (!t->model.scores)
        return err_set(ERR_MEMORY, "no memory for %zu scores", vocab->count);
    for (size_t i = 0; i < vocab->count; i++) {
        const struct json *j = &vocab->items[i];
        if (j->kind != JSON_LIST || j->count != 2 || j->items[0].kind != JSON_WORDS ||
            (j->items[1].kind != JSON_DECIMAL && j->items[1].kind != JSON_WHOLE))
            return err_set(ERR_INPUT, "%s: model.vocab[%zu] is no pair of a token and its score",
                           what, i);
        double score = j->items[1].number;
        t->model.scores[i] = score;
        t->model.score_least = !i || score < t->model.score_least ? score : t->model.score_least;
        TRY(tokenizer_token_add(t, (int32_t)i, j->items[0].text, j->items[0].text_bytes));
    }
    t->model_tokens = vocab->count;
    return ERR_OK;
}

static enum err unigram_read(struct tokenizer *t, const char *what, const struct json *model)
{
    const struct json *vocab = json_find(model, "vocab"), *unknown = json_find(model, "unk_id");
    if (!vocab || vocab->kind != JSON_LIST || !vocab->count || vocab->count > TOKENIZER_IDS_MAX)
        return err_set(ERR_INPUT, "%s: model.vocab is no list of tokens and scores", what);
    t->kind = TOKENIZER_UNIGRAM;
    t->model.kind = SUBWORD_UNIGRAM;
    t->model.fuse_unknown = true;
    t->mark = (const uint8_t *)"\xe2\x96\x81";
    t->mark_bytes = 3;
    TRY(check_id(what, unknown, "unk_id"));
    if (unknown->whole >= (int64_t)vocab->count)
        return err_set(ERR_INPUT, "%s: unk_id %lld is not in the vocabulary", what,
                       (long long)unknown->whole);
    t->model.unknown = (int32_t)unknown->whole;
    TRY(scores_read(t, what, vocab));
    fallback_read(t, model);
    return ERR_OK;
}

/* Files of before tokenizers 0.9.4 do not name the type. What only one model has names it. */
static const char *model_type(const struct json *model)
{
    const char *type = tokenizer_json_text(model, "type");
    const struct json *vocab = json_find(model, "vocab");
    if (type || !vocab)
        return type;
    return vocab->kind == JSON_LIST     ? "Unigram"
           : json_find(model, "merges") ? "BPE"
           : json_find(model, "max_input_chars_per_word") ||
                   json_find(model, "continuing_subword_prefix")
               ? "WordPiece"
               : NULL;
}

static enum err model_read(struct tokenizer *t, const char *what, const struct json *model)
{
    static const struct {
        const char *type;
        enum err (*read)(struct tokenizer *, const char *, const struct json *);
    } models[] = {{"WordPiece", wordpiece_read}, {"BPE", bpe_read}, {"Unigram", unigram_read}};
    const char *type = model ? model_type(model) : NULL;
    if (!type)
        return err_set(ERR_INPUT,
                       "%s: no tokenizer.json: model.type is missing, and model has neither "
                       "merges, nor max_input_chars_per_word, nor a list as vocab",
                       what);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(type, models[i].type))
            return models[i].read(t, what, model);
    return err_set(
        ERR_UNSUPPORTED,
        "%s: a model of type \"%.40s\" is not supported; supported are WordPiece, BPE and "
        "Unigram",
        what, type);
}

/* ---- added tokens ---- */

static enum err check_free(const struct tokenizer *t, const char *what, const char *content,
                           int64_t id)
{
    const char *other = id < t->size ? t->tokens[id] : NULL;
    if (!other || !strcmp(other, content))
        return ERR_OK;
    return err_set(ERR_INPUT,
                   "%s: added token \"%.60s\" has id %lld, which is that of \"%.60s\"; two tokens "
                   "may not share an id: correct the id in added_tokens",
                   what, content, (long long)id, other);
}

/* As tokenizers numbers them: a token that the model has keeps the model's id, and a new one gets
 * the number of tokens that are there; what the file says does not count. */
static enum err added_id(const struct tokenizer *t, const char *what, const char *content,
                         size_t fresh, const struct json *j, int32_t *id)
{
    const struct json *wanted = json_find(j, "id");
    TRY(check_id(what, wanted, content));
    *id = tokenizer_id(t, content);
    if (*id < 0)
        *id = (int32_t)(t->model_tokens + fresh);
    TRY(check_free(t, what, content, wanted->whole));
    TRY(check_free(t, what, content, *id));
    if (*id != wanted->whole)
        log_event(LOG_WARN, "tokenizer",
                  "file=%s token=\"%.60s\" why=\"its id is %d, as tokenizers numbers it; the file "
                  "says %lld\"",
                  what, content, *id, (long long)wanted->whole);
    return *id < TOKENIZER_IDS_MAX ? ERR_OK : check_id(what, NULL, content);
}

static enum err added_read(struct tokenizer *t, const char *what, const struct json *list)
{
    size_t fresh = 0;
    int32_t id;
    if (!list || list->kind != JSON_LIST || !list->count)
        return ERR_OK;
    TRY_ALLOC(t->added = arena_array(&t->arena, list->count, sizeof *t->added));
    for (size_t i = 0; i < list->count; i++) {
        const struct json *j = &list->items[i];
        const char *content = tokenizer_json_text(j, "content");
        bool special = tokenizer_json_flag(j, "special", false);
        if (!content || !*content)
            return err_set(ERR_INPUT, "%s: added_tokens[%zu] has no content", what, i);
        TRY(added_id(t, what, content, fresh, j, &id));
        fresh += tokenizer_id(t, content) < 0;
        TRY(tokenizer_added_add(
            t, content, id,
            (struct tokenizer_added){.single_word = tokenizer_json_flag(j, "single_word", false),
                                     .lstrip = tokenizer_json_flag(j, "lstrip", false),
                                     .rstrip = tokenizer_json_flag(j, "rstrip", false),
                                     .normalised = tokenizer_json_flag(j, "normalized", !special),
                                     .special = special}));
    }
    return ERR_OK;
}

enum err tokenizer_json_read(struct tokenizer *t, const char *what, const char *text, size_t bytes)
{
    struct arena scratch = arena_make(0);
    struct json j;
    enum err e = json_read(&j, what, text, bytes, &scratch);
    t->byte_level = !e && tokenizer_split_is_bytes(json_find(&j, "pre_tokenizer"));
    if (!e)
        e = model_read(t, what, json_find(&j, "model"));
    if (!e)
        e = added_read(t, what, json_find(&j, "added_tokens"));
    if (!e)
        e = tokenizer_normal_read(t, what, json_find(&j, "normalizer"));
    if (!e)
        e = tokenizer_split_read(t, what, json_find(&j, "pre_tokenizer"));
    if (!e)
        e = tokenizer_decoder_read(t, json_find(&j, "decoder"));
    if (!e)
        e = tokenizer_roles_read(t, &scratch);
    arena_free(&scratch);
    return e;
}
