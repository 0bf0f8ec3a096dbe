/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/split.h"

const char split_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char split_llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct piece { /* what a split hands to the next one */
    const struct split *l;
    struct split_scratch *scratch;
    const struct split_sink *sink;
    size_t op;            /* index of the split that gets it */
    const uint8_t *start; /* NULL: the piece does not begin where the whole text begins */
};

static enum err piece_split(struct piece p, const uint8_t *s, size_t n);

static inline enum err piece_next(const struct piece *p, const uint8_t *s, size_t n)
{
    if (!n)
        return ERR_OK;
    if (p->op + 1 == p->l->count)
        return p->sink->word(p->sink->self, s, n);
    bool first = p->start && (s == p->start || s == p->scratch->text[p->op].data);
    return piece_split((struct piece){p->l, p->scratch, p->sink, p->op + 1, first ? s : NULL}, s,
                       n);
}

/* ---- white space and punctuation ---- */

static unsigned ascii_class(uint8_t c)
{
    if (c == ' ' || (c >= 9 && c <= 13))
        return UNICODE_SPACE;
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                   (c >= 123 && c <= 126)
               ? UNICODE_PUNCT
               : 0;
}

/* Words between white space; with `punctuation`, each such character is a word too. */
static enum err space_split(const struct piece *p, bool punctuation, const uint8_t *s, size_t n)
{
    const unsigned wanted = UNICODE_SPACE | (punctuation ? UNICODE_PUNCT : 0);
    uint8_t ascii[128];
    size_t start = 0;
    uint32_t point;
    for (unsigned c = 0; c < 128; c++)
        ascii[c] = (uint8_t)(ascii_class((uint8_t)c) & wanted);
    for (size_t at = 0, bytes; at < n; at += bytes) {
        unsigned class;
        bytes = 1;
        if (s[at] < 0x80) {
            class = ascii[s[at]];
        } else {
            bytes = unicode_read(s + at, n - at, &point);
            class = unicode_class(point) & wanted;
        }
        if (!class)
            continue;
        TRY(piece_next(p, s + start, at - start));
        if (!(class & UNICODE_SPACE))
            TRY(piece_next(p, s + at, bytes));
        start = at + bytes;
    }
    return piece_next(p, s + start, n - start);
}

/* ---- patterns ---- */

enum { IS_LETTER = 1, IS_NUMBER = 2, IS_SPACE = 3, IS_SIGN = 4, IS_WIDE = 5 };

static inline unsigned ascii_kind(uint8_t c)
{
    if (c >= 0x80)
        return IS_WIDE;
    if ((uint8_t)((c | 32) - 'a') < 26)
        return IS_LETTER;
    if ((uint8_t)(c - '0') < 10)
        return IS_NUMBER;
    return c == ' ' || (c >= 9 && c <= 13) ? IS_SPACE : IS_SIGN;
}

static size_t kind_run(const uint8_t *s, size_t n, size_t at, unsigned kind)
{
    while (at < n && ascii_kind(s[at]) == kind)
        at++;
    return at;
}

