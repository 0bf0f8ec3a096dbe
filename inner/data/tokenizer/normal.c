/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/normal.h"

/* ---- BertNormalizer ---- */

/* What becomes of an ASCII character; 0: it is dropped. */
static uint8_t bert_ascii(const struct normal_op *op, uint8_t c)
{
    if (op->clean) {
        if (c == '\t' || c == '\n' || c == '\r')
            return ' ';
        if (c < 0x20 || c == 0x7f)
            return 0;
    }
    return op->lower && c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

static enum err bert_point(const struct normal_op *op, uint32_t point, size_t *count,
                           struct unicode_points *points)
{
    enum unicode_form form = UNICODE_NFD;
    unsigned class = op->clean ? unicode_class(point) : 0;
    if (op->clean && (point == 0xfffd || class & UNICODE_OTHER))
        return ERR_OK;
    if (class & UNICODE_SPACE)
        point = ' ';
    bool apart = op->chinese && unicode_chinese(point);
    if (apart)
        TRY(unicode_points_add(form, ' ', count, points));
    if (op->strip) {
        TRY(unicode_points_add(form, point, count, points));
    } else {
        TRY(unicode_points_add(form, ' ', count, points)); /* makes room */
        points->points[*count - 1] = (int32_t)point;
    }
    return apart ? unicode_points_add(form, ' ', count, points) : ERR_OK;
}

static enum err bert_write(const struct normal_op *op, struct unicode_points *points, size_t count,
                           struct buffer *out)
{
    if (op->strip)
        unicode_points_order(points, count);
    TRY(buffer_reserve(out, count * UNICODE_BYTES_MAX * UNICODE_LOWER_MAX));
    for (size_t i = 0; i < count; i++) {
        uint32_t point = (uint32_t)points->points[i], lower[UNICODE_LOWER_MAX] = {point};
        if (op->strip && point >= 0x80 && unicode_class(point) & UNICODE_MARK_N)
            continue;
        size_t written = op->lower ? unicode_lower(point, lower) : 1;
        for (size_t j = 0; j < written; j++)
            out->count += unicode_write(lower[j], out->data + out->count);
    }
    return ERR_OK;
}

/* ASCII is written as it is; a run of other characters is put in canonical order first. A dropped
 * ASCII character does not end the run. */
static enum err bert_apply(const struct normal_op *op, const uint8_t *s, size_t n,
                           struct unicode_points *points, struct buffer *out)
{
    uint8_t ascii[128];
    for (unsigned c = 0; c < 128; c++)
        ascii[c] = bert_ascii(op, (uint8_t)c);
    TRY(buffer_reserve(out, n));
    for (size_t at = 0; at < n;) {
        size_t count = 0;
        uint32_t point;
        TRY(buffer_reserve(out, n - at));
        for (uint8_t *to = out->data + out->count; at < n && s[at] < 0x80; at++) {
            *to = ascii[s[at]];
            size_t kept = *to || !op->clean;
            to += kept;
            out->count += kept;
        }
        while (at < n && (s[at] >= 0x80 || (op->clean && !ascii[s[at]]))) {
            at += unicode_read(s + at, n - at, &point);
            if (point >= 0x80)
                TRY(bert_point(op, point, &count, points));
        }
        TRY(bert_write(op, points, count, out));
    }
    return ERR_OK;
}

/* ---- the others ---- */

static size_t ascii_run(const uint8_t *s, size_t n, size_t at)
{
    size_t end = at;
    while (end < n && s[end] < 0x80)
        end++;
    return end - at;
}

static enum err accents_strip(const uint8_t *s, size_t n, struct buffer *out)
{
    uint32_t point;
    TRY(buffer_reserve(out, n));
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bytes = ascii_run(s, n, at);
        point = 0;
        if (!bytes)
            bytes = unicode_read(s + at, n - at, &point);
        if (point && unicode_class(point) & UNICODE_MARK)
            continue;
        memcpy(out->data + out->count, s + at, bytes);
        out->count += bytes;
    }
    return ERR_OK;
}

static enum err lower_apply(const uint8_t *s, size_t n, struct buffer *out)
{
    uint32_t point, lower[UNICODE_LOWER_MAX];
    for (size_t at = 0; at < n;) {
        size_t ascii = ascii_run(s, n, at);
        TRY(buffer_reserve(out, ascii + UNICODE_LOWER_MAX * UNICODE_BYTES_MAX));
        for (uint8_t *to = out->data + out->count; to < out->data + out->count + ascii; to++, at++)
            *to = s[at] >= 'A' && s[at] <= 'Z' ? (uint8_t)(s[at] + 32) : s[at];
        out->count += ascii;
        if (at == n)
            break;
        at += unicode_read(s + at, n - at, &point);
        for (size_t i = 0, count = unicode_lower(point, lower); i < count; i++)
            out->count += unicode_write(lower[i], out->data + out->count);
    }
    return ERR_OK;
}

