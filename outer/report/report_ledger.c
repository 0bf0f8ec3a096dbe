/* The report's table of every byte on the link, from each site's ledger. */
#include <inttypes.h>
#include "outer/report/report_own.h"

enum { CELLS = 4, NOTHING = -1 };

static void row_write(struct report_table *t, const char *name, const double cells[CELLS])
{
    table_name(t, name);
    for (int i = 0; i < CELLS; i++)
        if (cells[i] == NOTHING)
            table_number(t, "");
        else
            table_count(t, cells[i]);
}

static double apart(const struct ledger_side *s)
{
    return s->socket ? 100 * ((double)ledger_sum(s) - (double)s->socket) / (double)s->socket : 0;
}

static const char *digits(double bytes)
{
    static char text[8][32]; /* as many as one sentence has */
    static int next;
    return table_digits(text[next++ % 8], bytes);
}

static void notes_write(FILE *out, const struct ledger_member *m)
{
    fprintf(out, "<p class=\"note\">Layers beside the kernel: %+.3f %% up, %+.3f %% down.",
            apart(&m->up.layers), apart(&m->down.layers));
    if (m->up.wrong || m->down.wrong)
        fprintf(out, " <b>%" PRIu64 " transfers are not as predicted: atoll ledger names them.</b>",
                m->up.wrong + m->down.wrong);
    if (m->up.resent || m->down.resent)
        fprintf(out, " Sent again: %s bytes up, %s down.", digits((double)m->up.resent),
                digits((double)m->down.resent));
    if (m->up.lost || m->down.lost)
        fprintf(out,
                " Sent by processes that were killed before they booked it: %s bytes up, %s down.",
                digits((double)m->up.lost), digits((double)m->down.lost));
    fputs("</p>", out);
}

static void member_write(FILE *out, const struct ledger_member *m)
{
    static const char *const head[] = {"bytes", "up, predicted", "up, counted", "down, predicted",
                                       "down, counted"};
    const struct ledger_side *u = &m->up.layers, *d = &m->down.layers;
    const struct {
        const char *name;
        double cells[CELLS];
    } rows[] = {{"payload",
                 {(double)m->up.predicted, (double)u->payload, (double)m->down.predicted,
                  (double)d->payload}},
                {"protobuf and gRPC", {NOTHING, (double)u->grpc, NOTHING, (double)d->grpc}},
                {"HTTP/2 frames (model)", {NOTHING, (double)u->http2, NOTHING, (double)d->http2}},
                {"TLS records (model)", {NOTHING, (double)u->tls, NOTHING, (double)d->tls}},
                {"all layers", {NOTHING, (double)ledger_sum(u), NOTHING, (double)ledger_sum(d)}},
                {"kernel's sockets", {NOTHING, (double)u->socket, NOTHING, (double)d->socket}}};
    struct report_table t;
    table_begin(&t, out, head, 5, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        row_write(&t, rows[i].name, rows[i].cells);
    table_end(&t);
    notes_write(out, m);
}

static bool has_ledger(const struct report_run *r)
{
    return r->role == REPORT_SITE || r->role == REPORT_AGGREGATOR;
}

void report_ledger(FILE *out, const struct report_runs *r)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++)
        any = any || has_ledger(&r->run[i]);
    if (!any)
        return;
    fputs("<section><h2>Every byte on the link</h2><p class=\"note\">Payload as predicted from the "
          "configuration and as counted, everything around it, and what the kernel says that its "
          "sockets carried. Up: from the sites to the aggregator.</p><div class=\"gridw\">\n",
          out);
    for (size_t i = 0; i < r->count; i++) {
        const struct report_run *run = &r->run[i];
        if (!has_ledger(run))
            continue;
        fputs("<div><h2>", out);
        plot_escape(out, run->name);
        fputs("</h2>", out);
        if (run->ledger.lives) {
            member_write(out, &run->ledger);
        } else {
            fputs("<p class=\"soft\">", out);
            plot_escape(out, run->ledger_why);
            fputs("</p>", out);
        }
        fputs("</div>\n", out);
    }
    fputs("</div></section>\n", out);
}
