/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: normaliser, pre-tokenizer and decoder. */
#include "inner/data/tokenizer/tokenizer_read.h"

static const char *type_of(const struct json *j)
{
    const char *type = j ? tokenizer_json_text(j, "type") : NULL;
    return type ? type : "";
}

static const struct json *list_of(const struct json *j, const char *key)
{
    const struct json *list = json_find(j, key);
    return list && list->kind == JSON_LIST ? list : NULL;
}

static enum err text_copy(struct tokenizer *t, const struct json *j, const uint8_t **text,
                          size_t *bytes)
{
    *bytes = j && j->kind == JSON_WORDS ? j->text_bytes : 0;
    TRY_ALLOC(*text = (const uint8_t *)arena_string(&t->arena, *bytes ? j->text : "", *bytes));
    return ERR_OK;
}

/* ---- normalisers ---- */

static enum err bert_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    const struct json *strip = json_find(j, "strip_accents");
    (void)t;
    op->kind = NORMAL_BERT;
    op->clean = tokenizer_json_flag(j, "clean_text", true);
    op->chinese = tokenizer_json_flag(j, "handle_chinese_chars", true);
    op->lower = tokenizer_json_flag(j, "lowercase", true);
    op->strip = strip && strip->kind == JSON_FLAG ? strip->number > 0 : op->lower;
    return ERR_OK;
}

static enum err replace_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    const struct json *pattern = json_find(j, "pattern"), *from = NULL, *regex = NULL;
    if (pattern) {
        from = json_find(pattern, "String");
        regex = json_find(pattern, "Regex");
    }
    op->kind = NORMAL_REPLACE;
    TRY(text_copy(t, json_find(j, "content"), &op->to, &op->to_bytes));
    if (regex && regex->kind == JSON_WORDS)
        return pattern_open(&op->pattern, regex->text, regex->text_bytes);
    TRY(text_copy(t, from, &op->from, &op->from_bytes));
    return op->from_bytes ? ERR_OK : err_set(ERR_INPUT, "Replace without a pattern");
}

static int base64_value(char c)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(letters, c) : NULL;
    return at ? (int)(at - letters) : -1;
}

static enum err charsmap_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    const struct json *text = json_find(j, "precompiled_charsmap");
    uint8_t *table;
    size_t bytes = 0;
    uint32_t bits = 0, held = 0;
    if (!text || text->kind != JSON_WORDS)
        return err_set(ERR_INPUT, "Precompiled without a precompiled_charsmap");
    TRY_ALLOC(table = arena_alloc(&t->arena, text->text_bytes + 1));
    for (size_t i = 0; i < text->text_bytes && text->text[i] != '='; i++) {
        int value = base64_value(text->text[i]);
        if (value < 0)
            return err_set(ERR_INPUT, "precompiled_charsmap is not base64");
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held >= 8)
            table[bytes++] = (uint8_t)(bits >> (held -= 8));
    }
    return normal_charsmap_open(op, table, bytes);
}

static enum err prepend_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    op->kind = NORMAL_PREPEND;
    return text_copy(t, json_find(j, "prepend"), &op->to, &op->to_bytes);
}

static enum err strip_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    (void)t;
    op->kind = NORMAL_STRIP;
    op->left = tokenizer_json_flag(j, "strip_left", true);
    op->right = tokenizer_json_flag(j, "strip_right", true);
    return ERR_OK;
}

static enum err form_read(enum unicode_form form, struct normal_op *op)
{
    op->kind = NORMAL_FORM;
    op->form = form;
    return ERR_OK;
}

static enum err normal_op_read(struct tokenizer *t, const struct json *j, struct normal_op *op)
{
    static const char *const forms[] = {[UNICODE_NFD] = "NFD",
                                        [UNICODE_NFKD] = "NFKD",
                                        [UNICODE_NFC] = "NFC",
                                        [UNICODE_NFKC] = "NFKC"};
    static const struct {
        const char *type;
        enum err (*read)(struct tokenizer *, const struct json *, struct normal_op *);
    } kinds[] = {{"BertNormalizer", bert_read},
                 {"Replace", replace_read},
                 {"Precompiled", charsmap_read},
                 {"Prepend", prepend_read},
                 {"Strip", strip_read}};
    const char *type = type_of(j);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(type, forms[i]))
            return form_read((enum unicode_form)i, op);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].type))
            return kinds[i].read(t, j, op);
    op->kind = NORMAL_LOWER;
    if (!strcmp(type, "Lowercase"))
        return ERR_OK;
    op->kind = NORMAL_STRIP_ACCENTS;
    if (!strcmp(type, "StripAccents"))
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED, "a normalizer of type \"%.40s\" is not supported", type);
}

static enum err normal_add(struct tokenizer *t, const struct json *j)
{
    if (t->normal.count == NORMAL_OPS_MAX)
        return err_set(ERR_UNSUPPORTED, "more than %d normalizers", NORMAL_OPS_MAX);
    return normal_op_read(t, j, &t->normal.ops[t->normal.count++]);
}

