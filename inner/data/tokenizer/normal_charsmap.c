/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's "precompiled charsmap": uint32 size of a Darts double array in bytes, the array,
 * then strings that end with a zero. A key's value is where its replacement begins. */
#include "inner/data/tokenizer/normal.h"

enum { GRAPHEME_BYTES_MAX = 5 }; /* longer clusters are looked up character by character */

static uint32_t unit_at(const struct normal_op *op, size_t i)
{
    const uint8_t *p = op->charsmap.units + 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The shortest key that s begins with, as tokenizers has it; NULL: there is none. */
static const uint8_t *replacement(const struct normal_op *op, const uint8_t *s, size_t n)
{
    size_t at = unit_offset(unit_at(op, 0));
    for (size_t i = 0; i < n && s[i]; i++) {
        at ^= s[i];
        if (at >= op->charsmap.unit_count)
            return NULL;
        uint32_t unit = unit_at(op, at);
        if ((unit & (1u << 31 | 0xffu)) != s[i])
            return NULL;
        at ^= unit_offset(unit);
        if (at >= op->charsmap.unit_count)
            return NULL;
        if (unit >> 8 & 1) {
            size_t value = unit_at(op, at) & ~(1u << 31);
            bool inside =
                value < op->charsmap.text_bytes && (op->charsmap.texts[value] & 0xc0) != 0x80;
            return inside ? op->charsmap.texts + value : (const uint8_t *)"";
        }
    }
    return NULL;
}

enum err normal_charsmap_open(struct normal_op *op, const uint8_t *table, size_t bytes)
{
    size_t array = 0;
    for (size_t i = 0; i < 4 && bytes >= 4; i++)
        array |= (size_t)table[i] << 8 * i;
    if (bytes < 8 || array < 4 || array % 4 || array > bytes - 4)
        return err_set(ERR_INPUT, "precompiled_charsmap: a double array of %zu bytes in %zu", array,
                       bytes);
    if (bytes > 4 + array && table[bytes - 1])
        return err_set(ERR_INPUT, "precompiled_charsmap: the last string does not end");
    size_t bad;
    if (!unicode_check(table + 4 + array, bytes - 4 - array, &bad))
        return err_set(ERR_INPUT, "precompiled_charsmap: byte %zu of its strings is not UTF-8",
                       bad + 1);
    *op = (struct normal_op){.kind = NORMAL_CHARSMAP,
                             .charsmap = {.units = table + 4,
                                          .unit_count = array / 4,
                                          .texts = table + 4 + array,
                                          .text_bytes = bytes - 4 - array}};
    for (uint8_t c = 1; c < 128; c++)
        op->charsmap.ascii[c] = replacement(op, &c, 1);
    return ERR_OK;
}

static enum err part_write(const struct normal_op *op, const uint8_t *s, size_t n,
                           struct buffer *out)
{
    const uint8_t *to = replacement(op, s, n);
    return to ? buffer_add(out, to, strlen((const char *)to)) : buffer_add(out, s, n);
}

enum err normal_charsmap_apply(const struct normal_op *op, const uint8_t *s, size_t n,
                               struct buffer *out)
{
    uint32_t point;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        bool alone = s[at] < 0x80 && at + 1 < n && s[at + 1] < 0x80 && s[at] != '\r';
        if (alone && !op->charsmap.ascii[s[at]]) {
            bytes = 1;
            TRY(buffer_add(out, s + at, 1));
            continue;
        }
        bytes = alone ? 1 : unicode_grapheme(s + at, n - at);
        if (bytes <= GRAPHEME_BYTES_MAX && replacement(op, s + at, bytes)) {
            TRY(part_write(op, s + at, bytes, out));
            continue;
        }
        for (size_t i = 0, one; i < bytes; i += one) {
            one = unicode_read(s + at + i, bytes - i, &point);
            TRY(part_write(op, s + at + i, one, out));
        }
    }
    return ERR_OK;
}
