/* SPDX-License-Identifier: Apache-2.0 */
#include "inner/data/sentence.h"
#include "inner/data/tokenizer/unicode.h"

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t skip_space(const uint8_t *text, size_t bytes, size_t at)
{
    while (at < bytes && is_space(text[at]))
        at++;
    return at;
}

/* Does an upper-case letter or a digit begin here? */
static bool is_start(const uint8_t *text, size_t bytes)
{
    uint32_t point, lower[UNICODE_LOWER_MAX];
    if (!unicode_read(text, bytes, &point))
        return false;
    return (point >= '0' && point <= '9') || unicode_lower(point, lower) != 1 || lower[0] != point;
}

static bool ends_at(const uint8_t *text, size_t bytes, size_t at)
{
    if (text[at] == '\n')
        return true;
    if ((text[at] != '.' && text[at] != '!' && text[at] != '?') || at + 1 == bytes ||
        !is_space(text[at + 1]))
        return false;
    size_t next = skip_space(text, bytes, at + 1);
    return is_start(text + next, bytes - next);
}

bool sentence_next(const uint8_t *text, size_t bytes, size_t *at, struct sentence *s)
{
    size_t begin = skip_space(text, bytes, *at), end = begin;
    while (end < bytes && !ends_at(text, bytes, end))
        end++;
    end += end < bytes;
    *at = end;
    while (end > begin && is_space(text[end - 1]))
        end--;
    *s = (struct sentence){text + begin, end - begin};
    return end > begin;
}
