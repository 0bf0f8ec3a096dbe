/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLACE_H
#define PLACE_H
/* A scratch directory with a metrics.jsonl and a report page, for one test each. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "outer/record/jsonl.h"

struct place {
    char dir[64], path[128], page[128];
    struct arena arena;
};

static inline int place_open(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/atoll-record-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/%s", p->dir, RECORD_FILE);
    snprintf(p->page, sizeof p->page, "%s/report.html", p->dir);
    p->arena = arena_make(0);
    *state = p;
    return 0;
}

static inline int place_close(void **state)
{
    struct place *p = *state;
    assert_int_equal(file_remove_tree(p->dir), ERR_OK);
    arena_free(&p->arena);
    free(p);
    return 0;
}

static inline void place_append(const struct place *p, const char *text)
{
    FILE *f = fopen(p->path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#endif