enum err tokenizer_normal_read(struct tokenizer *t, const char *what, const struct json *j)
{
    const struct json *list =
        j && !strcmp(type_of(j), "Sequence") ? list_of(j, "normalizers") : NULL;
    enum err e = ERR_OK;
    if (j && j->kind != JSON_NOTHING && !list)
        e = normal_add(t, j);
    for (size_t i = 0; !e && list && i < list->count; i++)
        e = normal_add(t, &list->items[i]);
    return e ? err_add(e, "%s: ", what) : ERR_OK;
}

/* ---- pre-tokenizers ---- */

static struct split_op *split_new(struct tokenizer *t, enum split_kind kind)
{
    struct split_op *op = &t->split.ops[t->split.count];
    if (t->split.count == SPLIT_OPS_MAX) {
        (void)err_set(ERR_UNSUPPORTED, "more than %d pre-tokenizers", SPLIT_OPS_MAX);
        return NULL;
    }
    t->split.count++;
    op->kind = kind;
    return op;
}

static enum err bytes_read(struct tokenizer *t, const struct json *j, bool last)
{
    struct split_op *op;
    if (t->kind != TOKENIZER_BPE || !last)
        return err_set(ERR_UNSUPPORTED,
                       "ByteLevel is supported with BPE, as the last pre-tokenizer");
    if (tokenizer_json_flag(j, "add_prefix_space", true) && !split_new(t, SPLIT_PREFIX))
        return ERR_UNSUPPORTED;
    if (!tokenizer_json_flag(j, "use_regex", true) && t->split.count)
        return ERR_OK;
    if (!(op = split_new(t, SPLIT_PATTERN)))
        return ERR_UNSUPPORTED;
    return tokenizer_json_flag(j, "use_regex", true)
               ? split_pattern_open(op, split_gpt2_pattern, strlen(split_gpt2_pattern))
               : split_pattern_open(op, "(?s).+", 6);
}

/* The pattern of a text: a backslash before each of its ASCII signs. */
static enum err quoted_open(struct split_op *op, const struct json *text)
{
    struct buffer quoted = {0};
    enum err e = ERR_OK;
    for (size_t i = 0; !e && i < text->text_bytes; i++) {
        char c = text->text[i];
        bool sign = c > 0 && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
        e = sign ? buffer_add(&quoted, "\\", 1) : ERR_OK;
        e = e ? e : buffer_add(&quoted, &c, 1);
    }
    e = e ? e : buffer_add(&quoted, "", 1);
    e = e ? e : split_pattern_open(op, (const char *)quoted.data, quoted.count - 1);
    buffer_free(&quoted);
    return e;
}

static enum err pattern_read(struct tokenizer *t, const struct json *j)
{
    static const char *const behaviours[] = {[SPLIT_ISOLATED] = "Isolated",
                                             [SPLIT_REMOVED] = "Removed",
                                             [SPLIT_PREVIOUS] = "MergedWithPrevious",
                                             [SPLIT_NEXT] = "MergedWithNext",
                                             [SPLIT_CONTIGUOUS] = "Contiguous"};
    const struct json *pattern = json_find(j, "pattern"), *text, *regex;
    const char *behaviour = tokenizer_json_text(j, "behavior");
    struct split_op *op = split_new(t, SPLIT_PATTERN);
    size_t kind = 0, kinds = sizeof behaviours / sizeof *behaviours;
    if (!op)
        return ERR_UNSUPPORTED;
    while (kind < kinds && (!behaviour || strcmp(behaviour, behaviours[kind])))
        kind++;
    if (kind == kinds)
        return err_set(ERR_UNSUPPORTED, "Split with behavior \"%.40s\" is not supported",
                       behaviour ? behaviour : "");
    op->behaviour = (enum split_behaviour)kind;
    op->invert = tokenizer_json_flag(j, "invert", false);
    text = pattern ? json_find(pattern, "String") : NULL;
    regex = pattern ? json_find(pattern, "Regex") : NULL;
    if (text && text->kind == JSON_WORDS && text->text_bytes)
        return quoted_open(op, text);
    if (!regex || regex->kind != JSON_WORDS)
        return err_set(ERR_INPUT, "Split without a pattern");
    return split_pattern_open(op, regex->text, regex->text_bytes);
}

/* Numbers of Unicode, one by one or run by run. */
static enum err digits_read(struct tokenizer *t, const struct json *j)
{
    const char *pattern = tokenizer_json_flag(j, "individual_digits", false) ? "\\p{N}" : "\\p{N}+";
    struct split_op *op = split_new(t, SPLIT_PATTERN);
    return op ? split_pattern_open(op, pattern, strlen(pattern)) : ERR_UNSUPPORTED;
}

