/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/tokenizer/unicode.h"
#include <utf8proc.h>

enum { DECOMPOSED_MAX = 32 }; /* code points that one code point decomposes into; U+FDFA has 18 */

/* ---- UTF-8 ---- */

static bool is_tail(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

static size_t read_two(const uint8_t *s, size_t n, uint32_t *point)
{
    if (n < 2 || !is_tail(s[1]))
        return 0;
    *point = (uint32_t)(s[0] & 0x1f) << 6 | (s[1] & 0x3f);
    return *point >= 0x80 ? 2 : 0;
}

static size_t read_three(const uint8_t *s, size_t n, uint32_t *point)
{
    if (n < 3 || !is_tail(s[1]) || !is_tail(s[2]))
        return 0;
    *point = (uint32_t)(s[0] & 0x0f) << 12 | (uint32_t)(s[1] & 0x3f) << 6 | (s[2] & 0x3f);
    return *point >= 0x800 && (*point < 0xd800 || *point > 0xdfff) ? 3 : 0;
}

static size_t read_four(const uint8_t *s, size_t n, uint32_t *point)
{
    if (n < 4 || !is_tail(s[1]) || !is_tail(s[2]) || !is_tail(s[3]))
        return 0;
    *point = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3f) << 12 |
             (uint32_t)(s[2] & 0x3f) << 6 | (s[3] & 0x3f);
    return *point >= 0x10000 && *point <= 0x10ffff ? 4 : 0;
}

size_t unicode_read(const uint8_t *s, size_t n, uint32_t *point)
{
    *point = n ? *s : 0;
    if (!n || *s < 0x80)
        return n ? 1 : 0;
    if ((*s & 0xe0) == 0xc0)
        return read_two(s, n, point);
    if ((*s & 0xf0) == 0xe0)
        return read_three(s, n, point);
    return (*s & 0xf8) == 0xf0 ? read_four(s, n, point) : 0;
}

size_t unicode_write(uint32_t point, uint8_t out[UNICODE_BYTES_MAX])
{
    size_t bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes; i-- > 1; point >>= 6)
        out[i] = (uint8_t)(0x80 | (point & 0x3f));
    out[0] = (uint8_t)(lead[bytes] | point);
    return bytes;
}

bool unicode_check(const uint8_t *s, size_t n, size_t *bad)
{
    uint32_t point;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        uint64_t eight;
        bytes = 8;
        if (n - at >= 8) {
            memcpy(&eight, s + at, 8);
            if (!(eight & UINT64_C(0x8080808080808080)))
                continue;
        }
        bytes = unicode_read(s + at, n - at, &point);
        *bad = at;
        if (!bytes)
            return false;
    }
    return true;
}

/* ---- classes ---- */

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

void unicode_clean(char *out, size_t size, const uint8_t *s, size_t n)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t point;
        uint8_t bytes[UNICODE_BYTES_MAX];
        size_t length = unicode_read(s + at, n - at, &point);
        bool control =
            (point < 0x20 && point != '\t' && point != '\n') || (point >= 0x7f && point < 0xa0);
        size_t written = unicode_write(!length || control ? 0xfffd : point, bytes);
        if (used + written + 1 > size)
            break;
        memcpy(out + used, bytes, written);
        used += written;
        at += length ? length : 1;
    }
    out[used] = 0;
}

unsigned unicode_class(uint32_t point)
{
    static const uint8_t classes[] = {
        [UTF8PROC_CATEGORY_CC] = UNICODE_OTHER,
        [UTF8PROC_CATEGORY_CF] = UNICODE_OTHER,
        [UTF8PROC_CATEGORY_CS] = UNICODE_OTHER,
        [UTF8PROC_CATEGORY_CO] = UNICODE_OTHER,
        [UTF8PROC_CATEGORY_LU] = UNICODE_LETTER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_LL] = UNICODE_LETTER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_LT] = UNICODE_LETTER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_LM] = UNICODE_LETTER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_LO] = UNICODE_LETTER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_MN] = UNICODE_MARK | UNICODE_MARK_N | UNICODE_WORD,
        [UTF8PROC_CATEGORY_MC] = UNICODE_MARK | UNICODE_WORD,
        [UTF8PROC_CATEGORY_ME] = UNICODE_MARK | UNICODE_WORD,
        [UTF8PROC_CATEGORY_ND] = UNICODE_NUMBER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_NL] = UNICODE_NUMBER | UNICODE_WORD,
        [UTF8PROC_CATEGORY_NO] = UNICODE_NUMBER,
        [UTF8PROC_CATEGORY_PC] = UNICODE_PUNCT | UNICODE_WORD,
        [UTF8PROC_CATEGORY_PD] = UNICODE_PUNCT,
        [UTF8PROC_CATEGORY_PS] = UNICODE_PUNCT,
        [UTF8PROC_CATEGORY_PE] = UNICODE_PUNCT,
        [UTF8PROC_CATEGORY_PI] = UNICODE_PUNCT,
        [UTF8PROC_CATEGORY_PF] = UNICODE_PUNCT,
        [UTF8PROC_CATEGORY_PO] = UNICODE_PUNCT,
    };
    size_t category = (size_t)utf8proc_category((utf8proc_int32_t)point);
    unsigned found = category < sizeof classes ? classes[category] : 0;
    return found | (is_space(point) ? UNICODE_SPACE : 0u);
}

