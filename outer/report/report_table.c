#include "outer/report/report_table.h"
#include <math.h>
#include <string.h>
#include "outer/report/plot.h"

const char *table_digits(char out[32], double value)
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

void table_begin(struct report_table *t, FILE *out, const char *const *head, unsigned columns,
                 unsigned numbers)
{
    *t = (struct report_table){
        .out = out, .columns = columns < REPORT_COLUMNS_MAX ? columns : REPORT_COLUMNS_MAX};
    fputs("<div class=\"wide\"><table><tr class=\"head\">", out);
    for (unsigned i = 0; i < t->columns; i++) {
        t->head[i] = head[i];
        fprintf(out, "<th%s>", i >= numbers ? " class=\"n\"" : "");
        plot_escape(out, head[i]);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
}

static void cell_begin(struct report_table *t, const char *tag, const char *class)
{
    if (t->at == 0)
        fputs("<tr>", t->out);
    fprintf(t->out, "<%s%s%s%s", tag, *class ? " class=\"" : "", class, *class ? "\"" : "");
    if (t->head[t->at][0]) {
        fputs(" data-l=\"", t->out);
        plot_escape(t->out, t->head[t->at]);
        fputs("\"", t->out);
    }
    fputs(">", t->out);
}

static void cell_end(struct report_table *t, const char *tag)
{
    fprintf(t->out, "</%s>", tag);
    if (++t->at < t->columns)
        return;
    t->at = 0;
    fputs("</tr>\n", t->out);
}

void table_name(struct report_table *t, const char *text)
{
    cell_begin(t, "th", "");
    plot_escape(t->out, text);
    cell_end(t, "th");
}

void table_text(struct report_table *t, const char *text)
{
    cell_begin(t, "td", "");
    plot_escape(t->out, text);
    cell_end(t, "td");
}

void table_number(struct report_table *t, const char *text)
{
    cell_begin(t, "td", *text ? "n" : "n none");
    plot_escape(t->out, text);
    cell_end(t, "td");
}

void table_count(struct report_table *t, double value)
{
    char text[32];
    table_number(t, isfinite(value) ? table_digits(text, value) : "");
}

void table_code(struct report_table *t, const char *text)
{
    cell_begin(t, "td", "");
    fputs("<code>", t->out);
    plot_escape(t->out, text);
    fputs("</code>", t->out);
    cell_end(t, "td");
}

void table_wide(struct report_table *t, const char *text)
{
    fprintf(t->out, "<tr><td colspan=\"%u\">", t->columns);
    plot_escape(t->out, text);
    fputs("</td></tr>\n", t->out);
}

void table_end(struct report_table *t)
{
    fputs("</table></div>\n", t->out);
}
