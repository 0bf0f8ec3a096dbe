/* The report's table of what an emulated network did to the packets (atoll wan --record). */
#include "outer/report/report_own.h"

enum { COLUMNS = 11 };

/* The record's keys, in the table's order, behind the two names. */
static const char *const key[COLUMNS] = {"from", "to",     "packets", "bytes", "arrived",   "queue",
                                         "lost", "outage", "twice",   "late",  "queue_peak"};

static void network_begin(struct report_table *t, FILE *out, const struct jsonl_row *row)
{
    const char *head[COLUMNS] = {"from",
                                 "to",
                                 "packets",
                                 "bytes",
                                 "arrived",
                                 "dropped by a full queue",
                                 "lost",
                                 "in an outage",
                                 "twice",
                                 "overtaken",
                                 "longest queue, bytes"};
    if (jsonl_number(row, "relay") > 0)
        head[2] = "pieces";
    fputs("<h2>", out);
    plot_escape(out, jsonl_string(row, "source"));
    fprintf(out, ", seed %.0f</h2>", jsonl_number(row, "seed"));
    table_begin(t, out, head, COLUMNS, 2);
}

static void direction_write(struct report_table *t, const struct jsonl_row *row)
{
    for (int i = 0; i < COLUMNS; i++)
        if (i < 2)
            table_text(t, jsonl_string(row, key[i]));
        else
            table_count(t, jsonl_number(row, key[i]));
}

static void missed_write(struct report_table *t, const struct jsonl_row *row)
{
    char text[256], packets[32];
    snprintf(
        text, sizeof text,
        "%s packets of %.64s were missed: this machine was too slow, the figures are not those "
        "of the topology.",
        table_digits(packets, jsonl_number(row, "packets")), jsonl_string(row, "place"));
    table_wide(t, text);
}

enum err report_wan(FILE *out, const char *path)
{
    struct jsonl_reader reader;
    struct jsonl_row row;
    struct report_table t;
    unsigned networks = 0;
    if (!jsonl_reader_open(&reader, path))
        return err_set(
            ERR_INPUT,
            "%s: there is no such file: atoll wan --record writes it, and atoll demo --wan", path);
    fputs("<section><h2>The emulated network</h2><p class=\"note\">What it did to the packets of "
          "each direction, headers included.</p>\n",
          out);
    while (jsonl_next(&reader, &row))
        if (jsonl_is(&row, "network")) {
            if (networks++)
                table_end(&t);
            network_begin(&t, out, &row);
        } else if (networks && jsonl_is(&row, "direction")) {
            direction_write(&t, &row);
        } else if (networks && jsonl_is(&row, "missed")) {
            missed_write(&t, &row);
        }
    jsonl_reader_close(&reader);
    if (!networks)
        return err_set(ERR_INPUT, "%s: it is no record of an emulated network", path);
    table_end(&t);
    fputs("</section>\n", out);
    return ERR_OK;
}
