/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/view/sheet.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 100 };

void sheet_escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c >= 32 || c == '\n' || c == '\t')
            fputc(c, out);
        else
            fputs("&#65533;", out);
    }
}

const char *sheet_digits(char out[32], double value)
{
    char plain[32];
    snprintf(plain, sizeof plain, "%.0f", fabs(value) < 1e17 ? value : 0);
    const char *p = plain;
    size_t used = 0, left = strspn(p + (*p == '-'), "0123456789");
    if (*p == '-')
        out[used++] = *p++;
    for (; *p && used + 2 < 32; p++, left--) {
        out[used++] = *p;
        if (left > 1 && left % 3 == 1)
            out[used++] = ',';
    }
    out[used] = 0;
    return out;
}

void sheet_begin(struct sheet *s, FILE *out, const char *title, const void *style,
                 size_t style_bytes)
{
    *s = (struct sheet){.out = out, .html = style != NULL};
    if (!style) {
        fprintf(out, "%s\n", title);
        return;
    }
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<style>\n",
          out);
    fwrite(style, 1, style_bytes, out);
    fputs("</style>\n<title>", out);
    sheet_escape(out, title);
    fputs("</title></head><body><main>\n<section><h1>", out);
    sheet_escape(out, title);
    fputs("</h1>\n", out);
}

static void section_json(struct json_write *w, const char *heading)
{
    json_object(w, NULL);
    json_text(w, "heading", heading);
    json_array(w, "content");
}

void sheet_begin_json(struct sheet *s, FILE *out, const char *title)
{
    *s = (struct sheet){.out = out, .json = true, .w = {.out = out}};
    json_object(&s->w, NULL);
    json_text(&s->w, "title", title);
    json_array(&s->w, "sections");
    section_json(&s->w, title);
}

void sheet_end(struct sheet *s)
{
    if (s->json)
        json_close(&s->w);
    if (s->html)
        fputs("</section></main></body></html>\n", s->out);
    free(s->rows);
    s->rows = NULL;
}

/* An element of text. */
static void element_write(FILE *out, const char *begin, const char *text, const char *end)
{
    fputs(begin, out);
    sheet_escape(out, text);
    fputs(end, out);
}

void sheet_heading(struct sheet *s, const char *text)
{
    if (s->json) {
        json_end(&s->w);
        json_end(&s->w);
        section_json(&s->w, text);
    } else if (s->html) {
        element_write(s->out, "</section><section><h2>", text, "</h2>\n");
    } else {
        fprintf(s->out, "\n%s\n", text);
    }
}

/* Words in lines of at most WIDTH columns; further lines begin at `indent`. */
static void text_wrap(FILE *out, const char *text, int indent)
{
    int column = indent;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > indent && column + 1 + (int)n > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)n, text);
        column += (int)n;
        text += n + strspn(text + n, " ");
    }
    fputc('\n', out);
}

void sheet_line(struct sheet *s, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (s->json)
        json_text(&s->w, NULL, text);
    else if (s->html)
        element_write(s->out, "<p>", text, "</p>\n");
    else
        text_wrap(s->out, text, 0);
}

void sheet_item(struct sheet *s, const char *text)
{
    if (s->json) {
        json_text(&s->w, NULL, text);
    } else if (s->html) {
        element_write(s->out, "<p>\xe2\x80\x93 ", text, "</p>\n");
    } else {
        fputs("- ", s->out);
        text_wrap(s->out, text, 2);
    }
}

void sheet_table(struct sheet *s, const char *const *head, unsigned columns, unsigned numbers)
{
    s->columns = columns < SHEET_COLUMNS_MAX ? columns : SHEET_COLUMNS_MAX;
    s->numbers = numbers;
    s->count = s->at = 0;
    for (unsigned i = 0; i < s->columns; i++)
        s->head[i] = head[i];
}

static struct sheet_row *row_room(struct sheet *s)
{
    if (s->count == s->room) {
        size_t room = 2 * s->room + 16;
        struct sheet_row *rows = realloc(s->rows, room * sizeof *rows);
        s->bad |= !rows;
        if (!rows)
            return NULL;
        s->rows = rows;
        s->room = room;
    }
    return &s->rows[s->count];
}

void sheet_cell(struct sheet *s, const char *format, ...)
{
    struct sheet_row *r = row_room(s);
    unsigned at = s->at;
    va_list args;
    s->at = (s->at + 1) % s->columns;
    if (!r)
        return;
    va_start(args, format);
    vsnprintf(r->cell[at], sizeof r->cell[at], format, args);
    va_end(args);
    s->count += s->at == 0;
}

static void text_row(const struct sheet *s, const char *const cells[], const int *width)
{
    for (unsigned i = 0; i < s->columns; i++) {
        bool last = i + 1 == s->columns;
        if (i >= s->numbers)
            fprintf(s->out, "%s%*s", i ? "  " : "", width[i], cells[i]);
        else
            fprintf(s->out, "%s%-*s", i ? "  " : "", last ? 0 : width[i], cells[i]);
    }
    fputc('\n', s->out);
}

static void text_table(const struct sheet *s)
{
    int width[SHEET_COLUMNS_MAX] = {0};
    const char *cells[SHEET_COLUMNS_MAX];
    for (unsigned i = 0; i < s->columns; i++) {
        width[i] = (int)strlen(s->head[i]);
        for (size_t k = 0; k < s->count; k++) {
            int n = (int)strlen(s->rows[k].cell[i]);
            width[i] = n > width[i] ? n : width[i];
        }
    }
    text_row(s, s->head, width);
    for (size_t k = 0; k < s->count; k++) {
        for (unsigned i = 0; i < s->columns; i++)
            cells[i] = s->rows[k].cell[i];
        text_row(s, cells, width);
    }
}

/* On a narrow page each row is a block whose cells carry their column's name, data-l. */
static void html_table(const struct sheet *s)
{
    fputs("<div class=\"wide\"><table><thead><tr>", s->out);
    for (unsigned i = 0; i < s->columns; i++)
        element_write(s->out, i >= s->numbers ? "<th class=\"n\">" : "<th>", s->head[i], "</th>");
    fputs("</tr></thead><tbody>\n", s->out);
    for (size_t k = 0; k < s->count; k++) {
        element_write(s->out, "<tr><th scope=\"row\">", s->rows[k].cell[0], "</th>");
        for (unsigned i = 1; i < s->columns; i++) {
            element_write(s->out, i >= s->numbers ? "<td class=\"n\" data-l=\"" : "<td data-l=\"",
                          s->head[i], "\">");
            element_write(s->out, "", s->rows[k].cell[i], "</td>");
        }
        fputs("</tr>\n", s->out);
    }
    fputs("</tbody></table></div>\n", s->out);
}

static void json_table(struct sheet *s)
{
    json_object(&s->w, NULL);
    json_array(&s->w, "head");
    for (unsigned i = 0; i < s->columns; i++)
        json_text(&s->w, NULL, s->head[i]);
    json_end(&s->w);
    json_array(&s->w, "rows");
    for (size_t k = 0; k < s->count; k++) {
        json_array(&s->w, NULL);
        for (unsigned i = 0; i < s->columns; i++)
            json_text(&s->w, NULL, s->rows[k].cell[i]);
        json_end(&s->w);
    }
    json_end(&s->w);
    json_end(&s->w);
}

void sheet_table_end(struct sheet *s)
{
    if (s->json)
        json_table(s);
    else if (s->html)
        html_table(s);
    else
        text_table(s);
}
