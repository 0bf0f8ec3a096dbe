/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLUMNS_H
#define COLUMNS_H
/* Records of a CSV file (csv.h) whose first record names its columns; four of them mean something
 * here. Every record has as many fields as the first one. One owner, one thread.
 */
#include "inner/config/textfile.h"
#include "inner/data/csv.h"

enum columns_role { COLUMNS_TEXT, COLUMNS_TEXT_B, COLUMNS_LABEL, COLUMNS_OWNER, COLUMNS_ROLES };
enum { COLUMNS_MAX = 1024 };

struct columns_names { /* of the columns; NULL: not given */
    const char *name[COLUMNS_ROLES];
};
struct columns {
    struct csv csv;
    const char *path;
    struct arena record;
    const char **fields;
    size_t count, at[COLUMNS_ROLES]; /* at[role]: COLUMNS_MAX if there is no such column */
    size_t line;                     /* where the last record begins */
};

/* "label=diagnosis,text=report". ERR_CONFIG names the roles. */
enum err columns_parse(struct columns_names *names, const char *option, struct arena *a) MUST;

/* Reads the names. `path` is borrowed and begins messages; a column that `names` has is there, or
 * ERR_INPUT lists those that are; the others are there or not. */
enum err columns_open(struct columns *c, const char *path, const struct textfile *t,
                      const struct columns_names *names) MUST;
/* ERR_INPUT unless the column is there. */
enum err columns_need(const struct columns *c, enum columns_role role,
                      const struct columns_names *names) MUST;
/* The fields of the next record, which live until the next call; NULL: no such column. *more false:
 * there is none. Blank lines are left out. */
enum err columns_next(struct columns *c, const char *value[COLUMNS_ROLES], bool *more) MUST;
void columns_close(struct columns *c); /* a zeroed one is fine */

#endif
