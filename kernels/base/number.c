/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/base/number.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Passes over the digits and returns how many; *nonzero: one of them is not 0. */
static unsigned digits_pass(const char **s, bool *nonzero)
{
    unsigned n = 0;
    for (; **s >= '0' && **s <= '9'; (*s)++, n++)
        *nonzero = *nonzero || **s != '0';
    return n;
}

static bool number_shape(const char *s, bool *plain, bool *nonzero)
{
    bool ignored = false;
    *nonzero = false;
    s += *s == '+' || *s == '-';
    unsigned n = digits_pass(&s, nonzero);
    *plain = n > 0 && !*s;
    if (*s == '.') {
        s++;
        n += digits_pass(&s, nonzero);
    }
    if (!n)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        if (!digits_pass(&s, &ignored))
            return false;
    }
    return !*s;
}

enum number_kind number_read(const char *text, double *out)
{
    bool plain, nonzero;
    if (!number_shape(text, &plain, &nonzero))
        return NUMBER_NONE;
    double value = strtod(text, NULL);
    if (!isfinite(value) || (nonzero && !(fabs(value) >= (double)FLT_MIN)))
        return NUMBER_OUT_OF_RANGE;
    *out = value + 0.0; /* -0 becomes 0: one value, one text */
    return plain ? NUMBER_WHOLE : NUMBER_REAL;
}

bool number_good(const char *text, double *out)
{
    return number_read(text, out) >= NUMBER_REAL;
}

bool number_read_whole(const char *text, int64_t *out)
{
    double value;
    enum number_kind kind = number_read(text, &value);
    if (kind == NUMBER_WHOLE) {
        *out = strtoll(text, NULL, 10);
        return true;
    }
    if (kind != NUMBER_REAL || !(fabs(value) <= 9007199254740992.0) || value != floor(value))
        return false;
    *out = (int64_t)value;
    return true;
}
