/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/plain.h"
#include <string.h>

/* Of a valid character, else 0. The second byte says whether the form is the shortest one, no
 * surrogate, and at most U+10FFFF. */
static size_t utf8_length(const unsigned char *c)
{
    static const struct {
        unsigned char first, last, low, high; /* of the first byte; of the second one */
        size_t length;
    } forms[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (c[0] < forms[i].first || c[0] > forms[i].last)
            continue;
        if (forms[i].length > 1 && (c[1] < forms[i].low || c[1] > forms[i].high))
            return 0;
        for (size_t k = 2; k < forms[i].length; k++)
            if ((c[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

size_t plain_length(const char *text)
{
    size_t n = utf8_length((const unsigned char *)text);
    return n ? n : *text != 0;
}

size_t plain_control(const char *text)
{
    unsigned char c = (unsigned char)text[0], next = c ? (unsigned char)text[1] : 0;
    if ((c && c < 0x20) || c == 0x7f)
        return 1;
    if (c == 0xc2 && next >= 0x80 && next < 0xa0)
        return 2;
    return c && !utf8_length((const unsigned char *)text);
}

void plain_make(char *text, bool lines)
{
    while (*text) {
        size_t n = plain_control(text);
        if (n && !(lines && (*text == '\n' || *text == '\t')))
            memset(text, '?', n);
        text += n ? n : plain_length(text);
    }
}
