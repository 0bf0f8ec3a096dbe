#include "kernels/base/plain.h"
#include <string.h>

size_t plain_control(const char *text)
{
    unsigned char c = (unsigned char)text[0], next = c ? (unsigned char)text[1] : 0;
    if ((c && c < 0x20) || c == 0x7f)
        return 1;
    return c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0;
}

void plain_make(char *text, bool lines)
{
    while (*text) {
        size_t n = plain_control(text);
        if (n && !(lines && (*text == '\n' || *text == '\t')))
            memset(text, '?', n);
        text += n ? n : 1;
    }
}
