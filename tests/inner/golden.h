/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GOLDEN_H
#define GOLDEN_H
/* Values that another implementation computed: lines "NAME COUNT x x ..." of DIRECTORY/values.txt.
 */
#include "tests/inner/scratch.h"
#include <stdlib.h>
#include <string.h>
#include "kernels/base/file.h"

/* The values of one line, in `a`; NULL and *count 0: there is no such line. */
static inline double *golden_values(struct arena *a, const char *directory, const char *name,
                                    size_t *count)
{
    uint8_t *text;
    size_t size;
    char *key = arena_printf(a, "\n%s ", name), *at;
    assert_int_equal(
        file_read(arena_printf(a, "%s/values.txt", directory), 1 << 20, a, &text, &size), ERR_OK);
    at = !strncmp((char *)text, key + 1, strlen(key + 1)) ? (char *)text - 1
                                                          : strstr((char *)text, key);
    *count = 0;
    if (!at)
        return NULL;
    at += strlen(key);
    *count = strtoul(at, &at, 10);
    double *x = arena_array(a, *count, sizeof *x);
    for (size_t i = 0; i < *count; i++)
        x[i] = strtod(at, &at);
    return x;
}

#endif