static enum err replaced_next(const struct normal_op *op, struct pattern_match *match,
                              const uint8_t *s, size_t n, size_t at, struct pattern_span *span)
{
    if (op->pattern)
        return pattern_next(op->pattern, match, s, n, at, span);
    const uint8_t *there = memmem(s + at, n - at, op->from, op->from_bytes);
    size_t start = there ? (size_t)(there - s) : n;
    *span = (struct pattern_span){there != NULL, start, there ? start + op->from_bytes : n};
    return ERR_OK;
}

/* An empty match replaces nothing. */
static enum err replace_apply(const struct normal_op *op, struct pattern_match *match,
                              const uint8_t *s, size_t n, struct buffer *out)
{
    struct pattern_span span = {.found = true};
    for (size_t at = 0; span.found && at < n; at = span.end) {
        TRY(replaced_next(op, match, s, n, at, &span));
        if (span.found && span.end == span.start) {
            span.end = span.start < n ? span.start + 1 : n;
            TRY(buffer_add(out, s + at, span.end - at));
            continue;
        }
        TRY(buffer_add(out, s + at, span.start - at));
        if (span.found)
            TRY(buffer_add(out, op->to, op->to_bytes));
    }
    return ERR_OK;
}

static enum err prepend_apply(const struct normal_op *op, const uint8_t *s, size_t n,
                              struct buffer *out)
{
    if (n)
        TRY(buffer_add(out, op->to, op->to_bytes));
    return buffer_add(out, s, n);
}

/* The start of the character that ends at `end`. */
static size_t point_before(const uint8_t *s, size_t end)
{
    size_t at = end - 1;
    while (at && (s[at] & 0xc0) == 0x80)
        at--;
    return at;
}

static enum err strip_apply(const struct normal_op *op, const uint8_t *s, size_t n,
                            struct buffer *out)
{
    size_t start = 0, end = n, bytes;
    uint32_t point;
    while (op->left && start < end && (bytes = unicode_read(s + start, end - start, &point)) &&
           unicode_class(point) & UNICODE_SPACE)
        start += bytes;
    while (op->right && end > start) {
        size_t at = point_before(s, end);
        if (!unicode_read(s + at, end - at, &point) || !(unicode_class(point) & UNICODE_SPACE))
            break;
        end = at;
    }
    return buffer_add(out, s + start, end - start);
}

static enum err op_apply(const struct normal_op *op, struct normal_scratch *scratch,
                         const uint8_t *s, size_t n, struct buffer *out)
{
    switch (op->kind) {
    case NORMAL_BERT:
        return bert_apply(op, s, n, &scratch->points, out);
    case NORMAL_FORM:
        return unicode_normalise(op->form, s, n, &scratch->points, out);
    case NORMAL_STRIP_ACCENTS:
        return accents_strip(s, n, out);
    case NORMAL_LOWER:
        return lower_apply(s, n, out);
    case NORMAL_REPLACE:
        return replace_apply(op, scratch->match, s, n, out);
    case NORMAL_PREPEND:
        return prepend_apply(op, s, n, out);
    case NORMAL_STRIP:
        return strip_apply(op, s, n, out);
    case NORMAL_CHARSMAP:
        break;
    }
    return normal_charsmap_apply(op, s, n, out);
}

enum err normal_apply(const struct normal *l, struct normal_scratch *scratch, const uint8_t *s,
                      size_t n, const uint8_t **out, size_t *out_bytes)
{
    *out = s;
    *out_bytes = n;
    for (size_t i = 0; i < l->count; i++) {
        struct buffer *to = &scratch->text[i % 2];
        to->count = 0;
        TRY(op_apply(&l->ops[i], scratch, *out, *out_bytes, to));
        *out = to->data;
        *out_bytes = to->count;
    }
    return ERR_OK;
}

void normal_scratch_free(struct normal_scratch *scratch)
{
    buffer_free(&scratch->text[0]);
    buffer_free(&scratch->text[1]);
    unicode_points_free(&scratch->points);
}

void normal_close(struct normal *l)
{
    for (size_t i = 0; i < l->count; i++)
        pattern_close(l->ops[i].pattern);
    l->count = 0;
}
