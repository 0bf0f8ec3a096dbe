/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCRATCH_H
#define SCRATCH_H
/* cmocka with the headers that it needs, and a scratch directory for the files of one test program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "kernels/base/file.h"
#include "tests/scratch_place.h"

static char scratch_root[64];

static inline int scratch_open(void **state)
{
    (void)state;
    snprintf(scratch_root, sizeof scratch_root, "%s/atoll-test-XXXXXX", scratch_place());
    return mkdtemp(scratch_root) ? 0 : -1;
}

static inline int scratch_close(void **state)
{
    (void)state;
    return file_remove_tree(scratch_root) == ERR_OK ? 0 : -1;
}

/* A path in the scratch directory; each thread may use eight of them at once. */
static inline const char *scratch(const char *name)
{
    static _Thread_local char paths[8][256];
    static _Thread_local unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_root, name);
    return path;
}

static inline const char *scratch_write(const char *name, const void *data, size_t size_bytes)
{
    const char *path = scratch(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size_bytes, f), size_bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

#define assert_says(part)                                                                          \
    do {                                                                                           \
        if (!strstr(err_message(), part))                                                          \
            fail_msg("the message has no \"%s\": %s", part, err_message());                        \
    } while (0)

#endif