/* Length of 's 't 'm 'd 're 've 'll at s, or 0. */
static size_t contraction(const uint8_t *s, size_t n, bool any_case)
{
    uint8_t fold = any_case ? 32 : 0;
    if (n < 2 || s[0] != '\'')
        return 0;
    uint8_t a = s[1] | fold, b = n > 2 ? s[2] | fold : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* A run of white space leaves its last blank to the word after it, unless the text ends there. */
static size_t space_end(const uint8_t *s, size_t n, size_t at)
{
    size_t end = kind_run(s, n, at, IS_SPACE);
    if (end < n && ascii_kind(s[end]) == IS_WIDE)
        return 0;
    return end < n && end - at > 1 ? end - 1 : end;
}

/* The end of the word at `at` by GPT-2's pattern; 0: a character beyond ASCII touches it. */
static size_t gpt2_end(const uint8_t *s, size_t n, size_t at)
{
    size_t end = at + contraction(s + at, n - at, false), from = at;
    if (end > at)
        return end;
    if (s[at] == ' ' && at + 1 < n)
        from++;
    unsigned kind = ascii_kind(s[from]);
    if (kind == IS_WIDE)
        return 0;
    if (kind == IS_SPACE)
        return space_end(s, n, at);
    end = kind_run(s, n, from, kind);
    return end < n && s[end] >= 0x80 ? 0 : end;
}

static bool is_line_end(uint8_t c)
{
    return c == '\n' || c == '\r';
}

/* \s*[\r\n]+ takes the run up to its last line end. */
static size_t llama3_space_end(const uint8_t *s, size_t n, size_t at)
{
    size_t end = kind_run(s, n, at, IS_SPACE), line = end;
    if (end < n && s[end] >= 0x80)
        return 0;
    while (line > at && !is_line_end(s[line - 1]))
        line--;
    return line > at ? line : space_end(s, n, at);
}

static size_t llama3_sign_end(const uint8_t *s, size_t n, size_t from)
{
    size_t end = kind_run(s, n, from, IS_SIGN);
    if (end < n && s[end] >= 0x80)
        return 0;
    while (end < n && is_line_end(s[end]))
        end++;
    return end;
}

static size_t llama3_end(const uint8_t *s, size_t n, size_t at)
{
    unsigned kind = ascii_kind(s[at]), next = at + 1 < n ? ascii_kind(s[at + 1]) : 0;
    size_t end = at + contraction(s + at, n - at, true);
    if (end > at) /* U+017F and U+212A fold to ASCII, but these bytes are ASCII */
        return end;
    if (next == IS_WIDE || kind == IS_WIDE || (s[at] == '\'' && at + 2 < n && s[at + 2] >= 0x80))
        return 0;
    if (kind == IS_LETTER || (next == IS_LETTER && kind != IS_NUMBER && !is_line_end(s[at]))) {
        end = kind_run(s, n, at + 1, IS_LETTER);
        return end < n && s[end] >= 0x80 ? 0 : end;
    }
    if (kind == IS_NUMBER) {
        end = kind_run(s, n, at, IS_NUMBER);
        return end - at >= 3 ? at + 3 : end < n && s[end] >= 0x80 ? 0 : end;
    }
    if (kind == IS_SIGN || (s[at] == ' ' && next == IS_SIGN))
        return llama3_sign_end(s, n, kind == IS_SIGN ? at : at + 1);
    return llama3_space_end(s, n, at);
}

static size_t known_end(const struct split_op *op, const uint8_t *s, size_t n, size_t at)
{
    if (op->known == SPLIT_UNKNOWN || op->behaviour != SPLIT_ISOLATED)
        return 0;
    return op->known == SPLIT_GPT2 ? gpt2_end(s, n, at) : llama3_end(s, n, at);
}

/* The spans of a text, matches and what is between them, on their way to the next split. */
struct spans {
    const struct piece *p;
    const struct split_op *op;
    const uint8_t *s;
    size_t start, end; /* of the span that a further one may join; empty: none waits */
    bool match;        /* the last span was a match */
};

static enum err spans_flush(struct spans *x)
{
    size_t start = x->start;
    x->start = x->end;
    return piece_next(x->p, x->s + start, x->end - start);
}

static bool span_joins(const struct spans *x, bool match)
{
    switch (x->op->behaviour) {
    case SPLIT_PREVIOUS:
        return match && !x->match;
    case SPLIT_NEXT:
        return !match && x->match;
    case SPLIT_CONTIGUOUS:
        return match == x->match;
    case SPLIT_ISOLATED:
    case SPLIT_REMOVED:
        break;
    }
    return false;
}

static enum err span_take(struct spans *x, size_t start, size_t end, bool match)
{
    if (start == end || (match && x->op->behaviour == SPLIT_REMOVED))
        return ERR_OK;
    if (x->op->behaviour <= SPLIT_REMOVED)
        return piece_next(x->p, x->s + start, end - start);
    if (x->start == x->end || !span_joins(x, match)) {
        TRY(spans_flush(x));
        x->start = start;
    }
    x->end = end;
    x->match = match;
    return ERR_OK;
}

/* What is between matches, then the match. An empty match puts the character after it between. */
static enum err pattern_split(const struct piece *p, const struct split_op *op, const uint8_t *s,
                              size_t n)
{
    struct spans x = {.p = p, .op = op, .s = s};
    for (size_t at = 0, end; at < n; at = end) {
        struct pattern_span span;
        uint32_t point;
        end = known_end(op, s, n, at);
        if (end) {
            TRY(piece_next(p, s + at, end - at));
            continue;
        }
        TRY(pattern_next(op->pattern, p->scratch->match, s, n, at, &span));
        if (span.start == span.end)
            span.start = span.end += unicode_read(s + span.start, n - span.start, &point);
        TRY(span_take(&x, at, span.start, op->invert));
        TRY(span_take(&x, span.start, span.end, !op->invert));
        end = span.end;
    }
    return spans_flush(&x);
}

enum err split_pattern_open(struct split_op *op, const char *pattern, size_t bytes)
{
    op->kind = SPLIT_PATTERN;
    if (bytes == strlen(split_gpt2_pattern) && !memcmp(pattern, split_gpt2_pattern, bytes))
        op->known = SPLIT_GPT2;
    if (bytes == strlen(split_llama3_pattern) && !memcmp(pattern, split_llama3_pattern, bytes))
        op->known = SPLIT_LLAMA3;
    return pattern_open(&op->pattern, pattern, bytes);
}

/* ---- prefix ---- */

static enum err prefix_split(const struct piece *p, const uint8_t *s, size_t n)
{
    struct buffer *b = &p->scratch->text[p->op];
    if (s[0] == ' ')
        return piece_next(p, s, n);
    b->count = 0;
    TRY(buffer_add(b, " ", 1));
    TRY(buffer_add(b, s, n));
    return piece_next(p, b->data, b->count);
}

static bool has_mark(const struct split_op *op, const uint8_t *s, size_t n)
{
    return n >= op->mark_bytes && !memcmp(s, op->mark, op->mark_bytes);
}

static enum err meta_write(const struct piece *p, const struct split_op *op, const uint8_t *s,
                           size_t n, struct buffer *b)
{
    b->count = 0;
    if (s[0] != ' ' && !has_mark(op, s, n) &&
        (op->prepend == SPLIT_ALWAYS || (op->prepend == SPLIT_FIRST && p->start)))
        TRY(buffer_add(b, op->mark, op->mark_bytes));
    TRY(buffer_reserve(b, n));
    for (size_t at = 0; at < n;) {
        const uint8_t *blank = memchr(s + at, ' ', n - at);
        size_t end = blank ? (size_t)(blank - s) : n;
        TRY(buffer_add(b, s + at, end - at));
        if (blank)
            TRY(buffer_add(b, op->mark, op->mark_bytes));
        at = end + 1;
    }
    return ERR_OK;
}

/* A word begins at each mark. */
static enum err meta_split(const struct piece *p, const struct split_op *op, const uint8_t *s,
                           size_t n)
{
    struct buffer *b = &p->scratch->text[p->op];
    TRY(meta_write(p, op, s, n, b));
    size_t start = 0;
    for (size_t at = 1; at < b->count && !op->whole; at++) {
        if (b->data[at] != op->mark[0] || !has_mark(op, b->data + at, b->count - at))
            continue;
        TRY(piece_next(p, b->data + start, at - start));
        start = at;
    }
    return piece_next(p, b->data + start, b->count - start);
}

/* ---- the list ---- */

static enum err piece_split(struct piece p, const uint8_t *s, size_t n)
{
    const struct split_op *op = &p.l->ops[p.op];
    switch (op->kind) {
    case SPLIT_BERT:
        return space_split(&p, true, s, n);
    case SPLIT_SPACE:
        return space_split(&p, false, s, n);
    case SPLIT_PATTERN:
        return pattern_split(&p, op, s, n);
    case SPLIT_PREFIX:
        return prefix_split(&p, s, n);
    case SPLIT_META:
        break;
    }
    return meta_split(&p, op, s, n);
}

enum err split_apply(const struct split *l, struct split_scratch *scratch, const uint8_t *s,
                     size_t n, bool first, const struct split_sink *sink)
{
    if (!l->count)
        return n ? sink->word(sink->self, s, n) : ERR_OK;
    return n ? piece_split((struct piece){l, scratch, sink, 0, first ? s : NULL}, s, n) : ERR_OK;
}

void split_scratch_free(struct split_scratch *scratch)
{
    for (size_t i = 0; i < SPLIT_OPS_MAX; i++)
        buffer_free(&scratch->text[i]);
}

void split_close(struct split *l)
{
    for (size_t i = 0; i < l->count; i++)
        pattern_close(l->ops[i].pattern);
    l->count = 0;
}