bool unicode_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* SpecialCasing.txt has one unconditional lower case of two code points. */
size_t unicode_lower(uint32_t point, uint32_t out[UNICODE_LOWER_MAX])
{
    out[0] = point == 0x130 ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)point);
    out[1] = 0x307;
    return point == 0x130 ? 2 : 1;
}

size_t unicode_grapheme(const uint8_t *s, size_t n)
{
    utf8proc_int32_t state = 0;
    uint32_t before, point;
    size_t at = unicode_read(s, n, &before), bytes;
    while (at < n && (bytes = unicode_read(s + at, n - at, &point)) > 0 &&
           !utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)point,
                                             &state)) {
        at += bytes;
        before = point;
    }
    return at;
}

/* ---- normal forms ---- */

enum err unicode_points_add(enum unicode_form form, uint32_t point, size_t *count,
                            struct unicode_points *scratch)
{
    bool compatible = form == UNICODE_NFKD || form == UNICODE_NFKC;
    int last = 0;
    if (scratch->room - *count < DECOMPOSED_MAX) {
        void *points = scratch->points;
        TRY(buffer_grow(&points, &scratch->room, *count + DECOMPOSED_MAX, sizeof(int32_t)));
        scratch->points = points;
    }
    utf8proc_ssize_t added =
        utf8proc_decompose_char((utf8proc_int32_t)point, scratch->points + *count, DECOMPOSED_MAX,
                                (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                    (compatible ? UTF8PROC_COMPAT : 0)),
                                &last);
    ASSERT(added >= 0 && added <= DECOMPOSED_MAX);
    *count += (size_t)added;
    return ERR_OK;
}

static int combining(int32_t point)
{
    return point < 0x300 ? 0 : utf8proc_get_property(point)->combining_class;
}

/* Canonical order: marks between two starters, stably by their class. */
void unicode_points_order(const struct unicode_points *scratch, size_t count)
{
    int32_t *p = scratch->points;
    for (size_t i = 1; i < count; i++) {
        int32_t moved = p[i];
        int its = combining(moved);
        size_t at = i;
        for (; its > 0 && at > 0 && combining(p[at - 1]) > its; at--)
            p[at] = p[at - 1];
        p[at] = moved;
    }
}

void unicode_points_free(struct unicode_points *scratch)
{
    free(scratch->points);
    *scratch = (struct unicode_points){0};
}

/* The points of a run that no character outside the run acts on. */
static enum err run_write(enum unicode_form form, struct unicode_points *scratch, size_t count,
                          struct buffer *out)
{
    unicode_points_order(scratch, count);
    if (form == UNICODE_NFC || form == UNICODE_NFKC)
        count = (size_t)utf8proc_normalize_utf32(
            scratch->points, (utf8proc_ssize_t)count,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    TRY(buffer_reserve(out, count * UNICODE_BYTES_MAX));
    for (size_t i = 0; i < count; i++)
        out->count += unicode_write((uint32_t)scratch->points[i], out->data + out->count);
    return ERR_OK;
}

/* ASCII is in every normal form, and only the last ASCII character before others composes. */
enum err unicode_normalise(enum unicode_form form, const uint8_t *s, size_t n,
                           struct unicode_points *scratch, struct buffer *out)
{
    for (size_t at = 0; at < n;) {
        size_t end = at, count = 0;
        uint32_t point;
        while (end < n && s[end] < 0x80)
            end++;
        size_t whole = end < n && end > at ? end - 1 : end;
        TRY(buffer_add(out, s + at, whole - at));
        for (at = whole; at < n && (at < end || s[at] >= 0x80);) {
            at += unicode_read(s + at, n - at, &point);
            TRY(unicode_points_add(form, point, &count, scratch));
        }
        TRY(run_write(form, scratch, count, out));
    }
    return ERR_OK;
}
