/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHEET_H
#define SHEET_H
/* A page of headings, sentences and tables, as HTML, as text for a terminal, or as one JSON object:
 * title, and sections with a heading and content (texts, and tables of head and rows). HTML needs
 * no script and no font; text tables are as wide as their cells. Errors of `out` are the caller's
 * to find (ferror).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "outer/record/json_write.h"

enum { SHEET_CELL_MAX = 200, SHEET_COLUMNS_MAX = 8 };

struct sheet_row {
    char cell[SHEET_COLUMNS_MAX][SHEET_CELL_MAX];
};
struct sheet {
    FILE *out;
    bool html, json;
    struct json_write w; /* of json */
    /* the table that is open */
    const char *head[SHEET_COLUMNS_MAX];
    unsigned columns, numbers, at;
    struct sheet_row *rows; /* kept until the table ends and its widths are known */
    size_t count, room;
    bool bad; /* no memory for rows */
};

/* style: CSS of style_bytes for HTML; NULL: text. */
void sheet_begin(struct sheet *s, FILE *out, const char *title, const void *style,
                 size_t style_bytes);
void sheet_begin_json(struct sheet *s, FILE *out, const char *title);
void sheet_end(struct sheet *s); /* of the page; frees the rows */
void sheet_heading(struct sheet *s, const char *text);
void sheet_line(struct sheet *s, const char *format, ...) /* a paragraph */
    __attribute__((format(printf, 2, 3)));
void sheet_item(struct sheet *s, const char *text); /* of a list */
/* numbers: columns from here on are aligned to the right. */
void sheet_table(struct sheet *s, const char *const *head, unsigned columns, unsigned numbers);
void sheet_cell(struct sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sheet_table_end(struct sheet *s);
void sheet_escape(FILE *out, const char *text);       /* HTML text, or a value in double quotes */
const char *sheet_digits(char out[32], double value); /* "12,345,678"; returns out */

#endif
