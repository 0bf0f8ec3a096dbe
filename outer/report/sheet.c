#include "outer/report/sheet.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "outer/report/plot.h"
#include "outer/report/report_own.h"

enum { WIDTH = 100 };

void sheet_begin(struct sheet *s, FILE *out, bool html, const char *title)
{
    *s = (struct sheet){.out = out, .html = html};
    if (html) {
        report_page_begin(out, title);
        fputs("<h1>", out);
        plot_escape(out, title);
        fputs("</h1>\n", out);
    } else {
        fprintf(out, "%s\n", title);
    }
}

void sheet_end(struct sheet *s)
{
    if (s->html)
        fputs("</section></main></body></html>\n", s->out);
    free(s->rows);
    s->rows = NULL;
}

void sheet_heading(struct sheet *s, const char *text)
{
    if (s->html) {
        fputs("</section><section><h2>", s->out);
        plot_escape(s->out, text);
        fputs("</h2>\n", s->out);
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
    if (!s->html) {
        text_wrap(s->out, text, 0);
        return;
    }
    fputs("<p>", s->out);
    plot_escape(s->out, text);
    fputs("</p>\n", s->out);
}

void sheet_item(struct sheet *s, const char *text)
{
    if (s->html) {
        fputs("<p>\xe2\x80\x93 ", s->out);
        plot_escape(s->out, text);
        fputs("</p>\n", s->out);
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
    if (s->html)
        table_begin(&s->table, s->out, head, s->columns, numbers);
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
    char text[SHEET_CELL_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    unsigned at = s->at;
    s->at = (s->at + 1) % s->columns;
    if (s->html) {
        if (at == 0)
            table_name(&s->table, text);
        else if (at >= s->numbers)
            table_number(&s->table, text);
        else
            table_text(&s->table, text);
        return;
    }
    struct sheet_row *r = row_room(s);
    if (!r)
        return;
    memcpy(r->cell[at], text, sizeof text);
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

void sheet_table_end(struct sheet *s)
{
    int width[SHEET_COLUMNS_MAX] = {0};
    const char *cells[SHEET_COLUMNS_MAX];
    if (s->html) {
        table_end(&s->table);
        return;
    }
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
