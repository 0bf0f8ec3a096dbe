#ifndef SHEET_H
#define SHEET_H
/* A page of headings, sentences and tables, as HTML in the report's style or as text for a
 * terminal. HTML needs no script and no font; text tables are as wide as their cells. Errors of
 * `out` are the caller's to find (ferror).
 */
#include <stdbool.h>
#include "outer/report/report_table.h"

enum { SHEET_CELL_MAX = 200, SHEET_COLUMNS_MAX = 8 };

struct sheet_row {
    char cell[SHEET_COLUMNS_MAX][SHEET_CELL_MAX];
};
struct sheet {
    FILE *out;
    bool html;
    /* the table that is open */
    struct report_table table;
    const char *head[SHEET_COLUMNS_MAX];
    unsigned columns, numbers, at;
    struct sheet_row *rows; /* text: kept until the widths are known */
    size_t count, room;
    bool bad; /* no memory for rows */
};

void sheet_begin(struct sheet *s, FILE *out, bool html, const char *title);
void sheet_end(struct sheet *s); /* of the page; frees the rows */
void sheet_heading(struct sheet *s, const char *text);
void sheet_line(struct sheet *s, const char *format, ...) /* a paragraph */
    __attribute__((format(printf, 2, 3)));
void sheet_item(struct sheet *s, const char *text); /* of a list */
/* numbers: columns from here on are aligned to the right. */
void sheet_table(struct sheet *s, const char *const *head, unsigned columns, unsigned numbers);
void sheet_cell(struct sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sheet_table_end(struct sheet *s);

#endif
