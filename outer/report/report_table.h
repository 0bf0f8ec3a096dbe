#ifndef REPORT_TABLE_H
#define REPORT_TABLE_H
/* HTML tables of the report. On a narrow page each row becomes a block whose cells carry their
 * column's name, so that nothing is cut: every cell repeats it as data-l.
 */
#include <stdint.h>
#include <stdio.h>

enum { REPORT_COLUMNS_MAX = 72 };

struct report_table {
    FILE *out;
    const char *head[REPORT_COLUMNS_MAX]; /* "" for a column without a name */
    unsigned columns, at;                 /* at: of the next cell in its row */
};

/* numbers: columns from here on are aligned to the right. */
void table_begin(struct report_table *t, FILE *out, const char *const *head, unsigned columns,
                 unsigned numbers);
void table_name(struct report_table *t, const char *text); /* a cell that names its row */
void table_text(struct report_table *t, const char *text);
void table_number(struct report_table *t, const char *text);
void table_code(struct report_table *t, const char *text);
void table_count(struct report_table *t, double value);    /* with separators */
void table_wide(struct report_table *t, const char *text); /* a row of one cell */
void table_end(struct report_table *t);
/* "12,345,678"; returns out. */
const char *table_digits(char out[32], double value);

#endif
