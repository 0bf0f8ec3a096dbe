/* The report's table of what an emulated network did to the packets (atoll wan --record). */
#include "outer/report/plot.h"
#include "outer/report/report.h"

enum { COLUMNS = 9 };

/* The record's keys, in the table's order. */
static const char *const key[COLUMNS] = {"packets", "bytes", "arrived", "queue",     "lost",
                                         "outage",  "twice", "late",    "queue_peak"};

static void begin(FILE *out, const struct jsonl_row *row, bool more)
{
    static const char *const name[COLUMNS] = {
        "bytes", "arrived",   "dropped by a full queue", "lost", "in an outage",
        "twice", "overtaken", "longest queue, bytes"};
    if (more)
        fputs("</table></div>\n", out);
    fputs("<h2>", out);
    plot_escape(out, jsonl_string(row, "source"));
    fprintf(out,
            ", seed %.0f</h2><div class=\"wide\"><table><tr><th>from</th><th>to</th><th "
            "class=\"n\">%s</th>",
            jsonl_number(row, "seed"), jsonl_number(row, "relay") > 0 ? "pieces" : "packets");
    for (int i = 0; i < COLUMNS - 1; i++)
        fprintf(out, "<th class=\"n\">%s</th>", name[i]);
    fputs("</tr>\n", out);
}

static void direction(FILE *out, const struct jsonl_row *row)
{
    fputs("<tr><td>", out);
    plot_escape(out, jsonl_string(row, "from"));
    fputs("</td><td>", out);
    plot_escape(out, jsonl_string(row, "to"));
    fputs("</td>", out);
    for (int i = 0; i < COLUMNS; i++)
        fprintf(out, "<td class=\"n\">%.0f</td>", jsonl_number(row, key[i]));
    fputs("</tr>\n", out);
}

static void missed(FILE *out, const struct jsonl_row *row)
{
    fprintf(out, "<tr><td colspan=\"%d\"><b>%.0f packets of ", COLUMNS + 2,
            jsonl_number(row, "packets"));
    plot_escape(out, jsonl_string(row, "place"));
    fputs(" were missed: this machine was too slow, the figures are not those of the "
          "topology.</b></td></tr>\n",
          out);
}

enum err report_wan(FILE *out, const char *path)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    unsigned networks = 0;
    if (!jsonl_reader_open(&reader, path))
        return err_set(
            ERR_INPUT,
            "%s: there is no such file: atoll wan --record writes it, and atoll demo --wan", path);
    fputs("<section><h2>The emulated network</h2><p class=\"note\">What it did to the packets of "
          "each direction, "
          "headers included.</p>\n",
          out);
    while (jsonl_next(&reader, &row))
        if (jsonl_is(&row, "network"))
            begin(out, &row, networks++ > 0);
        else if (networks && jsonl_is(&row, "direction"))
            direction(out, &row);
        else if (networks && jsonl_is(&row, "missed"))
            missed(out, &row);
    jsonl_reader_close(&reader);
    if (!networks)
        return err_set(ERR_INPUT, "%s: it is no record of an emulated network", path);
    fputs("</table></div></section>\n", out);
    return ERR_OK;
}
