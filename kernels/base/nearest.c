/* SPDX-License-Identifier: Apache-2.0 */
/* Damerau's distance, optimal string alignment form, in three rows. */
#include "kernels/base/nearest.h"
#include <string.h>

enum { WORD_MAX = 96 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

bool nearest_enough(const char *word, unsigned edits)
{
    size_t third = strnlen(word, WORD_MAX) / 3;
    return edits <= (third > 1 ? third : 1);
}

unsigned nearest_edits(const char *a, const char *b)
{
    unsigned rows[3][WORD_MAX + 1];
    size_t n = strnlen(a, WORD_MAX), m = strnlen(b, WORD_MAX);
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = rows[i % 3];
        const unsigned *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}