static enum err meta_read(struct tokenizer *t, const struct json *j)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const char *scheme = tokenizer_json_text(j, "prepend_scheme");
    const struct json *mark = json_find(j, "replacement");
    struct split_op *op = split_new(t, SPLIT_META);
    if (!op)
        return ERR_UNSUPPORTED;
    op->prepend = tokenizer_json_flag(j, "add_prefix_space", true) ? SPLIT_ALWAYS : SPLIT_NEVER;
    for (size_t i = 0; scheme && i < sizeof schemes / sizeof *schemes; i++)
        if (!strcmp(scheme, schemes[i]))
            op->prepend = (enum split_prepend)i;
    op->whole = !tokenizer_json_flag(j, "split", true);
    TRY(text_copy(t, mark, &op->mark, &op->mark_bytes));
    if (!op->mark_bytes || t->kind == TOKENIZER_WORDPIECE || t->byte_level)
        return err_set(ERR_UNSUPPORTED, "Metaspace is supported with Unigram, or with BPE without "
                                        "ByteLevel, and a replacement");
    t->mark = op->mark;
    t->mark_bytes = op->mark_bytes;
    return ERR_OK;
}

static enum err split_op_read(struct tokenizer *t, const struct json *j, bool last)
{
    const char *type = type_of(j);
    if (!strcmp(type, "BertPreTokenizer"))
        return split_new(t, SPLIT_BERT) ? ERR_OK : ERR_UNSUPPORTED;
    if (!strcmp(type, "WhitespaceSplit"))
        return split_new(t, SPLIT_SPACE) ? ERR_OK : ERR_UNSUPPORTED;
    if (!strcmp(type, "ByteLevel"))
        return bytes_read(t, j, last);
    if (!strcmp(type, "Split"))
        return pattern_read(t, j);
    if (!strcmp(type, "Metaspace"))
        return meta_read(t, j);
    if (!strcmp(type, "Digits"))
        return digits_read(t, j);
    return err_set(ERR_UNSUPPORTED, "a pre_tokenizer of type \"%.40s\" is not supported", type);
}

/* The items of a Sequence, or the one that is no Sequence. */
static const struct json *split_items(const struct json *j, size_t *count)
{
    const struct json *list =
        j && !strcmp(type_of(j), "Sequence") ? list_of(j, "pretokenizers") : NULL;
    *count = list ? list->count : j && j->kind != JSON_NOTHING;
    return list ? list->items : j;
}

bool tokenizer_split_is_bytes(const struct json *j)
{
    size_t count;
    const struct json *items = split_items(j, &count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(type_of(&items[i]), "ByteLevel"))
            return true;
    return false;
}

enum err tokenizer_split_read(struct tokenizer *t, const char *what, const struct json *j)
{
    size_t count;
    const struct json *items = split_items(j, &count);
    enum err e = ERR_OK;
    for (size_t i = 0; !e && i < count; i++)
        e = split_op_read(t, &items[i], i + 1 == count);
    if (!e && !t->split.count && t->kind == TOKENIZER_WORDPIECE)
        e = err_set(ERR_UNSUPPORTED, "WordPiece without pre_tokenizer is not supported");
    return e ? err_add(e, "%s: ", what) : ERR_OK;
}

/* ---- decoders ---- */

/* Its mark counts where no pre-tokenizer has one. */
static enum err decoder_replace_read(struct tokenizer *t, const struct json *j)
{
    const struct json *pattern = json_find(j, "pattern");
    const uint8_t *mark;
    size_t bytes;
    TRY(text_copy(t, pattern ? json_find(pattern, "String") : NULL, &mark, &bytes));
    t->decoder.replace = bytes > 0;
    if (bytes) {
        t->mark = mark;
        t->mark_bytes = bytes;
    }
    return ERR_OK;
}

static enum err decoder_part_read(struct tokenizer *t, const struct json *j)
{
    const char *type = type_of(j);
    const struct json *start = json_find(j, "start");
    if (!strcmp(type, "Replace"))
        return decoder_replace_read(t, j);
    if (!strcmp(type, "ByteFallback"))
        t->decoder.byte_fallback = true;
    if (!strcmp(type, "Strip") && start && start->kind == JSON_WHOLE && start->whole > 0)
        t->decoder.strip = (size_t)start->whole;
    return ERR_OK;
}

enum err tokenizer_decoder_read(struct tokenizer *t, const struct json *j)
{
    static const uint8_t mark[] = "\xe2\x96\x81";
    const struct json *list = j && !strcmp(type_of(j), "Sequence") ? list_of(j, "decoders") : NULL;
    if (!t->mark_bytes) {
        t->mark = mark;
        t->mark_bytes = sizeof mark - 1;
    }
    t->decoder.kind = t->kind == TOKENIZER_WORDPIECE         ? DECODE_PIECES
                      : t->byte_level                        ? DECODE_BYTES
                      : list && t->kind != TOKENIZER_UNIGRAM ? DECODE_PARTS
                      : list && list->count && strcmp(type_of(list->items), "Metaspace")
                          ? DECODE_PARTS
                          : DECODE_MARKS;
    for (size_t i = 0; list && i < list->count && t->decoder.kind == DECODE_PARTS; i++)
        TRY(decoder_part_read(t, &list->items[i]));
    return ERR_OK;
}
