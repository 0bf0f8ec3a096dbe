/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNICODE_H
#define UNICODE_H
/* UTF-8, classes of code points, lower case, and the four normal forms. utf8proc holds the tables;
 * only unicode.c includes it, so the version of Unicode is the library's. All functions are pure.
 */
#include <stdbool.h>
#include "inner/data/tokenizer/buffer.h"

enum { UNICODE_BYTES_MAX = 4, UNICODE_LOWER_MAX = 2 };
enum unicode_form { UNICODE_NFD, UNICODE_NFKD, UNICODE_NFC, UNICODE_NFKC };
enum unicode_class {
    UNICODE_SPACE = 1,   /* property White_Space */
    UNICODE_OTHER = 2,   /* categories Cc, Cf, Cs, Co; not Cn: what is not assigned stays */
    UNICODE_PUNCT = 4,   /* categories P* */
    UNICODE_MARK_N = 8,  /* category Mn */
    UNICODE_MARK = 16,   /* categories M* */
    UNICODE_LETTER = 32, /* categories L* */
    UNICODE_NUMBER = 64, /* categories N* */
    UNICODE_WORD = 128   /* \w: letters, marks, decimal digits, letter numbers, category Pc */
};
struct unicode_points { /* scratch of unicode_normalise */
    int32_t *points;
    size_t room;
};

/* Bytes of the code point that begins at s, which it stores; 0: n is 0, or this is not UTF-8. */
size_t unicode_read(const uint8_t *s, size_t n, uint32_t *point);
size_t unicode_write(uint32_t point, uint8_t out[UNICODE_BYTES_MAX]);
/* true: UTF-8. Otherwise *bad is where the first wrong byte sequence begins. */
bool unicode_check(const uint8_t *s, size_t n, size_t *bad);
/* Text that may be shown anywhere, from bytes of any kind: what is no UTF-8, and control characters
 * but tabs and line breaks, become U+FFFD. Cut to `size` with the zero at its end, between code
 * points. */
void unicode_clean(char *out, size_t size, const uint8_t *s, size_t n);
unsigned unicode_class(uint32_t point); /* enum unicode_class, or-ed */
bool unicode_chinese(uint32_t point);   /* CJK ideographs, as BERT counts them */
/* The full lower case form of one code point, without regard to its neighbours. */
size_t unicode_lower(uint32_t point, uint32_t out[UNICODE_LOWER_MAX]);
/* Length of the extended grapheme cluster that begins at s; n > 0, valid UTF-8. */
size_t unicode_grapheme(const uint8_t *s, size_t n);
/* Appends the normal form of valid UTF-8. */
enum err unicode_normalise(enum unicode_form form, const uint8_t *s, size_t n,
                           struct unicode_points *scratch, struct buffer *out) MUST;
/* The part of unicode_normalise that works on code points, in place of points[0 .. *count). */
enum err unicode_points_add(enum unicode_form form, uint32_t point, size_t *count,
                            struct unicode_points *scratch) MUST;
void unicode_points_order(const struct unicode_points *scratch, size_t count);
void unicode_points_free(struct unicode_points *scratch);

#endif
